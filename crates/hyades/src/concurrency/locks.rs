//! Rows whose lock word says which transaction has marked them: by the number of its slot.

use super::state::{HeldLock, TxnState};
use super::{ConcurrencyControl, VisibleRow, steps};
use crate::engine::Engine;
use crate::engine::active::Preparing;
use crate::logging::LoggingProtocol;
use crate::storage::record::{Record, WRITER, word};
use crate::storage::tid::Tid;
use std::sync::atomic::{Ordering, fence};

/// When a transaction reads, and the number with which it marks rows.
#[derive(Default)]
pub(crate) struct ReadTime {
    /// Its slot among the active transactions.
    pub slot: u32,
    pub as_of: Tid,
    /// Whether it has looked whether a key of a unique index is free.
    pub checks_uniqueness: bool,
}

/// A concurrency control that marks rows.
pub(super) trait MarksRows<P: LoggingProtocol>:
    for<'t> ConcurrencyControl<P, Txn<'t> = ReadTime>
{
}

impl<C, P: LoggingProtocol> MarksRows<P> for C where
    C: for<'t> ConcurrencyControl<P, Txn<'t> = ReadTime>
{
}

/// How far the transaction is that has marked a row, if another one has.
///
/// SeqCst, as the mark and the slot are: if it is found not to prepare, its timestamp is above all
/// that are drawn by now.
#[inline]
pub(super) fn writer_of<C: MarksRows<P>, P: LoggingProtocol>(
    engine: &Engine<P>,
    state: &TxnState<'_, C, P>,
    record: &Record<P::RowStamp>,
) -> Preparing {
    let owner = record.lock.load(Ordering::SeqCst);
    if owner == 0 || owner == state.control.slot || owner >= WRITER {
        return Preparing::No;
    }
    engine.snapshots.active.preparing(owner)
}

/// Marks a record that the transaction has inserted, and unlocks it: it has inherited the stamp of
/// its gap.
pub(super) fn inserted<'s, C: MarksRows<P>, P: LoggingProtocol>(
    state: &mut TxnState<'s, C, P>,
    table: u32,
    record: &'s Record<P::RowStamp>,
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
    engine: &Engine<P>,
    state: &mut TxnState<'_, C, P>,
    tid: Tid,
) {
    engine.snapshots.active.find_readers(state.control.slot, tid, &mut state.workspace.readers);
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
    engine: &Engine<P>,
    state: &mut TxnState<'_, C, P>,
) {
    for HeldLock { record, .. } in state.held.drain(..) {
        record.lock.store(0, Ordering::Release);
    }
    engine.snapshots.active.end(state.control.slot);
}

/// Locks a record outside transactions, as the removal of garbage does, if it is not locked.
/// Returns its version word.
pub(super) fn try_lock_record<S>(record: &Record<S>) -> Option<u64> {
    record.lock.compare_exchange(0, WRITER, Ordering::SeqCst, Ordering::Relaxed).ok()?;
    Some(record.word.load(Ordering::Acquire))
}

pub(super) fn unlock_record<S>(record: &Record<S>, version: u64, dead: bool) {
    if dead {
        // The lock is kept: a later transaction either fails on it or finds the record dead.
        record.word.store(version | word::DEAD, Ordering::Release);
    } else {
        record.lock.store(0, Ordering::Release);
    }
}

pub(super) fn unmark_dead<S>(record: &Record<S>, version: u64) {
    record.word.store(version, Ordering::Release);
    record.lock.store(0, Ordering::Release);
}
