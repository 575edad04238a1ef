//! Logging row by row. Promise: a transaction is recovered if its last frame is durable, and undone
//! otherwise.

use crate::common::{directory, files, power_cut};
use hyades::{Abort, Column, Concurrency, Database, Schema, Table, Type};
use hyades_platform::device::Device;
use hyades_schemes::{PARTITIONED, PHYSIOLOGICAL};
use std::path::Path;
use std::sync::Arc;

const ROWS: Table = Table::nth(0);
const NOTES: Table = Table::nth(1);
const GROUP: Column<i32> = Column::at(1);
const TEXT: Column<[u8]> = Column::at(2);

#[derive(Clone, Copy, Debug)]
struct Form {
    undo: bool,
    concurrency: Concurrency,
    threads: usize,
}

fn forms() -> impl Iterator<Item = Form> {
    [true, false].into_iter().flat_map(|undo| {
        [(Concurrency::Silo, 1), (Concurrency::NoWait, 3)].map(|(concurrency, threads)| Form {
            undo,
            concurrency,
            threads,
        })
    })
}

fn open(dir: &Path, form: Form) -> Database {
    open_on(dir, form, None)
}

fn open_on(dir: &Path, form: Form, device: Option<Arc<dyn Device>>) -> Database {
    let mut builder = Database::builder()
        .protocol(PHYSIOLOGICAL)
        .concurrency(form.concurrency)
        .recovery_threads(form.threads)
        .streams(1)
        .log_settings(|log| {
            log.research.undo = form.undo;
            log.device = device;
            log.buffer_bytes = 1 << 14;
            log.segment_bytes = 1 << 20;
        });
    builder.table(
        Schema::new("rows")
            .column("id", Type::I32)
            .column("group", Type::I32)
            .column("text", Type::Bytes)
            .primary_key(&["id"])
            .index("by_group", &["group"]),
    );
    builder.table(Schema::new("notes").column("text", Type::Bytes));
    builder.open(dir).unwrap()
}

/// Inserts twenty rows and deletes half of the rows. The texts of some do not fit a frame.
fn populate(db: &Database) {
    for id in 0..20i32 {
        let text = vec![id as u8 + 1; if id % 5 == 0 { 9_000 } else { 30 }];
        let insert = |tx: &hyades::Transaction<'_>| {
            tx.insert(ROWS, &[id.into(), (id % 3).into(), text[..].into()])
        };
        db.try_transact(insert).unwrap().unwrap();
    }
    for id in (1..20i32).step_by(2) {
        db.try_transact(|tx| tx.delete(ROWS, id)).unwrap().unwrap();
    }
    db.log().unwrap().flush().unwrap();
}

/// Runs one transaction with every kind of change, including long ones.
fn change(db: &Database) {
    let long = vec![99; 7_000];
    db.try_transact(|tx| {
        tx.update(ROWS, 2, &[GROUP.set(7)])?;
        tx.update(ROWS, 4, &[GROUP.set(8), TEXT.set(&[1, 2, 3])])?;
        tx.update(ROWS, 5 * 2, &[TEXT.set(&long[..])])?;
        tx.delete(ROWS, 6)?;
        tx.delete(ROWS, 0)?;
        tx.insert(ROWS, &[0.into(), 5.into(), [5; 5][..].into()])?;
        tx.insert(ROWS, &[1.into(), 7.into(), long[..].into()])?;
        tx.insert(ROWS, &[300.into(), 7.into(), [8; 8][..].into()])?;
        tx.insert(NOTES, &[[3; 3][..].into()])
    })
    .unwrap()
    .unwrap();
}

/// The newest segment with content, and its last byte before the padding. The byte belongs to the
/// last frame.
fn last_byte(dir: &Path) -> (std::path::PathBuf, usize) {
    let segments = files(dir).into_iter().filter(|path| path.to_string_lossy().contains("stream"));
    let mut begun: Vec<_> = segments
        .filter_map(|path| {
            let bytes = std::fs::read(&path).unwrap();
            let last = bytes.iter().rposition(|byte| *byte != 0)?;
            Some((path, last))
        })
        .collect();
    begun.sort();
    begun.pop().expect("something was written")
}

/// Makes the last frame of the log invalid, as a torn write does.
fn tear(dir: &Path) {
    let (path, at) = last_byte(dir);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[at] ^= 0x55;
    std::fs::write(&path, bytes).unwrap();
}

#[test]
fn a_transaction_with_its_last_frame_is_recovered() {
    for form in forms() {
        let dir = directory();
        let db = open(dir.path(), form);
        populate(&db);
        change(&db);
        let digest = db.digest();
        drop(db);
        let db = open(dir.path(), form);
        assert_eq!((db.digest(), db.recovery().dead), (digest, 0), "{form:?}");
    }
}

#[test]
fn a_transaction_without_its_last_frame_is_undone_again_and_again() {
    for form in forms() {
        let dir = directory();
        let db = open(dir.path(), form);
        populate(&db);
        let before = db.digest();
        drop(db);
        // The change is in an incarnation of its own, whose last record is then lost.
        let device = power_cut(1);
        let db = open_on(dir.path(), form, Some(Arc::new(device.clone())));
        assert_eq!(db.digest(), before, "{form:?}");
        change(&db);
        assert_ne!(db.digest(), before);
        // A crash, because a clean shutdown would record the end of the log.
        device.cut();
        drop(db);
        tear(dir.path());
        let db = open(dir.path(), form);
        assert_eq!((db.digest(), db.recovery().dead), (before, 1), "{form:?}");
        // Later transactions change the same rows, and must be kept when the log is replayed again.
        change(&db);
        let after = db.digest();
        assert_ne!(after, before);
        drop(db);
        for _ in 0..2 {
            let db = open(dir.path(), form);
            assert_eq!((db.digest(), db.recovery().dead), (after, 1), "{form:?}");
            let rows = db.try_transact(|tx| Ok::<_, Abort>(tx.scan(ROWS).rows()?.len()));
            let rows = rows.unwrap().unwrap();
            assert_eq!(rows, 11, "{form:?}");
            drop(db);
        }
    }
}

#[test]
fn before_images_are_logged_only_where_they_are_wanted() {
    let bytes = |undo: bool| {
        let dir = directory();
        let db = open(dir.path(), Form { undo, concurrency: Concurrency::Silo, threads: 1 });
        populate(&db);
        let before = db.stats().log_bytes;
        change(&db);
        db.stats().log_bytes - before
    };
    let (both, after) = (bytes(true), bytes(false));
    // Two rows of 9,000 bytes are deleted or changed, one of them in a column of that size.
    assert!(both > after + 18_000, "{both} {after}");
}

#[test]
fn what_it_cannot_recover_is_refused_with_what_it_can() {
    let dir = directory();
    let refuse = |change: &dyn Fn(hyades::Builder) -> hyades::Builder| {
        let builder = Database::builder().protocol(PHYSIOLOGICAL).streams(1);
        change(builder).open(dir.path()).err().expect("it is refused").to_string()
    };
    for record in [hyades::RecordKind::Command, hyades::RecordKind::Adaptive] {
        let why = refuse(&|builder| builder.record(record));
        assert!(why.contains("record to data"), "{why}");
    }
    let why = refuse(&|builder| builder.streams(2));
    assert!(why.contains("set streams to 1"), "{why}");
}

/// An experiment's log states that recovery is impossible, and has the stated size.
#[test]
fn a_log_with_cut_changes_is_refused() {
    let dir = crate::common::directory();
    let open = |cut: Option<usize>| {
        let mut builder = hyades::Database::builder().protocol(PHYSIOLOGICAL);
        builder = builder.streams(1).log_settings(|log| log.research.cut_changes = cut);
        let schema = hyades::Schema::new("rows").column("id", hyades::Type::I64);
        let schema = schema.column("text", hyades::Type::Text).primary_key(&["id"]);
        let rows = builder.table(schema);
        (builder.open(dir.path()), rows)
    };
    let written = |cut: Option<usize>, from: i64| {
        let (db, rows) = open(cut);
        let db = db.unwrap();
        let text = "x".repeat(500);
        for id in from..from + 20 {
            db.transact(|tx| {
                tx.insert(rows, &[(2 * id).into(), text[..].into()])?;
                Ok(tx.insert(rows, &[(2 * id + 1).into(), text[..].into()])?)
            })
            .unwrap();
        }
        let bytes = db.stats().log_bytes;
        db.close().unwrap();
        bytes
    };
    assert!(written(None, 0) > 20 * 1000);
    assert!(written(Some(1), 100) < 20 * 120);
    for cut in [None, Some(100)] {
        let refused = open(cut).0.err().expect("it is cut").to_string();
        assert!(refused.contains("cut to 1 bytes"), "{refused}");
    }
    assert!(matches!(open(Some(0)).0, Err(hyades::Error::Misuse(_))));
}

/// A vote of Voter, with its caller's count: 81 bytes in the paper (section V-C). Ours is a byte or
/// two longer where epochs and positions have more digits than here.
#[test]
fn a_vote_takes_no_more_bytes_than_in_the_paper() {
    const VOTES: usize = 2000;
    let dir = directory();
    let mut builder = Database::builder()
        .protocol(PHYSIOLOGICAL)
        .concurrency(PARTITIONED)
        .streams(1)
        .log_settings(|log| log.research.undo = false);
    let votes = Schema::new("votes").column("phone", Type::I64).column("state", Type::Fixed(2));
    let votes = builder.table(votes.column("contestant", Type::I32).partition_by("phone"));
    let callers = Schema::new("votes_by_phone").column("phone", Type::I64);
    let callers = callers.column("votes", Type::I32).primary_key(&["phone"]);
    let callers = builder.table(callers.partition_by("phone"));
    let db = builder.open(dir.path()).unwrap();
    let mut session = db.session().unwrap();
    for phone in 0..VOTES as i64 {
        let (voted, _) = session
            .try_submit(|tx| {
                tx.insert(votes, &[phone.into(), (b"MA").into(), 3i32.into()])?;
                tx.overwrite(callers, &[phone.into(), 1i32.into()])
            })
            .unwrap();
        voted.unwrap();
    }
    db.log().unwrap().flush().unwrap();
    let bytes = db.stats().log_bytes as f64 / VOTES as f64;
    // Two rows and a record: three frames of 6 bytes, a row of 14 bytes and a row of 12.
    assert!((60.0..=79.0).contains(&bytes), "{bytes} bytes for each vote");
}
