//! The numbers of records, counted for each stream: what protocols have in common whose records get
//! numbers that grow along each stream, and along whatever else the protocol says.
//!
//! A number and a place in the stream are drawn in one step: the counter is locked from the one to the
//! other, for about as long as two additions take. So numbers grow along the stream, and once the
//! counter stands at m no frame to come has a number up to m: that is the stream's mark.

use hyades_platform::sync::Padded;
use hyades_wal::Marks;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One counter for each stream.
#[derive(Debug)]
pub(crate) struct Counters {
    /// The last number << 1, plus 1 while it is locked. Locked by whoever draws a number, or by the
    /// stream's flusher (Acquire), and unlocked by the same (Release).
    streams: Box<[Padded<AtomicU64>]>,
}

impl Counters {
    pub fn new(streams: usize) -> Counters {
        Counters { streams: (0..streams).map(|_| Padded(AtomicU64::new(0))).collect() }
    }

    /// The last number drawn in a stream, or one that is about to be drawn now.
    #[inline]
    pub fn last(&self, stream: usize) -> u64 {
        self.streams[stream].load(Ordering::Acquire) >> 1
    }

    /// Locks a stream's counter and returns the last number. Who locks several does so in the order of
    /// streams: then nobody waits in a circle.
    #[inline]
    pub fn lock(&self, stream: usize) -> u64 {
        let counter = &self.streams[stream];
        let mut looks = 0u32;
        loop {
            let seen = counter.load(Ordering::Relaxed) & !1;
            let taken =
                counter.compare_exchange_weak(seen, seen | 1, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                return seen >> 1;
            }
            looks += 1;
            if looks.is_multiple_of(64) {
                // Its holder may have been descheduled.
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Ends [`Counters::lock`]: `last` is the last number now.
    #[inline]
    pub fn unlock(&self, stream: usize, last: u64) {
        self.streams[stream].store(last << 1, Ordering::Release);
    }
}

impl Marks for Counters {
    /// A stream that lags behind what somebody waits for passes over the numbers that all others have
    /// used by now: one statement then serves all who wait.
    fn mark(&self, stream: usize, wanted: u64, _: bool) -> u64 {
        let last = self.lock(stream);
        let to = if wanted > last { wanted.max(self.highest()) } else { last };
        self.unlock(stream, to);
        to
    }

    fn highest(&self) -> u64 {
        (0..self.streams.len()).map(|stream| self.last(stream)).max().unwrap_or(0)
    }

    /// What is wanted can always be stated, but for a buffer that is full.
    fn pause(&self) -> Duration {
        Duration::from_micros(200)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_never_below_a_number_drawn_before_nor_above_one_drawn_after() {
        let counters = Counters::new(2);
        let draws = |stream: usize| {
            let mut last = 0;
            for _ in 0..20_000 {
                let number = counters.lock(stream) + 1;
                assert!(number > last, "numbers grow along a stream");
                last = number;
                counters.unlock(stream, number);
                let mark = counters.mark(stream, 0, false);
                assert!(mark >= number, "a number already drawn");
                last = last.max(mark);
            }
        };
        std::thread::scope(|scope| {
            (0..4).for_each(|n| drop(scope.spawn(move || draws(n % 2))));
        });
        assert_eq!(counters.mark(0, 1 << 40, false), 1 << 40);
        assert_eq!(counters.lock(0), 1 << 40);
        counters.unlock(0, 1 << 40);
        // The idle one goes along with the others at once.
        assert_eq!(counters.mark(1, 1 << 30, false), 1 << 40);
    }
}
