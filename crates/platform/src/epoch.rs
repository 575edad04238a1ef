//! The epoch: a coarse global clock, advanced by active threads. No thread is woken for an advance,
//! so the epoch stands still in an idle process.

use crate::clock;
use crate::sync::{AtomicU64, Ordering, checker_fence};
use std::fmt;
use std::time::Duration;

/// The highest epoch. A version word has 34 bits for the epoch beside a sequence number and flags:
/// at an epoch per 10 milliseconds, five years of *busy* time.
pub const MAX_EPOCH: EpochNumber = EpochNumber((1 << 34) - 1);

/// The number of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct EpochNumber(pub u64);

impl EpochNumber {
    /// Above all epochs, even [`MAX_EPOCH`].
    pub const ABOVE_ALL: EpochNumber = EpochNumber(u64::MAX);

    /// The next epoch.
    #[inline]
    pub const fn next(self) -> EpochNumber {
        EpochNumber(self.0 + 1)
    }

    /// The previous epoch; 0 for 0.
    #[inline]
    pub const fn previous(self) -> EpochNumber {
        EpochNumber(self.0.saturating_sub(1))
    }
}

impl fmt::Display for EpochNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The global epoch counter of a database.
#[derive(Debug)]
pub struct Epoch {
    /// Advanced by any thread on finding the epoch too old; read by every transaction.
    current: AtomicU64,
    /// [`clock::monotonic_ns`] of the last advance.
    advanced_at_ns: AtomicU64,
    /// Wall-clock start of the latest epochs: epoch e at index e % [`REMEMBERED`]. Raised before
    /// the epoch becomes current (SeqCst) and never lowered, so a later epoch never began earlier.
    began_us: [AtomicU64; REMEMBERED],
}

/// The number of epochs with a kept start. Fewer under loom, because loom keeps a history of every
/// atomic.
const REMEMBERED: usize = if cfg!(loom) { 4 } else { 64 };

impl Epoch {
    /// A counter starting at `first`.
    pub fn new(first: EpochNumber) -> Self {
        assert!(first <= MAX_EPOCH, "epoch {first} has more than 34 bits");
        let began_us: [_; REMEMBERED] = std::array::from_fn(|_| AtomicU64::new(0));
        began_us[Self::remembered_at(first)].store(clock::wall_us(), Ordering::Relaxed);
        Self {
            current: AtomicU64::new(first.0),
            advanced_at_ns: AtomicU64::new(clock::monotonic_ns()),
            began_us,
        }
    }

    /// The index of an epoch's start in `began_us`.
    fn remembered_at(epoch: EpochNumber) -> usize {
        epoch.0 as usize % REMEMBERED
    }

    /// The current epoch. SeqCst: the protocols rely on the order of this load relative to locks
    /// and to other threads' publications, and a SeqCst load costs no more than a plain load on
    /// x86.
    #[inline]
    pub fn current(&self) -> EpochNumber {
        checker_fence();
        EpochNumber(self.current.load(Ordering::SeqCst))
    }

    /// Advances by 1 and returns the new epoch.
    pub fn advance(&self) -> EpochNumber {
        let now = clock::wall_us();
        let mut current = self.current();
        loop {
            let next = current.next();
            assert!(next <= MAX_EPOCH, "the epochs of 34 bits are used up");
            // Relaxed: the exchange publishes the time.
            self.began_us[Self::remembered_at(next)].fetch_max(now, Ordering::Relaxed);
            let (was, to) = (current.0, next.0);
            let swap = self.current.compare_exchange(was, to, Ordering::SeqCst, Ordering::SeqCst);
            match swap {
                Ok(_) => {
                    checker_fence();
                    return next;
                }
                Err(found) => current = EpochNumber(found),
            }
        }
    }

    /// Returns the start of the epoch, in microseconds since 1970 by the wall clock; `None` if too
    /// many epochs have begun since, or if the epoch has not begun. May be a little late, after a
    /// delay of the advancing thread.
    pub fn began_us(&self, epoch: EpochNumber) -> Option<u64> {
        let began = self.began_us[Self::remembered_at(epoch)].load(Ordering::Relaxed);
        // Read afterwards: the age shows if a later epoch has reused the entry.
        let age = self.current().0.checked_sub(epoch.0)?;
        (age + 1 < REMEMBERED as u64 && began > 0).then_some(began)
    }

    /// Advances if the current epoch is older than `interval`; of several callers a single caller
    /// advances. Returns the then current epoch.
    pub fn advance_if_older_than(&self, interval: Duration) -> EpochNumber {
        let now = clock::monotonic_ns();
        // Relaxed: the time decides how often epochs advance, not whether anything is correct.
        let then = self.advanced_at_ns.load(Ordering::Relaxed);
        if now.saturating_sub(then) >= interval.as_nanos() as u64
            && self
                .advanced_at_ns
                .compare_exchange(then, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            return self.advance();
        }
        self.current()
    }

    /// Returns the time until the current epoch is as old as `interval`.
    pub fn rest(&self, interval: Duration) -> Duration {
        let age = clock::monotonic_ns().saturating_sub(self.advanced_at_ns.load(Ordering::Relaxed));
        interval.saturating_sub(Duration::from_nanos(age))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn advances_once_per_interval() {
        let epoch = Epoch::new(EpochNumber(5));
        assert_eq!(epoch.advance_if_older_than(Duration::from_secs(3600)), EpochNumber(5));
        assert_eq!(epoch.advance_if_older_than(Duration::ZERO), EpochNumber(6));
        assert_eq!(epoch.current(), EpochNumber(6));
    }

    #[test]
    fn an_epoch_knows_when_it_began_until_many_have_come_after_it() {
        clock::simulate(Some(5_000_000));
        let epoch = Epoch::new(EpochNumber(100));
        for step in 1..=70u64 {
            clock::simulate(Some(5_000_000 + step * 1_000_000));
            assert_eq!(epoch.advance(), EpochNumber(100 + step));
        }
        clock::simulate(None);
        assert_eq!(epoch.began_us(EpochNumber(170)), Some(75_000));
        assert_eq!(epoch.began_us(EpochNumber(120)), Some(25_000));
        assert_eq!(epoch.began_us(EpochNumber(105)), None);
        assert_eq!(epoch.began_us(EpochNumber(171)), None);
    }
}
