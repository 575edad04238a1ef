//! The buckets of the version table: as many as needed for the table's content.
//!
//! Linear hashing: the buckets are split in order, so a table grows without a pause, with any
//! budget; a nearly empty table is a few cache lines. Buckets lie in segments; segments never move,
//! and each segment has as many buckets as all segments before.
//!
//! A bucket is split under its latch, and the new bucket becomes known before the latch is
//! released. So a thread with a locked bucket, if the number of buckets still assigns the hash to
//! the bucket, has the bucket of the hash for as long as the thread holds the latch.

use super::version::Version;
use crate::key::KeyHasher;
use hyades_platform::prefetch::prefetch;
use hyades_platform::sync::{AtomicUsize, Mutex, MutexGuard, Ordering};
use std::fmt::Debug;
use std::ptr;
use std::sync::{OnceLock, TryLockError};

/// The buckets of a new table: the length of the first segment.
const FIRST: usize = 16;
/// More buckets than 2^24 are of no use: the buckets alone would take 1 GiB.
const SEGMENTS: usize = 21;

type Segment<B> = Box<[Slot<B>]>;

/// The addresses of a bucket's last accesses outside its cache line: a record and a version. Hints
/// for a prefetch, and nothing else: written under the latch, read without the latch, perhaps
/// stale; so Relaxed, and no step for the checker of schedules.
#[derive(Debug, Default)]
pub(super) struct Hints([std::sync::atomic::AtomicUsize; 2]);

impl Hints {
    /// Notes an access.
    #[inline]
    pub fn note<R>(&self, record: &R, version: &Version) {
        let accessed = [ptr::from_ref(record).addr(), version.address()];
        for (hint, address) in self.0.iter().zip(accessed) {
            if hint.load(Ordering::Relaxed) != address {
                hint.store(address, Ordering::Relaxed);
            }
        }
    }

    #[inline]
    fn prefetch(&self) {
        for hint in &self.0 {
            prefetch(ptr::without_provenance::<u8>(hint.load(Ordering::Relaxed)));
        }
    }
}

/// A bucket, on a separate cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot<B> {
    latch: Mutex<B>,
    hints: Hints,
}

/// The content of a bucket.
pub(super) trait Split: Default + Debug {
    /// Moves the content that belongs to another bucket there. `moves` tells whether a hash belongs
    /// to the other bucket.
    fn split(&mut self, hasher: &KeyHasher, moves: impl Fn(u64) -> bool) -> Self;
}

/// Buckets by hash.
#[derive(Debug)]
pub(super) struct Buckets<B> {
    segments: [OnceLock<Segment<B>>; SEGMENTS],
    /// The number of buckets. Raised by a single thread at a time, under the latch of the split
    /// bucket (Release), read before and after a bucket is locked (Acquire).
    count: AtomicUsize,
    /// Held by the splitting thread.
    splitting: Mutex<()>,
}

/// The segment of a bucket, and the bucket's place there.
fn locate(bucket: usize) -> (usize, usize) {
    match bucket / FIRST {
        0 => (0, bucket),
        multiple => {
            let segment = multiple.ilog2() as usize;
            (segment + 1, bucket - (FIRST << segment))
        }
    }
}

/// The length of a segment.
fn length(segment: usize) -> usize {
    FIRST << segment.saturating_sub(1)
}

/// Returns the bucket of a hash among `count` buckets.
fn assigned(hash: u64, count: usize) -> usize {
    // The lower half tells fetches apart.
    let (hash, mask) = ((hash >> 32) as usize, count.next_power_of_two() - 1);
    let bucket = hash & mask;
    // Buckets above are not split off yet.
    if bucket < count { bucket } else { hash & (mask >> 1) }
}

impl<B: Split> Buckets<B> {
    pub fn new() -> Self {
        let buckets = Self {
            segments: [const { OnceLock::new() }; SEGMENTS],
            count: AtomicUsize::new(FIRST),
            splitting: Mutex::new(()),
        };
        buckets.segment(0);
        buckets
    }

    fn segment(&self, segment: usize) -> &Segment<B> {
        self.segments[segment]
            .get_or_init(|| (0..length(segment)).map(|_| Slot::default()).collect())
    }

    fn slot(&self, bucket: usize) -> &Slot<B> {
        let (segment, at) = locate(bucket);
        &self.segment(segment)[at]
    }

    fn lock_at(&self, bucket: usize) -> MutexGuard<'_, B> {
        self.slot(bucket).latch.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Prefetches the buckets of hashes, and then the last accesses there: so that the cache misses
    /// of several operations overlap. Each latch would otherwise prevent the overlap.
    pub fn prefetch(&self, hashes: &[u64]) {
        let count = self.count();
        let slots = hashes.iter().map(|hash| self.slot(assigned(*hash, count)));
        slots.clone().for_each(|slot| prefetch(ptr::from_ref(slot)));
        slots.for_each(|slot| slot.hints.prefetch());
    }

    /// For a thread going through the buckets, now at `nth`: prefetches the bucket `2 * ahead`
    /// later, and the last accesses in the bucket `ahead` later.
    pub fn prefetch_ahead(&self, nth: usize, ahead: usize) {
        let count = self.count();
        prefetch(ptr::from_ref(self.slot((nth + 2 * ahead) % count)));
        self.slot((nth + ahead) % count).hints.prefetch();
    }

    /// The number of buckets.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Returns the bucket of a hash, locked, and the hints.
    pub fn lock(&self, hash: u64) -> (MutexGuard<'_, B>, &Hints) {
        let mut bucket = assigned(hash, self.count());
        loop {
            let slot = self.slot(bucket);
            slot.hints.prefetch();
            let locked = slot.latch.lock().unwrap_or_else(|e| e.into_inner());
            let now = assigned(hash, self.count());
            if now == bucket {
                return (locked, &slot.hints);
            }
            drop(locked);
            bucket = now;
        }
    }

    /// Returns a bucket by number, modulo the number of buckets.
    pub fn lock_nth(&self, nth: usize) -> MutexGuard<'_, B> {
        self.lock_at(nth % self.count())
    }

    /// Splits the next buckets until there are `wanted`, but at most `most`, unless another thread
    /// splits. The caller holds no latch.
    pub fn grow(&self, wanted: usize, most: usize, hasher: &KeyHasher) {
        let wanted = wanted.min(FIRST << (SEGMENTS - 1));
        if self.count() >= wanted {
            return;
        }
        let _splitting = match self.splitting.try_lock() {
            Ok(splitting) => splitting,
            Err(TryLockError::Poisoned(splitting)) => splitting.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        for _ in 0..most {
            let count = self.count();
            if count >= wanted {
                return;
            }
            // First: a new segment may be large.
            self.segment(locate(count).0);
            // The bucket with the new bucket's content until now.
            let old = count - (count + 1).next_power_of_two() / 2;
            let mut old = self.lock_at(old);
            let new = old.split(hasher, |hash| assigned(hash, count + 1) == count);
            *self.lock_at(count) = new;
            self.count.store(count + 1, Ordering::Release);
        }
    }
}

#[cfg(test)]
#[derive(Debug, Default)]
struct Hashes(Vec<u64>);

#[cfg(test)]
impl Split for Hashes {
    fn split(&mut self, _: &KeyHasher, moves: impl Fn(u64) -> bool) -> Self {
        let moved = self.0.iter().copied().filter(|hash| moves(*hash)).collect();
        self.0.retain(|hash| !moves(*hash));
        Hashes(moved)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn each_bucket_has_its_place() {
        let mut next = 0;
        for segment in 0..SEGMENTS {
            assert_eq!(locate(next), (segment, 0));
            next += length(segment);
            assert_eq!(locate(next - 1), (segment, length(segment) - 1));
        }
        assert_eq!(next, 1 << 24);
    }

    #[test]
    fn each_hash_is_found_however_the_table_grows() {
        let buckets = Buckets::<Hashes>::new();
        let hashes: Vec<u64> = (0..500u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        hashes.iter().for_each(|hash| buckets.lock(*hash).0.0.push(*hash));
        for wanted in FIRST..300 {
            buckets.grow(wanted, 1, &KeyHasher::FIXED);
            assert_eq!(buckets.count(), wanted);
            for hash in &hashes {
                assert!(buckets.lock(*hash).0.0.contains(hash), "{hash} with {wanted}");
            }
            buckets.prefetch(&hashes);
            buckets.prefetch_ahead(wanted - 1, FIRST);
            let all: usize = (0..wanted).map(|nth| buckets.lock_nth(nth).0.len()).sum();
            assert_eq!(all, hashes.len(), "one is there twice");
        }
        buckets.grow(usize::MAX, 10, &KeyHasher::FIXED);
        assert_eq!(buckets.count(), 309);
        buckets.grow(0, 10, &KeyHasher::FIXED);
        assert_eq!(buckets.count(), 309);
    }

    #[test]
    fn each_hash_is_found_while_the_table_grows() {
        let buckets = Arc::new(Buckets::<Hashes>::new());
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let buckets = &buckets;
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(thread);
                    for n in 0..5000 {
                        let hash = rng.u64(..);
                        buckets.lock(hash).0.0.push(hash);
                        buckets.grow(FIRST + n, 2, &KeyHasher::FIXED);
                        assert!(buckets.lock(hash).0.0.contains(&hash));
                    }
                });
            }
        });
        // A thread leaves the growth to another splitting thread; the other thread may be at the
        // end of its own request.
        assert!(buckets.count() <= FIRST + 4999, "{} buckets", buckets.count());
        buckets.grow(FIRST + 4999, usize::MAX, &KeyHasher::FIXED);
        let count = buckets.count();
        let all: usize = (0..count).map(|nth| buckets.lock_nth(nth).0.len()).sum();
        assert_eq!((all, count), (15_000, FIRST + 4999));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc as LoomArc;
    use loom::thread;

    /// In bucket 0 of 16, and in bucket 16 of 17.
    const MOVES: u64 = 16 << 32;
    /// In bucket 0 of both.
    const STAYS: u64 = 0;

    #[test]
    fn a_hash_is_found_while_its_bucket_is_split() {
        loom::model(|| {
            let buckets = LoomArc::new(Buckets::<Hashes>::new());
            buckets.lock(STAYS).0.0.push(STAYS);
            let grower = {
                let buckets = buckets.clone();
                thread::spawn(move || buckets.grow(FIRST + 1, 1, &KeyHasher::FIXED))
            };
            buckets.lock(MOVES).0.0.push(MOVES);
            assert_eq!(buckets.lock(MOVES).0.0.iter().filter(|hash| **hash == MOVES).count(), 1);
            assert_eq!(buckets.lock(STAYS).0.0.iter().filter(|hash| **hash == STAYS).count(), 1);
            grower.join().unwrap();
            assert_eq!(buckets.count(), FIRST + 1);
            assert_eq!(buckets.lock_nth(0).0, [STAYS]);
            assert_eq!(buckets.lock_nth(FIRST).0, [MOVES]);
        });
    }
}
