//! Secondary indexes: entries that point to rows, kept while needed by a row or a transaction.

use super::gap::{Gap, GapChange, leaf_change};
use super::kept::KeptTree;
use super::key::{self, KeyBytes};
use super::record::{Record, word};
use super::schema::Columns;
use super::table::{Retired, TableData};
use super::tid::Tid;
use super::value::{self, Value};
use crate::error::Abort;
use crate::storage::Stamp;
use hyades_index::{Finger, GapHooks, Inserted, Keyed, OrderedIndex};
use hyades_platform::prefetch::prefetch;
use hyades_platform::reclaim::{Guard, retire};
use std::alloc::{Layout as Allocation, alloc, dealloc, handle_alloc_error};
use std::sync::atomic::{AtomicU32, Ordering};

/// An entry of a secondary index. Its key, the indexed columns followed by the row's primary key,
/// comes after the entry in the same allocation.
#[repr(C)]
pub(crate) struct IndexEntry<S> {
    record: *const Record<S>,
    /// Number of running transactions that rely on the entry, or [`GONE`].
    pins: AtomicU32,
    key_len: u32,
}

/// Most entries, with their keys, are at most this long, in bytes.
const TYPICAL_ENTRY_BYTES: usize = 64;

/// The entry is being unlinked.
const GONE: u32 = u32::MAX;

// SAFETY: the record pointer is followed only by `IndexEntry::record`, to return a shared
// reference, and `S: Send + Sync` suffices for this. Dropping an entry does not drop the record.
unsafe impl<S: Send + Sync> Send for IndexEntry<S> {}
// SAFETY: as for `Send`: a thread gets `&Record<S>`. The other fields are atomic or never change.
unsafe impl<S: Send + Sync> Sync for IndexEntry<S> {}

impl<S> Keyed for IndexEntry<S> {
    #[inline]
    fn key(&self) -> &[u8] {
        // SAFETY: the key bytes follow in the same allocation and never change. The bytes are
        // outside the extent of `&self`: tree borrows permits this access, stacked borrows forbids
        // the access (docs/reliability.md).
        unsafe {
            let at = std::ptr::from_ref(self).cast::<u8>().add(size_of::<Self>());
            std::slice::from_raw_parts(at, self.key_len as usize)
        }
    }
}

impl<S> IndexEntry<S> {
    fn allocation(key_len: usize) -> Allocation {
        let size = size_of::<Self>() + key_len;
        Allocation::from_size_align(size, align_of::<Self>()).expect("an entry's size")
    }

    /// Allocates an entry, pinned for one transaction. The caller owns the entry until it is
    /// linked.
    fn new(key: &[u8], record: *const Record<S>) -> *mut Self {
        let key_len = key::stored_len(key);
        let allocation = Self::allocation(key.len());
        // SAFETY: the allocation is not of size zero, and has room for the entry and its key.
        unsafe {
            let entry = alloc(allocation).cast::<Self>();
            if entry.is_null() {
                handle_alloc_error(allocation);
            }
            entry.write(IndexEntry { record, pins: AtomicU32::new(1), key_len });
            std::ptr::copy_nonoverlapping(key.as_ptr(), entry.add(1).cast(), key.len());
            entry
        }
    }

    /// Frees an entry.
    ///
    /// # Safety
    /// The entry came from `new`, and no other reference to it exists or can be found, now or
    /// later.
    pub unsafe fn free(entry: *mut Self) {
        // SAFETY: by the contract there is no other access, and `new` made the entry with a key of
        // `key_len` bytes.
        unsafe { dealloc(entry.cast(), Self::allocation((*entry).key_len as usize)) }
    }

    /// Prefetches the entry and its key, as far as within [`TYPICAL_ENTRY_BYTES`] bytes.
    #[inline]
    pub fn prefetch(&self) {
        let start = std::ptr::from_ref(self).cast::<u8>();
        prefetch(start);
        prefetch(start.wrapping_add(TYPICAL_ENTRY_BYTES - 1));
    }

    /// The row.
    pub fn record(&self) -> &Record<S> {
        // SAFETY: a record is not retired while linked entries point to the record
        // (`Record::entries`). The guard under which this entry was found was pinned before the
        // entry was unlinked, hence before the record is retired.
        unsafe { &*self.record }
    }

    fn pin(&self) -> bool {
        let pin = |pins| {
            debug_assert_ne!(pins, GONE - 1, "one more pin would mark the entry gone");
            if pins == GONE { None } else { Some(pins + 1) }
        };
        self.pins.fetch_update(Ordering::AcqRel, Ordering::Acquire, pin).is_ok()
    }

    /// Releases the pin taken by [`TableData::link`].
    pub fn unpin(&self) {
        let pins = self.pins.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(pins != 0 && pins != GONE, "an entry is unpinned as often as it was pinned");
    }
}

pub(crate) struct Secondary<S: Stamp> {
    pub name: String,
    pub columns: Vec<u16>,
    /// `columns` as a set.
    pub column_set: u64,
    pub unique: bool,
    pub tree: OrderedIndex<IndexEntry<S>, S>,
    /// Entries that have left the tree and are needed by snapshots: for each the length of the
    /// primary key at the end of the entry's key.
    pub(super) kept: KeptTree<usize>,
}

/// The outcome of unlinking an entry that does not match its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryUnlinked {
    /// A transaction has pinned the entry: the entry is in place.
    Pinned,
    /// The entry has left the index.
    Gone,
    /// The entry has left the index, and this many bytes are kept for snapshots.
    Kept(u64),
}

impl<S: Stamp> Secondary<S> {
    /// The indexed columns.
    pub fn columns(&self) -> Columns {
        Columns(self.column_set)
    }
}

/// An index entry: with the change of its gap if new, else with its gap.
pub(crate) type Linked<'g, S> = (&'g IndexEntry<S>, Result<GapChange<'g, S>, Gap<'g, S>>);

impl<S: Stamp> TableData<S> {
    /// The key of `row` in a secondary index: its columns, then the primary key.
    pub fn secondary_key(&self, index: usize, row: &[u8], primary: &[u8]) -> KeyBytes {
        let mut out = self.secondary_prefix(index, row).0;
        out.extend_from_slice(primary);
        out
    }

    /// The indexed columns of `row` as key bytes, and whether any is null.
    pub fn secondary_prefix(&self, index: usize, row: &[u8]) -> (KeyBytes, bool) {
        let mut out = KeyBytes::new();
        let mut null = false;
        for &column in &self.secondaries[index].columns {
            let spec = &self.layout.columns[column as usize];
            let value = self.layout.value(row, column);
            null |= matches!(value, Value::Null);
            key::push(&mut out, spec.kind, spec.nullable, &value);
        }
        (out, null)
    }

    /// Links a row into a secondary index under `key`, or finds the existing entry; pins the entry
    /// either way. Returns the entry with its gap, or with the change of the gap if the entry is
    /// new. The search begins at the finger.
    ///
    /// # Errors
    /// A conflict if the record is marked dead.
    pub fn link<'g>(
        &'g self,
        index: usize,
        key: &[u8],
        record: &'g Record<S>,
        hooks: &dyn GapHooks<S>,
        finger: &mut Finger<'g>,
    ) -> Result<Linked<'g, S>, Abort> {
        // Count, then check. The sweep that unlinks a record marks the record dead, then checks the
        // count, so at least one of the two threads notices the other.
        record.entries.fetch_add(1, Ordering::SeqCst);
        debug_assert!(
            key.ends_with(record.key()),
            "the key of an entry ends with the primary key of its row"
        );
        if record.word.load(Ordering::SeqCst) & word::DEAD != 0 {
            record.entries.fetch_sub(1, Ordering::AcqRel);
            return Err(Abort::Conflict);
        }
        let tree = &self.secondaries[index].tree;
        let fresh = IndexEntry::new(key, record);
        loop {
            // SAFETY: the entry has this key, and is freed only with the table or by
            // `unlink_entry`, which first unlinks the entry and then retires it through the epoch.
            // A `Finger<'g>` points only into indexes borrowed for `'g`, and the indexes outlive
            // the finger.
            match unsafe { tree.insert_near(key, fresh, hooks, finger) } {
                Inserted::New(insertion) => {
                    // SAFETY: the entry is linked; the finger's pinned guard keeps the entry, even
                    // if unlinked.
                    return Ok((unsafe { &*fresh }, Ok(leaf_change(insertion))));
                }
                Inserted::Exists(entry, leaf) if entry.pin() => {
                    record.entries.fetch_sub(1, Ordering::AcqRel);
                    // SAFETY: the fresh entry was not linked; `fresh` is the only pointer to it.
                    unsafe { IndexEntry::free(fresh) };
                    return Ok((entry, Err(Gap::Leaf(leaf))));
                }
                // Another thread is unlinking the entry.
                Inserted::Exists(..) => std::thread::yield_now(),
            }
        }
    }

    /// Removes the secondary indexes from position `kept` on, with their entries. No other thread
    /// uses the table.
    pub fn truncate_indexes(&mut self, kept: usize) {
        let guard = hyades_platform::reclaim::pin();
        for secondary in self.secondaries.drain(kept..) {
            let mut entries = Vec::new();
            secondary.tree.for_each(&guard, |entry| {
                let before = entry.record().entries.fetch_sub(1, Ordering::AcqRel);
                debug_assert_ne!(before, 0, "a row counts the entries that point to it");
                entries.push(std::ptr::from_ref(entry));
            });
            // SAFETY: the index is not in the table any more, and the table is borrowed
            // exclusively, so no thread can find its entries, now or later; each entry is visited
            // once. The pointers are made from references, as in `TableData`'s drop.
            unsafe { entries.into_iter().for_each(|e| IndexEntry::free(e.cast_mut())) }
        }
        self.indexed = self.secondaries.iter().fold(0, |set, s| set | s.column_set);
    }

    /// The primary key of a row for people: its values, or the hidden row id.
    pub fn key_text(&self, record: &Record<S>) -> String {
        if self.keyless {
            let id = record.key().try_into().map_or(0, u64::from_be_bytes);
            return format!("row {id}");
        }
        let mut row = Vec::new();
        self.read_row(record, &mut row);
        let values = self.layout.key.iter().map(|&c| value::text(self.layout.value(&row, c)));
        values.collect::<Vec<_>>().join(", ")
    }

    /// Returns two rows that share a key of an index, if there are any: the rows with the lowest
    /// key. Rows with a null in the key share none. Only while no thread changes rows.
    pub fn duplicates<'g>(
        &'g self,
        index: usize,
        guard: &'g Guard,
    ) -> Option<[&'g IndexEntry<S>; 2]> {
        let (mut last, mut found) = (None::<(KeyBytes, &IndexEntry<S>)>, None);
        self.for_each_matching_entry(index, guard, |entry, row| {
            let (prefix, null) = self.secondary_prefix(index, row);
            if let Some((before, other)) = &last
                && found.is_none()
                && !null
                && *before == prefix
            {
                found = Some([*other, entry]);
            }
            last = Some((prefix, entry));
        });
        found
    }

    /// Visits the entries of an index that match their row, in key order, with the row's bytes;
    /// skips stale entries, as transactions do. Only while no thread changes rows.
    pub fn for_each_matching_entry<'g>(
        &'g self,
        index: usize,
        guard: &'g Guard,
        mut visit: impl FnMut(&'g IndexEntry<S>, &[u8]),
    ) {
        let mut row = Vec::new();
        self.secondaries[index].tree.for_each(guard, |entry| {
            let record = entry.record();
            if record.word.load(Ordering::Acquire) & word::ABSENT != 0 {
                return;
            }
            row.clear();
            self.read_row(record, &mut row);
            if self.secondary_key(index, &row, record.key())[..] == *entry.key() {
                visit(entry, &row);
            }
        });
    }

    /// Unlinks and retires an entry that no longer matches its row, unless a transaction has pinned
    /// the entry. The entry is kept before, if a snapshot needs the entry: then `ended_by` is the
    /// version of the row. The caller holds the row's lock.
    pub fn unlink_entry(
        &self,
        index: usize,
        entry: &IndexEntry<S>,
        ended_by: Option<Tid>,
        hooks: &dyn GapHooks<S>,
        leave: &dyn Fn(&S),
        guard: &Guard,
    ) -> EntryUnlinked {
        if entry.pins.compare_exchange(0, GONE, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return EntryUnlinked::Pinned;
        }
        let (kept, primary_len) = (&self.secondaries[index].kept, entry.record().key().len());
        let kept = ended_by.and_then(|end| kept.insert(entry.key(), end, primary_len, guard));
        let unlinked = self.secondaries[index].tree.take(entry.key(), entry, hooks, leave, guard);
        let unlinked = unlinked.expect("only the thread that marked an entry gone unlinks it");
        let unlinked = Retired(unlinked.cast_mut());
        let bytes = IndexEntry::<S>::allocation(entry.key().len()).size();
        let entries = entry.record().entries.fetch_sub(1, Ordering::AcqRel);
        debug_assert_ne!(entries, 0, "a row counts the entries that point to it");
        // SAFETY: the entry was unlinked just now by the only thread that marked it `GONE`, so the
        // entry is retired once, and freed after every guard that is pinned now.
        unsafe { retire(guard, bytes, move || IndexEntry::free(unlinked.into_inner())) };
        kept.map_or(EntryUnlinked::Gone, |bytes| EntryUnlinked::Kept(bytes as u64))
    }
}
