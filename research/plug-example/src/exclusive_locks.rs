//! A concurrency control in one file: two-phase locking with exclusive locks alone, which aborts
//! instead of waiting. Gaps are not locked but validated.
//!
//! **Why it is serializable.** Each row that a transaction reads or writes is locked until the
//! writes are installed, and gaps are unchanged while all locks are held. The three invariants of
//! the logging protocols hold: stamps are folded at commit, under the locks; the record has a
//! position before rows get stamps; rows get stamps before their locks are released.

use hyades::plug::steps::{self, Commit, Committed};
use hyades::plug::{
    Beginning, Commits, ConcurrencyControl, ControlSettings, Engine, LockWord, LoggingProtocol,
    Needs, Record, TxnState, VisibleRow, WRITER, word,
};
use hyades::{Abort, Error};
use std::sync::atomic::Ordering;

/// See the module.
pub struct ExclusiveLocks {
    /// How often a lock is tried before the transaction aborts.
    looks: u32,
}

impl ExclusiveLocks {
    /// Locks a row. Returns whether the row exists.
    fn lock<'s, P: LoggingProtocol>(
        &self,
        state: &mut TxnState<'s, Self, P>,
        table: u32,
        record: &'s Record<P::RowStamp>,
    ) -> Result<bool, Abort> {
        if state.own_lock(record).is_none() {
            // SeqCst: the lock comes before the loads of the stamps at commit.
            let (free, failed) = (Ordering::SeqCst, Ordering::Relaxed);
            let take = |_| record.lock.compare_exchange(0, WRITER, free, failed).is_ok();
            if !(0..self.looks).any(take) {
                return Err(Abort::Conflict);
            }
            state.push_lock(table, record, true);
        }
        let version = record.word.load(Ordering::Acquire);
        if version & word::DEAD != 0 {
            // The row has left its index: another record may be under the key.
            return Err(Abort::Conflict);
        }
        state.max_tid = state.max_tid.max(word::tid(version));
        Ok(version & word::ABSENT == 0)
    }

    fn end_read_only<P: LoggingProtocol>(
        engine: &Engine<P>,
        state: &mut TxnState<'_, Self, P>,
    ) -> Result<Needs, Abort> {
        state.observe(&engine.protocol, false);
        let valid = state.gaps_are_current();
        steps::end_read_only(engine, state, valid)
    }
}

impl<P: LoggingProtocol> ConcurrencyControl<P> for ExclusiveLocks {
    type Row = P::RowStamp;
    type Txn<'s> = ();
    type Lock = LockWord;
    const INSERTED_WORD: u64 = word::ABSENT;

    fn stamp(row: &P::RowStamp) -> &P::RowStamp {
        row
    }

    fn read<'s, T>(
        &self,
        _: &Engine<P>,
        state: &mut TxnState<'s, Self, P>,
        table: u32,
        record: &'s Record<P::RowStamp>,
        mut copy: impl FnMut() -> T,
    ) -> Result<VisibleRow<'s, T>, Abort> {
        let there = self.lock(state, table, record)?;
        Ok(if there { VisibleRow::There(copy()) } else { VisibleRow::Absent })
    }

    fn intend<'s>(
        &self,
        _: &Engine<P>,
        state: &mut TxnState<'s, Self, P>,
        table: u32,
        record: &'s Record<P::RowStamp>,
    ) -> Result<bool, Abort> {
        self.lock(state, table, record)
    }

    /// The record is locked from the beginning.
    fn inserted<'s>(
        state: &mut TxnState<'s, Self, P>,
        table: u32,
        record: &'s Record<P::RowStamp>,
    ) {
        state.push_lock(table, record, true);
    }

    fn is_current(state: &TxnState<'_, Self, P>) -> bool {
        state.gaps_are_current()
    }
}

impl<P: LoggingProtocol> Commits<P> for ExclusiveLocks {
    type Session = ();

    fn new(settings: &ControlSettings) -> Self {
        ExclusiveLocks { looks: settings.patience + 1 }
    }

    fn add_session(&self) -> Result<(), Error> {
        Ok(())
    }

    fn begin(&self, _: &Engine<P>, _: &mut (), _: Beginning) {}

    fn commit<'s>(
        &self,
        engine: &Engine<P>,
        state: &mut TxnState<'s, Self, P>,
        mut commit: Commit<'_>,
    ) -> Result<Committed, Abort> {
        const { assert!(!P::TRACKS_READERS, "readers publish no stamps") };
        const { assert!(!P::TELLS_BLIND_WRITES, "each write counts as a read") };
        if state.writes.is_empty() {
            return Self::end_read_only(engine, state).map(Committed::read_only);
        }
        state.observe(&engine.protocol, true);
        for write in state.writes.iter_mut() {
            write.base = word::tid(write.record.word.load(Ordering::Relaxed));
        }
        let tid = steps::next_tid(engine, state)?;
        if !state.gaps_are_current() {
            return Err(Abort::Conflict);
        }
        // As data always: readers of commands would have to publish stamps.
        let reserved = steps::append(self, engine, state, &mut commit, tid, false);
        let placed = reserved.fill(tid);
        steps::install(engine, state, placed.tid, steps::already_locked, |record, version| {
            record.word.store(version, Ordering::Release)
        });
        Ok(steps::committed(engine, state, placed))
    }

    fn abandon<'s>(
        &self,
        engine: &Engine<P>,
        state: &mut TxnState<'s, Self, P>,
    ) -> Result<Needs, Abort> {
        Self::end_read_only(engine, state)
    }

    fn release(&self, state: &mut TxnState<'_, Self, P>) {
        for held in state.held.drain(..) {
            held.record.lock.store(0, Ordering::Release);
        }
    }
}
