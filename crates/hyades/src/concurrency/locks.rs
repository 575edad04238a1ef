//! Row objects locked outside transactions, where the lock word of a row says which transaction
//! holds it: as the removal of garbage does.

use crate::storage::record::{Record, WRITER, word};
use std::sync::atomic::Ordering;

/// Locks a record that is not locked. Returns its version word.
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
