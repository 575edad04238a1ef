//! Growth of the hash index: a full segment is replaced by two; the directory doubles if needed.
//!
//! Invariant: a lookup finds every entry that is linked throughout the lookup. The old segment is
//! never changed: its chains are locked until both halves are published, and frozen from then on.

use super::{ADDRESS, DIRECTORY_SLACK, Directory, FROZEN, HashIndex, Keyed, Segment};
use hyades_platform::prefetch::prefetch;
use hyades_platform::reclaim::{Guard, retire};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicPtr, Ordering};

impl<E: Keyed + 'static> HashIndex<E> {
    /// Replaces a full segment by two, unless already done or the directory would be too large.
    #[cold]
    pub(super) fn split(&self, hash: u64, segment: &Segment<E>, guard: &Guard) {
        let mut growth = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        let mut directory = self.directory(guard);
        let old = directory.slot(hash).load(Ordering::Acquire);
        if !std::ptr::eq(old, segment) {
            return;
        }
        let depth = segment.depth;
        if depth == directory.depth {
            if directory.segments.len() >= DIRECTORY_SLACK * growth.segments {
                return;
            }
            directory = self.double(directory, guard);
        }
        segment.buckets.iter().for_each(|bucket| assert!(bucket.lock(), "split only once"));
        let halves = segment.divide(self, guard);
        // SAFETY: the halves were made above, and no other thread can reach them yet.
        let moved = halves.map(|half| unsafe { &*half }.entries.load(Ordering::Relaxed));
        let entries = segment.entries.load(Ordering::Relaxed);
        debug_assert_eq!(
            moved[0] + moved[1],
            entries,
            "each entry of a segment is in one half of it"
        );
        let from = ((hash >> 1 >> (63 - depth)) as usize) << (directory.depth - depth);
        let length = 1 << (directory.depth - depth);
        for (i, slot) in directory.segments[from..from + length].iter().enumerate() {
            slot.store(halves[usize::from(i >= length / 2)], Ordering::Release);
        }
        growth.segments += 1;
        growth.of_depth[depth as usize] -= 1;
        growth.of_depth[depth as usize + 1] += 2;
        segment.freeze();
        // SAFETY: all directory slots that pointed to the segment were overwritten above, under the
        // growth lock, so no guard pinned from now on can reach the segment, and the segment is
        // retired once.
        unsafe { retire(guard, segment.allocated_bytes(), move || Segment::free(old)) };
    }

    /// Publishes a directory of twice the size. The caller holds the growth lock.
    fn double<'g>(&self, old: &'g Directory<E>, guard: &'g Guard) -> &'g Directory<E> {
        let both = |slot: &AtomicPtr<Segment<E>>| {
            let segment = slot.load(Ordering::Acquire);
            [AtomicPtr::new(segment), AtomicPtr::new(segment)]
        };
        debug_assert_eq!(
            old.segments.len(),
            1 << old.depth,
            "a directory has a slot for each prefix"
        );
        let segments = old.segments.iter().flat_map(both).collect();
        let new = Box::into_raw(Box::new(Directory { depth: old.depth + 1, segments }));
        let old = self.directory.swap(new, Ordering::AcqRel);
        // SAFETY: the old directory was replaced above, under the growth lock, so it is retired
        // once. The new directory can only be retired later than the guard was pinned.
        unsafe {
            retire(guard, (*new).allocated_bytes() / 2, move || drop(Box::from_raw(old)));
            &*new
        }
    }
}

impl<E: Keyed + 'static> Segment<E> {
    /// Freezes the segment's chains, all locked: writers look the segment up again.
    pub(super) fn freeze(&self) {
        for bucket in &self.buckets {
            let link = bucket.link.load(Ordering::Relaxed);
            bucket.link.store(link.map_addr(|addr| addr | FROZEN), Ordering::Release);
        }
    }

    /// Copies the entries of this segment, whose chains are all locked, into two new segments.
    fn divide(&self, index: &HashIndex<E>, _guard: &Guard) -> [*mut Segment<E>; 2] {
        let halves = [Segment::new(self.depth + 1), Segment::new(self.depth + 1)];
        for (i, bucket) in self.buckets.iter().enumerate() {
            // Hashing reads the keys, so the keys of the bucket after next are prefetched.
            for slot in self.buckets.get(i + 2).into_iter().flat_map(|b| &b.slots) {
                prefetch(slot.load(Ordering::Relaxed).map_addr(|addr| addr & ADDRESS));
            }
            // SAFETY: the guard is pinned, so no entry in the chain is freed: entries are retired
            // through the epoch. The halves were made above and are not yet shared.
            unsafe {
                bucket.find_slot::<()>(|_, tagged| {
                    let entry = tagged.map_addr(|addr| addr & ADDRESS).as_ref()?;
                    let hash = index.hash(entry.key());
                    let half = &*halves[(hash >> (63 - self.depth)) as usize & 1];
                    half.home(hash).put(tagged);
                    half.entries.fetch_add(1, Ordering::Relaxed);
                    None
                });
            }
        }
        halves
    }
}
