//! The reads of a replayed command where rows have several versions.

use crate::logging::versions::{Versions, View};
use crate::storage::Stamp;
use crate::storage::old_versions::{OldVersion, OldVersions};
use crate::storage::record::{Record, word};
use crate::storage::table::TableData;
use crate::storage::tid::Tid;
use bumpalo::Bump;
use hyades_platform::reclaim::Guard;
use std::sync::atomic::{Ordering, fence};

/// The versions that a replayed command reads.
#[derive(Clone, Copy)]
pub(crate) enum EarlierVersions<'s> {
    /// The versions of the records named in the list of predecessors, and of all records before
    /// the named ones.
    Listed(&'s Versions, &'s View),
    /// The versions as of a timestamp.
    AsOf(&'s OldVersions, Tid),
}

/// A row as of a timestamp.
pub(crate) enum ReadAsOf<'s, T> {
    InPlace(T),
    /// Bytes in the form of a record.
    Older(OldVersion<'s>),
}

impl<'s> EarlierVersions<'s> {
    /// Reads a whole row.
    pub fn read<S: Stamp>(
        self,
        table: &TableData<S>,
        record: &Record<S>,
        arena: &'s Bump,
        scratch: &mut Vec<u8>,
        guard: &Guard,
    ) -> Option<&'s [u8]> {
        match self {
            EarlierVersions::Listed(versions, view) => {
                let there = versions.read(table, record, view, scratch);
                there.then(|| &*arena.alloc_slice_copy(scratch))
            }
            EarlierVersions::AsOf(versions, as_of) => {
                let copy = || table.read_row_into(record, arena);
                match read_as_of(versions, as_of, record, (arena, guard), copy) {
                    ReadAsOf::InPlace(row) => row,
                    ReadAsOf::Older(OldVersion::Row(row)) => {
                        Some(table.whole_row(record, row, arena))
                    }
                    ReadAsOf::Older(OldVersion::Absent) => None,
                }
            }
        }
    }
}

/// Reads a row as of a timestamp: all commits on which the reader depends, up to the timestamp, are
/// installed. `copy` copies the row in place, if the row exists.
///
/// # Panics
/// The log is wrong: it states a floor above the timestamp of a record to come.
pub(crate) fn read_as_of<'s, S, T>(
    versions: &OldVersions,
    as_of: Tid,
    record: &Record<S>,
    (arena, guard): (&'s Bump, &Guard),
    mut copy: impl FnMut() -> T,
) -> ReadAsOf<'s, Option<T>> {
    let mut looks = 0u32;
    loop {
        let seen = record.word.load(Ordering::Acquire);
        if word::tid(seen) > as_of {
            if let Some((_, version)) = versions.read(record, as_of, arena, guard) {
                return ReadAsOf::Older(version);
            }
            assert!(versions.floor() <= as_of, "a log states floors above what it reads as of");
        } else if seen & word::LOCKED == 0 {
            let copied = (seen & word::ABSENT == 0).then(&mut copy);
            // The copy comes before the second load.
            fence(Ordering::Acquire);
            if record.word.load(Ordering::Relaxed) == seen {
                return ReadAsOf::InPlace(copied);
            }
        }
        // A later transaction is being installed.
        looks += 1;
        if looks.is_multiple_of(64) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}
