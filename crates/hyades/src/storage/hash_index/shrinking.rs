//! The inverse of growth: two sparse segments become one; the directory is halved if possible.
//!
//! Invariant: a lookup finds every entry that is linked throughout the lookup. For: a merge locks
//! all chains of both segments, copies the entries, and publishes the new segment in the place of
//! both before freezing the old segments. The old segments never change after they were locked. A
//! reader that has found one of them, in this directory or an older one, has begun before the
//! segment was replaced: an entry linked since the lookup began was linked when the chains were
//! locked, or the lookup ended before. A writer that has found an old segment waits for its lock,
//! sees the segment frozen, and looks the segment up again. The argument is that of a split, where
//! one old segment is replaced instead of two.
//!
//! Halving: every second slot of a directory longer than any segment needs points to the same
//! segment as the neighbour. A reader of the old directory finds the segments that were current
//! when the directory was replaced; these are then the segments of the new directory, or were
//! replaced since.
//!
//! A merge waits for locks of chains only under the growth lock, like a split, and a holder of a
//! chain's lock waits for nothing.

use super::{ADDRESS, Directory, Growth, HashIndex, Keyed, SEGMENT_SPARSE, Segment};
use hyades_platform::reclaim::{Guard, retire};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicPtr, Ordering};

impl<E: Keyed + 'static> HashIndex<E> {
    /// Merges the segment of `hash` with its sibling, and the result with its own sibling, while
    /// the segments are sparse; then halves the directory while it is longer than needed.
    #[cold]
    pub(super) fn merge(&self, hash: u64, guard: &Guard) {
        let pair = self.siblings(hash, guard);
        if !pair.is_some_and(|(pair, _)| are_sparse(pair)) {
            return;
        }
        let mut growth = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((pair, slots)) = self.siblings(hash, guard)
            && are_sparse(pair)
        {
            // Checked again under the growth lock; the directory changes only under this lock.
            self.join(pair, slots, &mut growth, guard);
        }
        while self.halve(&growth, guard) {}
    }

    /// The segment of `hash` and the other half of the segment that both would form, and their
    /// slots in the directory. `None` if the other half is not one segment.
    #[expect(clippy::type_complexity, reason = "two segments and where they are")]
    fn siblings<'g>(
        &self,
        hash: u64,
        guard: &'g Guard,
    ) -> Option<([&'g Segment<E>; 2], &'g [AtomicPtr<Segment<E>>])> {
        let directory = self.directory(guard);
        // SAFETY: the guard is pinned, and a segment is freed only through the epoch, after being
        // replaced or the index dropped.
        let at = |slot: &AtomicPtr<Segment<E>>| unsafe { &*slot.load(Ordering::Acquire) };
        let depth = at(directory.slot(hash)).depth.checked_sub(1)?;
        // A segment may have been split since the directory was read; the directory is then an old
        // one.
        let length = 1usize << directory.depth.checked_sub(depth)?;
        let from = ((hash >> 1 >> (63 - depth)) as usize) * length;
        let slots = &directory.segments[from..from + length];
        let pair = [at(&slots[0]), at(&slots[length / 2])];
        pair.iter().all(|half| half.depth == depth + 1).then_some((pair, slots))
    }

    /// Replaces two segments by one. The caller holds the growth lock.
    fn join(
        &self,
        pair: [&Segment<E>; 2],
        slots: &[AtomicPtr<Segment<E>>],
        growth: &mut Growth,
        guard: &Guard,
    ) {
        let old = [0, slots.len() / 2].map(|at| slots[at].load(Ordering::Acquire));
        for half in pair {
            half.buckets.iter().for_each(|bucket| assert!(bucket.lock(), "replaced only once"));
        }
        let depth = pair[0].depth - 1;
        let joined = Segment::new(depth);
        // SAFETY: the segment was made above, and no other thread can reach it yet.
        unsafe { &*joined }.copy_from(pair, guard);
        for slot in slots {
            slot.store(joined, Ordering::Release);
        }
        growth.segments -= 1;
        growth.of_depth[depth as usize + 1] -= 2;
        growth.of_depth[depth as usize] += 1;
        for half in pair {
            half.freeze();
        }
        for old in old {
            // SAFETY: all directory slots that pointed to the segment were overwritten above, under
            // the growth lock, so no guard pinned from now on can reach the segment, and it is
            // retired once.
            unsafe { retire(guard, (&*old).allocated_bytes(), move || Segment::free(old)) };
        }
    }

    /// Publishes a directory of half the size, if no segment needs the last two bits of its index:
    /// so the next split does not double the directory again. One segment needs no bits. The caller
    /// holds the growth lock.
    fn halve(&self, growth: &Growth, guard: &Guard) -> bool {
        let old = self.directory(guard);
        let depth = old.depth as usize;
        let is_needed = |depth: usize| growth.of_depth[depth] > 0;
        if depth == 0 || is_needed(depth) || depth > 1 && is_needed(depth - 1) {
            return false;
        }
        let half = old.segments.iter().step_by(2);
        let segments = half.map(|slot| AtomicPtr::new(slot.load(Ordering::Acquire))).collect();
        let new = Box::into_raw(Box::new(Directory { depth: old.depth - 1, segments }));
        let old = self.directory.swap(new, Ordering::AcqRel);
        // SAFETY: the old directory was replaced above, under the growth lock, so it is retired
        // once.
        unsafe { retire(guard, (&*old).allocated_bytes(), move || drop(Box::from_raw(old))) };
        true
    }
}

/// Whether two segments are to be merged.
fn are_sparse<E>(pair: [&Segment<E>; 2]) -> bool {
    // Relaxed: only a hint for shrinking.
    let entries = pair.map(|half| half.entries.load(Ordering::Relaxed));
    entries[0].saturating_add(entries[1]) <= SEGMENT_SPARSE
}

impl<E> Segment<E> {
    /// Copies the entries of two segments, whose chains are all locked, into this segment, not
    /// shared yet. An entry keeps its bucket's number: the low bits of its hash.
    fn copy_from(&self, pair: [&Segment<E>; 2], _guard: &Guard) {
        for half in pair {
            for (bucket, own) in half.buckets.iter().zip(&self.buckets) {
                // SAFETY: the guard is pinned, so no bucket of the chain is freed.
                unsafe {
                    bucket.find_slot::<()>(|_, tagged| {
                        if tagged.addr() & ADDRESS != 0 {
                            own.put(tagged);
                            self.entries.fetch_add(1, Ordering::Relaxed);
                        }
                        None
                    });
                }
            }
        }
        let counted = pair.map(|half| half.entries.load(Ordering::Relaxed));
        debug_assert_eq!(
            self.entries.load(Ordering::Relaxed),
            counted[0] + counted[1],
            "each entry of two segments is in the one that replaces them"
        );
    }
}
