//! The reads of a replayed command where rows have several versions.

use crate::logging::versions::ListedVersions;
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
    Listed(ListedVersions<'s>),
    /// The versions as of a timestamp.
    AsOf(&'s OldVersions, Tid),
}

/// A row as a replayed command sees it.
pub(crate) enum EarlierRow<'s, T> {
    InPlace(T),
    /// Bytes in the form of a record.
    Older(OldVersion<'s>),
}

impl<'s> EarlierVersions<'s> {
    /// Reads a row. `copy` copies the row in place, if the row exists.
    #[inline]
    pub fn read<S, T>(
        self,
        record: &Record<S>,
        to: (&'s Bump, &Guard),
        copy: impl FnMut() -> T,
    ) -> EarlierRow<'s, Option<T>> {
        match self {
            EarlierVersions::Listed(listed) => read_listed(listed, record, to, copy),
            EarlierVersions::AsOf(versions, as_of) => read_as_of(versions, as_of, record, to, copy),
        }
    }

    /// Returns whether a row exists.
    pub fn is_there<S>(self, record: &Record<S>, to: (&'s Bump, &Guard)) -> bool {
        match self.read(record, to, || ()) {
            EarlierRow::InPlace(there) => there.is_some(),
            EarlierRow::Older(version) => version != OldVersion::Absent,
        }
    }

    /// Reads a whole row.
    pub fn read_whole<S: Stamp>(
        self,
        table: &TableData<S>,
        record: &Record<S>,
        arena: &'s Bump,
        guard: &Guard,
    ) -> Option<&'s [u8]> {
        match self.read(record, (arena, guard), || table.read_row_into(record, arena)) {
            EarlierRow::InPlace(row) => row,
            EarlierRow::Older(OldVersion::Row(row)) => Some(table.whole_row(record, row, arena)),
            EarlierRow::Older(OldVersion::Absent) => None,
        }
    }
}

/// Copies the row in place, with version word `seen`, unless the row is being changed. The inner
/// `None` stands for an absent row.
#[inline]
fn copy_in_place<S, T>(
    record: &Record<S>,
    seen: u64,
    copy: &mut impl FnMut() -> T,
) -> Option<Option<T>> {
    if seen & word::LOCKED != 0 {
        return None;
    }
    let copied = (seen & word::ABSENT == 0).then(copy);
    // The copy comes before the second load.
    fence(Ordering::Acquire);
    (record.word.load(Ordering::Relaxed) == seen).then_some(copied)
}

/// Waits a moment for the end of a change of the row.
fn wait(looks: &mut u32) {
    *looks += 1;
    if looks.is_multiple_of(64) {
        // The thread that changes the row may be descheduled.
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

/// Reads a row in the newest version whose writer the command sees.
#[inline]
fn read_listed<'s, S, T>(
    listed: ListedVersions<'s>,
    record: &Record<S>,
    (arena, guard): (&'s Bump, &Guard),
    mut copy: impl FnMut() -> T,
) -> EarlierRow<'s, Option<T>> {
    let ListedVersions { versions, view, seen_epoch } = listed;
    let mut looks = 0;
    loop {
        let seen = record.word.load(Ordering::Acquire);
        let is_seen = word::tid(seen).epoch() < seen_epoch
            || view.sees(versions.writer_of(record, seen, guard));
        if is_seen {
            // Of a row that is being changed, the version word shows the change.
            if let Some(copied) = copy_in_place(record, seen, &mut copy) {
                return EarlierRow::InPlace(copied);
            }
        } else if let Some(version) =
            versions.read_seen(record, |writer| view.sees(writer), arena, guard)
        {
            return EarlierRow::Older(version);
        }
        wait(&mut looks);
    }
}

/// Reads a row as of a timestamp: all commits on which the reader depends, up to the timestamp, are
/// installed. `copy` copies the row in place, if the row exists.
///
/// # Panics
/// The log is wrong: it states a floor above the timestamp of a record to come.
fn read_as_of<'s, S, T>(
    versions: &OldVersions,
    as_of: Tid,
    record: &Record<S>,
    (arena, guard): (&'s Bump, &Guard),
    mut copy: impl FnMut() -> T,
) -> EarlierRow<'s, Option<T>> {
    let mut looks = 0;
    loop {
        let seen = record.word.load(Ordering::Acquire);
        if word::tid(seen) > as_of {
            if let Some((_, version)) = versions.read(record, as_of, arena, guard) {
                return EarlierRow::Older(version);
            }
            assert!(versions.floor() <= as_of, "a log states floors above what it reads as of");
        } else if let Some(copied) = copy_in_place(record, seen, &mut copy) {
            return EarlierRow::InPlace(copied);
        }
        // A later transaction is being installed.
        wait(&mut looks);
    }
}
