//! The bytes of a row to copy for a read.

use super::schema::Columns;
use super::table::TableData;
use crate::storage::Stamp;

/// The part of a row to copy.
#[derive(Clone, Copy)]
pub(crate) enum CopyWindow {
    Whole,
    /// Offset and length.
    Fixed(usize, usize),
    /// Up to the end of a variable-length column; the offset of the `u32` with the end.
    Prefix(usize),
}

/// The part of a row in a record that contains these columns, as far as present.
#[inline]
pub(crate) fn window<S: Stamp>(table: &TableData<S>, columns: Columns) -> CopyWindow {
    let layout = table.record_layout();
    // A column that is not in the table is reported by the read.
    if columns.0 == Columns::ALL.0 {
        return CopyWindow::Whole;
    }
    if layout.columns.len() < 64 && columns.0 >> layout.columns.len() != 0 {
        return CopyWindow::Whole;
    }
    let mut variable = columns.0 & layout.variable_set;
    if table.needs_key(columns) {
        // A whole row is built from the copy: with all values in its tail up to the last wanted
        // value.
        let wanted = columns.0 & table.layout.variable_set;
        let up_to_last = u64::MAX.checked_shr(wanted.leading_zeros()).unwrap_or(0);
        variable = up_to_last & layout.variable_set;
    }
    if variable != 0 {
        // Values in the tail are in column order.
        let last = 63 - variable.leading_zeros();
        return CopyWindow::Prefix(layout.columns[last as usize].offset as usize);
    }
    let (mut first, mut last) = (usize::MAX, 0);
    let mut left = columns.0 & !layout.left_out;
    while left != 0 {
        let column = &layout.columns[left.trailing_zeros() as usize];
        let at = column.offset as usize;
        first = first.min(at);
        last = last.max(at + column.kind.width().unwrap_or(0));
        left &= left - 1;
    }
    if first == usize::MAX {
        CopyWindow::Fixed(0, 0)
    } else {
        debug_assert!(last <= layout.fixed_bytes, "the window ends before the tail");
        CopyWindow::Fixed(first, last - first)
    }
}
