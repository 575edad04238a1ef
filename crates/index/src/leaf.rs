//! Observed leaves, and the effect of an insertion on leaves.

use crate::node::LeafHead;
use std::ptr::NonNull;

/// An observed leaf. Valid while the guard is pinned, even if the leaf leaves the tree.
pub struct Leaf<'g, G> {
    pub(crate) head: &'g LeafHead<G>,
    pub(crate) version: u64,
}

impl<G> Clone for Leaf<'_, G> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<G> Copy for Leaf<'_, G> {}

impl<'g, G> Leaf<'g, G> {
    /// The gap payload of the leaf's key range.
    pub fn gap(&self) -> &'g G {
        &self.head.gap
    }

    /// The observed version of the leaf.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The leaf's version word now, by a sequentially consistent load. The word equals no observed
    /// version while the leaf is locked, or after the leaf has left the tree.
    pub fn current(&self) -> u64 {
        self.head.head.version.current()
    }

    /// Whether the leaf, with its key range, is unchanged since the observation.
    pub fn is_current(&self) -> bool {
        self.current() == self.version
    }

    /// Identifies the leaf while the guard is pinned.
    pub fn id(&self) -> usize {
        self.as_raw().id()
    }

    /// The leaf without the lifetime, to be kept while the guard stays pinned.
    pub fn as_raw(&self) -> RawLeaf<G> {
        RawLeaf(NonNull::from(self.head))
    }

    /// The leaf again, as observed at `version`.
    ///
    /// # Safety
    /// `raw` came from [`Leaf::as_raw`]; the guard of the leaf has stayed pinned, and stays pinned
    /// for `'g`.
    pub unsafe fn from_raw(raw: RawLeaf<G>, version: u64) -> Leaf<'g, G> {
        // SAFETY: by the contract the guard has stayed pinned, and leaves are retired through the
        // epoch, so the leaf is not freed (G1, G2 in node.rs).
        Leaf { head: unsafe { raw.0.as_ref() }, version }
    }
}

/// A leaf without a lifetime, for a transaction's set of observed leaves.
pub struct RawLeaf<G>(NonNull<LeafHead<G>>);

impl<G> Clone for RawLeaf<G> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<G> Copy for RawLeaf<G> {}

impl<G> RawLeaf<G> {
    /// As [`Leaf::id`].
    pub fn id(&self) -> usize {
        self.0.addr().get()
    }
}

// SAFETY: only the unsafe `Leaf::from_raw` follows the pointer, and returns a shared reference; `G:
// Send + Sync` suffices.
unsafe impl<G: Send + Sync> Send for RawLeaf<G> {}
// SAFETY: a shared `RawLeaf` can only be copied or compared; for the copy the argument above holds.
unsafe impl<G: Send + Sync> Sync for RawLeaf<G> {}

/// The changes of leaves by an insertion.
pub struct Insertion<'g, G> {
    /// The leaf with the key's place, at the version after the insertion.
    pub leaf: Leaf<'g, G>,
    /// The leaf's version just before. An observation of exactly this version may be replaced by an
    /// observation of the new version, if the sibling is then observed as well.
    pub version_before: u64,
    /// The new leaf with the upper part of the key range, if the leaf was split.
    pub sibling: Option<Leaf<'g, G>>,
    /// Whether the new entry went to the sibling.
    pub in_sibling: bool,
}

impl<'g, G> Insertion<'g, G> {
    /// Returns the leaf of the new entry.
    pub fn holder(&self) -> Leaf<'g, G> {
        self.sibling.filter(|_| self.in_sibling).unwrap_or(self.leaf)
    }
}

/// The outcome of an insertion.
pub enum Inserted<'g, E, G> {
    /// The entry is linked.
    New(Insertion<'g, G>),
    /// The key exists: the key's entry, and the leaf of the entry; nothing was changed.
    Exists(&'g E, Leaf<'g, G>),
}
