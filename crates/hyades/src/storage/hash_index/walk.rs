//! A walk over all entries that may stop at every bucket.

use super::super::prefetch::prefetch;
use super::{ADDRESS, BUCKETS, Bucket, HashIndex, Keyed};
use crossbeam_epoch::Guard;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

/// Where [`HashIndex::for_each_from`] has come to; the default is the beginning.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub struct HashPosition {
    /// The first hash of the segment, as it was when the walk came to it.
    first: u64,
    depth: u32,
    /// The next bucket.
    bucket: usize,
}

/// A walk starts loading the entries of the bucket that comes so many later.
const AHEAD: usize = 4;

/// The last hash whose first `depth` bits are those of `hash`.
fn last_of(hash: u64, depth: u32) -> u64 {
    // In two steps, as in `Directory::slot`.
    hash | (u64::MAX >> 1 >> depth) << 1 | 1
}

impl<E> Bucket<E> {
    /// Starts loading the entries of this bucket, those of its chain aside.
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
    /// As [`HashIndex::for_each`], bucket by bucket from `at` on, until a bucket is over in which `visit` broke
    /// off. Gives where to go on; `None` at the end. Meanwhile the caller need not be pinned.
    pub fn for_each_from<'g>(
        &self,
        mut at: HashPosition,
        guard: &'g Guard,
        mut visit: impl FnMut(&'g E) -> ControlFlow<()>,
    ) -> Option<HashPosition> {
        loop {
            let mut flow = ControlFlow::Continue(());
            // A segment that has been split since is passed as its parts, which have the same buckets.
            let mut hash = at.first;
            let last = loop {
                // Segments are split and never merged, so one always begins here.
                let segment = self.segment(hash, guard);
                if at.bucket == 0 && hash == at.first {
                    at.depth = segment.depth;
                }
                if let Some(ahead) = segment.buckets.get(at.bucket + AHEAD) {
                    ahead.prefetch_entries();
                }
                // SAFETY: the guard is pinned, and entries are retired through the epoch.
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
