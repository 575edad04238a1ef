//! The hash index: an extendible hash table of entry pointers with lock-free reads.
//!
//! A directory, indexed by the top bits of the hash, points to segments of 512 buckets. A bucket is
//! one cache line: seven tagged pointers and a link word (lock bit, frozen bit, overflow bucket). A
//! full segment is split in two, so one growth step moves only a few thousand entries. The
//! directory doubles when a segment needs more hash bits than the directory has. Two sparse
//! segments are merged, and the directory is halved when it is four times as long as any segment
//! needs. (Fagin, Nievergelt, Pippenger and Strong, "Extendible Hashing", TODS 4(3), 1979.)
//!
//! Readers take no lock and check no version. An entry never moves inside a bucket chain. A split,
//! or a merge, leaves the old segments unchanged: their chains stay locked, then frozen. A reader
//! therefore finds each entry linked throughout its lookup. An entry linked or unlinked meanwhile
//! may or may not be found.
//!
//! Hash bits: the top bits choose the segment, the low 9 the bucket, the next 16 are the tag.

mod growth;
mod hash;
mod shrinking;
#[cfg(test)]
mod shrinking_tests;
#[cfg(test)]
mod tests;
mod walk;

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use hyades_platform::reclaim::{Guard, pin, retire};

pub use self::hash::{HashSecret, hash_key};
pub use self::walk::{HashCursor, HashPosition};
use super::key::same;
use hyades_index::Backoff;
pub use hyades_index::Keyed;
use hyades_platform::prefetch::prefetch;

const SLOTS: usize = 7;
/// Few under miri: miri is slow, and segments are to be split there too.
const BUCKETS: usize = if cfg!(miri) { 8 } else { 512 };
const BUCKET_BITS: u32 = BUCKETS.trailing_zeros();
/// A segment with this many entries is split: five of seven slots on average.
const SEGMENT_FULL: u32 = 5 * BUCKETS as u32;
/// Two segments with this many entries together are merged: a quarter of a full segment. So a
/// merged segment is split only after it has grown fourfold, and the halves of a split are merged
/// only after three quarters are gone.
const SEGMENT_SPARSE: u32 = SEGMENT_FULL / 4;
/// A segment tries to be merged at each removal that leaves a multiple of this many entries.
const REMOVALS_PER_TRY: u32 = SEGMENT_SPARSE / 10;
/// Limit on directory pointers per segment. A split that would double a directory beyond the limit
/// is skipped: keys with equal hashes are chained instead.
const DIRECTORY_SLACK: usize = 64;

const LOCKED: usize = 1;
/// The segment was replaced, by a split or a merge: look it up in the directory again.
const FROZEN: usize = 2;
const FLAGS: usize = 63;

const TAG_SHIFT: u32 = 48;
const ADDRESS: usize = (1 << TAG_SHIFT) - 1;

const _: () = assert!(usize::BITS == 64, "tags need the top 16 bits of 64-bit pointers");

/// One cache line. Slots and link are written under the home bucket's lock bit and read without the
/// lock. Slots are stored with Release and loaded with Acquire: readers see initialised entries.
#[repr(C, align(64))]
struct Bucket<E> {
    /// The next bucket of the chain. The low bits hold the flags, in the home bucket only.
    link: AtomicPtr<Bucket<E>>,
    slots: [AtomicPtr<E>; SLOTS],
}

struct Segment<E> {
    buckets: [Bucket<E>; BUCKETS],
    /// Number of top hash bits that all entries share; set before the segment is published.
    depth: u32,
    /// Number of entries. Exact only while no writer is active.
    entries: AtomicU32,
}

struct Directory<E> {
    depth: u32,
    /// Written under the growth lock, read without it.
    segments: Box<[AtomicPtr<Segment<E>>]>,
}

/// The current segments: their number, and their number by depth.
struct Growth {
    segments: usize,
    of_depth: Box<[usize; 65]>,
}

impl Growth {
    /// Segments of one depth.
    fn new(segments: usize, depth: u32) -> Growth {
        let mut of_depth = Box::new([0; 65]);
        of_depth[depth as usize] = segments;
        Growth { segments, of_depth }
    }
}

/// A hash index over entries `E`.
pub struct HashIndex<E> {
    /// Written under the growth lock, read without it.
    directory: AtomicPtr<Directory<E>>,
    secret: HashSecret,
    /// Held while segments are replaced.
    growth: Mutex<Growth>,
}

// SAFETY: the index owns its directory, segments and buckets. Dropping them, here or later on the
// thread of the deferred drop, frees no entry. Entries are only given out as `&E`, to any thread,
// and `E: Send + Sync` suffices for this.
unsafe impl<E: Send + Sync> Send for HashIndex<E> {}
// SAFETY: all access through `&self` is to atomics or under the mutex, and entries are given out as
// `&E`: `E: Sync` suffices.
unsafe impl<E: Send + Sync> Sync for HashIndex<E> {}

fn tag_of(hash: u64) -> usize {
    ((hash >> BUCKET_BITS) as usize) << TAG_SHIFT
}

impl<E> Bucket<E> {
    fn new() -> Box<Self> {
        Box::new(Bucket {
            link: AtomicPtr::new(null_mut()),
            slots: [const { AtomicPtr::new(null_mut()) }; SLOTS],
        })
    }

    /// Locks the chain; returns false if the segment is frozen.
    ///
    /// Acquire: the writes of the previous holder are visible.
    fn lock(&self) -> bool {
        let mut backoff = Backoff::new();
        loop {
            let link = self.link.load(Ordering::Relaxed);
            if link.addr() & FROZEN != 0 {
                return false;
            }
            if link.addr() & LOCKED == 0 {
                let locked = link.map_addr(|addr| addr | LOCKED);
                let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
                if self.link.compare_exchange_weak(link, locked, success, failure).is_ok() {
                    return true;
                }
            }
            backoff.pause();
        }
    }

    fn unlock(&self) {
        let link = self.link.load(Ordering::Relaxed);
        debug_assert_eq!(
            link.addr() & (LOCKED | FROZEN),
            LOCKED,
            "a chain is unlocked by its holder, and a frozen one never"
        );
        self.link.store(link.map_addr(|addr| addr & !LOCKED), Ordering::Release);
    }

    fn next(&self) -> *mut Bucket<E> {
        self.link.load(Ordering::Acquire).map_addr(|addr| addr & !FLAGS)
    }

    /// Calls `visit` on each slot of the chain until `visit` returns `Some`.
    ///
    /// # Safety
    /// The caller is pinned, or the only user of the chain.
    #[inline(always)]
    unsafe fn find_slot<'s, T>(
        &'s self,
        mut visit: impl FnMut(&'s AtomicPtr<E>, *mut E) -> Option<T>,
    ) -> Option<T> {
        let mut bucket = self;
        loop {
            for slot in &bucket.slots {
                let found = visit(slot, slot.load(Ordering::Acquire));
                if found.is_some() {
                    return found;
                }
            }
            let next = bucket.next();
            // SAFETY: an overflow bucket is freed with its segment, and the segment is retired
            // through the epoch, so not while the caller is pinned.
            bucket = unsafe { next.as_ref() }?;
        }
    }

    /// The entry under `key` in this chain.
    #[inline(always)]
    fn find<'g>(&'g self, key: &[u8], hash: u64, _guard: &'g Guard) -> Option<&'g E>
    where
        E: Keyed + 'static,
    {
        let tag = tag_of(hash);
        // SAFETY: the guard is pinned, so neither the chain nor an entry found in it is freed.
        unsafe {
            self.find_slot(|_, tagged| {
                if tagged.addr() & !ADDRESS != tag {
                    return None;
                }
                let entry = tagged.map_addr(|addr| addr & ADDRESS).as_ref()?;
                same(entry.key(), key).then_some(entry)
            })
        }
    }

    /// Stores a tagged pointer in a free slot; appends an overflow bucket if no slot is free. The
    /// chain is locked, or not yet shared.
    fn put(&self, tagged: *mut E) {
        debug_assert_ne!(tagged.addr() & ADDRESS, 0, "a slot without an entry is null");
        let mut bucket = self;
        loop {
            for slot in &bucket.slots {
                if slot.load(Ordering::Relaxed).is_null() {
                    return slot.store(tagged, Ordering::Release);
                }
            }
            let link = bucket.link.load(Ordering::Relaxed);
            let mut next = link.map_addr(|addr| addr & !FLAGS);
            if next.is_null() {
                next = Box::into_raw(Bucket::new());
                let flags = link.addr() & FLAGS;
                bucket.link.store(next.map_addr(|addr| addr | flags), Ordering::Release);
            }
            // SAFETY: an overflow bucket is freed with its segment, which the caller keeps alive.
            bucket = unsafe { &*next };
        }
    }
}

impl<E> Segment<E> {
    fn new(depth: u32) -> *mut Self {
        let layout = Layout::new::<Self>();
        // SAFETY: the layout is not of size zero, and all zeros is a valid segment: no pointer, no
        // entry.
        unsafe {
            let segment = alloc_zeroed(layout).cast::<Self>();
            if segment.is_null() {
                handle_alloc_error(layout);
            }
            (*segment).depth = depth;
            segment
        }
    }

    /// Bytes of the segment, without overflow buckets.
    fn allocated_bytes(&self) -> usize {
        size_of::<Self>()
    }

    #[inline]
    fn home(&self, hash: u64) -> &Bucket<E> {
        &self.buckets[hash as usize % BUCKETS]
    }

    /// # Safety
    /// The segment came from [`Segment::new`], no thread can reach it any more, and it is freed
    /// only once.
    unsafe fn free(segment: *mut Self) {
        // SAFETY: `Segment::new` allocated the segment with the layout of a box of it; each
        // overflow bucket is a box owned by the link before it. By the contract there is no other
        // access.
        unsafe {
            let segment = Box::from_raw(segment);
            for bucket in &segment.buckets {
                let mut next = bucket.next();
                while !next.is_null() {
                    let bucket = Box::from_raw(next);
                    next = bucket.next();
                }
            }
        }
    }
}

impl<E> Directory<E> {
    fn allocated_bytes(&self) -> usize {
        self.segments.len() * size_of::<AtomicPtr<Segment<E>>>()
    }

    #[inline]
    fn slot(&self, hash: u64) -> &AtomicPtr<Segment<E>> {
        // Two shifts, because a directory of depth 0 would need a shift by 64.
        let index = (hash >> 1 >> (63 - self.depth)) as usize;
        &self.segments[index]
    }
}

impl<E: Keyed + 'static> HashIndex<E> {
    /// An empty index with room for `expected` entries before it first grows, and the secret of its
    /// hashes.
    pub fn new(expected: usize, secret: HashSecret) -> Self {
        let wanted = expected.div_ceil(SEGMENT_FULL as usize * 3 / 4).max(1);
        let depth = wanted.next_power_of_two().trailing_zeros();
        let count = 1 << depth;
        let segments = (0..count).map(|_| AtomicPtr::new(Segment::new(depth))).collect();
        let directory = Box::into_raw(Box::new(Directory { depth, segments }));
        let growth = Mutex::new(Growth::new(count, depth));
        HashIndex { directory: AtomicPtr::new(directory), secret, growth }
    }

    /// The hash of a key in this index.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.secret.hash(key)
    }

    #[inline]
    fn directory<'g>(&self, _guard: &'g Guard) -> &'g Directory<E> {
        // SAFETY: the guard is pinned, and a directory is freed only through the epoch, after it
        // was replaced or the index dropped.
        unsafe { &*self.directory.load(Ordering::Acquire) }
    }

    #[inline]
    fn segment<'g>(&self, hash: u64, guard: &'g Guard) -> &'g Segment<E> {
        // SAFETY: the guard is pinned, and a segment is freed only through the epoch, after it was
        // split or the index dropped.
        unsafe { &*self.directory(guard).slot(hash).load(Ordering::Acquire) }
    }

    /// Starts loading the bucket of `hash`, to overlap the cache misses of several lookups.
    #[inline]
    pub fn prefetch(&self, hash: u64, guard: &Guard) {
        prefetch(self.segment(hash, guard).home(hash));
    }

    /// The address of the first entry in the home bucket of `hash` with the same tag; null if there
    /// is none. The entry is not read.
    #[inline]
    pub fn candidate(&self, hash: u64, guard: &Guard) -> *const E {
        let tag = tag_of(hash);
        // Relaxed: nothing is read through the pointer.
        let slots = self.segment(hash, guard).home(hash).slots.iter();
        let mut tagged = slots.map(|slot| slot.load(Ordering::Relaxed));
        let found = tagged.find(|tagged| tagged.addr() & !ADDRESS == tag);
        found.map_or(null_mut(), |tagged| tagged.map_addr(|addr| addr & ADDRESS))
    }

    /// The entry under `key`. `hash` is [`HashIndex::hash`] of `key`, in all methods.
    #[inline]
    pub fn get<'g>(&self, key: &[u8], hash: u64, guard: &'g Guard) -> Option<&'g E> {
        debug_assert_eq!(hash, self.hash(key));
        self.segment(hash, guard).home(hash).find(key, hash, guard)
    }

    /// Links `entry` under `key`, or returns the entry that already has the key.
    ///
    /// # Errors
    /// The entry that already has the key; nothing was changed.
    ///
    /// # Safety
    /// `entry` points to a valid entry with exactly this key. Once linked it stays valid until it
    /// is unlinked by [`HashIndex::remove`] *and* has then been retired through
    /// [`hyades_platform::reclaim`], or until the index and all guards pinned before are gone.
    ///
    /// # Panics
    /// If the address has more than 48 bits, which no supported system returns unless asked to.
    pub unsafe fn insert<'g>(
        &self,
        key: &[u8],
        hash: u64,
        entry: *const E,
        guard: &'g Guard,
    ) -> Result<(), &'g E> {
        debug_assert_eq!(hash, self.hash(key));
        assert!(entry.addr() & !ADDRESS == 0, "an entry's address has more than 48 bits");
        // SAFETY: `entry` points to a valid entry, by this function's contract.
        debug_assert!(same(unsafe { &*entry }.key(), key), "an entry is linked under its own key");
        loop {
            let segment = self.segment(hash, guard);
            let home = segment.home(hash);
            if !home.lock() {
                std::thread::yield_now();
                continue;
            }
            if let Some(existing) = home.find(key, hash, guard) {
                home.unlock();
                return Err(existing);
            }
            home.put(entry.cast_mut().map_addr(|addr| addr | tag_of(hash)));
            // Relaxed: only a hint for growing, and a sum for `len`. Counted under the lock, so the
            // removal of the entry is not counted before.
            let entries = segment.entries.fetch_add(1, Ordering::Relaxed) + 1;
            home.unlock();
            if entries >= SEGMENT_FULL {
                self.split(hash, segment, guard);
            }
            return Ok(());
        }
    }

    /// Unlinks `entry` if present under `key`; returns whether it was.
    pub fn remove(&self, key: &[u8], hash: u64, entry: *const E, guard: &Guard) -> bool {
        self.take(key, hash, entry, guard).is_some()
    }

    /// As [`HashIndex::remove`], but returns the linked pointer. Unlike a pointer made from a
    /// reference returned by the index, the linked pointer may be used to free the entry.
    pub fn take(&self, key: &[u8], hash: u64, entry: *const E, guard: &Guard) -> Option<*const E> {
        debug_assert_eq!(hash, self.hash(key));
        let tagged = entry.cast_mut().map_addr(|addr| addr | tag_of(hash));
        loop {
            let segment = self.segment(hash, guard);
            let home = segment.home(hash);
            if !home.lock() {
                std::thread::yield_now();
                continue;
            }
            // SAFETY: the guard is pinned, so the segment is not freed.
            let found =
                unsafe { home.find_slot(|slot, found| (found == tagged).then_some((slot, found))) };
            let mut left = u32::MAX;
            if let Some((slot, _)) = found {
                slot.store(null_mut(), Ordering::Release);
                let entries = segment.entries.fetch_sub(1, Ordering::Relaxed);
                debug_assert_ne!(entries, 0, "a segment counts the entries that are linked in it");
                left = entries - 1;
            }
            home.unlock();
            if left <= SEGMENT_SPARSE && left.is_multiple_of(REMOVALS_PER_TRY) && segment.depth > 0
            {
                self.merge(hash, guard);
            }
            return found.map(|(_, linked)| linked.map_addr(|addr| addr & ADDRESS).cast_const());
        }
    }

    /// The number of entries; exact while no thread changes the index.
    pub fn len(&self, guard: &Guard) -> usize {
        self.segments(guard).map(|(_, s)| s.entries.load(Ordering::Relaxed) as usize).sum()
    }

    /// Bytes of the directory and segments, without overflow buckets and entries.
    pub fn bytes(&self, guard: &Guard) -> usize {
        let segments = self.segments(guard).count() * size_of::<Segment<E>>();
        segments + size_of_val(&*self.directory(guard).segments)
    }

    /// Whether there is no entry.
    pub fn is_empty(&self, guard: &Guard) -> bool {
        self.len(guard) == 0
    }

    /// Calls `visit` for every entry, in no order. An entry linked throughout is visited exactly
    /// once; entries linked or unlinked meanwhile may or may not be visited.
    pub fn for_each<'g>(&self, guard: &'g Guard, mut visit: impl FnMut(&'g E)) {
        for (from, segment) in self.segments(guard) {
            for bucket in &segment.buckets {
                // SAFETY: the guard is pinned, so neither the segment nor an entry in it is freed.
                unsafe {
                    bucket.find_slot::<()>(|_, tagged| {
                        let entry = tagged.map_addr(|addr| addr & ADDRESS).as_ref();
                        let is_in = |entry: &&E| self.is_from(from, segment.depth, entry);
                        entry.into_iter().filter(is_in).for_each(&mut visit);
                        None
                    });
                }
            }
        }
    }

    /// Whether the hash of an entry, in a segment of this depth, is `from` or above. The segment
    /// contains `from`: only if `from` is not its begin the key is hashed.
    #[inline]
    fn is_from(&self, from: u64, depth: u32, entry: &E) -> bool {
        walk::first_of(from, depth) == from || self.hash(entry.key()) >= from
    }

    /// The segments, each once, and the first hash whose entries were not in the segments before. A
    /// segment split or merged meanwhile is returned as it was or as it is: each step skips the
    /// whole hash range of the returned segment.
    fn segments<'g>(&self, guard: &'g Guard) -> impl Iterator<Item = (u64, &'g Segment<E>)> {
        let mut next = Some(0);
        std::iter::from_fn(move || {
            let from = next?;
            let segment = self.segment(from, guard);
            next = walk::last_of(from, segment.depth).checked_add(1);
            Some((from, segment))
        })
    }
}

impl<E> Drop for HashIndex<E> {
    fn drop(&mut self) {
        let directory = *self.directory.get_mut();
        let guard = pin();
        let growth = self.growth.get_mut().unwrap_or_else(PoisonError::into_inner);
        let bytes = growth.segments * size_of::<Segment<E>>();
        let free = move || {
            // SAFETY: the index is gone, and so are all guards pinned before, so there is no other
            // access. Each segment is freed once: the step skips the other slots of the segment.
            unsafe {
                let directory = Box::from_raw(directory);
                let mut at = 0;
                while let Some(slot) = directory.segments.get(at) {
                    let segment = slot.load(Ordering::Acquire);
                    at += 1 << (directory.depth - (*segment).depth);
                    Segment::free(segment);
                }
            }
        };
        // SAFETY: no guard pinned from now on can reach the directory; the directory is freed after
        // all guards pinned before.
        unsafe { retire(&guard, bytes, free) };
    }
}
