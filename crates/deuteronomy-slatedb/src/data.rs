//! The data component.

use crate::failure::{damaged, failed};
use crate::forgetting::{Forgotten, REMOVED_AT_ONCE, forget_some};
use crate::item::{HIGHEST, KEY_BYTES, Newest, RESUME, data_key, deletion_key, item};
use crate::options::SlateOptions;
use crate::reading::Reads;
use crate::waiting::Threads;
use hyades_deuteronomy::{
    DataComponent, DataSnapshot, Error, Found, KeyRange, Limits, Operation, ResumePoint, ScanOrder,
};
use slatedb::config::{FlushOptions, FlushType};
use slatedb::db_cache::moka::{MokaCache, MokaCacheOptions};
use slatedb::db_cache::{DbCache, SplitCache};
use slatedb::object_store::ObjectStore;
use slatedb::object_store::local::LocalFileSystem;
use slatedb::{Db, DbSnapshot, WriteBatch};
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The longest value in bytes.
const VALUE_BYTES: usize = 16 << 20;
const LIMITS: Limits = Limits { key_bytes: KEY_BYTES, value_bytes: VALUE_BYTES, is_durable: true };
/// The path of the database in a directory.
const LOCAL_PATH: &str = "slatedb";

/// A SlateDB database, and what runs it.
struct Opened {
    // Dropped before the threads.
    db: Db,
    threads: Threads,
    options: SlateOptions,
}

/// Keys and values in a SlateDB database on object storage: see the crate's documentation.
pub struct SlateData {
    opened: Arc<Opened>,
    /// The deletions with lower timestamps are forgotten. Relaxed: a late look reads more.
    forgotten: AtomicU64,
}

/// The database as of a moment, with the database that keeps the snapshot.
struct SlateSnapshot {
    // Dropped before the database.
    snapshot: Arc<DbSnapshot>,
    opened: Arc<Opened>,
}

/// A cache of blocks, and one of indexes and filters, which blocks must not drive out: without its
/// table's index and filter, a read of a block reads these, too.
fn cache(bytes: usize) -> Arc<dyn DbCache> {
    let half = || -> Option<Arc<dyn DbCache>> {
        let max_capacity = bytes as u64 / 2;
        let options = MokaCacheOptions { max_capacity, ..MokaCacheOptions::default() };
        Some(Arc::new(MokaCache::new_with_opts(options)))
    };
    Arc::new(SplitCache::new().with_block_cache(half()).with_meta_cache(half()).build())
}

impl fmt::Debug for SlateData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlateData").field("options", &self.opened.options).finish_non_exhaustive()
    }
}

impl SlateData {
    /// Opens the database below `path` in an object storage, or creates a database. A process that
    /// has the database open already can no longer write afterwards.
    ///
    /// # Errors
    /// The object storage does not answer within [`SlateOptions::read_patience`], refuses, or holds
    /// damaged objects; the settings do not fit.
    pub fn open(
        storage: Arc<dyn ObjectStore>,
        path: &str,
        options: SlateOptions,
    ) -> Result<Self, Error> {
        let threads = Threads::start()?;
        let builder = Db::builder(path, storage)
            .with_settings(options.checked_settings())
            .with_merge_operator(Arc::new(Newest))
            .with_db_cache(cache(options.cache_bytes), 0);
        let db = threads.wait("opening", options.read_patience, builder.build())?;
        let opened = Arc::new(Opened { db, threads, options });
        Ok(Self { opened, forgotten: AtomicU64::new(0) })
    }

    /// Opens the database in an object storage named by a URL, as `s3://bucket` with the feature
    /// `aws`: credentials, region and endpoint are read from the environment, as
    /// `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION` and `AWS_ENDPOINT`.
    ///
    /// # Errors
    /// As [`open`](Self::open); or the URL is none, or of a kind without its feature.
    pub fn open_url(url: &str, path: &str, options: SlateOptions) -> Result<Self, Error> {
        let storage = Db::resolve_object_store(url);
        let doing = format!("looking for the object storage at {url}");
        Self::open(storage.map_err(|error| failed(&doing, &error))?, path, options)
    }

    /// Opens the database in a directory, which is created; what is written is synced.
    ///
    /// # Errors
    /// As [`open`](Self::open); or the directory cannot be used.
    pub fn open_dir(dir: &Path, options: SlateOptions) -> Result<Self, Error> {
        let unusable =
            |why: &dyn fmt::Display| Error::DataComponent(format!("{}: {why}", dir.display()));
        std::fs::create_dir_all(dir).map_err(|error| unusable(&error))?;
        let storage = LocalFileSystem::new_with_prefix(dir).map_err(|error| unusable(&error))?;
        Self::open(Arc::new(storage.with_fsync(true)), LOCAL_PATH, options)
    }

    fn reads(&self) -> Reads<'_, Db> {
        let Opened { db, threads, options } = &*self.opened;
        Reads { from: db, threads, patience: options.read_patience, keeps_scanned: true }
    }

    /// Waits for a write or a flush.
    fn wait<T>(
        &self,
        doing: &str,
        future: impl Future<Output = Result<T, slatedb::Error>>,
    ) -> Result<T, Error> {
        self.opened.threads.wait(doing, self.opened.options.patience, future)
    }
}

impl SlateSnapshot {
    fn reads(&self) -> Reads<'_, DbSnapshot> {
        let Opened { threads, options, .. } = &*self.opened;
        let from = &*self.snapshot;
        Reads { from, threads, patience: options.read_patience, keeps_scanned: false }
    }
}

impl DataSnapshot for SlateSnapshot {
    fn get(&self, key: &[u8]) -> Result<Found, Error> {
        self.reads().get(key)
    }

    fn scan(
        &self,
        range: KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.reads().scan(range, order, each)
    }
}

impl DataComponent for SlateData {
    fn get(&self, key: &[u8]) -> Result<Found, Error> {
        self.reads().get(key)
    }

    fn scan(
        &self,
        range: KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.reads().scan(range, order, each)
    }

    fn apply(&self, operations: &[Operation<'_>]) -> Result<(), Error> {
        let mut batch = WriteBatch::new();
        for operation in operations {
            let (key, value) = (operation.key.len(), operation.value.map_or(0, <[u8]>::len));
            if key > KEY_BYTES {
                return Err(Error::KeyTooLong(key, KEY_BYTES));
            }
            if value > VALUE_BYTES {
                return Err(Error::ValueTooLong(value, VALUE_BYTES));
            }
            batch.merge(data_key(operation.key), item(operation));
            if operation.value.is_none() {
                batch.put(deletion_key(operation.ts, operation.key), []);
            }
        }
        let Some(highest) = operations.iter().map(|operation| operation.ts).max() else {
            return Ok(());
        };
        batch.merge(HIGHEST, highest.to_le_bytes());
        self.wait("writing", self.opened.db.write(batch)).map(drop)
    }

    /// SlateDB makes its writes durable in the order of writing. So the resume point, written last,
    /// is durable with all operations applied before, or not at all.
    fn checkpoint(&self, point: &ResumePoint) -> Result<(), Error> {
        self.wait("writing a resume point", self.opened.db.put(RESUME, point.encode()))?;
        let flush = FlushOptions { flush_type: FlushType::MemTable };
        self.wait("taking a checkpoint", self.opened.db.flush_with_options(flush))
    }

    fn resume_point(&self) -> Result<Option<ResumePoint>, Error> {
        let Some(stored) = self.reads().stored(&RESUME)? else { return Ok(None) };
        ResumePoint::decode(&stored).map(Some).ok_or_else(|| damaged("the resume point"))
    }

    fn highest_ts(&self) -> Result<u64, Error> {
        let Some(stored) = self.reads().stored(&HIGHEST)? else { return Ok(0) };
        let noted = (&*stored).try_into().map_err(|_| damaged("a timestamp"))?;
        Ok(u64::from_le_bytes(noted))
    }

    fn forget_below(&self, ts: u64) -> Result<(), Error> {
        let Opened { db, threads, options } = &*self.opened;
        let mut from = self.forgotten.load(Ordering::Relaxed);
        if from >= ts {
            return Ok(());
        }
        let mut most = REMOVED_AT_ONCE;
        loop {
            // The future's own errors say more than SlateDB's.
            let step = async { Ok(forget_some(db, from, ts, most).await) };
            match threads.wait("forgetting deleted keys", options.patience, step)?? {
                Forgotten::UpTo(last) => (from, most) = (last, REMOVED_AT_ONCE),
                Forgotten::Conflict => most = (most / 2).max(1),
                Forgotten::All => break,
            }
        }
        self.forgotten.fetch_max(ts, Ordering::Relaxed);
        Ok(())
    }

    fn snapshot(&self) -> Result<Option<Arc<dyn DataSnapshot>>, Error> {
        let snapshot = self.opened.db.snapshot();
        let snapshot = snapshot.map_err(|error| failed("beginning a snapshot", &error))?;
        Ok(Some(Arc::new(SlateSnapshot { snapshot, opened: Arc::clone(&self.opened) })))
    }

    fn limits(&self) -> Limits {
        LIMITS
    }
}
