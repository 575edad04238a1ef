//! Rows of every allowed size, in the log and in checkpoints. Promise: nothing acknowledged is
//! lost.

use crate::common::{PROTOCOLS, directory, files};
use hyades::{
    Abort, Builder, Column, Database, Error, Index, MAX_ROW_BYTES, Protocol, RecordKind, Schema,
    Table, Type, Value,
};
use hyades_platform::device::{Fault, FaultyDevice, FileDevice};
use std::path::Path;
use std::sync::Arc;

const ROWS: Table = Table::nth(0);
/// Bytes of a row besides its variable column: the key and the end offset of the column.
const FIXED_BYTES: usize = 12;

fn builder(protocol: Protocol, hash: bool) -> Builder {
    let one_stream = protocol.has_one_stream();
    let mut builder = Database::builder()
        .protocol(protocol)
        .record(RecordKind::Data)
        .streams(if one_stream { 1 } else { 2 })
        .checkpoint_settings(|settings| settings.share = 1.0)
        .log_settings(|log| log.segment_bytes = 4 << 20);
    let schema = Schema::new("rows").column("id", Type::I64).column("bytes", Type::Bytes);
    let schema = schema.primary_key(&["id"]);
    builder.table(if hash { schema.hash() } else { schema });
    builder
}

/// Inserts rows of this many bytes. The content of every second row compresses.
fn fill(db: &Database, rows: i64, bytes: usize) {
    let mut random = fastrand::Rng::with_seed(bytes as u64);
    let mut content = vec![0; bytes - FIXED_BYTES];
    for id in 0..rows {
        if id % 2 == 0 {
            random.fill(&mut content);
        } else {
            content.fill(id as u8);
        }
        db.try_transact(|tx| tx.insert(ROWS, &[id.into(), content[..].into()])).unwrap().unwrap();
    }
}

/// Takes a checkpoint of the rows, ends without closing the database, and checks the recovered
/// rows.
fn survives(protocol: Protocol, hash: bool, rows: i64, bytes: usize) {
    let what = format!("{protocol:?}, hash {hash}, {rows} rows of {bytes} bytes");
    let dir = directory();
    let db = builder(protocol, hash).open(dir.path()).unwrap();
    fill(&db, rows, bytes);
    let digest = db.digest();
    let report = db.checkpoint().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(report.rows, rows as u64, "{what}");
    // Rewritten after the checkpoint, so that replay continues above the image.
    fill_again(&db, bytes);
    let after = db.digest();
    drop(db);
    let again = builder(protocol, hash).open(dir.path());
    let again = again.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(again.digest(), after, "{what}");
    assert_ne!(digest, after, "{what}");
    let taken = again.checkpoint().unwrap();
    assert_eq!(taken.rows, rows as u64, "{what}");
    again.close().unwrap();
}

fn fill_again(db: &Database, bytes: usize) {
    let content = vec![b'x'; bytes - FIXED_BYTES];
    let again = |tx: &hyades::Transaction<'_>| {
        tx.delete(ROWS, 0i64)?;
        tx.insert(ROWS, &[0i64.into(), content[..].into()])
    };
    db.try_transact(again).unwrap().unwrap();
}

#[test]
fn rows_of_any_size_survive_a_checkpoint() {
    for hash in [false, true] {
        for (rows, bytes) in [(1000, 40_000), (700, 50_000), (40, 1 << 20), (5, 8 << 20)] {
            survives(Protocol::Taurus, hash, rows, bytes);
        }
    }
}

#[test]
fn rows_of_the_largest_size_survive_a_checkpoint() {
    for hash in [false, true] {
        survives(Protocol::Taurus, hash, 4, MAX_ROW_BYTES);
        survives(Protocol::Taurus, hash, 4, MAX_ROW_BYTES - 1);
    }
}

#[test]
fn large_rows_survive_a_checkpoint_under_every_protocol() {
    for (at, protocol) in PROTOCOLS.into_iter().enumerate() {
        survives(protocol, at.is_multiple_of(2), 40, 1 << 20);
    }
}

#[test]
fn one_byte_more_than_the_largest_row_is_refused() {
    let dir = directory();
    let db = builder(Protocol::Taurus, false).open(dir.path()).unwrap();
    let content = vec![0; MAX_ROW_BYTES - FIXED_BYTES + 1];
    let inserted =
        db.try_transact(|tx| tx.insert(ROWS, &[1i64.into(), content[..].into()])).unwrap();
    assert_eq!(inserted, Err(Abort::RowTooLarge { table: 0 }));
    assert_eq!(db.rows(), 0);
}

fn checkpoints_on_disk(dir: &Path) -> usize {
    let is_part = |path: &&std::path::PathBuf| {
        path.file_name().unwrap().to_string_lossy().starts_with("checkpoint-")
    };
    files(dir).iter().filter(is_part).count()
}

#[test]
fn a_checkpoint_that_does_not_read_back_does_not_count_and_nothing_is_truncated() {
    let mut refusals = 0;
    for write in 0.. {
        let dir = directory();
        let device = FaultyDevice::new(FileDevice::shared());
        let open = || builder(Protocol::Taurus, write % 2 == 0);
        let with = device.clone();
        let on_it = open().log_settings(|log| log.device = Some(Arc::new(with)));
        let db = on_it.open(dir.path()).unwrap();
        fill(&db, 60, 40_000);
        let digest = db.digest();
        device.arm(Fault::Flip { files: "checkpoint-", write });
        match db.checkpoint() {
            Err(error @ Error::CheckpointRefused { .. }) => {
                let text = error.to_string();
                assert!(
                    text.contains("no checkpoint was taken, and the log stays whole"),
                    "{text}"
                );
                assert!(text.contains("checkpoint-00000001-000"), "{text}");
                assert_eq!(checkpoints_on_disk(dir.path()), 0);
                assert_eq!(db.checkpoints().failed, 1);
                refusals += 1;
            }
            Err(error) => panic!("write {write}: {error}"),
            // The checkpoint has fewer writes.
            Ok(_) => break,
        }
        drop(db);
        let db = open().open(dir.path()).unwrap();
        assert_eq!(db.digest(), digest, "write {write}");
        db.checkpoint().unwrap();
        drop(db);
        assert_eq!(open().open(dir.path()).unwrap().digest(), digest, "write {write}");
    }
    // A header, and blocks of 256 KiB.
    assert!(refusals > 3, "only {refusals} writes");
}

/// The most columns of a table, of fixed widths, with indexes on some columns, and one nullable
/// column or none.
#[test]
fn indexes_of_a_table_with_the_most_columns() {
    const COLUMNS: i64 = 64;
    let by = [Index(0), Index(1)];
    for nullable in [false, true] {
        let mut schema = Schema::new("wide");
        for at in 0..COLUMNS {
            let name = format!("c{at}");
            schema = match nullable && at == 9 {
                true => schema.nullable(&name, Type::I64),
                false => schema.column(&name, Type::I64),
            };
        }
        let schema = schema.primary_key(&["c0"]).index("some", &["c5"]).unique("last", &["c63"]);
        let mut builder = builder(Protocol::Taurus, false);
        let wide = builder.table(schema);
        let dir = directory();
        let db = builder.open(dir.path()).unwrap();
        let row = |id: i64, last: i64| -> Vec<Value<'static>> {
            (0..COLUMNS).map(|at| [id * 100 + at, last][usize::from(at == 63)].into()).collect()
        };
        for id in 0..3 {
            db.try_transact(|tx| tx.insert(wide, &row(id, id))).unwrap().unwrap();
        }
        let found = |index: Index, value: i64| {
            let key = [value.into()];
            let rows = db.try_transact(|tx| {
                let rows = tx.scan_index(wide, index).prefix(&key).rows()?;
                Ok::<_, Abort>(rows.len())
            });
            rows.unwrap().unwrap()
        };
        assert_eq!((found(by[0], 105), found(by[1], 1), found(by[1], 9)), (1, 1, 0));
        let twice = db.try_transact(|tx| tx.insert(wide, &row(7, 1))).unwrap();
        assert!(matches!(twice, Err(Abort::DuplicateKey { .. })), "{twice:?}");
        let (some, last) = (Column::<i64>::at(5), Column::<i64>::at(63));
        let sets = [some.set(6), last.set(9)];
        assert!(db.try_transact(|tx| tx.update(wide, 100i64, &sets)).unwrap().unwrap());
        assert_eq!((found(by[0], 105), found(by[0], 6)), (0, 1));
        assert_eq!((found(by[1], 1), found(by[1], 9)), (0, 1));
    }
}
