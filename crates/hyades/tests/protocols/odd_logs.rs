//! Logs whose directories and segments have had an unusual life: the logs open, are copied, and
//! take checkpoints.

use crate::common::held::HeldDevice;
use crate::common::{directory, files};
use hyades::{Abort, Builder, Column, Database, Schema, Table, Transaction, Type};
use hyades_platform::device::{Device, FileDevice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ROWS: Table = Table::nth(0);
const TEXT: Column<[u8]> = Column::at(1);

fn builder(streams: usize, more: Option<&Path>) -> Builder {
    let mut builder = Database::builder().streams(streams).log_settings(|log| {
        log.segment_bytes = 1 << 18;
        log.buffer_bytes = 1 << 16;
        log.dirs = more.map(Path::to_owned).into_iter().collect();
    });
    let schema = Schema::new("rows").column("id", Type::I64).column("text", Type::Bytes);
    builder.table(schema.primary_key(&["id"]));
    builder
}

fn put(db: &Database, id: i64, length: usize) {
    let text = vec![id as u8; length];
    let row = |tx: &Transaction<'_>| tx.upsert(ROWS, &[id.into(), (&text[..]).into()]).map(drop);
    db.transact(|tx| Ok(row(tx)?)).unwrap();
}

fn length(db: &Database, id: i64) -> Option<usize> {
    let row =
        |tx: &Transaction<'_>| Ok::<_, Abort>(tx.get(ROWS, id)?.map(|row| row.get(TEXT).len()));
    db.try_transact(row).unwrap().unwrap()
}

/// The data left by a crash in a short segment is copied to another short segment, which is retired
/// and used again, and is too short for the first frame that should go there.
#[test]
fn a_log_with_segments_that_were_passed_over_is_copied() {
    let (dir, to) = (directory(), directory());
    let db = builder(1, None).open(dir.path()).unwrap();
    put(&db, 0, 10);
    // Not closed.
    drop(db);
    for life in 0..3 {
        let db = builder(1, None).open(dir.path()).unwrap();
        put(&db, 1, 10);
        db.checkpoint().unwrap();
        for id in 2..40 {
            put(&db, id, 30_000);
        }
        let copy = to.path().join(format!("copy {life}"));
        db.backup(&copy).unwrap();
        let digest = db.digest();
        drop(db);
        let copied = builder(1, None).open(&copy).unwrap();
        assert_eq!(copied.digest(), digest);
    }
}

/// The second directory is emptied while the log does without it, and then used again.
#[test]
fn a_directory_that_was_emptied_is_a_new_one() {
    let (dir, second) = (directory(), directory());
    let second: PathBuf = second.path().join("second");
    drop(builder(1, None).open(dir.path()).unwrap());
    let db = builder(1, Some(&second)).open(dir.path()).unwrap();
    put(&db, 1, 10);
    db.close().unwrap();
    let db = builder(1, None).open(dir.path()).unwrap();
    put(&db, 2, 10);
    db.close().unwrap();
    std::fs::remove_dir_all(&second).unwrap();
    let db = builder(1, Some(&second)).open(dir.path()).unwrap();
    put(&db, 3, 10);
    db.checkpoint().unwrap();
    db.close().unwrap();
    let db = builder(1, Some(&second)).open(dir.path()).unwrap();
    assert_eq!([1, 2, 3].map(|id| length(&db, id)), [Some(10); 3]);
    db.checkpoint().unwrap();
}

/// The disk is full while the manifest is written: the old manifest counts, and the next checkpoint
/// is taken when there is room again.
#[test]
fn a_manifest_that_was_not_written_leaves_checkpoints_possible() {
    let dir = directory();
    let device = HeldDevice::new(FileDevice::shared());
    let held: Arc<dyn Device> = Arc::new(device.clone());
    let builder = builder(1, None).log_settings(|log| log.device = Some(held));
    let db = builder.open(dir.path()).unwrap();
    put(&db, 1, 10);
    db.checkpoint().unwrap();
    put(&db, 2, 10);
    device.refuse("MANIFEST.tmp");
    let error = db.checkpoint().unwrap_err().to_string();
    assert!(error.contains("MANIFEST, which is as it was"), "{error}");
    let parts = || {
        let all = files(dir.path()).into_iter();
        all.filter(|path| path.to_string_lossy().contains("/checkpoint-")).count()
    };
    assert_eq!(parts(), 1, "the files of the one that failed are removed");
    device.accept();
    assert_eq!(db.checkpoint().unwrap().number, 2);
    assert_eq!(parts(), 1);
}
