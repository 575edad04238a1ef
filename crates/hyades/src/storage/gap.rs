//! Gaps between rows: a transaction can read, validate and stamp the absence of a key like a row.

use super::address_hasher::AddressHasher;
use bumpalo::collections::Vec as ArenaVec;
use hyades_index::{GapHooks, Insertion, Leaf};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;
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

/// The buckets of one hash index. Allocated at the first miss or insertion: an empty table uses no
/// memory for buckets.
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
pub enum Gap<'g, S> {
    Leaf(Leaf<'g, S>),
    Bucket(&'g MissBucket<S>, u64),
}

impl<S> Clone for Gap<'_, S> {
    fn clone(&self) -> Self {
        match self {
            Gap::Leaf(leaf) => Gap::Leaf(*leaf),
            Gap::Bucket(bucket, version) => Gap::Bucket(bucket, *version),
        }
    }
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

    /// Whether the version is still the observed one: no key was inserted since.
    #[inline]
    pub fn is_current(&self) -> bool {
        match self {
            Gap::Leaf(leaf) => leaf.is_current(),
            Gap::Bucket(bucket, version) => bucket.version.load(Ordering::SeqCst) == *version,
        }
    }

    /// The identity of the gap while the guard is pinned, and the observed version.
    fn observed(&self) -> (usize, u64) {
        match self {
            Gap::Leaf(leaf) => (leaf.id(), leaf.version()),
            Gap::Bucket(bucket, version) => (std::ptr::from_ref(*bucket) as usize, *version),
        }
    }
}

/// From this number on a transaction's observations are found by their gaps: an insertion does not
/// look at all observations.
const MANY_OBSERVATIONS: usize = 32;

/// The places of a transaction's observations by gap, once there are many.
#[derive(Default)]
pub(crate) struct GapPlaces {
    /// The first observation of each gap, by the gap's identity.
    first: HashMap<usize, usize, BuildHasherDefault<AddressHasher>>,
    /// The number of observations covered: the first ones.
    known: usize,
}

impl GapPlaces {
    /// Records the places of the observations since the last call. An observation already recorded,
    /// with the same version, is dropped.
    fn update<S>(&mut self, seen: &mut ArenaVec<'_, Gap<'_, S>>) {
        let mut kept = self.known;
        for at in self.known..seen.len() {
            let (gap, version) = seen[at].observed();
            match self.first.entry(gap) {
                Entry::Occupied(first) if seen[*first.get()].observed().1 == version => continue,
                // Two versions: one of the two is not current, whatever the state of the other.
                Entry::Occupied(_) => {}
                Entry::Vacant(place) => _ = place.insert(kept),
            }
            seen.swap(kept, at);
            kept += 1;
        }
        seen.truncate(kept);
        self.known = kept;
    }
}

/// The change of a gap by a transaction's own insertion: `before` may be replaced by `after` in its
/// observations.
pub struct GapChange<'g, S> {
    pub(super) before: (usize, u64),
    pub(super) after: [Option<Gap<'g, S>>; 2],
    /// The gap that contains the new key.
    pub holder: Gap<'g, S>,
}

impl<'g, S> GapChange<'g, S> {
    /// The gaps after the insertion: the gap, and the upper part if split off.
    pub fn gaps(&self) -> impl Iterator<Item = &Gap<'g, S>> {
        self.after.iter().flatten()
    }

    /// Replaces the observation of the gap just before the insertion by the resulting gaps.
    pub fn update_observations(self, seen: &mut ArenaVec<'_, Gap<'g, S>>, places: &mut GapPlaces) {
        let found = if seen.len() < MANY_OBSERVATIONS {
            seen.iter_mut().fold(false, |found, gap| self.update(gap) | found)
        } else {
            places.update(seen);
            places.first.get(&self.before.0).is_some_and(|at| self.update(&mut seen[*at]))
        };
        if let (true, [_, Some(sibling)]) = (found, self.after) {
            seen.push(sibling);
        }
    }

    /// Replaces an observation if it is of the gap just before the insertion; returns whether it
    /// is.
    fn update(&self, seen: &mut Gap<'g, S>) -> bool {
        if seen.observed() != self.before {
            return false;
        }
        match (seen, &self.after[0]) {
            (Gap::Leaf(leaf), Some(Gap::Leaf(now))) => *leaf = *now,
            (Gap::Bucket(_, version), Some(Gap::Bucket(..))) => *version += 1,
            _ => {}
        }
        true
    }
}

/// The gap change of an insertion into an ordered index.
pub(super) fn leaf_change<S>(insertion: Insertion<'_, S>) -> GapChange<'_, S> {
    let holder = Gap::Leaf(insertion.holder());
    GapChange {
        before: (insertion.leaf.id(), insertion.version_before),
        after: [Some(Gap::Leaf(insertion.leaf)), insertion.sibling.map(Gap::Leaf)],
        holder,
    }
}

/// What becomes of the lock in a gap when leaves are split and merged.
pub struct GapLocks<S> {
    /// The upper part of a gap becomes a gap of its own: `(from, to)`.
    pub split: fn(&S, &S),
    /// Whether a gap without keys may become part of another gap: not while locked. After `true`
    /// the gap is never locked again.
    pub may_merge: fn(&S) -> bool,
}

/// Passes leaf splits and merges to the logging protocol, as `(target stamp, source stamp)`, and to
/// the locks of gaps.
pub(crate) struct StampHooks<F, S>(pub F, pub Option<GapLocks<S>>);

impl<S, F: Fn(&S, &S)> GapHooks<S> for StampHooks<F, S> {
    fn split(&self, from: &S, to: &S) {
        (self.0)(to, from);
        if let Some(locks) = &self.1 {
            (locks.split)(from, to);
        }
    }
    fn merge(&self, into: &S, from: &S) {
        (self.0)(into, from);
    }
    fn may_merge(&self, from: &S) -> bool {
        self.1.as_ref().is_none_or(|locks| (locks.may_merge)(from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bumpalo::Bump;

    fn bucket() -> MissBucket<()> {
        MissBucket { version: AtomicU64::new(0), stamp: () }
    }

    /// An insertion into a bucket.
    fn insertion(bucket: &MissBucket<()>, before: u64) -> GapChange<'_, ()> {
        GapChange {
            before: Gap::Bucket(bucket, before).observed(),
            after: [Some(Gap::Bucket(bucket, before + 1)), None],
            holder: Gap::Bucket(bucket, before + 1),
        }
    }

    /// However many there are: observations of another gap, or of another version, stay unchanged.
    #[test]
    fn an_insertion_changes_the_observations_of_its_gap() {
        let buckets: Vec<_> = (0..100).map(|_| bucket()).collect();
        for count in [1, MANY_OBSERVATIONS - 1, MANY_OBSERVATIONS, 100] {
            let (arena, mut places) = (Bump::new(), GapPlaces::default());
            let mut seen: ArenaVec<'_, Gap<'_, ()>> = ArenaVec::new_in(&arena);
            for version in 0..3 {
                // All buckets at first, and each third again.
                let step = if version == 0 { 1 } else { 3 };
                let observed = buckets[..count].iter().step_by(step);
                seen.extend(observed.map(|bucket| Gap::Bucket(bucket, version)));
                for bucket in buckets[..count].iter().step_by(3) {
                    insertion(bucket, version).update_observations(&mut seen, &mut places);
                }
                insertion(&buckets[0], 7).update_observations(&mut seen, &mut places);
            }
            for (at, bucket) in buckets[..count].iter().enumerate() {
                let gap = Gap::Bucket(bucket, 0).observed().0;
                let of_it = seen.iter().map(Gap::observed).filter(|(other, _)| *other == gap);
                let mut versions: Vec<u64> = of_it.map(|(_, version)| version).collect();
                versions.dedup();
                let now = if at.is_multiple_of(3) { 3 } else { 0 };
                assert_eq!(versions, [now], "bucket {at} of {count}");
            }
        }
    }

    /// Otherwise a transaction that inserts key after key, each missed before, would look at all
    /// earlier observations each time.
    #[test]
    fn what_is_observed_again_and_again_is_kept_once() {
        let (bucket, arena, mut places) = (bucket(), Bump::new(), GapPlaces::default());
        let mut seen: ArenaVec<'_, Gap<'_, ()>> = ArenaVec::new_in(&arena);
        for version in 0..10_000 {
            seen.push(Gap::Bucket(&bucket, version));
            insertion(&bucket, version).update_observations(&mut seen, &mut places);
            assert!(seen.len() < MANY_OBSERVATIONS);
        }
        assert!(seen.iter().all(|gap| gap.observed().1 == 10_000));
    }

    /// A gap observed in two versions has changed in between: the change is not forgotten.
    #[test]
    fn an_observation_of_another_version_is_kept() {
        let (bucket, arena, mut places) = (bucket(), Bump::new(), GapPlaces::default());
        let mut seen: ArenaVec<'_, Gap<'_, ()>> = ArenaVec::new_in(&arena);
        for round in 0..50 {
            seen.extend([0, 4].map(|version| Gap::Bucket(&bucket, version)));
            insertion(&bucket, 4 + round).update_observations(&mut seen, &mut places);
            assert!(seen.iter().any(|gap| gap.observed().1 == 0), "round {round}");
        }
    }
}
