//! Serial fallback (Taurus, sections 3.5 and 5.5): where records mostly wait for each other, a
//! single thread without handovers replays faster than many.
//!
//! The fallback is measured, not predicted. Replay is divided into windows. After a window with the
//! threads idle for more than half of their time, the next few windows are a *trial*: one thread
//! replays, the other threads rest. If the median speed of the trial is above the median of as many
//! windows with all threads, replay stays serial for a number of windows, and then tries all
//! threads again, for the log may have changed. If not, there is no further trial for as many
//! windows. With each repeated answer the number doubles. The first windows are short, so a short
//! log has a trial, too.

use hyades_platform::sync::Unpoisoned;
use hyades_platform::{clock, event};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The length of a window: hundreds of records, and many times the sleep of a thread without work.
/// Short where assertions are checked, so tests reach its end.
const WINDOW_NS: u64 = if cfg!(debug_assertions) { 300_000 } else { 10_000_000 };

/// The length of the first windows, and their number: a trial is over after a few milliseconds.
const FIRST_WINDOW_NS: u64 = WINDOW_NS / 10;
const FIRST_WINDOWS: u32 = 32;

/// Number of parallel windows compared with as many trial windows: the speed of a single window
/// depends on its records, and on other work of the machine.
const COMPARED: usize = 3;

/// Windows from a trial to the next, at first and at most.
const PERIOD: u32 = 8;
const LONGEST_PERIOD: u32 = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Parallel,
    /// One thread replays for a window.
    Trial,
    /// One thread replays until the next check of all threads.
    Alone,
}

/// The speeds of the last windows of a kind, in bytes per nanosecond.
#[derive(Debug, Default)]
struct Rates {
    last: [f64; COMPARED],
    seen: usize,
}

impl Rates {
    fn push(&mut self, rate: f64) {
        self.last[self.seen % COMPARED] = rate;
        self.seen += 1;
    }

    /// Returns the median, once there are `COMPARED` speeds.
    fn median(&self) -> Option<f64> {
        let mut sorted = self.last;
        sorted.sort_by(f64::total_cmp);
        (self.seen >= COMPARED).then_some(sorted[COMPARED / 2])
    }
}

#[derive(Debug)]
struct Course {
    mode: Mode,
    window_began_ns: u64,
    /// Windows that have ended.
    windows: u32,
    /// Resolved bytes at the beginning of the window.
    resolved: u64,
    /// Speeds of windows with all threads, since the last trial.
    parallel: Rates,
    /// Speeds of the windows of this trial.
    trial: Rates,
    /// Number of further windows without a change of the mode.
    left: u32,
    period: u32,
    /// The last answer: whether serial was faster.
    was_faster: bool,
}

/// Decides when one thread replays alone.
#[derive(Debug)]
pub(super) struct SerialFallback {
    threads: u64,
    /// Written by the first thread, read by all threads: Relaxed, since threads stop and go on at
    /// leisure.
    alone: AtomicBool,
    /// Idle time of all threads in this window. Relaxed: a measurement.
    idle_ns: AtomicU64,
    /// Time in which one thread replayed alone.
    alone_ns: AtomicU64,
    course: Mutex<Course>,
}

impl SerialFallback {
    pub fn new(threads: usize) -> SerialFallback {
        SerialFallback {
            threads: threads as u64,
            alone: AtomicBool::new(false),
            idle_ns: AtomicU64::new(0),
            alone_ns: AtomicU64::new(0),
            course: Mutex::new(Course {
                mode: Mode::Parallel,
                window_began_ns: clock::monotonic_ns(),
                windows: 0,
                resolved: 0,
                parallel: Rates::default(),
                trial: Rates::default(),
                left: 0,
                period: PERIOD,
                was_faster: false,
            }),
        }
    }

    /// Whether the thread with this number rests.
    pub fn rests(&self, number: usize) -> bool {
        number > 0 && self.alone.load(Ordering::Relaxed)
    }

    /// Rests for a while.
    pub fn rest(&self) {
        std::thread::sleep(Duration::from_nanos(FIRST_WINDOW_NS / 2));
    }

    /// Notes that a thread has had nothing to do since `then_ns`.
    pub fn was_idle_since(&self, then_ns: u64) {
        self.idle_ns.fetch_add(clock::monotonic_ns() - then_ns, Ordering::Relaxed);
    }

    /// Called by the first thread again and again. `resolved` returns the number of resolved bytes.
    pub fn look(&self, resolved: impl FnOnce() -> u64) {
        let now = clock::monotonic_ns();
        let mut course = self.course.lock().unpoisoned();
        let took = now.saturating_sub(course.window_began_ns);
        let is_first = course.windows < FIRST_WINDOWS;
        if took >= if is_first { FIRST_WINDOW_NS } else { WINDOW_NS } {
            let idle = self.idle_ns.swap(0, Ordering::Relaxed);
            self.end_window(&mut course, took, idle, resolved());
            course.window_began_ns = now;
        }
    }

    fn end_window(&self, course: &mut Course, took_ns: u64, idle_ns: u64, resolved: u64) {
        let rate = resolved.saturating_sub(course.resolved) as f64 / took_ns as f64;
        course.resolved = resolved;
        course.windows = course.windows.saturating_add(1);
        if course.mode != Mode::Parallel {
            self.alone_ns.fetch_add(took_ns, Ordering::Relaxed);
        }
        course.left = course.left.saturating_sub(1);
        course.mode = match course.mode {
            Mode::Parallel => {
                course.parallel.push(rate);
                let mostly_idle = idle_ns * 2 > took_ns * self.threads;
                let is_due = mostly_idle && course.left == 0 && course.parallel.median().is_some();
                if is_due { Mode::Trial } else { Mode::Parallel }
            }
            Mode::Trial => {
                course.trial.push(rate);
                let medians = course.trial.median().zip(course.parallel.median());
                medians.map_or(Mode::Trial, |(alone, all)| self.decide(course, alone > all))
            }
            Mode::Alone if course.left > 0 => Mode::Alone,
            Mode::Alone => Mode::Parallel,
        };
        self.alone.store(course.mode != Mode::Parallel, Ordering::Relaxed);
    }

    /// Ends a trial.
    fn decide(&self, course: &mut Course, is_faster: bool) -> Mode {
        course.period = match is_faster == course.was_faster {
            true => (2 * course.period).min(LONGEST_PERIOD),
            false => PERIOD,
        };
        course.was_faster = is_faster;
        course.left = course.period;
        (course.trial, course.parallel) = Default::default();
        event!(DEBUG, "replay tried one thread", faster = is_faster);
        if is_faster { Mode::Alone } else { Mode::Parallel }
    }

    /// Returns the time of replay by one thread, in nanoseconds, up to the last window.
    pub fn alone_ns(&self) -> u64 {
        self.alone_ns.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends windows of a millisecond on two threads, each with its resolved bytes and the threads'
    /// idle share; returns whether replay is serial after each.
    fn run(fallback: &SerialFallback, windows: &[(u64, f64)]) -> Vec<bool> {
        let mut course = fallback.course.lock().unwrap();
        let mut after = Vec::new();
        for (resolved, idle) in windows {
            let to = course.resolved + resolved;
            fallback.end_window(&mut course, 1_000_000, (idle * 2e6) as u64, to);
            assert!(!fallback.rests(0), "one thread always replays");
            after.push(fallback.rests(1));
        }
        after
    }

    #[test]
    fn busy_threads_are_left_alone() {
        let fallback = SerialFallback::new(2);
        let windows = [(1000, 0.1), (1, 0.5), (0, 0.5), (0, 0.5), (0, 0.5)];
        assert_eq!(run(&fallback, &windows), [false; 5]);
        assert_eq!(fallback.alone_ns(), 0);
    }

    #[test]
    fn idle_threads_rest_where_one_is_faster() {
        let fallback = SerialFallback::new(2);
        // Trial, and serial from then on.
        assert_eq!(run(&fallback, &[(1000, 0.6); COMPARED]), [false, false, true]);
        assert_eq!(run(&fallback, &[(1001, 0.0); COMPARED]), [true; COMPARED]);
        let alone = run(&fallback, &[(1001, 0.0); PERIOD as usize]);
        let (last, before) = alone.split_last().unwrap();
        assert!(before.iter().all(|is| *is), "it stays so for a period");
        assert!(!last, "then all threads are tried again");
        // All threads are slower again: the next period is longer.
        assert_eq!(run(&fallback, &[(900, 0.9); COMPARED]), [false, false, true]);
        assert_eq!(run(&fallback, &[(1001, 0.0); COMPARED]), [true; COMPARED]);
        assert!(run(&fallback, &[(1001, 0.0); 2 * PERIOD as usize - 1]).iter().all(|is| *is));
        assert_eq!(run(&fallback, &[(1001, 0.0)]), [false]);
        assert_eq!(fallback.alone_ns(), (2 * COMPARED as u64 + 3 * u64::from(PERIOD)) * 1_000_000);
    }

    #[test]
    fn a_trial_that_fails_is_not_repeated_soon() {
        let fallback = SerialFallback::new(2);
        run(&fallback, &[(1000, 0.9); COMPARED]);
        assert_eq!(run(&fallback, &[(1000, 0.0); COMPARED]), [true, true, false]);
        let idle = [(1000, 0.9); 2 * PERIOD as usize];
        let after = run(&fallback, &idle);
        let first = after.iter().position(|is| *is).expect("it is tried again");
        assert_eq!(first, 2 * PERIOD as usize - 1, "the same answer doubles the period");
    }

    /// A single window with the processor taken by another program decides nothing.
    #[test]
    fn a_single_window_decides_nothing() {
        for (parallel, alone, rests) in [
            // All threads are faster, except in one window; then one thread is faster, except in
            // one window.
            ([1000, 10, 1000], [500, 500, 500], false),
            ([1000, 1000, 1000], [500, 5000, 500], false),
            ([500, 5000, 500], [1000, 1000, 1000], true),
            ([500, 500, 500], [1000, 1000, 10], true),
        ] {
            let fallback = SerialFallback::new(2);
            run(&fallback, &parallel.map(|rate| (rate, 0.9)));
            let after = run(&fallback, &alone.map(|rate| (rate, 0.0)));
            assert_eq!(after, [true, true, rests], "{parallel:?} against {alone:?}");
        }
    }
}
