//! A run: its parameters, its times and its results.

use super::posting::Posting;
use super::scanners::{Scanned, Scanning};
use super::timeline::Timeline;
use hdrhistogram::Histogram;
use hyades_cli::progress::Bar;
use hyades_cli::units;
use hyades_platform::clock::monotonic_ns;
use hyades_platform::phase::PhaseTimes;
use std::path::PathBuf;
use std::time::Duration;

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Drive {
    /// Worker threads.
    pub workers: usize,
    /// Transactions per worker awaiting acknowledgement.
    pub in_flight: usize,
    /// Offered load per second over all workers; a closed loop if none.
    pub rate: Option<f64>,
    /// Seconds before the measured interval.
    pub warmup: f64,
    /// The measured interval in seconds.
    pub seconds: f64,
    /// The seed of the inputs.
    pub seed: u64,
    /// Whether to measure the workers' processor time.
    pub processor_time: bool,
    /// Whether to measure the phases of transactions.
    pub phases: bool,
    /// The log directories, whose size is sampled, if a timeline is wanted.
    pub timeline: Option<Vec<PathBuf>>,
    /// Scans beside the workload.
    pub scanning: Scanning,
    /// Whether workers post their calls.
    pub posting: Posting,
}

impl Drive {
    /// The seed of a worker's inputs.
    pub fn worker_seed(&self, number: usize) -> u64 {
        self.seed.wrapping_mul(0x9E37_79B9).wrapping_add(number as u64)
    }
}

/// Results of a run.
pub struct Measured {
    /// The measured interval in seconds.
    pub seconds: f64,
    /// Transactions acknowledged at any time, before and after the interval too; 0 where these are
    /// not counted.
    #[cfg_attr(not(feature = "replication"), expect(dead_code, reason = "of runs with standbys"))]
    pub transactions: u64,
    /// Transactions acknowledged within the interval.
    pub acknowledged: u64,
    /// Rollbacks among them.
    pub rollbacks: u64,
    /// Attempts within the interval that met a conflict.
    pub conflicts: u64,
    /// Posted calls within the interval that were refused.
    pub refused: u64,
    /// Nanoseconds from the first attempt, or the scheduled start, to the acknowledgement.
    pub latency: Histogram<u64>,
    /// The longest latency, which the histogram rounds.
    pub latency_max_ns: u64,
    /// Bytes of frames made durable within the interval.
    pub log_bytes: u64,
    /// Bytes written to the devices within the interval.
    pub device_bytes: u64,
    /// Processor time of all workers within the interval, in nanoseconds, if measured.
    pub worker_cpu_ns: Option<u64>,
    /// Processor time within the interval, in nanoseconds: of the workers, and of all threads of
    /// the process; none if it was not measured.
    pub busy_ns: Option<(u64, u64)>,
    /// The phases of transactions, if measured.
    pub phases: Option<PhaseTimes>,
    /// The timeline, if wanted.
    pub timeline: Option<Timeline>,
    /// What the scanners did, if there were any.
    pub scanned: Option<Scanned>,
}

/// The times of a run, in nanoseconds of the monotonic clock.
#[derive(Clone, Copy)]
pub struct Interval {
    /// The start of the warm-up.
    pub start: u64,
    /// The begin of the measured interval.
    pub begin: u64,
    /// The end of the measured interval.
    pub end: u64,
}

impl Interval {
    /// The interval of a run that starts now, or then.
    pub fn new(start: u64, drive: &Drive) -> Self {
        let begin = start + (drive.warmup * 1e9) as u64;
        Interval { start, begin, end: begin + (drive.seconds * 1e9) as u64 }
    }

    /// Sleeps until then, and shows how far the run is.
    pub fn sleep_until(&self, bar: &Bar, then: u64) {
        loop {
            let now = monotonic_ns();
            bar.set((now - self.start) / 1_000_000);
            if now >= then {
                return;
            }
            std::thread::sleep(Duration::from_nanos((then - now).min(100_000_000)));
        }
    }

    /// A bar for the run.
    pub fn bar(&self) -> Bar {
        Bar::new("running", (self.end - self.start) / 1_000_000)
    }

    /// Says that the run has ended.
    pub fn finish(&self, bar: &Bar) {
        let seconds = (self.end - self.start) as f64 / 1e9;
        bar.finish(&format!("ran for {}", units::time(seconds)));
    }
}
