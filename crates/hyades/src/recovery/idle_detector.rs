//! Deadlock detection: tells a thread without work whether any thread can still make progress.
//!
//! Records of a sound log never wait for each other in a cycle, because a record depends only on
//! records reserved before it. Bytes with correct checksums may state a cycle all the same; then
//! replay must end with an error instead of waiting for ever. The proof: all other threads rest,
//! the caller checks all records and finds none to run, and no thread has left its rest meanwhile.

use crate::error::Error;
use hyades_platform::sync::Padded;
use hyades_wal::{Lsn, StreamId};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering};

/// One counter per thread: odd while the thread rests, and never the same again. Each counter is
/// written by its thread and read by all threads. SeqCst: a thread that sees thread T rest sees all
/// of T's previous actions, and two reads of the same odd number prove that T did nothing in
/// between.
pub(crate) struct IdleDetector(Box<[Padded<AtomicU64>]>);

/// All counters at a moment when all other threads rested.
pub(crate) type IdleSnapshot = SmallVec<[u64; 16]>;

impl IdleDetector {
    pub fn new(threads: usize) -> IdleDetector {
        IdleDetector((0..threads).map(|_| Padded(AtomicU64::new(0))).collect())
    }

    /// Calls `rest`; the thread with this number counts as resting meanwhile.
    pub fn rest(&self, thread: usize, rest: impl FnOnce()) {
        let before = self.0[thread].fetch_add(1, Ordering::SeqCst);
        debug_assert!(before.is_multiple_of(2), "a thread begins to rest while it does not");
        rest();
        self.0[thread].fetch_add(1, Ordering::SeqCst);
    }

    /// Notes that the thread has ended; the thread counts as resting from now on.
    pub fn leave(&self, thread: usize) {
        let before = self.0[thread].fetch_add(1, Ordering::SeqCst);
        debug_assert!(before.is_multiple_of(2), "a thread ends while it does not rest");
    }

    /// Returns the counters, if all other threads rest now. The caller looks for work after this
    /// call, not before.
    pub fn all_others_rest(&self, thread: usize) -> Option<IdleSnapshot> {
        let now = self.now();
        let rest = now.iter().enumerate().all(|(other, n)| other == thread || n % 2 == 1);
        rest.then_some(now)
    }

    /// Whether no thread has left its rest since `then`.
    pub fn unchanged_since(&self, then: &IdleSnapshot) -> bool {
        self.now() == *then
    }

    fn now(&self) -> IdleSnapshot {
        self.0.iter().map(|counter| counter.load(Ordering::SeqCst)).collect()
    }
}

/// Returns the error of a replay without any runnable record.
pub(crate) fn deadlock_error(stream: StreamId, lsn: Lsn) -> Error {
    Error::Recovery(format!(
        "replay cannot go on: a record at or behind Lsn {lsn} of log stream {stream} waits for \
         itself, or for records that wait for it, though the checksums are right: the log was \
         written by another version of Hyades; nothing was changed on disk"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_shows_that_a_thread_has_left_its_rest() {
        let idle_detector = IdleDetector::new(2);
        assert!(idle_detector.all_others_rest(0).is_none());
        idle_detector.rest(1, || {
            let snapshot = idle_detector.all_others_rest(0).expect("the other rests");
            assert!(idle_detector.unchanged_since(&snapshot));
            assert!(idle_detector.all_others_rest(1).is_none());
        });
        idle_detector.leave(1);
        let snapshot = idle_detector.all_others_rest(0).expect("the other has left");
        idle_detector.rest(0, || {});
        assert!(!idle_detector.unchanged_since(&snapshot));
    }
}
