//! The committed, unapplied operations: their amount, and the time of waiting.
//!
//! Waiting operations are in memory, so count within the budget. Most versions are in the version
//! table as well, and count there; a version leaving the table while waiting is counted from then
//! on in [`HeldBytes`](crate::held_bytes::HeldBytes), with the proxy's further data of each record.

use super::Handed;
use crate::transaction_component::version::Version;
use hyades_platform::clock;
use hyades_platform::sync::{AtomicUsize, Ordering};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// The distance of the data component behind the committed transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lag {
    /// The bytes of unapplied records.
    pub bytes: usize,
    /// The waiting time of the oldest unapplied record. Zero where none waits.
    pub age: Duration,
    /// The time of the data component at its current batch. Zero without a batch.
    pub call: Duration,
}

/// The lag as known without the lock of the scans; a data component may hold up the lock. Written
/// by the thread holding the scans, read by other threads. Relaxed: the values order nothing.
#[derive(Debug)]
pub(super) struct LagClock {
    /// The bytes of records received and not applied.
    bytes: AtomicUsize,
    /// The arrival time of the oldest received record, by the monotonic clock; `u64::MAX` without
    /// one.
    oldest_ns: AtomicU64,
    /// The start of the data component's batch; 0 without a batch.
    call_ns: AtomicU64,
}

/// Marks the data component as at a batch, until the mark is dropped.
pub(super) struct AtBatch<'l>(&'l LagClock);

impl Drop for AtBatch<'_> {
    fn drop(&mut self) {
        self.0.call_ns.store(0, Ordering::Relaxed);
    }
}

impl LagClock {
    pub fn new() -> Self {
        let (bytes, oldest_ns) = (AtomicUsize::new(0), AtomicU64::new(u64::MAX));
        Self { bytes, oldest_ns, call_ns: AtomicU64::new(0) }
    }

    /// Notes the number of waiting bytes, and the arrival time of the oldest.
    pub fn note(&self, bytes: usize, oldest_ns: Option<u64>) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.oldest_ns.store(oldest_ns.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub fn begin_batch(&self) -> AtBatch<'_> {
        self.call_ns.store(clock::monotonic_ns().max(1), Ordering::Relaxed);
        AtBatch(self)
    }

    /// Returns the time of the data component at its batch.
    pub fn call(&self) -> Duration {
        match self.call_ns.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => Duration::from_nanos(clock::monotonic_ns().saturating_sub(since)),
        }
    }

    /// Returns the lag, with the bytes in the inboxes and the arrival time of their oldest record.
    pub fn look(&self, (inbox_bytes, inbox_ns): (usize, Option<u64>)) -> Lag {
        let oldest = self.oldest_ns.load(Ordering::Relaxed).min(inbox_ns.unwrap_or(u64::MAX));
        let age = match oldest {
            u64::MAX => 0,
            oldest => clock::monotonic_ns().saturating_sub(oldest),
        };
        let bytes = self.bytes.load(Ordering::Relaxed) + inbox_bytes;
        Lag { bytes, age: Duration::from_nanos(age), call: self.call() }
    }
}

impl Handed {
    /// Returns the approximate bytes of memory of the record without its versions.
    pub fn held_bytes(&self) -> usize {
        let spilled = match self.operations.spilled() {
            true => self.operations.capacity() * size_of::<Version>(),
            false => 0,
        };
        size_of::<Self>() + spilled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_is_what_waits_and_as_old_as_the_oldest_of_it() {
        let (lag, empty) = (LagClock::new(), (0, None));
        let none = Lag { bytes: 0, age: Duration::ZERO, call: Duration::ZERO };
        assert_eq!(lag.look(empty), none);
        lag.note(7, Some(clock::monotonic_ns()));
        std::thread::sleep(Duration::from_millis(2));
        let found = lag.look((5, None));
        assert_eq!((found.bytes, found.call), (12, Duration::ZERO));
        assert!(found.age >= Duration::from_millis(2));
        let at_batch = lag.begin_batch();
        std::thread::sleep(Duration::from_millis(2));
        assert!(lag.look(empty).call >= Duration::from_millis(2));
        drop(at_batch);
        assert_eq!(lag.call(), Duration::ZERO);
        lag.note(0, None);
        assert_eq!(lag.look(empty), none);
    }
}
