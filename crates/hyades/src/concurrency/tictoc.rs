//! TicToc (Yu, Pavlo, Sanchez, Devadas: "TicToc: Time Traveling Optimistic Concurrency Control",
//! SIGMOD 2016), with the logging of Taurus, algorithm 6, as corrected in docs/protocols/taurus.md,
//! E4. Steps are those of the paper's algorithms 1 to 4.
//!
//! A transaction commits at a timestamp at which all versions that it read are valid and none that
//! it writes is yet: it is computed from the rows' timestamps ([`super::timestamps`]), not drawn.
//! So a transaction commits *late* if a row that it read was overwritten meanwhile, provided that
//! the version is known to have been valid at its timestamp. It then precedes in the serial order
//! what has committed before it: histories are serializable, and agree with the order of each
//! session, but not with real time between sessions.
//!
//! Three rules keep the rest of the engine sound (docs/protocols/tictoc.md, C5 to C11, C20 and
//! C21):
//!
//! - **Late transactions log data.** The position of such a transaction in the log is behind those
//!   of the transactions that it precedes, and these know nothing of it; replayed as a command it
//!   would read what they wrote. A transaction also counts as late if another one holds a row that
//!   it has read, since that one may have folded the row's stamps already.
//! - **Late only in the epoch it began in.** Checkpoints and snapshots are prefixes by epoch. What
//!   overwrites a row that the transaction has read commits in the epoch of that read or a later
//!   one; so this transaction may not belong to a later epoch, nor have read from one.
//! - **Stamps are folded when a row is read**, not at commit: later they may be those of another
//!   version, or half-written.

use super::optimistic::{self, PATIENCE, stable_word};
use super::state::{ReadRow, TxnState};
use super::steps::{self, Commit, Committed, Valid};
use super::timestamps::{MAX_TIMESTAMP, RowStamp, Timestamped};
use super::{Commits, ConcurrencyControl, VisibleRow};
use crate::engine::Engine;
use crate::error::Abort;
use crate::logging::{LoggingProtocol, Needs};
use crate::storage::record::{Record, word};
use crate::storage::tid::Tid;
use hyades_platform::broken;
use hyades_platform::epoch::EpochNumber;
use std::sync::atomic::{Ordering, fence};

pub(crate) struct TicToc;

impl TicToc {
    /// The timestamp at which the transaction commits (algorithm 2, step 2). The write set is
    /// locked.
    fn timestamp<P: LoggingProtocol>(state: &TxnState<'_, TicToc, Timestamped<P>>) -> u64 {
        state.stamp.at_least.min(MAX_TIMESTAMP)
    }

    /// Validates the reads at timestamp `ts` (algorithm 2, step 3). `epoch` is called for the epoch
    /// of a transaction that is late. `None`: there is a conflict.
    ///
    /// A reader raises `rts` before it looks whether the row is locked, and a writer loads it after
    /// it has locked: so what overwrites a row that is found unlocked here has a later timestamp.
    /// Gaps are not valid in the past: an insertion is visible at once.
    fn validate<P: LoggingProtocol>(
        state: &TxnState<'_, TicToc, Timestamped<P>>,
        ts: u64,
        epoch: impl Fn() -> EpochNumber,
    ) -> Option<Valid> {
        let mut valid = Valid::Now;
        let is_seen = |read: &ReadRow<'_, _>| read.record.word.load(Ordering::SeqCst) == read.seen;
        debug_assert_eq!(state.reads.len(), state.stamp.until.len(), "each read has its interval");
        for (read, &until) in state.reads.iter().zip(&state.stamp.until) {
            if read.overwritten {
                let now = read.record.word.load(Ordering::SeqCst);
                if now != read.seen | word::LOCKED {
                    return None;
                }
                continue;
            }
            let mut is_current = is_seen(read);
            if is_current && until < ts {
                read.record.stamp.valid.raise(ts);
                is_current = is_seen(read);
            }
            if !is_current {
                // At the highest timestamp, times before and after an overwriting are the same.
                if until < ts || ts == MAX_TIMESTAMP {
                    return None;
                }
                valid = Valid::Late;
            }
        }
        for gap in &state.gaps {
            if !broken!(GapsWithoutTimestamps) {
                gap.stamp().valid.raise(ts);
            }
        }
        let is_sound = state.gaps_are_current()
            && (valid == Valid::Now || epoch() <= state.stamp.began || broken!(LateAcrossEpochs));
        is_sound.then_some(valid)
    }

    /// Whether it is late by now. It is then logged as data, provided that it is valid.
    fn is_late<P: LoggingProtocol>(state: &TxnState<'_, TicToc, Timestamped<P>>) -> bool {
        let is_changed = |read: &ReadRow<'_, _>| {
            !read.overwritten && read.record.word.load(Ordering::Relaxed) != read.seen
        };
        state.reads.iter().any(is_changed)
    }

    fn end_read_only<P: LoggingProtocol>(
        engine: &Engine<Timestamped<P>>,
        state: &mut TxnState<'_, TicToc, Timestamped<P>>,
    ) -> Result<Needs, Abort> {
        let ts = Self::timestamp(state);
        // As if it belonged to the epoch of the newest version that it read. If it has seen a gap,
        // or a row without a version, it is not known which other row had the key, and until when.
        let epoch = || {
            let is_new = |read: &ReadRow<'_, _>| word::tid(read.seen) == Tid::NONE;
            match state.gaps.is_empty() && !state.reads.iter().any(is_new) {
                true => state.max_tid.epoch(),
                false => engine.epoch.current(),
            }
        };
        let valid = Self::validate(state, ts, epoch);
        let needs = steps::end_read_only(engine, state, valid.is_some())?;
        state.stamp.last = ts;
        Ok(needs)
    }
}

impl<P: LoggingProtocol> ConcurrencyControl<Timestamped<P>> for TicToc {
    type Txn<'s> = ();
    // Locked until the record has inherited the stamp of its gap.
    const INSERTED_WORD: u64 = word::ABSENT | word::LOCKED;

    /// Algorithm 1.
    #[inline]
    fn read<'s, T>(
        engine: &Engine<Timestamped<P>>,
        state: &mut TxnState<'s, TicToc, Timestamped<P>>,
        table: u32,
        record: &'s Record<RowStamp<P>>,
        mut copy: impl FnMut() -> T,
    ) -> Result<VisibleRow<'s, T>, Abort> {
        if state.stamp.began == EpochNumber::default() {
            state.stamp.began = engine.epoch.current();
        }
        for _ in 0..PATIENCE {
            // A locked row is waited for: so what overwrites this version has not yet read the
            // epoch.
            let seen = stable_word(record)?;
            let until = engine.protocol.observe_version(&record.stamp, state.stamp);
            let copied = if seen & word::ABSENT == 0 {
                VisibleRow::There(copy())
            } else {
                VisibleRow::Absent
            };
            // Orders the copy, and what was read of the stamp, before the second load.
            fence(Ordering::Acquire);
            // SeqCst: the next transaction that locks the row sees the timestamp in `until`.
            if record.word.load(Ordering::SeqCst) == seen {
                // Read, then written: the same version is added to the read set once.
                let last = state.reads.last();
                if last.is_none_or(|last| !std::ptr::eq(last.record, record) || last.seen != seen) {
                    state.reads.push(ReadRow { record, table, seen, overwritten: false });
                    state.stamp.until.push(until);
                    state.max_tid = state.max_tid.max(word::tid(seen));
                }
                return Ok(copied);
            }
        }
        Err(Abort::Conflict)
    }

    #[inline]
    fn intend<'s>(
        engine: &Engine<Timestamped<P>>,
        state: &mut TxnState<'s, TicToc, Timestamped<P>>,
        table: u32,
        record: &'s Record<RowStamp<P>>,
    ) -> Result<bool, Abort> {
        let seen = Self::read(engine, state, table, record, || ())?;
        Ok(matches!(seen, VisibleRow::There(())))
    }

    /// Does nothing: commit locks the row and folds its stamp.
    fn intend_blindly<'s>(
        _: &Engine<Timestamped<P>>,
        _: &mut TxnState<'s, TicToc, Timestamped<P>>,
        _: u32,
        _: &'s Record<RowStamp<P>>,
    ) -> Result<(), Abort> {
        Ok(())
    }

    fn inserted<'s>(
        state: &mut TxnState<'s, TicToc, Timestamped<P>>,
        table: u32,
        record: &'s Record<RowStamp<P>>,
    ) {
        record.word.store(word::ABSENT, Ordering::Release);
        state.reads.push(ReadRow { record, table, seen: word::ABSENT, overwritten: false });
        // Valid when its gap is, which is validated as well. Should the row get a version by then,
        // that is a conflict: no timestamp is as low as this.
        state.stamp.until.push(0);
    }

    fn is_current(state: &TxnState<'_, TicToc, Timestamped<P>>) -> bool {
        let is_valid = |(read, until): (&ReadRow<'_, _>, &u64)| {
            let now = read.record.word.load(Ordering::SeqCst);
            now == read.seen || state.stamp.at_least <= *until
        };
        state.reads.iter().zip(&state.stamp.until).all(is_valid) && state.gaps_are_current()
    }
}

impl<P: LoggingProtocol> Commits<Timestamped<P>> for TicToc {
    /// Algorithms 2 to 4.
    fn commit<'s>(
        engine: &Engine<Timestamped<P>>,
        state: &mut TxnState<'s, TicToc, Timestamped<P>>,
        mut commit: Commit<'_>,
    ) -> Result<Committed, Abort> {
        const { assert!(!P::TRACKS_READERS, "a late reader leaves no stamp that counts") };
        if state.writes.is_empty() {
            return Self::end_read_only(engine, state).map(Committed::read_only);
        }
        // Steps 1 and 2.
        optimistic::lock(engine, state)?;
        state.mark_overwritten();
        let ts = Self::timestamp(state);
        let tid = steps::next_tid(engine, state);
        let may_be_command = !Self::is_late(state) || broken!(LateCommands);
        let command = may_be_command && steps::as_command(engine, state, &commit);

        // Step 3.
        let valid = |state: &TxnState<'_, TicToc, _>| Self::validate(state, ts, || tid.epoch());
        let logged = steps::validate_and_append(engine, state, &mut commit, tid, command, valid);
        let reserved = logged.inspect_err(|_| optimistic::unlock(&state.writes))?;
        let placed = reserved.fill(tid);

        // Algorithm 4.
        steps::install(engine, state, tid, steps::already_locked, |record, version| {
            let old = record.word.load(Ordering::Relaxed);
            debug_assert!(old & word::LOCKED != 0, "a row takes its stamp before it is released");
            record.stamp.valid.set(ts);
            record.unlock(version);
        });
        state.stamp.last = ts;
        Ok(steps::committed(engine, state, placed))
    }

    fn abandon<'s>(
        engine: &Engine<Timestamped<P>>,
        state: &mut TxnState<'s, TicToc, Timestamped<P>>,
    ) -> Result<Needs, Abort> {
        Self::end_read_only(engine, state)
    }

    fn release(_: &Engine<Timestamped<P>>, _: &mut TxnState<'_, TicToc, Timestamped<P>>) {}
}
