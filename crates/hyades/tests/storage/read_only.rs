//! A database on read-only storage. Promise: the database can be read, and opening for work fails
//! with a clear error.

use hyades::{Abort, Builder, Column, Database, Error, Restore, Schema, Table, Type};
use hyades_platform::device::{Device, DeviceFile, DirectoryLock, FileDevice, MountedDevice};
use hyades_wal::LogOptions;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const COUNTERS: Table = Table::nth(0);
const COUNT: Column<i64> = Column::at(1);

/// A device on a file system mounted read-only.
#[derive(Clone, Copy, Debug)]
struct ReadOnlyDevice;

fn refused<T>() -> io::Result<T> {
    Err(io::Error::from(ErrorKind::ReadOnlyFilesystem))
}

impl Device for ReadOnlyDevice {
    fn name(&self) -> &'static str {
        "read-only"
    }
    fn durable(&self) -> bool {
        true
    }
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        if dir.is_dir() { Ok(()) } else { refused() }
    }
    fn create(&self, _path: &Path, _len: u64) -> io::Result<Arc<dyn DeviceFile>> {
        refused()
    }
    fn open(&self, _path: &Path) -> io::Result<Arc<dyn DeviceFile>> {
        refused()
    }
    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>> {
        FileDevice.open_read(path)
    }
    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        refused()
    }
    fn remove(&self, _path: &Path) -> io::Result<()> {
        refused()
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        FileDevice.list(dir)
    }
    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        refused()
    }
    fn read_small(&self, path: &Path) -> io::Result<Vec<u8>> {
        FileDevice.read_small(path)
    }
    fn write_small(&self, _path: &Path, _bytes: &[u8]) -> io::Result<()> {
        refused()
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        FileDevice.exists(path)
    }
    fn lock_dir(&self, dir: &Path) -> io::Result<DirectoryLock> {
        FileDevice.lock_dir(dir)
    }
    fn lock_dir_shared(&self, dir: &Path) -> io::Result<DirectoryLock> {
        FileDevice.lock_dir_shared(dir)
    }
    fn check_writable(&self, _dir: &Path) -> io::Result<()> {
        refused()
    }
}

fn builder() -> Builder {
    let mut builder = Database::builder().streams(3);
    let counters = Schema::new("counters")
        .column("id", Type::I64)
        .column("count", Type::I64)
        .primary_key(&["id"]);
    builder.table(counters);
    builder.log_settings(|log| {
        log.segment_bytes = 1 << 16;
        log.buffer_bytes = 1 << 14;
    })
}

/// As [`builder`], on a device.
fn on(device: Arc<dyn Device>) -> Builder {
    builder().log_settings(|log| log.device = Some(device))
}

/// Creates a database with a checkpoint and log records after it, not closed. Returns its
/// directory.
fn counters(root: &Path) -> PathBuf {
    let dir = root.join("db");
    let database = builder().open(&dir).unwrap();
    let mut session = database.session().unwrap();
    let mut put = |ids: std::ops::Range<i64>| {
        for id in ids {
            let (_, ticket) = session
                .try_submit(|tx| tx.insert(COUNTERS, &[id.into(), (3 * id).into()]))
                .unwrap();
            ticket.wait().unwrap();
        }
    };
    put(0..300);
    database.checkpoint().unwrap();
    put(300..500);
    drop(session);
    drop(database);
    dir
}

/// A device where the directory `db` is read-only and the rest is not.
fn mounted(db: &Path, root: &Path) -> Arc<dyn Device> {
    let mounts: Vec<(PathBuf, Arc<dyn Device>)> =
        vec![(root.to_owned(), FileDevice::shared()), (db.to_owned(), Arc::new(ReadOnlyDevice))];
    Arc::new(MountedDevice::new(mounts))
}

#[test]
fn a_read_only_database_is_read_and_not_opened_for_work() {
    let root = tempfile::tempdir().unwrap();
    let db = counters(root.path());
    let device = mounted(&db, root.path());

    let mut options = LogOptions::new(vec![db.clone()], 1);
    options.device = Arc::clone(&device);
    let damaged = hyades_wal::open_damaged(options.clone()).unwrap();
    assert!(damaged.damage().is_empty(), "{:?}", damaged.damage());
    let recovering = hyades_wal::open_read(options).unwrap();
    let mut ends = Vec::new();
    for mut reader in recovering.readers() {
        while reader.next_chunk().unwrap().is_some() {}
        ends.push(reader.end());
    }
    let verdict = recovering.verdict(&ends).unwrap();
    let (rows, _, wrong) = hyades::inspect::examine_checkpoint(&recovering);
    assert!(rows == 300 && wrong.is_empty(), "{rows} {wrong:?}");
    let start = recovering.start(hyades_wal::IncarnationSettings::default(), &verdict, 1);
    assert!(start.unwrap_err().to_string().contains("reading only"));
    drop(damaged);

    let to = root.path().join("restored");
    let with_device = on(Arc::clone(&device));
    let report = with_device.restore(&Restore::new(vec![db.clone()], &to)).unwrap();
    assert_eq!(report.rows, 500);
    let restored = builder().open(&to).unwrap();
    let count = restored
        .try_transact(|tx| Ok::<_, Abort>(tx.get(COUNTERS, 499i64)?.map(|row| row.get(COUNT))));
    assert_eq!(count.unwrap().unwrap(), Some(1497));

    let error = on(device).open(&db).err().unwrap();
    assert!(matches!(error, Error::Log(hyades_wal::Error::ReadOnly { .. })), "{error}");
    assert!(error.to_string().contains("read-only"), "{error}");
    // The failed attempt has left nothing that disturbs a later opening.
    builder().open(&db).unwrap();
}

#[test]
fn readers_do_not_disturb_each_other_and_keep_writers_out() {
    let root = tempfile::tempdir().unwrap();
    let db = counters(root.path());
    let options = LogOptions::new(vec![db.clone()], 1);
    let first = hyades_wal::open_read(options.clone()).unwrap();
    let second = hyades_wal::open_damaged(options.clone()).unwrap();
    let in_use = |error: &hyades_wal::Error| matches!(error, hyades_wal::Error::InUse { .. });
    let writer = builder().open(&db).err().unwrap();
    assert!(matches!(&writer, Error::Log(error) if in_use(error)), "{writer}");
    drop((first, second));
    let _open = builder().open(&db).unwrap();
    assert!(in_use(&hyades_wal::open_read(options).unwrap_err()));
    let missing = root.path().join("missing");
    hyades_wal::open_read(LogOptions::new(vec![missing.clone()], 1)).unwrap_err();
    assert!(!missing.exists(), "a reader makes no directory");
}

#[test]
fn a_members_database_is_read_and_not_opened_without_its_replicated_log() {
    let root = tempfile::tempdir().unwrap();
    let db = counters(root.path());
    builder().open(&db).unwrap().close().unwrap();
    let options = LogOptions::new(vec![db.clone()], 1);
    let uuid = hyades_wal::open_read(options.clone()).unwrap().manifest().uuid();
    drop(hyades_wal::Mirror::open(options, "n1", uuid).unwrap());

    let error = builder().open(&db).err().unwrap();
    assert!(matches!(error, Error::Log(hyades_wal::Error::Invalid(_))), "{error}");
    assert!(error.to_string().contains("member \"n1\" of a replicated database"), "{error}");
    let to = root.path().join("restored");
    let report = builder().restore(&Restore::new(vec![db], &to)).unwrap();
    assert_eq!(report.rows, 500);
    builder().open(&to).unwrap();
}
