//! Optimistic concurrency control in the manner of Silo (Tu, Zheng, Kohler, Liskov, Madden: "Speedy
//! Transactions in Multicore In-Memory Databases", SOSP 2013), with the logging of Taurus,
//! algorithm 6, as corrected in docs/protocols/taurus.md, E4. Phases are Silo's (section 4.4).

use super::optimistic::{self, LockBit, PATIENCE, stable_word};
use super::state::{ReadRow, TxnState};
use super::steps::{self, Commit, Committed};
use super::{Beginning, Commits, ConcurrencyControl, ControlSettings, VisibleRow, sums};
use crate::engine::Engine;
use crate::error::{Abort, Error};
use crate::logging::{LoggingProtocol, Needs};
use crate::storage::record::{Record, word};
use hyades_platform::broken;
use std::sync::atomic::{Ordering, fence};

pub struct Silo;

impl Silo {
    /// Whether every row read still has its version and every gap is unchanged. Rows also
    /// overwritten by the transaction are locked by the transaction.
    fn validate<P: LoggingProtocol>(state: &TxnState<'_, Silo, P>) -> bool {
        let unchanged = state.reads.iter().all(|read| {
            let now = read.record.word.load(Ordering::SeqCst);
            now == read.seen || (read.overwritten && now == read.seen | word::LOCKED)
        });
        (unchanged || broken!(SkipValidation)) && (state.gaps_are_current() || broken!(SkipGaps))
    }

    fn end_read_only<P: LoggingProtocol>(
        engine: &Engine<P>,
        state: &mut TxnState<'_, Silo, P>,
    ) -> Result<Needs, Abort> {
        sums::enter_read_only(engine, state);
        state.observe(&engine.protocol, false);
        let valid = Self::validate(state);
        if valid {
            sums::finish(engine, state);
        }
        steps::end_read_only(engine, state, valid)
    }
}

impl<P: LoggingProtocol> ConcurrencyControl<P> for Silo {
    type Row = P::RowStamp;
    type Txn<'s> = ();
    type Lock = LockBit;
    // Locked until the record has inherited the stamp of its gap.
    const INSERTED_WORD: u64 = word::ABSENT | word::LOCKED;
    const SUMS: bool = true;

    #[inline(always)]
    fn stamp(row: &P::RowStamp) -> &P::RowStamp {
        row
    }

    #[inline]
    fn read<'s, T>(
        &self,
        engine: &Engine<P>,
        state: &mut TxnState<'s, Silo, P>,
        table: u32,
        record: &'s Record<P::RowStamp>,
        mut copy: impl FnMut() -> T,
    ) -> Result<VisibleRow<'s, T>, Abort> {
        for _ in 0..PATIENCE {
            let seen = stable_word(record)?;
            let copied = if seen & word::ABSENT == 0 {
                VisibleRow::There(copy())
            } else {
                VisibleRow::Absent
            };
            // Orders the copy before the second load of the version word.
            fence(Ordering::Acquire);
            if record.word.load(Ordering::Relaxed) == seen {
                // Read, then written: the same version is added to the read set once.
                let last = state.reads.last();
                if last.is_none_or(|last| !std::ptr::eq(last.record, record) || last.seen != seen) {
                    engine.protocol.prefetch(&record.stamp);
                    state.reads.push(ReadRow { record, table, seen, overwritten: false });
                    state.max_tid = state.max_tid.max(word::tid(seen));
                }
                return Ok(copied);
            }
        }
        Err(Abort::Conflict)
    }

    #[inline]
    fn intend<'s>(
        &self,
        engine: &Engine<P>,
        state: &mut TxnState<'s, Silo, P>,
        table: u32,
        record: &'s Record<P::RowStamp>,
    ) -> Result<bool, Abort> {
        let seen = self.read(engine, state, table, record, || ())?;
        Ok(matches!(seen, VisibleRow::There(())))
    }

    /// Does nothing: commit locks the row and folds its stamp.
    fn intend_blindly<'s>(
        &self,
        _: &Engine<P>,
        _: &mut TxnState<'s, Silo, P>,
        _: u32,
        _: &'s Record<P::RowStamp>,
    ) -> Result<(), Abort> {
        Ok(())
    }

    fn inserted<'s>(
        state: &mut TxnState<'s, Silo, P>,
        table: u32,
        record: &'s Record<P::RowStamp>,
    ) {
        record.word.store(word::ABSENT, Ordering::Release);
        state.reads.push(ReadRow { record, table, seen: word::ABSENT, overwritten: false });
    }

    fn is_current(state: &TxnState<'_, Silo, P>) -> bool {
        Silo::validate(state)
    }
}

impl<P: LoggingProtocol> Commits<P> for Silo {
    type Session = ();

    fn new(_: &ControlSettings) -> Self {
        Silo
    }

    fn add_session(&self) -> Result<(), Error> {
        Ok(())
    }

    fn begin(&self, _: &Engine<P>, _: &mut (), _: Beginning) {}

    fn commit<'s>(
        &self,
        engine: &Engine<P>,
        state: &mut TxnState<'s, Silo, P>,
        mut commit: Commit<'_>,
    ) -> Result<Committed, Abort> {
        if state.writes.is_empty() {
            return Self::end_read_only(engine, state).map(Committed::read_only);
        }
        // Phase 1. Silo sorts the rows first, because it waits for locks. Here each wait is
        // bounded, so there is no deadlock to avoid.
        optimistic::lock(engine, state)?;
        sums::enter(engine, state);
        state.observe(&engine.protocol, true);
        let tid = steps::next_tid(engine, state);
        let tid = tid.inspect_err(|_| optimistic::unlock(&state.writes))?;
        let command = steps::as_command(engine, state, &commit);

        // Phase 2. A command reserves its frame and raises the read stamps of its reads before
        // validation (E4, ii). A data record does so only if the protocol tracks its readers.
        let reserved = if command || P::TRACKS_READERS {
            let reserved = steps::append(self, engine, state, &mut commit, tid, command);
            steps::publish_reads(engine, state);
            if !Self::validate(state) {
                reserved.void();
                optimistic::unlock(&state.writes);
                return Err(Abort::Conflict);
            }
            reserved
        } else {
            if !Self::validate(state) {
                optimistic::unlock(&state.writes);
                return Err(Abort::Conflict);
            }
            let reserved = steps::append(self, engine, state, &mut commit, tid, false);
            // The reads are valid in the epoch of the version, too.
            let is_late = reserved.is_in_later_epoch(tid) && !Self::validate(state);
            if is_late || reserved.is_divided(tid, || engine.snapshots.closed()) {
                reserved.void();
                optimistic::unlock(&state.writes);
                return Err(Abort::Conflict);
            }
            reserved
        };
        let placed = reserved.fill(tid);

        // Phase 3. Install, publish, release.
        steps::install(engine, state, placed.tid, steps::already_locked, |record, version| {
            let old = record.word.load(Ordering::Relaxed);
            debug_assert!(old & word::LOCKED != 0, "a row takes its stamp before it is released");
            record.word.store(version, Ordering::Release)
        });
        sums::finish(engine, state);
        Ok(steps::committed(engine, state, placed))
    }

    fn abandon<'s>(
        &self,
        engine: &Engine<P>,
        state: &mut TxnState<'s, Silo, P>,
    ) -> Result<Needs, Abort> {
        Self::end_read_only(engine, state)
    }

    fn release(&self, _: &mut TxnState<'_, Silo, P>) {}
}
