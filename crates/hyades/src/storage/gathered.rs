//! Copies of the rows of a step of a walk, to be visited while the thread is not pinned: a visitor
//! may take long.

use super::layout::Layout;
use super::row::Row;

/// A step ends after copying this many bytes.
const FULL_BYTES: usize = 256 << 10;

#[derive(Default)]
pub(crate) struct GatheredRows {
    bytes: Vec<u8>,
    rows: Vec<GatheredRow>,
}

struct GatheredRow {
    /// The end of the row's bytes; they begin at the end of the previous row's bytes.
    end: usize,
    base: usize,
    window_nulls: Option<u64>,
    row_id: u64,
}

impl GatheredRows {
    pub fn push(&mut self, row: &Row<'_>) {
        self.bytes.extend_from_slice(row.bytes);
        self.rows.push(GatheredRow {
            end: self.bytes.len(),
            base: row.base,
            window_nulls: row.window_nulls,
            row_id: row.row_id,
        });
    }

    pub fn is_full(&self) -> bool {
        self.bytes.len() >= FULL_BYTES
    }

    /// Visits the rows, all of this layout, and removes them.
    pub fn visit(&mut self, layout: &Layout, visit: &mut dyn FnMut(&Row<'_>)) {
        let mut start = 0;
        for GatheredRow { end, base, window_nulls, row_id } in self.rows.drain(..) {
            let bytes = &self.bytes[start..end];
            visit(&Row { layout, bytes, base, window_nulls, row_id });
            start = end;
        }
        self.bytes.clear();
    }
}
