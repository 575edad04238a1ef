//! Promise: a long transaction or a long visitor does not keep without bound the rows removed
//! meanwhile, and an error reports the cause.
#![allow(missing_docs)]

mod common;
use common::directory;
use hyades::{Abort, Columns, Database, Error, Protocol, Schema, Table, Type, Value};
use hyades_platform::resident::resident_bytes;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const ROWS: Table = Table::nth(0);
const LIMIT: u64 = 32 << 20;

/// One test at a time: removed rows are counted for the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open(dir: &std::path::Path) -> Database {
    let mut builder = Database::builder().protocol(Protocol::None).removed_limit(LIMIT);
    let schema = Schema::new("rows").column("id", Type::I64).column("text", Type::Text);
    builder.table(schema.primary_key(&["id"]));
    let db = builder.open(dir).unwrap();
    replace(&db, 0).unwrap();
    db
}

/// Removes 50 rows of 1,000 bytes, and inserts as many.
fn replace(db: &Database, n: i64) -> Result<(), Error> {
    let text = "x".repeat(1_000);
    db.transact(|tx| {
        for id in 0..50 {
            if n > 0 {
                tx.delete(ROWS, (n - 1) * 50 + id)?;
            }
            tx.insert(ROWS, &[(n * 50 + id).into(), Value::Text(&text)])?;
        }
        Ok(())
    })
}

/// Runs `replace` on another thread until `run` has ended. Returns the result of `run`, the most
/// bytes that waited meanwhile, and the first error.
fn beside<T>(db: &Database, run: impl FnOnce() -> T) -> (T, u64, Option<Error>) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let (mut most, mut failed) = (0, None);
            for n in 1.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let result = replace(db, n);
                most = most.max(db.stats().removed_bytes);
                if result.is_err() {
                    failed = result.err();
                    break;
                }
            }
            (most, failed)
        });
        let result = run();
        stop.store(true, Ordering::Relaxed);
        let (most, failed) = other.join().unwrap();
        (result, most, failed)
    })
}

#[test]
fn a_visitor_that_takes_long_keeps_nothing() {
    let _alone = alone();
    let dir = directory();
    let db = open(dir.path());
    let snapshot = db.open_snapshot();
    let (rows, most, failed) = beside(&db, || {
        // The rows held by the snapshot itself are another matter, see `SnapshotSettings`.
        snapshot.for_each(ROWS, Columns::ALL, |_| std::thread::sleep(Duration::from_millis(30)))
    });
    assert_eq!(rows.unwrap(), 50);
    assert!(failed.is_none(), "{failed:?}");
    assert!(most < LIMIT / 2, "{most} bytes of removed rows waited");
}

#[test]
fn a_body_that_goes_on_for_long_is_ended_and_others_go_on() {
    let _alone = alone();
    let dir = directory();
    let db = open(dir.path());
    let began = Instant::now();
    let (ended, most, failed) = beside(&db, || {
        db.transact(|tx| -> Result<(), Error> {
            loop {
                tx.get(ROWS, -1i64)?;
                std::thread::sleep(Duration::from_millis(1));
                assert!(began.elapsed() < Duration::from_secs(60), "it should have ended");
            }
        })
    });
    assert!(matches!(ended, Err(Error::Aborted(Abort::RanTooLong))), "{ended:?}");
    assert!(failed.is_none(), "{failed:?}");
    assert!(most < LIMIT + (8 << 20), "{most} bytes of removed rows waited");
}

#[test]
fn a_body_that_ignores_the_error_does_not_commit() {
    let _alone = alone();
    let dir = directory();
    let db = open(dir.path());
    let (ended, ..) = beside(&db, || {
        db.transact(|tx| {
            tx.insert(ROWS, &[(-5i64).into(), Value::Text("never")])?;
            while !matches!(tx.get(ROWS, -1i64), Err(Abort::RanTooLong)) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        })
    });
    assert!(matches!(ended, Err(Error::Aborted(Abort::RanTooLong))), "{ended:?}");
    assert!(db.transact(|tx| Ok(tx.get(ROWS, -5i64)?.is_none())).unwrap());
}

#[test]
fn while_a_body_does_nothing_others_are_refused_and_go_on_after_it() {
    let _alone = alone();
    let dir = directory();
    let db = open(dir.path());
    let refused = AtomicBool::new(false);
    let ((), most, failed) = beside(&db, || {
        let slept = db.transact(|tx| {
            tx.get(ROWS, 1i64)?;
            let began = Instant::now();
            while db.stats().removed_bytes < LIMIT || !refused.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(10));
                refused.store(began.elapsed() > Duration::from_secs(8), Ordering::Relaxed);
            }
            assert!(db.stats().oldest_pin > Duration::from_secs(2));
            Ok(())
        });
        assert!(matches!(slept, Err(Error::Aborted(Abort::RanTooLong))), "{slept:?}");
    });
    assert!(matches!(failed, Some(Error::RemovedRows { .. })), "{failed:?}");
    assert!(most < LIMIT + (8 << 20), "{most} bytes of removed rows waited");
    db.transact(|tx| Ok(tx.insert(ROWS, &[(-7i64).into(), Value::Text("again")])?)).unwrap();
    for _ in 0..4_000 {
        db.transact(|tx| Ok(tx.get(ROWS, -7i64)?.is_some())).unwrap();
    }
    assert!(db.stats().removed_bytes < LIMIT / 2, "readers free it, too");
}

/// A row inserted by a transaction is removed again by its abort, or by a rollback to before the
/// insert. Neither commits a write, so neither is refused.
#[test]
fn while_a_body_does_nothing_aborts_and_rollbacks_wait() {
    let _alone = alone();
    for rolls_back in [false, true] {
        let dir = directory();
        let db = open(dir.path());
        let text = "x".repeat(1_000);
        let take_back = |n: i64| {
            let ended = db.transact(|tx| {
                let before = tx.savepoint();
                for id in 0..50 {
                    tx.insert(ROWS, &[(n * 50 + id + 1_000).into(), Value::Text(&text)])?;
                }
                if rolls_back { Ok(tx.rollback_to(before)?) } else { Err(Abort::User(7).into()) }
            });
            let is_expected = match &ended {
                Ok(()) => rolls_back,
                Err(error) => matches!(error, Error::Aborted(Abort::User(7))),
            };
            assert!(is_expected, "{ended:?}");
        };
        let (stop, most) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in (0..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    take_back(n);
                    most.fetch_max(db.stats().removed_bytes, Ordering::Relaxed);
                }
            });
            let slept = db.transact(|tx| {
                tx.get(ROWS, 1i64)?;
                std::thread::sleep(Duration::from_secs(4));
                Ok(())
            });
            assert!(matches!(slept, Err(Error::Aborted(Abort::RanTooLong))), "{slept:?}");
            stop.store(true, Ordering::Relaxed);
        });
        let most = most.into_inner();
        assert!(most > LIMIT / 2, "the limit was reached: {most}");
        assert!(most < LIMIT + (8 << 20), "{most} bytes of removed rows waited");
    }
}

#[test]
fn what_a_large_deletion_left_is_freed_with_the_database() {
    let _alone = alone();
    let dir = directory();
    let db = open(dir.path());
    let mut session = db.session().unwrap();
    for from in (1_000..201_000).step_by(20_000) {
        let inserted = session.submit(|tx| {
            for id in from..from + 20_000i64 {
                tx.insert(ROWS, &[id.into(), Value::Text("some text")])?;
            }
            Ok(())
        });
        inserted.unwrap().1.wait().unwrap();
    }
    let deleted = session.submit(|tx| {
        (1_000..201_000i64).try_for_each(|id| tx.delete(ROWS, id).map(|_| ()))?;
        Ok(())
    });
    deleted.unwrap().1.wait().unwrap();
    drop((session, db));
    let other = open(directory().path());
    assert!(other.stats().removed_bytes < 1 << 20, "{}", other.stats().removed_bytes);
}

/// The limit bounds the memory of the process, not only the bytes counted by the engine: small
/// rows, whose overhead is most of their memory, removed in each way while a body does nothing.
#[test]
fn resident_memory_stays_near_the_limit() {
    let _alone = alone();
    let dir = directory();
    let mut builder = Database::builder().protocol(Protocol::None).removed_limit(LIMIT);
    let schema = Schema::new("small").column("id", Type::I64).column("group", Type::I64);
    let schema = schema.column("text", Type::Text).primary_key(&["id"]);
    builder.table(schema.index("by_group", &["group"]));
    let db = builder.open(dir.path()).unwrap();
    let insert = |tx: &hyades::Transaction<'_>, n: i64| {
        (0..50).try_for_each(|id| {
            let row =
                [(n * 50 + id).into(), n.into(), Value::Text("forty bytes, more or less, of text")];
            tx.insert(ROWS, &row).map(drop)
        })
    };
    for way in ["abort", "roll back", "delete"] {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in (0..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    let ended = db.transact(|tx| {
                        let before = tx.savepoint();
                        insert(tx, n)?;
                        match way {
                            "abort" => return Err(Abort::User(7).into()),
                            "roll back" => tx.rollback_to(before)?,
                            _ if n > 0 => (0..50)
                                .try_for_each(|id| tx.delete(ROWS, (n - 1) * 50 + id).map(drop))?,
                            _ => {}
                        }
                        Ok(())
                    });
                    match ended {
                        Ok(()) | Err(Error::Aborted(Abort::User(7))) => {}
                        Err(Error::RemovedRows { .. }) if way == "delete" => break,
                        Err(error) => panic!("{way}: {error}"),
                    }
                }
            });
            let before = resident_bytes();
            let (mut most, began) = (0, Instant::now());
            let slept = db.transact(|tx| {
                tx.get(ROWS, -1i64)?;
                while began.elapsed() < Duration::from_secs(3) {
                    most = most.max(resident_bytes());
                    std::thread::sleep(Duration::from_millis(10));
                }
                Ok(())
            });
            stop.store(true, Ordering::Relaxed);
            assert!(matches!(slept, Err(Error::Aborted(Abort::RanTooLong))), "{way}: {slept:?}");
            let grown = most.saturating_sub(before);
            assert!(grown < 2 * LIMIT + (32 << 20), "{way}: {} MB more", grown >> 20);
        });
        db.transact(|tx| {
            let rows = tx.scan(ROWS).rows()?;
            let id = |row: &hyades::Row<'_>| row.get(hyades::Column::<i64>::at(0));
            rows.iter().try_for_each(|row| tx.delete(ROWS, id(row)).map(drop))?;
            Ok(())
        })
        .unwrap();
    }
}
