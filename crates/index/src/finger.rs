//! A finger: the leaf of the last insertion, or the leaf reached by a descent ahead of need. The
//! next insertion tries the finger's leaf first. Rows are often inserted in sequence, the lines of
//! an order for instance, and then need no descent.
//!
//! Invariant: while the leaf is at the finger's version, the leaf has the same key range as when
//! the finger was set, since a node's key range changes only together with its version; and the
//! range contains every key from `lower` to below `upper`, or to the end of all keys.

use hyades_platform::reclaim::Guard;
use std::ptr::null;

/// See the module. Valid as long as the guard is pinned.
pub struct Finger<'g> {
    guard: &'g Guard,
    /// The tree's identity; null if the finger points nowhere.
    tree: *const (),
    leaf: *const (),
    pub(super) version: u64,
    /// The range as words of keys; a tree with fewer than four words pads with zeros.
    lower: [u64; 4],
    upper: Option<[u64; 4]>,
}

impl<'g> Finger<'g> {
    /// Makes a finger without a leaf.
    pub fn new(guard: &'g Guard) -> Self {
        let (tree, leaf) = (null(), null());
        Finger { guard, tree, leaf, version: 0, lower: [0; 4], upper: None }
    }

    /// The guard of the finger.
    pub fn guard(&self) -> &'g Guard {
        self.guard
    }

    /// The tree of the finger's leaf, see [`super::OrderedIndex::id`].
    pub fn tree(&self) -> *const () {
        self.tree
    }

    /// Whether the finger is at `leaf`, at the same version.
    #[cfg(test)]
    pub(super) fn is_at<G>(&self, leaf: &super::Leaf<'_, G>) -> bool {
        (self.leaf.addr(), self.version) == (leaf.id(), leaf.version())
    }

    /// The finger's leaf, if the leaf's range contains the key. A change of the leaf since then
    /// shows at the attempt to lock at the finger's version.
    #[inline]
    pub(super) fn leaf_for<const W: usize>(
        &self,
        tree: *const (),
        key: &[u64; W],
    ) -> Option<*const ()> {
        let is_within =
            || self.lower[..W] <= key[..] && self.upper.is_none_or(|upper| key[..] < upper[..W]);
        (self.tree == tree && is_within()).then_some(self.leaf)
    }

    /// Points the finger at a leaf with the keys from `lower` to below `upper` at `version`.
    #[inline]
    pub(super) fn put(
        &mut self,
        tree: *const (),
        (leaf, version): (*const (), u64),
        lower: [u64; 4],
        upper: Option<[u64; 4]>,
    ) {
        debug_assert!(upper.is_none_or(|upper| lower < upper), "the range of a leaf has keys");
        *self = Finger { guard: self.guard, tree, leaf, version, lower, upper };
    }
}
