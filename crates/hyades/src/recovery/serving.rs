//! The state before a round of a follower, kept for its readers while the round changes the rows.
//!
//! As online, a row is kept before a transaction after the served epoch overwrites the row; readers
//! find the older version. Deleted rows and index entries stay until the end of the round, and
//! leave then, or are kept beside their index, by the rules of [`crate::garbage`].

use super::apply::Applier;
use super::replay::ReplayContext;
use crate::engine::active::ReaderTimes;
use crate::storage::Stamp;
use crate::storage::record::Record;
use crate::storage::table::TableData;
use crate::storage::tid::Tid;
use hyades_platform::reclaim::Guard;
use std::sync::atomic::{Ordering, fence};

impl Applier {
    /// The state of a thread of a replay.
    pub fn of<S: Stamp>(replay: &ReplayContext<S>) -> Applier {
        let mut applier = Applier::default();
        applier.serves = replay.serves.load(Ordering::Relaxed);
        applier
    }

    /// Keeps a version that transaction `tid` is about to overwrite, where older versions are read.
    #[inline]
    pub(super) fn keep_overwritten<S: Stamp>(
        &mut self,
        replay: &ReplayContext<S>,
        (table, record, seen): (&TableData<S>, &Record<S>, u64),
        tid: Tid,
        guard: &Guard,
    ) {
        if self.by_timestamp {
            self.keep(replay, (record, seen), tid, guard);
        } else if self.is_listed() {
            self.keep_listed(replay, (record, seen), tid, guard);
        } else if self.serves {
            self.keep_served(replay, (table, record, seen), tid, guard);
        }
    }

    /// Keeps a row that transaction `tid` is about to overwrite, for readers of the state before
    /// the round, and for an image of the state. The caller has the row's lock; `seen` is the
    /// version word.
    #[cold]
    pub(super) fn keep_served<S: Stamp>(
        &mut self,
        replay: &ReplayContext<S>,
        (table, record, seen): (&TableData<S>, &Record<S>, u64),
        tid: Tid,
        guard: &Guard,
    ) {
        let engine = &replay.engine;
        if !engine.snapshots.are_below(tid) {
            return;
        }
        if let Some(cut) = engine.cut.before(tid) {
            engine.cut.save(table, (record, seen), cut);
        }
        let (readers, how) = (ReaderTimes::default(), (&*engine.epoch, guard));
        let kept = (&mut self.old_versions, (record, seen));
        engine.snapshots.keep(kept.0, kept.1, (tid, &readers), || None, how);
        // A reader that sees a word of the new row finds the old row kept.
        fence(Ordering::Release);
    }
}
