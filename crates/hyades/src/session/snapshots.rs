//! Transactions of a session that read a snapshot.

use super::EngineSession;
use crate::concurrency::Commits;
use crate::concurrency::snapshot_reads::SnapshotReads;
use crate::concurrency::state::{RowIds, TxnState};
use crate::engine::snapshots::SnapshotState;
use crate::erased::{Answer, Verdict};
use crate::error::Error;
use crate::logging::LoggingProtocol;
use crate::logging::determinism::Determinism;
use crate::logging::record::RecordKind;
use crate::transaction::access::Transaction;
use crate::transaction::running::Running;
use hyades_wal::Log;
use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// Returns the value of [`EngineSession::only_read`] after an attempt with a conflict.
#[cold]
pub(super) fn only_read<C: Commits<P>, P: LoggingProtocol>(
    control: &C,
    state: &TxnState<'_, C, P>,
) -> Option<usize> {
    let reads = state.reads.len() + state.held.len() + state.gaps.len();
    let is_long = !state.conflict || control.reads_many(state);
    (!state.is_writer).then_some(if is_long { usize::MAX } else { reads })
}

impl<C: Commits<P>, P: LoggingProtocol> EngineSession<C, P> {
    /// Runs a transaction as of a snapshot of the present, which cannot conflict: the transaction
    /// had written nothing in the previous attempt. False if the transaction wants to write now, if
    /// the snapshot has ended, or at the limit of epochs, where no snapshot can be opened and
    /// transactions go on without.
    pub(super) fn try_on_snapshot(
        &mut self,
        body: &mut dyn FnMut(&Transaction<'_>) -> Verdict,
        answer: &mut Answer,
    ) -> bool {
        let shared = Arc::clone(&self.shared);
        let engine = &shared.engine;
        let Some(snapshot) = engine.try_open_snapshot(self.log.as_ref()) else { return false };
        let (verdict, refused) = self.read(&snapshot, body);
        let is_valid = !refused && !snapshot.has_ended();
        engine.snapshots.close(&snapshot, &engine.epoch);
        if !is_valid {
            return false;
        }
        shared.control.forget_attempts(&self.own);
        match verdict {
            Ok(verdict) => {
                self.tally.attempt();
                if verdict == Verdict::Abandon {
                    self.tally.failure();
                }
            }
            Err(panic) => {
                self.tally.panic();
                resume_unwind(panic);
            }
        }
        (answer.needs, answer.position) = (snapshot.needs(), None);
        answer.keep_order();
        true
    }

    /// Checks that the log has not stopped: a commit that panicked may have left rows half
    /// installed, and has stopped the log.
    pub(super) fn check_log(&self) -> Result<(), Error> {
        match self.log.as_ref().and_then(Log::poisoned) {
            Some(poisoned) => Err(poisoned.into()),
            None => Ok(()),
        }
    }

    /// Runs a body once as of a snapshot. Returns the body's verdict, or panic, and whether the
    /// body has tried to write.
    pub(super) fn read(
        &mut self,
        snapshot: &SnapshotState,
        body: &mut dyn FnMut(&Transaction<'_>) -> Verdict,
    ) -> (Result<Verdict, Box<dyn Any + Send>>, bool) {
        self.as_of(snapshot, |running| {
            let verdict = catch_unwind(AssertUnwindSafe(|| body(&Transaction(running))));
            (verdict, running.state().is_writer)
        })
    }

    /// Begins a transaction that reads a snapshot, for `run`.
    pub(super) fn as_of<R>(
        &mut self,
        snapshot: &SnapshotState,
        run: impl FnOnce(&mut Running<'_, SnapshotReads<C::Row>, P>) -> R,
    ) -> R {
        let engine = &self.shared.engine;
        let guard = hyades_platform::reclaim::pin_endable();
        let stamp = self.stamp.as_mut().expect("a session has its stamp until it is dropped");
        engine.protocol.begin(stamp, RecordKind::Data);
        let reads = SnapshotReads(PhantomData);
        let state = TxnState::new(
            &self.arena,
            &guard,
            stamp,
            Some(snapshot),
            &mut self.workspace,
            RowIds::Fresh(&mut self.row_ids),
            Determinism::default(),
        );
        let result = run(&mut Running::new(engine, &reads, state));
        self.arena.reset();
        result
    }
}
