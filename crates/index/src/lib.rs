//! The ordered index: a B+tree with optimistic lock coupling. Leaves have versions, for a
//! transaction's later check of the key ranges read, and gap payloads, for a concurrency control's
//! stamps of absent keys.
//!
//! The index stores pointers to entries owned by the caller. The index reads an entry's key only
//! where the inline words do not decide. Everything read through the index is bound to an epoch
//! guard.
//!
//! # Phantoms
//! An unsuccessful lookup and a scan report the leaves read, with versions. As long as
//! [`Leaf::is_current`] holds for all reported leaves, the set of keys in the range is unchanged.
//! An inserting transaction applies its own changes to its set of observed leaves, as stated by
//! [`Insertion`]. Entries of deleted rows are up to the caller.

mod descent;
mod finger;
mod gaps;
mod key;
mod leaf;
mod node;
mod scan;
mod shrink;
#[cfg(test)]
mod stress;
#[cfg(test)]
mod tests;
mod tree;
mod version;

use std::ops::{Bound, ControlFlow};

use hyades_platform::reclaim::Guard;

pub use descent::{Descent, DescentProgress};
pub use finger::Finger;
pub use gaps::{GapHooks, NoHooks};
pub use key::{KeyShape, Keyed};
use key::{fit_lower, fit_upper};
pub use leaf::{Inserted, Insertion, Leaf, RawLeaf};
use scan::ScanRange;
pub use scan::Visit;
use tree::Tree;
pub use version::Backoff;

/// An ordered index of entries `E`, with a gap payload `G` per leaf.
pub struct OrderedIndex<E, G>
where
    E: Keyed + 'static,
    G: Default + 'static,
{
    shape: KeyShape,
    tree: Shaped<E, G>,
}

/// The tree for a key shape. Numbers: inline words, entries per leaf, children per inner node, full
/// keys per inner node.
enum Shaped<E, G>
where
    E: Keyed + 'static,
    G: Default + 'static,
{
    One(Tree<E, G, 1, 32, 64, 0>),
    Two(Tree<E, G, 2, 32, 32, 0>),
    Four(Tree<E, G, 4, 32, 32, 0>),
    Long(Tree<E, G, 4, 32, 32, 32>),
}

macro_rules! with_tree {
    ($shaped:expr, $tree:ident => $body:expr) => {
        match $shaped {
            Shaped::One($tree) => $body,
            Shaped::Two($tree) => $body,
            Shaped::Four($tree) => $body,
            Shaped::Long($tree) => $body,
        }
    };
}

// SAFETY: the index never drops the entries pointed to, and gives entries out as `&E`, to any
// thread; `E: Send + Sync` suffices. The index owns payloads, dropped by any thread at the freeing
// of a retired leaf: `G: Send`.
unsafe impl<E: Keyed + Send + Sync + 'static, G: Default + Send + Sync> Send
    for OrderedIndex<E, G>
{
}
// SAFETY: all state changed behind `&self` is atomic. Threads get shared references to entries and
// payloads; `E: Sync` and `G: Sync` suffice.
unsafe impl<E: Keyed + Send + Sync + 'static, G: Default + Send + Sync> Sync
    for OrderedIndex<E, G>
{
}

impl<E, G> OrderedIndex<E, G>
where
    E: Keyed + Send + Sync + 'static,
    G: Default + Send + Sync + 'static,
{
    /// Makes an empty index for keys of `shape`.
    pub fn new(shape: KeyShape) -> Self {
        let tree = match shape {
            KeyShape::Fixed(0..=8) => Shaped::One(Tree::new()),
            KeyShape::Fixed(9..=16) => Shaped::Two(Tree::new()),
            KeyShape::Fixed(17..=32) => Shaped::Four(Tree::new()),
            KeyShape::Fixed(_) | KeyShape::Variable => Shaped::Long(Tree::new()),
        };
        OrderedIndex { shape, tree }
    }

    #[inline]
    fn check(&self, key: &[u8]) {
        if let KeyShape::Fixed(length) = self.shape {
            assert!(key.len() == length, "a key of {} bytes where all have {length}", key.len());
        }
    }

    /// The identity of the index, see [`Finger::tree`].
    #[inline]
    pub fn id(&self) -> *const () {
        with_tree!(&self.tree, tree => tree.id())
    }

    /// Begins a descent to the place of `key`, of any length, or with `below` to the place just
    /// below. `None` if the root is being changed.
    #[inline]
    pub fn begin_descent<'g>(
        &'g self,
        key: &[u8],
        below: bool,
        guard: &'g Guard,
    ) -> Option<Descent<'g>> {
        with_tree!(&self.tree, tree => tree.begin_descent(key, below, guard))
    }

    /// Advances a descent, begun in this index, by a level.
    #[inline]
    pub fn step<'g>(&'g self, descent: &mut Descent<'g>) -> DescentProgress<'g> {
        with_tree!(&self.tree, tree => tree.step(descent))
    }

    /// Returns the entry under `key`, if any, and the leaf with the key's place.
    ///
    /// # Panics
    /// If the key's length does not fit the index's shape. The same holds for `find`, `insert`,
    /// `insert_near`, `remove` and `take`.
    #[inline]
    pub fn get<'g>(&self, key: &[u8], guard: &'g Guard) -> (Option<&'g E>, Leaf<'g, G>) {
        self.check(key);
        with_tree!(&self.tree, tree => tree.get(&tree.probe(key), guard))
    }

    /// Returns the entry under `key`, if any.
    #[inline]
    pub fn find<'g>(&self, key: &[u8], guard: &'g Guard) -> Option<&'g E> {
        self.get(key, guard).0
    }

    /// Links `entry` under `key` unless the key exists.
    ///
    /// # Safety
    /// `entry` points to a valid entry with exactly the key `key`. Once linked the entry stays
    /// valid until unlinked by [`OrderedIndex::remove`] *and* then retired through
    /// [`hyades_platform::reclaim`], or until the index and all guards pinned before are gone.
    pub unsafe fn insert<'g>(
        &self,
        key: &[u8],
        entry: *const E,
        hooks: &dyn GapHooks<G>,
        guard: &'g Guard,
    ) -> Inserted<'g, E, G> {
        // SAFETY: passed on to the caller for `entry`; the finger is new, so has been in no index.
        unsafe { self.insert_near(key, entry, hooks, &mut Finger::new(guard)) }
    }

    /// As [`OrderedIndex::insert`], but tries the finger's leaf first. The finger then points at
    /// the leaf of the entry, if the leaf had room.
    ///
    /// # Safety
    /// As for [`OrderedIndex::insert`]. Every index pointed into by the finger so far outlives the
    /// finger.
    pub unsafe fn insert_near<'g>(
        &self,
        key: &[u8],
        entry: *const E,
        hooks: &dyn GapHooks<G>,
        finger: &mut Finger<'g>,
    ) -> Inserted<'g, E, G> {
        self.check(key);
        // SAFETY: the function's contract is the contract of `Tree::insert`.
        with_tree!(&self.tree, tree => unsafe {
            tree.insert(&tree.probe(key), entry, hooks, finger)
        })
    }

    /// Unlinks `entry` if `entry` is under `key`; returns whether the entry was unlinked. The
    /// leaf's version changes. An emptied leaf is unlinked, and its gap merged into the
    /// neighbour's.
    pub fn remove(
        &self,
        key: &[u8],
        entry: *const E,
        hooks: &dyn GapHooks<G>,
        guard: &Guard,
    ) -> bool {
        self.take(key, entry, hooks, &|_| (), guard).is_some()
    }

    /// As [`OrderedIndex::remove`], but returns the linked pointer. Unlike a pointer made from a
    /// reference returned by the index, the linked pointer may be used to free the entry.
    ///
    /// `leave` is called on the gap payload of the entry's leaf, under the leaf's lock, just before
    /// the entry is unlinked, to raise the gap's stamp to the entry's. `leave` must not panic, nor
    /// use the index.
    pub fn take(
        &self,
        key: &[u8],
        entry: *const E,
        hooks: &dyn GapHooks<G>,
        leave: &dyn Fn(&G),
        guard: &Guard,
    ) -> Option<*const E> {
        self.check(key);
        with_tree!(&self.tree, tree => tree.remove(&tree.probe(key), entry, hooks, leave, guard))
    }

    /// Visits every leaf with a key range overlapping the range from `lower` to `upper`, even
    /// without an entry in the range, in key order or, if `descending`, in the opposite order.
    /// `visit` gets the leaf and the leaf's entries in the range, in scan order: a consistent
    /// snapshot of the leaf at its version. `visit` may use the index.
    ///
    /// Every later insertion of a key inside the range (up to where `visit` stopped the scan)
    /// changes the version of at least one visited leaf. A leaf may be visited twice if the tree
    /// changes during the scan, an entry never. Bounds may have any length.
    pub fn scan<'g>(
        &self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        descending: bool,
        guard: &'g Guard,
        visit: Visit<'_, 'g, E, G>,
    ) {
        let (lower, upper) = match self.shape {
            KeyShape::Fixed(length @ 0..=32) => {
                (fit_lower(lower, length), fit_upper(upper, length))
            }
            _ => (lower, upper),
        };
        with_tree!(&self.tree, tree => {
            let probe = |key| tree.probe(key);
            let range = ScanRange { lower: lower.map(probe), upper: upper.map(probe), descending };
            tree.scan(range, guard, visit);
        });
    }

    /// Returns ascending keys, fewer than `parts`, that divide the index into ranges of about the
    /// same number of leaves: separators near the root. None if the index has a single leaf.
    pub fn dividing_keys(&self, parts: usize, guard: &Guard) -> Vec<Vec<u8>> {
        let length = match self.shape {
            KeyShape::Fixed(length) => length,
            KeyShape::Variable => usize::MAX,
        };
        with_tree!(&self.tree, tree => {
            let fences = tree.fences_near_root(parts, guard);
            let parts = parts.clamp(1, fences.len() + 1);
            let chosen = (1..parts).map(|part| &fences[part * fences.len() / parts]);
            let mut keys: Vec<Vec<u8>> = chosen.map(|fence| fence.to_bytes(length)).collect();
            keys.dedup();
            keys
        })
    }

    /// Calls `visit` for every entry in key order. Entries linked or unlinked meanwhile may or
    /// may not be seen.
    pub fn for_each<'g>(&self, guard: &'g Guard, mut visit: impl FnMut(&'g E)) {
        self.scan(Bound::Unbounded, Bound::Unbounded, false, guard, &mut |_, entries| {
            entries.iter().for_each(|entry| visit(entry));
            ControlFlow::Continue(())
        });
    }

    /// The number of entries; exact while no thread changes the index. Visits all leaves.
    pub fn len_estimate(&self, guard: &Guard) -> usize {
        let mut total = 0;
        self.scan(Bound::Unbounded, Bound::Unbounded, false, guard, &mut |_, entries| {
            total += entries.len();
            ControlFlow::Continue(())
        });
        total
    }
}

impl<E, G> Drop for OrderedIndex<E, G>
where
    E: Keyed + 'static,
    G: Default + 'static,
{
    fn drop(&mut self) {
        with_tree!(&mut self.tree, tree => tree.retire());
    }
}
