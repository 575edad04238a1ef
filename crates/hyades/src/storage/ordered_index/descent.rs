//! A descent ahead of need, one level at a time: each step starts loading what the next one reads, and whoever
//! takes it does something else in between. It ends with a finger at the leaf.
//!
//! Invariant: the child is the node whose key range holds the place sought, and that range reaches from `lower`
//! to `upper`, if the parent is still at its version. So a step notes the child's version and then checks the
//! parent's, as every descent does (tree.rs); how much later it comes makes no difference.

use super::finger::Finger;
use super::key::{Keyed, Probe, padded, words};
use super::node::{InnerNode, LeafNode, NodeHeader};
use super::tree::Tree;
use super::version::Version;
use crossbeam_epoch::Guard;
use std::sync::atomic::Ordering;

/// See the module.
pub struct Descent<'g> {
    guard: &'g Guard,
    tree: *const (),
    parent: &'g Version,
    parent_version: u64,
    child: *mut NodeHeader,
    /// Where it goes, in the words of a key, of which a tree looks at its first ones.
    place: [u64; 4],
    /// The place is the one just below.
    below: bool,
    lower: [u64; 4],
    upper: Option<[u64; 4]>,
}

/// What became of a descent by a step.
pub enum DescentProgress<'g> {
    /// It is one level further down.
    Deeper,
    /// It is at a leaf.
    Arrived(Finger<'g>),
    /// Something changed on the way, or fingers are not for this tree.
    Lost,
}

impl<E, G, const W: usize, const L: usize, const N: usize, const B: usize> Tree<E, G, W, L, N, B>
where
    E: Keyed + 'static,
    G: Default + 'static,
{
    /// Begins a descent to the place of `key`, or to the one just below.
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

    /// Takes one step of a descent that was begun in this tree.
    pub fn step<'g>(&'g self, descent: &mut Descent<'g>) -> DescentProgress<'g> {
        assert!(descent.tree == self.id(), "a descent goes on in the tree that it was begun in");
        // SAFETY: the parent was in the tree after the guard was pinned, since its version was noted and then that
        // of its own parent found unchanged; so the child that it held had not been retired by then.
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
        // SAFETY: a node above level 0 is an inner node of this tree.
        let inner: &'g InnerNode<W, N, B> = unsafe { &*descent.child.cast() };
        let count = inner.count();
        let words = std::array::from_fn(|at| descent.place[at]);
        let probe = Probe { words, full: None };
        // SAFETY: the guard is pinned.
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
    use crossbeam_epoch as epoch;

    /// In a tree that nobody changes a descent arrives, at the leaf of its key or at that of the one below it, and
    /// the finger takes that key.
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
