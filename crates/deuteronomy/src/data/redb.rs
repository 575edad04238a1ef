//! A data component in a redb database: durable, and larger than memory.
//!
//! Batches are commits without durability, kept by redb in its cache and its file until a durable
//! commit; a checkpoint is a durable commit with the resume point. So after a crash redb holds
//! exactly the state of the last checkpoint.
//!
//! Tables: `data`, from a key to 8 bytes of timestamp, 1 if there is a value, else 0, and the
//! value; `deleted`, the timestamp and key of each deleted key; `resume`, the resume point;
//! `highest`, the highest applied timestamp, written by each batch. A database of an earlier
//! version has none until the first batch, and is scanned for the timestamp.

use super::item;
use crate::data_component::{
    DataComponent, DataSnapshot, Found, KeyRange, Limits, Operation, ResumePoint, ScanOrder,
};
use crate::error::Error;
use hyades_platform::device::FileDevice;
use redb::{
    Builder, Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, StorageBackend,
    Table, TableDefinition, WriteTransaction,
};
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DATA: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("data");
const DELETED: TableDefinition<'_, (u64, &[u8]), ()> = TableDefinition::new("deleted");
const RESUME: TableDefinition<'_, (), &[u8]> = TableDefinition::new("resume");
const HIGHEST: TableDefinition<'_, (), u64> = TableDefinition::new("highest");

/// The most deleted keys removed by a transaction of redb.
const REMOVED_AT_ONCE: usize = 4096;

/// Keys and values in a redb database.
#[derive(Debug)]
pub struct RedbData {
    database: Database,
}

fn failed(error: impl Into<redb::Error>) -> Error {
    Error::DataComponent(error.into().to_string())
}

fn damaged(what: &str) -> Error {
    Error::DataComponent(format!("{what} in the redb database was not written by this program"))
}

fn read_item(item: &[u8]) -> Result<(u64, Option<&[u8]>), Error> {
    item::read_item(item).ok_or_else(|| damaged("an item"))
}

impl RedbData {
    /// Opens the database in the file `path`, or creates a database. The cache takes up to
    /// `cache_bytes`.
    ///
    /// A new database is made under a name ending in `.new`, and gets its final name when whole:
    /// redb does not open a file after an interruption of the file's making.
    ///
    /// # Errors
    /// The file cannot be used, is damaged or open elsewhere.
    pub fn open(path: &Path, cache_bytes: usize) -> Result<Self, Error> {
        let device = FileDevice::shared();
        if !device.exists(path).map_err(redb::Error::Io).map_err(failed)? {
            Self::make(path).map_err(failed)?;
        }
        let database = Builder::new().set_cache_size(cache_bytes).create(path).map_err(failed)?;
        Self::prepare(database)
    }

    /// Makes an empty database in the file `path`; afterwards the file is there, whole, or not at
    /// all.
    fn make(path: &Path) -> Result<(), redb::Error> {
        let device = FileDevice::shared();
        let mut new = OsString::from(path);
        new.push(".new");
        let new = PathBuf::from(new);
        // The remains of an interrupted making.
        if device.exists(&new)? {
            device.remove(&new)?;
        }
        drop(Builder::new().create(&new)?);
        device.rename(&new, path)?;
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        Ok(device.sync_dir(dir.unwrap_or(Path::new(".")))?)
    }

    /// As [`open`](Self::open), in storage of the caller's, empty or with a whole database.
    ///
    /// # Errors
    /// The storage cannot be used or is damaged.
    pub fn open_in(storage: impl StorageBackend, cache_bytes: usize) -> Result<Self, Error> {
        let mut builder = Builder::new();
        let builder = builder.set_cache_size(cache_bytes);
        Self::prepare(builder.create_with_backend(storage).map_err(failed)?)
    }

    fn prepare(database: Database) -> Result<Self, Error> {
        let transaction = database.begin_write().map_err(failed)?;
        transaction.open_table(DATA).map_err(failed)?;
        transaction.open_table(DELETED).map_err(failed)?;
        transaction.open_table(RESUME).map_err(failed)?;
        transaction.open_table(HIGHEST).map_err(failed)?;
        transaction.commit().map_err(failed)?;
        Ok(Self { database })
    }

    /// Begins a transaction with changes durable from the next checkpoint on.
    fn begin(&self) -> Result<WriteTransaction, Error> {
        let mut transaction = self.database.begin_write().map_err(failed)?;
        transaction.set_durability(Durability::None).map_err(failed)?;
        Ok(transaction)
    }

    /// Removes deleted keys below a timestamp, the oldest first; returns how many.
    fn forget_some_below(&self, ts: u64) -> Result<usize, Error> {
        let transaction = self.begin()?;
        let mut old = Vec::new();
        {
            let mut data = transaction.open_table(DATA).map_err(failed)?;
            let mut deleted = transaction.open_table(DELETED).map_err(failed)?;
            for item in deleted.range(..(ts, &[][..])).map_err(failed)?.take(REMOVED_AT_ONCE) {
                let (key, _) = item.map_err(failed)?;
                let (ts, key) = key.value();
                old.push((ts, key.to_vec()));
            }
            for (ts, key) in &old {
                deleted.remove((*ts, &**key)).map_err(failed)?;
                data.remove(&**key).map_err(failed)?;
            }
        }
        transaction.commit().map_err(failed)?;
        Ok(old.len())
    }
}

/// Applies an operation, unless the table has a newer operation on the key.
fn apply_one(
    data: &mut Table<'_, &'static [u8], &'static [u8]>,
    deleted: &mut Table<'_, (u64, &'static [u8]), ()>,
    operation: &Operation<'_>,
    item: &mut Vec<u8>,
) -> Result<(), Error> {
    let before = match data.get(operation.key).map_err(failed)? {
        Some(item) => {
            let (ts, value) = read_item(item.value())?;
            Some((ts, value.is_none()))
        }
        None => None,
    };
    if before.is_some_and(|(ts, _)| ts >= operation.ts) {
        return Ok(());
    }
    if let Some((ts, true)) = before {
        deleted.remove((ts, operation.key)).map_err(failed)?;
    }
    item.clear();
    item::put_item(item, operation);
    data.insert(operation.key, &**item).map_err(failed)?;
    if operation.value.is_none() {
        deleted.insert((operation.ts, operation.key), ()).map_err(failed)?;
    }
    Ok(())
}

/// Returns the highest timestamp noted by batches, if any.
fn noted_highest(table: &impl ReadableTable<(), u64>) -> Result<Option<u64>, Error> {
    Ok(table.get(()).map_err(failed)?.map(|noted| noted.value()))
}

/// The highest timestamp of an item.
fn highest_in(data: &impl ReadableTable<&'static [u8], &'static [u8]>) -> Result<u64, Error> {
    data.iter().map_err(failed)?.try_fold(0, |highest: u64, item| {
        let (_, item) = item.map_err(failed)?;
        Ok(highest.max(read_item(item.value())?.0))
    })
}

/// The data as of the beginning of a reading transaction of redb; the transaction lasts as long as
/// the table. Meanwhile redb's file keeps the pages replaced since.
type DataTable = ReadOnlyTable<&'static [u8], &'static [u8]>;

impl RedbData {
    fn table(&self) -> Result<DataTable, Error> {
        let transaction = self.database.begin_read().map_err(failed)?;
        transaction.open_table(DATA).map_err(failed)
    }
}

impl DataSnapshot for DataTable {
    fn get(&self, key: &[u8]) -> Result<Found, Error> {
        let Some(item) = ReadableTable::get(self, key).map_err(failed)? else {
            return Ok(Found::default());
        };
        let (ts, value) = read_item(item.value())?;
        Ok(Found { ts, value: value.map(<[u8]>::to_vec) })
    }

    fn scan(
        &self,
        range: KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let mut entries = self.range::<&[u8]>(range).map_err(failed)?;
        loop {
            let next = match order {
                ScanOrder::Ascending => entries.next(),
                ScanOrder::Descending => entries.next_back(),
            };
            let Some(entry) = next else { return Ok(()) };
            let (key, item) = entry.map_err(failed)?;
            let (ts, value) = read_item(item.value())?;
            if each(Operation { key: key.value(), ts, value }).is_break() {
                return Ok(());
            }
        }
    }
}

impl DataComponent for RedbData {
    fn get(&self, key: &[u8]) -> Result<Found, Error> {
        DataSnapshot::get(&self.table()?, key)
    }

    fn scan(
        &self,
        range: KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.table()?.scan(range, order, each)
    }

    fn apply(&self, batch: &[Operation<'_>]) -> Result<(), Error> {
        let transaction = self.begin()?;
        {
            let mut data = transaction.open_table(DATA).map_err(failed)?;
            let mut deleted = transaction.open_table(DELETED).map_err(failed)?;
            let mut item = Vec::new();
            for operation in batch {
                apply_one(&mut data, &mut deleted, operation, &mut item)?;
            }
            let before = noted_highest(&transaction.open_table(HIGHEST).map_err(failed)?)?;
            let before = before.map_or_else(|| highest_in(&data), Ok)?;
            let highest = batch.iter().map(|operation| operation.ts).fold(before, u64::max);
            let mut noted = transaction.open_table(HIGHEST).map_err(failed)?;
            noted.insert((), highest).map_err(failed)?;
        }
        transaction.commit().map_err(failed)
    }

    fn checkpoint(&self, point: &ResumePoint) -> Result<(), Error> {
        let transaction = self.database.begin_write().map_err(failed)?;
        {
            let mut resume = transaction.open_table(RESUME).map_err(failed)?;
            resume.insert((), &*point.encode()).map_err(failed)?;
        }
        transaction.commit().map_err(failed)
    }

    fn resume_point(&self) -> Result<Option<ResumePoint>, Error> {
        let transaction = self.database.begin_read().map_err(failed)?;
        let table = transaction.open_table(RESUME).map_err(failed)?;
        let Some(bytes) = table.get(()).map_err(failed)? else { return Ok(None) };
        let point = ResumePoint::decode(bytes.value());
        point.map(Some).ok_or_else(|| damaged("the resume point"))
    }

    fn highest_ts(&self) -> Result<u64, Error> {
        let transaction = self.database.begin_read().map_err(failed)?;
        let noted = noted_highest(&transaction.open_table(HIGHEST).map_err(failed)?)?;
        match noted {
            Some(noted) => Ok(noted),
            None => highest_in(&transaction.open_table(DATA).map_err(failed)?),
        }
    }

    fn forget_below(&self, ts: u64) -> Result<(), Error> {
        while self.forget_some_below(ts)? == REMOVED_AT_ONCE {}
        Ok(())
    }

    fn snapshot(&self) -> Result<Option<Arc<dyn DataSnapshot>>, Error> {
        Ok(Some(Arc::new(self.table()?)))
    }

    fn limits(&self) -> Limits {
        // The limits of redb are far above the limit of a record of the log.
        Limits { key_bytes: 1 << 20, value_bytes: 1 << 30, is_durable: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redb::ReadableTableMetadata;
    use redb::backends::InMemoryBackend;

    /// The state left by a process dead in the making of redb's file.
    #[test]
    fn a_file_that_is_not_whole_is_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.redb");
        let new = dir.path().join("data.redb.new");
        std::fs::write(&new, [0; 5000]).unwrap();
        let data = RedbData::open(&path, 1 << 20).unwrap();
        assert!(!new.exists());
        data.checkpoint(&ResumePoint::initial([1; 16])).unwrap();
        assert!(RedbData::open(&path, 1 << 20).is_err(), "it is open");
        drop(data);
        let data = RedbData::open(&path, 1 << 20).unwrap();
        assert!(data.resume_point().unwrap().is_some());
    }

    #[test]
    fn all_deleted_keys_below_are_forgotten_at_once() {
        let data = RedbData::open_in(InMemoryBackend::new(), 1 << 20).unwrap();
        let keys: Vec<[u8; 4]> = (0..10_000u32).map(u32::to_be_bytes).collect();
        let batch = (1..).zip(&keys).map(|(ts, key)| Operation { key, ts, value: None });
        let batch: Vec<_> = batch.collect();
        data.apply(&batch).unwrap();
        data.apply(&[Operation { key: b"value", ts: 1, value: Some(b"1") }]).unwrap();
        data.forget_below(9_991).unwrap();
        let read = data.database.begin_read().unwrap();
        assert_eq!(read.open_table(DELETED).unwrap().len().unwrap(), 10);
        assert_eq!(read.open_table(DATA).unwrap().len().unwrap(), 11);
        assert_eq!(data.get(&keys[9_989]).unwrap(), Found::default());
        assert_eq!(data.get(&keys[9_990]).unwrap().ts, 9_991);
        assert_eq!(data.get(b"value").unwrap().value.as_deref(), Some(&b"1"[..]));
    }
}
