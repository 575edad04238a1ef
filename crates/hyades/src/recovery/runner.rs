//! Runs records: the state of each thread of an ordered replay.

use super::apply::{Applier, count};
use super::command::CommandRunner;
use super::decode::Decoder;
use super::prefetching::Prefetcher;
use super::progress::AppliedRecords;
use super::replay::ReplayContext;
use super::tombstones::{Order, ReplayedChunks};
use crate::concurrency::earlier::EarlierVersions;
use crate::error::Error;
use crate::logging::predecessors;
use crate::logging::record::RecordHead;
use crate::logging::versions::{ListedVersions, View};
use crate::storage::Stamp;
use crate::storage::old_versions::ReplayedRecord;
use crate::storage::tid::Tid;
use hyades_platform::epoch::EpochNumber;
use hyades_platform::reclaim::Guard;
use hyades_wal::{Chunk, Lsn, StreamId};
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs records in sequence, and counts records in batches.
pub(crate) struct RecordRunner {
    applier: Applier,
    commands: CommandRunner,
    prefetcher: Prefetcher,
    /// The row versions seen by the current record, where rows have several.
    pub view: View,
    /// Every record to come sees all writers of earlier epochs.
    pub seen_epoch: EpochNumber,
    /// Whether rows have several versions, by TID.
    pub by_timestamp: bool,
    /// Whether a record of the log is replayed after all earlier writers of its rows, and before
    /// all later accesses to the rows.
    pub in_order: bool,
    records: u64,
    applied: AppliedRecords,
    pub dead: u64,
    pub bytes: u64,
}

impl RecordRunner {
    /// Creates a runner for a database with `tables` tables.
    pub fn new(tables: usize) -> Self {
        RecordRunner {
            applier: Applier::default(),
            commands: CommandRunner::new(tables),
            prefetcher: Prefetcher::default(),
            view: View::default(),
            seen_epoch: EpochNumber::default(),
            by_timestamp: false,
            in_order: false,
            records: 0,
            applied: AppliedRecords::default(),
            dead: 0,
            bytes: 0,
        }
    }

    /// Sets whether the state before the replay is served meanwhile.
    pub fn serve_as<S: Stamp>(&mut self, replay: &ReplayContext<S>) {
        self.applier.serves = replay.serves.load(Ordering::Relaxed);
    }

    /// Runs a live record after all its required predecessors. `place` is the record's stream and
    /// start.
    pub fn run<S: Stamp>(
        &mut self,
        replay: &ReplayContext<S>,
        head: &RecordHead,
        body: &[u8],
        place: (StreamId, Lsn),
    ) -> Result<(), Error> {
        count(replay, head);
        let guard = hyades_platform::reclaim::pin();
        let own = self.view.own;
        if own != 0 {
            let (stream, end) = (predecessors::lane(own), predecessors::end(own));
            let replayed = ReplayedRecord { id: own, stream, end };
            self.commands.workspace.old_versions.replay(replayed);
            self.applier.old_versions.replay(replayed);
        }
        if head.command {
            let versions = if self.by_timestamp {
                let as_of = as_of(replay, head, place)?;
                Some(EarlierVersions::AsOf(replay.engine.snapshots.versions(), as_of))
            } else {
                let (versions, view) = (replay.engine.snapshots.versions(), &self.view);
                let seen_epoch = self.seen_epoch;
                let listed = ListedVersions { versions, view, seen_epoch };
                (own != 0).then_some(EarlierVersions::Listed(listed))
            };
            self.commands.run(replay, head, body, place, (own, versions), &guard)?;
        } else {
            self.applier.by_timestamp = self.by_timestamp;
            self.applier.apply(replay, head, body, &guard)?;
            if self.in_order && !self.applier.tombstones.is_empty() {
                self.applier.tombstones.remove_all(replay, &guard);
            }
        }
        self.commands.prefetched = false;
        self.records += 1;
        self.applied.add(place.0);
        if self.records == 256 {
            self.report(replay);
        }
        Ok(())
    }

    /// Removes the tombstones that no remaining record may precede; see [`super::tombstones`]. The
    /// thread applies no record.
    pub fn remove_settled_tombstones<'p, S: Stamp>(
        &mut self,
        replay: &ReplayContext<S>,
        order: Order,
        streams: impl Iterator<Item = &'p ReplayedChunks> + Clone,
    ) {
        if !self.applier.tombstones.is_empty() {
            let guard = &mut hyades_platform::reclaim::pin();
            self.applier.tombstones.remove_settled(replay, (order, false), streams, guard);
        }
    }

    /// Passes over a dead record. The record has used its epoch nevertheless.
    pub fn skip_dead<S: Stamp>(&mut self, replay: &ReplayContext<S>, head: &RecordHead) {
        count(replay, head);
        replay.note_dead(head);
        self.dead += 1;
    }

    /// Prefetches the rows of the next record to run, at `at` of the stream, and of the records
    /// behind it; see [`Prefetcher`].
    #[inline]
    pub fn prefetch<S: Stamp>(
        &mut self,
        replay: &ReplayContext<S>,
        from: (StreamId, &Decoder),
        chunk: &Chunk,
        at: Lsn,
        guard: &Guard,
    ) {
        self.commands.prefetched =
            self.prefetcher.ensure_prefetched(replay, from, chunk, at, guard);
    }

    /// Ends the thread's work.
    pub fn finish<S: Stamp>(&mut self, replay: &ReplayContext<S>) {
        self.report(replay);
        self.commands.finish(replay);
        std::mem::take(&mut self.applier).finish(replay);
    }

    /// Notes that the thread found no work and had to wait.
    pub fn waited(&mut self) {
        self.prefetcher.waited();
    }

    /// Adds the thread's counts to the shared counters.
    pub fn report<S: Stamp>(&mut self, replay: &ReplayContext<S>) {
        let add = |counter: &AtomicU64, n: &mut u64| {
            counter.fetch_add(std::mem::take(n), Ordering::Relaxed);
        };
        add(&replay.counts.records, &mut self.records);
        self.applied.report(&replay.progress);
        add(&replay.counts.dead, &mut self.dead);
        add(&replay.counts.bytes, &mut self.bytes);
    }
}

/// Returns the TID as of which a command reads. The versions of this time are present, unless the
/// log is wrong.
fn as_of<S: Stamp>(
    replay: &ReplayContext<S>,
    head: &RecordHead,
    (stream, lsn): (StreamId, Lsn),
) -> Result<Tid, Error> {
    let as_of = head.as_of.unwrap_or(head.tid);
    let floor = replay.engine.snapshots.versions().floor();
    if as_of < floor {
        return Err(Error::Recovery(format!(
            "the command at Lsn {lsn} of log stream {stream} reads as of {as_of}, but an earlier \
             record states that none does below {floor}"
        )));
    }
    Ok(as_of)
}
