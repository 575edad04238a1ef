//! Waiting until one of several lanes of the frontier has reached its number, or the lease of
//! answers is valid.
//!
//! The waiter parks a waker at each lane, and at the lease to wait for an answer, sleeps until a
//! waker is woken, and withdraws the rest, so wakers do not accumulate at a lane without progress.
//! A flusher pays nothing while no waker is parked, and wakes the waiter only when its own lane has
//! reached the wanted number.
//!
//! No wake-up is lost. Each waker is parked by the same announce-then-check as a single waker
//! (`Frontier::park`): either the raising thread finds the waker parked, or the parking thread
//! finds the lane raised; the same holds when the log stops. So once a lane is reached, the lane's
//! waker is woken, before or after the rest were parked. A waker sets `rung` before the check for a
//! sleeper, and the sleeper announces itself before the check of `rung`.

use crate::error::Poisoned;
use crate::frontier::Frontier;
use crate::lane::Lane;
use hyades_platform::broken;
use hyades_platform::event::Event;
use hyades_platform::sync::{AtomicBool, Ordering, spin_hint};
use smallvec::SmallVec;
use std::sync::Arc;
use std::task::{Wake, Waker};

/// The number of checks before a waiter sleeps, as in `Watermark`.
const SPINS: u32 = if cfg!(loom) { 0 } else { 100 };

/// Wakes one waiter on behalf of any lane. A waker taken for wake-up while the waiter withdrew it
/// may ring later, without effect.
#[derive(Debug)]
struct Alarm {
    event: Event,
    /// Set by the waking thread, read by the waiter; SeqCst against the announcement in `event`.
    rung: AtomicBool,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::SeqCst);
        self.event.notify();
    }
}

impl Alarm {
    fn wait(&self) {
        while !self.rung.load(Ordering::SeqCst) {
            let listener = self.event.listen();
            if !self.rung.load(Ordering::SeqCst) {
                listener.wait(None);
            }
        }
    }
}

impl Frontier {
    /// Blocks until a lane has reached its number. Lanes other than the positions of streams must
    /// have been requested, see [`Log::wait_any`](crate::Log::wait_any). Returns at once without
    /// lanes.
    ///
    /// # Errors
    /// The log stopped before any was reached.
    pub(crate) fn wait_any(&self, wanted: &[(Lane, u64)]) -> Result<(), Poisoned> {
        self.wait_any_or_to_answer(wanted, false)
    }

    /// As [`wait_any`](Self::wait_any); with `answers`, returns also once transactions that have
    /// only read may be acknowledged.
    ///
    /// # Errors
    /// The log stopped before.
    pub(crate) fn wait_any_or_to_answer(
        &self,
        wanted: &[(Lane, u64)],
        answers: bool,
    ) -> Result<(), Poisoned> {
        let is_reached = || {
            let mut lanes = wanted.iter();
            lanes.any(|&(lane, number)| self.at(lane) >= number) || answers && self.may_answer()
        };
        for _ in 0..SPINS {
            if is_reached() {
                return Ok(());
            }
            spin_hint();
        }
        while (!wanted.is_empty() || answers) && !is_reached() {
            if let Some(poisoned) = self.poisoned() {
                // The sync may have returned between the two checks: then the position is durable
                // anyway.
                return if is_reached() { Ok(()) } else { Err(poisoned) };
            }
            let alarm = Arc::new(Alarm { event: Event::new(), rung: AtomicBool::new(false) });
            let last = if broken!(WaitForOneLane) { 1 } else { wanted.len() };
            let waker = || Waker::from(Arc::clone(&alarm));
            let park = |&(lane, number)| self.park(lane, number, waker());
            let keys: SmallVec<[u64; 16]> = wanted.iter().take(last).map(park).collect();
            let lease_key = answers.then(|| self.park_to_answer(waker()));
            alarm.wait();
            for (&(lane, number), key) in wanted.iter().zip(keys) {
                self.withdraw(lane, number, key);
            }
            lease_key.into_iter().for_each(|key| self.withdraw_answer(key));
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// A lane never advances; the remaining two take turns to be raised first.
    #[test]
    fn every_waiter_is_woken_by_each_of_its_lanes_and_leaves_nothing_behind() {
        let frontier = Arc::new(Frontier::new(&[0, 0, 0]));
        let (woken, wakes) = channel();
        let waiter = Arc::clone(&frontier);
        let [never, first, second] = [0, 1, 2].map(Lane::position);
        let thread = std::thread::spawn(move || {
            for step in 1..=2_000 {
                waiter.wait_any(&[(never, 1), (first, step), (second, step)]).unwrap();
                woken.send(step).unwrap();
                // Wait until both have advanced.
                waiter.wait(first, step).unwrap();
                waiter.wait(second, step).unwrap();
            }
        });
        for step in 1..=2_000 {
            let stream = 1 + step as usize % 2;
            frontier.raise(stream, step, None);
            assert_eq!(wakes.recv_timeout(Duration::from_secs(20)).unwrap(), step);
            frontier.raise(3 - stream, step, None);
        }
        thread.join().unwrap();
        assert_eq!([never, first, second].map(|lane| frontier.parked(lane)), [0; 3]);
        assert!(frontier.wait_any(&[]).is_ok());
        frontier.stop("a test");
        assert!(
            frontier.wait_any(&[(never, 1), (first, 2_000)]).is_ok(),
            "one of them was reached"
        );
        assert!(frontier.wait_any(&[(never, 1), (first, 2_001)]).is_err());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use hyades_platform::sync;

    fn bounded() -> loom::model::Builder {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model
    }

    /// A sleeper without a wake-up would spin for ever, which loom reports.
    #[test]
    fn the_first_of_several_lanes_wakes() {
        for first in [0, 1] {
            bounded().check(move || {
                let frontier = sync::Arc::new(Frontier::new(&[0, 0]));
                let other = sync::Arc::clone(&frontier);
                let thread = loom::thread::spawn(move || other.raise(first, 5, None));
                assert!(
                    frontier.wait_any(&[0, 1].map(|stream| (Lane::position(stream), 5))).is_ok()
                );
                assert_eq!(frontier.durable(first), 5);
                thread.join().unwrap();
                assert_eq!([0, 1].map(|s| frontier.parked(Lane::position(s))), [0, 0]);
            });
        }
    }

    /// Two flushers raise their lanes concurrently, the first to the wanted number and the second
    /// to less.
    #[test]
    fn two_flushers_wake_one_waiter() {
        bounded().check(|| {
            let frontier = sync::Arc::new(Frontier::new(&[0, 0]));
            let flusher = |stream: usize, to: u64| {
                let frontier = sync::Arc::clone(&frontier);
                loom::thread::spawn(move || frontier.raise(stream, to, None))
            };
            let flushers = [flusher(0, 4), flusher(1, 5)];
            assert!(frontier.wait_any(&[0, 1].map(|stream| (Lane::position(stream), 5))).is_ok());
            assert_eq!(frontier.durable(1), 5);
            flushers.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    #[test]
    fn the_stop_of_the_log_wakes() {
        bounded().check(|| {
            let frontier = sync::Arc::new(Frontier::new(&[0, 0]));
            let other = sync::Arc::clone(&frontier);
            let thread = loom::thread::spawn(move || other.stop("a test"));
            assert!(frontier.wait_any(&[0, 1].map(|stream| (Lane::position(stream), 5))).is_err());
            thread.join().unwrap();
        });
    }
}
