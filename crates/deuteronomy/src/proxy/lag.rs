//! What is committed and not applied yet: how much it is, and since when it waits.
//!
//! It is in memory, so it counts within the budget. Most of it is in the version table as well, and
//! counts there; a version that leaves the table while it waits is counted from then on in
//! [`HeldBytes`](crate::held_bytes::HeldBytes), with what the proxy keeps of each record beside its
//! versions.

use super::{Handed, Inbox};
use crate::key::{Key, MOST_INLINE};
use crate::transaction_component::version::Version;
use hyades_platform::clock;
use hyades_platform::sync::{AtomicUsize, Ordering};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// How far the data component is behind what is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lag {
    /// The bytes of the records that are not applied yet.
    pub bytes: usize,
    /// How long the oldest of them has waited. Zero where none waits.
    pub age: Duration,
    /// How long the data component has been at the batch that it applies. Zero where it applies
    /// none.
    pub call: Duration,
}

/// What is known of the lag without the lock of the scans, which a data component may hold up.
/// Written by the thread that holds the scans, read by others. Relaxed: it orders nothing.
#[derive(Debug)]
pub(super) struct LagClock {
    /// The bytes of the records that were received and are not applied.
    bytes: AtomicUsize,
    /// When the oldest of them was received, by the monotonic clock; `u64::MAX` without one.
    oldest_ns: AtomicU64,
    /// Since when the data component is at a batch; 0 if it is at none.
    call_ns: AtomicU64,
}

/// Says that the data component is at a batch, until this is dropped.
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

    /// This many bytes wait, the oldest of them since then.
    pub fn note(&self, bytes: usize, oldest_ns: Option<u64>) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.oldest_ns.store(oldest_ns.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub fn begin_batch(&self) -> AtBatch<'_> {
        self.call_ns.store(clock::monotonic_ns().max(1), Ordering::Relaxed);
        AtBatch(self)
    }

    /// How long the data component has been at its batch.
    pub fn call(&self) -> Duration {
        match self.call_ns.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => Duration::from_nanos(clock::monotonic_ns().saturating_sub(since)),
        }
    }

    /// The lag, with what is in the inbox.
    pub fn look(&self, inbox: &Inbox) -> Lag {
        let first = if inbox.records.is_empty() { u64::MAX } else { inbox.since_ns };
        let oldest = self.oldest_ns.load(Ordering::Relaxed).min(first);
        let age = match oldest {
            u64::MAX => 0,
            oldest => clock::monotonic_ns().saturating_sub(oldest),
        };
        let bytes = self.bytes.load(Ordering::Relaxed) + inbox.bytes;
        Lag { bytes, age: Duration::from_nanos(age), call: self.call() }
    }
}

impl Handed {
    /// The bytes of memory that it takes beside its versions, about.
    pub fn held_bytes(&self) -> usize {
        let long = |key: &Key| if key.len() > MOST_INLINE { key.len() } else { 0 };
        let keys: usize = self.operations.iter().map(|(key, _)| long(key)).sum();
        let spilled = match self.operations.spilled() {
            true => self.operations.capacity() * size_of::<(Key, Version)>(),
            false => 0,
        };
        size_of::<Self>() + keys + spilled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_is_what_waits_and_as_old_as_the_oldest_of_it() {
        let (lag, mut inbox) = (LagClock::new(), Inbox::default());
        let none = Lag { bytes: 0, age: Duration::ZERO, call: Duration::ZERO };
        assert_eq!(lag.look(&inbox), none);
        lag.note(7, Some(clock::monotonic_ns()));
        inbox.bytes = 5;
        std::thread::sleep(Duration::from_millis(2));
        let found = lag.look(&inbox);
        assert_eq!((found.bytes, found.call), (12, Duration::ZERO));
        assert!(found.age >= Duration::from_millis(2));
        let at_batch = lag.begin_batch();
        std::thread::sleep(Duration::from_millis(2));
        assert!(lag.look(&inbox).call >= Duration::from_millis(2));
        drop(at_batch);
        assert_eq!(lag.call(), Duration::ZERO);
        lag.note(0, None);
        assert_eq!(lag.look(&Inbox::default()), none);
    }
}
