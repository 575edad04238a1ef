//! Short rows: rows without the columns of their primary key, in records, which have the key
//! anyway. Tables are declared so by [`Schema::key_once`].
//!
//! Only records hold short rows, and the older versions behind records: they copy the words of
//! records. Everywhere else rows are whole, in the layout of their schema: in write sets, in log
//! records, in before-images, in the rows that a checkpoint saves and writes, at replay, in keys of
//! indexes, in the rows given to a transaction. Only [`super::row_access`] converts between the
//! two, since copying or replacing the bytes of a record is private to storage. So the bytes on
//! disk, and everything computed from them, are the same for both kinds of tables, and each opening
//! may declare either.
//!
//! A delta has no columns of the key, so the same bytes change a whole row and a short row. A
//! transaction that asks for no column of the key reads the short row directly, through its layout:
//! columns keep their numbers.
//!
//! A reader without a lock may convert torn bytes to a whole row. The result has no meaning, as the
//! version word shows, but nothing outside of the bytes is read: a length that does not fit is
//! clipped.

use super::key::{ColumnBytes, take_column};
use super::layout::Layout;
use super::schema::Schema;
use super::value::Type;
use smallvec::SmallVec;

/// How the rows of a table are shortened.
#[derive(Debug)]
pub(crate) struct ShortRows {
    /// The layout of short rows.
    pub layout: Layout,
    /// The key's columns of variable length precede all others: then the tail of a whole row ends
    /// with the tail of the short row.
    pub keys_lead: bool,
}

/// The columns of a key.
struct KeyColumns {
    bytes: ColumnBytes,
    /// The number of each column, and its end in the bytes.
    ends: SmallVec<[(u16, usize); 4]>,
}

impl KeyColumns {
    /// Of an encoded key; `None` if not a key of this table.
    fn of(whole: &Layout, mut key: &[u8]) -> Option<KeyColumns> {
        let mut columns = KeyColumns { bytes: ColumnBytes::new(), ends: SmallVec::new() };
        for &at in &whole.key {
            take_column(&mut key, whole.columns[at as usize].kind, &mut columns.bytes)?;
            columns.ends.push((at, columns.bytes.len()));
        }
        key.is_empty().then_some(columns)
    }

    /// Numbers and bytes, in the key's order.
    fn iter(&self) -> impl Iterator<Item = (u16, &[u8])> {
        let mut start = 0;
        self.ends.iter().map(move |&(at, end)| {
            let bytes = &self.bytes[start..end];
            start = end;
            (at, bytes)
        })
    }

    /// The bytes of a column, if the column is in the key.
    fn get(&self, column: u16) -> Option<&[u8]> {
        self.iter().find(|(at, _)| *at == column).map(|(_, bytes)| bytes)
    }
}

/// Whether these bytes are an encoded primary key of the table.
pub(crate) fn is_key(whole: &Layout, key: &[u8]) -> bool {
    let Some(columns) = KeyColumns::of(whole, key) else { return false };
    columns.iter().all(|(at, bytes)| {
        let kind = whole.columns[at as usize].kind;
        kind != Type::Text || std::str::from_utf8(bytes).is_ok()
    })
}

impl ShortRows {
    /// Of a table whose rows are shortened, else `None`.
    pub fn new(schema: &Schema, table: u32) -> Option<ShortRows> {
        if !schema.key_once && !cfg!(feature = "key-once") || schema.key.is_empty() {
            return None;
        }
        let left_out = schema.key.iter().fold(0, |set, &at| set | 1u64 << at);
        let layout = Layout::without(schema, table, left_out);
        debug_assert_eq!(
            layout.has_nulls,
            schema.columns.iter().any(|column| column.nullable),
            "no column of a key is nullable"
        );
        let is_variable = |at: &&u16| schema.columns[usize::from(**at)].kind.width().is_none();
        let last_of_key = schema.key.iter().filter(is_variable).max();
        let first_other = layout.variable.first();
        let keys_lead = last_of_key.zip(first_other).is_none_or(|(last, first)| last < first);
        Some(ShortRows { layout, keys_lead })
    }

    /// The columns of constant width in short rows: offset in a whole row, offset in a short row,
    /// and width.
    fn fixed<'l>(&'l self, whole: &'l Layout) -> impl Iterator<Item = (usize, usize, usize)> {
        let both = whole.columns.iter().zip(&self.layout.columns).enumerate();
        both.filter_map(move |(at, (column, short))| {
            let width = column.kind.width()?;
            let is_there = self.layout.left_out >> at & 1 == 0;
            is_there.then_some((column.offset as usize, short.offset as usize, width))
        })
    }

    /// The length of a row after shortening.
    pub fn short_len(&self, whole: &Layout, row: &[u8]) -> usize {
        let of_key = whole.variable_set & self.layout.left_out;
        let in_tail = (0..64u16).filter(|at| of_key >> at & 1 == 1);
        let tail: usize =
            in_tail.map(|at| whole.place_in_tail(row, &whole.columns[at as usize]).1).sum();
        row.len() - (whole.fixed_bytes - self.layout.fixed_bytes) - tail
    }

    /// Writes a row into `out` (cleared first) as a short row.
    pub fn shorten(&self, whole: &Layout, row: &[u8], out: &mut Vec<u8>) {
        debug_assert!(row.len() >= whole.fixed_bytes, "a row has all its columns");
        let short = &self.layout;
        out.clear();
        out.resize(short.fixed_bytes, 0);
        if short.has_nulls {
            out[..8].copy_from_slice(&row[..8]);
        }
        for (from, to, width) in self.fixed(whole) {
            out[to..to + width].copy_from_slice(&row[from..from + width]);
        }
        for &at in &short.variable {
            let (start, len) = whole.place_in_tail(row, &whole.columns[at as usize]);
            out.extend_from_slice(&row[start..start + len]);
            let end = (out.len() - short.fixed_bytes) as u32;
            let place = short.columns[at as usize].offset as usize;
            out[place..place + 4].copy_from_slice(&end.to_le_bytes());
        }
        debug_assert_eq!(out.len(), self.short_len(whole, row), "the length is as it was said");
    }

    /// The end of a column within the tail of a short row.
    fn end(&self, short: &[u8], at: u16) -> u32 {
        let place = self.layout.columns[at as usize].offset as usize;
        u32::from_le_bytes(short[place..place + 4].try_into().expect("four bytes"))
    }

    /// Writes the part of a whole row before its tail into `out`.
    fn write_head(&self, whole: &Layout, columns: &KeyColumns, short: &[u8], out: &mut [u8]) {
        if whole.has_nulls {
            out[..8].copy_from_slice(&short[..8]);
        }
        for (to, from, width) in self.fixed(whole) {
            out[to..to + width].copy_from_slice(&short[from..from + width]);
        }
        for (at, bytes) in columns.iter() {
            let column = &whole.columns[at as usize];
            if column.kind.width().is_some() {
                out[column.offset as usize..][..bytes.len()].copy_from_slice(bytes);
            }
        }
        let (mut end, mut short_end) = (0u32, 0u32);
        for &at in &whole.variable {
            let len = match columns.get(at) {
                Some(bytes) => bytes.len() as u32,
                None => {
                    let start = std::mem::replace(&mut short_end, self.end(short, at));
                    // The ends of a torn row may descend.
                    short_end.wrapping_sub(start)
                }
            };
            end = end.wrapping_add(len);
            let place = whole.columns[at as usize].offset as usize;
            out[place..place + 4].copy_from_slice(&end.to_le_bytes());
        }
    }

    /// Appends the whole row of a key and a short row. The short row may end within its tail; the
    /// whole row then lacks the same bytes. Appends nothing if the bytes are no key of the table,
    /// or too few for a row of the table: then the row was never written, or is torn.
    pub fn append_whole(&self, whole: &Layout, key: &[u8], short: &[u8], out: &mut Vec<u8>) {
        let columns = KeyColumns::of(whole, key);
        let parts = short.split_at_checked(self.layout.fixed_bytes);
        let Some((columns, (_, tail))) = columns.zip(parts) else { return };
        let begin = out.len();
        out.resize(begin + whole.fixed_bytes, 0);
        self.write_head(whole, &columns, short, &mut out[begin..]);
        let mut start = 0;
        for &at in &whole.variable {
            if let Some(bytes) = columns.get(at) {
                out.extend_from_slice(bytes);
                continue;
            }
            let end = (self.end(short, at) as usize).min(tail.len());
            out.extend_from_slice(tail.get(start..end).unwrap_or_default());
            start = end;
        }
    }

    /// The number of bytes that [`ShortRows::widen`] needs in front of a short row.
    pub fn room(&self, whole: &Layout, key: &[u8]) -> usize {
        // An encoded key is not shorter than its columns.
        whole.fixed_bytes + key.len()
    }

    /// As [`ShortRows::append_whole`], where keys lead: makes the short row behind `room` bytes of
    /// the buffer whole, in place, and returns its new start.
    pub fn widen(
        &self,
        whole: &Layout,
        key: &[u8],
        buffer: &mut [u8],
        room: usize,
    ) -> Option<usize> {
        debug_assert!(self.keys_lead, "the tail of the short row stays where it is");
        let columns = KeyColumns::of(whole, key)?;
        let tail_at = room + self.layout.fixed_bytes;
        // The whole row overwrites the short row.
        let short = SmallVec::<[u8; 64]>::from_slice(buffer.get(room..tail_at)?);
        let is_in_tail = |at: u16| whole.variable_set >> at & 1 == 1;
        let of_key = columns.iter().filter(|(at, _)| is_in_tail(*at));
        let key_tail: usize = of_key.map(|(_, bytes)| bytes.len()).sum();
        let begin = tail_at - key_tail - whole.fixed_bytes;
        let mut at = begin + whole.fixed_bytes;
        self.write_head(whole, &columns, &short, &mut buffer[begin..at]);
        for &column in &whole.variable {
            let Some(bytes) = columns.get(column) else { continue };
            buffer[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        }
        debug_assert_eq!(at, tail_at, "the key's columns end where the tail begins");
        Some(begin)
    }
}

#[cfg(test)]
mod tests;
