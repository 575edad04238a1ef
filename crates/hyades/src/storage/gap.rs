//! Gaps between rows: what a missing key leaves behind, so that its absence can be read, validated and
//! stamped like a row.

use super::ordered_index::{GapHooks, Insertion, Leaf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many buckets stand for the keys that a hash index does not have. Fixed: a flood of misses
/// costs no memory.
const MISS_BUCKETS: usize = 1 << 14;

/// What a missing key in a hash index leaves behind: a version that every new key of the bucket
/// raises, and a stamp.
pub(crate) struct MissBucket<S> {
    pub(super) version: AtomicU64,
    pub(super) stamp: S,
}

/// The buckets of one hash index. They are made for the first key that is missed or put in, so that a table
/// without rows takes no memory for them.
pub(super) struct Misses<S>(OnceLock<Box<[MissBucket<S>]>>);

impl<S> Default for Misses<S> {
    fn default() -> Self {
        Misses(OnceLock::new())
    }
}

impl<S: Default> Misses<S> {
    /// The bucket of the keys with this hash.
    #[inline]
    pub fn bucket(&self, hash: u64) -> &MissBucket<S> {
        let bucket = || MissBucket { version: AtomicU64::new(0), stamp: S::default() };
        let buckets = self.0.get_or_init(|| (0..MISS_BUCKETS).map(|_| bucket()).collect());
        &buckets[hash as usize % MISS_BUCKETS]
    }
}

/// A gap as a transaction saw it: a leaf of an ordered index, or a bucket of missing keys.
pub(crate) enum Gap<'g, S> {
    Leaf(Leaf<'g, S>),
    Bucket(&'g MissBucket<S>, u64),
}

impl<'g, S> Gap<'g, S> {
    /// The gap's stamp.
    #[inline]
    pub fn stamp(&self) -> &'g S {
        match self {
            Gap::Leaf(leaf) => leaf.gap(),
            Gap::Bucket(bucket, _) => &bucket.stamp,
        }
    }

    /// Whether no key has come into the gap since it was seen.
    #[inline]
    pub fn is_current(&self) -> bool {
        match self {
            Gap::Leaf(leaf) => leaf.is_current(),
            Gap::Bucket(bucket, version) => bucket.version.load(Ordering::SeqCst) == *version,
        }
    }
}

/// How the gap changed by one's own insertion: who saw it as `before` may go on with `after`.
pub(crate) struct GapChange<'g, S> {
    pub(super) before: (usize, u64),
    pub(super) after: [Option<Gap<'g, S>>; 2],
    /// The gap that the new key lies in.
    pub holder: Gap<'g, S>,
}

impl<'g, S> GapChange<'g, S> {
    /// Replaces gaps seen just before the change by what they have become.
    pub fn carry_over(self, seen: &mut bumpalo::collections::Vec<'_, Gap<'g, S>>) {
        let mut found = false;
        for gap in seen.iter_mut() {
            match (gap, &self.after[0]) {
                (Gap::Leaf(leaf), Some(Gap::Leaf(now)))
                    if (leaf.id(), leaf.version()) == self.before =>
                {
                    *leaf = *now;
                    found = true;
                }
                (Gap::Bucket(bucket, version), Some(Gap::Bucket(..)))
                    if (std::ptr::from_ref(*bucket) as usize, *version) == self.before =>
                {
                    *version += 1;
                }
                _ => {}
            }
        }
        if let (true, [_, Some(sibling)]) = (found, self.after) {
            seen.push(sibling);
        }
    }
}

/// How an ordered index changed by an insertion.
pub(super) fn leaf_change<S>(insertion: Insertion<'_, S>) -> GapChange<'_, S> {
    let holder = Gap::Leaf(insertion.holder());
    GapChange {
        before: (insertion.leaf.id(), insertion.version_before),
        after: [Some(Gap::Leaf(insertion.leaf)), insertion.sibling.map(Gap::Leaf)],
        holder,
    }
}

/// Splits and merges of leaves, as the logging protocol wants them.
pub(crate) struct Inherit<F>(pub F);

impl<S, F: Fn(&S, &S)> GapHooks<S> for Inherit<F> {
    fn split(&self, from: &S, to: &S) {
        (self.0)(to, from);
    }
    fn merge(&self, into: &S, from: &S) {
        (self.0)(into, from);
    }
}
