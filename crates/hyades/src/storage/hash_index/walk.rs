//! Walks over all entries that can stop after any bucket and be resumed.
//!
//! [`HashIndex::for_each_from`] goes segment by segment, and its position is for a thread that
//! walks on soon. [`HashIndex::walk_from`] goes by bucket number first, and its position is one
//! number for a client that may return after any time.

use super::{ADDRESS, BUCKETS, Bucket, HashIndex, Keyed};
use hyades_platform::prefetch::prefetch;
use hyades_platform::reclaim::Guard;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

/// The resume position of [`HashIndex::for_each_from`]; the default is the beginning of a walk over
/// all hashes.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub struct HashPosition {
    /// The lowest hash of the segment, as the segment was when the walk reached it; or of the
    /// walk's range, if the range is only a part of the segment.
    first: u64,
    depth: u32,
    /// The next bucket.
    bucket: usize,
    /// The walk ends behind the last hash with the same first bits, as many as given here.
    range_bits: u32,
}

/// Bits of a cursor with the beginning of a hash. With the bucket's number they make 52, so a
/// cursor is an integer for clients that keep numbers as floating point.
const CURSOR_HASH_BITS: u32 = 43;

/// A cursor has one value for each bucket of the largest possible segments.
const _: () = assert!(BUCKETS.trailing_zeros() + CURSOR_HASH_BITS < 53);

/// The resume position of [`HashIndex::walk_from`]; the default is the beginning.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HashCursor {
    pub(super) bucket: usize,
    /// The lowest hash of a segment. Its last bits, beyond the bits of a cursor, are zero.
    pub(super) first: u64,
}

impl HashCursor {
    /// The cursor of a number; `None` if beyond the last position.
    pub fn from_number(number: u64) -> Option<HashCursor> {
        let bucket = usize::try_from(number >> CURSOR_HASH_BITS).ok().filter(|at| *at < BUCKETS)?;
        Some(HashCursor { bucket, first: number << (64 - CURSOR_HASH_BITS) })
    }

    /// The cursor's number, below 2 to the power of 53; 0 is the beginning.
    pub fn number(self) -> u64 {
        (self.bucket as u64) << CURSOR_HASH_BITS | self.first >> (64 - CURSOR_HASH_BITS)
    }

    /// The position behind the bucket here, in a segment of this depth: the same bucket of the next
    /// segment, or the next bucket of the first segment. `None` at the end.
    pub(super) fn behind(self, depth: u32) -> Option<HashCursor> {
        debug_assert!(depth <= CURSOR_HASH_BITS, "a segment begins where a cursor can point to");
        match last_of(self.first, depth).checked_add(1) {
            Some(first) => Some(HashCursor { first, ..self }),
            None => Some(HashCursor { bucket: self.bucket + 1, first: 0 })
                .filter(|next| next.bucket < BUCKETS),
        }
    }
}

/// Prefetch distance of a walk, in buckets.
const AHEAD: usize = 4;

/// The highest hash with the same first `depth` bits as `hash`.
pub(super) fn last_of(hash: u64, depth: u32) -> u64 {
    hash | behind(depth)
}

/// The lowest hash with the same first `depth` bits as `hash`.
pub(super) fn first_of(hash: u64, depth: u32) -> u64 {
    hash & !behind(depth)
}

/// All bits but the first `depth`, at least the last bit.
fn behind(depth: u32) -> u64 {
    // Two shifts, as in `Directory::slot`.
    (u64::MAX >> 1 >> depth) << 1 | 1
}

impl<E> Bucket<E> {
    /// Prefetches the entries of this bucket, not of its overflow buckets.
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
    /// Returns the beginnings of at most `most` walks over ranges of hashes: together the walks
    /// visit what one walk over all hashes visits. Each range has a segment or more.
    pub fn range_starts(&self, most: usize, guard: &Guard) -> Vec<HashPosition> {
        let range_bits = most.max(1).ilog2().min(self.directory(guard).depth);
        // Two shifts, as in `Directory::slot`.
        let first = |range: u64| range << 1 << (63 - range_bits);
        let start = |range| HashPosition { first: first(range), range_bits, ..Default::default() };
        (0..1 << range_bits).map(start).collect()
    }

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
            // If the segment was split since, visit the same bucket of each of its parts; if it was
            // merged, only the entries that the bucket of the old segment would have.
            let mut hash = at.first;
            let last = loop {
                let segment = self.segment(hash, guard);
                if at.bucket == 0 && hash == at.first {
                    at.depth = segment.depth.max(at.range_bits);
                }
                if let Some(ahead) = segment.buckets.get(at.bucket + AHEAD) {
                    ahead.prefetch_entries();
                }
                let end = last_of(at.first, at.depth);
                let last = last_of(hash, segment.depth);
                let has_others = first_of(hash, segment.depth) < hash || last > end;
                // SAFETY: the guard is pinned, so neither the segment nor an entry in it is freed.
                unsafe {
                    segment.buckets[at.bucket].find_slot::<()>(|_, tagged| {
                        let entry = tagged.map_addr(|addr| addr & ADDRESS).as_ref()?;
                        if has_others && !(hash..=end).contains(&self.hash(entry.key())) {
                            return None;
                        }
                        if visit(entry).is_break() {
                            flow = ControlFlow::Break(());
                        }
                        None
                    });
                }
                if last >= end {
                    break end;
                }
                hash = last + 1;
            };
            at.bucket += 1;
            if at.bucket == BUCKETS {
                if last == last_of(at.first, at.range_bits) {
                    return None;
                }
                at = HashPosition { first: last + 1, depth: 0, bucket: 0, ..at };
            }
            if flow.is_break() {
                return Some(at);
            }
        }
    }

    /// Visits entries bucket by bucket, beginning at `cursor`. Stops at the end of a bucket once
    /// `visit` has broken off, or once `steps` buckets and entries were looked at; the number is
    /// subtracted from `steps`: one call takes no longer than `steps` and a chain. Returns the
    /// position to resume from, or `None` at the end. The index keeps nothing of a walk, and any
    /// thread may resume the walk.
    ///
    /// An entry linked from the beginning of the walk to its end is visited exactly once, however
    /// the index grows or shrinks meanwhile; other entries are visited or not. For: positions are
    /// ordered by bucket, then by hash. An entry keeps its bucket's number, the low bits of its
    /// hash, in every segment that it moves to. A position lies between two segments, or inside of
    /// a segment that was merged since; of this segment the entries below the position are left
    /// out. Hence, at each position, exactly the entries with a lower bucket, or with this bucket
    /// and a lower hash, have been passed. The same holds for a cursor of this index from before a
    /// rebuild, under the same secret.
    pub fn walk_from<'g>(
        &self,
        cursor: HashCursor,
        steps: &mut usize,
        guard: &'g Guard,
        mut visit: impl FnMut(&'g E) -> ControlFlow<()>,
    ) -> Option<HashCursor> {
        let mut at = cursor;
        loop {
            let segment = self.segment(at.first, guard);
            let next = at.behind(segment.depth);
            if let Some(next) = next {
                prefetch(&self.segment(next.first, guard).buckets[next.bucket]);
            }
            let bucket = &segment.buckets[at.bucket];
            bucket.prefetch_entries();
            let (mut flow, mut seen) = (ControlFlow::Continue(()), 1);
            // SAFETY: the guard is pinned, so neither the segment nor an entry in it is freed.
            unsafe {
                bucket.find_slot::<()>(|_, tagged| {
                    let entry = tagged.map_addr(|addr| addr & ADDRESS).as_ref()?;
                    seen += 1;
                    if self.is_from(at.first, segment.depth, entry) && visit(entry).is_break() {
                        flow = ControlFlow::Break(());
                    }
                    None
                });
            }
            *steps = steps.saturating_sub(seen);
            at = next?;
            debug_assert!(at > cursor, "a walk goes on");
            if flow.is_break() || *steps == 0 {
                return Some(at);
            }
        }
    }
}
