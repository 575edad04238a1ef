//! redb by itself.

use super::snapshot::{ReadOnly, SnapshotReads, failed};
use super::{GroupedStore, StoreBody};
use crate::bench::choices::Engine;
use crate::bench::deuteronomy::KeysAndValues;
use hyades_cli::failure::Failure;
use redb::{
    AccessGuard, Builder, Database, ReadableDatabase, ReadableTable, Table, TableDefinition,
};
use std::hint::black_box;
use std::ops::Bound;
use std::path::Path;

const DATA: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("data");

fn wrong(error: impl Into<redb::Error>) -> Failure {
    let error: redb::Error = error.into();
    failed(Engine::Redb, &error)
}

/// A redb database.
pub struct RedbStore {
    database: Database,
}

impl RedbStore {
    /// Opens it in a file in this directory, with a cache of this many bytes.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn open(dir: &Path, cache: u64) -> Result<Self, Failure> {
        let mut builder = Builder::new();
        let builder = builder.set_cache_size(cache as usize);
        let database = builder.create(dir.join("data.redb")).map_err(wrong)?;
        let transaction = database.begin_write().map_err(wrong)?;
        transaction.open_table(DATA).map_err(wrong)?;
        transaction.commit().map_err(wrong)?;
        Ok(Self { database })
    }
}

/// A table, to be read.
struct RedbReads<T>(T);

/// The table, to be written.
struct RedbWrites<'t>(Table<'t, &'static [u8], &'static [u8]>);

fn read(found: Option<AccessGuard<'_, &'static [u8]>>) -> bool {
    if let Some(value) = &found {
        black_box(value.value());
    }
    found.is_some()
}

fn scan(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    from: &[u8],
    to: Option<&[u8]>,
    limit: usize,
) -> Result<usize, Failure> {
    let range = (Bound::Included(from), to.map_or(Bound::Unbounded, Bound::Excluded));
    let mut found = 0;
    for entry in table.range::<&[u8]>(range).map_err(wrong)?.take(limit) {
        let (_, value) = entry.map_err(wrong)?;
        black_box(value.value());
        found += 1;
    }
    Ok(found)
}

impl<T: ReadableTable<&'static [u8], &'static [u8]>> SnapshotReads for RedbReads<T> {
    fn read(&self, key: &[u8]) -> Result<bool, Failure> {
        Ok(read(self.0.get(key).map_err(wrong)?))
    }

    fn scan(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<usize, Failure> {
        scan(&self.0, from, to, limit)
    }
}

impl KeysAndValues for RedbWrites<'_> {
    type Error = Failure;

    fn read(&mut self, key: &[u8]) -> Result<bool, Failure> {
        Ok(read(self.0.get(key).map_err(wrong)?))
    }

    fn write(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.0.insert(key, value).map_err(wrong)?;
        Ok(())
    }

    fn modify(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        // It returns the old value.
        let old = self.0.insert(key, value).map_err(wrong)?;
        black_box(read(old));
        Ok(())
    }

    fn scan(&mut self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<usize, Failure> {
        scan(&self.0, from, to, limit)
    }
}

impl GroupedStore for RedbStore {
    fn read_all(&self, body: &mut StoreBody<'_>) -> Result<(), Failure> {
        let transaction = self.database.begin_read().map_err(wrong)?;
        body(&mut ReadOnly(RedbReads(transaction.open_table(DATA).map_err(wrong)?)))
    }

    fn write_all(&self, body: &mut StoreBody<'_>) -> Result<(), Failure> {
        let transaction = self.database.begin_write().map_err(wrong)?;
        body(&mut RedbWrites(transaction.open_table(DATA).map_err(wrong)?))?;
        transaction.commit().map_err(wrong)
    }
}
