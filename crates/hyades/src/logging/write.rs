//! The row writes of a transaction: buffered while it runs, logged and installed when it commits.

use super::record::Change;
use crate::storage::Stamp;
use crate::storage::layout::Layout;
use crate::storage::old_versions::ByteRanges;
use crate::storage::record::{Record, word};
use crate::storage::row::{Assignments, apply_delta, push_varint};
use crate::storage::table::TableData;
use crate::storage::tid::Tid;
use crate::storage::usage::{UsageCells, change_of};
use bumpalo::Bump;
use hyades_platform::reclaim::Guard;
use std::borrow::Cow;
use std::ops::Range;

/// Buffered change of a row.
#[derive(Clone, Copy)]
pub enum Pending<'s> {
    /// The whole row.
    Put(&'s [u8]),
    /// Changed columns: their set as a bit mask, and the encoded delta.
    Delta(u64, &'s [u8]),
    Delete,
}

pub struct Write<'s, S> {
    pub record: &'s Record<S>,
    pub table: u32,
    pub pending: Pending<'s>,
    /// TID of the version that the write follows; known once the row is locked.
    pub base: Tid,
    /// Index in `writes` of the earlier write of the same row, replaced by this write.
    pub replaces: Option<u32>,
    pub superseded: bool,
}

impl<S> Write<'_, S> {
    /// Returns the write in the form of a data record.
    pub fn change(&self) -> Change<'_> {
        match self.pending {
            Pending::Put(row) => Change::Put(row),
            Pending::Delta(_, delta) => Change::Delta { base: self.base, delta },
            Pending::Delete => Change::Delete,
        }
    }

    /// The row that the write leaves, in the form of a record; none if the write deletes. The
    /// caller alone may change the row.
    pub fn image(&self, table: &TableData<S>) -> Option<Box<[u8]>>
    where
        S: Stamp,
    {
        let row = match self.pending {
            Pending::Put(row) => Cow::Borrowed(row),
            Pending::Delta(_, delta) => {
                let mut row = Vec::new();
                table.read_row(self.record, &mut row);
                apply_delta(&table.layout, &mut row, delta).expect("the row's length was checked");
                Cow::Owned(row)
            }
            Pending::Delete => return None,
        };
        Some(table.record_bytes(&row).into())
    }

    /// Returns the bytes of the row in the record that the change overwrites, if in place, and
    /// fewer than the bytes of the row.
    pub fn changed_bytes(&self, table: &TableData<S>) -> Option<ByteRanges>
    where
        S: Stamp,
    {
        let Pending::Delta(columns, delta) = self.pending else { return None };
        let layout = table.record_layout();
        if !layout.changes_in_place(columns) {
            return None;
        }
        let range = |(column, bytes): (u16, Option<&[u8]>)| {
            let at = layout.columns[column as usize].offset as usize;
            at..at + bytes.map_or(0, <[u8]>::len)
        };
        let ranges: ByteRanges = Assignments::new(layout, delta).map(range).collect();
        let words = |range: &Range<usize>| 1 + range.end.div_ceil(8) - range.start / 8;
        (ranges.iter().map(words).sum::<usize>() < layout.fixed_bytes / 8).then_some(ranges)
    }

    /// Writes the change into the row, and counts the change of usage; the caller holds the row's
    /// write protection, and the row's version word is `seen`. Returns whether the row exists
    /// afterwards.
    #[inline(always)]
    pub fn install(
        &self,
        (table, seen): (&TableData<S>, u64),
        usage: &UsageCells,
        guard: &Guard,
        scratch: &mut Vec<u8>,
    ) -> bool
    where
        S: Stamp,
    {
        let (is, grown) = match self.pending {
            Pending::Put(row) => (true, table.store_row(self.record, row, guard, scratch)),
            Pending::Delta(columns, delta) => {
                (true, table.store_delta(self.record, columns, delta, guard, scratch))
            }
            Pending::Delete => (false, 0),
        };
        let was = seen & word::ABSENT == 0;
        // Most writes overwrite a row by a row of the same length.
        if !was || !is || grown != 0 {
            self.count((was, is), grown, usage);
        }
        is
    }

    #[inline(never)]
    fn count(&self, there: (bool, bool), grown: i64, usage: &UsageCells) {
        usage.add(self.table, change_of(self.record, there, grown));
    }
}

/// Returns a delta with the effect of `first` followed by `second`.
pub(crate) fn merge_deltas<'s>(
    layout: &Layout,
    first: &[u8],
    second: &[u8],
    second_columns: u64,
    arena: &'s Bump,
) -> &'s [u8] {
    let mut out = Vec::with_capacity(first.len() + second.len());
    let kept = Assignments::new(layout, first).filter(|(c, _)| second_columns >> c & 1 == 0);
    let mut all: Vec<_> = kept.chain(Assignments::new(layout, second)).collect();
    all.sort_unstable_by_key(|(column, _)| *column);
    push_varint(&mut out, all.len() as u64);
    for (column, bytes) in all {
        push_varint(&mut out, (column as u64) << 1 | bytes.is_none() as u64);
        if let Some(bytes) = bytes {
            if layout.columns[column as usize].kind.width().is_none() {
                push_varint(&mut out, bytes.len() as u64);
            }
            out.extend_from_slice(bytes);
        }
    }
    arena.alloc_slice_copy(&out)
}

/// Returns the writes that no later write supersedes.
pub(crate) fn final_writes<'w, 's, S>(
    writes: &'w [Write<'s, S>],
) -> impl Iterator<Item = &'w Write<'s, S>> {
    writes.iter().filter(|write| !write.superseded)
}

/// Returns the checksum of a transaction's final writes: tables, keys, and new content. The same
/// call of a deterministic procedure on the same rows yields the same value.
#[cold]
pub(crate) fn outcome<'w, 's: 'w, S: Stamp>(
    tables: &[TableData<S>],
    writes: impl Iterator<Item = &'w Write<'s, S>>,
) -> u32 {
    writes.fold(0, |sum, write| {
        let table = tables[write.table as usize].log_id;
        add_to_outcome(sum, table, write.record.key(), write.pending)
    })
}

/// Adds a write to the checksum.
pub(crate) fn add_to_outcome(sum: u32, table: u32, key: &[u8], pending: Pending<'_>) -> u32 {
    let (kind, content): (u8, &[u8]) = match pending {
        Pending::Put(row) => (0, row),
        Pending::Delta(_, delta) => (1, delta),
        Pending::Delete => (2, &[]),
    };
    let sum = crc32c::crc32c_append(sum, &table.to_le_bytes());
    let sum = crc32c::crc32c_append(sum, &(key.len() as u32).to_le_bytes());
    let sum = crc32c::crc32c_append(sum, key);
    crc32c::crc32c_append(crc32c::crc32c_append(sum, &[kind]), content)
}
