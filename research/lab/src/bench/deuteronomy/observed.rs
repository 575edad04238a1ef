//! What a run observes of its operations, for figures: how long they take, which keys they touch,
//! and how memory and throughput develop.

use super::counted::{Times, no_times};
use super::keys::{Access, KEY_BYTES, KeysAndValues};
use crate::bench::measured::Interval;
use hyades_deuteronomy::Database;
use hyades_platform::clock::monotonic_ns;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Of each worker one transaction in this many is timed.
const TIMED_EVERY: u64 = 16;
/// Moments at which a run is looked at, and the least time between two of them.
const MOMENTS: u64 = 60;
const LEAST_STEP_NS: u64 = 4_000_000;

/// The quantiles of a distribution that are reported.
const QUANTILES: [f64; 19] = [
    0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999,
    0.9999, 1.0,
];

/// Latencies.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Distribution {
    /// The mean in microseconds.
    pub mean_us: f64,
    /// Microseconds, and the share of operations that take no longer.
    pub points: Vec<(f64, f64)>,
}

/// The state of a run at a moment.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Moment {
    /// Seconds since the begin of the warm-up.
    pub seconds: f64,
    /// Transactions acknowledged per second since the moment before.
    pub acknowledged_per_s: f64,
    /// Bytes that versions take in memory.
    pub version_bytes: u64,
    /// The share of the workers' time since then that went into making room for versions.
    pub collecting_share: f64,
    /// Accesses to keys so far, over the number of keys.
    pub accesses_per_key: f64,
    /// The share of keys that were accessed.
    pub touched_share: f64,
}

/// The observations of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// Reads of single keys by transactions; null without any.
    pub reads: Option<Distribution>,
    /// Writes by transactions, before they commit; null without any.
    pub writes: Option<Distribution>,
    /// Reads of single keys of the data component; null without any.
    pub dc_gets: Option<Distribution>,
    /// Operations applied to the data component, each its share of its batch; null without any.
    pub dc_applies: Option<Distribution>,
    /// The share of reads that are faster than nearly all of those of the data component (its 5th
    /// percentile); null where that was not read.
    pub fast_reads: Option<f64>,
    /// The share of writes that are faster than the median of an operation applied to the data
    /// component; null without these.
    pub fast_writes: Option<f64>,
    /// The share of the workers' time that went into making room for versions.
    pub collecting_share: f64,
    /// The run over time, from the begin of its warm-up.
    pub over_time: Vec<Moment>,
}

/// The observations of all workers: counters without an order, hence Relaxed.
pub struct Observer {
    /// A bit for each key.
    touched: Box<[AtomicU64]>,
    keys: u64,
    accesses: AtomicU64,
    acknowledged: AtomicU64,
}

/// How long the operations of a worker take.
pub struct OperationTimes {
    reads: Times,
    writes: Times,
    /// Transactions so far.
    transactions: u64,
}

impl OperationTimes {
    pub fn new() -> Self {
        Self { reads: no_times(), writes: no_times(), transactions: 0 }
    }

    /// Counts a transaction; whether it is to be timed.
    pub fn is_timed(&mut self) -> bool {
        self.transactions += 1;
        self.transactions.is_multiple_of(TIMED_EVERY)
    }

    /// Forgets what took how long until now: the warm-up.
    pub fn forget(&mut self) {
        *self = Self { transactions: self.transactions, ..Self::new() };
    }

    /// Adds the observations of another worker.
    pub fn add(&mut self, other: &Self) {
        let fits = "both have the same precision and resize";
        self.reads.add(&other.reads).expect(fits);
        self.writes.add(&other.writes).expect(fits);
    }
}

/// A transaction, with its operations timed.
pub struct TimedOperations<'t, S: ?Sized> {
    pub on: &'t mut S,
    pub times: &'t mut OperationTimes,
}

fn note(times: &mut Times, began: u64) {
    let took = (monotonic_ns() - began).max(1);
    times.record(took).expect("the histogram resizes itself");
}

impl<S: KeysAndValues + ?Sized> KeysAndValues for TimedOperations<'_, S> {
    type Error = S::Error;

    fn prefetch(&mut self, keys: &[[u8; KEY_BYTES]]) {
        self.on.prefetch(keys);
    }

    fn read(&mut self, key: &[u8]) -> Result<bool, S::Error> {
        let began = monotonic_ns();
        let read = self.on.read(key);
        note(&mut self.times.reads, began);
        read
    }

    fn write(&mut self, key: &[u8], value: &[u8]) -> Result<(), S::Error> {
        let began = monotonic_ns();
        let written = self.on.write(key, value);
        note(&mut self.times.writes, began);
        written
    }

    fn modify(&mut self, key: &[u8], value: &[u8]) -> Result<(), S::Error> {
        let began = monotonic_ns();
        let written = self.on.modify(key, value);
        note(&mut self.times.writes, began);
        written
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), S::Error> {
        let began = monotonic_ns();
        let written = self.on.insert(key, value);
        note(&mut self.times.writes, began);
        written
    }

    fn scan(&mut self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<usize, S::Error> {
        self.on.scan(from, to, limit)
    }
}

impl Observer {
    /// Of a population of this many keys.
    pub fn new(keys: u64) -> Self {
        let words = keys.div_ceil(64);
        Self {
            touched: (0..words).map(|_| AtomicU64::new(0)).collect(),
            keys,
            accesses: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
        }
    }

    /// Notes the keys of a transaction's accesses, without those of scans.
    pub fn touch(&self, accesses: &[Access]) {
        let rows = accesses.iter().filter_map(|access| access.row());
        for row in rows.filter(|row| *row < self.keys) {
            let (word, bit) = (&self.touched[(row / 64) as usize], 1 << (row % 64));
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
        self.accesses.fetch_add(accesses.len() as u64, Ordering::Relaxed);
    }

    /// Counts an acknowledged transaction.
    pub fn acknowledge(&self) {
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
    }

    /// Looks at the run until its end.
    pub(super) fn watch(
        &self,
        database: &Database,
        interval: Interval,
        workers: usize,
    ) -> Vec<Moment> {
        let step = ((interval.end - interval.start) / MOMENTS).max(LEAST_STEP_NS);
        let (mut moments, mut then) = (Vec::new(), interval.start + step);
        let look = || {
            let acknowledged = self.acknowledged.load(Ordering::Relaxed);
            (monotonic_ns(), acknowledged, database.stats().collecting.as_nanos() as u64)
        };
        let mut before = look();
        while then <= interval.end {
            let now = monotonic_ns();
            std::thread::sleep(Duration::from_nanos(then.saturating_sub(now)));
            let after = look();
            let ns = (after.0 - before.0).max(1) as f64;
            let touched = self.touched.iter().map(|word| word.load(Ordering::Relaxed).count_ones());
            let keys = self.keys as f64;
            moments.push(Moment {
                seconds: (after.0 - interval.start) as f64 / 1e9,
                acknowledged_per_s: (after.1 - before.1) as f64 / ns * 1e9,
                version_bytes: database.stats().version_bytes as u64,
                collecting_share: (after.2 - before.2) as f64 / ns / workers as f64,
                accesses_per_key: self.accesses.load(Ordering::Relaxed) as f64 / keys,
                touched_share: touched.map(u64::from).sum::<u64>() as f64 / keys,
            });
            (before, then) = (after, then + step);
        }
        moments
    }
}

fn distribution(times: &Times) -> Option<Distribution> {
    let us = |ns: f64| ns / 1e3;
    let point = |share: f64| (us(times.value_at_quantile(share) as f64), share);
    (!times.is_empty())
        .then(|| Distribution { mean_us: us(times.mean()), points: QUANTILES.map(point).to_vec() })
}

/// The share of the first that is below a quantile of the second.
fn share_below(times: &Times, reference: &Times, quantile: f64) -> Option<f64> {
    let both = !times.is_empty() && !reference.is_empty();
    both.then(|| times.quantile_below(reference.value_at_quantile(quantile)))
}

/// Puts together what was observed. `data` has the times of gets and of applied operations.
pub fn observed(
    own: &OperationTimes,
    data: &(Times, Times),
    collecting_share: f64,
    over_time: Vec<Moment>,
) -> Observed {
    Observed {
        reads: distribution(&own.reads),
        writes: distribution(&own.writes),
        dc_gets: distribution(&data.0),
        dc_applies: distribution(&data.1),
        fast_reads: share_below(&own.reads, &data.0, 0.05),
        fast_writes: share_below(&own.writes, &data.1, 0.5),
        collecting_share,
        over_time,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(nanoseconds: &[u64]) -> Times {
        let mut times = no_times();
        nanoseconds.iter().for_each(|ns| times.record(*ns).unwrap());
        times
    }

    #[test]
    fn keys_are_counted_once_and_accesses_always() {
        let observer = Observer::new(100);
        observer.touch(&[Access::Read(3), Access::Write(99, 1), Access::Read(3)]);
        observer.touch(&[Access::Insert(100, 1), Access::Scan(5, 5)]);
        let touched = observer.touched.iter().map(|word| word.load(Ordering::Relaxed).count_ones());
        assert_eq!(touched.sum::<u32>(), 2);
        assert_eq!(observer.accesses.into_inner(), 5);
    }

    #[test]
    fn reads_below_those_of_the_data_component_are_fast() {
        let own = OperationTimes { reads: times(&[10, 10, 10, 900]), ..OperationTimes::new() };
        let found = observed(&own, &(times(&[500, 800]), no_times()), 0.5, Vec::new());
        assert_eq!(found.fast_reads, Some(0.75));
        assert!(found.fast_writes.is_none() && found.writes.is_none());
        let reads = found.reads.unwrap();
        assert!(reads.points.windows(2).all(|two| two[0].0 <= two[1].0));
        assert_eq!(reads.points.last().unwrap().1, 1.0);
    }
}
