//! Where the time of transactions goes: time of a thread by phase, of a sample of the attempts.
//!
//! Measured only with the feature `phases`, after [`start`]. Without the feature the guards are
//! empty; before [`start`] an attempt costs the read of a flag.
//!
//! Phases are exclusive: the time of a phase inside another one counts for the inner phase. The
//! reads of the counter are calibrated, and their time is taken off. An attempt during which the
//! thread lost its processor is left out.

/// What a thread does for a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// The procedure or closure itself, and what no other phase has.
    Logic,
    /// Finding rows, and changing indexes.
    Index,
    /// Concurrency control: reading rows, locks, validation, installation.
    Control,
    /// The logging protocol's data about rows: reading and raising their stamps.
    Tracking,
    /// What the protocol adds to the record: a vector, a list, or a number, with the latch under
    /// which a number is drawn.
    Stamp,
    /// Encoding the record.
    Record,
    /// Taking a place in the log.
    Place,
    /// Filling a frame in the buffer of the log.
    Buffer,
    /// Waiting for room in the buffer.
    Wait,
}

impl Phase {
    /// All phases, in the order of their numbers.
    pub const ALL: [Phase; 9] = [
        Phase::Logic,
        Phase::Index,
        Phase::Control,
        Phase::Tracking,
        Phase::Stamp,
        Phase::Record,
        Phase::Place,
        Phase::Buffer,
        Phase::Wait,
    ];

    /// The name of the phase in figures.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Logic => "logic",
            Phase::Index => "index",
            Phase::Control => "control",
            Phase::Tracking => "tracking",
            Phase::Stamp => "stamp",
            Phase::Record => "record",
            Phase::Place => "place",
            Phase::Buffer => "buffer",
            Phase::Wait => "wait",
        }
    }
}

/// The measured attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PhaseTimes {
    /// Attempts in the sample.
    pub attempts: u64,
    /// Attempts left out, since the thread lost its processor.
    pub interrupted: u64,
    /// Mean time of an attempt by phase, in nanoseconds, in the order of [`Phase::ALL`].
    pub ns: [f64; Phase::ALL.len()],
}

#[cfg(feature = "phases")]
pub use sampled::{AttemptGuard, PhaseGuard, attempt, enter, start, stop};
#[cfg(not(feature = "phases"))]
pub use unmeasured::{AttemptGuard, PhaseGuard, attempt, enter, start, stop};

/// Whether this build measures phases.
pub const MEASURED: bool = cfg!(feature = "phases");

#[cfg(not(feature = "phases"))]
mod unmeasured {
    use super::{Phase, PhaseTimes};

    /// Ends an attempt when dropped.
    #[derive(Debug)]
    pub struct AttemptGuard;

    /// Returns to the phase before when dropped.
    #[derive(Debug)]
    pub struct PhaseGuard;

    // As with the feature, so that a caller may end a phase by a drop.
    impl Drop for PhaseGuard {
        #[inline(always)]
        fn drop(&mut self) {}
    }

    /// Begins an attempt of a transaction.
    #[inline(always)]
    pub fn attempt() -> AttemptGuard {
        AttemptGuard
    }

    /// Enters a phase.
    #[inline(always)]
    pub fn enter(_: Phase) -> PhaseGuard {
        PhaseGuard
    }

    /// Measures nothing.
    pub fn start() {}

    /// Nothing was measured.
    pub fn stop() -> PhaseTimes {
        PhaseTimes::default()
    }
}

#[cfg(feature = "phases")]
mod sampled {
    use super::{Phase, PhaseTimes};
    use crate::clock::thread_cpu_ns;
    use quanta::Clock;
    use std::cell::Cell;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    const PHASES: usize = Phase::ALL.len();
    /// One attempt in this many is measured: a prime, so that no pattern of transactions is missed.
    const EVERY: u32 = 61;
    /// Not in a measured attempt.
    const NONE: u8 = u8::MAX;
    /// Reads of the counter for the calibration.
    const READS: u64 = 10_000;
    /// Time without the processor, in nanoseconds, from which on an attempt counts as interrupted:
    /// well above what the reads of the two clocks differ by.
    const INTERRUPTED_NS: u64 = 5_000;

    static ENABLED: AtomicBool = AtomicBool::new(false);
    static CLOCK: OnceLock<Clock> = OnceLock::new();
    // Relaxed throughout: sums, read after the measured threads have ended.
    static ATTEMPTS: AtomicU64 = AtomicU64::new(0);
    static INTERRUPTED: AtomicU64 = AtomicU64::new(0);
    static TICKS: [AtomicU64; PHASES] = [const { AtomicU64::new(0) }; PHASES];
    static READS_OF: [AtomicU64; PHASES] = [const { AtomicU64::new(0) }; PHASES];

    /// The attempt of a thread.
    struct Sample {
        phase: Cell<u8>,
        /// The counter when the phase was entered or entered again.
        since: Cell<u64>,
        /// Attempts until the next one that is measured.
        left: Cell<u32>,
        ticks: [Cell<u64>; PHASES],
        reads: [Cell<u64>; PHASES],
    }

    thread_local! {
        static SAMPLE: Sample = const {
            Sample {
                phase: Cell::new(NONE),
                since: Cell::new(0),
                left: Cell::new(0),
                ticks: [const { Cell::new(0) }; PHASES],
                reads: [const { Cell::new(0) }; PHASES],
            }
        };
    }

    fn clock() -> &'static Clock {
        CLOCK.get_or_init(Clock::new)
    }

    impl Sample {
        /// Counts the time since the last read of the counter for the phase, and goes on in `next`.
        fn change(&self, next: u8) {
            let now = clock().raw();
            let at = usize::from(self.phase.replace(next));
            self.ticks[at].set(self.ticks[at].get() + now.saturating_sub(self.since.get()));
            self.reads[at].set(self.reads[at].get() + 1);
            self.since.set(now);
        }
    }

    /// Ends an attempt when dropped.
    #[derive(Debug)]
    pub struct AttemptGuard {
        /// The thread's processor time at the beginning of a measured attempt.
        cpu_ns: Option<u64>,
    }

    /// Begins an attempt of a transaction.
    #[inline(always)]
    pub fn attempt() -> AttemptGuard {
        AttemptGuard { cpu_ns: if ENABLED.load(Ordering::Relaxed) { begin() } else { None } }
    }

    #[inline(never)]
    fn begin() -> Option<u64> {
        SAMPLE.with(|sample| {
            let left = sample.left.get();
            sample.left.set(left.checked_sub(1).unwrap_or(EVERY - 1));
            if left > 0 || sample.phase.get() != NONE {
                return None;
            }
            let cpu_ns = thread_cpu_ns();
            sample.phase.set(Phase::Logic as u8);
            sample.since.set(clock().raw());
            Some(cpu_ns)
        })
    }

    impl Drop for AttemptGuard {
        #[inline(always)]
        fn drop(&mut self) {
            if let Some(cpu_ns) = self.cpu_ns {
                end(cpu_ns);
            }
        }
    }

    #[inline(never)]
    fn end(cpu_ns: u64) {
        SAMPLE.with(|sample| {
            sample.change(NONE);
            let cpu_ns = thread_cpu_ns() - cpu_ns;
            let (mut ticks, mut reads) = ([0; PHASES], [0; PHASES]);
            for at in 0..PHASES {
                (ticks[at], reads[at]) = (sample.ticks[at].take(), sample.reads[at].take());
            }
            let passed = clock().delta_as_nanos(0, ticks.iter().sum());
            // Waiting is without the processor, too.
            let waited = clock().delta_as_nanos(0, ticks[Phase::Wait as usize]);
            if passed.saturating_sub(waited) > cpu_ns + INTERRUPTED_NS {
                INTERRUPTED.fetch_add(1, Ordering::Relaxed);
                return;
            }
            ATTEMPTS.fetch_add(1, Ordering::Relaxed);
            for at in 0..PHASES {
                TICKS[at].fetch_add(ticks[at], Ordering::Relaxed);
                READS_OF[at].fetch_add(reads[at], Ordering::Relaxed);
            }
        });
    }

    /// Returns to the phase before when dropped.
    #[derive(Debug)]
    pub struct PhaseGuard {
        before: u8,
    }

    /// Enters a phase.
    #[inline(always)]
    pub fn enter(phase: Phase) -> PhaseGuard {
        SAMPLE.with(|sample| {
            let before = sample.phase.get();
            if before != NONE {
                sample.change(phase as u8);
            }
            PhaseGuard { before }
        })
    }

    impl Drop for PhaseGuard {
        #[inline(always)]
        fn drop(&mut self) {
            if self.before != NONE {
                SAMPLE.with(|sample| sample.change(self.before));
            }
        }
    }

    /// Begins to measure, from zero.
    pub fn start() {
        for at in 0..PHASES {
            TICKS[at].store(0, Ordering::Relaxed);
            READS_OF[at].store(0, Ordering::Relaxed);
        }
        ATTEMPTS.store(0, Ordering::Relaxed);
        INTERRUPTED.store(0, Ordering::Relaxed);
        // Calibrates the clock.
        clock();
        ENABLED.store(true, Ordering::Relaxed);
    }

    /// Ends the measurement, once no attempt is under way.
    pub fn stop() -> PhaseTimes {
        ENABLED.store(false, Ordering::Relaxed);
        let clock = clock();
        let begin = clock.raw();
        let last = (0..READS).fold(begin, |last, _| clock.raw().max(last));
        let read = (last - begin) as f64 / READS as f64;
        let attempts = ATTEMPTS.load(Ordering::Relaxed);
        let ns_of_tick = clock.delta_as_nanos(0, 1 << 30) as f64 / f64::from(1 << 30);
        let mean = |at: usize| {
            let [ticks, reads] = [&TICKS[at], &READS_OF[at]].map(|sum| sum.load(Ordering::Relaxed));
            let own = ticks as f64 - read * reads as f64;
            own.max(0.0) * ns_of_tick / attempts.max(1) as f64
        };
        let interrupted = INTERRUPTED.load(Ordering::Relaxed);
        PhaseTimes { attempts, interrupted, ns: std::array::from_fn(mean) }
    }
}

#[cfg(all(test, feature = "phases", not(loom)))]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn spin(us: u64) {
        let began = Instant::now();
        while began.elapsed() < Duration::from_micros(us) {
            std::hint::spin_loop();
        }
    }

    /// Time counts for the innermost phase, after the phase ends for the one around; waiting is no
    /// interruption. One attempt in 61 is measured.
    #[test]
    fn time_counts_for_the_innermost_phase() {
        start();
        for _ in 0..50 * 61 {
            let _attempt = attempt();
            spin(10);
            let _control = enter(Phase::Control);
            spin(20);
            {
                let _index = enter(Phase::Index);
                spin(40);
            }
            spin(20);
        }
        let times = stop();
        assert_eq!(times.attempts + times.interrupted, 50);
        assert!(times.attempts > 0, "{times:?}");
        let ns = |phase: Phase| times.ns[phase as usize];
        for (phase, us) in [(Phase::Logic, 10.0), (Phase::Control, 40.0), (Phase::Index, 40.0)] {
            let found = ns(phase) / 1000.0;
            assert!((us * 0.9..us * 1.5 + 2.0).contains(&found), "{phase:?}: {times:?}");
        }
        assert_eq!(ns(Phase::Record), 0.0);
        // Nothing is measured any more.
        drop(attempt());
        assert_eq!(stop().attempts, times.attempts);
    }
}
