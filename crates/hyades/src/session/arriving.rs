//! Calls that are logged before execution, on arrival: by the called or the posting session; and
//! the execution of calls once their turn has come.

use super::EngineSession;
use super::ordering::{begin_call, unmet};
use super::poisoning::{PoisonOnPanic, pass_on, without_panic};
use crate::concurrency::Commits;
use crate::concurrency::state::{RowIds, TxnState};
use crate::concurrency::turns::TurnQueues;
use crate::engine::RowIdBlock;
use crate::erased::{Answer, Arrived, ArrivedEnd, Verdict};
use crate::error::{Abort, Error};
use crate::garbage::TransactionEnd;
use crate::logging::determinism::{Determinism, Drawn};
use crate::logging::draft::{ArrivedPlace, Call, Draft, StatedVersions};
use crate::logging::outcomes::{CallPlace, StatedSum};
use crate::logging::record::RecordKind;
use crate::logging::write::outcome;
use crate::logging::{LoggingProtocol, Needs};
use crate::retry::back_off;
use crate::storage::tid::Tid;
use crate::transaction::access::Transaction;
use crate::transaction::running::Running;
use hyades_platform::active_epochs::EpochSlot;
use hyades_platform::broken;
use hyades_platform::clock;
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// How a call enters the queues of its partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entering {
    /// The thread that finds the turn come runs the call.
    Posted,
    /// The caller waits for the turn.
    Called,
    /// The caller cannot wait: the call enters only if all queues are empty.
    IfFree,
}

impl Entering {
    /// Enters the queues of `set`; false if not possible.
    fn enter<L>(self, turns: &TurnQueues<L>, seat: u32, set: u64) -> bool {
        match self {
            Entering::Posted => turns.line_up_posted(seat, set),
            Entering::Called => turns.line_up(seat, set),
            Entering::IfFree => return turns.try_enter(seat, set) || turns.leave(seat),
        }
        true
    }
}

impl<C: Commits<P>, P: LoggingProtocol> EngineSession<C, P> {
    /// Logs a call and lines the call up, with its own seat if posted. From then on a cut waits
    /// until the call has run. `None` if the call would have to wait and must not: nothing is
    /// logged then.
    fn arrive(
        &mut self,
        call: Call<'_>,
        posted: Option<(u32, &Arc<EpochSlot>)>,
        entering: Entering,
        order: &mut Option<Needs>,
    ) -> Option<Arrived> {
        let engine = &self.shared.engine;
        let seat = posted.map_or_else(|| C::seat(&self.own), |(seat, _)| seat);
        // A call that accesses nothing, or replicated rows alone, still holds some partition.
        let slots = if call.slots == 0 { 1 } else { call.slots };
        let (call, set) = (Call { slots, ..call }, self.shared.partitions().of_slots(slots));
        let draws = |drawn| call.draws.contains(drawn);
        let time_us = draws(Drawn::TIME).then(|| engine.wall_clock_us());
        let row_ids = draws(Drawn::ROW_IDS).then(|| engine.next_stated_row_ids());
        let stated = Determinism { time_us, ..Determinism::default() };

        engine.outcomes.take(&mut self.stated_outcomes);
        let slot = posted.map(|(_, slot)| &**slot);
        let drawn = (&stated, row_ids.as_slice());
        let placed = self.log_call((call, set), (seat, slot, entering), drawn, order);
        let engine = &self.shared.engine;
        let Some((place, needs)) = placed else {
            engine.cut.leave(slot.unwrap_or(&self.slot));
            engine.outcomes.add(&mut self.stated_outcomes);
            return None;
        };
        self.stated_outcomes.clear();
        self.stated_epoch = place.tid.epoch();
        self.last_stream = place.stream;
        self.streak_bytes += place.bytes;
        let seed = Some(Determinism::seed_of(place.tid, call.arguments));
        let determinism = Determinism { seed, ..stated };
        let (slot, procedure) = (posted.map(|(_, slot)| slot.clone()), call.log_id);
        Some(Arrived { seat, slot, set, slots, procedure, place, determinism, row_ids, needs })
    }

    /// Logs a call in its epoch slot, by default the session's: a long body first, while no other
    /// call waits, then the record, under the latches of the partitions. Returns the place, and the
    /// needs of the call.
    ///
    /// A cut may be made between body and record, and the log be truncated behind the body, while
    /// the record, with a version of a later epoch, is to be replayed. Then nothing is logged under
    /// the latches, and the body is written once more, behind the positions of the cut. That cut
    /// waits for the epoch slot of this call, so that no second one is made meanwhile.
    fn log_call(
        &mut self,
        (call, set): (Call<'_>, u64),
        (seat, slot, entering): (u32, Option<&EpochSlot>, Entering),
        (stated, row_ids): (&Determinism, &[u64]),
        order: &mut Option<Needs>,
    ) -> Option<(ArrivedPlace, Needs)> {
        let engine = &self.shared.engine;
        let turns = &self.shared.partitions().turns;
        let poison_on_panic = PoisonOnPanic::arm::<P>(&self.shared.control, self.log.as_ref());
        engine.end_old_epoch(self.stream_was_idle);
        if !broken!(CutWithoutQueued) {
            slot.unwrap_or(&self.slot).enter(&engine.epoch);
        }
        let writer =
            self.writer.as_mut().expect("calls are logged first only where there is a log");
        let stamp = self.stamp.as_mut().expect("a session has its stamp until it is dropped");
        begin_call(&engine.protocol, stamp, unmet(self.log.as_ref(), order));
        let placed = loop {
            let begun = engine.epoch.current();
            let call = Call { outcomes: &self.stated_outcomes, ..call };
            let call = call.write_ahead(writer, self.stream, &mut self.payload);
            let is_divided = Cell::new(false);
            let enter = |tid| {
                is_divided.set(call.ahead.is_some() && engine.cut.divides(begun, tid));
                !is_divided.get() && entering.enter(turns, seat, set)
            };
            let (writer, payload) = (&mut *writer, &mut self.payload);
            let (stream, stated_epoch) = (self.stream, self.stated_epoch);
            let placed =
                engine.protocol.arrive(stamp, set, &engine.epoch, enter, move |tid: Tid| Draft {
                    writer,
                    stream,
                    tid,
                    command: Some(call),
                    has_read: true,
                    states_epoch: tid.epoch() != stated_epoch,
                    // There is no checksum of a call that has not run.
                    whole_rows: true,
                    epoch: &engine.epoch,
                    tables: &engine.tables,
                    writes: &[],
                    determinism: stated,
                    row_ids,
                    versions: StatedVersions::default(),
                    payload,
                });
            if !is_divided.get() {
                break placed;
            }
        };
        let mut needs = Needs::default();
        if let Some(placed) = placed {
            engine.protocol.needs(stamp, Some((placed.stream, placed.end)), &mut needs);
        }
        poison_on_panic.disarm();
        placed.map(|placed| (placed, needs))
    }

    /// Logs a call with the seat of a posted call.
    pub(super) fn arrive_posted(
        &mut self,
        call: Call<'_>,
        seat: (u32, &Arc<EpochSlot>),
        order: &mut Option<Needs>,
    ) -> Result<Arrived, Error> {
        self.prepare()?;
        self.shared.control.check_stopped()?;
        let arrived = self.arrive(call, Some(seat), Entering::Posted, order);
        Ok(arrived.expect("a posted call waits for its turn"))
    }

    /// Logs a call, waits for the turn, and runs the call.
    pub(super) fn call_logged_first(
        &mut self,
        mut call: Call<'_>,
        body: &mut dyn FnMut(&Transaction<'_>) -> Verdict,
        answer: &mut Answer,
    ) -> Result<(), Error> {
        let (mut conflicts, mut began) = (0, None);
        loop {
            self.shared.gate.pass();
            self.prepare()?;
            self.shared.control.check_stopped()?;
            let waits = self.may_wait && self.shared.partitions().turns.waits();
            let entering = if waits { Entering::Called } else { Entering::IfFree };
            let Some(mut arrived) = self.arrive(call, None, entering, &mut answer.order) else {
                conflicts += 1;
                self.tally.attempt();
                self.tally.conflict();
                let began = *began.get_or_insert_with(clock::monotonic_ns);
                self.end_if_starved(conflicts, began)?;
                back_off(&mut self.rng, conflicts);
                continue;
            };
            let engine = &self.shared.engine;
            let turns = &self.shared.partitions().turns;
            if waits && !turns.await_turn(C::seat(&self.own), arrived.set) {
                engine.cut.leave(&self.slot);
                return Err(Error::OutcomeUnknown);
            }
            match self.run_in_turn(&mut arrived, body, answer) {
                ArrivedEnd::Done => return Ok(()),
                ArrivedEnd::Lacks(drawn) => {
                    call.draws = call.draws.with(drawn);
                    answer.draws = call.draws;
                }
            }
        }
    }

    fn end_if_starved(&self, attempts: u64, began: u64) -> Result<(), Error> {
        let retries = self.shared.retries;
        let starved_for = Duration::from_nanos(clock::monotonic_ns() - began);
        if retries.attempts.is_none_or(|most| attempts < most)
            && retries.deadline.is_none_or(|deadline| starved_for < deadline)
        {
            return Ok(());
        }
        self.tally.starved();
        Err(Error::Starved { attempts, seconds: starved_for.as_secs_f64() })
    }

    /// Runs a posted call once its turn has come.
    pub(super) fn run_posted_call(
        &mut self,
        arrived: &mut Arrived,
        body: &mut dyn FnMut(&Transaction<'_>) -> Verdict,
        answer: &mut Answer,
    ) -> ArrivedEnd {
        self.shared.partitions().turns.take_turn(arrived.seat, arrived.set);
        self.run_in_turn(arrived, body, answer)
    }

    /// Runs a call in its turn, and ends the turn. The call meets a conflict only with the removal
    /// of garbage: then the call runs again, and keeps the turn.
    fn run_in_turn(
        &mut self,
        arrived: &mut Arrived,
        body: &mut dyn FnMut(&Transaction<'_>) -> Verdict,
        answer: &mut Answer,
    ) -> ArrivedEnd {
        let mut attempts = 0;
        let ended = loop {
            match self.attempt_in_turn(arrived, body) {
                Some(ended) => break ended,
                None => {
                    self.tally.attempt();
                    self.tally.conflict();
                    attempts += 1;
                    back_off(&mut self.rng, attempts);
                }
            }
            self.arena.reset();
        };
        self.arena.reset();
        // A panic is counted where the panic is passed on.
        let panics = ended.panic.is_some() && ended.lacks == Drawn::NOTHING;
        if !panics && self.tally.attempt().is_multiple_of(super::HOUSEKEEPING_INTERVAL) {
            self.housekeep();
        }
        if !self.garbage.is_empty() {
            self.sweep();
        }
        if ended.lacks != Drawn::NOTHING {
            self.tally.conflict();
            return ArrivedEnd::Lacks(ended.lacks);
        }
        if !ended.committed && ended.panic.is_none() {
            self.tally.failure();
        }
        let place = arrived.place;
        answer.position = Some((place.tid.epoch(), place.stream, place.end));
        answer.needs = std::mem::take(&mut arrived.needs);
        answer.keep_order();
        answer.refused = ended.refused;
        if let Some(panic) = ended.panic {
            let _ = pass_on(panic, answer, &self.tally, self.garbage.len());
        }
        ArrivedEnd::Done
    }

    /// Runs the call once. `None` after a conflict: the call still has its turn.
    fn attempt_in_turn(
        &mut self,
        arrived: &Arrived,
        body: &mut dyn FnMut(&Transaction<'_>) -> Verdict,
    ) -> Option<EndedCall> {
        let (engine, control) = (&self.shared.engine, &self.shared.control);
        let guard = hyades_platform::reclaim::pin();
        let stamp = self.stamp.as_mut().expect("a session has its stamp until it is dropped");
        engine.protocol.begin(stamp, RecordKind::Command);
        let mut state = TxnState::new(
            &self.arena,
            &guard,
            stamp,
            control.begin_arrived(arrived.seat),
            &mut self.workspace,
            RowIds::Stated(RowIdBlock::stated(arrived.row_ids)),
            arrived.determinism,
        );
        state.call.stated_slots = Some(arrived.slots);
        let mut running = Running::<C, P>::new(engine, control, state);
        // A panic is caught, so that waiting calls get their turns.
        let verdict = catch_unwind(AssertUnwindSafe(|| body(&Transaction(&running))));
        let state = running.state();
        let (verdict, panic) = without_panic(verdict);
        let poison_on_panic = PoisonOnPanic::arm::<P>(control, self.log.as_ref());
        let (lacks, refused) = (state.call.lacks, state.call.refused);
        let runs_again = state.conflict && lacks == Drawn::NOTHING && refused.is_none();
        let committed = verdict == Verdict::Commit && !state.conflict && refused.is_none();
        if !runs_again && let Some(log) = &self.log {
            let ArrivedPlace { tid, stream, start, .. } = arrived.place;
            let written = || outcome(&engine.tables, state.final_writes());
            let sum = CallPlace::new(log.stream_id(stream), start).outcome(committed, written);
            let call = StatedSum { epoch: tid.epoch(), procedure: arrived.procedure, sum };
            self.outcomes.add(call, &engine.outcomes);
        }
        if committed {
            control.install_arrived(engine, state, arrived.place.tid);
        }
        if runs_again {
            C::release_rows(state);
        } else {
            control.release(state);
            engine.cut.leave(arrived.slot.as_ref().unwrap_or(&self.slot));
        }
        self.garbage.collect_from(&TransactionEnd::Now(engine), state, committed);
        poison_on_panic.disarm();
        (!runs_again).then_some(EndedCall { lacks, refused, committed, panic })
    }
}

/// The end of a call that had its turn.
struct EndedCall {
    lacks: Drawn,
    refused: Option<Abort>,
    committed: bool,
    panic: Option<Box<dyn Any + Send>>,
}
