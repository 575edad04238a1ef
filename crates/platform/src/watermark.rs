//! A number that only grows, and threads that sleep until the number is high enough.

use crate::event::Event;
use crate::sync::{AtomicU64, Ordering, spin_hint};

/// The number of a waiter's polls before its sleep; about the cost of a system call.
const SPINS: u32 = if cfg!(loom) { 0 } else { 100 };

/// A monotone u64 with waiting.
///
/// Raising costs a read-modify-write and a load while no thread waits.
#[derive(Debug)]
pub struct Watermark {
    value: AtomicU64,
    event: Event,
}

impl Watermark {
    /// A watermark at `value`.
    pub fn new(value: u64) -> Self {
        Self { value: AtomicU64::new(value), event: Event::new() }
    }

    /// The current value. Acquire: writes before the raise of the value are visible.
    #[inline]
    pub fn get(&self) -> u64 {
        self.value.load(Ordering::Acquire)
    }

    /// The current value, in the total order of SeqCst operations; for callers with an announcement
    /// elsewhere before the read (Dekker).
    #[inline]
    pub fn get_ordered(&self) -> u64 {
        self.value.load(Ordering::SeqCst)
    }

    /// Raises the value to at least `value`, and wakes waiters. Any thread may raise.
    ///
    /// SeqCst on the maximum: the maximum is released to readers, and precedes the load of the
    /// sleepers' count in the total order, so either the raiser sees a sleeper or the sleeper sees
    /// the new value.
    #[inline]
    pub fn raise(&self, value: u64) {
        self.value.fetch_max(value, Ordering::SeqCst);
        self.event.notify_ordered();
    }

    /// Wakes all waiters for a check of their reason to stop; the reason must already be true.
    pub fn poke(&self) {
        self.event.notify();
    }

    /// Sleeps until the value is at least `value` (returns true) or `stop` holds (returns false).
    /// `stop` must read with SeqCst the writes before the [`poke`](Self::poke).
    pub fn wait_at_least(&self, value: u64, stop: impl Fn() -> bool) -> bool {
        for _ in 0..SPINS {
            if self.get() >= value {
                return true;
            }
            spin_hint();
        }
        loop {
            let listener = self.event.listen();
            if self.get_ordered() >= value {
                return true;
            }
            if stop() {
                return false;
            }
            listener.wait(None);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn every_waiter_is_woken_in_a_relay() {
        // Two threads raise each other's watermark in turns: a lost wake-up hangs the test.
        let marks = Arc::new([Watermark::new(0), Watermark::new(0)]);
        let other = Arc::clone(&marks);
        let thread = std::thread::spawn(move || {
            for i in 1..=5_000 {
                assert!(other[0].wait_at_least(i, || false));
                other[1].raise(i);
            }
        });
        for i in 1..=5_000 {
            marks[0].raise(i);
            assert!(marks[1].wait_at_least(i, || false));
        }
        thread.join().unwrap();
        assert_eq!(marks[1].get(), 5_000);
    }

    #[test]
    fn a_raise_on_the_way_takes_no_announcement_with_it() {
        // As above, but several raises in quick succession; only the last is awaited.
        let marks = Arc::new([Watermark::new(0), Watermark::new(0)]);
        let other = Arc::clone(&marks);
        let thread = std::thread::spawn(move || {
            for i in 1..=20_000 {
                assert!(other[0].wait_at_least(i * 4, || false));
                (1..=4).for_each(|step| other[1].raise(i * 4 - 4 + step));
            }
        });
        for i in 1..=20_000 {
            (1..=4).for_each(|step| marks[0].raise(i * 4 - 4 + step));
            assert!(marks[1].wait_at_least(i * 4, || false));
        }
        thread.join().unwrap();
    }

    #[test]
    fn a_poked_waiter_sees_its_reason_to_stop() {
        let state = Arc::new((Watermark::new(0), AtomicBool::new(false)));
        let other = Arc::clone(&state);
        let thread = std::thread::spawn(move || {
            other.0.wait_at_least(10, || other.1.load(Ordering::SeqCst))
        });
        state.0.raise(9);
        state.1.store(true, Ordering::SeqCst);
        state.0.poke();
        assert!(!thread.join().unwrap());
    }

    #[test]
    fn never_falls() {
        let mark = Watermark::new(7);
        mark.raise(3);
        assert_eq!(mark.get(), 7);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::{Arc, AtomicBool};

    /// A sleeper with a lost event would spin forever, and the checker reports the spin.
    #[test]
    fn no_raise_is_missed_and_what_came_before_it_is_seen() {
        loom::model(|| {
            let shared = Arc::new((Watermark::new(0), AtomicU64::new(0)));
            let other = Arc::clone(&shared);
            let thread = loom::thread::spawn(move || {
                // Relaxed: the watermark must make the store visible.
                other.1.store(7, Ordering::Relaxed);
                other.0.raise(1);
                other.0.raise(2);
            });
            assert!(shared.0.wait_at_least(2, || false));
            assert_eq!(shared.1.load(Ordering::Relaxed), 7);
            thread.join().unwrap();
        });
    }

    #[test]
    fn a_reason_to_stop_is_never_missed() {
        loom::model(|| {
            let shared = Arc::new((Watermark::new(0), AtomicBool::new(false)));
            let other = Arc::clone(&shared);
            let thread = loom::thread::spawn(move || {
                other.1.store(true, Ordering::SeqCst);
                other.0.poke();
            });
            assert!(!shared.0.wait_at_least(1, || shared.1.load(Ordering::SeqCst)));
            thread.join().unwrap();
        });
    }
}
