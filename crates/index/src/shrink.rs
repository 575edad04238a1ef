//! Removal of entries, and of emptied leaves.

use std::sync::atomic::Ordering;

use hyades_platform::reclaim::{Guard, pin, retire};
use smallvec::SmallVec;

use super::GapHooks;
use super::key::{Keyed, Probe};
use super::node::{FullKey, InnerNode, LeafNode, NodeHeader};
use super::tree::{LeafPosition, Path, PathStep, Tree};
use super::version::{Backoff, Version};

/// Number of attempts to unlink an empty leaf while other threads change the leaf's surroundings. A
/// remaining leaf costs memory only, and is unlinked when next emptied, or together with a
/// neighbour.
const RECLAIM_ATTEMPTS: u32 = 64;

/// Held locks. Dropping the set releases the locks left inside, with unchanged versions.
struct Locks<'g>(SmallVec<[(&'g Version, u64); 16]>);

impl<'g> Locks<'g> {
    fn take(&mut self, version: &'g Version, observed: u64) -> Option<()> {
        version.try_lock(observed).then(|| self.0.push((version, observed)))
    }
}

impl Drop for Locks<'_> {
    fn drop(&mut self) {
        for (version, observed) in self.0.drain(..) {
            version.unlock_unchanged(observed);
        }
    }
}

impl<E, G, const W: usize, const L: usize, const N: usize, const B: usize> Tree<E, G, W, L, N, B>
where
    E: Keyed + 'static,
    G: Default + 'static,
{
    /// Unlinks `entry` if `entry` is under `probe`; returns the linked pointer.
    pub fn remove(
        &self,
        probe: &Probe<'_, W>,
        entry: *const E,
        hooks: &dyn GapHooks<G>,
        leave: &dyn Fn(&G),
        guard: &Guard,
    ) -> Option<*const E> {
        loop {
            let reached = self.try_descend(guard, |inner, _, count| {
                // SAFETY: G1.
                unsafe { inner.route(probe, count) }
            });
            let Some(LeafPosition { leaf, version, .. }) = reached else { continue };
            let count = leaf.count();
            // SAFETY: G1.
            let slot = unsafe { leaf.lower_bound(probe, count) };
            // SAFETY: G1.
            let found = unsafe { leaf.holds(slot, count, probe) };
            let linked = if found { leaf.entry(slot) } else { std::ptr::null() };
            if linked != entry {
                if leaf.version().validate(version) {
                    return None;
                }
            } else if leaf.version().try_lock(version) {
                leave(&leaf.top.gap);
                leaf.remove_at(slot);
                leaf.version().unlock_changed(version);
                if count == 1 {
                    self.reclaim(probe, hooks, guard);
                }
                return Some(linked);
            }
        }
    }

    /// Unlinks the leaf of `probe`, if empty and not the only leaf. Then does the same with the
    /// leaf that has taken over the key range: the leaf may be empty, if not unlinked when emptied.
    #[cold]
    fn reclaim(&self, probe: &Probe<'_, W>, hooks: &dyn GapHooks<G>, guard: &Guard) {
        let mut backoff = Backoff::new();
        for _ in 0..RECLAIM_ATTEMPTS {
            match self.try_reclaim(probe, hooks, guard) {
                Some(false) => return self.lower_root(guard),
                Some(true) => {}
                None => backoff.pause(),
            }
        }
    }

    /// Makes an attempt; `None` if something changed on the way. Returns whether the leaf is
    /// unlinked, and the neighbour is empty.
    ///
    /// The leaf is unlinked together with its ancestors without another child, below the first
    /// ancestor with another child. The leaf's key range goes to the neighbouring leaf, below the
    /// ancestor's adjacent child. The nodes on the way to the neighbour are locked too, because the
    /// nodes' ranges grow.
    fn try_reclaim(
        &self,
        probe: &Probe<'_, W>,
        hooks: &dyn GapHooks<G>,
        guard: &Guard,
    ) -> Option<bool> {
        let mut path: Path<'_, W, N, B> = SmallVec::new();
        let LeafPosition { leaf, version, .. } =
            self.try_descend(guard, |inner, version, count| {
                // SAFETY: G1.
                let index = unsafe { inner.route(probe, count) };
                path.push(PathStep { inner, version, index, count });
                index
            })?;
        let Some(fork) = path.iter().rposition(|step| step.count > 1) else { return Some(false) };
        if leaf.count() > 0 {
            return Some(false);
        }
        let PathStep { inner: ancestor, version: ancestor_version, index, .. } = path[fork];
        let mut gone = Locks(SmallVec::new());
        let mut kept = Locks(SmallVec::new());
        kept.take(&ancestor.head.version, ancestor_version)?;
        for step in &path[fork + 1..] {
            gone.take(&step.inner.head.version, step.version)?;
        }
        gone.take(leaf.version(), version)?;

        // The rightmost leaf below the child before, else the leftmost below the child after.
        let mut near = ancestor.child(if index > 0 { index - 1 } else { 1 });
        let neighbour = loop {
            // SAFETY: G4; `near` is a child of a locked node, below its count, so not null.
            let head: &NodeHeader = unsafe { &*near };
            // Never wait with locks held.
            kept.take(&head.version, head.version.read_now()?)?;
            if head.level == 0 {
                // SAFETY: G3, G4.
                break unsafe { &*near.cast::<LeafNode<E, G, W, L>>() };
            }
            // SAFETY: G3, G4.
            let inner = unsafe { &*near.cast::<InnerNode<W, N, B>>() };
            near = inner.child(if index > 0 { inner.count() - 1 } else { 0 });
        };

        debug_assert!(!std::ptr::eq(leaf, neighbour), "a leaf's range goes to another leaf");
        debug_assert_eq!(leaf.count(), 0, "the leaf has been empty since it was observed");
        if !hooks.may_merge(&leaf.top.gap) {
            return Some(false);
        }
        let is_neighbour_empty = neighbour.count() == 0;
        let subtree = ancestor.child(index);
        hooks.merge(&neighbour.top.gap, &leaf.top.gap);
        let full = ancestor.remove_child(index);
        for (version, observed) in gone.0.drain(..) {
            version.unlock_obsolete(observed);
        }
        for (version, observed) in kept.0.drain(..) {
            version.unlock_changed(observed);
        }
        // SAFETY: G5, for the subtree and for the separator's full key.
        unsafe {
            let bytes = subtree_bytes::<E, G, W, L, N, B>(subtree);
            retire(guard, bytes, move || free_subtree::<E, G, W, L, N, B>(subtree));
            if let Some(full_key) = full.as_ref() {
                retire(guard, full_key.len(), move || drop(Box::from_raw(full)));
            }
        }
        Some(is_neighbour_empty)
    }

    /// Removes a root with only one child left. If other threads interfere the root stays: no harm.
    fn lower_root(&self, guard: &Guard) {
        while let Some(observed) = self.root_version.read_now() {
            let root = self.root.load(Ordering::Acquire);
            // SAFETY: G1, G2; the root is never null.
            let head: &NodeHeader = unsafe { &*root };
            let Some(version) = head.version.read_now() else { return };
            if head.level == 0 || head.count() > 1 {
                return;
            }
            let mut locks = Locks(SmallVec::new());
            if locks.take(&self.root_version, observed).is_none() {
                return;
            }
            if locks.take(&head.version, version).is_none() {
                return;
            }
            // SAFETY: G3, G4.
            let inner = unsafe { &*root.cast::<InnerNode<W, N, B>>() };
            debug_assert_eq!(inner.count(), 1, "the root has had one child since it was observed");
            self.root.store(inner.child(0), Ordering::Release);
            locks.0.clear();
            head.version.unlock_obsolete(version);
            self.root_version.unlock_changed(observed);
            // SAFETY: G3, G5. The root's child stays linked, and with a single child there is no
            // separator.
            unsafe {
                let bytes = size_of::<InnerNode<W, N, B>>();
                retire(guard, bytes, move || {
                    drop(Box::from_raw(root.cast::<InnerNode<W, N, B>>()));
                });
            }
        }
    }
}

/// Returns the bytes freed by [`free_subtree`], without full keys.
///
/// # Safety
/// The node's children are not changed meanwhile, and the caller is pinned.
unsafe fn subtree_bytes<E, G, const W: usize, const L: usize, const N: usize, const B: usize>(
    node: *mut NodeHeader,
) -> usize
where
    E: Keyed + 'static,
    G: Default + 'static,
{
    // SAFETY: by the contract the node is there; G3.
    unsafe {
        if (*node).level == 0 {
            return size_of::<LeafNode<E, G, W, L>>();
        }
        let inner = &*node.cast::<InnerNode<W, N, B>>();
        let below =
            (0..inner.count()).map(|slot| subtree_bytes::<E, G, W, L, N, B>(inner.child(slot)));
        size_of::<InnerNode<W, N, B>>() + below.sum::<usize>()
    }
}

/// Frees a node and all nodes below.
///
/// # Safety
/// No thread can reach the subtree any more, and the subtree is freed only once.
pub(super) unsafe fn free_subtree<
    E,
    G,
    const W: usize,
    const L: usize,
    const N: usize,
    const B: usize,
>(
    node: *mut NodeHeader,
) where
    E: Keyed + 'static,
    G: Default + 'static,
{
    // SAFETY: by the contract the caller has the only access; G3. A full key is a box owned by its
    // node.
    unsafe {
        if (*node).level == 0 {
            return drop(Box::from_raw(node.cast::<LeafNode<E, G, W, L>>()));
        }
        let inner = Box::from_raw(node.cast::<InnerNode<W, N, B>>());
        for slot in 0..inner.count() {
            free_subtree::<E, G, W, L, N, B>(inner.child(slot));
            if slot + 1 < inner.count() {
                let full: *mut FullKey = inner.separator(slot).full;
                if !full.is_null() {
                    drop(Box::from_raw(full));
                }
            }
        }
    }
}

impl<E, G, const W: usize, const L: usize, const N: usize, const B: usize> Tree<E, G, W, L, N, B>
where
    E: Keyed + 'static,
    G: Default + 'static,
{
    /// Retires the whole tree: a still pinned thread may hold a leaf.
    pub(super) fn retire(&mut self) {
        let root = *self.root.get_mut();
        let guard = pin();
        // SAFETY: the tree is being dropped, so no guard pinned from now on can reach a node; the
        // nodes are freed once, after all earlier guards.
        unsafe {
            let bytes = subtree_bytes::<E, G, W, L, N, B>(root);
            retire(&guard, bytes, move || free_subtree::<E, G, W, L, N, B>(root));
        }
    }
}
