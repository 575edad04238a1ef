//! The epoch: a coarse global clock, advanced by active threads. No thread is woken to advance it,
//! so it stands still in an idle process.

use crate::clock;
use crate::sync::{AtomicU64, Ordering, checker_fence};
use std::time::Duration;

/// The highest epoch. A version word has 34 bits for the epoch beside a sequence number and flags:
/// at one epoch per 10 milliseconds, five years of *busy* time.
pub const MAX_EPOCH: u64 = (1 << 34) - 1;

/// The global epoch counter of one database.
#[derive(Debug)]
pub struct Epoch {
    /// Advanced by any thread that finds it too old; read by every transaction.
    current: AtomicU64,
    /// [`clock::monotonic_ns`] of the last advance.
    advanced_at_ns: AtomicU64,
    /// Wall-clock start of the latest epochs: epoch e at index e % [`REMEMBERED`]. Raised before
    /// the epoch becomes current (SeqCst) and never lowered, so that a later epoch never began
    /// earlier.
    began_us: [AtomicU64; REMEMBERED],
}

/// How many epochs' starts are kept. Fewer under loom, which keeps a history of every atomic.
const REMEMBERED: usize = if cfg!(loom) { 4 } else { 64 };

impl Epoch {
    /// A counter that starts at `first`.
    pub fn new(first: u64) -> Self {
        assert!(first <= MAX_EPOCH, "epoch {first} has more than 34 bits");
        let began_us: [_; REMEMBERED] = std::array::from_fn(|_| AtomicU64::new(0));
        began_us[first as usize % REMEMBERED].store(clock::wall_us(), Ordering::Relaxed);
        Self {
            current: AtomicU64::new(first),
            advanced_at_ns: AtomicU64::new(clock::monotonic_ns()),
            began_us,
        }
    }

    /// The current epoch. SeqCst: the protocols rely on the order of this load relative to locks
    /// and to other threads' publications, and a SeqCst load costs no more than a plain one on x86.
    #[inline]
    pub fn current(&self) -> u64 {
        checker_fence();
        self.current.load(Ordering::SeqCst)
    }

    /// Advances by one and returns the new epoch.
    pub fn advance(&self) -> u64 {
        let now = clock::wall_us();
        let mut current = self.current();
        loop {
            let next = current + 1;
            assert!(next <= MAX_EPOCH, "the epochs of 34 bits are used up");
            // Relaxed: the exchange publishes it.
            self.began_us[next as usize % REMEMBERED].fetch_max(now, Ordering::Relaxed);
            let swap =
                self.current.compare_exchange(current, next, Ordering::SeqCst, Ordering::SeqCst);
            match swap {
                Ok(_) => {
                    checker_fence();
                    return next;
                }
                Err(found) => current = found,
            }
        }
    }

    /// When the epoch began, in microseconds since 1970 by the wall clock; `None` if too many
    /// epochs have begun since, or if it has not begun. May be a little late, if a thread was
    /// delayed while it advanced.
    pub fn began_us(&self, epoch: u64) -> Option<u64> {
        let began = self.began_us[epoch as usize % REMEMBERED].load(Ordering::Relaxed);
        // Read afterwards: the age shows if a later epoch has reused the entry.
        let age = self.current().checked_sub(epoch)?;
        (age + 1 < REMEMBERED as u64 && began > 0).then_some(began)
    }

    /// Advances if the current epoch is older than `interval`; one of several callers does so.
    /// Returns the epoch that is then current.
    pub fn advance_if_older_than(&self, interval: Duration) -> u64 {
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

    /// Returns how long it takes until the current epoch is as old as `interval`.
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
        let epoch = Epoch::new(5);
        assert_eq!(epoch.advance_if_older_than(Duration::from_secs(3600)), 5);
        assert_eq!(epoch.advance_if_older_than(Duration::ZERO), 6);
        assert_eq!(epoch.current(), 6);
    }

    #[test]
    fn an_epoch_knows_when_it_began_until_many_have_come_after_it() {
        clock::simulate(Some(5_000_000));
        let epoch = Epoch::new(100);
        for step in 1..=70u64 {
            clock::simulate(Some(5_000_000 + step * 1_000_000));
            assert_eq!(epoch.advance(), 100 + step);
        }
        clock::simulate(None);
        assert_eq!(epoch.began_us(170), Some(75_000));
        assert_eq!(epoch.began_us(120), Some(25_000));
        assert_eq!(epoch.began_us(105), None);
        assert_eq!(epoch.began_us(171), None);
    }
}
