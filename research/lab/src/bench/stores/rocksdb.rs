//! RocksDB by itself.
//!
//! A group is one batch, and a table beside it has what the batch is about to write. A batch can be
//! read after its sync alone, so every snapshot is durable.

use super::snapshot::{ReadOnly, SnapshotReads, failed};
use super::written::Written;
use super::{GroupedStore, StoreBody};
use crate::bench::choices::Engine;
use crate::bench::deuteronomy::KeysAndValues;
use hyades_cli::failure::Failure;
use rocksdb::{
    BlockBasedOptions, Cache, DB, Options, ReadOptions, Snapshot, WriteBatch, WriteOptions,
};
use std::hint::black_box;
use std::path::Path;

/// Bits of a Bloom filter for each key, as its documentation recommends.
const FILTER_BITS: f64 = 10.0;

fn wrong(error: rocksdb::Error) -> Failure {
    failed(Engine::RocksDb, &error)
}

/// A RocksDB database.
pub struct RocksDbStore(DB);

impl RocksDbStore {
    /// Opens it in this directory, with a cache of this many bytes.
    ///
    /// # Errors
    /// Its files cannot be used.
    pub fn open(dir: &Path, cache: u64) -> Result<Self, Failure> {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&Cache::new_lru_cache(usize::try_from(cache).unwrap_or(usize::MAX)));
        table.set_bloom_filter(FILTER_BITS, false);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&table);
        let threads = std::thread::available_parallelism().map_or(2, |n| n.get().max(2));
        options.increase_parallelism(threads as i32);
        Ok(Self(DB::open(&options, dir.join("data.rocksdb")).map_err(wrong)?))
    }
}

/// What is durable.
struct RocksDbReads<'s>(Snapshot<'s>);

/// What is there, and the writes of a group.
struct RocksDbWrites<'s> {
    data: Snapshot<'s>,
    written: Written,
}

fn read(data: &Snapshot<'_>, key: &[u8]) -> Result<bool, Failure> {
    Ok(black_box(data.get_pinned(key).map_err(wrong)?).is_some())
}

/// Counts entries, and reads their values.
fn scan(
    data: &Snapshot<'_>,
    from: &[u8],
    to: Option<&[u8]>,
    limit: usize,
) -> Result<usize, Failure> {
    let mut options = ReadOptions::default();
    if let Some(to) = to {
        options.set_iterate_upper_bound(to);
    }
    let (mut entries, mut found) = (data.raw_iterator_opt(options), 0);
    if limit > 0 {
        entries.seek(from);
    }
    while found < limit && entries.valid() {
        black_box(entries.value());
        found += 1;
        entries.next();
    }
    entries.status().map_err(wrong)?;
    Ok(found)
}

impl SnapshotReads for RocksDbReads<'_> {
    fn read(&self, key: &[u8]) -> Result<bool, Failure> {
        read(&self.0, key)
    }

    fn scan(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<usize, Failure> {
        scan(&self.0, from, to, limit)
    }
}

impl KeysAndValues for RocksDbWrites<'_> {
    type Error = Failure;

    fn read(&mut self, key: &[u8]) -> Result<bool, Failure> {
        if self.written.read(key) {
            return Ok(true);
        }
        read(&self.data, key)
    }

    fn write(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.written.write(key, value);
        Ok(())
    }

    /// The workload's transactions that scan and write insert no keys, so the group's writes add
    /// none to what is there.
    fn scan(&mut self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<usize, Failure> {
        scan(&self.data, from, to, limit)
    }
}

impl GroupedStore for RocksDbStore {
    fn read_all(&self, body: &mut StoreBody<'_>) -> Result<(), Failure> {
        body(&mut ReadOnly(RocksDbReads(self.0.snapshot())))
    }

    fn write_all(&self, body: &mut StoreBody<'_>) -> Result<(), Failure> {
        let mut writes = RocksDbWrites { data: self.0.snapshot(), written: Written::default() };
        body(&mut writes)?;
        let mut batch = WriteBatch::default();
        for (key, value) in writes.written.into_entries() {
            batch.put(key, value);
        }
        let mut options = WriteOptions::default();
        options.set_sync(true);
        self.0.write_opt(batch, &options).map_err(wrong)
    }
}
