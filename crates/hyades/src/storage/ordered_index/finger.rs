//! A finger: where the last insertion went, or a descent ahead of need, for the next insertion to begin there.
//! Rows are often inserted side by side, the lines of an order for instance, and then need no descent.
//!
//! Invariant: a leaf at the finger's version has the key range that it had when the finger came there, since a
//! node's key range changes only together with its version; and that range holds every key from `lower`
//! to below `upper`, or to the end of all keys.

use crossbeam_epoch::Guard;
use std::ptr::null;

/// See the module. It holds no longer than its guard is pinned.
pub struct Finger<'g> {
    guard: &'g Guard,
    /// The tree; null if it has been nowhere.
    tree: *const (),
    leaf: *const (),
    pub(super) version: u64,
    /// Words of keys; a tree of fewer has zeros behind them.
    lower: [u64; 4],
    upper: Option<[u64; 4]>,
}

impl<'g> Finger<'g> {
    /// One that points nowhere.
    pub fn new(guard: &'g Guard) -> Self {
        let (tree, leaf) = (null(), null());
        Finger { guard, tree, leaf, version: 0, lower: [0; 4], upper: None }
    }

    /// What it is bound to.
    pub fn guard(&self) -> &'g Guard {
        self.guard
    }

    /// The tree that it is in, see [`super::OrderedIndex::id`].
    pub fn tree(&self) -> *const () {
        self.tree
    }

    /// Whether it is at this leaf, as it was observed.
    #[cfg(test)]
    pub(super) fn is_at<G>(&self, leaf: &super::Leaf<'_, G>) -> bool {
        (self.leaf.addr(), self.version) == (leaf.id(), leaf.version())
    }

    /// The leaf that the finger is at, if it holds the key's place; unless it has changed since, which shows when it
    /// is locked.
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

    /// The leaf at this version has the keys from `lower` up to `upper`.
    #[inline]
    pub(super) fn put(
        &mut self,
        tree: *const (),
        (leaf, version): (*const (), u64),
        lower: [u64; 4],
        upper: Option<[u64; 4]>,
    ) {
        *self = Finger { guard: self.guard, tree, leaf, version, lower, upper };
    }
}
