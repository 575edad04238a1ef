//! Hekaton (Larson, Blanas, Diaconu, Freedman, Patel, Zwilling: "High-Performance Concurrency
//! Control Mechanisms for Main-Memory Databases", PVLDB 5(4), 2011), the optimistic scheme, on rows
//! with the newest version in place and older versions kept while a transaction may read them
//! ([`crate::storage::old_versions`]).
//!
//! A transaction reads as of its beginning timestamp, and marks each row before a write, if the
//! newest version of the row is not later than the beginning and no other transaction has marked
//! the row: the first writer wins. At commit the transaction draws a timestamp, its TID, and is
//! serializable if its reads would see the same versions then ([`crate::engine::active`] has the
//! order of steps). The order of timestamps is a serial order, and agrees with real time. A
//! transaction without writes is placed at its beginning, and needs no validation.
//!
//! Two rules keep the rest of the engine sound (docs/protocols/hekaton.md, C1 to C5):
//!
//! - **Late transactions log data**, or their commands are replayed on several versions. A
//!   transaction is late if a row of its reads was overwritten, or is about to be overwritten by a
//!   transaction preparing its commit, at a later timestamp than the reader's. The log may have the
//!   overwriting transaction first, and a command reads the version in place at replay, unless
//!   replay keeps versions: with vectors in the log replay does, and commands read as of a
//!   timestamp (Taurus 2020, section 4.4).
//! - **Readable versions stay.** Tombstones, stale index entries and older versions stay until no
//!   transaction reads as of an earlier timestamp.
//!
//! Under *snapshot isolation* ([`crate::Isolation::Snapshot`]) a transaction may commit although
//! its reads were overwritten: the transaction is then late, whatever the timestamp. A transaction
//! that has looked for a key in a unique secondary index is validated all the same: uniqueness is
//! of the present.
//!
//! A reader waits, for a moment, for a transaction preparing its commit. With
//! [`crate::Builder::speculative_reads`] the reader reads the versions to be committed, as in the
//! paper, and depends on the commit ([`Hekaton::settle`]; docs/protocols/hekaton.md, C6).

mod speculation;

use super::locks::{LockWord, MarksRows, ReadTime};
use super::optimistic::PATIENCE;
use super::state::{ReadRow, TxnState};
use super::steps::{self, Commit, Committed, Valid};
use super::{
    Beginning, CommandReplay, Commits, ConcurrencyControl, ControlSettings, VisibleRow, locks,
};
use crate::engine::Engine;
use crate::engine::active::{ActiveTransactions, Preparing};
use crate::error::{Abort, Error};
use crate::logging::draft::StatedVersions;
use crate::logging::{LoggingProtocol, Needs};
use crate::storage::record::{Record, word};
use crate::storage::tid::Tid;
use hyades_platform::broken;
use hyades_platform::mutation::{self, Mutation};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub struct Hekaton {
    active: Arc<ActiveTransactions>,
    /// Transactions read a snapshot and need not be serializable.
    snapshot_isolation: bool,
    /// Transactions read what others are about to commit.
    speculates: bool,
    /// Commands are replayed on several versions of rows, as of the timestamps of their reads.
    replays_versions: bool,
}

/// The number of a transaction's attempts at a row under a write, before the transaction fails. The
/// transaction yields after the first [`PATIENCE`].
const LOOKS: u32 = 2 * PATIENCE;

impl Hekaton {
    /// Adds a version to the read set.
    #[inline]
    fn remember<'s, P: LoggingProtocol>(
        engine: &Engine<P>,
        state: &mut TxnState<'s, Hekaton, P>,
        table: u32,
        record: &'s Record<P::RowStamp>,
        seen: u64,
    ) {
        // The stamp of this version, or of a later version, which is not lower.
        engine.protocol.observe_read(&record.stamp, state.stamp);
        // Read, then written: the same version is added once.
        if state.reads.last().is_none_or(|last| !std::ptr::eq(last.record, record)) {
            state.reads.push(ReadRow { record, table, seen, overwritten: false });
        }
    }

    /// Whether a read at `tid` would still see the version read. `None` if not.
    #[inline]
    fn check<P: LoggingProtocol>(
        &self,
        engine: &Engine<P>,
        state: &TxnState<'_, Hekaton, P>,
        read: &ReadRow<'_, P::RowStamp>,
        tid: Tid,
    ) -> Option<Valid> {
        // First the writer, then the version: the version shows a writer that has finished in
        // between.
        let mut looks = 0;
        let writer = loop {
            match locks::writer_of(self, state, read.record) {
                Preparing::Draws if looks < PATIENCE => looks += 1,
                Preparing::Draws => return None,
                other => break other,
            }
            std::hint::spin_loop();
        };
        let mut valid = Valid::Now;
        match writer {
            Preparing::At(at) if !broken!(ValidateInPlaceOnly) => {
                if at < tid {
                    return None;
                }
                valid = Valid::Late;
            }
            _ => {}
        }
        let now = read.record.word.load(Ordering::SeqCst);
        if now == read.seen {
            // Instead of a dead record there may be another under the key.
            return (now & word::DEAD == 0).then_some(valid);
        }
        if now & !word::LOCKED == read.seen {
            // The row is being overwritten, at a later timestamp: else the writer was found above.
            return Some(Valid::Late);
        }
        let versions = engine.snapshots.versions();
        let end = versions.end_of(read.record, word::tid(read.seen), state.guard)?;
        (end > tid).then_some(Valid::Late)
    }

    /// Validates the transaction's reads at the transaction's timestamp.
    fn validate<P: LoggingProtocol>(
        &self,
        engine: &Engine<P>,
        state: &TxnState<'_, Hekaton, P>,
        tid: Tid,
    ) -> Option<Valid> {
        let may_be_late = self.snapshot_isolation
            && (!state.control.checks_uniqueness || broken!(UniqueAsOfSnapshot));
        let otherwise = may_be_late.then_some(Valid::Late);
        let mut valid = Valid::Now;
        // No other transaction can have changed the overwritten rows.
        for read in state.reads.iter().filter(|read| !read.overwritten) {
            valid = valid.max(self.check(engine, state, read, tid).or(otherwise)?);
        }
        if !state.gaps_are_current() {
            valid = otherwise?;
        }
        // A row not found in an index may have been there as of the transaction's beginning.
        let is_wrong =
            may_be_late && self.active.has_ended(state.control.slot, state.control.as_of);
        (!is_wrong).then_some(valid)
    }

    /// Whether a replay of the transaction as a command would read the same versions.
    fn may_be_command<P: LoggingProtocol>(
        &self,
        state: &TxnState<'_, Hekaton, P>,
        tid: Tid,
    ) -> bool {
        if self.replays_versions {
            // An image of an epoch in between would not have the versions read (C4).
            let is_of_one_epoch = state.control.as_of.epoch() == tid.epoch();
            return !self.snapshot_isolation || is_of_one_epoch || broken!(StraddlingCommands);
        }
        !Self::is_late(state) || broken!(LateCommands)
    }

    /// Whether the transaction is late by now, or will fail.
    fn is_late<P: LoggingProtocol>(state: &TxnState<'_, Hekaton, P>) -> bool {
        let is_changed = |read: &ReadRow<'_, _>| {
            !read.overwritten && read.record.word.load(Ordering::Relaxed) != read.seen
        };
        state.reads.iter().any(is_changed) || !state.gaps_are_current()
    }

    fn end_read_only<P: LoggingProtocol>(
        &self,
        engine: &Engine<P>,
        state: &mut TxnState<'_, Hekaton, P>,
    ) -> Result<Needs, Abort> {
        if state.control.speculated {
            self.settle(engine, state)?;
        }
        state.observe_held(&engine.protocol, false);
        // A row not found in an index may have been there as of the transaction's beginning.
        let valid = !self.active.has_ended(state.control.slot, state.control.as_of);
        steps::end_read_only(engine, state, valid)
    }
}

impl<P: LoggingProtocol> MarksRows<P> for Hekaton {
    #[inline(always)]
    fn active(&self) -> &ActiveTransactions {
        &self.active
    }
}

impl<P: LoggingProtocol> ConcurrencyControl<P> for Hekaton {
    type Row = P::RowStamp;
    type Txn<'s> = ReadTime;
    type Lock = LockWord;
    // Locked until the record has inherited the stamp of its gap.
    const INSERTED_WORD: u64 = word::ABSENT | word::LOCKED;

    #[inline(always)]
    fn stamp(row: &P::RowStamp) -> &P::RowStamp {
        row
    }

    /// Section 2.2, and section 3.1, "begin" and "normal processing".
    #[inline]
    fn read<'s, T>(
        &self,
        engine: &Engine<P>,
        state: &mut TxnState<'s, Hekaton, P>,
        table: u32,
        record: &'s Record<P::RowStamp>,
        mut copy: impl FnMut() -> T,
    ) -> Result<VisibleRow<'s, T>, Abort> {
        let (versions, arena, guard) = (engine.snapshots.versions(), state.arena, state.guard);
        for look in 0..LOOKS {
            if look >= PATIENCE {
                // The writer may be descheduled.
                std::thread::yield_now();
            }
            match locks::writer_of(self, state, record) {
                Preparing::No => {}
                Preparing::At(at) if at > state.control.as_of => {}
                // The writer has written this row already.
                Preparing::At(at) if word::tid(record.word.load(Ordering::Acquire)) >= at => {}
                _ if broken!(OverlookPreparing) => {}
                Preparing::At(at) if self.speculates => {
                    if let Some(version) = self.speculate(state, table, record, at) {
                        return Ok(version.into());
                    }
                    std::hint::spin_loop();
                    continue;
                }
                _ => {
                    std::hint::spin_loop();
                    continue;
                }
            }
            let seen = record.word.load(Ordering::Acquire);
            if word::tid(seen) > state.control.as_of {
                let Some((found, version)) =
                    versions.read(record, state.control.as_of, arena, guard)
                else {
                    std::hint::spin_loop();
                    continue;
                };
                // Versions may no longer have been kept for this transaction.
                if self.active.has_ended(state.control.slot, state.control.as_of) {
                    return Err(Abort::Conflict);
                }
                Self::remember(engine, state, table, record, found);
                return Ok(version.into());
            }
            if seen & word::DEAD != 0 {
                // The row was absent as of the beginning. Should the transaction write, it fails.
                Self::remember(engine, state, table, record, seen);
                return Ok(VisibleRow::Absent);
            }
            if seen & word::LOCKED == 0 {
                if let Some(copied) = locks::copy_in_place(record, seen, &mut copy) {
                    if record.lock.load(Ordering::Relaxed) != state.control.slot {
                        Self::remember(engine, state, table, record, seen);
                    }
                    return Ok(copied);
                }
            } else if let Some(kept) = versions.kept(record, seen, arena, guard) {
                // The row is being overwritten at a later timestamp, for which this version was
                // kept.
                Self::remember(engine, state, table, record, seen & !word::LOCKED);
                return Ok(kept.into());
            }
            std::hint::spin_loop();
        }
        Err(Abort::Conflict)
    }

    /// Section 2.4: the latest version can be updated, if no other transaction has the version.
    #[inline]
    fn intend<'s>(
        &self,
        engine: &Engine<P>,
        state: &mut TxnState<'s, Hekaton, P>,
        table: u32,
        record: &'s Record<P::RowStamp>,
    ) -> Result<bool, Abort> {
        let (unmarked, failed) = (Ordering::SeqCst, Ordering::Relaxed);
        match record.lock.compare_exchange(0, state.control.slot, unmarked, failed) {
            Ok(_) => {
                state.push_lock(table, record, true);
                engine.protocol.prefetch(&record.stamp);
            }
            Err(owner) if owner == state.control.slot => {}
            Err(_) => return Err(Abort::Conflict),
        }
        // Only the transaction with the mark changes the row.
        let seen = record.word.load(Ordering::Acquire);
        let is_newer = word::tid(seen) > state.control.as_of && !broken!(OverwriteNewer);
        if is_newer || seen & word::DEAD != 0 {
            return Err(Abort::Conflict);
        }
        debug_assert_eq!(seen & word::LOCKED, 0, "what is marked by this one is not locked");
        Ok(seen & word::ABSENT == 0)
    }

    fn checks_uniqueness(state: &mut TxnState<'_, Hekaton, P>) {
        state.control.checks_uniqueness = true;
    }

    fn stated_versions(
        &self,
        engine: &Engine<P>,
        state: &TxnState<'_, Self, P>,
        states_floor: bool,
        command: bool,
    ) -> StatedVersions {
        if !self.replays_versions {
            return StatedVersions::default();
        }
        locks::stated_versions(
            self,
            engine,
            state,
            (states_floor, command),
            self.snapshot_isolation,
        )
    }

    fn inserted<'s>(
        state: &mut TxnState<'s, Hekaton, P>,
        table: u32,
        record: &'s Record<P::RowStamp>,
    ) {
        locks::inserted(state, table, record);
    }
}

impl<P: LoggingProtocol> Commits<P> for Hekaton {
    /// The session's number among the active transactions.
    type Session = u32;

    fn new(settings: &ControlSettings) -> Self {
        Hekaton {
            active: Arc::default(),
            snapshot_isolation: settings.snapshot_isolation,
            speculates: settings.speculates,
            replays_versions: settings.commands == CommandReplay::MayKeepVersions,
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

    fn begin(&self, engine: &Engine<P>, slot: &mut u32, _: Beginning) -> ReadTime {
        let as_of = self.active.begin(*slot, &engine.epoch);
        ReadTime { slot: *slot, as_of, ..ReadTime::default() }
    }

    /// Section 3.2, "preparation", and 3.3, "postprocessing".
    fn commit<'s>(
        &self,
        engine: &Engine<P>,
        state: &mut TxnState<'s, Hekaton, P>,
        mut commit: Commit<'_>,
    ) -> Result<Committed, Abort> {
        const { assert!(!P::TRACKS_READERS, "a late reader leaves no stamp that counts") };
        const { assert!(!P::TELLS_BLIND_WRITES, "locks do not say whether their row was read") };
        if state.writes.is_empty() {
            return self.end_read_only(engine, state).map(Committed::read_only);
        }
        if state.control.speculated {
            self.settle(engine, state)?;
        }
        let tid = self.active.prepare(state.control.slot, &engine.epoch);
        let tid = tid.ok_or(Abort::Conflict)?;
        if self.speculates {
            self.show(engine, state, tid);
        }
        for write in state.writes.iter_mut() {
            write.base = word::tid(write.record.word.load(Ordering::Relaxed));
            debug_assert!(write.base < tid, "timestamps ascend");
        }
        state.mark_overwritten();
        state.observe_held(&engine.protocol, true);
        let command = self.may_be_command(state, tid) && steps::as_command(engine, state, &commit);
        let valid = |state: &TxnState<'_, Hekaton, P>| self.validate(engine, state, tid);
        let reserved = if self.replays_versions {
            valid(state).ok_or(Abort::Conflict)?;
            steps::append(self, engine, state, &mut commit, tid, command)
        } else {
            steps::validate_and_append(self, engine, state, &mut commit, (tid, command), valid)?
        };
        let placed = reserved.fill(tid);
        let slow = [
            Mutation::ValidateInPlaceOnly,
            Mutation::OverlookPreparing,
            Mutation::ForgetDependencies,
        ];
        if slow.into_iter().any(mutation::is) {
            // Makes reads and validations by other transactions likely between validation and
            // installing.
            std::thread::yield_now();
        }
        locks::install(self, engine, state, tid);
        Ok(steps::committed(engine, state, placed))
    }

    fn abandon<'s>(
        &self,
        engine: &Engine<P>,
        state: &mut TxnState<'s, Hekaton, P>,
    ) -> Result<Needs, Abort> {
        self.end_read_only(engine, state)
    }

    fn release(&self, state: &mut TxnState<'_, Hekaton, P>) {
        locks::release(self, state);
        if self.speculates {
            self.active.hide(state.control.slot);
        }
    }
}
