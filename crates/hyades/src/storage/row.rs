//! Rows as a transaction reads them, and deltas: the changed columns of a row.
//!
//! A delta is the number of columns, then for each, ascending: `column << 1 | null` as a varint,
//! and if not null the value's bytes, after a varint length if the column is variable-length. A
//! transaction's write set and a data record hold the same bytes.

use super::field::Field;
use super::layout::Layout;
use super::schema::{Column, MAX_ROW_BYTES, Set};
use super::value::{ColumnType, Type, Value};
use crate::error::Abort;

/// A row as read by a transaction: a copy of the columns that were asked for.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    pub(crate) layout: &'a Layout,
    /// The bytes of the row from `base` on.
    pub(crate) bytes: &'a [u8],
    pub(crate) base: usize,
    /// The row's null bitmap, if `bytes` is a window with some fixed-width columns only.
    pub(crate) window_nulls: Option<u64>,
    pub(crate) row_id: u64,
}

impl<'a> Row<'a> {
    /// Reads a column through its typed handle.
    ///
    /// # Panics
    /// If the column is of another type, was not among the columns asked for, or is null and the
    /// handle is not of an `Option`.
    #[inline]
    pub fn get<T: ColumnType + ?Sized>(&self, column: Column<T>) -> T::Output<'a> {
        let spec = &self.layout.columns[column.index as usize];
        assert!(
            T::reads(spec.kind),
            "column {} of table {:?} is {:?} and was read as {}",
            column.index,
            self.layout.name,
            spec.kind,
            std::any::type_name::<T>()
        );
        T::read(self.column_bytes(column.index))
    }

    /// Reads the column at position `column` as a field of a struct, see
    /// [`TableRow`](crate::TableRow).
    ///
    /// # Panics
    /// If the column is of another type, was not among the columns asked for, or is null and the
    /// field is no `Option`.
    #[inline]
    pub fn read<F: Field>(&self, column: u16) -> F::Read<'a> {
        let spec = &self.layout.columns[column as usize];
        assert!(
            F::KIND == spec.kind,
            "column {column} of table {:?} is {:?} and was read as {:?}",
            self.layout.name,
            spec.kind,
            F::KIND
        );
        F::read(self.column_bytes(column))
    }

    /// Reads a column by position.
    ///
    /// # Panics
    /// If there is no such column or it was not among the columns asked for.
    pub fn value(&self, column: u16) -> Value<'a> {
        match self.column_bytes(column) {
            Some(bytes) => Value::from_bytes(self.layout.columns[column as usize].kind, bytes),
            None => Value::Null,
        }
    }

    /// The hidden row id of a row in a table without a primary key; 0 in other tables.
    pub fn row_id(&self) -> u64 {
        self.row_id
    }

    #[inline]
    pub(crate) fn column_bytes(&self, column: u16) -> Option<&'a [u8]> {
        let Some(nulls) = self.window_nulls else {
            return self.layout.bytes(self.bytes, column);
        };
        if nulls >> column & 1 == 1 {
            return None;
        }
        let spec = &self.layout.columns[column as usize];
        let at = spec.offset as usize - self.base;
        Some(&self.bytes[at..at + spec.kind.width().expect("a window holds fixed-width columns")])
    }
}

/// Appends `n` as a varint of 7 bits a byte, low bits first.
#[inline]
pub fn push_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Takes a varint off the front of `bytes`; `None` if they end or do not fit 64 bits.
#[inline]
pub fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut n = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        n |= ((byte & 0x7F) as u64) << shift;
        if byte < 0x80 {
            return Some(n);
        }
    }
    None
}

/// Takes `n` bytes off the front; `None` if there are fewer.
#[inline]
pub fn take<'a>(bytes: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (head, rest) = bytes.split_at_checked(n)?;
    *bytes = rest;
    Some(head)
}

/// Appends the delta of these assignments to `out`; returns the set of changed columns. Of several
/// assignments to one column the last counts.
pub(crate) fn encode_delta(
    layout: &Layout,
    sets: &[Set<'_>],
    out: &mut Vec<u8>,
) -> Result<u64, Abort> {
    let mut changed = 0u64;
    let mut sorted = true;
    let mut last = None;
    for set in sets {
        layout.check(set.column, &set.value)?;
        if layout.key_set >> set.column & 1 == 1 {
            return Err(Abort::KeyColumnChanged { table: layout.table, column: set.column });
        }
        changed |= 1 << set.column;
        sorted &= last < Some(set.column);
        last = Some(set.column);
    }
    push_varint(out, changed.count_ones() as u64);
    if sorted {
        sets.iter().for_each(|set| push_assignment(layout, set.column, &set.value, out));
    } else {
        for column in (0..64).filter(|c| changed >> c & 1 == 1) {
            let set = sets.iter().rev().find(|s| s.column == column).expect("it is in the set");
            push_assignment(layout, column, &set.value, out);
        }
    }
    Ok(changed)
}

fn push_assignment(layout: &Layout, column: u16, value: &Value<'_>, out: &mut Vec<u8>) {
    let null = matches!(value, Value::Null);
    debug_assert!(!null || layout.columns[column as usize].nullable, "the value was checked");
    push_varint(out, (column as u64) << 1 | null as u64);
    if !null {
        value.with_bytes(|bytes| {
            if layout.columns[column as usize].kind.width().is_none() {
                push_varint(out, bytes.len() as u64);
            }
            out.extend_from_slice(bytes);
        });
    }
}

/// Iterator over the assignments of a delta: column and bytes, `None` for null.
pub(crate) struct Assignments<'a, 'l> {
    layout: &'l Layout,
    left: u64,
    rest: &'a [u8],
}

impl<'a, 'l> Assignments<'a, 'l> {
    pub fn new(layout: &'l Layout, delta: &'a [u8]) -> Self {
        let mut rest = delta;
        let left = take_varint(&mut rest).unwrap_or(0);
        Assignments { layout, left, rest }
    }

    /// The bytes after the delta, once all assignments were iterated over.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Number of assignments stated and not yet returned. If it is not 0 at the end, the bytes
    /// are not a delta of this table.
    pub fn missing(&self) -> u64 {
        self.left
    }
}

impl<'a> Iterator for Assignments<'a, '_> {
    type Item = (u16, Option<&'a [u8]>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let mut rest = self.rest;
        let tag = take_varint(&mut rest)?;
        let column = (tag >> 1) as u16;
        let spec = self.layout.columns.get(column as usize)?;
        let value = if tag & 1 == 1 {
            None
        } else {
            let len = match spec.kind.width() {
                Some(width) => width,
                None => take_varint(&mut rest)? as usize,
            };
            Some(take(&mut rest, len)?)
        };
        self.rest = rest;
        self.left -= 1;
        Some((column, value))
    }
}

/// Checks a delta read from disk; returns the bytes after it, or `None` if it is invalid.
pub(crate) fn check_delta<'a>(layout: &Layout, delta: &'a [u8]) -> Option<&'a [u8]> {
    let mut walk = Assignments::new(layout, delta);
    for (column, bytes) in walk.by_ref() {
        let spec = &layout.columns[column as usize];
        match bytes {
            // No transaction changes the key of a row.
            _ if layout.key_set >> column & 1 == 1 => return None,
            None if !spec.nullable => return None,
            Some(bytes) if spec.kind == Type::Text && std::str::from_utf8(bytes).is_err() => {
                return None;
            }
            _ => {}
        }
    }
    (walk.missing() == 0 && !delta.is_empty()).then(|| walk.rest())
}

/// Checks that a row does not become too long by `delta`.
pub(crate) fn check_len(layout: &Layout, row: &[u8], delta: &[u8]) -> Result<(), Abort> {
    let mut len = row.len();
    for (column, bytes) in Assignments::new(layout, delta) {
        let spec = &layout.columns[usize::from(column)];
        if spec.kind.width().is_none() {
            let (_, old) = layout.place_in_tail(row, spec);
            len = len - old + bytes.map_or(0, <[u8]>::len);
        }
    }
    if len > MAX_ROW_BYTES { Err(Abort::RowTooLarge { table: layout.table }) } else { Ok(()) }
}

/// Applies `delta` to `row`: in place where the lengths allow, else by rebuilding the tail.
pub(crate) fn apply_delta(layout: &Layout, row: &mut Vec<u8>, delta: &[u8]) -> Result<(), Abort> {
    debug_assert!(row.len() >= layout.fixed_bytes, "a delta is applied to a row of its table");
    let mut rebuild = false;
    for (column, bytes) in Assignments::new(layout, delta) {
        let spec = &layout.columns[column as usize];
        let was_null = layout.place(row, column).is_none();
        let (_, old) = layout.place(row, column).unwrap_or((0, 0));
        if spec.nullable {
            let mut nulls = u64::from_le_bytes(row[..8].try_into().unwrap());
            nulls = nulls & !(1 << column) | (bytes.is_none() as u64) << column;
            row[..8].copy_from_slice(&nulls.to_le_bytes());
        }
        match (bytes, spec.kind.width()) {
            (None, Some(width)) => row[spec.offset as usize..][..width].fill(0),
            (Some(bytes), Some(width)) => {
                row[spec.offset as usize..][..width].copy_from_slice(bytes);
            }
            (Some(bytes), None) if !was_null && bytes.len() == old => {
                let (at, len) = layout.place(row, column).expect("it is not null");
                row[at..at + len].copy_from_slice(bytes);
            }
            _ => rebuild = true,
        }
    }
    if rebuild { rebuild_tail(layout, row, delta) } else { Ok(()) }
}

/// Rebuilds the row's tail with the variable-length values of `delta`.
fn rebuild_tail(layout: &Layout, row: &mut Vec<u8>, delta: &[u8]) -> Result<(), Abort> {
    let mut fresh: Vec<u8> = Vec::with_capacity(row.len() + delta.len());
    fresh.extend_from_slice(&row[..layout.fixed_bytes]);
    let mut start = 0;
    for &column in &layout.variable {
        let at = layout.columns[column as usize].offset as usize;
        let end = u32::from_le_bytes(row[at..at + 4].try_into().unwrap()) as usize;
        let changed = Assignments::new(layout, delta).find(|(c, _)| *c == column);
        match changed {
            Some((_, bytes)) => fresh.extend_from_slice(bytes.unwrap_or(&[])),
            None => {
                fresh.extend_from_slice(&row[layout.fixed_bytes + start..layout.fixed_bytes + end])
            }
        }
        let fresh_end = (fresh.len() - layout.fixed_bytes) as u32;
        fresh[at..at + 4].copy_from_slice(&fresh_end.to_le_bytes());
        start = end;
    }
    if fresh.len() > MAX_ROW_BYTES {
        return Err(Abort::RowTooLarge { table: layout.table });
    }
    *row = fresh;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::layout::layout_of_tests as layout;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_delta_gives_the_row_with_these_values(
            a: Option<String>, b: Option<i32>, c: Vec<u8>,
            na: Option<Option<String>>, nb: Option<Option<i32>>, nc: Option<Vec<u8>>,
        ) {
            let layout = layout();
            let mut row = Vec::new();
            layout
                .encode(&[1i64.into(), a.as_deref().into(), b.into(), c[..].into()], &mut row)
                .unwrap();
            let mut sets = Vec::new();
            if let Some(c) = &nc { sets.push(Set { column: 3, value: c[..].into() }); }
            if let Some(a) = &na { sets.push(Set { column: 1, value: a.as_deref().into() }); }
            if let Some(b) = &nb { sets.push(Set { column: 2, value: (*b).into() }); }
            let mut delta = Vec::new();
            encode_delta(&layout, &sets, &mut delta).unwrap();
            prop_assert_eq!(check_delta(&layout, &delta), Some(&[][..]));
            prop_assert!(check_len(&layout, &row, &delta).is_ok());
            apply_delta(&layout, &mut row, &delta).unwrap();
            let mut wanted = Vec::new();
            let a = na.unwrap_or(a);
            let c = nc.unwrap_or(c);
            layout
                .encode(
                    &[1i64.into(), a.as_deref().into(), nb.unwrap_or(b).into(), c[..].into()],
                    &mut wanted,
                )
                .unwrap();
            prop_assert!(layout.is_valid(&row));
            prop_assert_eq!(row, wanted);
        }

        #[test]
        fn a_delta_from_random_bytes_never_panics(bytes: Vec<u8>) {
            let _ = check_delta(&layout(), &bytes);
        }
    }

    #[test]
    fn a_row_of_the_largest_size_does_not_grow() {
        let layout = layout();
        let mut row = Vec::new();
        layout
            .encode(&[1i64.into(), "abc".into(), 2i32.into(), (&[7; 5][..]).into()], &mut row)
            .unwrap();
        let room = MAX_ROW_BYTES - row.len();
        for (more, fits) in [(0, true), (1, false)] {
            let long = vec![0; 5 + room + more];
            let mut delta = Vec::new();
            encode_delta(&layout, &[Set { column: 3, value: long[..].into() }], &mut delta)
                .unwrap();
            assert_eq!(check_len(&layout, &row, &delta).is_ok(), fits);
            assert_eq!(apply_delta(&layout, &mut row.clone(), &delta).is_ok(), fits);
        }
    }

    #[test]
    fn a_varint_reads_back() {
        for n in [0, 1, 127, 128, 1 << 20, u64::MAX] {
            let mut out = Vec::new();
            push_varint(&mut out, n);
            let mut rest = &out[..];
            assert_eq!(take_varint(&mut rest), Some(n));
            assert!(rest.is_empty());
        }
    }
}
