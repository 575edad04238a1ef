//! The tree itself: descending, reading and inserting.
//!
//! Optimistic lock coupling as in Leis, Haubenschild and Neumann, "Optimistic Lock Coupling"
//! (IEEE Data Eng. Bull. 42, 2019): a reader notes a node's version, reads, notes the child's
//! version, and only then checks the node's, so that each step starts from a link that stood when
//! the child was entered. Writers lock only what they change, and only by swapping the version
//! that they read under. A thread that waits holds no lock, so there is no deadlock.
//!
//! Two departures: leaves are not chained (a scan walks its parent, and descends again for the
//! next), and a node's key range changes only together with its version. The second is what lets
//! a scan trust the fences that it met on its way down.

use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use crossbeam_epoch::Guard;
use smallvec::SmallVec;

use super::super::prefetch::prefetch_bytes;
use super::finger::Finger;
use super::key::{Keyed, Probe, padded, words};
use super::node::{InnerNode, LeafNode, NodeHeader, Separator};
use super::version::{FIRST, Version};
use super::{GapHooks, Inserted, Insertion, Leaf};

/// A B+tree over keys with `W` inline words, `L` entries a leaf, `N` children an inner node, and
/// `B` (0 or `N`) full keys an inner node; see the node layouts.
pub(super) struct Tree<E, G, const W: usize, const L: usize, const N: usize, const B: usize> {
    /// Guards `root` as a parent's version guards its children.
    pub(super) root_version: Version,
    pub(super) root: AtomicPtr<NodeHeader>,
    owns: PhantomData<(*const E, Box<G>)>,
}

/// So many bytes of a node are fetched before it is searched: its head, and all words of keys of up to 16
/// bytes.
const SEARCHED: usize = 9 * 64;

/// One inner node on the way down, as observed.
pub(super) struct PathStep<'g, const W: usize, const N: usize, const B: usize> {
    pub inner: &'g InnerNode<W, N, B>,
    pub version: u64,
    pub index: usize,
    pub count: usize,
}

pub(super) type Path<'g, const W: usize, const N: usize, const B: usize> =
    SmallVec<[PathStep<'g, W, N, B>; 8]>;

/// Where a descent arrived: the leaf, its version, and the version of the root pointer.
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

    /// One attempt to descend; `None` when something changed on the way. `route` chooses the
    /// child of an inner node with that many children, and may record the step. What it read is
    /// to be trusted only if the attempt succeeds.
    #[inline(always)]
    pub(super) fn try_descend<'g>(
        &self,
        _guard: &'g Guard,
        mut route: impl FnMut(&'g InnerNode<W, N, B>, u64, usize) -> usize,
    ) -> Option<LeafPosition<'g, E, G, W, L>> {
        let root_version = self.root_version.read()?;
        let mut node = self.root.load(Ordering::Acquire);
        // SAFETY: a linked node is retired through the epoch after it is unlinked, and the guard
        // was pinned before the pointer was read. (So for all nodes below.)
        let mut version = unsafe { &*node }.version.read()?;
        if !self.root_version.validate(root_version) {
            return None;
        }
        // SAFETY: as above; the level never changes.
        while unsafe { &*node }.level > 0 {
            // SAFETY: a node above level 0 is an inner node of this tree.
            let inner = unsafe { &*node.cast::<InnerNode<W, N, B>>() };
            let child = inner.child(route(inner, version, inner.count()));
            if child.is_null() {
                return None;
            }
            Self::prefetch_child(child, inner.head.level);
            // SAFETY: as above.
            let child_version = unsafe { &*child }.version.read()?;
            if !inner.head.version.validate(version) {
                return None;
            }
            (node, version) = (child, child_version);
        }
        // SAFETY: a node of level 0 is a leaf of this tree.
        Some(LeafPosition { leaf: unsafe { &*node.cast() }, version, root_version })
    }

    /// Starts loading what a search in a child of a node of this level will touch first.
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
        // SAFETY: the guard is pinned.
        self.try_descend(guard, |inner, _, count| unsafe { inner.route(probe, count) })
    }

    /// The entry under `probe` and the leaf that holds or would hold it.
    #[inline]
    pub fn get<'g>(&self, probe: &Probe<'_, W>, guard: &'g Guard) -> (Option<&'g E>, Leaf<'g, G>) {
        loop {
            let Some(LeafPosition { leaf, version, .. }) = self.try_reach(probe, guard) else {
                continue;
            };
            let count = leaf.count();
            // SAFETY: the guard is pinned.
            let slot = unsafe { leaf.lower_bound(probe, count) };
            // SAFETY: the guard is pinned.
            let found = unsafe { leaf.holds(slot, count, probe) };
            let entry = if found { leaf.entry(slot) } else { std::ptr::null() };
            if leaf.version().validate(version) {
                // SAFETY: the entry was linked while the guard was pinned.
                return (unsafe { entry.as_ref() }, Leaf { head: &leaf.top, version });
            }
        }
    }

    /// Links `entry` unless the key is taken.
    ///
    /// # Safety
    /// As for [`super::OrderedIndex::insert`].
    pub unsafe fn insert<'g>(
        &self,
        probe: &Probe<'_, W>,
        entry: *const E,
        hooks: &impl GapHooks<G>,
        finger: &mut Finger<'g>,
    ) -> Inserted<'g, E, G> {
        if B == 0
            && let Some(at) = finger.leaf_for(self.id(), &probe.words)
        {
            // SAFETY: this tree has filled the finger, so it is at one of its leaves, and the guard has been
            // pinned ever since.
            let leaf = unsafe { &*at.cast::<LeafNode<E, G, W, L>>() };
            // SAFETY: passed on from the caller; the finger's guard is pinned.
            if let Some(inserted) = unsafe { leaf.try_insert(finger.version, probe, entry) } {
                if let Inserted::New(insertion) = &inserted {
                    finger.version = insertion.leaf.version;
                }
                return inserted;
            }
        }
        let guard = finger.guard();
        loop {
            // The lowest key above the leaf's range, if there is one: what a scan takes for its fence.
            let mut upper = None;
            let route = |inner: &'g InnerNode<W, N, B>, _, count| {
                // SAFETY: the guard is pinned.
                let index = unsafe { inner.route(probe, count) };
                if B == 0 && index + 1 < count {
                    upper = Some(padded(&inner.separator(index).words));
                }
                index
            };
            let Some(LeafPosition { leaf, version, .. }) = self.try_descend(guard, route) else {
                continue;
            };
            // SAFETY: passed on from the caller.
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

    /// Tells it from other trees.
    #[inline]
    pub fn id(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    /// One attempt to insert into a full leaf by splitting it. Where the parent is full, splits
    /// that instead and leaves the rest to the next attempt.
    fn try_grow<'g>(
        &self,
        probe: &Probe<'_, W>,
        entry: *const E,
        hooks: &impl GapHooks<G>,
        guard: &'g Guard,
    ) -> Option<Insertion<'g, G>> {
        let mut path: Path<'g, W, N, B> = SmallVec::new();
        let LeafPosition { leaf, version, root_version } =
            self.try_descend(guard, |inner, version, count| {
                // SAFETY: the guard is pinned.
                let index = unsafe { inner.route(probe, count) };
                path.push(PathStep { inner, version, index, count });
                index
            })?;
        let count = leaf.count();
        // SAFETY: the guard is pinned.
        let slot = unsafe { leaf.lower_bound(probe, count) };
        // SAFETY: the guard is pinned.
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

    /// Splits a full leaf and inserts. The leaf and its parent are locked, the parent has room;
    /// the leaf is released here.
    fn split_leaf<'g>(
        &self,
        path: &[PathStep<'g, W, N, B>],
        leaf: &'g LeafNode<E, G, W, L>,
        version: u64,
        (slot, probe, entry): (usize, &Probe<'_, W>, *const E),
        hooks: &impl GapHooks<G>,
    ) -> Insertion<'g, G> {
        let at_end = slot == L && path.iter().all(|step| step.index + 1 == step.count);
        // An ascending run splits where it stands, so that what it leaves behind is full. The new
        // key goes left unless that is full: the run then has room to go on in front of others.
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
        // SAFETY: the node was just made and linked; it cannot be freed while the guard that
        // `'g` comes from is pinned.
        let sibling = Leaf { head: unsafe { &(*right).top }, version: FIRST };
        Insertion {
            leaf: Leaf { head: &leaf.top, version: after },
            version_before: version,
            sibling: Some(sibling),
            in_sibling,
        }
    }

    /// Splits the last inner node of `path`, which is full and whose parent is not.
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

    /// Links `right` behind the child that `path` leads to, below a new root if that is the root.
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
        // SAFETY: the root pointer is locked, so the root is linked and alive.
        let level = unsafe { &*left }.level + 1;
        let root = InnerNode::<W, N, B>::above(left, separator, right, level);
        self.root.store(Box::into_raw(root).cast(), Ordering::Release);
    }
}

/// The separator between two neighbouring leaves that are both locked or unlinked: the first key
/// on the right, cut to its words where these suffice.
fn separate<E: Keyed + 'static, G: Default + 'static, const W: usize, const L: usize>(
    left: &LeafNode<E, G, W, L>,
    right: &LeafNode<E, G, W, L>,
) -> Separator<W> {
    let words = right.words_at(0);
    let full = if left.words_at(left.count() - 1) == words {
        // SAFETY: the first entry of a non-empty leaf that only this thread can change.
        let key = unsafe { right.key_at(0) }.expect("a split leaves no half empty");
        Box::into_raw(Box::new(Box::from(key)))
    } else {
        null_mut()
    };
    Separator { words, full }
}
