//! Rows whose lock word says which transaction has marked them: by the number of its slot.

use super::optimistic::PATIENCE;
use super::state::TxnState;
use crate::engine::Engine;
use crate::engine::active::Preparing;
use crate::logging::LoggingProtocol;
use crate::storage::record::{Record, WRITER, word};
use std::sync::atomic::Ordering;

/// How often a transaction looks at a row that is being written before it fails. It yields after
/// the first [`PATIENCE`].
pub(super) const LOOKS: u32 = 2 * PATIENCE;

/// How far the transaction is that has marked a row, if another one has.
///
/// SeqCst, as the mark and the slot are: if it is found not to prepare, its timestamp is above all
/// that are drawn by now.
#[inline]
pub(super) fn writer_of<P: LoggingProtocol>(
    engine: &Engine<P>,
    state: &TxnState<'_, P>,
    record: &Record<P::RowStamp>,
) -> Preparing {
    let owner = record.lock.load(Ordering::SeqCst);
    if owner == 0 || owner == state.slot || owner >= WRITER {
        return Preparing::No;
    }
    engine.snapshots.active.preparing(owner)
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
