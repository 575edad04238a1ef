//! A walk over all entries that can stop after any bucket and be resumed.

use super::super::prefetch::prefetch;
use super::{ADDRESS, BUCKETS, Bucket, HashIndex, Keyed};
use crossbeam_epoch::Guard;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

/// The resume position of [`HashIndex::for_each_from`]; the default is the beginning.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub struct HashPosition {
    /// The lowest hash of the segment, as the segment was when the walk reached it.
    first: u64,
    depth: u32,
    /// The next bucket.
    bucket: usize,
}

/// Prefetch distance of a walk, in buckets.
const AHEAD: usize = 4;

/// The highest hash whose first `depth` bits are those of `hash`.
fn last_of(hash: u64, depth: u32) -> u64 {
    // Two shifts, as in `Directory::slot`.
    hash | (u64::MAX >> 1 >> depth) << 1 | 1
}

impl<E> Bucket<E> {
    /// Prefetches the entries of this bucket, not those of its overflow buckets.
    fn prefetch_entries(&self) {
        for slot in &self.slots {
            // Relaxed: nothing is read through the pointer.
            let entry = slot.load(Ordering::Relaxed).map_addr(|addr| addr & ADDRESS);
            if !entry.is_null() {
                prefetch(entry.cast_const());
            }
        }
    }
}

impl<E: Keyed + 'static> HashIndex<E> {
    /// As [`HashIndex::for_each`], bucket by bucket, beginning at `at`. Stops at the end of a
    /// bucket in which `visit` has broken off. Returns the position to resume from, or `None` at
    /// the end. The caller need not stay pinned between two calls.
    pub fn for_each_from<'g>(
        &self,
        mut at: HashPosition,
        guard: &'g Guard,
        mut visit: impl FnMut(&'g E) -> ControlFlow<()>,
    ) -> Option<HashPosition> {
        loop {
            let mut flow = ControlFlow::Continue(());
            // If the segment was split since, visit the same bucket of each of its parts.
            let mut hash = at.first;
            let last = loop {
                // Segments are split and never merged, so a segment always begins at this hash.
                let segment = self.segment(hash, guard);
                if at.bucket == 0 && hash == at.first {
                    at.depth = segment.depth;
                }
                if let Some(ahead) = segment.buckets.get(at.bucket + AHEAD) {
                    ahead.prefetch_entries();
                }
                // SAFETY: the guard is pinned, so neither the segment nor an entry in it is freed.
                unsafe {
                    segment.buckets[at.bucket].find_slot::<()>(|_, tagged| {
                        let entry = tagged.map_addr(|addr| addr & ADDRESS).as_ref()?;
                        if visit(entry).is_break() {
                            flow = ControlFlow::Break(());
                        }
                        None
                    });
                }
                let last = last_of(hash, segment.depth);
                if last == last_of(at.first, at.depth) {
                    break last;
                }
                hash = last + 1;
            };
            at.bucket += 1;
            if at.bucket == BUCKETS {
                at = HashPosition { first: last.checked_add(1)?, ..HashPosition::default() };
            }
            if flow.is_break() {
                return Some(at);
            }
        }
    }
}
