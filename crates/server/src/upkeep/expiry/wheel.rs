//! A wheel of timers: keys in buckets by their time of expiry, with finer buckets for near times.
//!
//! A bucket of level 0 spans 64 ms, a bucket of each further level 64 times as much. A time belongs
//! to the level of the highest digit (in base 64, of the number of the time's 64 ms) in which the
//! time differs from the wheel's hand. So the buckets divide the future, none overlaps another, and
//! the first bucket is the next to turn to: a bucket of level 0 is due at its end, any other bucket
//! is divided when the hand reaches its begin. A key moves at most once for each level. (Varghese
//! and Lauck, "Hashed and Hierarchical Timing Wheels", SOSP 1987, scheme 7.)

use crate::data::expiries::{Expiries, Expiry};
use crate::state::timers::{DIGIT_BITS, FINEST_MS};
use std::collections::BTreeMap;

struct Bucket {
    level: u32,
    expiries: Expiries,
}

impl Bucket {
    /// When the wheel turns to the bucket, in milliseconds since 1970.
    fn turn_ms(&self, begin: i64) -> i64 {
        if self.level == 0 { begin + FINEST_MS } else { begin }
    }

    /// When all times of the bucket have passed.
    fn end_ms(&self, begin: i64) -> i64 {
        begin + (FINEST_MS << (DIGIT_BITS * self.level))
    }
}

/// Keys by their times of expiry.
#[derive(Default)]
pub struct Wheel {
    /// The position of the hand, a multiple of [`FINEST_MS`]: all earlier times have been due.
    hand: i64,
    /// Buckets by their first possible times.
    buckets: BTreeMap<i64, Bucket>,
    count: usize,
}

impl Wheel {
    /// Adds a key. A time before the hand counts as the time of the hand.
    pub fn add(&mut self, expiry: Expiry<'_>) {
        let (level, begin) = self.place(expiry.at_ms);
        let bucket = self.buckets.entry(begin);
        let bucket = bucket.or_insert_with(|| Bucket { level, expiries: Expiries::default() });
        debug_assert_eq!(bucket.level, level, "buckets do not overlap");
        bucket.expiries.push(expiry);
        self.count += 1;
    }

    /// The level and the begin of the bucket of a time.
    fn place(&self, at_ms: i64) -> (u32, i64) {
        let at = at_ms.max(self.hand);
        let differs = (at ^ self.hand) >> DIGIT_BITS;
        let level = if differs == 0 { 0 } else { differs.ilog2() / DIGIT_BITS };
        let bits = DIGIT_BITS * (level + 1);
        (level, at >> bits << bits)
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Bytes of the buckets and the keys.
    pub fn bytes(&self) -> usize {
        self.buckets
            .values()
            .map(|bucket| size_of::<(i64, Bucket)>() + bucket.expiries.bytes())
            .sum()
    }

    /// The next time to turn the wheel, in milliseconds since 1970.
    pub fn next_turn_ms(&self) -> Option<i64> {
        self.buckets.first_key_value().map(|(begin, bucket)| bucket.turn_ms(*begin))
    }

    /// The number of keys in buckets that are due.
    pub fn due(&self, now_ms: i64) -> usize {
        let due =
            self.buckets.iter().take_while(|(begin, bucket)| bucket.end_ms(**begin) <= now_ms);
        due.map(|(_, bucket)| bucket.expiries.len()).sum()
    }

    /// Removes all keys.
    #[cfg(any(test, feature = "torture"))]
    pub fn take_all(&mut self) -> Expiries {
        let mut all = Expiries::default();
        std::mem::take(&mut self.buckets).values().for_each(|bucket| all.append(&bucket.expiries));
        self.count = 0;
        all
    }

    /// Turns the hand on to a due bucket, and removes the bucket. `None` if no bucket is due yet:
    /// the hand then stands at `now_ms`, so that later additions are in few buckets.
    pub fn turn(&mut self, now_ms: i64) -> Option<Expiries> {
        let due = loop {
            let Some(first) = self.buckets.first_entry() else { break None };
            if first.get().turn_ms(*first.key()) > now_ms {
                break None;
            }
            let (begin, Bucket { level, expiries }) = first.remove_entry();
            self.count -= expiries.len();
            if level == 0 {
                self.hand = begin + FINEST_MS;
                break Some(expiries);
            }
            self.divide(begin, &expiries);
        };
        if due.is_none() {
            // Only a bucket of level 0 begins at the hand or before: no bucket contains the hand.
            let now = now_ms >> DIGIT_BITS << DIGIT_BITS;
            let first = self.buckets.first_key_value().map_or(now, |(begin, _)| *begin);
            self.hand = self.hand.max(now.min(first));
        }
        // With the hand at the begin of a bucket of a higher level, keys of the bucket added from
        // now on belong to finer buckets.
        while let Some(first) = self.buckets.first_entry()
            && *first.key() <= self.hand
            && first.get().level > 0
        {
            let (begin, bucket) = first.remove_entry();
            self.count -= bucket.expiries.len();
            self.divide(begin, &bucket.expiries);
        }
        due
    }

    fn divide(&mut self, begin: i64, expiries: &Expiries) {
        self.hand = self.hand.max(begin);
        expiries.iter().for_each(|expiry| self.add(expiry));
    }

    /// The first bucket that begins at this time or later: begin and end.
    pub fn bucket_from(&self, at_ms: i64) -> Option<(i64, i64)> {
        let (begin, bucket) = self.buckets.range(at_ms..).next()?;
        Some((*begin, bucket.end_ms(*begin)))
    }

    /// Removes the keys of a bucket.
    pub fn take(&mut self, begin: i64) -> Expiries {
        let taken = self.buckets.remove(&begin).map(|bucket| bucket.expiries).unwrap_or_default();
        self.count -= taken.len();
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expiry(at_ms: i64, key: &[u8]) -> Expiry<'_> {
        Expiry { at_ms, generation: 0, key }
    }

    /// Times of every distance, some added while the hand turns: each is due after the time, and no
    /// later than the span of a bucket of level 0.
    #[test]
    fn each_key_is_due_at_its_time() {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut wheel, mut now) = (Wheel::default(), 1_700_000_000_000i64);
            let mut waiting = std::collections::HashMap::new();
            let mut next = 0u64;
            for _ in 0..3_000 {
                for _ in 0..random.u8(0..4) {
                    let at = now - 50 + (random.u64(..) >> random.u32(24..64)) as i64;
                    wheel.add(expiry(at, &next.to_le_bytes()));
                    waiting.insert(next, at);
                    next += 1;
                }
                now += match random.u8(0..10) {
                    0 => (random.u64(..) >> random.u32(24..64)) as i64,
                    _ => random.i64(0..100),
                };
                while let Some(due) = wheel.turn(now) {
                    for expiry in due.iter() {
                        let number = u64::from_le_bytes(expiry.key.try_into().unwrap());
                        assert_eq!(waiting.remove(&number), Some(expiry.at_ms), "seed {seed}");
                        assert!(expiry.at_ms <= now, "seed {seed}");
                    }
                }
                let late = |at: &i64| now - at > 50 + FINEST_MS;
                assert!(!waiting.values().any(late), "seed {seed}: {now}");
                assert_eq!(wheel.len(), waiting.len());
                assert!(wheel.next_turn_ms().is_none_or(|at| at > now));
            }
        }
    }

    #[test]
    fn buckets_are_taken_in_the_order_of_their_times() {
        let mut wheel = Wheel::default();
        let far = (1i64 << 48) - 1;
        let times = [100, 5_000, 5_001, 1 << 20, 1 << 40, far];
        times.iter().for_each(|at| wheel.add(expiry(*at, b"key")));
        let (mut seen, mut from) = (Vec::new(), 0);
        while let Some((begin, end)) = wheel.bucket_from(from) {
            let taken = wheel.take(begin);
            assert!(taken.iter().all(|expiry| (begin..end).contains(&expiry.at_ms)));
            seen.extend(taken.iter().map(|expiry| expiry.at_ms));
            from = end;
        }
        assert_eq!(seen, times);
        assert_eq!((wheel.len(), wheel.next_turn_ms()), (0, None));
    }
}
