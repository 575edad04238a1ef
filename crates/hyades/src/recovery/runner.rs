//! Runs records: the state that each thread of an ordered replay has for it.

use super::apply::{Applier, count};
use super::command::CommandRunner;
use super::decode::Decoder;
use super::prefetching::Prefetcher;
use super::replay::ReplayContext;
use crate::error::Error;
use crate::logging::record::RecordHead;
use crate::logging::versions::View;
use crate::storage::Stamp;
use crossbeam_epoch::Guard;
use hyades_wal::{Chunk, Lsn, StreamId};
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs records one after the other, and counts them in batches.
pub(crate) struct RecordRunner {
    pub applier: Applier,
    commands: CommandRunner,
    prefetcher: Prefetcher,
    /// Which row versions the current record sees, where rows have several.
    pub view: View,
    records: u64,
    pub dead: u64,
    pub bytes: u64,
}

impl RecordRunner {
    pub fn new() -> Self {
        RecordRunner {
            applier: Applier::default(),
            commands: CommandRunner::new(),
            prefetcher: Prefetcher::default(),
            view: View::default(),
            records: 0,
            dead: 0,
            bytes: 0,
        }
    }

    /// Runs a live record after everything that it must follow. `place` is its stream and start.
    pub fn run<S: Stamp>(
        &mut self,
        replay: &ReplayContext<S>,
        head: &RecordHead,
        body: &[u8],
        place: (StreamId, Lsn),
    ) -> Result<(), Error> {
        count(replay, head);
        let guard = crossbeam_epoch::pin();
        if head.command {
            self.commands.run(replay, head, body, place, &self.view, &guard)?;
        } else {
            self.applier.writer = self.view.own;
            self.applier.apply(replay, head, body, &guard)?;
        }
        self.commands.prefetched = false;
        self.records += 1;
        if self.records == 256 {
            self.report(replay);
        }
        Ok(())
    }

    /// Prefetches the rows of the record that begins at `at` of the stream, which is run next, and
    /// of those behind it; see [`Prefetcher`].
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

    /// Called when the thread found no work and had to wait.
    pub fn waited(&mut self) {
        self.prefetcher.waited();
    }

    /// Adds the thread's counts to the shared counters.
    pub fn report<S: Stamp>(&mut self, replay: &ReplayContext<S>) {
        let add = |counter: &AtomicU64, n: &mut u64| {
            counter.fetch_add(std::mem::take(n), Ordering::Relaxed);
        };
        add(&replay.counts.records, &mut self.records);
        add(&replay.counts.dead, &mut self.dead);
        add(&replay.counts.bytes, &mut self.bytes);
    }
}
