//! Gaps between rows: a transaction can read, validate and stamp the absence of a key like a row.

use hyades_index::{GapHooks, Insertion, Leaf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of buckets for the absent keys of a hash index. Fixed: misses cost no further memory.
const MISS_BUCKETS: usize = 1 << 14;

/// The gap of a hash index that covers all absent keys of one bucket: a version, incremented when a
/// key of the bucket is inserted or removed, and a stamp.
pub(crate) struct MissBucket<S> {
    pub(super) version: AtomicU64,
    pub(super) stamp: S,
}

/// The buckets of one hash index. They are allocated at the first miss or insertion, so that an
/// empty table uses no memory for them.
pub(super) struct MissBuckets<S>(OnceLock<Box<[MissBucket<S>]>>);

impl<S> Default for MissBuckets<S> {
    fn default() -> Self {
        MissBuckets(OnceLock::new())
    }
}

impl<S: Default> MissBuckets<S> {
    /// The bucket of the absent keys with this hash.
    #[inline]
    pub fn bucket(&self, hash: u64) -> &MissBucket<S> {
        let bucket = || MissBucket { version: AtomicU64::new(0), stamp: S::default() };
        let buckets = self.0.get_or_init(|| (0..MISS_BUCKETS).map(|_| bucket()).collect());
        &buckets[hash as usize % MISS_BUCKETS]
    }
}

/// A gap as observed, with its version: a leaf of an ordered index, or a bucket of absent keys.
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

    /// Whether the version is still the observed one, so that no key was inserted since.
    #[inline]
    pub fn is_current(&self) -> bool {
        match self {
            Gap::Leaf(leaf) => leaf.is_current(),
            Gap::Bucket(bucket, version) => bucket.version.load(Ordering::SeqCst) == *version,
        }
    }
}

/// How a transaction's own insertion changed a gap: `before` may be replaced by `after` in its
/// observations.
pub(crate) struct GapChange<'g, S> {
    pub(super) before: (usize, u64),
    pub(super) after: [Option<Gap<'g, S>>; 2],
    /// The gap that contains the new key.
    pub holder: Gap<'g, S>,
}

impl<'g, S> GapChange<'g, S> {
    /// Replaces the observation of the gap just before the insertion by the gaps that it became.
    pub fn update_observations(self, seen: &mut bumpalo::collections::Vec<'_, Gap<'g, S>>) {
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

/// The gap change that an insertion into an ordered index caused.
pub(super) fn leaf_change<S>(insertion: Insertion<'_, S>) -> GapChange<'_, S> {
    let holder = Gap::Leaf(insertion.holder());
    GapChange {
        before: (insertion.leaf.id(), insertion.version_before),
        after: [Some(Gap::Leaf(insertion.leaf)), insertion.sibling.map(Gap::Leaf)],
        holder,
    }
}

/// Passes leaf splits and merges to the logging protocol, as `(target stamp, source stamp)`.
pub(crate) struct StampHooks<F>(pub F);

impl<S, F: Fn(&S, &S)> GapHooks<S> for StampHooks<F> {
    fn split(&self, from: &S, to: &S) {
        (self.0)(to, from);
    }
    fn merge(&self, into: &S, from: &S) {
        (self.0)(into, from);
    }
}
