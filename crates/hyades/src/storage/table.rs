//! A table: row layout, primary index, secondary indexes, and the gaps in both.

mod keeping;
mod walking;

pub(crate) use walking::WalkPosition;

use super::gap::{Gap, GapChange, MissBuckets, leaf_change};
use super::hash_index::{HashIndex, HashSecret};
use super::kept::{KeptRecord, KeptTree};
use super::key::{self, KeyBytes};
use super::layout::Layout;
use super::origin::{DeclaringBuilder, Origin};
use super::partition::TablePartitions;
use super::record::{Record, word};
use super::schema::{MAX_KEY_BYTES, PrimaryKind, Schema};
use super::secondary::{IndexEntry, Secondary};
use super::short_rows::ShortRows;
use super::sums::{SumBudget, TableSums};
use super::tid::Tid;
use super::usage::UsageCell;
use super::value::{Type, Value};
use crate::error::Abort;
use crate::storage::Stamp;
use hyades_index::{
    Descent, DescentProgress, Finger, GapHooks, Inserted, KeyShape, Keyed, OrderedIndex,
};
use hyades_platform::reclaim::{Guard, retire};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The last pointer to a retired object, sent to the thread that frees it.
pub(super) struct Retired<T>(pub(super) *mut T);

// SAFETY: `Retired` is used only for records and entries of a table, whose `S` is `Send + Sync`, so
// any thread may drop them; at the time of freeing, no other pointer to the object is left.
unsafe impl<T> Send for Retired<T> {}

impl<T> Retired<T> {
    pub(super) fn into_inner(self) -> *mut T {
        self.0
    }
}

impl<S> Keyed for Record<S> {
    #[inline]
    fn key(&self) -> &[u8] {
        Record::key(self)
    }
}

enum Primary<S: Stamp> {
    Hash { index: HashIndex<Record<S>>, misses: MissBuckets<S> },
    Ordered(OrderedIndex<Record<S>, S>),
}

pub struct TableData<S: Stamp> {
    /// The layout of whole rows.
    pub layout: Layout,
    /// The shortening of rows in records, if any. See [`super::row_access`].
    pub(super) short: Option<ShortRows>,
    /// The builder that declared the table.
    declared_by: DeclaringBuilder,
    /// The table's number in the log.
    pub log_id: u32,
    /// There is no primary key: rows have hidden row ids as keys.
    pub keyless: bool,
    /// The length of every encoded primary key, if it is constant.
    pub key_bytes: Option<usize>,
    pub secondaries: Vec<Secondary<S>>,
    /// The set of columns that some secondary index covers.
    pub indexed: u64,
    /// How the rows are spread over partitions.
    pub partitions: TablePartitions,
    /// The rows that replay has left. Added to by the threads of the replay when they end.
    pub replayed: UsageCell,
    /// The sum index, see [`Schema::sum`].
    pub sums: Option<TableSums<S>>,
    /// See [`Schema::growing_rows`].
    growing_rows: bool,
    primary: Primary<S>,
    /// Rows that have left an ordered primary index, and that snapshots hold.
    kept: KeptTree<KeptRecord<S>>,
}

/// The result of a primary key lookup.
pub(crate) enum Lookup<'g, S> {
    Found(&'g Record<S>),
    Missing(Gap<'g, S>),
}

/// The result of [`TableData::place`].
pub(crate) enum Placed<'g, S> {
    New(&'g Record<S>, GapChange<'g, S>),
    Exists(&'g Record<S>),
}

/// The callback of a scan of a primary index, called for each gap with the records in it.
pub(crate) type VisitGap<'v, 'g, S> =
    dyn FnMut(Gap<'g, S>, &[&'g Record<S>]) -> ControlFlow<()> + 'v;

/// The longest row beside its key in a table of growing rows, in bytes.
const MOST_INLINE_GROWING: usize = 256;

impl<S: Stamp> TableData<S> {
    /// An empty table. `secret` is the secret of the key hashes.
    pub fn new(schema: &Schema, number: u32, log_id: u32, secret: HashSecret) -> Self {
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
                    name: index.name.clone(),
                    columns: index.columns.clone(),
                    column_set: index.columns.iter().fold(0, |set, c| set | 1 << c),
                    unique: index.unique,
                    tree: OrderedIndex::new(shape(bytes)),
                    kept: KeptTree::new(bytes),
                }
            })
            .collect();
        let primary = match schema.primary {
            PrimaryKind::Hash => {
                let index = HashIndex::new(1 << 10, secret);
                Primary::Hash { index, misses: MissBuckets::default() }
            }
            PrimaryKind::Ordered => Primary::Ordered(OrderedIndex::new(shape(key_bytes))),
        };
        let indexed = secondaries.iter().fold(0, |set, s| set | s.column_set);
        let short = ShortRows::new(schema, number);
        let in_record = short.as_ref().map_or(&layout, |short| &short.layout);
        let sums = TableSums::new(schema, in_record, secret);
        TableData {
            layout,
            short,
            sums,
            declared_by: DeclaringBuilder::new(Origin::BY_HAND),
            log_id,
            keyless,
            key_bytes,
            secondaries,
            indexed,
            partitions: TablePartitions::new(schema, number),
            replayed: UsageCell::default(),
            growing_rows: schema.growing_rows,
            primary,
            kept: KeptTree::new(key_bytes),
        }
    }

    /// Lets the tables of a database share the memory of sums.
    pub fn with_sum_budget(mut self, budget: &Arc<SumBudget>) -> Self {
        if let Some(sums) = &mut self.sums {
            sums.share_budget(budget.clone());
        }
        self
    }

    /// Sets which builder declared the table: handles of other builders do not fit.
    pub fn declared_by(self, origin: Origin) -> Self {
        self.declared_by.set(origin);
        self
    }

    /// The origin of the handles that fit.
    #[inline(always)]
    pub fn origin(&self) -> Origin {
        self.declared_by.origin()
    }

    /// Makes the table one of another builder, whose handles fit from now on.
    #[cfg(feature = "replication")]
    pub fn declare_anew(&self, origin: Origin) {
        self.declared_by.set(origin);
    }

    /// Encodes a primary key, or a row id, into `out`, initially empty. A key that is too large is
    /// an error, but `out` contains the key all the same.
    #[inline]
    pub fn encode_key(&self, values: &[Value<'_>], out: &mut KeyBytes) -> Result<(), Abort> {
        let wrong = |at| Abort::WrongType { table: self.layout.table, column: at as u16 };
        if self.keyless {
            let [Value::U64(_)] = values else { return Err(wrong(values.len())) };
            key::push(out, Type::U64, false, &values[0]);
            return Ok(());
        }
        if values.len() != self.layout.key.len() {
            return Err(wrong(values.len()));
        }
        if let Some(packed) = self.layout.pack_key(|n, _| &values[n]) {
            out.set_packed(packed);
            return Ok(());
        }
        self.push_columns(&self.layout.key, false, values, out)?;
        self.check_key(out)
    }

    /// Whether the bytes have the length of an encoded primary key.
    #[inline]
    fn may_have(&self, key: &[u8]) -> bool {
        self.key_bytes.is_none_or(|bytes| key.len() == bytes)
    }

    /// Rejects a primary key above the size limit. Older logs may have such keys; packed keys are
    /// never too large.
    pub fn check_key(&self, key: &KeyBytes) -> Result<(), Abort> {
        if key.len() > MAX_KEY_BYTES {
            return Err(Abort::KeyTooLarge { table: self.layout.table, index: None });
        }
        Ok(())
    }

    fn push_columns(
        &self,
        columns: &[u16],
        secondary: bool,
        values: &[Value<'_>],
        out: &mut KeyBytes,
    ) -> Result<(), Abort> {
        if values.len() > columns.len() {
            return Err(Abort::WrongType {
                table: self.layout.table,
                column: columns.len() as u16,
            });
        }
        for (at, (&column, value)) in columns.iter().zip(values).enumerate() {
            let spec = &self.layout.columns[column as usize];
            if !key::push(out, spec.kind, secondary && spec.nullable, value) {
                return Err(Abort::WrongType { table: self.layout.table, column: at as u16 });
            }
        }
        Ok(())
    }

    /// Encodes a bound: a prefix of the index's columns. With `after`, returns the position above
    /// every key with this prefix, or `None` if there is no such position.
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
            Some(at) => {
                let index = self.secondaries.get(at).ok_or(Abort::UnknownHandle)?;
                self.push_columns(&index.columns, true, values, &mut out)?;
            }
        }
        if after && !key::successor_of_prefix(&mut out) {
            return Ok(None);
        }
        Ok(Some(out))
    }

    /// Prefetches the bucket that a lookup of this key reads first, and returns the key's hash;
    /// `None` if the primary index is not a hash index.
    #[inline]
    pub fn prefetch_bucket(&self, key: &[u8], guard: &Guard) -> Option<u64> {
        let Primary::Hash { index, .. } = &self.primary else { return None };
        let hash = index.hash(key);
        index.prefetch(hash, guard);
        Some(hash)
    }

    /// The probable address of the record whose key has this hash; null if there is no record.
    #[inline]
    pub fn candidate(&self, hash: u64, guard: &Guard) -> *const Record<S> {
        match &self.primary {
            Primary::Hash { index, .. } => index.candidate(hash, guard),
            Primary::Ordered(_) => std::ptr::null(),
        }
    }

    /// Begins a descent to the place of `key` in an ordered index, or with `below` to the place
    /// just below `key`. `None` if the index is not ordered, or its root is locked.
    pub fn begin_descent<'g>(
        &'g self,
        index: Option<usize>,
        key: &[u8],
        below: bool,
        guard: &'g Guard,
    ) -> Option<Descent<'g>> {
        match (index, &self.primary) {
            (Some(at), _) => self.secondaries.get(at)?.tree.begin_descent(key, below, guard),
            (None, Primary::Ordered(tree)) => tree.begin_descent(key, below, guard),
            (None, Primary::Hash { .. }) => None,
        }
    }

    /// Advances a descent, begun in this index, by one level.
    pub fn step<'g>(
        &'g self,
        index: Option<usize>,
        descent: &mut Descent<'g>,
    ) -> DescentProgress<'g> {
        match (index, &self.primary) {
            (Some(at), _) => self.secondaries[at].tree.step(descent),
            (None, Primary::Ordered(tree)) => tree.step(descent),
            (None, Primary::Hash { .. }) => DescentProgress::Lost,
        }
    }

    /// The primary index as [`Finger::tree`] identifies it; null if not ordered.
    #[inline]
    pub fn primary_id(&self) -> *const () {
        match &self.primary {
            Primary::Ordered(tree) => tree.id(),
            Primary::Hash { .. } => std::ptr::null(),
        }
    }

    /// Looks up a primary key.
    #[inline]
    pub fn find<'g>(&'g self, key: &[u8], guard: &'g Guard) -> Lookup<'g, S> {
        debug_assert!(
            self.may_have(key),
            "a key is looked up in the table that it was encoded for"
        );
        match &self.primary {
            Primary::Hash { index, misses } => {
                let hash = index.hash(key);
                if let Some(record) = index.get(key, hash, guard) {
                    return Lookup::Found(record);
                }
                // The version is read before the lookup whose miss it validates.
                let bucket = misses.bucket(hash);
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

    /// Links a new record with room for `row_bytes` under the key, unless the key exists. The
    /// search begins at the finger.
    pub fn place<'g>(
        &'g self,
        key: &[u8],
        row_bytes: usize,
        version: u64,
        lock: u32,
        hooks: &dyn GapHooks<S>,
        finger: &mut Finger<'g>,
    ) -> Placed<'g, S> {
        debug_assert!(self.may_have(key), "a row is placed under a key of its table");
        debug_assert_eq!(
            word::tid(version),
            Tid::NONE,
            "a row has no version before its first write"
        );
        let is_apart = self.growing_rows && row_bytes > MOST_INLINE_GROWING;
        let inline_bytes = if is_apart { 0 } else { row_bytes };
        let fresh = Record::<S>::new(key, inline_bytes, version, lock);
        match &self.primary {
            Primary::Hash { index, misses } => {
                let hash = index.hash(key);
                // SAFETY: the record has this key, and is freed only with the table or by
                // `TableData::unlink`, after unlinking, through the epoch.
                if let Err(exists) = unsafe { index.insert(key, hash, fresh, finger.guard()) } {
                    // SAFETY: the fresh record was not linked; `fresh` is the only pointer to it.
                    unsafe { Record::free(fresh) };
                    return Placed::Exists(exists);
                }
                let bucket = misses.bucket(hash);
                let before = bucket.version.fetch_add(1, Ordering::SeqCst);
                let change = GapChange {
                    before: (std::ptr::from_ref(bucket) as usize, before),
                    after: [Some(Gap::Bucket(bucket, before + 1)), None],
                    holder: Gap::Bucket(bucket, before + 1),
                };
                // SAFETY: the record is linked; the finger's pinned guard keeps the record, even if
                // unlinked.
                Placed::New(unsafe { &*fresh }, change)
            }
            Primary::Ordered(tree) => {
                // SAFETY: the record is as for the hash index. A `Finger<'g>` points only into
                // indexes borrowed for `'g`, and the indexes outlive the finger.
                match unsafe { tree.insert_near(key, fresh, hooks, finger) } {
                    Inserted::Exists(exists, _) => {
                        // SAFETY: the fresh record was not linked; `fresh` is the only pointer to
                        // it.
                        unsafe { Record::free(fresh) };
                        Placed::Exists(exists)
                    }
                    Inserted::New(insertion) => {
                        // SAFETY: the record is linked; the finger's pinned guard keeps the record,
                        // even if unlinked.
                        Placed::New(unsafe { &*fresh }, leaf_change(insertion))
                    }
                }
            }
        }
    }

    /// Unlinks a record from the primary index and retires it. The caller has locked the record,
    /// found it absent and without entries, and marked it dead, so no thread can lock it again.
    /// `leave(gap)` raises the stamp of the gap that the record leaves.
    pub fn unlink(
        &self,
        record: &Record<S>,
        hooks: &dyn GapHooks<S>,
        leave: &dyn Fn(&S),
        guard: &Guard,
    ) {
        let unlinked = self.take_out(record, hooks, leave, guard);
        let (unlinked, bytes) = (Retired(unlinked.cast_mut()), record.allocated_bytes());
        // SAFETY: the record was unlinked just now by the only thread that marked it dead, so it is
        // retired once. No entry points to the record, so no guard pinned from now on can find the
        // record; the record is freed after all earlier guards.
        unsafe { retire(guard, bytes, move || Record::free(unlinked.into_inner())) };
    }

    /// Unlinks a record as [`TableData::unlink`] does, without retiring the record.
    fn take_out(
        &self,
        record: &Record<S>,
        hooks: &dyn GapHooks<S>,
        leave: &dyn Fn(&S),
        guard: &Guard,
    ) -> *const Record<S> {
        // `record.entries` may be above 0 for a moment: a transaction that links an entry counts
        // the entry, sees the dead record, and takes the count back.
        let version = record.word.load(Ordering::Acquire);
        debug_assert_ne!(version & word::DEAD, 0, "a record is marked dead before it is unlinked");
        debug_assert_ne!(version & word::ABSENT, 0, "a row that exists is not unlinked");
        let key = record.key();
        let unlinked = match &self.primary {
            Primary::Hash { index, misses } => {
                let hash = index.hash(key);
                let bucket = misses.bucket(hash);
                leave(&bucket.stamp);
                bucket.version.fetch_add(1, Ordering::SeqCst);
                index.take(key, hash, record, guard)
            }
            Primary::Ordered(tree) => tree.take(key, record, hooks, leave, guard),
        };
        unlinked.expect("only the thread that marked a record dead unlinks it")
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

    /// Visits every record, absent ones included, in no order.
    pub fn for_each<'g>(&'g self, guard: &'g Guard, mut visit: impl FnMut(&'g Record<S>)) {
        match &self.primary {
            Primary::Hash { index, .. } => index.for_each(guard, visit),
            Primary::Ordered(tree) => tree.for_each(guard, &mut visit),
        }
    }
}

impl<S: Stamp> Drop for TableData<S> {
    fn drop(&mut self) {
        let guard = hyades_platform::reclaim::pin();
        let mut entries = Vec::new();
        for secondary in &self.secondaries {
            secondary.tree.for_each(&guard, |entry| entries.push(std::ptr::from_ref(entry)));
        }
        let mut records = Vec::new();
        self.for_each(&guard, |record| records.push(std::ptr::from_ref(record)));
        self.kept.for_each(&guard, |kept| records.push(kept.content.pointer()));
        // SAFETY: the table is being dropped, and sessions keep tables alive, so no thread can find
        // its records and entries; each of these is visited once: a kept record has left its index.
        // The pointers are made from references: tree borrows permits freeing them, stacked borrows
        // forbids it (docs/reliability.md).
        unsafe {
            entries.into_iter().for_each(|e| IndexEntry::free(e.cast_mut()));
            records.into_iter().for_each(|r| Record::free(r.cast_mut()));
        }
    }
}
