//! Rows whose lock word says which transaction has marked them: by the number of its slot.

use super::state::{HeldLock, TxnState};
use super::{ConcurrencyControl, RecordLock, VisibleRow, steps};
use crate::engine::Engine;
use crate::engine::active::{ActiveTransactions, Preparing};
use crate::logging::LoggingProtocol;
use crate::logging::draft::StatedVersions;
use crate::storage::record::{Record, WRITER, word};
use crate::storage::tid::Tid;
use std::sync::atomic::{Ordering, fence};

/// When a transaction reads, and the number with which it marks rows.
pub(crate) struct ReadTime {
    /// Its slot among the active transactions.
    pub slot: u32,
    pub as_of: Tid,
    /// Whether it has looked whether a key of a unique index is free.
    pub checks_uniqueness: bool,
    /// Where rows and gaps keep their last readers: the last one of what it overwrites or enters.
    pub last_read: u64,
}

/// A concurrency control that marks rows.
pub(super) trait MarksRows<P: LoggingProtocol>:
    for<'t> ConcurrencyControl<P, Txn<'t> = ReadTime>
{
    /// The transactions in progress, by whose slots rows are marked.
    fn active(&self) -> &ActiveTransactions;
}

/// What the record of a transaction states for a replay that keeps several versions. The record has
/// no position yet: what gets one later was found committing, or commits later, and not in an epoch
/// that is settled. `snapshots`: transactions read as of an earlier timestamp than their own.
pub(super) fn stated_versions<C: MarksRows<P>, P: LoggingProtocol>(
    control: &C,
    engine: &Engine<P, C::Row>,
    state: &TxnState<'_, C, P>,
    (states_floor, command): (bool, bool),
    snapshots: bool,
) -> StatedVersions {
    let floor = || {
        let active = control.active().replay_floor(&engine.epoch, snapshots);
        active.max(Tid::new(engine.snapshots.settled().next(), 0))
    };
    StatedVersions {
        as_of: (command && snapshots).then_some(state.control.as_of),
        floor: states_floor.then(floor),
    }
}

/// How far the transaction is that has marked a row, if another one has.
///
/// SeqCst, as the mark and the slot are: if it is found not to prepare, its timestamp is above all
/// that are drawn by now.
#[inline]
pub(super) fn writer_of<C: MarksRows<P>, P: LoggingProtocol>(
    control: &C,
    state: &TxnState<'_, C, P>,
    record: &Record<C::Row>,
) -> Preparing {
    let owner = record.lock.load(Ordering::SeqCst);
    if owner == 0 || owner == state.control.slot || owner >= WRITER {
        return Preparing::No;
    }
    control.active().preparing(owner)
}

/// Marks a record that the transaction has inserted, and unlocks it: it has inherited the stamp of
/// its gap.
pub(super) fn inserted<'s, C: MarksRows<P>, P: LoggingProtocol>(
    state: &mut TxnState<'s, C, P>,
    table: u32,
    record: &'s Record<C::Row>,
) {
    record.lock.store(state.control.slot, Ordering::SeqCst);
    record.word.store(word::ABSENT, Ordering::Release);
    state.push_lock(table, record, true);
}

/// Copies the row in place, if it is still the version with word `seen`.
#[inline]
pub(super) fn copy_in_place<'s, S, T>(
    record: &Record<S>,
    seen: u64,
    copy: impl FnOnce() -> T,
) -> Option<VisibleRow<'s, T>> {
    let copied =
        if seen & word::ABSENT == 0 { VisibleRow::There(copy()) } else { VisibleRow::Absent };
    // Orders the copy before the second load.
    fence(Ordering::Acquire);
    (record.word.load(Ordering::Relaxed) == seen).then_some(copied)
}

/// Installs the writes of transaction `tid`, and keeps what earlier readers may want.
#[inline(always)]
pub(super) fn install<C: MarksRows<P>, P: LoggingProtocol>(
    control: &C,
    engine: &Engine<P, C::Row>,
    state: &mut TxnState<'_, C, P>,
    tid: Tid,
) {
    control.active().find_readers(state.control.slot, tid, &mut state.workspace.readers);
    let lock = |record: &Record<_>| {
        record.set_locked();
    };
    steps::install(engine, state, tid, lock, |record, version| {
        debug_assert!(record.lock.load(Ordering::Relaxed) != 0, "it is marked");
        record.word.store(version, Ordering::Release);
    });
}

/// Takes the marks of a transaction from its rows, and ends it.
pub(super) fn release<C: MarksRows<P>, P: LoggingProtocol>(
    control: &C,
    state: &mut TxnState<'_, C, P>,
) {
    for HeldLock { record, .. } in state.held.drain(..) {
        record.lock.store(0, Ordering::Release);
    }
    control.active().end(state.control.slot);
}

/// A row is locked by its lock word, and so is a record that a transaction inserts.
pub struct LockWord;

impl RecordLock for LockWord {
    const INSERTED: u32 = WRITER;

    fn try_lock<S>(record: &Record<S>) -> Option<u64> {
        record.lock.compare_exchange(0, WRITER, Ordering::SeqCst, Ordering::Relaxed).ok()?;
        Some(record.word.load(Ordering::Acquire))
    }

    fn unlock<S>(record: &Record<S>, version: u64, dead: bool) {
        if dead {
            // The lock is kept: a later transaction either fails on it or finds the record dead.
            record.word.store(version | word::DEAD, Ordering::Release);
        } else {
            record.lock.store(0, Ordering::Release);
        }
    }

    fn unmark_dead<S>(record: &Record<S>, version: u64) {
        record.word.store(version, Ordering::Release);
        record.lock.store(0, Ordering::Release);
    }
}
