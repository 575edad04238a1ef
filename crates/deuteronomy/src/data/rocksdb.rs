//! A data component in a RocksDB database: durable, larger than memory, and written blindly.
//!
//! A write reads nothing: an operation is an operand of a merge operator, for which the highest
//! timestamp wins, and RocksDB merges when the key is read or compacted. So operations arrive in
//! any order, any number of times, and on several threads. RocksDB's own log is off: a checkpoint
//! writes the resume point and flushes. All keys are in one column family, whose memory tables
//! reach the disk in the order of writing, so what a crash leaves is a prefix of the batches, with
//! all batches up to the last checkpoint.
//!
//! Keys: after the byte `d` a key, with its timestamp and value as in redb; `r`, the resume point;
//! `t`, the highest applied timestamp, 8 bytes little-endian, merged by the same operator. Deleted
//! keys below the floor are dropped by compactions.

use super::item::{put_item, read_item};
use crate::data_component::{
    DataComponent, DataSnapshot, Found, KeyRange, Limits, Operation, ResumePoint, ScanOrder,
    cut_bounds,
};
use crate::error::Error;
use rocksdb::compaction_filter::Decision;
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBAccess, DBRawIteratorWithThreadMode, MergeOperands, Options,
    ReadOptions, Snapshot, WriteBatch, WriteBufferManager, WriteOptions,
};
use self_cell::self_cell;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const DATA: u8 = b'd';
const RESUME: [u8; 1] = [b'r'];
const HIGHEST: [u8; 1] = [b't'];

/// Bits of a Bloom filter for each key, as RocksDB's documentation recommends.
const FILTER_BITS: f64 = 10.0;
/// The smallest and the largest memory table, in bytes.
const TABLE_BYTES: (usize, usize) = (1 << 20, 64 << 20);
/// The number of operands of a key in a memory table that are merged at the next write.
const MOST_OPERANDS: usize = 16;
const LIMITS: Limits = Limits { key_bytes: 1 << 20, value_bytes: 1 << 30, is_durable: true };

/// Keys and values in a RocksDB database.
pub struct RocksDbData {
    database: Arc<DB>,
    /// Deleted keys with lower timestamps may go. Relaxed: a late look keeps a deleted key longer.
    floor: Arc<AtomicU64>,
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
        let floor = Arc::new(AtomicU64::new(0));
        let lowest = Arc::clone(&floor);
        let is_forgotten = move |key: &[u8], item: &[u8]| {
            let deleted = || read_item(item).filter(|(_, value)| value.is_none());
            key.first() == Some(&DATA)
                && deleted().is_some_and(|(ts, _)| ts < lowest.load(Ordering::Relaxed))
        };
        let filter = move |_, key: &[u8], item: &[u8]| match is_forgotten(key, item) {
            true => Decision::Remove,
            false => Decision::Keep,
        };
        options.set_compaction_filter("hyades-deleted", filter);
        let database = Arc::new(DB::open(&options, dir).map_err(failed)?);
        Ok(Self { database, floor })
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
        }
        if let Some(highest) = operations.iter().map(|operation| operation.ts).max() {
            batch.merge(HIGHEST, highest.to_le_bytes());
        }
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

    /// The next compactions drop the deleted keys.
    fn forget_below(&self, ts: u64) -> Result<(), Error> {
        self.floor.fetch_max(ts, Ordering::Relaxed);
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

    #[test]
    fn deleted_keys_below_the_floor_leave_with_a_compaction_and_nothing_older_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let data = RocksDbData::open(dir.path(), 1 << 20).unwrap();
        let point = ResumePoint::initial([1; 16]);
        let compact = || data.database.compact_range(None::<&[u8]>, None::<&[u8]>);
        for key in 0..100u8 {
            data.apply(&[operation(&[key], 10, Some(b"old"))]).unwrap();
        }
        data.checkpoint(&point).unwrap();
        compact();
        for key in 0..100u8 {
            data.apply(&[operation(&[key], 20 + u64::from(key), None)]).unwrap();
        }
        data.checkpoint(&point).unwrap();
        data.forget_below(70).unwrap();
        compact();
        compact();
        let mut left = Vec::new();
        let all = (Bound::Unbounded, Bound::Unbounded);
        DataComponent::scan(&data, all, ScanOrder::Ascending, &mut |item| {
            assert_eq!(item.value, None);
            left.push(item.ts);
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(left, (70..120).collect::<Vec<_>>());
        assert_eq!(data.get(&[3]).unwrap(), Found::default());
        assert_eq!(data.highest_ts().unwrap(), 119);
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
