//! The two kinds of nodes, made of atomic fields.
//!
//! Optimistic readers read nodes during writers' changes, and check the version afterwards; so
//! every changing field is an atomic. Words and counts are relaxed: the version word orders both.
//! Pointers are stored with Release and loaded with Acquire, because a reader may follow a pointer
//! before validating the version.
//!
//! The `SAFETY` comments of the index cite the following facts:
//! - G1: The guard was pinned before the pointer was loaded, and outlives the reference.
//! - G2: A slot is null, or points to an initialised entry, node or full key, not retired before
//!   the slot was overwritten. Vacated slots are set to null; an obsolete node keeps pointers, but
//!   only guards pinned before can reach the targets. All are retired through the epoch (entries by
//!   the contract of `OrderedIndex::insert`). So with G1, no object from a slot is freed.
//! - G3: A node's level never changes. A node of level 0 is a leaf, a node above is an inner node,
//!   with the parameters of its tree; all were made by `Box::into_raw`.
//! - G4: The current thread holds the lock of the pointer's node, so no other thread can overwrite
//!   the pointer, and the pointer's target is not retired.
//! - G5: The current thread unlinked the object under locks, so only the current thread retires the
//!   object, and no guard pinned from now on can reach the object.

use std::hint::select_unpredictable;
use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::key::{Keyed, Probe};
use super::version::Version;
use super::{Inserted, Insertion, Leaf};
use hyades_platform::prefetch::{prefetch, prefetch_bytes};

/// The header of all nodes. Counts are written under the node's lock and read without the lock.
#[repr(C)]
pub(super) struct NodeHeader {
    pub version: Version,
    count: AtomicU32,
    /// Leaf: the slot of the newest entry, a hint for choosing where to split.
    last: AtomicU32,
    /// 0 for a leaf; never changes.
    pub level: u32,
}

impl NodeHeader {
    fn new(level: u32) -> Self {
        NodeHeader {
            version: Version::new(),
            count: AtomicU32::new(0),
            last: AtomicU32::new(0),
            level,
        }
    }

    #[inline]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed) as usize
    }

    fn set_count(&self, count: usize) {
        self.count.store(count as u32, Ordering::Relaxed);
    }
}

/// The part of a leaf independent of the key shape; the target of [`super::Leaf`].
#[repr(C)]
pub(super) struct LeafHead<G> {
    pub head: NodeHeader,
    pub gap: G,
}

/// A leaf: up to `L` entries in key order.
#[repr(C, align(64))]
pub(super) struct LeafNode<E, G, const W: usize, const L: usize> {
    pub top: LeafHead<G>,
    words: [[AtomicU64; W]; L],
    entries: [AtomicPtr<E>; L],
}

impl<E: Keyed + 'static, G: Default + 'static, const W: usize, const L: usize>
    LeafNode<E, G, W, L>
{
    pub fn new() -> Box<Self> {
        Box::new(LeafNode {
            top: LeafHead { head: NodeHeader::new(0), gap: G::default() },
            words: [const { [const { AtomicU64::new(0) }; W] }; L],
            entries: [const { AtomicPtr::new(null_mut()) }; L],
        })
    }

    #[inline]
    pub fn version(&self) -> &Version {
        &self.top.head.version
    }

    #[inline]
    pub fn count(&self) -> usize {
        self.top.head.count().min(L)
    }

    #[inline]
    pub fn entry(&self, slot: usize) -> *const E {
        self.entries[slot].load(Ordering::Acquire)
    }

    pub fn words_at(&self, slot: usize) -> [u64; W] {
        std::array::from_fn(|i| self.words[slot][i].load(Ordering::Relaxed))
    }

    /// Prefetches a whole leaf.
    pub fn prefetch(leaf: *const Self) {
        prefetch_bytes(leaf, 0, size_of::<Self>());
    }

    /// Prefetches the parts of a leaf read by a scan: the head and the entries, not the words.
    pub fn prefetch_entries(leaf: *const Self) {
        prefetch(leaf);
        prefetch_bytes(leaf, offset_of!(Self, entries), size_of::<[AtomicPtr<E>; L]>());
    }

    /// Whether the newest entry is just before `slot`, as in an ascending run.
    pub fn continues_run(&self, slot: usize) -> bool {
        self.top.head.last.load(Ordering::Relaxed) as usize + 1 == slot
    }

    /// Returns the first slot with a key at or above `probe`.
    ///
    /// # Safety
    /// The caller is pinned, and entries are retired through the epoch after the unlinking.
    #[inline]
    pub unsafe fn lower_bound(&self, probe: &Probe<'_, W>, count: usize) -> usize {
        // SAFETY: G1 by the function's contract, the same as for `below`.
        partition(count, |slot| unsafe { self.below(slot, probe) })
    }

    /// Whether the key in `slot` is below `probe`.
    ///
    /// # Safety
    /// As for [`Self::lower_bound`].
    #[inline(always)]
    unsafe fn below(&self, slot: usize, probe: &Probe<'_, W>) -> bool {
        for (word, &wanted) in self.words[slot].iter().zip(&probe.words) {
            let word = word.load(Ordering::Relaxed);
            if W == 1 && probe.full.is_none() {
                return word < wanted;
            }
            if word != wanted {
                return word < wanted;
            }
        }
        let Some(full) = probe.full else { return false };
        // SAFETY: G1 by the function's contract, the same as for `key_at`.
        unsafe { self.key_at(slot) }.is_some_and(|key| key < full)
    }

    /// Whether `slot` holds exactly the key of `probe`.
    ///
    /// # Safety
    /// As for [`LeafNode::lower_bound`].
    #[inline]
    pub unsafe fn holds(&self, slot: usize, count: usize, probe: &Probe<'_, W>) -> bool {
        if slot >= count || self.words_at(slot) != probe.words {
            return false;
        }
        let Some(full) = probe.full else { return true };
        // SAFETY: G1 by the function's contract, the same as for `key_at`.
        unsafe { self.key_at(slot) }.is_some_and(|key| key == full)
    }

    /// # Safety
    /// As for [`LeafNode::lower_bound`], and the caller stays pinned for `'g`.
    pub unsafe fn key_at<'g>(&self, slot: usize) -> Option<&'g [u8]>
    where
        E: 'g,
    {
        // SAFETY: G1 by the function's contract, G2.
        unsafe { self.entry(slot).as_ref() }.map(Keyed::key)
    }

    fn put(&self, slot: usize, words: &[u64; W], entry: *mut E) {
        for (field, &word) in self.words[slot].iter().zip(words) {
            field.store(word, Ordering::Relaxed);
        }
        self.entries[slot].store(entry, Ordering::Release);
    }

    /// Inserts the entry if the leaf, with the key in its range, has room and is still at
    /// `version`; or finds the existing key. `None` in all other cases.
    ///
    /// # Safety
    /// The caller is pinned for `'g`. Also as for [`super::OrderedIndex::insert`].
    #[inline]
    pub unsafe fn try_insert<'g>(
        &'g self,
        version: u64,
        probe: &Probe<'_, W>,
        entry: *const E,
    ) -> Option<Inserted<'g, E, G>> {
        let count = self.count();
        // SAFETY: G1 by the function's contract.
        let slot = unsafe { self.lower_bound(probe, count) };
        // SAFETY: G1 by the function's contract.
        if unsafe { self.holds(slot, count, probe) } {
            let existing = self.entry(slot);
            if !self.version().validate(version) {
                return None;
            }
            // SAFETY: G1, G2. The version is unchanged, so the slot holds the key's entry.
            let existing = unsafe { &*existing };
            return Some(Inserted::Exists(existing, Leaf { head: &self.top, version }));
        }
        if count == L || !self.version().try_lock(version) {
            return None;
        }
        self.insert_at(slot, &probe.words, entry);
        let after = self.version().unlock_changed(version);
        Some(Inserted::New(Insertion {
            leaf: Leaf { head: &self.top, version: after },
            version_before: version,
            sibling: None,
            in_sibling: false,
        }))
    }

    /// Inserts before `slot`. The lock is held, or the leaf is not yet linked.
    pub fn insert_at(&self, slot: usize, words: &[u64; W], entry: *const E) {
        let count = self.count();
        debug_assert!(slot <= count && count < L, "a leaf has room for what is inserted");
        debug_assert!(
            (slot == 0 || self.words_at(slot - 1) <= *words)
                && (slot == count || *words <= self.words_at(slot)),
            "the keys of a leaf are in order"
        );
        for i in (slot..count).rev() {
            self.put(i + 1, &self.words_at(i), self.entry(i).cast_mut());
        }
        self.put(slot, words, entry.cast_mut());
        self.top.head.last.store(slot as u32, Ordering::Relaxed);
        self.top.head.set_count(count + 1);
    }

    /// Removes the entry of `slot`. The lock is held.
    pub fn remove_at(&self, slot: usize) {
        let count = self.count();
        debug_assert!(slot < count, "the entry that is removed is in the leaf");
        for i in slot + 1..count {
            self.put(i - 1, &self.words_at(i), self.entry(i).cast_mut());
        }
        self.entries[count - 1].store(null_mut(), Ordering::Release);
        self.top.head.set_count(count - 1);
    }

    /// Moves the entries from `cut` on into `right`, an empty leaf not yet linked. The lock is
    /// held.
    pub fn move_tail(&self, cut: usize, right: &Self) {
        let count = self.count();
        debug_assert!(cut <= count && right.count() == 0, "a part goes to an empty leaf");
        for i in cut..count {
            right.put(i - cut, &self.words_at(i), self.entry(i).cast_mut());
        }
        for slot in &self.entries[cut..count] {
            slot.store(null_mut(), Ordering::Release);
        }
        right.top.head.set_count(count - cut);
        self.top.head.set_count(cut);
    }
}

/// A separator's full key, for the rare case of equal words of its two neighbours.
pub(super) type FullKey = Box<[u8]>;

/// A separator. The inner node with the separator in a slot owns `full`; `full` is retired through
/// the epoch.
#[derive(Clone, Copy)]
pub(super) struct Separator<const W: usize> {
    pub words: [u64; W],
    pub full: *mut FullKey,
}

/// An inner node: up to `N` children, separator `i` between the children `i` and `i + 1`. `B` is
/// `N` where separators can need a full key, and 0 elsewhere.
#[repr(C, align(64))]
pub(super) struct InnerNode<const W: usize, const N: usize, const B: usize> {
    pub head: NodeHeader,
    words: [[AtomicU64; W]; N],
    full: [AtomicPtr<FullKey>; B],
    children: [AtomicPtr<NodeHeader>; N],
}

impl<const W: usize, const N: usize, const B: usize> InnerNode<W, N, B> {
    pub fn new(level: u32) -> Box<Self> {
        Box::new(InnerNode {
            head: NodeHeader::new(level),
            words: [const { [const { AtomicU64::new(0) }; W] }; N],
            full: [const { AtomicPtr::new(null_mut()) }; B],
            children: [const { AtomicPtr::new(null_mut()) }; N],
        })
    }

    /// A new root above two children.
    pub fn above(
        left: *mut NodeHeader,
        separator: &Separator<W>,
        right: *mut NodeHeader,
        level: u32,
    ) -> Box<Self> {
        let node = Self::new(level);
        node.children[0].store(left, Ordering::Relaxed);
        node.put(0, separator, right);
        node.head.set_count(2);
        node
    }

    /// Prefetches the pointers to the children.
    #[inline(always)]
    pub fn prefetch_children(node: *const Self) {
        prefetch_bytes(node, offset_of!(Self, children), size_of::<[AtomicPtr<NodeHeader>; N]>());
    }

    #[inline]
    pub fn count(&self) -> usize {
        self.head.count().clamp(1, N)
    }

    #[inline]
    pub fn child(&self, slot: usize) -> *mut NodeHeader {
        self.children[slot].load(Ordering::Acquire)
    }

    fn full_at(&self, slot: usize) -> *mut FullKey {
        if B == 0 { null_mut() } else { self.full[slot].load(Ordering::Acquire) }
    }

    pub fn separator(&self, slot: usize) -> Separator<W> {
        let words = std::array::from_fn(|i| self.words[slot][i].load(Ordering::Relaxed));
        Separator { words, full: self.full_at(slot) }
    }

    /// The separator as a search position.
    ///
    /// # Safety
    /// The caller is pinned for `'g`.
    pub unsafe fn fence<'g>(&self, slot: usize) -> Probe<'g, W> {
        let Separator { words, full } = self.separator(slot);
        // SAFETY: G1 by the function's contract, G2.
        Probe { words, full: unsafe { full.as_ref() }.map(|key| &**key) }
    }

    /// Returns the index of the child with `probe` in its range: the number of separators at or
    /// below `probe`.
    ///
    /// # Safety
    /// The caller is pinned.
    #[inline]
    pub unsafe fn route(&self, probe: &Probe<'_, W>, count: usize) -> usize {
        partition(count - 1, |slot| {
            for (word, &wanted) in self.words[slot].iter().zip(&probe.words) {
                let word = word.load(Ordering::Relaxed);
                if (W == 1 && B == 0) || word != wanted {
                    return word <= wanted;
                }
            }
            // SAFETY: G1 by the function's contract, the same as for `fence`.
            B == 0 || unsafe { self.fence(slot) }.full <= probe.full
        })
    }

    /// Returns the index of the child with the position just below `probe` in its range or at the
    /// range's end.
    ///
    /// # Safety
    /// The caller is pinned.
    pub unsafe fn route_below(&self, probe: &Probe<'_, W>, count: usize) -> usize {
        // SAFETY: G1 by the function's contract, the same as for `fence`.
        partition(count - 1, |slot| unsafe { self.fence(slot) }.cmp(probe).is_lt())
    }

    /// Stores a separator and the child to the right.
    fn put(&self, slot: usize, separator: &Separator<W>, right: *mut NodeHeader) {
        for (field, &word) in self.words[slot].iter().zip(&separator.words) {
            field.store(word, Ordering::Relaxed);
        }
        if B != 0 {
            self.full[slot].store(separator.full, Ordering::Release);
        }
        self.children[slot + 1].store(right, Ordering::Release);
    }

    fn clear(&self, slot: usize) {
        if B != 0 {
            self.full[slot].store(null_mut(), Ordering::Release);
        }
        self.children[slot + 1].store(null_mut(), Ordering::Release);
    }

    /// Links `right` just after child `slot`. The lock is held and the node is not full.
    pub fn insert_child(&self, slot: usize, separator: &Separator<W>, right: *mut NodeHeader) {
        let count = self.count();
        debug_assert!(slot < count && count < N, "a node has room for what is linked in it");
        debug_assert!(
            (slot == 0 || self.separator(slot - 1).words <= separator.words)
                && (slot + 1 == count || separator.words <= self.separator(slot).words),
            "the separators of a node are in order"
        );
        for i in (slot..count - 1).rev() {
            self.put(i + 1, &self.separator(i), self.child(i + 1));
        }
        self.put(slot, separator, right);
        self.head.set_count(count + 1);
    }

    /// Unlinks child `slot`; the child's range goes to the left neighbour, or from the first child
    /// to the right neighbour. Returns the separator's full key (or null), then owned by the
    /// caller. The lock is held and there are at least two children.
    pub fn remove_child(&self, slot: usize) -> *mut FullKey {
        let count = self.count();
        debug_assert!(slot < count && count >= 2, "a node keeps at least one child");
        let gone = slot.saturating_sub(1);
        let full = self.full_at(gone);
        if slot == 0 {
            self.children[0].store(self.child(1), Ordering::Release);
        }
        for i in gone + 1..count - 1 {
            self.put(i - 1, &self.separator(i), self.child(i + 1));
        }
        self.clear(count - 2);
        self.head.set_count(count - 1);
        full
    }

    /// Moves the children from `cut` on into `right`, a new node. Returns the separator between the
    /// halves, then owned by the caller. The lock is held and `0 < cut < count`.
    pub fn move_tail(&self, cut: usize, right: &Self) -> Separator<W> {
        let count = self.count();
        debug_assert!(0 < cut && cut < count, "both halves of a node have a child");
        let middle = self.separator(cut - 1);
        right.children[0].store(self.child(cut), Ordering::Release);
        for i in cut..count - 1 {
            right.put(i - cut, &self.separator(i), self.child(i + 1));
        }
        for i in cut - 1..count - 1 {
            self.clear(i);
        }
        right.head.set_count(count - cut);
        self.head.set_count(cut);
        middle
    }
}

/// Returns the first of `0..count` with `below` false, given `below` true up to there; else
/// `count`.
///
/// The loop's trip count depends on `count` only, and each step selects without a branch, since the
/// processor cannot predict the outcome of the comparisons.
#[inline(always)]
fn partition(count: usize, below: impl Fn(usize) -> bool) -> usize {
    let (mut base, mut size) = (0, count);
    while size > 1 {
        let half = size / 2;
        base = select_unpredictable(below(base + half - 1), base + half, base);
        size -= half;
    }
    base + usize::from(size == 1 && below(base))
}
