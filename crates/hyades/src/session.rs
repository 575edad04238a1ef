//! A session: the state of a thread between transactions, and the execution of transactions.

mod arriving;
mod attempt;
mod ending;
mod open;
mod ordering;
mod poisoning;
mod removed;
mod retrying;
pub(crate) mod shared;
mod snapshots;
mod streams;
mod tidying;

use crate::concurrency::Commits;
use crate::concurrency::state::Workspace;
use crate::engine::cut::Entered;
use crate::engine::snapshots::SnapshotState;
use crate::engine::{Engine, RowIdBlock};
use crate::erased::{
    Answer, AnyOpenTransaction, AnySession, Arrived, ArrivedEnd, AttemptEnd, Verdict,
};
use crate::error::{Abort, Error};
use crate::garbage::Garbage;
use crate::logging::draft::Call;
use crate::logging::outcomes::{SessionOutcomes, StatedSum};
use crate::logging::record::RecordKind;
use crate::logging::{LoggingProtocol, Needs};
use crate::retry::OnThisThread;
use crate::storage::Stamp;
use crate::storage::gathered::GatheredRows;
use crate::storage::row::Row;
use crate::storage::schema::Columns;
use crate::storage::table::WalkPosition;
use crate::tally::Tally;
use crate::transaction::access::{Table, Transaction};
use bumpalo::Bump;
use hyades_platform::active_epochs::EpochSlot;
use hyades_platform::broken;
use hyades_platform::epoch::EpochNumber;
use hyades_platform::phase;
use hyades_platform::reclaim;
use hyades_platform::sync::Padded;
use hyades_wal::{Log, Writer};
use poisoning::{PoisonOnPanic, pass_on, without_panic};
use shared::Sessions;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

pub(crate) struct EngineSession<C: Commits<P>, P: LoggingProtocol> {
    shared: Arc<Sessions<C, P>>,
    log: Option<Log>,
    writer: Option<Writer>,
    stamp: Option<P::TxnStamp>,
    arena: Bump,
    payload: Vec<u8>,
    workspace: Workspace,
    row_ids: RowIdBlock,
    /// Through this slot a checkpoint sees that a commit is in progress.
    slot: Arc<EpochSlot>,
    /// What the concurrency control keeps of it.
    own: C::Session,
    garbage: Garbage,
    tally: Arc<Padded<Tally>>,
    stream: usize,
    /// The last epoch whose beginning this session has logged.
    stated_epoch: EpochNumber,
    /// The stream of its last record.
    last_stream: usize,
    /// Bytes appended since the stream was chosen, and the limit at which another one is chosen.
    streak_bytes: u64,
    longest_streak: u64,
    /// The stream had no backlog when the transaction began.
    stream_was_idle: bool,
    /// How much the last attempt had read when it met a conflict, if no operation would have
    /// written; all there is if it failed when it was validated.
    only_read: Option<usize>,
    /// Whether its transaction may wait for others, see [`Beginning`].
    may_wait: bool,
    /// Outcomes of calls that it has run and that were logged before.
    outcomes: SessionOutcomes,
    /// Outcomes of logged calls, to be stated by the session's next record.
    stated_outcomes: Vec<StatedSum>,
    /// Rows of a walk.
    gathered: GatheredRows,
    rng: fastrand::Rng,
    /// The last transaction was an open one: its data is still in the arena.
    was_open: bool,
}

/// A session stays on a stream for this many bytes, then looks for the fastest one. The longer it
/// stays, the fewer streams are written at a time, and the fewer batches have to be written and
/// synced, each at much the same cost. But replay reads the streams in parallel, and records wait
/// where one stream was written later than another. With small buffers the limit is a quarter of a
/// buffer, so that no session waits for a full buffer while others are empty.
const STREAK_BYTES: u64 = 256 << 10;

/// Bytes for the data of a transaction, before it needs more.
const ARENA_BYTES: usize = 16 << 10;

/// Begins the commit of a transaction that writes.
#[inline(always)]
fn enter<'e, P: LoggingProtocol, S: Stamp>(
    engine: &'e Engine<P, S>,
    slot: &'e EpochSlot,
    was_idle: bool,
) -> Entered<'e> {
    engine.end_old_epoch(was_idle);
    engine.cut.enter(slot, &engine.epoch)
}

/// Number of attempts between two runs of `housekeep`.
const HOUSEKEEPING_INTERVAL: u64 = 64;

impl<C: Commits<P>, P: LoggingProtocol> EngineSession<C, P> {
    pub fn new(shared: Arc<Sessions<C, P>>, log: Option<Log>) -> Result<Self, Error> {
        let writer = log.as_ref().map(Log::writer).transpose()?;
        let stamp = Some(shared.engine.protocol.txn_stamp());
        let first = if shared.keeps_streams { Writer::own_stream } else { Writer::first_stream };
        let stream = writer.as_ref().map_or(0, first);
        let longest = log.as_ref().map_or(u64::MAX, |log| log.max_payload() as u64);
        let own = shared.control.add_session()?;
        let tally = shared.tallies.add(shared.engine.tables.len());
        Ok(EngineSession {
            own,
            slot: shared.engine.cut.add_slot(),
            workspace: Workspace::new(tally.usage.clone()),
            tally,
            shared,
            log,
            writer,
            stamp,
            arena: Bump::with_capacity(ARENA_BYTES),
            payload: Vec::new(),
            row_ids: RowIdBlock::default(),
            garbage: Garbage::default(),
            stream,
            stated_epoch: EpochNumber::default(),
            last_stream: 0,
            streak_bytes: 0,
            longest_streak: STREAK_BYTES.min(longest),
            stream_was_idle: false,
            only_read: None,
            may_wait: true,
            outcomes: SessionOutcomes::default(),
            stated_outcomes: Vec::new(),
            gathered: GatheredRows::default(),
            rng: fastrand::Rng::new(),
            was_open: false,
        })
    }

    /// Runs one attempt and the cleanup after it. The inner `Err(Conflict)` asks for another
    /// attempt.
    #[inline(always)]
    fn try_once(
        &mut self,
        call: Option<(Call<'_>, RecordKind)>,
        body: &mut dyn FnMut(&Transaction<'_>) -> Verdict,
        answer: &mut Answer,
    ) -> Result<Result<(), Abort>, Error> {
        let _measured = phase::attempt();
        self.prepare()?;
        debug_assert!(
            answer.needs.is_empty(),
            "its ticket has taken what the last transaction needs"
        );
        answer.position = None;
        let is_full = self.shared.removed.is_full();
        let removed = is_full.then(|| (reclaim::retired_here(), self.garbage.len()));
        // Nothing is pinned while it waits, and what has panicked meanwhile is reported above.
        let result = match self.shared.control.await_turns(&self.own, self.may_wait) {
            true => self.attempt(call, body, answer),
            false => Err(Abort::Conflict),
        };
        self.arena.reset();
        if let (Some(writer), Some((_, stream, end))) = (&self.writer, answer.position) {
            // If writers do that.
            writer.flush(stream, end);
        }
        if self.tally.attempt().is_multiple_of(HOUSEKEEPING_INTERVAL) {
            self.housekeep();
        }
        if !self.garbage.is_empty() {
            self.sweep();
        }
        if let Some(before) = removed
            && result.is_ok()
            && answer.position.is_none()
            && before != (reclaim::retired_here(), self.garbage.len())
        {
            self.shared.removed.wait_after_abort(self.may_wait);
        }
        if result == Err(Abort::RanTooLong) {
            self.tally.failure();
            return Err(Error::Aborted(Abort::RanTooLong));
        }
        Ok(result)
    }

    fn sweep(&mut self) {
        let stamp = self.stamp.as_mut().expect("a session has its stamp until it is dropped");
        let poison_on_panic = PoisonOnPanic::arm::<P>(&self.shared.control, self.log.as_ref());
        self.garbage.sweep::<C, P>(&self.shared.engine, stamp);
        self.tally.set_garbage(self.garbage.len());
        poison_on_panic.disarm();
    }

    #[inline(always)]
    fn attempt(
        &mut self,
        call: Option<(Call<'_>, RecordKind)>,
        body: &mut dyn FnMut(&Transaction<'_>) -> Verdict,
        answer: &mut Answer,
    ) -> Result<(), Abort> {
        let guard = removed::pin::<P>();
        let (call, kind) = call.map_or((None, RecordKind::Data), |(call, kind)| (Some(call), kind));
        let (mut running, mut ending) = self.start(&guard, kind);
        // A panic is caught, so that the body's locks are released.
        let ended = catch_unwind(AssertUnwindSafe(|| body(&Transaction(&running))));
        let (state, (verdict, panic)) = (running.state(), without_panic(ended));
        let counts_failure = panic.is_none();
        let result = ending.end(state, verdict, (call, kind), counts_failure, answer);
        if result.is_err() && !broken!(RethrowUnvalidated) {
            return result;
        }
        panic.map_or(result, |panic| pass_on(panic, answer, ending.tally, ending.garbage.len()))
    }

    /// Prepares a transaction, while nothing is locked: chooses a stream that has room, lets the
    /// protocol enter it, and waits while a checkpoint's side buffer is full.
    #[inline(always)]
    fn prepare(&mut self) -> Result<(), Error> {
        if self.was_open {
            self.clear_open();
        }
        let (Some(log), Some(writer)) = (&self.log, &mut self.writer) else {
            return self.shared.control.check_stopped();
        };
        if P::PARTITIONED {
            // The streams it needs are known only after it has run: all must have room.
            for stream in 0..log.streams() {
                writer.wait_for_room(stream);
            }
        }
        let backlog = writer.backlog(self.stream);
        self.stream_was_idle = backlog == 0;
        // Without a backlog there is time to check how fast the stream's device is.
        if self.stream_was_idle
            || backlog >= writer.room()
            || self.streak_bytes >= self.longest_streak
        {
            self.look_for_stream(backlog);
        }
        let (Some(log), Some(writer)) = (&self.log, &mut self.writer) else { return Ok(()) };
        self.shared.engine.protocol.enter_stream(writer, self.stream);
        self.shared.engine.cut.wait_for_room(|| log.poisoned().is_some());
        match log.poisoned() {
            Some(poisoned) => Err(poisoned.into()),
            None => Ok(()),
        }
    }

    fn housekeep(&mut self) {
        self.shared.engine.epoch.advance_if_older_than(self.shared.engine.epoch_interval);
        self.shared.engine.protocol.housekeep();
        self.shared.engine.snapshots.tidy(&self.shared.engine.epoch);
        self.sweep_orphaned(0);
        // Limits what is sent to a device that has begun to stall.
        self.look_for_stream(0);
    }

    /// Removes some of the garbage that sessions have handed over, `noted` items of it by this one.
    /// Returns how many are removed.
    fn sweep_orphaned(&mut self, noted: usize) -> usize {
        if self.shared.orphaned.len() == 0 {
            return 0;
        }
        let stamp = self.stamp.as_mut().expect("a session has its stamp until it is dropped");
        let poison_on_panic = PoisonOnPanic::arm::<P>(&self.shared.control, self.log.as_ref());
        let removed = self.shared.orphaned.sweep::<C, P>(&self.shared.engine, stamp, noted);
        poison_on_panic.disarm();
        removed
    }
}

impl<C: Commits<P>, P: LoggingProtocol> AnySession for EngineSession<C, P> {
    fn run(
        &mut self,
        call: Option<(Call<'_>, RecordKind)>,
        body: &mut dyn FnMut(&Transaction<'_>) -> Verdict,
        answer: &mut Answer,
    ) -> Result<(), Error> {
        let database = Arc::as_ptr(&self.shared).addr();
        let here = (!self.shared.nests).then(|| OnThisThread::begin(database)).transpose()?;
        self.may_wait = here.as_ref().is_none_or(|here| !here.is_nested);
        if P::LOGS_FIRST
            && let Some((call, _)) = call
        {
            return self.call_logged_first(call, body, answer);
        }
        self.shared.gate.pass();
        match self.try_once(call, body, answer)? {
            Ok(()) => Ok(()),
            Err(_) => self.try_again(call, body, answer),
        }
    }

    fn arrive(
        &mut self,
        call: Call<'_>,
        seat: (u32, &Arc<EpochSlot>),
        order: &mut Option<Needs>,
    ) -> Result<Arrived, Error> {
        self.arrive_posted(call, seat, order)
    }

    fn run_arrived(
        &mut self,
        arrived: &mut Arrived,
        body: &mut dyn FnMut(&Transaction<'_>) -> Verdict,
        answer: &mut Answer,
    ) -> ArrivedEnd {
        let database = Arc::as_ptr(&self.shared).addr();
        let here = (!self.shared.nests).then(|| OnThisThread::begin(database));
        let is_first = here.as_ref().is_none_or(|here| here.is_ok());
        debug_assert!(is_first, "posted calls run in no other one");
        self.run_posted_call(arrived, body, answer)
    }

    fn run_once(
        &mut self,
        body: &mut dyn FnMut(&Transaction<'_>) -> Verdict,
        answer: &mut Answer,
    ) -> Result<AttemptEnd, Error> {
        self.try_without_waiting(body, answer)
    }

    fn begin(&mut self) -> Result<Box<dyn AnyOpenTransaction + '_>, Error> {
        self.open()
    }

    fn leave_busy_stream(&mut self) {
        self.choose_first_free_stream();
    }

    fn read_snapshot(
        &mut self,
        snapshot: &SnapshotState,
        body: &mut dyn FnMut(&Transaction<'_>) -> Verdict,
    ) -> Result<(), Error> {
        let (verdict, _) = self.read(snapshot, body);
        if snapshot.has_ended() {
            return Err(Error::Aborted(Abort::SnapshotEnded));
        }
        self.check_log()?;
        if let Err(panic) = verdict {
            resume_unwind(panic);
        }
        Ok(())
    }

    fn walk_snapshot(
        &mut self,
        snapshot: &SnapshotState,
        (table, columns): (Table, Columns),
        at: &mut WalkPosition,
        visit: &mut dyn FnMut(&Row<'_>),
    ) -> Result<(), Error> {
        let mut gathered = std::mem::take(&mut self.gathered);
        self.as_of(snapshot, |running| running.walk(table, columns, at, &mut gathered))?;
        if let Some(data) = self.shared.engine.tables.get(table.number() as usize) {
            gathered.visit(data.layout_read(columns), visit);
        }
        self.gathered = gathered;
        self.check_log()
    }

    fn hand_over_garbage(&mut self) {
        self.outcomes.hand_over(&self.shared.engine.outcomes);
        let noted = self.garbage.len();
        if noted > 0 {
            self.shared.orphaned.adopt(&mut self.garbage);
            self.tally.set_garbage(0);
        }
        // A panic during a panic would abort the process.
        if !std::thread::panicking() {
            self.sweep_orphaned(noted);
        }
    }

    fn conflicts(&self) -> u64 {
        self.tally.conflicts()
    }

    fn has_unused(&self) -> bool {
        EngineSession::has_unused(self)
    }

    fn free_unused(&mut self) -> bool {
        EngineSession::free_unused(self)
    }
}

impl<C: Commits<P>, P: LoggingProtocol> Drop for EngineSession<C, P> {
    fn drop(&mut self) {
        self.hand_over_garbage();
        let engine = &self.shared.engine;
        engine.snapshots.end_writer(&mut self.workspace.old_versions, &engine.epoch);
        self.shared.control.remove_session(&mut self.own);
        self.shared.engine.cut.remove_slot(&self.slot);
        self.shared.tallies.end(&self.tally, self.shared.engine.tables.len());
        if let Some(stamp) = self.stamp.take() {
            self.shared.engine.protocol.end_session(stamp);
        }
    }
}

#[cfg(test)]
mod tests;
