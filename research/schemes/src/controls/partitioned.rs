//! Partitioned execution (Kallman et al.: "H-Store", PVLDB 1(2), 2008; Malviya, Weisberg, Madden,
//! Stonebraker: "Rethinking Main Memory OLTP Recovery", ICDE 2014, section II): the transactions of
//! a partition run one after the other, from beginning to end, so that nothing is validated and few
//! rows are locked. docs/protocols/partitioned.md explains departures from the papers.
//!
//! No thread owns a partition. A transaction enters the queues of its partitions and runs on the
//! caller's thread when first in each queue ([`PartitionStamps::turns`]). The transaction states
//! its partitions first ([`hyades::Transaction::hold`]), or enters a partition on reaching a row
//! there: the transaction waits for the first partition, takes further partitions if free, and
//! otherwise runs again, with the set found so far. The check of each access is the isolation.
//!
//! **A stamp for each partition** replaces the stamps of rows and gaps. All data observed by a
//! transaction was written by earlier holders of its partitions, and the last holder of each left a
//! stamp there that includes all earlier stamps. So a transaction folds the stamps of all held
//! partitions, and leaves its own stamp in all of them, also where the transaction has only read:
//! at replay a command must come before any overwriting of the rows read by the command (C18). A
//! transaction without writes leaves no stamp, and is acknowledged by the folded stamps.
//!
//! Where calls are logged before they run ([`LoggingProtocol::arrive`]), a call has entered its
//! queues, and the protocol has its stamp, when the call gets its turn. The call may access nothing
//! outside of the stated slots: the rows there depend on more than the stamp says. Slots, not
//! partitions, so that the call ends in the same way with another number of partitions. Any other
//! transaction only reads.
//!
//! All frames of a transaction are placed while the transaction holds all its partitions, so that
//! in a stream no frame of another transaction of the partitions is in between (C17).
//!
//! Row locks remain where other threads change rows outside transactions: the removal of garbage
//! locks absent rows, and rows of tables with secondary indexes. Transactions lock such rows on
//! writing. Readers need no locks: a row under removal is absent, and only a holder of the
//! partition inserts the row anew.

use hyades::plug::bytes::ALL_SLOTS;
use hyades::plug::steps::{Commit, Committed};
use hyades::plug::{
    Beginning, Commits, ConcurrencyControl, ControlSettings, Engine, Gap, GapChange, HeldLock,
    LockWord, LoggingProtocol, Needs, PartitionStamps, Record, RowRef, Tid, TouchedPartitions,
    TxnState, VisibleRow, WRITER, steps, word,
};
use hyades::{Abort, Error};
use hyades_platform::broken;
use std::sync::atomic::Ordering;

pub struct Partitioned<P: LoggingProtocol> {
    partitions: PartitionStamps<P::RowStamp>,
}

/// The control's part of a running transaction.
pub struct PartitionedTxn {
    /// The number of the session in the queues.
    session: u32,
    /// Whether the transaction may wait for its turn.
    may_wait: bool,
    /// The partition held for replicated rows alone, for which any partition would do.
    any_partition: u64,
    /// The transaction has stated a need for all partitions, and enters them at the first write.
    states_all: bool,
}

/// The number of attempts at a row locked by garbage collection, before the transaction runs again.
const PATIENCE: u32 = 256;

impl<P: LoggingProtocol> Partitioned<P> {
    /// Enters partitions not held by the transaction, or remembers the need for them.
    #[cold]
    fn enter_more(
        &self,
        state: &mut TxnState<'_, Self, P>,
        set: u64,
        is_stated: bool,
    ) -> Result<(), Abort> {
        let partitions = &self.partitions;
        let (turns, number) = (&partitions.turns, state.control.session);
        let held = turns.held(number);
        if held != 0 && broken!(UncheckedPartitions) {
            return Ok(());
        }
        let set = if state.control.states_all && state.is_writer { partitions.all() } else { set };
        turns.want(number, held & !state.control.any_partition | set);
        // A transaction that reads all partitions and writes nothing is better off with a snapshot.
        // An attempt that must not wait gets no snapshot, and has to do with the free partitions.
        let reads_all = !state.is_writer && set == partitions.all() && set.count_ones() > 1;
        if reads_all && !is_stated && state.control.may_wait {
            return Err(Abort::Conflict);
        }
        let entered = match held {
            0 => self.enter_first(number, set, state.control.may_wait),
            _ => turns.try_enter(number, set),
        };
        if entered { Ok(()) } else { Err(Abort::Conflict) }
    }

    /// Enters partitions while the session holds none: all of them, or none.
    fn enter_first(&self, number: u32, set: u64, may_wait: bool) -> bool {
        let turns = &self.partitions.turns;
        if may_wait {
            return turns.enter(number, set);
        }
        turns.try_enter(number, set) || turns.leave(number)
    }

    /// Enters one partition, a free partition if there is any. The partition protects the
    /// replicated rows read, since a writer of such rows holds all partitions; the next attempt
    /// does not need the partition.
    #[cold]
    fn enter_any(&self, state: &mut TxnState<'_, Self, P>) -> Result<(), Abort> {
        let partitions = &self.partitions;
        let count = partitions.all().count_ones();
        let (number, may_wait) = (state.control.session, state.control.may_wait);
        let from = |at: u32| 1 << ((number + at) % count);
        let free = (0..count).map(from).find(|one| partitions.turns.try_enter(number, *one));
        let waited_for = || self.enter_first(number, from(0), may_wait).then(|| from(0));
        state.control.any_partition = free.or_else(waited_for).ok_or(Abort::Conflict)?;
        Ok(())
    }

    /// Locks a row against garbage collection.
    #[cold]
    fn lock<S>(record: &Record<S>) -> Result<(), Abort> {
        for look in 1..=PATIENCE {
            let (locked, failed) = (Ordering::Acquire, Ordering::Relaxed);
            if record.lock.compare_exchange(0, WRITER, locked, failed).is_ok() {
                return Ok(());
            }
            if record.word.load(Ordering::Relaxed) & word::DEAD != 0 {
                break;
            }
            if look.is_multiple_of(64) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        Err(Abort::Conflict)
    }

    /// Installs the rows, and leaves the stamp and the TID in the partitions.
    #[inline(always)]
    fn install(&self, engine: &Engine<P>, state: &mut TxnState<'_, Self, P>, tid: Tid, held: u64) {
        let lock = |record: &Record<_>| _ = record.lock_in_turn();
        steps::install_unstamped(engine, state, tid, lock, |record, version| {
            record.word.store(version, Ordering::Release)
        });
        let partitions = &self.partitions;
        for partition in partitions.stamps(self.stamped(state, held)) {
            engine.protocol.publish_write(RowRef::gap(&partition.stamp), state.stamp);
            partition.set_last(tid);
        }
    }

    /// The partitions in which a transaction leaves its stamp: all held partitions.
    fn stamped(&self, state: &TxnState<'_, Self, P>, held: u64) -> u64 {
        if broken!(StampHomeOnly) {
            return held & held.wrapping_neg();
        }
        if broken!(StampWrittenOnly) {
            return self.partitions.turns.written(state.control.session) & held;
        }
        held
    }

    fn end_read_only(
        &self,
        engine: &Engine<P>,
        state: &mut TxnState<'_, Self, P>,
    ) -> Result<Needs, Abort> {
        let partitions = &self.partitions;
        if P::LOGS_FIRST {
            engine
                .protocol
                .observe_partitions(partitions.turns.held(state.control.session), state.stamp);
        }
        for partition in partitions.stamps(partitions.turns.held(state.control.session)) {
            engine.protocol.observe_read(&partition.stamp, state.stamp);
        }
        partitions.turns.want(state.control.session, 0);
        steps::end_read_only(engine, state, true)
    }
}

impl<P: LoggingProtocol> ConcurrencyControl<P> for Partitioned<P> {
    type Row = P::RowStamp;
    type Txn<'s> = PartitionedTxn;
    type Lock = LockWord;
    const INSERTED_WORD: u64 = word::ABSENT;

    #[inline(always)]
    fn stamp(row: &P::RowStamp) -> &P::RowStamp {
        row
    }

    #[inline]
    fn enter(
        &self,
        state: &mut TxnState<'_, Self, P>,
        touched: impl FnOnce() -> TouchedPartitions,
    ) -> Result<(), Abort> {
        let touched = touched();
        if P::LOGS_FIRST {
            if let Some(stated) = state.call.stated_slots {
                return touched.check_stated(stated).or_else(|abort| state.refuse(abort));
            }
            if state.is_writer {
                // The transaction may go on, and read.
                state.is_writer = false;
                return Err(Abort::OnlyCalls);
            }
        }
        let held = self.partitions.turns.held(state.control.session);
        if touched == TouchedPartitions::Any {
            return if held != 0 { Ok(()) } else { self.enter_any(state) };
        }
        let set = self.partitions.touched(touched);
        state.control.any_partition &= !set;
        if state.is_writer && broken!(StampWrittenOnly) {
            self.partitions.turns.note_written(state.control.session, set);
        }
        if set & !held == 0 { Ok(()) } else { self.enter_more(state, set, false) }
    }

    #[inline]
    fn hold(&self, state: &mut TxnState<'_, Self, P>, slots: u64) -> Result<(), Abort> {
        if let Some(stated) = state.call.stated_slots.filter(|_| P::LOGS_FIRST) {
            let is_stated = slots & !stated == 0;
            return if is_stated { Ok(()) } else { state.refuse(Abort::OutsidePartitions) };
        }
        if slots == ALL_SLOTS && !state.is_writer {
            // A transaction that only reads had better read a snapshot.
            state.control.states_all = true;
            return Ok(());
        }
        let set = self.partitions.of_slots(slots);
        let held = self.partitions.turns.held(state.control.session);
        if set & !held == 0 { Ok(()) } else { self.enter_more(state, set, true) }
    }

    /// A call that is logged first has stated the slots in its record.
    fn hold_stated(
        &self,
        state: &mut TxnState<'_, Self, P>,
        slots: impl FnOnce() -> Result<u64, Abort>,
    ) -> Result<(), Abort> {
        if P::LOGS_FIRST && state.call.stated_slots.is_some() {
            return Ok(());
        }
        self.hold(state, slots()?)
    }

    #[inline]
    fn read<'s, T>(
        &self,
        _: &Engine<P>,
        _: &mut TxnState<'s, Self, P>,
        _: u32,
        record: &'s Record<P::RowStamp>,
        mut copy: impl FnMut() -> T,
    ) -> Result<VisibleRow<'s, T>, Abort> {
        // Relaxed: the turn orders the load after the last write of the row.
        let there = record.word.load(Ordering::Relaxed) & word::ABSENT == 0;
        Ok(if there { VisibleRow::There(copy()) } else { VisibleRow::Absent })
    }

    #[inline]
    fn intend<'s>(
        &self,
        engine: &Engine<P>,
        state: &mut TxnState<'s, Self, P>,
        table: u32,
        record: &'s Record<P::RowStamp>,
    ) -> Result<bool, Abort> {
        let mut there = record.word.load(Ordering::Relaxed) & word::ABSENT == 0;
        let is_shared = !there || engine.tables[table as usize].indexed != 0;
        if is_shared && state.own_lock(record).is_none() {
            Self::lock(record)?;
            state.push_lock(table, record, true);
            let seen = record.word.load(Ordering::Acquire);
            if seen & word::DEAD != 0 {
                return Err(Abort::Conflict);
            }
            there = seen & word::ABSENT == 0;
        }
        Ok(there)
    }

    fn saw_gap<'s>(
        &self,
        _: &Engine<P>,
        _: &mut TxnState<'s, Self, P>,
        _: Gap<'s, P::RowStamp>,
    ) -> Result<(), Abort> {
        Ok(())
    }

    /// Gaps have no stamps, and are not remembered: during the turn no other transaction inserts.
    fn entered_gap<'s>(
        _: &Engine<P>,
        _: &mut TxnState<'s, Self, P>,
        _: Result<GapChange<'s, P::RowStamp>, Gap<'s, P::RowStamp>>,
        _: Option<&Record<P::RowStamp>>,
    ) {
    }

    fn inserted<'s>(
        state: &mut TxnState<'s, Self, P>,
        table: u32,
        record: &'s Record<P::RowStamp>,
    ) {
        state.push_lock(table, record, true);
    }
}

impl<P: LoggingProtocol> Commits<P> for Partitioned<P> {
    /// The seat in the queues of the partitions.
    type Session = u32;

    fn new(settings: &ControlSettings) -> Self {
        Partitioned { partitions: PartitionStamps::new(settings.partitions, settings.may_wait) }
    }

    fn add_session(&self) -> Result<u32, Error> {
        self.partitions.turns.add()
    }

    fn remove_session(&self, seat: &mut u32) {
        self.partitions.turns.remove(*seat);
    }

    fn forget_attempts(&self, seat: &u32) {
        self.partitions.turns.want(*seat, 0);
    }

    #[inline(always)]
    fn await_turns(&self, seat: &u32, may_wait: bool) -> bool {
        let wanted = self.partitions.turns.wanted(*seat);
        wanted == 0 || self.enter_first(*seat, wanted, may_wait)
    }

    fn stop(&self) {
        self.partitions.turns.stop();
    }

    fn check_stopped(&self) -> Result<(), Error> {
        if self.partitions.turns.has_stopped() {
            let cause = "a commit panicked, and left partitions that are half changed";
            return Err(Error::Poisoned(cause.to_string()));
        }
        Ok(())
    }

    #[inline(always)]
    fn begin(&self, _: &Engine<P>, seat: &mut u32, beginning: Beginning) -> PartitionedTxn {
        let may_wait = beginning.may_wait;
        PartitionedTxn { session: *seat, may_wait, any_partition: 0, states_all: false }
    }

    fn reads_many(&self, state: &TxnState<'_, Self, P>) -> bool {
        let partitions = &self.partitions;
        let all = partitions.all();
        partitions.turns.wanted(state.control.session) == all && all.count_ones() > 1
    }

    #[inline(always)]
    fn partitions(&self) -> Option<&PartitionStamps<P::RowStamp>> {
        Some(&self.partitions)
    }

    fn seat(seat: &u32) -> u32 {
        *seat
    }

    fn begin_arrived(&self, seat: u32) -> PartitionedTxn {
        PartitionedTxn { session: seat, may_wait: false, any_partition: 0, states_all: false }
    }

    fn install_arrived(&self, engine: &Engine<P>, state: &mut TxnState<'_, Self, P>, tid: Tid) {
        debug_assert!(
            state.final_writes().all(|w| word::tid(w.record.word.load(Ordering::Relaxed)) < tid),
            "what has written these rows had arrived before"
        );
        let lock = |record: &Record<_>| _ = record.lock_in_turn();
        steps::install_unstamped(engine, state, tid, lock, |record, version| {
            record.word.store(version, Ordering::Release)
        });
    }

    fn release_rows(state: &mut TxnState<'_, Self, P>) {
        for HeldLock { record, .. } in state.held.drain(..) {
            record.lock.store(0, Ordering::Release);
        }
    }

    /// Commits. Nothing can fail, because the transaction holds the turns of all its partitions.
    fn commit<'s>(
        &self,
        engine: &Engine<P>,
        state: &mut TxnState<'s, Self, P>,
        mut commit: Commit<'_>,
    ) -> Result<Committed, Abort> {
        const { assert!(!P::TRACKS_READERS, "those that only read leave no stamp") };
        const { assert!(!P::TELLS_BLIND_WRITES, "what is held counts as read") };
        if state.writes.is_empty() {
            return self.end_read_only(engine, state).map(Committed::read_only);
        }
        let partitions = &self.partitions;
        let held = partitions.turns.held(state.control.session);
        debug_assert_ne!(held, 0, "a writer has entered the partitions of its rows");

        // 1. Fold the stamps of all partitions held, as reader and as writer; draw the TID.
        for partition in partitions.stamps(held) {
            engine.protocol.observe_write(&partition.stamp, state.stamp);
            state.max_tid = state.max_tid.max(partition.last());
        }
        for write in state.writes.iter_mut() {
            write.base = word::tid(write.record.word.load(Ordering::Relaxed));
            state.max_tid = state.max_tid.max(write.base);
        }
        let tid = steps::next_tid(engine, state)?;
        let command = steps::as_command(engine, state, &commit);

        if broken!(HandOnBeforeFrames) {
            self.install(engine, state, tid, held);
            Self::release_rows(state);
            partitions.turns.leave(state.control.session);
            if tid.sequence().is_multiple_of(4) {
                // Makes a power failure likely while the record of a reader of the writes is on
                // disk.
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
            let reserved = steps::append(self, engine, state, &mut commit, tid, command);
            let placed = reserved.fill(tid);
            return Ok(steps::committed(engine, state, placed));
        }

        // 2. Reserve and fill.
        let reserved = steps::append(self, engine, state, &mut commit, tid, command);
        let placed = reserved.fill(tid);
        if broken!(HandOnBeforeInstall) {
            partitions.turns.leave(state.control.session);
            std::thread::yield_now();
        }

        // 3. Install; leave the own stamp and TID in all partitions held.
        self.install(engine, state, tid, held);
        partitions.turns.want(state.control.session, 0);
        Ok(steps::committed(engine, state, placed))
    }

    fn abandon<'s>(
        &self,
        engine: &Engine<P>,
        state: &mut TxnState<'s, Self, P>,
    ) -> Result<Needs, Abort> {
        self.end_read_only(engine, state)
    }

    fn release(&self, state: &mut TxnState<'_, Self, P>) {
        Self::release_rows(state);
        self.partitions.turns.leave(state.control.session);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
