//! What a row or a gap keeps under wait-die, and how garbage collection locks a row.

use super::lock::WaitDieLock;
use hyades::plug::{Record, RecordLock, word};
use std::sync::atomic::Ordering;

/// The metadata of a row or gap: its lock, and the stamp of the logging protocol.
#[derive(Default)]
pub struct LockedRow<S> {
    pub lock: WaitDieLock,
    pub stamp: S,
}

/// Garbage collection locks a row only if the row is free, and waits for nothing meanwhile.
pub struct RowLock;

impl<S> RecordLock<LockedRow<S>> for RowLock {
    const INSERTED: u32 = 0;

    fn try_lock(record: &Record<LockedRow<S>>) -> Option<u64> {
        let lock = &record.stamp.lock;
        if !lock.try_take() {
            return None;
        }
        let version = record.word.load(Ordering::Acquire);
        if version & word::LOCKED != 0 {
            // A transaction inserts the row, and is about to take the lock.
            lock.release_write();
            return None;
        }
        Some(version)
    }

    fn unlock(record: &Record<LockedRow<S>>, version: u64, dead: bool) {
        if dead {
            record.word.store(version | word::DEAD, Ordering::Release);
            record.stamp.lock.end();
        } else {
            record.stamp.lock.release_write();
        }
    }

    fn unmark_dead(record: &Record<LockedRow<S>>, version: u64) {
        record.word.store(version, Ordering::Release);
        record.stamp.lock.begin_anew();
    }
}
