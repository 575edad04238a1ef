//! Kept rows and kept index entries: removed from their index, and still held by open snapshots.
//!
//! A deleted row that a snapshot holds is in the way of readers of the present, and so is an index
//! entry that matches only an earlier version of its row: every scan passes over both. So garbage
//! collection moves both out of the index, into a kept tree beside the index. Readers of the
//! present never look into the kept tree. A reader of a snapshot looks into the index first, and
//! into the kept tree afterwards.
//!
//! **Invariant.** A row or an entry that an open snapshot holds is in its index or in the kept
//! tree. For the item is inserted here *before* leaving the index, and removed from here when no
//! snapshot is open below the version that ended the item. So a reader of a snapshot that has not
//! found the item in the index finds the item here, if the reader looks here *after* the index.
//!
//! The tree may have several records of one key, each with the version that ended the record, and
//! the index may have one more. At most one of all these records has a row as of a snapshot: each
//! record was inserted after the previous record was deleted, in the same epoch or a later one.

use super::key::KeyBytes;
use super::record::Record;
use super::table::Retired;
use super::tid::Tid;
use crate::storage::Stamp;
use hyades_index::{Inserted, KeyShape, Keyed, NoHooks, OrderedIndex};
use hyades_platform::broken;
use hyades_platform::reclaim::{Guard, retire};
use smallvec::SmallVec;
use std::cmp::Ordering as Order;
use std::iter::Peekable;
use std::ops::{Bound, ControlFlow};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of the version that ended a kept row or entry, at the end of its key in the tree.
const END_BYTES: usize = size_of::<u64>();

/// A kept row or entry.
pub(crate) struct KeptItem<T> {
    /// The key in the index, then the version that ended the row or entry.
    full_key: Box<[u8]>,
    pub content: T,
}

impl<T> Keyed for KeptItem<T> {
    #[inline]
    fn key(&self) -> &[u8] {
        &self.full_key
    }
}

impl<T> KeptItem<T> {
    /// The key in the index.
    #[inline]
    pub fn index_key(&self) -> &[u8] {
        &self.full_key[..self.full_key.len() - END_BYTES]
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.full_key.len()
    }
}

/// A key, then a version that ended the row or entry with this key.
fn full_key(key: &[u8], end: Tid) -> KeyBytes {
    let mut full = KeyBytes::from_slice(key);
    full.extend_from_slice(&end.bits().to_be_bytes());
    full
}

/// The kept rows or entries of one index.
pub(crate) struct KeptTree<T: Send + Sync + 'static> {
    /// Raised before an insertion, lowered after a removal. Relaxed: a reader that needs a kept
    /// item has found the index without the item, and the item left the index after being counted.
    count: AtomicUsize,
    shape: KeyShape,
    /// Created at the first insertion.
    tree: OnceLock<OrderedIndex<KeptItem<T>, ()>>,
}

/// The record of a kept row.
pub(crate) struct KeptRecord<S>(*const Record<S>);

// SAFETY: the pointer is followed only by `KeptRecord::get`, which returns a shared reference, for
// which `S: Send + Sync` suffices. Dropping it does not drop the record.
unsafe impl<S: Send + Sync> Send for KeptRecord<S> {}
// SAFETY: as for `Send`: a thread gets `&Record<S>`.
unsafe impl<S: Send + Sync> Sync for KeptRecord<S> {}

impl<S> KeptRecord<S> {
    pub fn of(record: &Record<S>) -> Self {
        KeptRecord(std::ptr::from_ref(record))
    }

    /// The record.
    #[inline]
    pub fn get(&self) -> &Record<S> {
        // SAFETY: the record is retired by `KeptTree::remove_row` alone, together with the item
        // that contains the pointer, or freed with the table. The guard under which the item was
        // found was pinned before.
        unsafe { &*self.0 }
    }

    /// The record, to be freed with the table.
    pub fn pointer(&self) -> *const Record<S> {
        self.0
    }
}

/// Called by a scan of an index and its kept tree for each key, with the entry of the index and
/// with the kept items.
pub(crate) type VisitMerged<'v, 'g, E, T> =
    dyn FnMut(Option<&'g E>, &[&'g KeptItem<T>]) -> ControlFlow<()> + 'v;

/// A range of keys, and whether to go downwards.
#[derive(Clone, Copy)]
pub(crate) struct KeysInOrder<'k> {
    pub lower: Bound<&'k [u8]>,
    pub upper: Bound<&'k [u8]>,
    pub descending: bool,
}

impl<T: Send + Sync + 'static> KeptTree<T> {
    /// Creates the tree of an index with keys of this length, if all have the same length.
    pub fn new(key_bytes: Option<usize>) -> Self {
        let shape = key_bytes.map_or(KeyShape::Variable, |n| KeyShape::Fixed(n + END_BYTES));
        KeptTree { count: AtomicUsize::new(0), shape, tree: OnceLock::new() }
    }

    /// The tree, unless empty. Called by readers after a look into the index.
    #[inline]
    fn there(&self) -> Option<&OrderedIndex<KeptItem<T>, ()>> {
        if self.count.load(Ordering::Relaxed) == 0 || broken!(OverlookKept) {
            return None;
        }
        self.tree.get()
    }

    /// Keeps a row or entry that `end` has ended. Returns the bytes used here; `None` if already
    /// kept.
    pub fn insert(&self, key: &[u8], end: Tid, content: T, guard: &Guard) -> Option<usize> {
        let tree = self.tree.get_or_init(|| OrderedIndex::new(self.shape));
        let full = full_key(key, end);
        let fresh = KeptItem { full_key: Box::from(&full[..]), content };
        let (bytes, fresh) = (fresh.bytes(), Box::into_raw(Box::new(fresh)));
        self.count.fetch_add(1, Ordering::Relaxed);
        // SAFETY: `fresh` has this key, and is freed only with the tree or by `take`, which unlinks
        // it first and retires it through the epoch.
        match unsafe { tree.insert(&full, fresh, &NoHooks, guard) } {
            Inserted::New(_) => Some(bytes),
            Inserted::Exists(..) => {
                self.count.fetch_sub(1, Ordering::Relaxed);
                // SAFETY: the pointer came from a box just now, and was not linked.
                drop(unsafe { Box::from_raw(fresh) });
                None
            }
        }
    }

    /// Removes and retires the item kept under this key and version. The item stays readable while
    /// the guard is pinned.
    fn take<'g>(&self, key: &[u8], end: Tid, guard: &'g Guard) -> Option<&'g KeptItem<T>> {
        let (tree, full) = (self.tree.get()?, full_key(key, end));
        let found = tree.find(&full, guard)?;
        let unlinked = tree.take(&full, found, &NoHooks, &|()| (), guard)?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        let unlinked = Retired(unlinked.cast_mut());
        // SAFETY: `insert` made the pointer from a box. The item was unlinked just now, by this
        // thread alone, so the item is retired once, and freed after every guard that is pinned
        // now.
        unsafe { retire(guard, found.bytes(), move || drop(Box::from_raw(unlinked.into_inner()))) };
        Some(found)
    }

    /// Removes the item kept under this key and version. Returns the bytes freed here.
    pub fn remove(&self, key: &[u8], end: Tid, guard: &Guard) -> Option<usize> {
        self.take(key, end, guard).map(KeptItem::bytes)
    }

    /// Visits the items kept under a key, in the order of their ends. For a reader that has looked
    /// into the index before.
    pub fn visit<'g>(
        &'g self,
        key: &[u8],
        guard: &'g Guard,
        mut visit: impl FnMut(&'g KeptItem<T>) -> ControlFlow<()>,
    ) {
        let Some(tree) = self.there() else { return };
        let last = full_key(key, Tid::ABOVE_ALL);
        let (lower, upper) = (Bound::Included(key), Bound::Included(&last[..]));
        tree.scan(lower, upper, false, guard, &mut |_, kept| {
            kept.iter().try_for_each(|kept| visit(kept))
        });
    }

    /// Whether an item is kept under this key that `end`, or a later version, has ended.
    pub fn has_later(&self, key: &[u8], end: Tid, guard: &Guard) -> bool {
        let mut has_later = false;
        self.visit(key, guard, |kept| {
            has_later |= *kept.full_key >= *full_key(key, end);
            ControlFlow::Continue(())
        });
        has_later
    }

    /// Visits every kept item.
    pub fn for_each(&self, guard: &Guard, visit: impl FnMut(&KeptItem<T>)) {
        if let Some(tree) = self.tree.get() {
            tree.for_each(guard, visit);
        }
    }

    /// Visits the keys of a range, in order, of the index and of this tree, for a reader of a
    /// snapshot. `on_leaf` is called with the entries of the index ahead of their visits.
    ///
    /// A leaf of the index is read before the kept keys up to its last entry. So a key that is not
    /// in the leaf was moved, if at all, before the search among the kept items.
    pub fn merge<'g, E, G>(
        &'g self,
        index: &OrderedIndex<E, G>,
        keys: KeysInOrder<'_>,
        guard: &'g Guard,
        on_leaf: &dyn Fn(&[&'g E]),
        visit: &mut VisitMerged<'_, 'g, E, T>,
    ) where
        E: Keyed + Send + Sync + 'static,
        G: Default + Send + Sync + 'static,
    {
        // An item kept under an excluded key has a longer key in this tree.
        let passed = match keys.lower {
            Bound::Excluded(key) if !keys.descending => Some(key),
            _ => None,
        };
        let mut merging = Merging { kept: self, keys, passed, guard, visit };
        let mut flow = ControlFlow::Continue(());
        index.scan(keys.lower, keys.upper, keys.descending, guard, &mut |_, entries| {
            on_leaf(entries);
            if let Some(&last) = entries.last() {
                flow = merging.visit_up_to(Some(last.key()), entries);
                merging.passed = Some(last.key());
            }
            flow
        });
        if flow.is_continue() {
            let _ = merging.visit_up_to(None, &[]);
        }
    }
}

impl<S: Stamp> KeptTree<KeptRecord<S>> {
    /// Removes a kept row, and retires its record. Returns the bytes of both.
    pub fn remove_row(&self, key: &[u8], end: Tid, guard: &Guard) -> Option<usize> {
        let kept = self.take(key, end, guard)?;
        let record_bytes = kept.content.get().allocated_bytes();
        let record = Retired(kept.content.pointer().cast_mut());
        // SAFETY: the record has left its index before, so this tree alone had the record, and the
        // record has left this tree just now, by this thread alone: the record is retired once, and
        // no guard pinned from now on finds the record. As in `TableData`'s drop, the pointer is
        // made from a reference.
        unsafe { retire(guard, record_bytes, move || Record::free(record.into_inner())) };
        Some(kept.bytes() + record_bytes)
    }
}

impl<T: Send + Sync + 'static> Drop for KeptTree<T> {
    fn drop(&mut self) {
        let (guard, mut left) = (hyades_platform::reclaim::pin(), Vec::new());
        self.for_each(&guard, |kept| left.push(std::ptr::from_ref(kept)));
        // SAFETY: the tree is being dropped, and sessions keep tables alive, so no thread finds the
        // items; each was made from a box, and is visited once. The pointers are made from
        // references, as in `TableData`'s drop.
        left.into_iter().for_each(|kept| drop(unsafe { Box::from_raw(kept.cast_mut()) }));
    }
}

/// A scan of an index and its kept tree.
struct Merging<'m, 'g, E, T: Send + Sync + 'static> {
    kept: &'g KeptTree<T>,
    keys: KeysInOrder<'m>,
    /// The last key visited in the index: all keys up to `passed` are done.
    passed: Option<&'m [u8]>,
    guard: &'g Guard,
    visit: &'m mut VisitMerged<'m, 'g, E, T>,
}

/// The items kept under one key.
type KeptOfKey<'g, T> = SmallVec<[&'g KeptItem<T>; 2]>;

impl<'g, E: Keyed, T: Send + Sync + 'static> Merging<'_, 'g, E, T> {
    /// Visits the next entries of the index, in the order of the scan, and the kept items up to key
    /// `last`, or up to the end of the range.
    fn visit_up_to(&mut self, last: Option<&[u8]>, entries: &[&'g E]) -> ControlFlow<()> {
        let mut entries = entries.iter().copied().peekable();
        if let Some(tree) = self.kept.there() {
            self.merge(tree, last, &mut entries)?;
        }
        entries.try_for_each(|entry| (self.visit)(Some(entry), &[]))
    }

    /// Visits the kept items up to key `last`, and the entries before the items and under the same
    /// keys.
    fn merge(
        &mut self,
        tree: &'g OrderedIndex<KeptItem<T>, ()>,
        last: Option<&[u8]>,
        entries: &mut Peekable<impl Iterator<Item = &'g E>>,
    ) -> ControlFlow<()> {
        let KeysInOrder { lower, upper, descending } = self.keys;
        let [passed, last_full] =
            [self.passed, last].map(|key| key.map(|key| full_key(key, Tid::ABOVE_ALL)));
        let (lower, upper) = if descending {
            (last.map_or(lower, Bound::Included), self.passed.map_or(upper, Bound::Excluded))
        } else {
            let passed = passed.as_deref().map(Bound::Excluded);
            (passed.unwrap_or(lower), last_full.as_deref().map_or(upper, Bound::Included))
        };
        let is_next = if descending { Order::Greater } else { Order::Less };
        let (mut linked, mut same) = (None, KeptOfKey::new());
        let (visit, mut flow) = (&mut *self.visit, ControlFlow::Continue(()));
        tree.scan(lower, upper, descending, self.guard, &mut |_, all| {
            flow = all.iter().try_for_each(|kept| {
                let key = kept.index_key();
                if same.first().is_some_and(|first: &&KeptItem<T>| first.index_key() == key) {
                    same.push(*kept);
                    return ControlFlow::Continue(());
                }
                if !same.is_empty() {
                    visit(linked.take(), &same)?;
                    same.clear();
                }
                while let Some(entry) = entries.next_if(|entry| entry.key().cmp(key) == is_next) {
                    visit(Some(entry), &[])?;
                }
                linked = entries.next_if(|entry| entry.key() == key);
                same.push(*kept);
                ControlFlow::Continue(())
            });
            flow
        });
        flow?;
        if same.is_empty() { ControlFlow::Continue(()) } else { visit(linked, &same) }
    }
}
