//! A data component in a RocksDB database: durable, larger than memory, and written blindly.
//!
//! A write reads nothing: an operation is an operand of a merge operator, for which the highest
//! timestamp wins, and RocksDB merges when the key is read or compacted. So operations arrive in
//! any order, any number of times, and on several threads. RocksDB's own log is off: a checkpoint
//! writes the resume point and flushes. All keys are in one column family, whose memory tables
//! reach the disk in the order of writing, so what a crash leaves is a prefix of the batches, with
//! all batches up to the last checkpoint.
//!
//! Keys: after the byte `d` a key, with its timestamp and value as in redb; after `x` the
//! timestamp, big-endian, and the key of each deletion not below the floor yet, overwritten or not;
//! `r`, the resume point; `t`, the highest applied timestamp, 8 bytes little-endian, merged by the
//! same operator. A deleted key below the floor is removed by a write, while nothing is applied: an
//! older operation that arrived later lies in a newer table, and a compaction that dropped the
//! deletion alone would bring the older operation back.

use super::item::{put_item, read_item};
use crate::data_component::{
    DataComponent, DataSnapshot, Found, KeyRange, Limits, Operation, ResumePoint, ScanOrder,
    cut_bounds,
};
use crate::error::Error;
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBAccess, DBRawIteratorWithThreadMode, MergeOperands, Options,
    ReadOptions, Snapshot, WriteBatch, WriteBufferManager, WriteOptions,
};
use self_cell::self_cell;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

const DATA: u8 = b'd';
const DELETED: u8 = b'x';
const RESUME: [u8; 1] = [b'r'];
const HIGHEST: [u8; 1] = [b't'];

/// Bits of a Bloom filter for each key, as RocksDB's documentation recommends.
const FILTER_BITS: f64 = 10.0;
/// The smallest and the largest memory table, in bytes.
const TABLE_BYTES: (usize, usize) = (1 << 20, 64 << 20);
/// The most deleted keys removed at once: nothing is applied meanwhile.
const REMOVED_AT_ONCE: usize = 256;
/// The number of operands of a key in a memory table that are merged at the next write.
const MOST_OPERANDS: usize = 16;
const LIMITS: Limits = Limits { key_bytes: 1 << 20, value_bytes: 1 << 30, is_durable: true };

/// Keys and values in a RocksDB database.
pub struct RocksDbData {
    database: Arc<DB>,
    /// Shared by threads that apply operations; exclusive to a thread that removes deleted keys.
    writing: RwLock<()>,
    /// Deletions below are forgotten: what compactions have left of their entries is passed over.
    /// Relaxed: a late look passes over fewer entries.
    forgotten: AtomicU64,
}

self_cell! {
    /// A snapshot, with the database that keeps the snapshot.
    struct RocksDbSnapshot {
        owner: Arc<DB>,
        #[covariant]
        dependent: Snapshot,
    }
}

fn failed(error: rocksdb::Error) -> Error {
    Error::DataComponent(error.into_string())
}

fn damaged(what: &str) -> Error {
    Error::DataComponent(format!("{what} in the RocksDB database was not written by this program"))
}

fn data_key(key: &[u8]) -> Vec<u8> {
    [&[DATA], key].concat()
}

fn deleted_key(ts: u64, key: &[u8]) -> Vec<u8> {
    [&[DELETED], &ts.to_be_bytes()[..], key].concat()
}

/// The timestamp of an item or of a noted timestamp.
fn timestamp(item: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*item.first_chunk::<8>()?))
}

/// Returns the operand with the highest timestamp, the first of equals; None, a failure, if an
/// operand is damaged.
fn newest(_: &[u8], existing: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let mut newest: Option<(u64, &[u8])> = None;
    for item in existing.into_iter().chain(operands) {
        let ts = timestamp(item)?;
        if newest.is_none_or(|(before, _)| before < ts) {
            newest = Some((ts, item));
        }
    }
    newest.map(|(_, item)| item.to_vec())
}

/// Without a sync, and without RocksDB's log.
fn unlogged() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.disable_wal(true);
    options
}

/// The bounds of a scan in RocksDB: the first key in, and the first key out.
fn bounds(range: KeyRange<'_>) -> (Vec<u8>, Vec<u8>) {
    // Just behind a key is the key with a byte 0 more.
    let behind = |key: &[u8]| [&[DATA], key, &[0]].concat();
    let (from, to) = cut_bounds(range, LIMITS.key_bytes);
    let from = match from {
        Bound::Unbounded => vec![DATA],
        Bound::Included(key) => data_key(key),
        Bound::Excluded(key) => behind(key),
    };
    let to = match to {
        Bound::Unbounded => vec![DATA + 1],
        Bound::Included(key) => behind(key),
        Bound::Excluded(key) => data_key(key),
    };
    (from, to)
}

/// Returns the operation in an item.
fn found(item: Option<impl AsRef<[u8]>>) -> Result<Found, Error> {
    let Some(item) = item else { return Ok(Found::default()) };
    let (ts, value) = read_item(item.as_ref()).ok_or_else(|| damaged("an item"))?;
    Ok(Found { ts, value: value.map(<[u8]>::to_vec) })
}

/// Hands the items of a range to `each`; `entries` makes an iterator with the given options.
fn scan<'d, D: DBAccess + 'd>(
    range: KeyRange<'_>,
    order: ScanOrder,
    each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    entries: impl FnOnce(ReadOptions) -> DBRawIteratorWithThreadMode<'d, D>,
) -> Result<(), Error> {
    let (from, to) = bounds(range);
    let mut options = ReadOptions::default();
    options.set_iterate_lower_bound(from);
    options.set_iterate_upper_bound(to);
    let mut entries = entries(options);
    match order {
        ScanOrder::Ascending => entries.seek_to_first(),
        ScanOrder::Descending => entries.seek_to_last(),
    }
    while let Some((key, item)) = entries.item() {
        let (ts, value) = read_item(item).ok_or_else(|| damaged("an item"))?;
        let key = key.get(1..).ok_or_else(|| damaged("a key"))?;
        if each(Operation { key, ts, value }).is_break() {
            return Ok(());
        }
        match order {
            ScanOrder::Ascending => entries.next(),
            ScanOrder::Descending => entries.prev(),
        }
    }
    entries.status().map_err(failed)
}

impl RocksDbData {
    /// Opens the database in the directory `dir`, or creates a database. The cache and the memory
    /// tables take up to about `cache_bytes`.
    ///
    /// # Errors
    /// The directory cannot be used, the content is damaged, or the database is open elsewhere.
    pub fn open(dir: &Path, cache_bytes: usize) -> Result<Self, Error> {
        let cache = Cache::new_lru_cache(cache_bytes);
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&cache);
        table.set_bloom_filter(FILTER_BITS, false);
        table.set_cache_index_and_filter_blocks(true);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&table);
        let threads = std::thread::available_parallelism().map_or(2, |n| n.get().max(2));
        options.increase_parallelism(i32::try_from(threads).unwrap_or(2));
        options.set_write_buffer_size((cache_bytes / 4).clamp(TABLE_BYTES.0, TABLE_BYTES.1));
        let tables = cache_bytes / 2;
        options.set_write_buffer_manager(&WriteBufferManager::new_write_buffer_manager_with_cache(
            tables, false, cache,
        ));
        options.set_merge_operator_associative("hyades-newest", newest);
        options.set_max_successive_merges(MOST_OPERANDS);
        let database = Arc::new(DB::open(&options, dir).map_err(failed)?);
        Ok(Self { database, writing: RwLock::new(()), forgotten: AtomicU64::new(0) })
    }

    /// Whether the item of a key is the deletion of an entry: a later operation may have written
    /// the key again.
    fn is_deleted_at(&self, key: &[u8], ts: u64) -> Result<bool, Error> {
        let item = found(self.database.get_pinned(data_key(key)).map_err(failed)?)?;
        Ok(item.value.is_none() && item.ts == ts)
    }

    /// Removes some deleted keys below a timestamp, the oldest first, from the entry `from` on.
    /// Returns the last entry, if there may be more: the next call begins there. Operations are
    /// applied meanwhile, but for a second look at the keys found deleted, which are in the cache.
    fn forget_some_below(&self, from: Vec<u8>, ts: u64) -> Result<Option<Vec<u8>>, Error> {
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(from);
        options.set_iterate_upper_bound(deleted_key(ts, b""));
        let mut entries = self.database.raw_iterator_opt(options);
        let (mut batch, mut last, mut removed) = (WriteBatch::default(), None, 0);
        let mut deleted = Vec::new();
        entries.seek_to_first();
        while removed < REMOVED_AT_ONCE
            && let Some(entry) = entries.key()
        {
            let (key, deleted_at) = entry
                .get(9..)
                .zip(entry.get(1..).and_then(|rest| rest.first_chunk()))
                .ok_or_else(|| damaged("a deleted key"))?;
            let deleted_at = u64::from_be_bytes(*deleted_at);
            if self.is_deleted_at(key, deleted_at)? {
                deleted.push((key.to_vec(), deleted_at));
            }
            batch.delete(entry);
            last = Some(entry.to_vec());
            removed += 1;
            entries.next();
        }
        entries.status().map_err(failed)?;
        // A batch that was not written has no effect, so a panic leaves no trace.
        let _alone = self.writing.write().unwrap_or_else(PoisonError::into_inner);
        for (key, deleted_at) in deleted {
            if self.is_deleted_at(&key, deleted_at)? {
                batch.delete(data_key(&key));
            }
        }
        self.database.write_opt(batch, &unlogged()).map_err(failed)?;
        Ok(last.filter(|_| removed == REMOVED_AT_ONCE))
    }

    /// Has RocksDB remove no file until the value is dropped.
    #[cfg(feature = "torture")]
    pub(crate) fn keep_files(&self) -> Arc<DB> {
        self.database.disable_file_deletions().expect("an open database keeps its files");
        Arc::clone(&self.database)
    }
}

impl DataSnapshot for RocksDbSnapshot {
    fn get(&self, key: &[u8]) -> Result<Found, Error> {
        self.with_dependent(|_, data| found(data.get_pinned(data_key(key)).map_err(failed)?))
    }

    fn scan(
        &self,
        range: KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.with_dependent(|_, data| scan(range, order, each, |o| data.raw_iterator_opt(o)))
    }
}

impl DataComponent for RocksDbData {
    fn get(&self, key: &[u8]) -> Result<Found, Error> {
        found(self.database.get_pinned(data_key(key)).map_err(failed)?)
    }

    fn scan(
        &self,
        range: KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        scan(range, order, each, |options| self.database.raw_iterator_opt(options))
    }

    fn apply(&self, operations: &[Operation<'_>]) -> Result<(), Error> {
        let (mut batch, mut item) = (WriteBatch::default(), Vec::new());
        for operation in operations {
            LIMITS.check_key(operation.key)?;
            LIMITS.check_value(operation.value)?;
            item.clear();
            put_item(&mut item, operation);
            batch.merge(data_key(operation.key), &item);
            if operation.value.is_none() {
                batch.put(deleted_key(operation.ts, operation.key), b"");
            }
        }
        if let Some(highest) = operations.iter().map(|operation| operation.ts).max() {
            batch.merge(HIGHEST, highest.to_le_bytes());
        }
        let _shared = self.writing.read().unwrap_or_else(PoisonError::into_inner);
        self.database.write_opt(batch, &unlogged()).map_err(failed)
    }

    fn may_cut(&self, _last: &[u8], _next: &[u8]) -> bool {
        true
    }

    fn checkpoint(&self, point: &ResumePoint) -> Result<(), Error> {
        self.database.put_opt(RESUME, point.encode(), &unlogged()).map_err(failed)?;
        self.database.flush().map_err(failed)
    }

    fn resume_point(&self) -> Result<Option<ResumePoint>, Error> {
        let Some(bytes) = self.database.get_pinned(RESUME).map_err(failed)? else {
            return Ok(None);
        };
        ResumePoint::decode(&bytes).map(Some).ok_or_else(|| damaged("the resume point"))
    }

    fn highest_ts(&self) -> Result<u64, Error> {
        let Some(noted) = self.database.get_pinned(HIGHEST).map_err(failed)? else { return Ok(0) };
        timestamp(&noted).filter(|_| noted.len() == 8).ok_or_else(|| damaged("a timestamp"))
    }

    fn forget_below(&self, ts: u64) -> Result<(), Error> {
        let mut from = deleted_key(self.forgotten.load(Ordering::Relaxed), b"");
        while let Some(last) = self.forget_some_below(from, ts)? {
            from = last;
        }
        self.forgotten.fetch_max(ts, Ordering::Relaxed);
        Ok(())
    }

    fn snapshot(&self) -> Result<Option<Arc<dyn DataSnapshot>>, Error> {
        let database = Arc::clone(&self.database);
        Ok(Some(Arc::new(RocksDbSnapshot::new(database, |database| database.snapshot()))))
    }

    fn limits(&self) -> Limits {
        LIMITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation<'a>(key: &'a [u8], ts: u64, value: Option<&'a [u8]>) -> Operation<'a> {
        Operation { key, ts, value }
    }

    /// All items, by their timestamps; each is a deleted key.
    fn deleted(data: &RocksDbData) -> Vec<u64> {
        let (mut left, all) = (Vec::new(), (Bound::Unbounded, Bound::Unbounded));
        DataComponent::scan(data, all, ScanOrder::Ascending, &mut |item| {
            assert_eq!(item.value, None);
            left.push(item.ts);
            ControlFlow::Continue(())
        })
        .unwrap();
        left
    }

    #[test]
    fn deleted_keys_below_the_floor_leave_and_nothing_older_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let data = RocksDbData::open(dir.path(), 1 << 20).unwrap();
        let point = ResumePoint::initial([1; 16]);
        let compact = || data.database.compact_range(None::<&[u8]>, None::<&[u8]>);
        let keys = || (0..1000u64).map(|key| (key, key.to_be_bytes()));
        // The deletions lie in a table at the bottom; the older operations arrive later, and lie in
        // newer tables.
        for (key, bytes) in keys() {
            data.apply(&[operation(&bytes, 2000 + key, None)]).unwrap();
        }
        data.checkpoint(&point).unwrap();
        compact();
        for (_, bytes) in keys() {
            data.apply(&[operation(&bytes, 10, Some(b"old"))]).unwrap();
        }
        data.checkpoint(&point).unwrap();
        data.forget_below(2700).unwrap();
        assert_eq!(deleted(&data), (2700..3000).collect::<Vec<_>>());
        compact();
        assert_eq!(deleted(&data), (2700..3000).collect::<Vec<_>>());
        assert_eq!(data.get(&3u64.to_be_bytes()).unwrap(), Found::default());
        assert_eq!(data.highest_ts().unwrap(), 2999);
        data.apply(&[operation(&3u64.to_be_bytes(), 3000, Some(b"new"))]).unwrap();
        assert_eq!(data.get(&3u64.to_be_bytes()).unwrap().ts, 3000);
    }

    #[test]
    fn a_key_written_again_stays_when_its_deletion_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let data = RocksDbData::open(dir.path(), 1 << 20).unwrap();
        data.apply(&[operation(b"a", 5, None)]).unwrap();
        data.apply(&[operation(b"a", 7, Some(b"again"))]).unwrap();
        data.forget_below(9).unwrap();
        assert_eq!(data.get(b"a").unwrap(), Found { ts: 7, value: Some(b"again".to_vec()) });
    }

    #[test]
    fn what_a_checkpoint_has_made_stable_is_there_and_the_resume_point_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let point = ResumePoint { highest_ts: 9, ..ResumePoint::initial([2; 16]) };
        let data = RocksDbData::open(dir.path(), 1 << 20).unwrap();
        assert_eq!((data.resume_point().unwrap(), data.highest_ts().unwrap()), (None, 0));
        data.apply(&[operation(b"a", 9, Some(b"1")), operation(b"b", 3, None)]).unwrap();
        data.checkpoint(&point).unwrap();
        assert!(RocksDbData::open(dir.path(), 1 << 20).is_err(), "it is open");
        drop(data);
        let data = RocksDbData::open(dir.path(), 1 << 20).unwrap();
        assert_eq!((data.resume_point().unwrap(), data.highest_ts().unwrap()), (Some(point), 9));
        assert_eq!(data.get(b"a").unwrap(), Found { ts: 9, value: Some(b"1".to_vec()) });
    }
}
