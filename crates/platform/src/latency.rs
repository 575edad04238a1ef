//! Histograms of durations.

use std::sync::atomic::{AtomicU64, Ordering};

/// The upper bounds of the buckets in nanoseconds, from 10 us to 1,000 s. A further bucket holds
/// longer durations.
pub const LATENCY_BOUNDS_NS: [u64; 25] = bounds();

const fn bounds() -> [u64; 25] {
    let mut out = [0; 25];
    let (mut at, mut decade) = (0, 10_000);
    while at < out.len() {
        out[at] = decade * [1, 2, 5][at % 3];
        if at % 3 == 2 {
            decade *= 10;
        }
        at += 1;
    }
    out
}

/// A histogram that any thread adds to. Relaxed: each counter is independent.
#[derive(Debug, Default)]
pub struct LatencyHistogram {
    counts: [AtomicU64; LATENCY_BOUNDS_NS.len() + 1],
    sum_ns: AtomicU64,
}

/// The counts of a [`LatencyHistogram`] at a point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyCounts {
    /// Durations by bucket: at most the bound in [`LATENCY_BOUNDS_NS`], above the bound before.
    pub counts: [u64; LATENCY_BOUNDS_NS.len() + 1],
    /// All durations together, in nanoseconds.
    pub sum_ns: u64,
}

impl LatencyHistogram {
    /// Adds a duration in nanoseconds.
    pub fn record(&self, ns: u64) {
        let bucket = LATENCY_BOUNDS_NS.partition_point(|&bound| bound < ns);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Returns the counts now.
    pub fn get(&self) -> LatencyCounts {
        let mut out = LatencyCounts { sum_ns: self.sum_ns.load(Ordering::Relaxed), counts: [0; _] };
        for (to, from) in out.counts.iter_mut().zip(&self.counts) {
            *to = from.load(Ordering::Relaxed);
        }
        out
    }
}

impl LatencyCounts {
    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        assert_eq!(LATENCY_BOUNDS_NS[..4], [10_000, 20_000, 50_000, 100_000]);
        assert_eq!(LATENCY_BOUNDS_NS[24], 1_000_000_000_000);
        let histogram = LatencyHistogram::default();
        for ns in [0, 10_000, 10_001, u64::from(u32::MAX), 1 << 60] {
            histogram.record(ns);
        }
        let counts = histogram.get();
        assert_eq!((counts.counts[0], counts.counts[1]), (2, 1));
        assert_eq!((counts.counts[17], counts.counts[25]), (1, 1));
        assert_eq!(counts.count(), 5);
        assert_eq!(counts.sum_ns, 20_001 + u64::from(u32::MAX) + (1 << 60));
    }
}
