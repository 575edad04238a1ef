//! Two-phase locking in which transactions wait for younger ones, and die for older ones
//! (Rosenkrantz, Stearns, Lewis: "System Level Concurrency Control for Distributed Database
//! Systems", ACM TODS 3(2), 1978; WAIT_DIE of Yu, Bezerra, Pavlo, Devadas, Stonebraker: "Staring
//! into the Abyss", VLDB 2014), with the logging of Taurus, algorithm 1. An operation locks its row
//! at once; writes are buffered and installed at commit.
//!
//! Gaps are locked, too. A transaction that has missed a key, or scanned a range, holds the gaps to
//! read until its end. An insertion holds its gap to write for as long as it takes to link the key:
//! from then on the new row, which is locked to write until the end, is what others conflict with.
//! So nothing is validated at commit.

mod ages;
mod lock;
mod row;

use self::ages::{Age, Ages};
use self::lock::{Look, Mode, Request, WaitDieLock};
use self::row::{LockedRow, RowLock};
use hyades::plug::steps::{self, Commit, Committed};
use hyades::plug::{
    Beginning, Commits, ConcurrencyControl, ControlSettings, Engine, Gap, GapChange, GapLocks,
    HeldLock, LoggingProtocol, Needs, Record, TxnState, VisibleRow, word,
};
use hyades::{Abort, Error};
use hyades_platform::broken;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The metadata of a row or gap under protocol `P`.
type Row<P> = LockedRow<<P as LoggingProtocol>::RowStamp>;

pub struct WaitDie {
    ages: Ages,
    /// A thread may run a transaction inside another, for which the inner must not wait.
    may_wait: bool,
    /// A commit has panicked: its locks are never released.
    stopped: AtomicBool,
}

/// The control's state of a session.
pub struct WaitDieSession {
    age: Age,
    /// A buffer for [`WaitDieTxn::gaps`].
    gaps: HashSet<usize>,
}

/// The control's part of a running transaction.
pub struct WaitDieTxn<'s, S> {
    timestamp: u64,
    may_wait: bool,
    /// No active transaction is older, as far as is known.
    is_oldest: bool,
    age: &'s Age,
    /// The addresses of the gaps held to read, which are those in [`TxnState::gaps`].
    gaps: &'s mut HashSet<usize>,
    /// The gap held to write.
    entering: Option<&'s LockedRow<S>>,
}

fn address<S>(gap: &LockedRow<S>) -> usize {
    std::ptr::from_ref(gap).addr()
}

/// Looks without a pause for the time of a short transaction,
const SPINS: u32 = 64;
/// then yields each time, since the holder may need the processor,
const YIELDS: u32 = SPINS + 64;
/// then after a sleep, longer and longer.
const SLEEP: Duration = Duration::from_micros(50);
const LOOKS_OF_A_LENGTH: u32 = 8;
const MOST_DOUBLINGS: u32 = 4;

/// Pauses before a further look at a lock.
fn pause(looks: u32) {
    match looks {
        ..SPINS => std::hint::spin_loop(),
        SPINS..YIELDS => std::thread::yield_now(),
        _ => {
            let doublings = ((looks - YIELDS) / LOOKS_OF_A_LENGTH).min(MOST_DOUBLINGS);
            std::thread::sleep(SLEEP * (1 << doublings));
        }
    }
}

impl WaitDie {
    /// Takes a lock, waiting while all its holders are younger. False if the row or gap has left
    /// its index.
    #[inline]
    fn take<P: LoggingProtocol>(
        &self,
        state: &mut TxnState<'_, WaitDie, P>,
        lock: &WaitDieLock,
        (mode, brief): (Mode, bool),
    ) -> Result<bool, Abort> {
        let request = Request { timestamp: state.control.timestamp, mode, brief };
        match lock.look(request, || self.never_dies(state)) {
            Look::Taken => Ok(true),
            Look::Wait => self.wait(state, lock, request),
            Look::Gone => Ok(false),
            Look::Die => Err(Abort::Conflict),
        }
    }

    #[cold]
    fn never_dies<P: LoggingProtocol>(&self, state: &TxnState<'_, WaitDie, P>) -> bool {
        state.control.is_oldest || self.ages.is_oldest(state.control.timestamp)
    }

    #[cold]
    fn wait<P: LoggingProtocol>(
        &self,
        state: &mut TxnState<'_, WaitDie, P>,
        lock: &WaitDieLock,
        request: Request,
    ) -> Result<bool, Abort> {
        state.control.is_oldest |= self.ages.is_oldest(request.timestamp);
        let mut looks = 0;
        // A body that goes on after a conflict only delays the next attempt.
        while state.control.may_wait && !state.conflict && !state.guard.must_end() {
            if self.stopped.load(Ordering::Relaxed) {
                break;
            }
            pause(looks);
            looks += 1;
            match lock.look(request, || self.never_dies(state)) {
                Look::Taken => return Ok(true),
                Look::Wait => {}
                Look::Gone => return Ok(false),
                Look::Die => return Err(Abort::Conflict),
            }
        }
        lock.withdraw(request);
        Err(Abort::Conflict)
    }

    /// Takes the lock of a row. A row that has left its index is a conflict.
    #[inline]
    fn take_row<'s, P: LoggingProtocol>(
        &self,
        engine: &Engine<P, Row<P>>,
        state: &mut TxnState<'s, WaitDie, P>,
        (table, record): (u32, &'s Record<Row<P>>),
        mode: Mode,
    ) -> Result<(), Abort> {
        // A row that is being inserted has no lock yet.
        self.version(record)?;
        if !self.take(state, &record.stamp.lock, (mode, false))? {
            return Err(Abort::Conflict);
        }
        state.push_lock(table, record, mode == Mode::Write);
        engine.protocol.prefetch(&record.stamp.stamp);
        Ok(())
    }

    /// The version word of a row that no transaction is inserting or changing.
    #[inline]
    fn version<S>(&self, record: &Record<S>) -> Result<u64, Abort> {
        let mut looks = 0;
        loop {
            let version = record.word.load(Ordering::Acquire);
            if version & word::DEAD != 0 {
                return Err(Abort::Conflict);
            }
            if version & word::LOCKED == 0 {
                return Ok(version);
            }
            // The thread that inserts or changes the row waits for nothing before it has unlocked
            // the word.
            if self.stopped.load(Ordering::Relaxed) {
                return Err(Abort::Conflict);
            }
            pause(looks);
            looks += 1;
        }
    }

    /// Locks the row for writing; returns its version word.
    #[inline]
    fn lock_to_write<'s, P: LoggingProtocol>(
        &self,
        engine: &Engine<P, Row<P>>,
        state: &mut TxnState<'s, WaitDie, P>,
        table: u32,
        record: &'s Record<Row<P>>,
        reads: bool,
    ) -> Result<u64, Abort> {
        let at = match state.own_lock(record) {
            Some(at) if state.held[at].writer => at,
            Some(at) => {
                self.take(state, &record.stamp.lock, (Mode::Upgrade, false))?;
                state.held[at].writer = true;
                at
            }
            None => {
                self.take_row(engine, state, (table, record), Mode::Write)?;
                state.held.len() - 1
            }
        };
        if P::TELLS_BLIND_WRITES {
            state.held[at].is_read |= reads;
        }
        let version = self.version(record)?;
        state.max_tid = state.max_tid.max(word::tid(version));
        Ok(version)
    }

    /// Ends the hold of an insertion on a gap, or on the part that was split off: with the hold of
    /// a reader, if the transaction has `seen` the gap before.
    fn entered<'s, P: LoggingProtocol>(
        state: &mut TxnState<'s, WaitDie, P>,
        gap: &Gap<'s, Row<P>>,
        seen: bool,
    ) {
        let lock = &gap.stamp().lock;
        if !seen {
            return lock.release_write();
        }
        if state.control.gaps.insert(address(gap.stamp())) {
            state.gaps.push(gap.clone());
        }
        lock.downgrade(state.control.timestamp);
    }

    fn end_read_only<P: LoggingProtocol>(
        engine: &Engine<P, Row<P>>,
        state: &mut TxnState<'_, WaitDie, P>,
    ) -> Result<Needs, Abort> {
        state.observe(&engine.protocol, false);
        let needs = steps::end_read_only(engine, state, true)?;
        state.control.age.forget();
        Ok(needs)
    }
}

impl<P: LoggingProtocol> ConcurrencyControl<P> for WaitDie {
    type Row = Row<P>;
    type Txn<'s> = WaitDieTxn<'s, P::RowStamp>;
    type Lock = RowLock;
    // Locked until the transaction holds the row's lock.
    const INSERTED_WORD: u64 = word::ABSENT | word::LOCKED;
    const GAP_LOCKS: Option<GapLocks<Row<P>>> = Some(GapLocks {
        split: |from, to| to.lock.copy_from(&from.lock),
        may_merge: |gap| gap.lock.try_end() || broken!(MergeLockedGaps),
    });

    #[inline(always)]
    fn stamp(row: &Row<P>) -> &P::RowStamp {
        &row.stamp
    }

    #[inline]
    fn read<'s, T>(
        &self,
        engine: &Engine<P, Row<P>>,
        state: &mut TxnState<'s, WaitDie, P>,
        table: u32,
        record: &'s Record<Row<P>>,
        mut copy: impl FnMut() -> T,
    ) -> Result<VisibleRow<'s, T>, Abort> {
        let own = state.own_lock(record);
        if own.is_none() {
            self.take_row(engine, state, (table, record), Mode::Read)?;
        }
        if P::TELLS_BLIND_WRITES {
            let at = own.unwrap_or(state.held.len() - 1);
            state.held[at].is_read = true;
        }
        let version = self.version(record)?;
        state.max_tid = state.max_tid.max(word::tid(version));
        Ok(if version & word::ABSENT == 0 { VisibleRow::There(copy()) } else { VisibleRow::Absent })
    }

    #[inline]
    fn intend<'s>(
        &self,
        engine: &Engine<P, Row<P>>,
        state: &mut TxnState<'s, WaitDie, P>,
        table: u32,
        record: &'s Record<Row<P>>,
    ) -> Result<bool, Abort> {
        let version = self.lock_to_write(engine, state, table, record, true)?;
        Ok(version & word::ABSENT == 0)
    }

    #[inline]
    fn intend_blindly<'s>(
        &self,
        engine: &Engine<P, Row<P>>,
        state: &mut TxnState<'s, WaitDie, P>,
        table: u32,
        record: &'s Record<Row<P>>,
    ) -> Result<(), Abort> {
        self.lock_to_write(engine, state, table, record, false).map(drop)
    }

    fn lock_gap<'s>(
        &self,
        state: &mut TxnState<'s, WaitDie, P>,
        gap: &Gap<'s, Row<P>>,
        inserts: bool,
    ) -> Result<bool, Abort> {
        let seen = state.control.gaps.contains(&address(gap.stamp()));
        if !inserts && (seen || broken!(MissWithoutLock)) {
            // No key was inserted since the gap was locked.
            return Ok(true);
        }
        let mode = match (inserts, seen) {
            (false, _) => Mode::Read,
            (true, false) => Mode::Write,
            (true, true) => Mode::Upgrade,
        };
        if !self.take(state, &gap.stamp().lock, (mode, inserts))? {
            return Ok(false);
        }
        let is_current = gap.is_current();
        if inserts && is_current {
            debug_assert!(state.control.entering.is_none(), "one gap is entered at a time");
            state.control.entering = Some(gap.stamp());
        } else if inserts {
            Self::entered(state, gap, seen);
        } else {
            // A gap that has changed stays locked for the next look.
            state.control.gaps.insert(address(gap.stamp()));
            state.gaps.push(gap.clone());
        }
        Ok(is_current)
    }

    /// Observes the gap, which is locked.
    fn saw_gap<'s>(
        &self,
        engine: &Engine<P, Row<P>>,
        state: &mut TxnState<'s, WaitDie, P>,
        gap: Gap<'s, Row<P>>,
    ) -> Result<(), Abort> {
        engine.protocol.observe_read(&gap.stamp().stamp, state.stamp);
        Ok(())
    }

    fn entered_gap<'s>(
        engine: &Engine<P, Row<P>>,
        state: &mut TxnState<'s, WaitDie, P>,
        change: Result<GapChange<'s, Row<P>>, Gap<'s, Row<P>>>,
        record: Option<&Record<Row<P>>>,
    ) {
        let entering = state.control.entering.take().expect("a gap is locked before it is entered");
        let seen = state.control.gaps.contains(&address(entering));
        let change = match change {
            Ok(change) => change,
            Err(gap) => {
                engine.protocol.observe_write(&gap.stamp().stamp, state.stamp);
                return Self::entered(state, &gap, seen);
            }
        };
        let holder = &change.holder.stamp().stamp;
        if let Some(record) = record {
            engine.protocol.inherit(&record.stamp.stamp, holder, state.stamp);
        }
        engine.protocol.observe_write(holder, state.stamp);
        for (at, gap) in change.gaps().enumerate() {
            Self::entered(state, gap, seen && !(at > 0 && broken!(ForgetSplitOff)));
        }
    }

    fn inserted<'s>(state: &mut TxnState<'s, WaitDie, P>, table: u32, record: &'s Record<Row<P>>) {
        let timestamp = state.control.timestamp;
        let request = Request { timestamp, mode: Mode::Write, brief: false };
        // Garbage collection may hold the lock until it has seen the version word.
        let mut looks = 0;
        while record.stamp.lock.look(request, || true) != Look::Taken {
            pause(looks);
            looks += 1;
        }
        record.word.store(word::ABSENT, Ordering::Release);
        state.push_lock(table, record, true);
    }
}

impl<P: LoggingProtocol> Commits<P> for WaitDie {
    type Session = WaitDieSession;

    fn new(settings: &ControlSettings) -> Self {
        WaitDie {
            ages: Ages::default(),
            may_wait: settings.may_wait,
            stopped: AtomicBool::new(false),
        }
    }

    fn add_session(&self) -> Result<WaitDieSession, Error> {
        Ok(WaitDieSession { age: self.ages.add(), gaps: HashSet::new() })
    }

    fn remove_session(&self, session: &mut WaitDieSession) {
        self.ages.remove(&session.age);
    }

    fn forget_attempts(&self, session: &WaitDieSession) {
        session.age.forget();
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn check_stopped(&self) -> Result<(), Error> {
        if self.stopped.load(Ordering::Relaxed) {
            let cause = "a commit panicked, and left rows locked that are half changed";
            return Err(Error::Poisoned(cause.to_string()));
        }
        Ok(())
    }

    fn begin<'s>(
        &self,
        _: &Engine<P, Row<P>>,
        session: &'s mut WaitDieSession,
        beginning: Beginning,
    ) -> WaitDieTxn<'s, P::RowStamp> {
        let WaitDieSession { age, gaps } = session;
        if broken!(DrawTimestampAnew) {
            age.forget();
        }
        gaps.clear();
        WaitDieTxn {
            timestamp: self.ages.of(age),
            may_wait: self.may_wait && beginning.may_wait,
            is_oldest: false,
            age,
            gaps,
            entering: None,
        }
    }

    fn commit<'s>(
        &self,
        engine: &Engine<P, Row<P>>,
        state: &mut TxnState<'s, WaitDie, P>,
        mut commit: Commit<'_>,
    ) -> Result<Committed, Abort> {
        if state.writes.is_empty() {
            return Self::end_read_only(engine, state).map(Committed::read_only);
        }
        // The rows of the write set were locked by the writes.
        state.observe(&engine.protocol, true);
        for write in state.writes.iter_mut() {
            write.base = word::tid(write.record.word.load(Ordering::Relaxed));
        }
        let tid = steps::next_tid(engine, state)?;
        let command = steps::as_command(engine, state, &commit);
        let reserved = steps::append(self, engine, state, &mut commit, tid, command);
        // Everything read is locked: a transaction that overwrites a row, or enters a gap, does so
        // after the release, and finds the stamps.
        if command || P::TRACKS_READERS {
            steps::publish_reads(engine, state);
        }
        if reserved.is_divided(tid, || engine.snapshots.closed()) {
            reserved.void();
            return Err(Abort::Conflict);
        }
        let placed = reserved.fill(tid);

        // Install and publish; all locks are released together at the end, in any order.
        let lock = |record: &Record<_>| _ = record.lock_in_turn();
        steps::install(engine, state, placed.tid, lock, |record, version| {
            debug_assert!(
                record.stamp.lock.is_written(),
                "a row takes its stamp before it is released"
            );
            record.word.store(version, Ordering::Release)
        });
        state.control.age.forget();
        Ok(steps::committed(engine, state, placed))
    }

    fn abandon<'s>(
        &self,
        engine: &Engine<P, Row<P>>,
        state: &mut TxnState<'s, WaitDie, P>,
    ) -> Result<Needs, Abort> {
        Self::end_read_only(engine, state)
    }

    fn release(&self, state: &mut TxnState<'_, WaitDie, P>) {
        for HeldLock { record, writer, .. } in state.held.drain(..) {
            if writer {
                record.stamp.lock.release_write();
            } else {
                record.stamp.lock.release_read();
            }
        }
        // A gap held to write has not been entered.
        let entering = state.control.entering.take();
        if let Some(gap) = entering {
            match state.control.gaps.contains(&address(gap)) {
                true => gap.lock.downgrade(state.control.timestamp),
                false => gap.lock.release_write(),
            }
        }
        for gap in state.gaps.drain(..) {
            gap.stamp().lock.release_read();
        }
    }
}
