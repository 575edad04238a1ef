//! The tree: descending, reading and inserting.
//!
//! Optimistic lock coupling as in Leis, Haubenschild and Neumann, "Optimistic Lock Coupling" (IEEE
//! Data Eng. Bull. 42, 2019): a reader notes a node's version, reads, notes the child's version,
//! and only then checks the node's, so the link was valid at the entry to the child. Writers lock
//! only the nodes to change, and only by a compare-and-swap from the version read. A waiting thread
//! holds no lock, so there is no deadlock.
//!
//! Two departures: leaves are not chained (a scan goes through the parent, and descends again for
//! the next parent), and a node's key range changes only together with its version. The second
//! departure lets a scan trust the fences read on the way down.

use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use hyades_platform::reclaim::Guard;
use smallvec::SmallVec;

use super::finger::Finger;
use super::key::{Keyed, Probe, padded, words};
use super::node::{InnerNode, LeafNode, NodeHeader, Separator};
use super::version::{FIRST, Version};
use super::{GapHooks, Inserted, Insertion, Leaf};
use hyades_platform::prefetch::prefetch_bytes;

/// A B+tree over keys with `W` inline words, `L` entries per leaf, `N` children per inner node, and
/// `B` (0 or `N`) full keys per inner node; see the node layouts.
pub(super) struct Tree<E, G, const W: usize, const L: usize, const N: usize, const B: usize> {
    /// Protects `root` as an inner node's version protects the node's children.
    pub(super) root_version: Version,
    pub(super) root: AtomicPtr<NodeHeader>,
    owns: PhantomData<(*const E, Box<G>)>,
}

/// Number of bytes of a node prefetched before a search: the header, and all words of keys of up to
/// 16 bytes.
const SEARCHED: usize = 9 * 64;

/// An inner node on the way down, as observed.
pub(super) struct PathStep<'g, const W: usize, const N: usize, const B: usize> {
    pub inner: &'g InnerNode<W, N, B>,
    pub version: u64,
    pub index: usize,
    pub count: usize,
}

pub(super) type Path<'g, const W: usize, const N: usize, const B: usize> =
    SmallVec<[PathStep<'g, W, N, B>; 8]>;

/// The end of a descent: the leaf, the leaf's version, and the version of the root pointer.
pub(super) struct LeafPosition<'g, E, G, const W: usize, const L: usize> {
    pub leaf: &'g LeafNode<E, G, W, L>,
    pub version: u64,
    pub root_version: u64,
}

impl<E, G, const W: usize, const L: usize, const N: usize, const B: usize> Tree<E, G, W, L, N, B>
where
    E: Keyed + 'static,
    G: Default + 'static,
{
    pub fn new() -> Self {
        const { assert!(L >= 2 && N >= 4 && (B == 0 || B == N)) };
        let leaf = Box::into_raw(LeafNode::<E, G, W, L>::new());
        Tree { root_version: Version::new(), root: AtomicPtr::new(leaf.cast()), owns: PhantomData }
    }

    #[inline]
    pub fn probe<'k>(&self, key: &'k [u8]) -> Probe<'k, W> {
        Probe { words: words(key), full: (B != 0).then_some(key) }
    }

    /// Makes an attempt to descend; `None` if something changed on the way. `route` gets an inner
    /// node, with version and number of children, and returns the index of the child; `route` may
    /// record the step. The data read are valid only if the attempt succeeds.
    #[inline(always)]
    pub(super) fn try_descend<'g>(
        &self,
        _guard: &'g Guard,
        mut route: impl FnMut(&'g InnerNode<W, N, B>, u64, usize) -> usize,
    ) -> Option<LeafPosition<'g, E, G, W, L>> {
        let root_version = self.root_version.read()?;
        let mut node = self.root.load(Ordering::Acquire);
        // SAFETY: G1, G2; the root is never null.
        let mut version = unsafe { &*node }.version.read()?;
        if !self.root_version.validate(root_version) {
            return None;
        }
        // SAFETY: G1, G2.
        while unsafe { &*node }.level > 0 {
            // SAFETY: G1, G2, G3.
            let inner = unsafe { &*node.cast::<InnerNode<W, N, B>>() };
            let child = inner.child(route(inner, version, inner.count()));
            if child.is_null() {
                return None;
            }
            Self::prefetch_child(child, inner.head.level);
            // SAFETY: G1, G2; null was excluded.
            let child_version = unsafe { &*child }.version.read()?;
            if !inner.head.version.validate(version) {
                return None;
            }
            debug_assert_eq!(
                // SAFETY: G1, G2; null was excluded.
                unsafe { &*child }.level + 1,
                inner.head.level,
                "a child is one level below its parent"
            );
            (node, version) = (child, child_version);
        }
        // SAFETY: G1, G2, G3.
        Some(LeafPosition { leaf: unsafe { &*node.cast() }, version, root_version })
    }

    /// Prefetches the bytes read first by a search in a child of a node of level `level`.
    #[inline(always)]
    pub(super) fn prefetch_child(child: *mut NodeHeader, level: u32) {
        prefetch_bytes(child, 0, SEARCHED);
        if level > 1 {
            InnerNode::<W, N, B>::prefetch_children(child.cast());
        }
    }

    #[inline(always)]
    fn try_reach<'g>(
        &self,
        probe: &Probe<'_, W>,
        guard: &'g Guard,
    ) -> Option<LeafPosition<'g, E, G, W, L>> {
        // SAFETY: G1.
        self.try_descend(guard, |inner, _, count| unsafe { inner.route(probe, count) })
    }

    /// Returns the entry under `probe`, if any, and the leaf with the key's place.
    #[inline]
    pub fn get<'g>(&self, probe: &Probe<'_, W>, guard: &'g Guard) -> (Option<&'g E>, Leaf<'g, G>) {
        loop {
            let Some(LeafPosition { leaf, version, .. }) = self.try_reach(probe, guard) else {
                continue;
            };
            let count = leaf.count();
            // SAFETY: G1.
            let slot = unsafe { leaf.lower_bound(probe, count) };
            // SAFETY: G1.
            let found = unsafe { leaf.holds(slot, count, probe) };
            let entry = if found { leaf.entry(slot) } else { std::ptr::null() };
            if leaf.version().validate(version) {
                // SAFETY: G1, G2: `entry` is null or was loaded from a slot.
                return (unsafe { entry.as_ref() }, Leaf { head: &leaf.top, version });
            }
        }
    }

    /// Links `entry` unless the key exists.
    ///
    /// # Safety
    /// As for [`super::OrderedIndex::insert_near`].
    pub unsafe fn insert<'g>(
        &self,
        probe: &Probe<'_, W>,
        entry: *const E,
        hooks: &dyn GapHooks<G>,
        finger: &mut Finger<'g>,
    ) -> Inserted<'g, E, G> {
        if B == 0
            && let Some(at) = finger.leaf_for(self.id(), &probe.words)
        {
            // SAFETY: the finger names the present tree, so the finger was at a leaf of the tree
            // (G3) at a time when the finger's guard, still pinned, could reach the leaf (G1, G2).
            let leaf = unsafe { &*at.cast::<LeafNode<E, G, W, L>>() };
            // SAFETY: the contract of `insert` is the caller's; the finger's guard is pinned for
            // `'g`.
            if let Some(inserted) = unsafe { leaf.try_insert(finger.version, probe, entry) } {
                if let Inserted::New(insertion) = &inserted {
                    finger.version = insertion.leaf.version;
                }
                return inserted;
            }
        }
        let guard = finger.guard();
        loop {
            // The upper end of the leaf's range, if any: the fence of a scan.
            let mut upper = None;
            let route = |inner: &'g InnerNode<W, N, B>, _, count| {
                // SAFETY: G1.
                let index = unsafe { inner.route(probe, count) };
                if B == 0 && index + 1 < count {
                    upper = Some(padded(&inner.separator(index).words));
                }
                index
            };
            let Some(LeafPosition { leaf, version, .. }) = self.try_descend(guard, route) else {
                continue;
            };
            // SAFETY: the contract of `insert` is the caller's; the guard is pinned for `'g`.
            if let Some(inserted) = unsafe { leaf.try_insert(version, probe, entry) } {
                if B == 0
                    && let Inserted::New(insertion) = &inserted
                {
                    let at = (std::ptr::from_ref(leaf).cast(), insertion.leaf.version);
                    finger.put(self.id(), at, padded(&probe.words), upper);
                }
                return inserted;
            }
            if leaf.count() == L
                && let Some(insertion) = self.try_grow(probe, entry, hooks, guard)
            {
                return Inserted::New(insertion);
            }
        }
    }

    /// The identity of the tree.
    #[inline]
    pub fn id(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    /// Makes an attempt to insert into a full leaf by a split. If the parent is full, splits
    /// instead a full ancestor below a parent with room, and returns `None`: the caller tries
    /// again.
    fn try_grow<'g>(
        &self,
        probe: &Probe<'_, W>,
        entry: *const E,
        hooks: &dyn GapHooks<G>,
        guard: &'g Guard,
    ) -> Option<Insertion<'g, G>> {
        let mut path: Path<'g, W, N, B> = SmallVec::new();
        let LeafPosition { leaf, version, root_version } =
            self.try_descend(guard, |inner, version, count| {
                // SAFETY: G1.
                let index = unsafe { inner.route(probe, count) };
                path.push(PathStep { inner, version, index, count });
                index
            })?;
        let count = leaf.count();
        // SAFETY: G1.
        let slot = unsafe { leaf.lower_bound(probe, count) };
        // SAFETY: G1.
        if count < L || unsafe { leaf.holds(slot, count, probe) } {
            return None;
        }
        let room = path.iter().rposition(|step| step.count < N).map_or(0, |i| i + 1);
        if room < path.len() {
            self.try_split_inner(&path[..=room], root_version);
            return None;
        }
        if !self.lock_parent(&path, root_version) {
            return None;
        }
        if !leaf.version().try_lock(version) {
            self.unlock_parent(&path, root_version, false);
            return None;
        }
        let insertion = self.split_leaf(&path, leaf, version, (slot, probe, entry), hooks);
        self.unlock_parent(&path, root_version, true);
        Some(insertion)
    }

    /// Splits a full leaf, inserts, and unlocks the leaf. Leaf and parent are locked, and the
    /// parent has room.
    fn split_leaf<'g>(
        &self,
        path: &[PathStep<'g, W, N, B>],
        leaf: &'g LeafNode<E, G, W, L>,
        version: u64,
        (slot, probe, entry): (usize, &Probe<'_, W>, *const E),
        hooks: &dyn GapHooks<G>,
    ) -> Insertion<'g, G> {
        let at_end = slot == L && path.iter().all(|step| step.index + 1 == step.count);
        // An ascending run splits at the new key, so the leaf left behind is full. The new key goes
        // left unless the left leaf is full, so the run can continue before the keys above.
        let cut = if at_end || leaf.continues_run(slot) { slot } else { L / 2 };
        let in_sibling = cut == L || slot > cut;
        let right = LeafNode::<E, G, W, L>::new();
        hooks.split(&leaf.top.gap, &right.top.gap);
        leaf.move_tail(cut, &right);
        if in_sibling {
            right.insert_at(slot - cut, &probe.words, entry);
        } else {
            leaf.insert_at(slot, &probe.words, entry);
        }
        let separator = separate(leaf, &right);
        let right = Box::into_raw(right);
        self.attach(path, &separator, right.cast());
        let after = leaf.version().unlock_changed(version);
        // SAFETY: the current thread made and linked the node; the guard of `'g` is pinned, so the
        // node is not freed even if another thread unlinks the node (G1, G2).
        let sibling = Leaf { head: unsafe { &(*right).top }, version: FIRST };
        Insertion {
            leaf: Leaf { head: &leaf.top, version: after },
            version_before: version,
            sibling: Some(sibling),
            in_sibling,
        }
    }

    /// Splits the last inner node of `path`, a full node below a non-full parent.
    fn try_split_inner(&self, path: &[PathStep<'_, W, N, B>], root_version: u64) {
        let (step, above) = path.split_last().expect("an inner node to split");
        if !self.lock_parent(above, root_version) {
            return;
        }
        if !step.inner.head.version.try_lock(step.version) {
            self.unlock_parent(above, root_version, false);
            return;
        }
        let at_end = path.iter().all(|step| step.index + 1 == step.count);
        let right = InnerNode::<W, N, B>::new(step.inner.head.level);
        let separator = step.inner.move_tail(if at_end { N - 1 } else { N / 2 }, &right);
        self.attach(above, &separator, Box::into_raw(right).cast());
        step.inner.head.version.unlock_changed(step.version);
        self.unlock_parent(above, root_version, true);
    }

    fn lock_parent(&self, path: &[PathStep<'_, W, N, B>], root_version: u64) -> bool {
        match path.last() {
            Some(step) => step.inner.head.version.try_lock(step.version),
            None => self.root_version.try_lock(root_version),
        }
    }

    fn unlock_parent(&self, path: &[PathStep<'_, W, N, B>], root_version: u64, changed: bool) {
        let (version, observed) = match path.last() {
            Some(step) => (&step.inner.head.version, step.version),
            None => (&self.root_version, root_version),
        };
        if changed {
            version.unlock_changed(observed);
        } else {
            version.unlock_unchanged(observed);
        }
    }

    /// Links `right` just after the child at the end of `path`, below a new root if the child is
    /// the root.
    fn attach(
        &self,
        path: &[PathStep<'_, W, N, B>],
        separator: &Separator<W>,
        right: *mut NodeHeader,
    ) {
        if let Some(step) = path.last() {
            return step.inner.insert_child(step.index, separator, right);
        }
        let left = self.root.load(Ordering::Acquire);
        // SAFETY: G4: the root pointer is locked.
        let level = unsafe { &*left }.level + 1;
        let root = InnerNode::<W, N, B>::above(left, separator, right, level);
        self.root.store(Box::into_raw(root).cast(), Ordering::Release);
    }
}

/// The separator between two neighbouring leaves, locked or not yet linked: the first key on the
/// right, cut to its words where the words suffice.
fn separate<E: Keyed + 'static, G: Default + 'static, const W: usize, const L: usize>(
    left: &LeafNode<E, G, W, L>,
    right: &LeafNode<E, G, W, L>,
) -> Separator<W> {
    let words = right.words_at(0);
    debug_assert!(left.count() > 0 && right.count() > 0, "a split leaves no half empty");
    debug_assert!(left.words_at(left.count() - 1) <= words, "a split leaves the keys in order");
    let full = if left.words_at(left.count() - 1) == words {
        // SAFETY: G4: the current thread has locked the split leaf, and `right` is not linked yet,
        // so no entry of the two leaves is retired.
        let key = unsafe { right.key_at(0) }.expect("a split leaves no half empty");
        Box::into_raw(Box::new(Box::from(key)))
    } else {
        null_mut()
    };
    Separator { words, full }
}
