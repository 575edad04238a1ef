//! Replays calls logged before their run. An aborted call aborts again, and leaves nothing, as in
//! the original run; so later calls meet the same state.

use super::command::{CommandRunner, called, keep_rolled_back, written};
use super::replay::ReplayContext;
use crate::concurrency::replaying::{self, ReplayingCalls};
use crate::concurrency::state::{RowIds, TxnState};
use crate::engine::RowIdBlock;
use crate::garbage::TransactionEnd;
use crate::logging::determinism::{Determinism, Drawn};
use crate::logging::outcomes::{CallPlace, StatedSum};
use crate::logging::record::RecordHead;
use crate::logging::unstamped::Unstamped;
use crate::storage::Stamp;
use crate::transaction::access::Transaction;
use crate::transaction::running::Running;
use hyades_platform::broken;
use hyades_platform::reclaim::Guard;
use std::panic::{AssertUnwindSafe, catch_unwind};

impl CommandRunner {
    /// Runs a call that may access `slots`.
    ///
    /// # Errors
    /// A message that says why the call cannot be replayed.
    pub(super) fn replay_call<S: Stamp>(
        &mut self,
        replay: &ReplayContext<S>,
        (head, slots, place): (&RecordHead, u64, CallPlace),
        mut body: &[u8],
        guard: &Guard,
    ) -> Result<(), String> {
        let (id, called) = called(replay, &mut body)?;
        let named =
            |what: &str| format!("procedure {:?} version {} {what}", called.name, called.version);
        if !called.understands(body) {
            return Err(named("does not understand its recorded arguments"));
        }
        let stated = Determinism::recorded(head);
        let seed = Some(Determinism::seed_of(head.tid, body));
        let row_ids = RowIdBlock::stated(head.row_ids.first().copied());
        let stamp = &mut ();
        let mut state = TxnState::<ReplayingCalls, Unstamped<S>>::new(
            &self.arena,
            guard,
            stamp,
            (),
            &mut self.workspace,
            RowIds::Stated(row_ids),
            Determinism { seed, ..stated },
        );
        state.call.stated_slots = Some(slots);
        let mut running =
            Running::<ReplayingCalls, Unstamped<S>>::new(&replay.engine, &ReplayingCalls, state);
        running.set_prefetched(self.prefetched);
        self.result.clear();
        let result = &mut self.result;
        let run = || (called.body)(&Transaction(&running), body, result);
        // A panic is an end of the call, too.
        let ended = catch_unwind(AssertUnwindSafe(run));
        let state = running.state();
        let commits = matches!(ended, Ok(Ok(())))
            && state.call.lacks == Drawn::NOTHING
            && state.call.refused.is_none()
            && !state.conflict;
        if state.conflict && state.call.lacks == Drawn::NOTHING {
            return Err(named("had a conflict, which cannot occur at replay"));
        }
        head.outcomes.iter().for_each(|sum| self.outcomes.stated(*sum));
        let sum = place.outcome(commits, || written(replay, state));
        // The catalogue has the procedure, so the number is short.
        let (epoch, procedure) = (head.tid.epoch(), id as u32);
        self.outcomes.found(StatedSum { epoch, procedure, sum });
        if commits {
            replaying::install_in_place(&replay.engine, state, head.tid);
        } else if broken!(RefuseAborts) {
            return Err(named("committed when it ran, but now aborts"));
        } else {
            state.truncate_writes(0);
        }
        keep_rolled_back(replay, state, &self.arena);
        self.garbage.collect_from(&TransactionEnd::Replayed, state, commits);
        drop(running);
        self.sweep(replay);
        self.arena.reset();
        Ok(())
    }
}
