//! What a worker has counted.

use super::measured::Measured;
use crate::bench::timeline::Ticks;
use hdrhistogram::Histogram;

/// A transaction that awaits its acknowledgement.
#[derive(Clone, Copy)]
pub struct Started {
    pub at_ns: u64,
    pub rolled_back: bool,
}

/// What a worker has counted within the interval.
pub struct Tally {
    /// Acknowledged at any time.
    pub transactions: u64,
    acknowledged: u64,
    rollbacks: u64,
    pub conflicts: u64,
    pub refused: u64,
    latency: Histogram<u64>,
    latency_max_ns: u64,
    pub cpu_ns: u64,
    pub ticks: Option<Ticks>,
}

impl Tally {
    pub fn new(over_time: bool) -> Self {
        let mut latency = Histogram::new(3).expect("three significant digits are supported");
        latency.auto(true);
        let ticks = over_time.then(Ticks::default);
        Tally {
            transactions: 0,
            acknowledged: 0,
            rollbacks: 0,
            conflicts: 0,
            refused: 0,
            latency,
            latency_max_ns: 0,
            cpu_ns: 0,
            ticks,
        }
    }

    #[inline]
    pub fn count(&mut self, started: Started, now: u64, begin: u64) {
        let ns = now.saturating_sub(started.at_ns);
        self.acknowledged += 1;
        self.rollbacks += u64::from(started.rolled_back);
        self.latency_max_ns = self.latency_max_ns.max(ns);
        self.latency.record(ns.max(1)).expect("the histogram resizes itself");
        if let Some(ticks) = &mut self.ticks {
            ticks.count(now - begin, ns);
        }
    }

    pub fn add(&mut self, other: &Tally) {
        self.transactions += other.transactions;
        self.acknowledged += other.acknowledged;
        self.rollbacks += other.rollbacks;
        self.conflicts += other.conflicts;
        self.refused += other.refused;
        self.cpu_ns += other.cpu_ns;
        self.latency_max_ns = self.latency_max_ns.max(other.latency_max_ns);
        self.latency.add(&other.latency).expect("both have the same precision and resize");
        if let (Some(ticks), Some(more)) = (&mut self.ticks, &other.ticks) {
            ticks.add(more);
        }
    }

    /// The result of a run of this many seconds, with the bytes of frames and to the devices.
    pub fn measured(self, seconds: f64, (log_bytes, device_bytes): (u64, u64)) -> Measured {
        Measured {
            seconds,
            transactions: self.transactions,
            acknowledged: self.acknowledged,
            rollbacks: self.rollbacks,
            conflicts: self.conflicts,
            refused: self.refused,
            latency: self.latency,
            latency_max_ns: self.latency_max_ns,
            log_bytes,
            device_bytes,
            worker_cpu_ns: None,
            busy_ns: None,
            phases: None,
            timeline: None,
            scanned: None,
        }
    }
}
