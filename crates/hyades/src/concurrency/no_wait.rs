//! Two-phase locking that aborts instead of waiting (Yu, Bezerra, Pavlo, Devadas, Stonebraker:
//! "Staring into the Abyss", VLDB 2014, NO_WAIT), with the logging of Taurus, algorithm 1. An
//! operation locks its row at once; writes are buffered and installed at commit. Gaps are not
//! locked but validated, as under optimistic concurrency control.
//!
//! With *patience* ([`crate::Builder::patience`]) a transaction retries a lock held by another
//! transaction, a limited number of times, before the abort. Transactions may then wait for each
//! other in a circle, but none waits for ever: the first whose patience is over aborts, releases
//! its locks, and opens the circle. So there is no deadlock to detect, and patience bounds the cost
//! of a deadlock.

use super::locks::LockWord;
use super::state::{HeldLock, TxnState};
use super::steps::{self, Commit, Committed};
use super::{Beginning, Commits, ConcurrencyControl, ControlSettings, VisibleRow, sums};
use crate::engine::Engine;
use crate::error::{Abort, Error};
use crate::logging::{LoggingProtocol, Needs};
use crate::storage::record::{Record, WRITER, word};
use std::sync::atomic::Ordering;

pub struct NoWait {
    /// The number of retries for a lock, before an abort.
    patience: u32,
}

impl NoWait {
    #[inline]
    fn version<S>(record: &Record<S>) -> Result<u64, Abort> {
        let version = record.word.load(Ordering::Acquire);
        if version & word::DEAD != 0 { Err(Abort::Conflict) } else { Ok(version) }
    }

    /// Takes a row's lock with `take`, which returns true on success.
    #[inline]
    fn acquire<S>(
        record: &Record<S>,
        patience: u32,
        mut take: impl FnMut() -> bool,
    ) -> Result<(), Abort> {
        if take() { Ok(()) } else { Self::wait(record, patience, &mut take) }
    }

    #[cold]
    fn wait<S>(
        record: &Record<S>,
        patience: u32,
        take: &mut dyn FnMut() -> bool,
    ) -> Result<(), Abort> {
        for look in 1..=patience {
            if look.is_multiple_of(64) {
                // The holder may have been descheduled.
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
            Self::version(record)?;
            if take() {
                return Ok(());
            }
        }
        Err(Abort::Conflict)
    }

    /// Locks the row for writing; returns its version word.
    #[inline]
    fn lock_to_write<'s, P: LoggingProtocol>(
        &self,
        engine: &Engine<P>,
        state: &mut TxnState<'s, NoWait, P>,
        table: u32,
        record: &'s Record<P::RowStamp>,
        reads: bool,
    ) -> Result<u64, Abort> {
        // SeqCst: orders the lock before the load of the read stamp at commit (E4).
        let take = |from| {
            Self::acquire(record, self.patience, || {
                record
                    .lock
                    .compare_exchange(from, WRITER, Ordering::SeqCst, Ordering::Relaxed)
                    .is_ok()
            })
        };
        let at = match state.own_lock(record) {
            Some(at) if state.held[at].writer => at,
            // An upgrade succeeds only if this transaction is the only reader.
            Some(at) => {
                take(1)?;
                state.held[at].writer = true;
                at
            }
            None => {
                take(0)?;
                state.push_lock(table, record, true);
                engine.protocol.prefetch(&record.stamp);
                state.held.len() - 1
            }
        };
        if P::TELLS_BLIND_WRITES {
            state.held[at].is_read |= reads;
        }
        let version = Self::version(record)?;
        state.max_tid = state.max_tid.max(word::tid(version));
        Ok(version)
    }

    fn end_read_only<P: LoggingProtocol>(
        engine: &Engine<P>,
        state: &mut TxnState<'_, NoWait, P>,
    ) -> Result<Needs, Abort> {
        // The transaction overwrites nothing, whatever locks are held.
        sums::enter_read_only(engine, state);
        state.observe(&engine.protocol, false);
        let valid = state.gaps_are_current();
        if valid {
            sums::finish(engine, state);
        }
        steps::end_read_only(engine, state, valid)
    }
}

impl<P: LoggingProtocol> ConcurrencyControl<P> for NoWait {
    type Row = P::RowStamp;
    type Txn<'s> = ();
    type Lock = LockWord;
    const INSERTED_WORD: u64 = word::ABSENT;
    const SUMS: bool = true;

    #[inline(always)]
    fn stamp(row: &P::RowStamp) -> &P::RowStamp {
        row
    }

    #[inline]
    fn read<'s, T>(
        &self,
        engine: &Engine<P>,
        state: &mut TxnState<'s, NoWait, P>,
        table: u32,
        record: &'s Record<P::RowStamp>,
        mut copy: impl FnMut() -> T,
    ) -> Result<VisibleRow<'s, T>, Abort> {
        let own = state.own_lock(record);
        if own.is_none() {
            // `fetch_update` retries after losing a race against another reader, and fails against
            // a writer.
            let shared =
                |readers: u32| if readers & WRITER == 0 { Some(readers + 1) } else { None };
            Self::acquire(record, self.patience, || {
                record.lock.load(Ordering::Relaxed) & WRITER == 0
                    && record
                        .lock
                        .fetch_update(Ordering::Acquire, Ordering::Relaxed, shared)
                        .is_ok()
            })?;
            state.push_lock(table, record, false);
            engine.protocol.prefetch(&record.stamp);
        }
        if P::TELLS_BLIND_WRITES {
            let at = own.unwrap_or(state.held.len() - 1);
            state.held[at].is_read = true;
        }
        let version = Self::version(record)?;
        state.max_tid = state.max_tid.max(word::tid(version));
        Ok(if version & word::ABSENT == 0 { VisibleRow::There(copy()) } else { VisibleRow::Absent })
    }

    #[inline]
    fn intend<'s>(
        &self,
        engine: &Engine<P>,
        state: &mut TxnState<'s, NoWait, P>,
        table: u32,
        record: &'s Record<P::RowStamp>,
    ) -> Result<bool, Abort> {
        let version = self.lock_to_write(engine, state, table, record, true)?;
        Ok(version & word::ABSENT == 0)
    }

    #[inline]
    fn intend_blindly<'s>(
        &self,
        engine: &Engine<P>,
        state: &mut TxnState<'s, NoWait, P>,
        table: u32,
        record: &'s Record<P::RowStamp>,
    ) -> Result<(), Abort> {
        self.lock_to_write(engine, state, table, record, false).map(drop)
    }

    fn inserted<'s>(
        state: &mut TxnState<'s, NoWait, P>,
        table: u32,
        record: &'s Record<P::RowStamp>,
    ) {
        state.push_lock(table, record, true);
    }

    fn is_current(state: &TxnState<'_, NoWait, P>) -> bool {
        state.gaps_are_current()
    }
}

impl<P: LoggingProtocol> Commits<P> for NoWait {
    type Session = ();

    fn new(settings: &ControlSettings) -> Self {
        NoWait { patience: settings.patience }
    }

    fn add_session(&self) -> Result<(), Error> {
        Ok(())
    }

    fn begin(&self, _: &Engine<P>, _: &mut (), _: Beginning) {}

    fn commit<'s>(
        &self,
        engine: &Engine<P>,
        state: &mut TxnState<'s, NoWait, P>,
        mut commit: Commit<'_>,
    ) -> Result<Committed, Abort> {
        if state.writes.is_empty() {
            return Self::end_read_only(engine, state).map(Committed::read_only);
        }
        // The rows of the write set were locked by the writes.
        sums::enter(engine, state);
        state.observe(&engine.protocol, true);
        for write in state.writes.iter_mut() {
            write.base = word::tid(write.record.word.load(Ordering::Relaxed));
        }
        let tid = steps::next_tid(engine, state)?;
        let command = steps::as_command(engine, state, &commit);

        // Rows are locked, so only gaps can fail validation. A command that saw gaps reserves its
        // frame before validation, as under Silo.
        let readers = command || P::TRACKS_READERS;
        let early = readers && state.has_seen_gaps();
        if !early && !state.gaps_are_current() {
            return Err(Abort::Conflict);
        }
        let reserved = steps::append(self, engine, state, &mut commit, tid, command);
        if readers {
            steps::publish_reads(engine, state);
        }
        // Gaps are unchanged in the epoch of the version, too.
        let is_late = (early || reserved.is_in_later_epoch(tid)) && !state.gaps_are_current();
        if is_late || reserved.is_divided(tid, || engine.snapshots.closed()) {
            reserved.void();
            return Err(Abort::Conflict);
        }
        let placed = reserved.fill(tid);

        // Install and publish; all locks are released together at the end, in any order.
        steps::install(engine, state, placed.tid, steps::already_locked, |record, version| {
            let lock = record.lock.load(Ordering::Relaxed);
            debug_assert_eq!(lock, WRITER, "a row takes its stamp before it is released");
            record.word.store(version, Ordering::Release)
        });
        sums::finish(engine, state);
        Ok(steps::committed(engine, state, placed))
    }

    fn abandon<'s>(
        &self,
        engine: &Engine<P>,
        state: &mut TxnState<'s, NoWait, P>,
    ) -> Result<Needs, Abort> {
        Self::end_read_only(engine, state)
    }

    fn release(&self, state: &mut TxnState<'_, NoWait, P>) {
        for HeldLock { record, writer, .. } in state.held.drain(..) {
            if writer {
                record.lock.store(0, Ordering::Release);
            } else {
                record.lock.fetch_sub(1, Ordering::Release);
            }
        }
    }
}
