//! Promise: the memory of snapshots is bounded and freed, and writers go on.
#![allow(missing_docs)]

mod common;
use common::directory;
use common::grouped::{BY_GROUP, COUNT, GROUP, ROWS, TEXT, open, row, schema, text};
use hyades::{Abort, Columns, Concurrency, Database, Error, Protocol, Session, Transaction};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

#[test]
fn a_snapshot_ends_when_versions_take_too_much_memory_and_writers_go_on() {
    for (limit, protocol) in [(32 << 20, Protocol::Taurus), (64 << 20u64, Protocol::None)] {
        let dir = directory();
        let mut builder = Database::builder().protocol(protocol);
        builder = builder.snapshots(|limits| limits.memory = limit);
        builder.table(schema(true));
        let db = builder.open(dir.path()).unwrap();
        let text = text(40_000);
        let put_all = |from: i64| {
            let put = |tx: &Transaction<'_>| {
                (from..from + 1000).try_for_each(|id| tx.overwrite(ROWS, &row(id, 0, &text)))
            };
            db.try_transact(put).unwrap().unwrap();
        };
        put_all(0);
        put_all(1000);
        let first = db.open_snapshot();
        let get = |tx: &Transaction<'_>| Ok(tx.get(ROWS, 0i64)?.is_some());
        assert!(first.read(get).unwrap());
        // About 40 MB of versions.
        put_all(0);
        let second = db.open_snapshot();
        let ended = limit < 40 << 20;
        match first.read(get) {
            Err(Error::Aborted(Abort::SnapshotEnded)) => assert!(ended),
            read => assert!(read.unwrap() && !ended),
        }
        let stats = db.stats();
        assert_eq!(
            (stats.snapshots_ended, stats.snapshots),
            (u64::from(ended), 2 - u64::from(ended))
        );
        assert!(second.read(get).unwrap());
        for _ in 0..4 {
            put_all(0);
            put_all(1000);
            assert!(
                db.stats().snapshot_bytes <= limit + (1 << 17),
                "{}",
                db.stats().snapshot_bytes
            );
        }
        drop((first, second));
        assert_eq!(db.stats().snapshots, 0);
        assert!(db.stats().snapshot_bytes <= 64 << 10, "one session's chunk remains");
        db.close().unwrap();
    }
}

#[test]
fn a_snapshot_ends_at_its_age() {
    let dir = directory();
    let age = Duration::from_millis(30);
    let mut builder = Database::builder().snapshots(|limits| limits.age = Some(age));
    builder.table(schema(true));
    let db = builder.open(dir.path()).unwrap();
    let snapshot = db.open_snapshot();
    assert!(snapshot.read(|tx| Ok(tx.get(ROWS, 1i64)?.is_none())).unwrap());
    std::thread::sleep(age);
    let mut session = db.session().unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while db.stats().snapshots_ended == 0 {
        assert!(Instant::now() < until, "it was never ended");
        session.submit(|tx| Ok(tx.overwrite(ROWS, &row(1, 1, ""))?)).unwrap().1.wait().unwrap();
    }
    let error = snapshot.read(|tx| Ok(tx.get(ROWS, 1i64)?.is_none())).unwrap_err();
    assert!(matches!(error, Error::Aborted(Abort::SnapshotEnded)), "{error}");
    assert!(error.to_string().contains("open another one"), "{error}");
}

/// Each row that a reader is shown while its snapshot is ended for lack of memory is of the
/// snapshot, and whole: then follows the error.
#[test]
fn rows_of_a_snapshot_that_is_being_ended_are_whole() {
    const COUNT_OF_ROWS: i64 = 1500;
    let dir = directory();
    let mut builder = Database::builder().protocol(Protocol::None);
    builder = builder.snapshots(|limits| limits.memory = 32 << 20);
    builder.table(schema(false));
    let db = builder.open(dir.path()).unwrap();
    let put_all = |version: u8| {
        let text = String::from_utf8(vec![version; 40_000]).unwrap();
        for id in 0..COUNT_OF_ROWS {
            db.transact(|tx| Ok(tx.overwrite(ROWS, &row(id, 0, &text))?)).unwrap();
        }
    };
    put_all(b'a');
    let (mut seen, mut ended) = (0, 0);
    for round in 1..20u8 {
        let (before, after) = (b'a' + round - 1, b'a' + round);
        let snapshot = db.open_snapshot();
        std::thread::scope(|scope| {
            scope.spawn(|| put_all(after));
            loop {
                let scanned = snapshot.for_each(ROWS, Columns::ALL, |row| {
                    let text = row.get(TEXT).as_bytes();
                    assert!(text.len() == 40_000 && text.iter().all(|byte| *byte == before));
                    seen += 1;
                });
                match scanned {
                    Ok(rows) => assert_eq!(rows, COUNT_OF_ROWS as u64),
                    Err(Error::Aborted(Abort::SnapshotEnded)) => break ended += 1,
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }
    assert!(seen > 1000 && ended == 19, "{seen} {ended}");
}

#[test]
fn settings_are_checked_at_their_limits() {
    let dir = directory();
    let open = |memory: u64, age: Option<Duration>| {
        let mut builder = Database::builder();
        builder = builder.snapshots(|limits| (limits.memory, limits.age) = (memory, age));
        builder.table(schema(true));
        builder.open(dir.path()).map(drop)
    };
    assert!(matches!(open((32 << 20) - 1, None), Err(Error::Misuse(_))));
    assert!(matches!(open(32 << 20, Some(Duration::ZERO)), Err(Error::Misuse(_))));
    open(32 << 20, Some(Duration::MAX)).unwrap();
    open(u64::MAX, Some(Duration::from_nanos(1))).unwrap();
}

#[test]
fn a_row_is_kept_once_however_often_it_is_overwritten() {
    let dir = directory();
    let db = open(dir.path(), (Protocol::Taurus, Concurrency::Silo), true);
    let text = text(1000);
    db.transact(|tx| Ok(tx.overwrite(ROWS, &row(1, 0, &text))?)).unwrap();
    let _snapshot = db.open_snapshot();
    let mut session = db.session().unwrap();
    for n in 0..2000i64 {
        session.try_submit(|tx| tx.update(ROWS, 1i64, &[COUNT.set(n)])).unwrap().0.unwrap();
        if n % 100 == 0 {
            // Epochs pass.
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    assert!(db.stats().snapshot_bytes <= 64 << 10, "{}", db.stats().snapshot_bytes);
}

/// Deleted rows, and entries of changed rows, stay while a snapshot needs them, and go after.
#[test]
fn garbage_waits_for_snapshots_and_costs_little_meanwhile() {
    let dir = directory();
    let db = open(dir.path(), (Protocol::Taurus, Concurrency::Silo), false);
    let rows = 20_000i64;
    for from in (0..rows).step_by(1000) {
        let put = |tx: &Transaction<'_>| {
            (from..from + 1000).try_for_each(|id| tx.overwrite(ROWS, &row(id, 0, "")))
        };
        db.try_transact(put).unwrap().unwrap();
    }
    let snapshot = db.open_snapshot();
    let mut session = db.session().unwrap();
    for id in 0..rows {
        let change = |tx: &Transaction<'_>| {
            tx.update(ROWS, id, &[GROUP.set(1)])?;
            if id % 2 == 0 { tx.delete(ROWS, id) } else { Ok(true) }
        };
        session.try_submit(change).unwrap().0.unwrap();
    }
    assert!(db.stats().garbage >= rows as u64, "{}", db.stats().garbage);
    let count = |tx: &Transaction<'_>| {
        let by_index = tx.scan_index(ROWS, BY_GROUP).prefix(&[0i64.into()]).rows()?.len();
        Ok((tx.scan(ROWS).columns(Columns::ALL).rows()?.len(), by_index))
    };
    assert_eq!(snapshot.read(count).unwrap(), (rows as usize, rows as usize));
    let mut read_some = || {
        let began = Instant::now();
        for id in 0..2000i64 {
            session.try_submit(|tx| tx.get(ROWS, id).map(drop)).unwrap().0.unwrap();
        }
        began.elapsed()
    };
    // On a busy machine one of some tries is quick.
    let is_quick = (0..5).any(|_| read_some() < Duration::from_secs(2));
    assert!(is_quick, "2,000 transactions take seconds beside garbage");
    drop(snapshot);
    until_garbage_is_gone(&db, &mut session);
}

/// Transactions of the pool's sessions share memory for kept versions.
#[test]
fn a_transaction_of_the_pool_keeps_no_more_than_what_it_overwrites() {
    let dir = directory();
    let db = open(dir.path(), (Protocol::Taurus, Concurrency::Silo), true);
    for id in 0..300i64 {
        db.transact(|tx| Ok(tx.overwrite(ROWS, &row(id, 0, ""))?)).unwrap();
    }
    let _snapshot = db.open_snapshot();
    for id in 0..300i64 {
        db.transact(|tx| Ok(tx.update(ROWS, id, &[GROUP.set(1)])?)).unwrap();
    }
    assert_eq!(db.stats().old_versions, 300);
    assert!(db.stats().snapshot_bytes <= 128 << 10, "{}", db.stats().snapshot_bytes);
}

/// A body that panics closes its snapshot, and garbage does not wait for a snapshot without users.
#[test]
fn nothing_waits_for_a_snapshot_that_is_over() {
    let dir = directory();
    let db = open(dir.path(), (Protocol::Taurus, Concurrency::Silo), true);
    let mut session = db.session().unwrap();
    let body = |_: &Transaction<'_>| -> Result<(), Error> { resume_unwind(Box::new("a test")) };
    catch_unwind(AssertUnwindSafe(|| session.snapshot(body).map(drop))).unwrap_err();
    assert_eq!(db.stats().snapshots, 0);
    for id in 0..1000i64 {
        session.try_submit(|tx| tx.overwrite(ROWS, &row(id, 0, ""))).unwrap().0.unwrap();
        session.try_submit(|tx| tx.delete(ROWS, id)).unwrap().0.unwrap();
    }
    db.snapshot(|_| Ok(())).unwrap();
    // Aborted insertions leave garbage, and write nothing.
    let give_up = |tx: &Transaction<'_>| {
        tx.insert(ROWS, &row(5000, 0, ""))?;
        Err::<(), _>(Abort::User(1))
    };
    for _ in 0..100 {
        assert_eq!(session.try_submit(give_up).unwrap().0, Err(Abort::User(1)));
    }
    until_garbage_is_gone(&db, &mut session);
}

/// Reads until no garbage is left: transactions without writes free garbage, too.
fn until_garbage_is_gone(db: &Database, session: &mut Session) {
    let until = Instant::now() + Duration::from_secs(30);
    while db.stats().garbage > 0 {
        assert!(Instant::now() < until, "{} items are left", db.stats().garbage);
        for id in 0..100i64 {
            session.try_submit(|tx| tx.get(ROWS, id).map(drop)).unwrap().0.unwrap();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Readers that hold the log's last free slots do not make transactions wait for ever.
#[test]
fn a_transaction_inside_a_snapshot_without_a_free_slot_is_an_error() {
    let dir = directory();
    let db = open(dir.path(), (Protocol::Taurus, Concurrency::Silo), true);
    let mut sessions = Vec::new();
    while let Ok(session) = db.session() {
        sessions.push(session);
    }
    sessions.pop();
    let inner =
        db.snapshot(|_| Ok(db.transact(|tx| Ok(tx.overwrite(ROWS, &row(1, 0, ""))?)))).unwrap();
    assert!(matches!(inner, Err(Error::Log(_))), "{inner:?}");
    drop(sessions);
    db.snapshot(|_| db.transact(|tx| Ok(tx.overwrite(ROWS, &row(1, 0, ""))?))).unwrap();
}
