//! Rows with a mark: the lock word holds the slot number of the marking transaction.

use super::state::{HeldLock, TxnState};
use super::{ConcurrencyControl, RecordLock, VisibleRow, steps};
use crate::engine::Engine;
use crate::engine::active::{ActiveTransactions, Preparing};
use crate::logging::LoggingProtocol;
use crate::logging::draft::StatedVersions;
use crate::storage::record::{Record, WRITER, word};
use crate::storage::tid::Tid;
use std::sync::atomic::{Ordering, fence};

/// The time of a transaction's reads, and the number in the transaction's marks.
#[derive(Default)]
pub struct ReadTime {
    /// The transaction's slot among the active transactions.
    pub slot: u32,
    pub as_of: Tid,
    /// Whether the transaction has looked whether a key of a unique index is free.
    pub checks_uniqueness: bool,
    /// Where rows and gaps keep last readers: the last reader of all rows overwritten and gaps
    /// entered.
    pub last_read: u64,
    /// Whether the transaction has read what another one is about to commit, and depends on that.
    pub speculated: bool,
}

/// A concurrency control that marks rows.
pub trait MarksRows<P: LoggingProtocol>: for<'t> ConcurrencyControl<P, Txn<'t> = ReadTime> {
    /// The transactions in progress, whose slots mark rows.
    fn active(&self) -> &ActiveTransactions;
}

/// The statements in a transaction's record for a replay with several versions. The record has no
/// position yet: a transaction that gets its position later was found committing, or commits later,
/// and not in a settled epoch. `snapshots`: transactions read as of an earlier timestamp than their
/// own.
pub fn stated_versions<C: MarksRows<P>, P: LoggingProtocol>(
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

/// The progress of the other transaction that has marked a row, if any.
///
/// SeqCst, like the mark and the slot: if the transaction is found not to prepare, its timestamp is
/// above all timestamps drawn by now.
#[inline]
pub fn writer_of<C: MarksRows<P>, P: LoggingProtocol>(
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

/// Marks and unlocks a record inserted by the transaction: the record has inherited the stamp of
/// its gap.
pub fn inserted<'s, C: MarksRows<P>, P: LoggingProtocol>(
    state: &mut TxnState<'s, C, P>,
    table: u32,
    record: &'s Record<C::Row>,
) {
    record.lock.store(state.control.slot, Ordering::SeqCst);
    record.word.store(word::ABSENT, Ordering::Release);
    state.push_lock(table, record, true);
}

/// Copies the row in place, if the version word is still `seen`.
#[inline]
pub fn copy_in_place<'s, S, T>(
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

/// Installs the writes of transaction `tid`, and keeps overwritten versions for earlier readers.
#[inline(always)]
pub fn install<C: MarksRows<P>, P: LoggingProtocol>(
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

/// Removes the marks of a transaction from its rows, and ends the transaction.
pub fn release<C: MarksRows<P>, P: LoggingProtocol>(control: &C, state: &mut TxnState<'_, C, P>) {
    for HeldLock { record, .. } in state.held.drain(..) {
        record.lock.store(0, Ordering::Release);
    }
    control.active().end(state.control.slot);
}

/// The lock word locks a row, and also a record inserted by a transaction.
pub struct LockWord;

impl<S> RecordLock<S> for LockWord {
    const INSERTED: u32 = WRITER;

    fn try_lock(record: &Record<S>) -> Option<u64> {
        record.lock.compare_exchange(0, WRITER, Ordering::SeqCst, Ordering::Relaxed).ok()?;
        Some(record.word.load(Ordering::Acquire))
    }

    fn unlock(record: &Record<S>, version: u64, dead: bool) {
        if dead {
            // The lock is kept: a later transaction fails on the lock or finds the record dead.
            record.word.store(version | word::DEAD, Ordering::Release);
        } else {
            record.lock.store(0, Ordering::Release);
        }
    }

    fn unmark_dead(record: &Record<S>, version: u64) {
        record.word.store(version, Ordering::Release);
        record.lock.store(0, Ordering::Release);
    }
}
