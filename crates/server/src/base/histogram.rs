//! A histogram of times, with additions from many threads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of each doubling: a time is known to 1/128.
const PARTS: usize = 128;

/// The logarithm of `PARTS`.
const PART_BITS: u32 = PARTS.ilog2();

/// Times from 2 to the power of this many nanoseconds on, 69 seconds, count as the longest time
/// below.
const BITS: u32 = 36;

/// Number of counters: for times below [`PARTS`] nanoseconds, and for each doubling.
const COUNTERS: usize = PARTS * (1 + (BITS - PART_BITS) as usize);

/// Numbers of times by length, in nanoseconds.
pub struct TimeHistogram(Vec<AtomicU64>);

impl Default for TimeHistogram {
    fn default() -> Self {
        TimeHistogram((0..COUNTERS).map(|_| AtomicU64::new(0)).collect())
    }
}

/// The counter of a time.
fn place(nanos: u64) -> usize {
    let nanos = nanos.min((1 << BITS) - 1);
    if nanos < PARTS as u64 {
        return nanos as usize;
    }
    // The highest bit names the doubling, the bits behind name the part.
    let shift = nanos.ilog2() - PART_BITS;
    PARTS * shift as usize + (nanos >> shift) as usize
}

/// The longest time of a counter.
fn longest(place: usize) -> u64 {
    if place < PARTS {
        return place as u64;
    }
    let shift = place / PARTS - 1;
    (((place - PARTS * shift) as u64 + 1) << shift) - 1
}

impl TimeHistogram {
    /// Adds a time.
    pub fn add(&self, nanos: u64) {
        self.0[place(nanos)].fetch_add(1, Relaxed);
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.0.iter().for_each(|counter| counter.store(0, Relaxed));
    }

    /// Number of times.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|counter| counter.load(Relaxed)).sum()
    }

    /// The time in nanoseconds that a share of all times, in percent, does not exceed. 0 without
    /// times.
    pub fn percentile(&self, percent: f64) -> u64 {
        let counts: Vec<u64> = self.0.iter().map(|counter| counter.load(Relaxed)).collect();
        let total: u64 = counts.iter().sum();
        let wanted = ((percent / 100.0 * total as f64).ceil() as u64).clamp(1, total.max(1));
        let mut seen = 0;
        let found = counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.map_or(0, longest)
    }

    /// Times in microseconds, each about twice the time before, with the number of times that were
    /// not longer. Times that do not increase the number are left out.
    pub fn doublings(&self) -> Vec<(u64, u64)> {
        let steps = self.steps(1).into_iter();
        steps.map(|(nanos, count)| (nanos / 1_000, count)).collect()
    }

    /// Times in nanoseconds, from about 1,000 on `parts` for each doubling (a power of two, 128 at
    /// most), with the number of times that were not longer. Times that do not increase the number
    /// are left out.
    pub fn steps(&self, parts: usize) -> Vec<(u64, u64)> {
        let (mut found, mut seen, mut told) = (Vec::new(), 0, 0);
        let mut bound = place(1 << 10);
        for (at, counter) in self.0.iter().enumerate() {
            seen += counter.load(Relaxed);
            if at < bound && at + 1 < COUNTERS {
                continue;
            }
            bound += PARTS / parts;
            if seen > told {
                found.push((longest(at), seen));
                told = seen;
            }
        }
        found
    }

    /// The numbers of times that did not exceed the ascending bounds by more than 1/128; and the
    /// number of all. Bounds are in nanoseconds.
    pub fn at_most<const N: usize>(&self, bounds: &[u64; N]) -> ([u64; N], u64) {
        let (mut found, mut seen, mut next) = ([0; N], 0, 0);
        for (at, counter) in self.0.iter().enumerate() {
            while next < N && place(bounds[next]) < at {
                found[next] = seen;
                next += 1;
            }
            seen += counter.load(Relaxed);
        }
        found[next..].fill(seen);
        (found, seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each time has one counter, and the times of a counter are adjacent.
    #[test]
    fn a_counter_has_times_that_are_nearly_equal() {
        let mut before = 0;
        for at in 0..COUNTERS {
            let last = longest(at);
            assert_eq!(place(last), at);
            assert_eq!(place(last + 1), (at + 1).min(COUNTERS - 1));
            assert!(at == 0 || (last - before - 1) * PARTS as u64 <= last, "{before}..{last}");
            before = last;
        }
        assert_eq!(longest(COUNTERS - 1), (1 << BITS) - 1);
        assert_eq!(place(u64::MAX), COUNTERS - 1);
    }

    #[test]
    fn percentiles_and_doublings_count_what_was_added() {
        let times = TimeHistogram::default();
        assert_eq!((times.percentile(50.0), times.doublings()), (0, Vec::new()));
        (1..=100).for_each(|n| times.add(n * 1_000));
        let near = |percent: f64, nanos: u64| {
            let found = times.percentile(percent);
            assert!(found >= nanos && found - nanos <= nanos / 128, "{percent}: {found}");
        };
        near(50.0, 50_000);
        near(99.0, 99_000);
        near(0.0, 1_000);
        near(100.0, 100_000);
        let bounds = [(1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (33, 33), (66, 66), (132, 100)];
        assert_eq!(times.doublings(), bounds);
        // Where a bound is exact, so is the number.
        assert_eq!(times.at_most(&[0, 999, 50_000, 100_000, 1 << 40]), ([0, 0, 50, 100, 100], 100));
        // Each step is a sixteenth of a doubling.
        for pair in times.steps(16).windows(2) {
            assert!(pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1, "{pair:?}");
        }
        let (last, count) = *times.steps(16).last().unwrap();
        assert!(count == 100 && (100_000..=100_000 * 17 / 16).contains(&last), "{last}");
        times.add(u64::MAX);
        assert_eq!(times.at_most(&[100_000]), ([100], 101));
        assert_eq!(times.doublings().last(), Some(&(68_719_476, 101)));
        times.clear();
        assert_eq!(times.count(), 0);
    }
}
