//! A table: its rows' layout, its primary index and its secondary indexes, and the gaps in both.

use super::hash_index::{HashIndex, hash_key};
use super::key::{self, KeyBytes};
use super::ordered_index::{GapHooks, Inserted, KeyShape, Keyed, Leaf, OrderedIndex};
use super::record::{Record, word};
use super::schema::{Columns, Layout, PrimaryKind, Schema};
use super::value::{Type, Value};
use crate::error::Abort;
use crossbeam_epoch::Guard;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How many buckets stand for the keys that a hash index does not have. Fixed: a flood of misses
/// costs no memory.
const MISS_BUCKETS: usize = 1 << 14;

/// What a missing key in a hash index leaves behind: a version that every new key of the bucket
/// raises, and a stamp.
pub(crate) struct Bucket<S> {
    version: AtomicU64,
    stamp: S,
}

/// A gap as a transaction saw it: a leaf of an ordered index, or a bucket of missing keys.
pub(crate) enum Gap<'g, S> {
    Leaf(Leaf<'g, S>),
    Bucket(&'g Bucket<S>, u64),
}

impl<'g, S> Gap<'g, S> {
    /// The gap's stamp.
    #[inline]
    pub fn stamp(&self) -> &'g S {
        match self {
            Gap::Leaf(leaf) => leaf.gap(),
            Gap::Bucket(bucket, _) => &bucket.stamp,
        }
    }

    /// Whether no key has come into the gap since it was seen.
    #[inline]
    pub fn is_current(&self) -> bool {
        match self {
            Gap::Leaf(leaf) => leaf.is_current(),
            Gap::Bucket(bucket, version) => bucket.version.load(Ordering::SeqCst) == *version,
        }
    }
}

/// How the gap changed by one's own insertion: who saw it as `before` may go on with `after`.
pub(crate) struct GapChange<'g, S> {
    before: (usize, u64),
    after: [Option<Gap<'g, S>>; 2],
    /// The gap that the new key lies in.
    pub holder: Gap<'g, S>,
}

impl<'g, S> GapChange<'g, S> {
    /// Replaces gaps seen just before the change by what they have become.
    pub fn carry_over(self, seen: &mut bumpalo::collections::Vec<'_, Gap<'g, S>>) {
        let mut found = false;
        for gap in seen.iter_mut() {
            match (gap, &self.after[0]) {
                (Gap::Leaf(leaf), Some(Gap::Leaf(now)))
                    if (leaf.id(), leaf.version()) == self.before =>
                {
                    *leaf = *now;
                    found = true;
                }
                (Gap::Bucket(bucket, version), Some(Gap::Bucket(..)))
                    if (std::ptr::from_ref(*bucket) as usize, *version) == self.before =>
                {
                    *version += 1;
                }
                _ => {}
            }
        }
        if let (true, [_, Some(sibling)]) = (found, self.after) {
            seen.push(sibling);
        }
    }
}

/// An entry of a secondary index: the indexed columns followed by the row's primary key.
pub(crate) struct Entry<S> {
    key: Box<[u8]>,
    record: *const Record<S>,
    /// Transactions in progress that rely on the entry, or [`GONE`].
    pins: AtomicU32,
}

/// The last pointer to something retired, on its way to whichever thread frees it.
struct Retired<T>(*mut T);

// SAFETY: records and entries are shared between threads, and this is the only pointer left.
unsafe impl<T> Send for Retired<T> {}

impl<T> Retired<T> {
    fn into_inner(self) -> *mut T {
        self.0
    }
}

/// The entry is being unlinked.
const GONE: u32 = u32::MAX;

// SAFETY: the record is only reached through `Entry::record`, as a shared reference, and records are
// shared between threads anyway.
unsafe impl<S: Send + Sync> Send for Entry<S> {}
// SAFETY: as above.
unsafe impl<S: Send + Sync> Sync for Entry<S> {}

impl<S> Keyed for Entry<S> {
    fn key(&self) -> &[u8] {
        &self.key
    }
}

impl<S> Keyed for Record<S> {
    #[inline]
    fn key(&self) -> &[u8] {
        Record::key(self)
    }
}

impl<S> Entry<S> {
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

    /// Ends the reliance that [`Table::link`] began.
    pub fn unpin(&self) {
        self.pins.fetch_sub(1, Ordering::AcqRel);
    }
}

pub(crate) struct Secondary<S: Default + Send + Sync + 'static> {
    pub columns: Vec<u16>,
    /// The same as a set.
    pub column_set: u64,
    pub unique: bool,
    pub tree: OrderedIndex<Entry<S>, S>,
}

impl<S: Default + Send + Sync + 'static> Secondary<S> {
    /// The indexed columns.
    pub fn columns(&self) -> Columns {
        Columns(self.column_set)
    }
}

enum Primary<S: Default + Send + Sync + 'static> {
    Hash { index: HashIndex<Record<S>>, misses: Box<[Bucket<S>]> },
    Ordered(OrderedIndex<Record<S>, S>),
}

pub(crate) struct Table<S: Default + Send + Sync + 'static> {
    pub layout: Layout,
    /// The number that stands for the table in the log.
    pub log_id: u32,
    /// Rows have hidden row ids for keys.
    pub keyless: bool,
    /// The length of every primary key, if it is always the same.
    pub key_bytes: Option<usize>,
    pub secondaries: Vec<Secondary<S>>,
    /// Every column that some secondary index covers.
    pub indexed: u64,
    primary: Primary<S>,
}

/// What a primary index says of a key.
pub(crate) enum Lookup<'g, S> {
    Found(&'g Record<S>),
    Missing(Gap<'g, S>),
}

/// What became of a record that was to be placed under a key.
pub(crate) enum Placed<'g, S> {
    New(&'g Record<S>, GapChange<'g, S>),
    Exists(&'g Record<S>),
}

/// An index entry with the gap that it lies in, or with how its coming changed the gap.
pub(crate) type Linked<'g, S> = (&'g Entry<S>, Result<GapChange<'g, S>, Gap<'g, S>>);

/// What a scan of a primary index calls, gap by gap.
pub(crate) type VisitGap<'v, 'g, S> =
    dyn FnMut(Gap<'g, S>, &[&'g Record<S>]) -> ControlFlow<()> + 'v;

/// Where a walk over a table's rows has come to, see [`Table::walk`].
#[derive(Default)]
pub(crate) enum Walk {
    #[default]
    Start,
    /// A place in the hash space that comes next.
    Hash(u64),
    /// The last key visited.
    Key(KeyBytes),
    End,
}

/// A walk over an ordered index rests after so many rows.
const STRETCH: usize = 1024;

/// Splits and merges of leaves, as the logging protocol wants them.
pub(crate) struct Inherit<F>(pub F);

impl<S, F: Fn(&S, &S)> GapHooks<S> for Inherit<F> {
    fn split(&self, from: &S, to: &S) {
        (self.0)(to, from);
    }
    fn merge(&self, into: &S, from: &S) {
        (self.0)(into, from);
    }
}

impl<S: Default + Send + Sync + 'static> Table<S> {
    pub fn new(schema: &Schema, number: u32, log_id: u32) -> Self {
        let layout = Layout::new(schema, number);
        let keyless = schema.key.is_empty();
        let width = |columns: &[u16]| {
            columns
                .iter()
                .map(|&c| {
                    let column = &layout.columns[c as usize];
                    key::width(column.kind, column.nullable)
                })
                .sum::<Option<usize>>()
        };
        let key_bytes = if keyless { Some(8) } else { width(&schema.key) };
        let shape = |bytes: Option<usize>| bytes.map_or(KeyShape::Variable, KeyShape::Fixed);
        let secondaries: Vec<Secondary<S>> = schema
            .indexes
            .iter()
            .map(|index| {
                let bytes = width(&index.columns).zip(key_bytes).map(|(a, b)| a + b);
                Secondary {
                    columns: index.columns.clone(),
                    column_set: index.columns.iter().fold(0, |set, c| set | 1 << c),
                    unique: index.unique,
                    tree: OrderedIndex::new(shape(bytes)),
                }
            })
            .collect();
        let primary = match schema.primary {
            PrimaryKind::Hash => Primary::Hash {
                index: HashIndex::new(1 << 10),
                misses: (0..MISS_BUCKETS)
                    .map(|_| Bucket { version: AtomicU64::new(0), stamp: S::default() })
                    .collect(),
            },
            PrimaryKind::Ordered => Primary::Ordered(OrderedIndex::new(shape(key_bytes))),
        };
        let indexed = secondaries.iter().fold(0, |set, s| set | s.column_set);
        Table { layout, log_id, keyless, key_bytes, secondaries, indexed, primary }
    }

    /// Encodes a primary key, or a row id.
    #[inline]
    pub fn encode_key(&self, values: &[Value<'_>]) -> Result<KeyBytes, Abort> {
        let mut out = KeyBytes::new();
        let wrong = |at| Abort::WrongType { table: self.layout.table, column: at as u16 };
        if self.keyless {
            let [Value::U64(_)] = values else { return Err(wrong(values.len())) };
            key::push(&mut out, Type::U64, false, &values[0]);
            return Ok(out);
        }
        if values.len() != self.layout.key.len() {
            return Err(wrong(values.len()));
        }
        self.push_columns(&self.layout.key, false, values, &mut out)?;
        Ok(out)
    }

    fn push_columns(
        &self,
        columns: &[u16],
        secondary: bool,
        values: &[Value<'_>],
        out: &mut KeyBytes,
    ) -> Result<(), Abort> {
        for (at, (&column, value)) in columns.iter().zip(values).enumerate() {
            let spec = &self.layout.columns[column as usize];
            if !key::push(out, spec.kind, secondary && spec.nullable, value) {
                return Err(Abort::WrongType { table: self.layout.table, column: at as u16 });
            }
        }
        Ok(())
    }

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

    /// Encodes a bound, which is a prefix of the index's columns. `after` asks for the place behind
    /// every key with this prefix; `None` then means that there is none.
    pub fn encode_bound(
        &self,
        index: Option<usize>,
        values: &[Value<'_>],
        after: bool,
    ) -> Result<Option<KeyBytes>, Abort> {
        let mut out = KeyBytes::new();
        match index {
            None if self.keyless => {
                if !matches!(values, [Value::U64(_)]) {
                    return Err(Abort::WrongType { table: self.layout.table, column: 0 });
                }
                key::push(&mut out, Type::U64, false, &values[0]);
            }
            None => self.push_columns(&self.layout.key, false, values, &mut out)?,
            Some(at) => self.push_columns(&self.secondaries[at].columns, true, values, &mut out)?,
        }
        if after && !key::successor_of_prefix(&mut out) {
            return Ok(None);
        }
        Ok(Some(out))
    }

    /// Starts loading what a lookup of this key reads first, and returns the key's hash; `None` where
    /// that is not known beforehand.
    #[inline]
    pub fn prefetch_bucket(&self, key: &[u8], guard: &Guard) -> Option<u64> {
        let Primary::Hash { index, .. } = &self.primary else { return None };
        let hash = hash_key(key);
        index.prefetch(hash, guard);
        Some(hash)
    }

    /// Starts loading the record under the key with this hash, and some bytes of its row.
    #[inline]
    pub fn prefetch_record(
        &self,
        hash: u64,
        key_len: usize,
        window: (usize, usize),
        guard: &Guard,
    ) {
        if let Primary::Hash { index, .. } = &self.primary {
            index.candidates(hash, guard, |record| Record::prefetch(record, key_len, window));
        }
    }

    /// Looks a primary key up.
    #[inline]
    pub fn find<'g>(&'g self, key: &[u8], guard: &'g Guard) -> Lookup<'g, S> {
        match &self.primary {
            Primary::Hash { index, misses } => {
                let hash = hash_key(key);
                if let Some(record) = index.get(key, hash, guard) {
                    return Lookup::Found(record);
                }
                // The version is read before the lookup that must find nothing.
                let bucket = &misses[hash as usize % MISS_BUCKETS];
                let version = bucket.version.load(Ordering::SeqCst);
                match index.get(key, hash, guard) {
                    Some(record) => Lookup::Found(record),
                    None => Lookup::Missing(Gap::Bucket(bucket, version)),
                }
            }
            Primary::Ordered(tree) => match tree.get(key, guard) {
                (Some(record), _) => Lookup::Found(record),
                (None, leaf) => Lookup::Missing(Gap::Leaf(leaf)),
            },
        }
    }

    /// Places a fresh record, with room for `row_bytes`, under the key unless it is taken.
    pub fn place<'g>(
        &'g self,
        key: &[u8],
        row_bytes: usize,
        version: u64,
        lock: u32,
        hooks: &impl GapHooks<S>,
        guard: &'g Guard,
    ) -> Placed<'g, S> {
        let fresh = Record::<S>::new(key, row_bytes, version, lock);
        match &self.primary {
            Primary::Hash { index, misses } => {
                let hash = hash_key(key);
                // SAFETY: the record has this key, and is freed only through `Table::unlink`, which
                // retires it, or with the table.
                if let Err(exists) = unsafe { index.insert(key, hash, fresh, guard) } {
                    // SAFETY: the fresh record was not linked; this is the only pointer to it.
                    unsafe { Record::free(fresh) };
                    return Placed::Exists(exists);
                }
                let bucket = &misses[hash as usize % MISS_BUCKETS];
                let before = bucket.version.fetch_add(1, Ordering::SeqCst);
                let change = GapChange {
                    before: (std::ptr::from_ref(bucket) as usize, before),
                    after: [Some(Gap::Bucket(bucket, before + 1)), None],
                    holder: Gap::Bucket(bucket, before + 1),
                };
                // SAFETY: it is linked now, and the guard keeps it even if it is unlinked.
                Placed::New(unsafe { &*fresh }, change)
            }
            // SAFETY: as for the hash index.
            Primary::Ordered(tree) => match unsafe { tree.insert(key, fresh, hooks, guard) } {
                Inserted::Exists(exists, _) => {
                    // SAFETY: the fresh record was not linked; this is the only pointer to it.
                    unsafe { Record::free(fresh) };
                    Placed::Exists(exists)
                }
                Inserted::New(insertion) => {
                    // SAFETY: it is linked now, and the guard keeps it even if it is unlinked.
                    Placed::New(unsafe { &*fresh }, leaf_change(insertion))
                }
            },
        }
    }

    /// Takes a record out of the primary index and retires it. The caller holds its lock, it is
    /// absent, marked dead, and no entry points to it. `leave(gap)` raises the gap it leaves.
    pub fn unlink(
        &self,
        record: &Record<S>,
        hooks: &impl GapHooks<S>,
        leave: impl FnOnce(&S),
        guard: &Guard,
    ) {
        debug_assert_eq!(record.entries.load(Ordering::Acquire), 0);
        let key = record.key();
        let unlinked = match &self.primary {
            Primary::Hash { index, misses } => {
                let hash = hash_key(key);
                let bucket = &misses[hash as usize % MISS_BUCKETS];
                leave(&bucket.stamp);
                bucket.version.fetch_add(1, Ordering::SeqCst);
                index.take(key, hash, record, guard)
            }
            Primary::Ordered(tree) => tree.take(key, record, hooks, leave, guard),
        };
        let unlinked = unlinked.expect("only the holder of its lock unlinks a record");
        let unlinked = Retired(unlinked.cast_mut());
        // SAFETY: the record has left its index and no entry points to it: nobody who pins from now on
        // can find it, and it is freed when all others are gone.
        unsafe { guard.defer_unchecked(move || Record::free(unlinked.into_inner())) };
    }

    /// Links a row into a secondary index under `key`, or finds that it is there already; pins the
    /// entry either way. Returns it with the gap that it lies in, and how that changed if it is new.
    ///
    /// # Errors
    /// A conflict if the record is on its way out.
    pub fn link<'g>(
        &'g self,
        index: usize,
        key: &[u8],
        record: &'g Record<S>,
        hooks: &impl GapHooks<S>,
        guard: &'g Guard,
    ) -> Result<Linked<'g, S>, Abort> {
        // Counted first, then looked: whoever takes a record out marks it dead first, then counts.
        record.entries.fetch_add(1, Ordering::SeqCst);
        if record.word.load(Ordering::SeqCst) & word::DEAD != 0 {
            record.entries.fetch_sub(1, Ordering::AcqRel);
            return Err(Abort::Conflict);
        }
        let tree = &self.secondaries[index].tree;
        let fresh =
            Box::into_raw(Box::new(Entry { key: key.into(), record, pins: AtomicU32::new(1) }));
        loop {
            // SAFETY: the entry has this key, and is freed only through `unlink_entry`, which retires
            // it, or with the table.
            match unsafe { tree.insert(key, fresh, hooks, guard) } {
                Inserted::New(insertion) => {
                    // SAFETY: it is linked now, and the guard keeps it even if it is unlinked.
                    return Ok((unsafe { &*fresh }, Ok(leaf_change(insertion))));
                }
                Inserted::Exists(entry, leaf) if entry.pin() => {
                    record.entries.fetch_sub(1, Ordering::AcqRel);
                    // SAFETY: the fresh entry was not linked; this is the only pointer to it.
                    drop(unsafe { Box::from_raw(fresh) });
                    return Ok((entry, Err(Gap::Leaf(leaf))));
                }
                // Its unlinking is under way.
                Inserted::Exists(..) => std::thread::yield_now(),
            }
        }
    }

    /// Takes an entry that no longer describes its row out of its index and retires it, unless a
    /// transaction relies on it. The caller holds the row's lock.
    pub fn unlink_entry(
        &self,
        index: usize,
        entry: &Entry<S>,
        hooks: &impl GapHooks<S>,
        leave: impl FnOnce(&S),
        guard: &Guard,
    ) -> bool {
        if entry.pins.compare_exchange(0, GONE, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return false;
        }
        let unlinked = self.secondaries[index].tree.take(&entry.key, entry, hooks, leave, guard);
        let unlinked = unlinked.expect("only the one who marked an entry gone unlinks it");
        let unlinked = Retired(unlinked.cast_mut());
        entry.record().entries.fetch_sub(1, Ordering::AcqRel);
        // SAFETY: the entry has left its index; it is freed when everyone who is pinned has gone.
        unsafe { guard.defer_unchecked(move || drop(Box::from_raw(unlinked.into_inner()))) };
        true
    }

    /// Visits the records of a range of the primary index, gap by gap.
    ///
    /// # Errors
    /// The table's primary index is a hash table.
    pub fn scan<'g>(
        &'g self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        descending: bool,
        guard: &'g Guard,
        visit: &mut VisitGap<'_, 'g, S>,
    ) -> Result<(), Abort> {
        let Primary::Ordered(tree) = &self.primary else { return Err(Abort::UnknownHandle) };
        tree.scan(lower, upper, descending, guard, &mut |leaf, entries| {
            visit(Gap::Leaf(leaf), entries)
        });
        Ok(())
    }

    /// Visits the next stretch of a walk over all records, absent ones included. A record that is there
    /// from the walk's beginning to its end is visited. Between stretches the caller need not be pinned.
    pub fn walk<'g>(
        &'g self,
        at: &mut Walk,
        guard: &'g Guard,
        mut visit: impl FnMut(&'g Record<S>),
    ) {
        match &self.primary {
            Primary::Hash { index, .. } => {
                let from = if let Walk::Hash(from) = at { *from } else { 0 };
                *at = index.for_each_from(from, guard, visit).map_or(Walk::End, Walk::Hash);
            }
            Primary::Ordered(tree) => {
                let last = std::mem::replace(at, Walk::End);
                let lower = match &last {
                    Walk::Key(key) => Bound::Excluded(&key[..]),
                    _ => Bound::Unbounded,
                };
                let mut visited = 0;
                tree.scan(lower, Bound::Unbounded, false, guard, &mut |_, entries| {
                    entries.iter().for_each(|record| visit(record));
                    visited += entries.len();
                    match entries.last() {
                        Some(record) if visited >= STRETCH => {
                            *at = Walk::Key(KeyBytes::from_slice(record.key()));
                            ControlFlow::Break(())
                        }
                        _ => ControlFlow::Continue(()),
                    }
                });
            }
        }
    }

    /// Visits every record, absent ones included, in no order.
    pub fn for_each<'g>(&'g self, guard: &'g Guard, mut visit: impl FnMut(&'g Record<S>)) {
        match &self.primary {
            Primary::Hash { index, .. } => index.for_each(guard, visit),
            Primary::Ordered(tree) => tree.for_each(guard, &mut visit),
        }
    }
}

fn leaf_change<S>(insertion: super::ordered_index::Insertion<'_, S>) -> GapChange<'_, S> {
    let holder = Gap::Leaf(insertion.holder());
    GapChange {
        before: (insertion.leaf.id(), insertion.version_before),
        after: [Some(Gap::Leaf(insertion.leaf)), insertion.sibling.map(Gap::Leaf)],
        holder,
    }
}

impl<S: Default + Send + Sync + 'static> Drop for Table<S> {
    fn drop(&mut self) {
        let guard = crossbeam_epoch::pin();
        let mut entries = Vec::new();
        for secondary in &self.secondaries {
            secondary.tree.for_each(&guard, |entry| entries.push(std::ptr::from_ref(entry)));
        }
        let mut records = Vec::new();
        self.for_each(&guard, |record| records.push(std::ptr::from_ref(record)));
        // SAFETY: the table is being dropped, so nobody can find its records and entries any more;
        // every session is gone (it keeps the tables alive), and each is visited once.
        unsafe {
            entries.into_iter().for_each(|e| drop(Box::from_raw(e.cast_mut())));
            records.into_iter().for_each(|r| Record::free(r.cast_mut()));
        }
    }
}
