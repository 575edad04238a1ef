//! fjall by itself.
//!
//! A group is one batch. fjall does not read what a batch is about to write, so a table beside it
//! has that. Transactions that only read have the snapshot that was taken when the last group had
//! become durable: a later one may have what a crash takes back.

use super::snapshot::{ReadOnly, SnapshotReads, failed};
use super::written::Written;
use super::{GroupedStore, StoreBody};
use crate::bench::choices::Engine;
use crate::bench::deuteronomy::KeysAndValues;
use fjall::{Database, Guard, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot};
use hyades_cli::failure::Failure;
use std::hint::black_box;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

fn wrong(error: impl Into<fjall::Error>) -> Failure {
    let error: fjall::Error = error.into();
    failed(Engine::Fjall, &error)
}

/// A fjall database.
pub struct FjallStore {
    database: Database,
    keyspace: Keyspace,
    durable: Mutex<Arc<Snapshot>>,
}

impl FjallStore {
    /// Opens it in this directory, with a cache of this many bytes.
    ///
    /// # Errors
    /// Its files cannot be used.
    pub fn open(dir: &Path, cache: u64) -> Result<Self, Failure> {
        let builder = Database::builder(dir.join("data.fjall")).cache_size(cache);
        let database = builder.open().map_err(wrong)?;
        let keyspace = database.keyspace("data", KeyspaceCreateOptions::default).map_err(wrong)?;
        let durable = Mutex::new(Arc::new(database.snapshot()));
        Ok(Self { database, keyspace, durable })
    }

    fn durable(&self) -> MutexGuard<'_, Arc<Snapshot>> {
        self.durable.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// What is durable.
struct FjallReads<'s> {
    keyspace: &'s Keyspace,
    snapshot: Arc<Snapshot>,
}

/// What is there, and the writes of a group.
struct FjallWrites<'s> {
    keyspace: &'s Keyspace,
    written: Written,
}

/// Counts entries, and reads their values.
fn count(entries: impl Iterator<Item = Guard>, limit: usize) -> Result<usize, Failure> {
    let mut found = 0;
    for entry in entries.take(limit) {
        black_box(entry.into_inner().map_err(wrong)?);
        found += 1;
    }
    Ok(found)
}

fn bounds(from: &[u8], to: Option<&[u8]>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let to = to.map_or(Bound::Unbounded, |to| Bound::Excluded(to.to_vec()));
    (Bound::Included(from.to_vec()), to)
}

impl SnapshotReads for FjallReads<'_> {
    fn read(&self, key: &[u8]) -> Result<bool, Failure> {
        let found = self.snapshot.get(self.keyspace, key).map_err(wrong)?;
        Ok(black_box(found).is_some())
    }

    fn scan(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<usize, Failure> {
        count(self.snapshot.range(self.keyspace, bounds(from, to)), limit)
    }
}

impl KeysAndValues for FjallWrites<'_> {
    type Error = Failure;

    fn read(&mut self, key: &[u8]) -> Result<bool, Failure> {
        if self.written.read(key) {
            return Ok(true);
        }
        Ok(black_box(self.keyspace.get(key).map_err(wrong)?).is_some())
    }

    fn write(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.written.write(key, value);
        Ok(())
    }

    /// The workload's transactions that scan and write insert no keys, so the group's writes add
    /// none to what is there.
    fn scan(&mut self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<usize, Failure> {
        count(self.keyspace.range(bounds(from, to)), limit)
    }
}

impl GroupedStore for FjallStore {
    fn read_all(&self, body: &mut StoreBody<'_>) -> Result<(), Failure> {
        let snapshot = Arc::clone(&self.durable());
        body(&mut ReadOnly(FjallReads { keyspace: &self.keyspace, snapshot }))
    }

    fn write_all(&self, body: &mut StoreBody<'_>) -> Result<(), Failure> {
        let mut writes = FjallWrites { keyspace: &self.keyspace, written: Written::default() };
        body(&mut writes)?;
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for (key, value) in writes.written.into_entries() {
            batch.insert(&self.keyspace, key, value);
        }
        batch.commit().map_err(wrong)?;
        *self.durable() = Arc::new(self.database.snapshot());
        Ok(())
    }
}
