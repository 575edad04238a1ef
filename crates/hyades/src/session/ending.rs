//! The beginning and the end of an attempt: a running transaction borrows some parts of its
//! session, the end needs the others.

use super::EngineSession;
use super::enter;
use super::ordering::unmet;
use super::poisoning::PoisonOnPanic;
use super::shared::Sessions;
use super::snapshots::only_read;
use crate::concurrency::state::{RowIds, TxnState};
use crate::concurrency::steps::{Commit, Committed};
use crate::concurrency::{Beginning, Commits};
use crate::erased::{Answer, Verdict};
use crate::error::Abort;
use crate::garbage::{Garbage, TransactionEnd};
use crate::logging::LoggingProtocol;
use crate::logging::determinism::Determinism;
use crate::logging::draft::Call;
use crate::logging::record::RecordKind;
use crate::tally::Tally;
use crate::transaction::running::Running;
use hyades_platform::active_epochs::EpochSlot;
use hyades_platform::epoch::EpochNumber;
use hyades_platform::phase::{self, Phase};
use hyades_platform::reclaim::Guard;
use hyades_wal::{Log, Writer};

/// The parts of a session that the end of a transaction needs; see the fields of [`EngineSession`].
pub(super) struct Ending<'s, C: Commits<P>, P: LoggingProtocol> {
    pub shared: &'s Sessions<C, P>,
    pub log: Option<&'s Log>,
    pub writer: Option<&'s mut Writer>,
    pub payload: &'s mut Vec<u8>,
    pub slot: &'s EpochSlot,
    pub garbage: &'s mut Garbage,
    pub tally: &'s Tally,
    pub stream: usize,
    pub stream_was_idle: bool,
    pub stated_epoch: &'s mut EpochNumber,
    pub last_stream: &'s mut usize,
    pub streak_bytes: &'s mut u64,
    pub only_read: &'s mut Option<usize>,
}

impl<C: Commits<P>, P: LoggingProtocol> EngineSession<C, P> {
    /// Begins a transaction, whose thread is pinned by `guard`.
    #[inline(always)]
    pub(super) fn start<'s>(
        &'s mut self,
        guard: &'s Guard,
        kind: RecordKind,
    ) -> (Running<'s, C, P>, Ending<'s, C, P>) {
        let shared = &*self.shared;
        let (engine, control) = (&shared.engine, &shared.control);
        let stamp = self.stamp.as_mut().expect("a session has its stamp until it is dropped");
        engine.protocol.begin(stamp, kind);
        let beginning = Beginning { may_wait: self.may_wait, was_idle: self.stream_was_idle };
        let mut state = TxnState::new(
            &self.arena,
            guard,
            stamp,
            control.begin(engine, &mut self.own, beginning),
            &mut self.workspace,
            RowIds::Fresh(&mut self.row_ids),
            Determinism::default(),
        );
        state.call.may_be_repeated = kind != RecordKind::Data;
        let ending = Ending {
            shared,
            log: self.log.as_ref(),
            writer: self.writer.as_mut(),
            payload: &mut self.payload,
            slot: &self.slot,
            garbage: &mut self.garbage,
            tally: &self.tally,
            stream: self.stream,
            stream_was_idle: self.stream_was_idle,
            stated_epoch: &mut self.stated_epoch,
            last_stream: &mut self.last_stream,
            streak_bytes: &mut self.streak_bytes,
            only_read: &mut self.only_read,
        };
        (Running::new(engine, control, state), ending)
    }
}

impl<C: Commits<P>, P: LoggingProtocol> Ending<'_, C, P> {
    /// Ends the transaction as its body wants, if possible. `counts_failure`: a rollback that the
    /// body wanted counts as a failure.
    #[inline(always)]
    pub fn end(
        &mut self,
        state: &mut TxnState<'_, C, P>,
        verdict: Verdict,
        (call, kind): (Option<Call<'_>>, RecordKind),
        counts_failure: bool,
        answer: &mut Answer,
    ) -> Result<(), Abort> {
        let (engine, control) = (&self.shared.engine, &self.shared.control);
        let _measured = phase::enter(Phase::Control);
        let poison_on_panic = PoisonOnPanic::arm::<P>(control, self.log);
        let commit = Commit {
            writer: self.writer.as_deref_mut(),
            stream: self.stream,
            kind,
            call,
            stated_epoch: *self.stated_epoch,
            last_stream: *self.last_stream,
            order: unmet(self.log, &mut answer.order),
            payload: self.payload,
        };
        let commits = verdict == Verdict::Commit;
        let result = if let Some(abort) = self.shared.removed.refuses(state, commits) {
            Err(abort)
        } else if commits {
            let _entered =
                (!state.writes.is_empty()).then(|| enter(engine, self.slot, self.stream_was_idle));
            control.commit(engine, state, commit)
        } else {
            control.abandon(engine, state).map(Committed::read_only)
        };
        control.release(state);
        let committed = result.is_ok() && commits;
        *self.only_read = result.as_ref().err().and_then(|_| only_read(control, state));
        if result.is_ok() && !committed && counts_failure {
            self.tally.failure();
        }
        let result = result.map(|Committed { placed, needs }| {
            if let Some((stream, end)) = placed.position {
                let epoch = placed.tid.epoch();
                if placed.has_drafts_epoch {
                    *self.stated_epoch = epoch;
                }
                *self.streak_bytes += placed.bytes;
                (*self.last_stream, answer.position) = (stream, Some((epoch, stream, end)));
            }
            answer.needs = needs;
            answer.keep_order();
        });
        self.garbage.collect_from(&TransactionEnd::Now(engine), state, committed);
        poison_on_panic.disarm();
        result
    }
}
