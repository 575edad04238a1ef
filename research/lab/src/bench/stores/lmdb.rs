//! LMDB by itself.

#![allow(unsafe_code)]

use super::snapshot::{ReadOnly, SnapshotReads, failed};
use super::{GroupedStore, StoreBody};
use crate::bench::choices::Engine;
use crate::bench::deuteronomy::KeysAndValues;
use heed::types::Bytes;
use heed::{Database, Env, EnvOpenOptions, RoTxn, RwTxn, WithTls};
use hyades_cli::failure::Failure;
use std::hint::black_box;
use std::ops::Bound;
use std::path::Path;

/// The largest file. Its addresses are reserved, its pages are not.
const MOST_BYTES: usize = 1 << 36;

fn wrong(error: heed::Error) -> Failure {
    failed(Engine::Lmdb, &error)
}

/// An LMDB environment.
pub struct LmdbStore {
    env: Env,
    data: Database<Bytes, Bytes>,
}

impl LmdbStore {
    /// Opens it in this directory.
    ///
    /// # Errors
    /// Its files cannot be used.
    pub fn open(dir: &Path) -> Result<Self, Failure> {
        let mut options = EnvOpenOptions::new();
        options.map_size(MOST_BYTES);
        // SAFETY: The files are in a directory of this run, which nothing else changes.
        let env = unsafe { options.open(dir) }.map_err(wrong)?;
        let mut transaction = env.write_txn().map_err(wrong)?;
        let data = env.create_database(&mut transaction, None).map_err(wrong)?;
        transaction.commit().map_err(wrong)?;
        Ok(Self { env, data })
    }
}

/// A snapshot.
struct LmdbReads<'s> {
    data: Database<Bytes, Bytes>,
    transaction: RoTxn<'s, WithTls>,
}

/// A transaction that writes.
struct LmdbWrites<'s> {
    data: Database<Bytes, Bytes>,
    transaction: RwTxn<'s>,
}

fn read(data: Database<Bytes, Bytes>, on: &RoTxn<'_>, key: &[u8]) -> Result<bool, Failure> {
    let found = data.get(on, key).map_err(wrong)?;
    Ok(black_box(found).is_some())
}

fn scan(
    data: Database<Bytes, Bytes>,
    on: &RoTxn<'_>,
    (from, to): (&[u8], Option<&[u8]>),
    limit: usize,
) -> Result<usize, Failure> {
    let range = (Bound::Included(from), to.map_or(Bound::Unbounded, Bound::Excluded));
    let mut found = 0;
    for entry in data.range(on, &range).map_err(wrong)?.take(limit) {
        black_box(entry.map_err(wrong)?);
        found += 1;
    }
    Ok(found)
}

impl SnapshotReads for LmdbReads<'_> {
    fn read(&self, key: &[u8]) -> Result<bool, Failure> {
        read(self.data, &self.transaction, key)
    }

    fn scan(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<usize, Failure> {
        scan(self.data, &self.transaction, (from, to), limit)
    }
}

impl KeysAndValues for LmdbWrites<'_> {
    type Error = Failure;

    fn read(&mut self, key: &[u8]) -> Result<bool, Failure> {
        read(self.data, &self.transaction, key)
    }

    fn write(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.data.put(&mut self.transaction, key, value).map_err(wrong)
    }

    fn scan(&mut self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<usize, Failure> {
        scan(self.data, &self.transaction, (from, to), limit)
    }
}

impl GroupedStore for LmdbStore {
    fn read_all(&self, body: &mut StoreBody<'_>) -> Result<(), Failure> {
        let transaction = self.env.read_txn().map_err(wrong)?;
        body(&mut ReadOnly(LmdbReads { data: self.data, transaction }))
    }

    fn write_all(&self, body: &mut StoreBody<'_>) -> Result<(), Failure> {
        let transaction = self.env.write_txn().map_err(wrong)?;
        let mut writing = LmdbWrites { data: self.data, transaction };
        body(&mut writing)?;
        writing.transaction.commit().map_err(wrong)
    }
}
