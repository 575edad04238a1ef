//! Secondary indexes: entries that point to rows, kept as long as a row or a transaction needs them.

use super::gap::{Gap, GapChange, leaf_change};
use super::key::{self, KeyBytes};
use super::ordered_index::{Finger, GapHooks, Inserted, Keyed, OrderedIndex};
use super::prefetch::prefetch;
use super::record::{Record, word};
use super::schema::Columns;
use super::table::{Retired, TableData};
use super::value::Value;
use crate::error::Abort;
use crossbeam_epoch::Guard;
use std::alloc::{Layout as Allocation, alloc, dealloc, handle_alloc_error};
use std::sync::atomic::{AtomicU32, Ordering};

/// An entry of a secondary index. Its key, the indexed columns followed by the row's primary key, follows it in the
/// same allocation.
#[repr(C)]
pub(crate) struct IndexEntry<S> {
    record: *const Record<S>,
    /// Transactions in progress that rely on the entry, or [`GONE`].
    pins: AtomicU32,
    key_len: u32,
}

/// Most entries are no longer than this, with their keys.
const MOSTLY: usize = 64;

/// The entry is being unlinked.
const GONE: u32 = u32::MAX;

// SAFETY: the record is only reached through `IndexEntry::record`, as a shared reference, and records are
// shared between threads anyway.
unsafe impl<S: Send + Sync> Send for IndexEntry<S> {}
// SAFETY: as above.
unsafe impl<S: Send + Sync> Sync for IndexEntry<S> {}

impl<S> Keyed for IndexEntry<S> {
    #[inline]
    fn key(&self) -> &[u8] {
        // SAFETY: the key's bytes follow in the same allocation and never change.
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

    /// Makes an entry that one transaction relies on. The caller owns it until it is linked into an index.
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
    /// Nobody else may hold or find the entry, now or later.
    pub unsafe fn free(entry: *mut Self) {
        // SAFETY: the caller hands over the only reference, and it was made by `new` with a key of this length.
        unsafe { dealloc(entry.cast(), Self::allocation((*entry).key_len as usize)) }
    }

    /// Starts loading an entry and, as far as it is not long, its key.
    #[inline]
    pub fn prefetch(&self) {
        let start = std::ptr::from_ref(self).cast::<u8>();
        prefetch(start);
        prefetch(start.wrapping_add(MOSTLY - 1));
    }

    /// The row.
    pub fn record(&self) -> &Record<S> {
        // SAFETY: a record is not retired while entries point to it (`Record::entries`), and who
        // holds the entry is pinned.
        unsafe { &*self.record }
    }

    fn pin(&self) -> bool {
        let pin = |pins| if pins == GONE { None } else { Some(pins + 1) };
        self.pins.fetch_update(Ordering::AcqRel, Ordering::Acquire, pin).is_ok()
    }

    /// Ends the reliance that [`TableData::link`] began.
    pub fn unpin(&self) {
        self.pins.fetch_sub(1, Ordering::AcqRel);
    }
}

pub(crate) struct Secondary<S: Default + Send + Sync + 'static> {
    pub columns: Vec<u16>,
    /// The same as a set.
    pub column_set: u64,
    pub unique: bool,
    pub tree: OrderedIndex<IndexEntry<S>, S>,
}

impl<S: Default + Send + Sync + 'static> Secondary<S> {
    /// The indexed columns.
    pub fn columns(&self) -> Columns {
        Columns(self.column_set)
    }
}

/// An index entry with the gap that it lies in, or with how its coming changed the gap.
pub(crate) type Linked<'g, S> = (&'g IndexEntry<S>, Result<GapChange<'g, S>, Gap<'g, S>>);

impl<S: Default + Send + Sync + 'static> TableData<S> {
    /// The key of `row` in a secondary index: its columns, then the primary key.
    pub fn secondary_key(&self, index: usize, row: &[u8], primary: &[u8]) -> KeyBytes {
        let mut out = self.secondary_prefix(index, row).0;
        out.extend_from_slice(primary);
        out
    }

    /// The indexed columns of `row` as key bytes, and whether one of them is null.
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

    /// Links a row into a secondary index under `key`, or finds that it is there already; pins the
    /// entry either way. Returns it with the gap that it lies in, and how that changed if it is new. The finger
    /// is where to begin.
    ///
    /// # Errors
    /// A conflict if the record is on its way out.
    pub fn link<'g>(
        &'g self,
        index: usize,
        key: &[u8],
        record: &'g Record<S>,
        hooks: &impl GapHooks<S>,
        finger: &mut Finger<'g>,
    ) -> Result<Linked<'g, S>, Abort> {
        // Counted first, then looked: whoever takes a record out marks it dead first, then counts.
        record.entries.fetch_add(1, Ordering::SeqCst);
        if record.word.load(Ordering::SeqCst) & word::DEAD != 0 {
            record.entries.fetch_sub(1, Ordering::AcqRel);
            return Err(Abort::Conflict);
        }
        let tree = &self.secondaries[index].tree;
        let fresh = IndexEntry::new(key, record);
        loop {
            // SAFETY: the entry has this key, and is freed only through `unlink_entry`, which retires
            // it, or with the table.
            match unsafe { tree.insert_near(key, fresh, hooks, finger) } {
                Inserted::New(insertion) => {
                    // SAFETY: it is linked now, and the guard keeps it even if it is unlinked.
                    return Ok((unsafe { &*fresh }, Ok(leaf_change(insertion))));
                }
                Inserted::Exists(entry, leaf) if entry.pin() => {
                    record.entries.fetch_sub(1, Ordering::AcqRel);
                    // SAFETY: the fresh entry was not linked; this is the only pointer to it.
                    unsafe { IndexEntry::free(fresh) };
                    return Ok((entry, Err(Gap::Leaf(leaf))));
                }
                // Its unlinking is under way.
                Inserted::Exists(..) => std::thread::yield_now(),
            }
        }
    }

    /// Visits the entries of an index that describe a row, in key order, with that row's bytes. A stale
    /// entry counts as little here as for a transaction. Only for a time in which nobody changes rows.
    pub fn for_each_true_entry<'g>(
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
            record.read_row(&mut row);
            if self.secondary_key(index, &row, record.key())[..] == *entry.key() {
                visit(entry, &row);
            }
        });
    }

    /// Takes an entry that no longer describes its row out of its index and retires it, unless a
    /// transaction relies on it. The caller holds the row's lock.
    pub fn unlink_entry(
        &self,
        index: usize,
        entry: &IndexEntry<S>,
        hooks: &impl GapHooks<S>,
        leave: impl FnOnce(&S),
        guard: &Guard,
    ) -> bool {
        if entry.pins.compare_exchange(0, GONE, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return false;
        }
        let unlinked = self.secondaries[index].tree.take(entry.key(), entry, hooks, leave, guard);
        let unlinked = unlinked.expect("only the one who marked an entry gone unlinks it");
        let unlinked = Retired(unlinked.cast_mut());
        entry.record().entries.fetch_sub(1, Ordering::AcqRel);
        // SAFETY: the entry has left its index; it is freed when everyone who is pinned has gone.
        unsafe { guard.defer_unchecked(move || IndexEntry::free(unlinked.into_inner())) };
        true
    }
}
