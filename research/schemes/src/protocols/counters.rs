//! Per-stream counters of record numbers, for protocols with numbers that grow along each stream
//! and along any other order required by the protocol.
//!
//! A number and a position in the stream are drawn in one step: the counter is locked for both
//! draws, about as long as two additions take. So numbers grow along the stream, and while the
//! counter is m no later frame has a number up to m: m is the stream's mark (`mark` in the code).

use hyades_platform::broken;
use hyades_platform::sync::{AtomicU64, Ordering, Padded, spin_hint, yield_now};
use hyades_wal::Marks;
use std::time::Duration;

/// A counter for each stream.
#[derive(Debug)]
pub struct Counters {
    /// The last number << 1, plus 1 while locked (Acquire) by a session that draws the next number
    /// and reserves its frame; then the session unlocks the counter (Release). The stream's flusher
    /// raises an unlocked counter.
    streams: Box<[Padded<AtomicU64>]>,
}

/// The number of spins after which the lock holder is taken to be descheduled.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 64 };

impl Counters {
    pub fn new(streams: usize) -> Counters {
        Counters { streams: (0..streams).map(|_| Padded(AtomicU64::new(0))).collect() }
    }

    /// Returns the last number drawn or skipped in a stream, without a number being drawn under the
    /// lock.
    #[inline]
    pub fn last(&self, stream: usize) -> u64 {
        self.streams[stream].load(Ordering::Acquire) >> 1
    }

    /// Locks a stream's counter and returns the last number. A caller that locks several counters
    /// does so in the order of streams, which excludes deadlocks. Nothing between `lock` and
    /// [`Counters::unlock`] may panic: all sessions that need a number would wait for ever.
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
            if looks.is_multiple_of(LOOKS) { yield_now() } else { spin_hint() }
        }
    }

    /// Unlocks the counter; `last` is the new last number.
    #[inline]
    pub fn unlock(&self, stream: usize, last: u64) {
        self.streams[stream].store(last << 1, Ordering::Release);
    }
}

impl Marks for Counters {
    /// Returns the last number, even while the counter is locked: the holder draws a higher number.
    /// Frames with numbers up to the last number are reserved: each holder unlocks after the
    /// reservation (Release), and the load here comes after the unlock (Acquire; a lock taken since
    /// continues the release sequence). So the flusher, which calls `mark`, never waits for a
    /// descheduled holder.
    ///
    /// A stream with a last number below `wanted` skips the numbers that other streams have used by
    /// now: a single statement then serves all waiters. The skip takes an unlocked counter; if the
    /// counter stays locked the flusher asks again soon.
    fn mark(&self, stream: usize, wanted: u64, _: bool) -> u64 {
        if broken!(FlusherWaitsForNumber) {
            let last = self.lock(stream);
            self.unlock(stream, last);
        }
        let counter = &self.streams[stream];
        let mut last = 0;
        for _ in 0..LOOKS {
            let seen = counter.load(Ordering::Acquire);
            last = seen >> 1;
            if wanted <= last {
                return last;
            }
            let to = wanted.max(self.highest());
            // Later holders of the lock draw numbers above `to`.
            let passes_over = |to| {
                counter.compare_exchange(seen, to << 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            };
            if seen & 1 == 0 && passes_over(to) {
                return to;
            }
            spin_hint();
        }
        last
    }

    fn highest(&self) -> u64 {
        (0..self.streams.len()).map(|stream| self.last(stream)).max().unwrap_or(0)
    }

    /// Short, as the wanted number can be stated nearly always.
    fn pause(&self) -> Duration {
        Duration::from_micros(200)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    /// A session that has drawn a number but not reserved its frame may be descheduled.
    #[test]
    fn a_flusher_does_not_wait_for_a_number_to_get_its_place() {
        let counters = Arc::new(Counters::new(2));
        counters.lock(0);
        counters.unlock(0, 5);
        assert_eq!(counters.lock(0), 5);
        let (sender, marks) = channel();
        let other = Arc::clone(&counters);
        std::thread::spawn(move || {
            let mark = |wanted| sender.send(other.mark(0, wanted, false)).unwrap();
            [0, 3, 9].into_iter().for_each(mark);
        });
        let next = || marks.recv_timeout(Duration::from_secs(5)).expect("it waits");
        assert_eq!([next(), next(), next()], [5, 5, 5]);
        counters.unlock(0, 6);
        assert_eq!(counters.mark(0, 9, false), 9);
    }

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
        // The idle stream skips to the highest number at once.
        assert_eq!(counters.mark(1, 1 << 30, false), 1 << 40);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use std::sync::Arc;

    /// A thread draws two numbers with positions while the flusher reads the mark, then reserves
    /// the frame that states the mark; where a number is wanted the flusher skips numbers.
    #[test]
    fn every_number_up_to_the_mark_has_a_place_before_its_statement() {
        for wanted in [0, 1, 5] {
            loom::model(move || {
                let shared = Arc::new((Counters::new(1), AtomicU64::new(0)));
                let other = Arc::clone(&shared);
                let writer = loom::thread::spawn(move || {
                    let (counters, places) = &*other;
                    [(); 2].map(|()| {
                        let number = counters.lock(0) + 1;
                        // Relaxed: the counter must order the draws.
                        let place = places.fetch_add(1, Ordering::Relaxed);
                        counters.unlock(0, number);
                        (number, place)
                    })
                });
                let (counters, places) = &*shared;
                let mark = counters.mark(0, wanted, false);
                let statement = places.fetch_add(1, Ordering::Relaxed);
                for (number, place) in writer.join().unwrap() {
                    assert!(number > mark || place < statement);
                }
            });
        }
    }
}
