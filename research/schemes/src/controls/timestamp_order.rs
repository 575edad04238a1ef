//! Multi-version timestamp order, as in Deuteronomy (Levandoski, Lomet, Sengupta, Stutsman, Wang:
//! "High Performance Transactions in Deuteronomy", CIDR 2015, sections 2.1 and 2.2), on rows with
//! the newest version in place and older versions kept while a transaction may read them
//! in memory.
//!
//! A transaction draws its timestamp, the TID, at the beginning. The transaction reads as of the
//! timestamp, and commits at the timestamp: nothing is validated. The order of timestamps is a
//! serial order, and agrees with real time. Each row and each gap keeps the timestamp of its last
//! reader ([`super::timestamps`]), so that no earlier transaction can write a version which the
//! reader should have seen; only the newest version needs the timestamp, since the newest version
//! protects the older versions (section 2.2).
//!
//! Two orders of steps, all SeqCst, make a reader and a writer of a row find each other:
//!
//! - A reader raises the last reader of the row, then looks for a mark of an earlier transaction:
//!   the reader waits for the earlier transaction for a moment. For a gap the reader raises the
//!   last reader, then looks whether the gap has changed.
//! - A writer marks the row, and at commit loads the last reader of the row: a last reader later
//!   than the writer is a conflict. A row that enters a gap inherits the last reader of the gap
//!   after the gap has changed.
//!
//! Four rules keep the rest of the engine sound (docs/protocols/timestamp-order.md):
//!
//! - **No commit in a closed epoch.** Checkpoints and snapshots are prefixes by epoch, and hold
//!   all transactions that have begun their commit by the closing of an epoch. A transaction with a
//!   timestamp of the closed epoch that has not begun its commit conflicts, and draws a later
//!   timestamp.
//! - **Late commands.** A transaction may follow, in the log, a later transaction that overwrites
//!   its reads. Such a transaction's command is replayed on several versions, or the transaction
//!   logs data, as under [`hyades::plug::Hekaton`].
//! - **An ended transaction does not commit.** A transaction whose versions are no longer kept
//!   may have missed rows that are gone since.
//! - **Last readers are not lost.** A tombstone leaves its last reader to the gap around the
//!   tombstone, and a row that is marked but not written has been read.

use super::timestamps::RowStamp;
use hyades::plug::marked::writer_of;
use hyades::plug::optimistic::PATIENCE;
use hyades::plug::steps::{Commit, Committed, Valid};
use hyades::plug::{
    ActiveTransactions, Beginning, CommandReplay, Commits, ConcurrencyControl, ControlSettings,
    Engine, Gap, LockWord, LoggingProtocol, MarksRows, Needs, Preparing, ReadRow, ReadTime, Record,
    StatedVersions, Tid, TxnState, VisibleRow, marked, steps, word,
};
use hyades::{Abort, Error};
use hyades_platform::broken;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub struct TimestampOrder {
    active: Arc<ActiveTransactions>,
    /// Commands are replayed on several versions of rows, as of their own timestamps.
    replays_versions: bool,
    /// Commands are replayed on one version of each row, in the order of their records.
    orders_commands: bool,
}

/// The number of attempts at a row marked by an earlier transaction, before failure. The
/// transaction yields after the first [`PATIENCE`], but few times: versions that a waiting
/// transaction may read are not freed.
const LOOKS: u32 = PATIENCE + 8;

impl TimestampOrder {
    /// Whether an earlier transaction has marked the row, and has not written the row yet.
    #[inline]
    fn is_before<P: LoggingProtocol>(
        &self,
        state: &TxnState<'_, TimestampOrder, P>,
        record: &Record<RowStamp<P>>,
    ) -> bool {
        match writer_of(self, state, record) {
            Preparing::At(at) if at < state.control.as_of => {
                word::tid(record.word.load(Ordering::SeqCst)) < at
            }
            // A transaction drawing its timestamp has marked no row: the slot's previous
            // transaction had.
            _ => false,
        }
    }

    /// Marks a row as read. False if an earlier transaction is about to write the row.
    #[inline]
    fn mark_read<P: LoggingProtocol>(
        &self,
        state: &TxnState<'_, TimestampOrder, P>,
        record: &Record<RowStamp<P>>,
    ) -> bool {
        // A reader that only waits leaves no mark, on which the earlier transaction would fail.
        if self.is_before(state, record) {
            return false;
        }
        let looks_first = broken!(LookBeforeReadMark);
        if looks_first {
            std::thread::yield_now();
        }
        // A row marked by this transaction is not written by another transaction.
        if record.lock.load(Ordering::Relaxed) != state.control.slot {
            record.stamp.valid.raise_last_read(state.control.as_of);
        }
        looks_first || !self.is_before(state, record)
    }

    /// Whether a row marked by another transaction may soon be free for this transaction.
    #[inline]
    fn may_wait<P: LoggingProtocol>(
        &self,
        state: &TxnState<'_, TimestampOrder, P>,
        record: &Record<RowStamp<P>>,
    ) -> bool {
        let writer = writer_of(self, state, record);
        !matches!(writer, Preparing::At(at) if at > state.control.as_of)
    }

    /// Adds a version to the read set, if commands are replayed on one version of each row.
    #[inline]
    fn remember<'s, P: LoggingProtocol>(
        &self,
        engine: &Engine<P, RowStamp<P>>,
        state: &mut TxnState<'s, TimestampOrder, P>,
        table: u32,
        record: &'s Record<RowStamp<P>>,
        seen: u64,
    ) {
        // The stamp of this version, or of a later version, which is not lower.
        engine.protocol.observe_read(&record.stamp.stamp, state.stamp);
        if self.orders_commands {
            state.reads.push(ReadRow { record, table, seen, overwritten: false });
        }
    }

    /// Whether the log may have, before this transaction, a later transaction that writes a row
    /// that this transaction has read, or would have read: the write is done, or about to be done.
    fn is_late<P: LoggingProtocol>(state: &TxnState<'_, TimestampOrder, P>) -> bool {
        let is_changed = |read: &ReadRow<'_, RowStamp<P>>| {
            let owner = read.record.lock.load(Ordering::SeqCst);
            let is_marked = owner != 0 && owner != state.control.slot;
            is_marked || read.record.word.load(Ordering::SeqCst) != read.seen
        };
        state.reads.iter().filter(|read| !read.overwritten).any(is_changed)
            || !state.gaps_are_current()
    }

    /// Protects the reads of the rows that the transaction has marked and does not write.
    fn protect_unwritten<P: LoggingProtocol>(state: &TxnState<'_, TimestampOrder, P>) {
        if broken!(MarkedWithoutReader) {
            return;
        }
        for held in state.held.iter().filter(|held| !held.overwritten) {
            held.record.stamp.valid.raise_last_read(state.control.as_of);
        }
    }

    fn end_read_only<P: LoggingProtocol>(
        &self,
        engine: &Engine<P, RowStamp<P>>,
        state: &mut TxnState<'_, TimestampOrder, P>,
    ) -> Result<Needs, Abort> {
        state.observe_held(&engine.protocol, false);
        Self::protect_unwritten(state);
        // A row not found in an index may have been there as of the transaction's beginning.
        let valid = !self.active.has_ended(state.control.slot, state.control.as_of);
        steps::end_read_only(engine, state, valid)
    }
}

impl<P: LoggingProtocol> MarksRows<P> for TimestampOrder {
    #[inline(always)]
    fn active(&self) -> &ActiveTransactions {
        &self.active
    }
}

impl<P: LoggingProtocol> ConcurrencyControl<P> for TimestampOrder {
    type Row = RowStamp<P>;
    type Txn<'s> = ReadTime;
    type Lock = LockWord;
    // Locked until the record has inherited the stamp of its gap.
    const INSERTED_WORD: u64 = word::ABSENT | word::LOCKED;

    #[inline(always)]
    fn stamp(row: &RowStamp<P>) -> &P::RowStamp {
        &row.stamp
    }

    #[inline(always)]
    fn observe_write(row: &RowStamp<P>, txn: &mut ReadTime) {
        txn.last_read = txn.last_read.max(row.valid.last_read());
    }

    #[inline(always)]
    fn inherit(to: &RowStamp<P>, from: &RowStamp<P>) {
        if !broken!(GapsWithoutTimestamps) {
            to.valid.raise_last_read(Tid::from_bits(from.valid.last_read()));
        }
    }

    /// Section 2.2: the newest version not later than the transaction, and the time of the read.
    #[inline]
    fn read<'s, T>(
        &self,
        engine: &Engine<P, RowStamp<P>>,
        state: &mut TxnState<'s, TimestampOrder, P>,
        table: u32,
        record: &'s Record<RowStamp<P>>,
        mut copy: impl FnMut() -> T,
    ) -> Result<VisibleRow<'s, T>, Abort> {
        let (versions, arena, guard) = (engine.snapshots.versions(), state.arena, state.guard);
        let as_of = state.control.as_of;
        for look in 0..LOOKS {
            if look >= PATIENCE {
                // The writer may be descheduled.
                std::thread::yield_now();
            }
            if word::tid(record.word.load(Ordering::Acquire)) > as_of {
                let Some((found, version)) = versions.read(record, as_of, arena, guard) else {
                    std::hint::spin_loop();
                    continue;
                };
                // Versions may no longer have been kept for this transaction.
                if self.active.has_ended(state.control.slot, as_of) {
                    return Err(Abort::Conflict);
                }
                self.remember(engine, state, table, record, found);
                return Ok(version.into());
            }
            if !self.mark_read(state, record) {
                std::hint::spin_loop();
                continue;
            }
            // From here on no earlier transaction writes the row.
            let seen = record.word.load(Ordering::SeqCst);
            if seen & word::DEAD != 0 {
                return Err(Abort::Conflict);
            }
            if word::tid(seen) > as_of {
                continue;
            }
            if seen & word::LOCKED == 0 {
                if let Some(copied) = marked::copy_in_place(record, seen, &mut copy) {
                    self.remember(engine, state, table, record, seen);
                    return Ok(copied);
                }
            } else if let Some(kept) = versions.kept(record, seen, arena, guard) {
                // The row is being overwritten at a later timestamp, for which this version was
                // kept.
                self.remember(engine, state, table, record, seen & !word::LOCKED);
                return Ok(kept.into());
            }
            std::hint::spin_loop();
        }
        Err(Abort::Conflict)
    }

    /// Section 2.1: a version is written in the order of timestamps, or not at all. Waits, for a
    /// moment, for an earlier transaction with a mark on the row.
    #[inline]
    fn intend<'s>(
        &self,
        engine: &Engine<P, RowStamp<P>>,
        state: &mut TxnState<'s, TimestampOrder, P>,
        table: u32,
        record: &'s Record<RowStamp<P>>,
    ) -> Result<bool, Abort> {
        let (unmarked, failed) = (Ordering::SeqCst, Ordering::Relaxed);
        let mut looks = 0;
        loop {
            match record.lock.compare_exchange(0, state.control.slot, unmarked, failed) {
                Ok(_) => {
                    state.push_lock(table, record, true);
                    engine.protocol.prefetch(&record.stamp.stamp);
                    break;
                }
                Err(owner) if owner == state.control.slot => break,
                Err(_) if looks < LOOKS && self.may_wait(state, record) => looks += 1,
                Err(_) => return Err(Abort::Conflict),
            }
            if looks >= PATIENCE {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        // Only the transaction with the mark changes the row.
        let seen = record.word.load(Ordering::Acquire);
        let is_newer = word::tid(seen) > state.control.as_of;
        let is_read_later = record.stamp.valid.last_read() > state.control.as_of.bits()
            && !broken!(OverwriteReadLater);
        if is_newer || is_read_later || seen & word::DEAD != 0 {
            return Err(Abort::Conflict);
        }
        debug_assert_eq!(seen & word::LOCKED, 0, "what is marked by this one is not locked");
        Ok(seen & word::ABSENT == 0)
    }

    fn saw_gap<'s>(
        &self,
        engine: &Engine<P, RowStamp<P>>,
        state: &mut TxnState<'s, TimestampOrder, P>,
        gap: Gap<'s, RowStamp<P>>,
    ) -> Result<(), Abort> {
        engine.protocol.observe_read(&gap.stamp().stamp, state.stamp);
        if !broken!(GapsWithoutTimestamps) {
            gap.stamp().valid.raise_last_read(state.control.as_of);
        }
        let is_current = gap.is_current();
        if self.orders_commands {
            state.gaps.push(gap);
        }
        if is_current { Ok(()) } else { Err(Abort::Conflict) }
    }

    fn stated_versions(
        &self,
        engine: &Engine<P, RowStamp<P>>,
        state: &TxnState<'_, Self, P>,
        states_floor: bool,
        command: bool,
    ) -> StatedVersions {
        if !self.replays_versions {
            return StatedVersions::default();
        }
        marked::stated_versions(self, engine, state, (states_floor, command), false)
    }

    fn inserted<'s>(
        state: &mut TxnState<'s, TimestampOrder, P>,
        table: u32,
        record: &'s Record<RowStamp<P>>,
    ) {
        marked::inserted(state, table, record);
    }
}

impl<P: LoggingProtocol> Commits<P> for TimestampOrder {
    /// The session's number among the active transactions.
    type Session = u32;

    fn new(settings: &ControlSettings) -> Self {
        TimestampOrder {
            active: Arc::default(),
            replays_versions: settings.commands == CommandReplay::MayKeepVersions,
            orders_commands: settings.commands == CommandReplay::InOrder,
        }
    }

    fn readers(&self) -> Option<&Arc<ActiveTransactions>> {
        Some(&self.active)
    }

    fn replays_versions(&self) -> bool {
        self.replays_versions
    }

    fn add_session(&self) -> Result<u32, Error> {
        self.active.add()
    }

    fn remove_session(&self, slot: &mut u32) {
        self.active.remove(*slot);
    }

    /// A transaction with a timestamp drawn in the epoch meets a conflict.
    fn before_epoch_closes(&self, let_end: impl FnOnce()) {
        let_end();
    }

    fn begin(
        &self,
        engine: &Engine<P, RowStamp<P>>,
        slot: &mut u32,
        beginning: Beginning,
    ) -> ReadTime {
        engine.end_old_epoch(beginning.was_idle);
        let as_of = self.active.begin_at(*slot, &engine.epoch);
        ReadTime { slot: *slot, as_of, ..ReadTime::default() }
    }

    /// Section 2.1. The rows written are marked, and no later transaction has read them.
    fn commit<'s>(
        &self,
        engine: &Engine<P, RowStamp<P>>,
        state: &mut TxnState<'s, TimestampOrder, P>,
        mut commit: Commit<'_>,
    ) -> Result<Committed, Abort> {
        const { assert!(!P::TRACKS_READERS, "a late reader leaves no stamp that counts") };
        const { assert!(!P::TELLS_BLIND_WRITES, "locks do not say whether their row was read") };
        if state.writes.is_empty() {
            return self.end_read_only(engine, state).map(Committed::read_only);
        }
        let tid = state.control.as_of;
        // The session has entered the current epoch: a later closing of this epoch waits for the
        // session.
        let is_closed = tid.epoch() <= engine.snapshots.closed();
        if is_closed && !broken!(CommitInClosedEpoch) {
            return Err(Abort::Conflict);
        }
        // All timestamps of the current epoch are drawn, and the epoch is at the limit of epochs.
        if !tid.reach(&engine.epoch) {
            return Err(Abort::Conflict);
        }
        // A row missed in an index may be gone since, and was not kept for this transaction.
        let is_ended = self.active.has_ended(state.control.slot, tid);
        if is_ended && !broken!(CommitAfterEnded) {
            return Err(Abort::Conflict);
        }
        for write in state.writes.iter_mut() {
            write.base = word::tid(write.record.word.load(Ordering::Relaxed));
            debug_assert!(write.base < tid, "the versions of a row ascend");
        }
        state.mark_overwritten();
        state.observe_held(&engine.protocol, true);
        Self::protect_unwritten(state);
        // The last readers of the overwritten rows, and of the entered gaps.
        let is_read_later = state.control.last_read > tid.bits();
        if is_read_later && !broken!(OverwriteReadLater) {
            return Err(Abort::Conflict);
        }
        let may_be_command =
            !self.orders_commands || !Self::is_late(state) || broken!(LateCommands);
        let command = may_be_command && steps::as_command(engine, state, &commit);
        let valid = |state: &TxnState<'_, TimestampOrder, _>| {
            let is_late = command && self.orders_commands && Self::is_late(state);
            Some(if is_late { Valid::Late } else { Valid::Now })
        };
        let reserved =
            steps::validate_and_append(self, engine, state, &mut commit, (tid, command), valid)?;
        let placed = reserved.fill(tid);
        marked::install(self, engine, state, tid);
        Ok(steps::committed(engine, state, placed))
    }

    fn abandon<'s>(
        &self,
        engine: &Engine<P, RowStamp<P>>,
        state: &mut TxnState<'s, TimestampOrder, P>,
    ) -> Result<Needs, Abort> {
        self.end_read_only(engine, state)
    }

    fn release(&self, state: &mut TxnState<'_, TimestampOrder, P>) {
        marked::release(self, state);
    }
}
