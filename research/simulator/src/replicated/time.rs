//! The time of a simulated cluster, and the clocks of the members, which run at different rates.

use hyades_platform::clock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// What the clocks show at the beginning: a moment in 2026.
const BEGAN_NS: u64 = 1_790_000_000_000_000_000;
/// No member runs.
const NONE: usize = usize::MAX;

/// A clock: how far it is ahead at the beginning, and how many nanoseconds it counts in 1,000.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockRate {
    pub ahead_ns: u64,
    pub rate: u64,
}

/// One time for all, in nanoseconds, and the member whose clock the thread sees. All of it is used
/// by one thread: Relaxed.
#[derive(Debug)]
pub(super) struct SimTime {
    now: AtomicU64,
    running: AtomicUsize,
    clocks: Vec<ClockRate>,
}

impl SimTime {
    pub fn new(clocks: Vec<ClockRate>) -> SimTime {
        let time = SimTime { now: AtomicU64::new(0), running: AtomicUsize::new(NONE), clocks };
        time.show();
        time
    }

    fn shown(&self, now: u64) -> u64 {
        match self.clocks.get(self.running.load(Relaxed)) {
            Some(clock) => BEGAN_NS + clock.ahead_ns + now * clock.rate / 1000,
            None => BEGAN_NS + now,
        }
    }

    /// Sets the thread's clocks to what the running member's clock shows.
    fn show(&self) {
        clock::simulate(Some(self.shown(self.now.load(Relaxed))));
    }

    /// The time, with the time for which the running member has slept.
    pub fn now(&self) -> u64 {
        let shown = clock::monotonic_ns() - BEGAN_NS;
        let slept_until = match self.clocks.get(self.running.load(Relaxed)) {
            // Rounded up: the clock does not go back.
            Some(clock) => (shown.saturating_sub(clock.ahead_ns) * 1000).div_ceil(clock.rate),
            None => shown,
        };
        self.now.fetch_max(slept_until, Relaxed).max(slept_until)
    }

    /// Lets time pass until `now`.
    pub fn pass_until(&self, now: u64) {
        let now = self.now().max(now);
        self.now.store(now, Relaxed);
        self.show();
    }

    /// Shows the clock of a member, until the value returned is dropped.
    pub fn run(&self, member: usize) -> RunningClock<'_> {
        self.now();
        let before = self.running.swap(member, Relaxed);
        self.show();
        RunningClock { time: self, before }
    }
}

/// See [`SimTime::run`].
pub(super) struct RunningClock<'t> {
    time: &'t SimTime,
    before: usize,
}

impl Drop for RunningClock<'_> {
    fn drop(&mut self) {
        self.time.now();
        self.time.running.store(self.before, Relaxed);
        self.time.show();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_run_at_their_rates_and_never_go_back() {
        let clocks = [953, 1047].map(|rate| ClockRate { ahead_ns: 5, rate });
        let time = SimTime::new(clocks.to_vec());
        let mut last = [0; 2];
        for step in 1..2000 {
            let member = step % 2;
            let running = time.run(member);
            assert!(clock::monotonic_ns() >= last[member], "step {step}");
            clock::sleep_until(clock::monotonic_ns() + step as u64 * 7);
            last[member] = clock::monotonic_ns();
            drop(running);
            time.pass_until(time.now() + 3);
        }
        let now = time.now();
        let shown = [0, 1].map(|member| {
            let _running = time.run(member);
            clock::monotonic_ns() - BEGAN_NS - 5
        });
        assert_eq!(shown, [now * 953 / 1000, now * 1047 / 1000]);
        clock::simulate(None);
    }
}
