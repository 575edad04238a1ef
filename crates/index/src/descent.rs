//! A descent ahead of need, a level per step: each step prefetches the next step's data, and the
//! caller does other work in between. The descent ends with a finger at the leaf.
//!
//! Invariant: if the parent is still at its version, the child is the node with the target in its
//! key range, and the range is from `lower` to `upper`. So a step notes the child's version and
//! then checks the parent's, like every descent (tree.rs), no matter how much later.

use super::finger::Finger;
use super::key::{Keyed, Probe, padded, words};
use super::node::{InnerNode, LeafNode, NodeHeader};
use super::tree::Tree;
use super::version::Version;
use hyades_platform::reclaim::Guard;
use std::sync::atomic::Ordering;

/// A descent under way; see the module.
pub struct Descent<'g> {
    guard: &'g Guard,
    tree: *const (),
    parent: &'g Version,
    parent_version: u64,
    child: *mut NodeHeader,
    /// The target, as the first words of a key; a tree compares only the words stored.
    place: [u64; 4],
    /// The target is the position just below `place`.
    below: bool,
    lower: [u64; 4],
    upper: Option<[u64; 4]>,
}

/// The outcome of a step.
pub enum DescentProgress<'g> {
    /// The descent is one level further down.
    Deeper,
    /// The descent has reached a leaf.
    Arrived(Finger<'g>),
    /// A node changed on the way, or the tree has full keys (`B != 0`), and so no fingers.
    Lost,
}

impl<E, G, const W: usize, const L: usize, const N: usize, const B: usize> Tree<E, G, W, L, N, B>
where
    E: Keyed + 'static,
    G: Default + 'static,
{
    /// Begins a descent to the place of `key`, or to the place just below. `None` if the root is
    /// locked.
    pub fn begin_descent<'g>(
        &'g self,
        key: &[u8],
        below: bool,
        guard: &'g Guard,
    ) -> Option<Descent<'g>> {
        let parent_version = self.root_version.read_now()?;
        let child = self.root.load(Ordering::Acquire);
        Self::prefetch_child(child, u32::MAX);
        let (parent, place) = (&self.root_version, words(key));
        Some(Descent {
            guard,
            tree: self.id(),
            parent,
            parent_version,
            child,
            place,
            below,
            lower: [0; 4],
            upper: None,
        })
    }

    /// Advances a descent, begun in this tree, by a level.
    pub fn step<'g>(&'g self, descent: &mut Descent<'g>) -> DescentProgress<'g> {
        assert!(descent.tree == self.id(), "a descent goes on in the tree that it was begun in");
        // SAFETY: G1, G2: the guard has been pinned since `begin_descent`, and the child was loaded
        // later, from the root or from a node reached under the guard. The child is not null: the
        // root never is, and at a null child the descent would have ended.
        let head: &'g NodeHeader = unsafe { &*descent.child };
        let Some(version) = head.version.read_now() else { return DescentProgress::Lost };
        if !descent.parent.validate(descent.parent_version) {
            return DescentProgress::Lost;
        }
        if head.level == 0 {
            LeafNode::<E, G, W, L>::prefetch(descent.child.cast());
            if B != 0 {
                return DescentProgress::Lost;
            }
            let at = (descent.child.cast_const().cast(), version);
            let mut finger = Finger::new(descent.guard);
            finger.put(self.id(), at, descent.lower, descent.upper);
            return DescentProgress::Arrived(finger);
        }
        // SAFETY: G3.
        let inner: &'g InnerNode<W, N, B> = unsafe { &*descent.child.cast() };
        let count = inner.count();
        let words = std::array::from_fn(|at| descent.place[at]);
        let probe = Probe { words, full: None };
        // SAFETY: G1.
        let index = unsafe {
            if descent.below {
                inner.route_below(&probe, count)
            } else {
                inner.route(&probe, count)
            }
        };
        if index > 0 {
            descent.lower = padded(&inner.separator(index - 1).words);
        }
        if index + 1 < count {
            descent.upper = Some(padded(&inner.separator(index).words));
        }
        let child = inner.child(index);
        if child.is_null() {
            return DescentProgress::Lost;
        }
        Self::prefetch_child(child, head.level);
        (descent.parent, descent.parent_version, descent.child) = (&head.version, version, child);
        DescentProgress::Deeper
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Entry, Stamp, drain, insert, insert_near, remove};
    use super::super::{KeyShape, OrderedIndex};
    use super::*;
    use hyades_platform::reclaim as epoch;

    /// In an unchanged tree a descent arrives at the leaf of its key, or of the key just below, and
    /// the finger accepts the key.
    #[test]
    fn a_descent_arrives_at_the_leaf() {
        let keys = if cfg!(miri) { 200 } else { 5_000 };
        for length in [8, 12, 24] {
            let index = OrderedIndex::<Entry, Stamp>::new(KeyShape::Fixed(length));
            let key = |i: u64| [&[7; 16][..length - 8], &i.to_be_bytes()].concat();
            let guard = epoch::pin();
            (0..keys).step_by(2).for_each(|i| assert!(insert(&index, &key(i), &guard)));
            for (i, below) in (1..=keys).flat_map(|i| [(i, false), (i, true)]) {
                let mut descent = index.begin_descent(&key(i), below, &guard).unwrap();
                let mut finger = loop {
                    match index.step(&mut descent) {
                        DescentProgress::Deeper => {}
                        DescentProgress::Arrived(finger) => break finger,
                        DescentProgress::Lost => panic!("nothing has changed"),
                    }
                };
                let sought = if below { i - 1 } else { i };
                let (_, leaf) = index.get(&key(sought), &guard);
                assert!(finger.is_at(&leaf), "{i} {below}");
                let is_new = sought % 2 == 1 || sought == keys;
                assert_eq!(insert_near(&index, &key(sought), &mut finger), is_new);
                assert!(!is_new || remove(&index, &key(sought), &guard));
            }
            drain(&index);
        }
    }
}
