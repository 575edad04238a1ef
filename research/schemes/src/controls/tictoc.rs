//! TicToc (Yu, Pavlo, Sanchez, Devadas: "TicToc: Time Traveling Optimistic Concurrency Control",
//! SIGMOD 2016), with the logging of Taurus, algorithm 6, as corrected in docs/protocols/taurus.md,
//! E4. Steps are those of the paper's algorithms 1 to 4.
//!
//! A transaction commits at a timestamp at which all versions read are valid and no version to be
//! written is valid yet. The timestamp is computed from the rows' timestamps
//! ([`super::timestamps`]), not drawn. So a transaction commits *late* if a row read was
//! overwritten meanwhile, provided that the version is known to have been valid at the timestamp. A
//! late transaction precedes, in the serial order, transactions committed before: histories are
//! serializable, and agree with the order of each session, but not with real time between sessions.
//!
//! Three rules keep the rest of the engine sound (docs/protocols/tictoc.md, C5 to C11, C20 and
//! C21):
//!
//! - **Late transactions log data.** The position of a late transaction in the log is behind
//!   later transactions of the serial order, and the later transactions know nothing of the late
//!   transaction; a replay as a command would read their writes. A transaction also counts as late
//!   if another transaction holds a row of the read set, since the other transaction may have
//!   folded the row's stamps already.
//! - **Late only in the epoch of the beginning.** Checkpoints and snapshots are prefixes by
//!   epoch. A transaction that overwrites a row after a read commits in the epoch of the read or a
//!   later epoch; so a late reader may not belong to a later epoch than its beginning, nor have
//!   read from a later epoch.
//! - **Stamps are folded at the read of a row**, not at commit: later the stamps may be
//!   half-written, or belong to another version.

use super::timestamps::{Interval, MAX_TIMESTAMP, RowStamp};
use hyades::plug::optimistic::{PATIENCE, stable_word};
use hyades::plug::steps::{Commit, Committed, Valid};
use hyades::plug::{
    Beginning, Commits, ConcurrencyControl, ControlSettings, Engine, LockBit, LoggingProtocol,
    Needs, ReadRow, Record, Tid, TxnState, VisibleRow, optimistic, steps, word,
};
use hyades::{Abort, Error};
use hyades_platform::broken;
use hyades_platform::epoch::EpochNumber;
use std::sync::atomic::{Ordering, fence};

pub struct TicToc;

/// The control's state of a session.
#[derive(Default)]
pub struct TicTocSession {
    /// The timestamp of the session's last transaction.
    last: u64,
    /// A buffer for [`TicTocTxn::until`].
    until: Vec<u64>,
}

/// The control's part of a running transaction.
pub struct TicTocTxn<'s> {
    /// The lowest possible commit timestamp, as far as is known: not below the session's last
    /// commit, or the version of a row read; above the readers of the overwritten rows.
    at_least: u64,
    /// For each row in the read set, the end of the version's validity, as read.
    until: &'s mut Vec<u64>,
    /// The current epoch before the first read of a row; 0 until then.
    began: EpochNumber,
    /// The timestamp of the session's last transaction.
    last: &'s mut u64,
}

impl TicToc {
    /// The timestamp at which the transaction commits (algorithm 2, step 2). The write set is
    /// locked.
    fn timestamp<P: LoggingProtocol>(state: &TxnState<'_, TicToc, P>) -> u64 {
        state.control.at_least.min(MAX_TIMESTAMP)
    }

    /// Validates the reads at timestamp `ts` (algorithm 2, step 3). `epoch` is called for the epoch
    /// of a late transaction. `None`: there is a conflict.
    ///
    /// A reader raises `rts` before looking at the row's lock, and a writer loads `rts` after
    /// locking: so the overwriting of a row found unlocked here has a later timestamp. Gaps are not
    /// valid in the past: an insertion is visible at once.
    fn validate<P: LoggingProtocol>(
        state: &TxnState<'_, TicToc, P>,
        ts: u64,
        epoch: impl Fn() -> EpochNumber,
    ) -> Option<Valid> {
        let mut valid = Valid::Now;
        let is_seen = |read: &ReadRow<'_, _>| read.record.word.load(Ordering::SeqCst) == read.seen;
        debug_assert_eq!(
            state.reads.len(),
            state.control.until.len(),
            "each read has its interval"
        );
        for (read, &until) in state.reads.iter().zip(&*state.control.until) {
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
            && (valid == Valid::Now || epoch() <= state.control.began || broken!(LateAcrossEpochs));
        is_sound.then_some(valid)
    }

    /// Whether the transaction is late by now. A late transaction is logged as data, if valid.
    fn is_late<P: LoggingProtocol>(state: &TxnState<'_, TicToc, P>) -> bool {
        let is_changed = |read: &ReadRow<'_, _>| {
            !read.overwritten && read.record.word.load(Ordering::Relaxed) != read.seen
        };
        state.reads.iter().any(is_changed)
    }

    fn end_read_only<P: LoggingProtocol>(
        engine: &Engine<P, RowStamp<P>>,
        state: &mut TxnState<'_, TicToc, P>,
    ) -> Result<Needs, Abort> {
        let ts = Self::timestamp(state);
        // As if the transaction belonged to the epoch of the newest version read. After a gap, or a
        // row without a version, the other row under the key, and the end of its validity, are not
        // known.
        let epoch = || {
            let is_new = |read: &ReadRow<'_, _>| word::tid(read.seen) == Tid::NONE;
            match state.gaps.is_empty() && !state.reads.iter().any(is_new) {
                true => state.max_tid.epoch(),
                false => engine.epoch.current(),
            }
        };
        let valid = Self::validate(state, ts, epoch);
        let needs = steps::end_read_only(engine, state, valid.is_some())?;
        *state.control.last = ts;
        Ok(needs)
    }
}

impl<P: LoggingProtocol> ConcurrencyControl<P> for TicToc {
    type Row = RowStamp<P>;
    type Txn<'s> = TicTocTxn<'s>;
    type Lock = LockBit;
    // Locked until the record has inherited the stamp of its gap.
    const INSERTED_WORD: u64 = word::ABSENT | word::LOCKED;

    #[inline(always)]
    fn stamp(row: &RowStamp<P>) -> &P::RowStamp {
        &row.stamp
    }

    #[inline(always)]
    fn observe_read(row: &RowStamp<P>, txn: &mut TicTocTxn<'_>) {
        txn.at_least = txn.at_least.max(row.valid.load().wts);
    }

    #[inline(always)]
    fn observe_write(row: &RowStamp<P>, txn: &mut TicTocTxn<'_>) {
        txn.at_least = txn.at_least.max(row.valid.load().rts + 1);
    }

    #[inline(always)]
    fn inherit(to: &RowStamp<P>, from: &RowStamp<P>) {
        if !broken!(GapsWithoutTimestamps) {
            to.valid.inherit(&from.valid);
        }
    }

    /// Algorithm 1.
    #[inline]
    fn read<'s, T>(
        &self,
        engine: &Engine<P, RowStamp<P>>,
        state: &mut TxnState<'s, TicToc, P>,
        table: u32,
        record: &'s Record<RowStamp<P>>,
        mut copy: impl FnMut() -> T,
    ) -> Result<VisibleRow<'s, T>, Abort> {
        if state.control.began == EpochNumber::default() {
            state.control.began = engine.epoch.current();
        }
        for _ in 0..PATIENCE {
            // The read waits for a locked row: so a transaction that overwrites this version has
            // not yet read the epoch.
            let seen = stable_word(record)?;
            let Interval { wts, rts: until } = record.stamp.valid.load();
            state.control.at_least = state.control.at_least.max(wts);
            engine.protocol.observe_read(&record.stamp.stamp, state.stamp);
            let copied = if seen & word::ABSENT == 0 {
                VisibleRow::There(copy())
            } else {
                VisibleRow::Absent
            };
            // Orders the copy, and the reads of the stamp, before the second load.
            fence(Ordering::Acquire);
            // SeqCst: the next transaction that locks the row sees the timestamp in `until`.
            if record.word.load(Ordering::SeqCst) == seen {
                // Read, then written: the same version is added to the read set once.
                let last = state.reads.last();
                if last.is_none_or(|last| !std::ptr::eq(last.record, record) || last.seen != seen) {
                    state.reads.push(ReadRow { record, table, seen, overwritten: false });
                    state.control.until.push(until);
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
        engine: &Engine<P, RowStamp<P>>,
        state: &mut TxnState<'s, TicToc, P>,
        table: u32,
        record: &'s Record<RowStamp<P>>,
    ) -> Result<bool, Abort> {
        let seen = self.read(engine, state, table, record, || ())?;
        Ok(matches!(seen, VisibleRow::There(())))
    }

    /// Does nothing: commit locks the row and folds its stamp.
    fn intend_blindly<'s>(
        &self,
        _: &Engine<P, RowStamp<P>>,
        _: &mut TxnState<'s, TicToc, P>,
        _: u32,
        _: &'s Record<RowStamp<P>>,
    ) -> Result<(), Abort> {
        Ok(())
    }

    fn inserted<'s>(
        state: &mut TxnState<'s, TicToc, P>,
        table: u32,
        record: &'s Record<RowStamp<P>>,
    ) {
        record.word.store(word::ABSENT, Ordering::Release);
        state.reads.push(ReadRow { record, table, seen: word::ABSENT, overwritten: false });
        // Valid together with the gap, which is validated as well. A version of the row by then is
        // a conflict: no timestamp is as low as 0.
        state.control.until.push(0);
    }

    fn is_current(state: &TxnState<'_, TicToc, P>) -> bool {
        let is_valid = |(read, until): (&ReadRow<'_, _>, &u64)| {
            let now = read.record.word.load(Ordering::SeqCst);
            now == read.seen || state.control.at_least <= *until
        };
        state.reads.iter().zip(&*state.control.until).all(is_valid) && state.gaps_are_current()
    }
}

impl<P: LoggingProtocol> Commits<P> for TicToc {
    type Session = TicTocSession;

    fn new(_: &ControlSettings) -> Self {
        TicToc
    }

    fn add_session(&self) -> Result<TicTocSession, Error> {
        Ok(TicTocSession::default())
    }

    fn begin<'s>(
        &self,
        _: &Engine<P, RowStamp<P>>,
        session: &'s mut TicTocSession,
        _: Beginning,
    ) -> TicTocTxn<'s> {
        let TicTocSession { last, until } = session;
        until.clear();
        TicTocTxn { at_least: *last, until, began: EpochNumber::default(), last }
    }

    /// Algorithms 2 to 4.
    fn commit<'s>(
        &self,
        engine: &Engine<P, RowStamp<P>>,
        state: &mut TxnState<'s, TicToc, P>,
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
        let tid = tid.inspect_err(|_| optimistic::unlock(&state.writes))?;
        let may_be_command = !Self::is_late(state) || broken!(LateCommands);
        let command = may_be_command && steps::as_command(engine, state, &commit);

        // Step 3.
        let valid = |state: &TxnState<'_, TicToc, _>| Self::validate(state, ts, || tid.epoch());
        let logged =
            steps::validate_and_append(self, engine, state, &mut commit, (tid, command), valid);
        let reserved = logged.inspect_err(|_| optimistic::unlock(&state.writes))?;
        let placed = reserved.fill(tid);

        // Algorithm 4.
        steps::install(engine, state, tid, steps::already_locked, |record, version| {
            let old = record.word.load(Ordering::Relaxed);
            debug_assert!(old & word::LOCKED != 0, "a row takes its stamp before it is released");
            record.stamp.valid.set(ts);
            record.unlock(version);
        });
        *state.control.last = ts;
        Ok(steps::committed(engine, state, placed))
    }

    fn abandon<'s>(
        &self,
        engine: &Engine<P, RowStamp<P>>,
        state: &mut TxnState<'s, TicToc, P>,
    ) -> Result<Needs, Abort> {
        Self::end_read_only(engine, state)
    }

    fn release(&self, _: &mut TxnState<'_, TicToc, P>) {}
}
