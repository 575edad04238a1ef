//! A table: its rows' layout, its primary index and its secondary indexes, and the gaps in both.

use super::gap::{Gap, GapChange, Misses, leaf_change};
use super::hash_index::{HashIndex, HashPosition, hash_key};
use super::key::{self, KeyBytes};
use super::layout::Layout;
use super::ordered_index::{
    Descent, DescentProgress, Finger, GapHooks, Inserted, KeyShape, Keyed, OrderedIndex,
};
use super::record::{Record, word};
use super::schema::{MAX_KEY_BYTES, PrimaryKind, Schema};
use super::secondary::{IndexEntry, Secondary};
use super::value::{Type, Value};
use crate::error::Abort;
use crossbeam_epoch::Guard;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::Ordering;

/// The last pointer to something retired, on its way to whichever thread frees it.
pub(super) struct Retired<T>(pub(super) *mut T);

// SAFETY: records and entries are shared between threads, and this is the only pointer left.
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

enum Primary<S: Default + Send + Sync + 'static> {
    Hash { index: HashIndex<Record<S>>, misses: Misses<S> },
    Ordered(OrderedIndex<Record<S>, S>),
}

pub(crate) struct TableData<S: Default + Send + Sync + 'static> {
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

/// What a scan of a primary index calls, gap by gap.
pub(crate) type VisitGap<'v, 'g, S> =
    dyn FnMut(Gap<'g, S>, &[&'g Record<S>]) -> ControlFlow<()> + 'v;

/// Where a walk over a table's rows has come to, see [`TableData::walk`].
#[derive(Default)]
pub(crate) enum Walk {
    #[default]
    Start,
    /// Where a hash index goes on.
    Hash(HashPosition),
    /// The last key visited.
    Key(KeyBytes),
    End,
}

/// A walk rests after so many records.
const STRETCH: usize = 1024;

impl<S: Default + Send + Sync + 'static> TableData<S> {
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
            PrimaryKind::Hash => {
                Primary::Hash { index: HashIndex::new(1 << 10), misses: Misses::default() }
            }
            PrimaryKind::Ordered => Primary::Ordered(OrderedIndex::new(shape(key_bytes))),
        };
        let indexed = secondaries.iter().fold(0, |set, s| set | s.column_set);
        TableData { layout, log_id, keyless, key_bytes, secondaries, indexed, primary }
    }

    /// Encodes a primary key, or a row id, into `out`, which is empty. If the key is too large, it is there
    /// nevertheless.
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

    /// Refuses a primary key that is too large to be made; an older log may hold such. Packed keys never are.
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

    /// Starts loading what a lookup of this key reads first, and returns the key's hash; `None` where
    /// that is not known beforehand.
    #[inline]
    pub fn prefetch_bucket(&self, key: &[u8], guard: &Guard) -> Option<u64> {
        let Primary::Hash { index, .. } = &self.primary else { return None };
        let hash = hash_key(key);
        index.prefetch(hash, guard);
        Some(hash)
    }

    /// Where the record is, most likely, whose key has this hash; null if there is none.
    #[inline]
    pub fn candidate(&self, hash: u64, guard: &Guard) -> *const Record<S> {
        match &self.primary {
            Primary::Hash { index, .. } => index.candidate(hash, guard),
            Primary::Ordered(_) => std::ptr::null(),
        }
    }

    /// Begins a descent to where `key` is or would be in an ordered index, or to what lies just below; see
    /// [`TableData::encode_bound`]. `None` where there is nothing to descend.
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

    /// Takes one step of a descent, which was begun in this index.
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

    /// What [`Finger::tree`] calls the primary index; null if it is not ordered.
    #[inline]
    pub fn primary_id(&self) -> *const () {
        match &self.primary {
            Primary::Ordered(tree) => tree.id(),
            Primary::Hash { .. } => std::ptr::null(),
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

    /// Places a fresh record, with room for `row_bytes`, under the key unless it is taken. The finger is where
    /// to begin.
    pub fn place<'g>(
        &'g self,
        key: &[u8],
        row_bytes: usize,
        version: u64,
        lock: u32,
        hooks: &impl GapHooks<S>,
        finger: &mut Finger<'g>,
    ) -> Placed<'g, S> {
        let fresh = Record::<S>::new(key, row_bytes, version, lock);
        match &self.primary {
            Primary::Hash { index, misses } => {
                let hash = hash_key(key);
                // SAFETY: the record has this key, and is freed only through `TableData::unlink`, which
                // retires it, or with the table.
                if let Err(exists) = unsafe { index.insert(key, hash, fresh, finger.guard()) } {
                    // SAFETY: the fresh record was not linked; this is the only pointer to it.
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
                // SAFETY: it is linked now, and the guard keeps it even if it is unlinked.
                Placed::New(unsafe { &*fresh }, change)
            }
            Primary::Ordered(tree) => {
                // SAFETY: as for the hash index.
                match unsafe { tree.insert_near(key, fresh, hooks, finger) } {
                    Inserted::Exists(exists, _) => {
                        // SAFETY: the fresh record was not linked; this is the only pointer to it.
                        unsafe { Record::free(fresh) };
                        Placed::Exists(exists)
                    }
                    Inserted::New(insertion) => {
                        // SAFETY: it is linked now, and the guard keeps it even if it is unlinked.
                        Placed::New(unsafe { &*fresh }, leaf_change(insertion))
                    }
                }
            }
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
        // Its count of entries may be above 0 for a moment: a transaction that links one counts it, sees
        // that the record is dead, and takes it back.
        debug_assert_ne!(record.word.load(Ordering::Acquire) & word::DEAD, 0);
        let key = record.key();
        let unlinked = match &self.primary {
            Primary::Hash { index, misses } => {
                let hash = hash_key(key);
                let bucket = misses.bucket(hash);
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

    /// Visits the next records of a walk over all of them, absent ones included, until `visit` breaks off (a hash
    /// index then goes on to the end of the bucket) or there were many. A record that is there from the walk's
    /// beginning to its end is visited. Between two calls the caller need not be pinned.
    pub fn walk<'g>(
        &'g self,
        at: &mut Walk,
        guard: &'g Guard,
        mut visit: impl FnMut(&'g Record<S>) -> ControlFlow<()>,
    ) {
        let mut visited = 0;
        let mut visit = |record| {
            visited += 1;
            let flow = visit(record);
            if visited >= STRETCH { ControlFlow::Break(()) } else { flow }
        };
        match &self.primary {
            Primary::Hash { index, .. } => {
                let from = if let Walk::Hash(from) = at { *from } else { HashPosition::default() };
                *at = index.for_each_from(from, guard, visit).map_or(Walk::End, Walk::Hash);
            }
            Primary::Ordered(tree) => {
                let last = std::mem::replace(at, Walk::End);
                let lower = match &last {
                    Walk::Key(key) => Bound::Excluded(&key[..]),
                    _ => Bound::Unbounded,
                };
                tree.scan(lower, Bound::Unbounded, false, guard, &mut |_, entries| {
                    let mut entries = entries.iter();
                    match entries.find(|record| visit(record).is_break()) {
                        Some(record) => {
                            *at = Walk::Key(KeyBytes::from_slice(record.key()));
                            ControlFlow::Break(())
                        }
                        None => ControlFlow::Continue(()),
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

impl<S: Default + Send + Sync + 'static> Drop for TableData<S> {
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
            entries.into_iter().for_each(|e| IndexEntry::free(e.cast_mut()));
            records.into_iter().for_each(|r| Record::free(r.cast_mut()));
        }
    }
}
