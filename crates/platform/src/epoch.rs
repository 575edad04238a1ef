//! The epoch: a coarse global clock, advanced by active threads. No thread is woken for an advance,
//! so the epoch stands still in an idle process.
//!
//! The epochs of a primary may have a limit (docs/protocols/failover.md). **The invariant**: no
//! epoch above the limit becomes current. At the limit transactions go on in the same epoch, and an
//! advance does nothing. A caller that needs the end of an epoch first makes sure that the epoch
//! [may end](Epoch::may_end), or [waits](Epoch::wait_until_may_end) until then. The limit only
//! grows, so an epoch that may end can be ended.

use crate::clock;
use crate::event::Event;
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
    /// No later epoch becomes current. Raised by the owner of the limit, read by every thread that
    /// would advance the epoch: SeqCst, to be in one order with the announcements in `raised`.
    limit: AtomicU64,
    /// Threads sleep here at the limit.
    raised: Event,
}

/// A thread that sleeps at the limit asks this often whether to stop waiting.
const NAP: Duration = Duration::from_millis(10);

/// The number of epochs with a kept start. Fewer under loom, because loom keeps a history of every
/// atomic.
const REMEMBERED: usize = if cfg!(loom) { 4 } else { 64 };

impl Epoch {
    /// A counter starting at `first`, without a limit.
    pub fn new(first: EpochNumber) -> Self {
        assert!(first <= MAX_EPOCH, "epoch {first} has more than 34 bits");
        let began_us: [_; REMEMBERED] = std::array::from_fn(|_| AtomicU64::new(0));
        began_us[Self::remembered_at(first)].store(clock::wall_us(), Ordering::Relaxed);
        Self {
            current: AtomicU64::new(first.0),
            advanced_at_ns: AtomicU64::new(clock::monotonic_ns()),
            began_us,
            limit: AtomicU64::new(EpochNumber::ABOVE_ALL.0),
            raised: Event::new(),
        }
    }

    /// Sets the limit of a new counter.
    ///
    /// # Panics
    /// The first epoch is above the limit.
    pub fn limited_to(self, limit: EpochNumber) -> Self {
        let first = self.current();
        assert!(first <= limit, "epoch {first} is current, above the limit {limit}");
        self.limit.store(limit.0, Ordering::SeqCst);
        self
    }

    /// The highest epoch that may become current; above all epochs without a limit.
    #[inline]
    pub fn limit(&self) -> EpochNumber {
        EpochNumber(self.limit.load(Ordering::SeqCst))
    }

    /// Raises the limit to at least `limit`, and wakes the threads that wait there. Without a limit
    /// nothing changes.
    pub fn raise_limit(&self, limit: EpochNumber) {
        self.limit.fetch_max(limit.0, Ordering::SeqCst);
        self.raised.notify_ordered();
    }

    /// Whether a later epoch than `epoch` may become current, now and for ever.
    #[inline]
    pub fn may_end(&self, epoch: EpochNumber) -> bool {
        epoch < self.limit()
    }

    /// Returns the current epoch once that epoch may end: sleeps at the limit. `None` soon after
    /// `stopped` returns true, if the epoch may not end.
    pub fn wait_until_may_end(&self, stopped: impl Fn() -> bool) -> Option<EpochNumber> {
        loop {
            let now = self.current();
            if self.may_end(now) {
                return Some(now);
            }
            if stopped() {
                return None;
            }
            // Announce, then check. The limit rises without an end of the epoch, so the epoch is
            // not read again.
            let listener = self.raised.listen();
            if !self.may_end(now) {
                listener.wait(Some(NAP));
            }
        }
    }

    /// Ends an epoch that may end, unless the epoch has ended.
    pub fn end(&self, epoch: EpochNumber) {
        debug_assert!(self.may_end(epoch), "epoch {epoch} would never end, at the limit");
        while self.current() <= epoch {
            self.advance();
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

    /// Advances by 1 and returns the new epoch; at the limit, returns the current epoch.
    pub fn advance(&self) -> EpochNumber {
        let mut current = self.current();
        loop {
            match self.advance_from(current) {
                Ok(reached) => return reached,
                Err(found) => current = found,
            }
        }
    }

    /// Advances from this epoch, unless forbidden by the limit. Returns the then current epoch; as
    /// an error if the given epoch was not current any more.
    fn advance_from(&self, current: EpochNumber) -> Result<EpochNumber, EpochNumber> {
        let next = current.next();
        // Sound, however old the limit read: the limit only grows.
        if next > self.limit() {
            return Ok(current);
        }
        assert!(next <= MAX_EPOCH, "the epochs of 34 bits are used up");
        // Relaxed: the exchange publishes the time.
        self.began_us[Self::remembered_at(next)].fetch_max(clock::wall_us(), Ordering::Relaxed);
        let (was, to) = (current.0, next.0);
        let swap = self.current.compare_exchange(was, to, Ordering::SeqCst, Ordering::SeqCst);
        checker_fence();
        swap.map(|_| next).map_err(EpochNumber)
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

    /// Advances if the current epoch is older than `interval`. Returns the then current epoch. At
    /// the limit the epoch grows older, and ends with the first call after the limit was raised.
    ///
    /// No caller goes on in an epoch that is too old: the advance comes before its time, so a
    /// caller that finds the time finds the new epoch. A caller between the two advances once more.
    pub fn advance_if_older_than(&self, interval: Duration) -> EpochNumber {
        // The epoch before its age: if another thread advances in between, the exchange fails.
        let current = self.current();
        let now = clock::monotonic_ns();
        let then = self.advanced_at_ns.load(Ordering::Acquire);
        if now.saturating_sub(then) < interval.as_nanos() as u64 || !self.may_end(current) {
            return self.current();
        }
        let reached = self.advance_from(current).unwrap_or_else(|found| found);
        // Release: see above.
        self.advanced_at_ns.fetch_max(now, Ordering::Release);
        reached
    }

    /// Returns the time until the current epoch is as old as `interval`; zero at the limit, if the
    /// epoch is older.
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

    /// At the limit no epoch ends, however it is tried, and the first try after a rise succeeds.
    #[test]
    fn no_epoch_is_above_the_limit() {
        let epoch = Epoch::new(EpochNumber(5)).limited_to(EpochNumber(6));
        assert_eq!(epoch.advance(), EpochNumber(6));
        for _ in 0..3 {
            assert_eq!(epoch.advance(), EpochNumber(6));
            assert_eq!(epoch.advance_if_older_than(Duration::ZERO), EpochNumber(6));
        }
        assert!(epoch.may_end(EpochNumber(5)) && !epoch.may_end(EpochNumber(6)));
        epoch.end(EpochNumber(5));
        assert_eq!(epoch.wait_until_may_end(|| true), None);
        // Lower limits change nothing.
        epoch.raise_limit(EpochNumber(3));
        assert_eq!((epoch.limit(), epoch.current()), (EpochNumber(6), EpochNumber(6)));
        epoch.raise_limit(EpochNumber(8));
        assert_eq!(epoch.current(), EpochNumber(6));
        assert_eq!(epoch.wait_until_may_end(|| false), Some(EpochNumber(6)));
        epoch.end(EpochNumber(6));
        assert_eq!(epoch.advance(), EpochNumber(8));
        assert_eq!(epoch.advance(), EpochNumber(8));
    }

    /// The interval of an epoch is not begun anew by tries at the limit.
    #[test]
    fn an_epoch_that_is_too_old_ends_once_the_limit_is_raised() {
        clock::simulate(Some(1_000));
        let epoch = Epoch::new(EpochNumber(5)).limited_to(EpochNumber(5));
        clock::simulate(Some(50_000));
        let interval = Duration::from_micros(10);
        assert_eq!(epoch.advance_if_older_than(interval), EpochNumber(5));
        epoch.raise_limit(EpochNumber(9));
        assert_eq!(epoch.advance_if_older_than(interval), EpochNumber(6));
        assert_eq!(epoch.advance_if_older_than(interval), EpochNumber(6));
        clock::simulate(None);
    }

    #[test]
    fn without_a_limit_there_is_nothing_to_raise() {
        let epoch = Epoch::new(EpochNumber(5));
        epoch.raise_limit(EpochNumber(5));
        assert_eq!((epoch.limit(), epoch.advance()), (EpochNumber::ABOVE_ALL, EpochNumber(6)));
    }

    #[test]
    #[should_panic(expected = "above the limit")]
    fn an_epoch_above_the_limit_is_no_beginning() {
        let _ = Epoch::new(EpochNumber(5)).limited_to(EpochNumber(4));
    }

    /// A thread sleeps at the limit, without processor time to speak of, until the limit is raised.
    #[test]
    fn a_waiter_at_the_limit_sleeps() {
        let epoch = Epoch::new(EpochNumber(5)).limited_to(EpochNumber(5));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let began = clock::thread_cpu_ns();
                let found = epoch.wait_until_may_end(|| false);
                (found, clock::thread_cpu_ns() - began)
            });
            std::thread::sleep(Duration::from_millis(100));
            assert!(!waiter.is_finished());
            epoch.raise_limit(EpochNumber(6));
            let (found, cpu_ns) = waiter.join().unwrap();
            assert_eq!(found, Some(EpochNumber(5)));
            assert!(cpu_ns < 50_000_000, "{cpu_ns} ns of processor time in 100 ms");
        });
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

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::Arc;
    use loom::thread;

    /// Two threads advance while the limit rises: no epoch above the limit is ever current, and no
    /// advance below the limit is lost.
    #[test]
    fn the_epoch_stays_within_the_limit() {
        loom::model(|| {
            let epoch = Arc::new(Epoch::new(EpochNumber(5)).limited_to(EpochNumber(6)));
            let advancing = || {
                let epoch = Arc::clone(&epoch);
                thread::spawn(move || {
                    let reached = epoch.advance();
                    // In this order: the limit only grows.
                    assert!(reached <= epoch.limit());
                })
            };
            let threads = [advancing(), advancing()];
            epoch.raise_limit(EpochNumber(7));
            let current = epoch.current();
            assert!(current <= EpochNumber(7));
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            let reached = epoch.current();
            assert!(reached == EpochNumber(6) || reached == EpochNumber(7));
            epoch.end(EpochNumber(6));
            assert_eq!((epoch.current(), epoch.advance()), (EpochNumber(7), EpochNumber(7)));
        });
    }

    /// Of two threads that find the epoch too old, neither goes on in this epoch.
    #[test]
    fn no_thread_goes_on_in_an_epoch_that_is_too_old() {
        const INTERVAL: Duration = Duration::from_micros(10);
        loom::model(|| {
            clock::simulate(Some(1_000));
            let epoch = Arc::new(Epoch::new(EpochNumber(5)));
            clock::simulate(Some(50_000));
            let other = Arc::clone(&epoch);
            let thread = thread::spawn(move || {
                assert!(other.advance_if_older_than(INTERVAL) > EpochNumber(5));
            });
            assert!(epoch.advance_if_older_than(INTERVAL) > EpochNumber(5));
            assert!(epoch.current() > EpochNumber(5));
            thread.join().unwrap();
            assert!(epoch.current() <= EpochNumber(7));
        });
        clock::simulate(None);
    }

    /// A sleeper that misses the rise would sleep for ever, which loom reports.
    #[test]
    fn a_waiter_at_the_limit_does_not_miss_the_rise() {
        loom::model(|| {
            let epoch = Arc::new(Epoch::new(EpochNumber(5)).limited_to(EpochNumber(5)));
            let other = Arc::clone(&epoch);
            let thread = thread::spawn(move || other.raise_limit(EpochNumber(6)));
            assert_eq!(epoch.wait_until_may_end(|| false), Some(EpochNumber(5)));
            epoch.end(EpochNumber(5));
            assert_eq!(epoch.current(), EpochNumber(6));
            thread.join().unwrap();
        });
    }
}
