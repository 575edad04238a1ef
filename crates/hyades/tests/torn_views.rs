//! The body of a transaction may read an inconsistent snapshot, because the transaction is
//! validated only at its end. Promise: no panic, result or error caused by an inconsistent snapshot
//! reaches the caller, and a body in a loop on such a snapshot is ended.
#![allow(missing_docs)]

mod common;
use common::directory;
use hyades::{Abort, Column, Concurrency, Database, Protocol, Schema, Table, Transaction, Type};
use hyades_schemes::{POPLAR, TICTOC};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const ROWS: Table = Table::nth(0);
const VALUE: Column<i64> = Column::at(1);
const LEFT: i64 = 0;
/// Always written together with the left row.
const RIGHT: i64 = 1;

const SHORT: Duration = Duration::from_millis(400);
/// Within this time an inconsistent snapshot occurs, however busy the machine is.
const LONG: Duration = Duration::from_secs(30);

fn open(dir: &std::path::Path, protocol: Protocol, concurrency: Concurrency) -> Database {
    let mut builder = Database::builder().protocol(protocol).concurrency(concurrency);
    let schema = Schema::new("rows").column("id", Type::I64).column("value", Type::I64);
    builder.table(schema.primary_key(&["id"]));
    let db = builder.open(dir).unwrap();
    let fill = |tx: &Transaction<'_>| {
        for id in [LEFT, RIGHT] {
            tx.insert(ROWS, &[id.into(), 0i64.into()])?;
        }
        Ok::<_, Abort>(())
    };
    db.try_transact(fill).unwrap().unwrap();
    db
}

fn value(tx: &Transaction<'_>, id: i64) -> Result<i64, Abort> {
    Ok(tx.get(ROWS, id)?.expect("it is never deleted").get(VALUE))
}

/// Runs `reader` while other threads update both rows. The two values are equal in every committed
/// state.
fn beside_writers(db: &Database, reader: impl FnOnce()) {
    let over = AtomicBool::new(false);
    let (over, db) = (&over, &db);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(move || {
                let mut session = db.session().unwrap();
                while !over.load(Ordering::Relaxed) {
                    let step = |tx: &Transaction<'_>| {
                        let next = value(tx, LEFT)? + 1;
                        tx.update(ROWS, LEFT, &[VALUE.set(next)])?;
                        tx.update(ROWS, RIGHT, &[VALUE.set(next)])?;
                        Ok::<_, Abort>(())
                    };
                    session.try_submit(step).unwrap().0.unwrap();
                }
            });
        }
        let read = catch_unwind(AssertUnwindSafe(reader));
        over.store(true, Ordering::Relaxed);
        if let Err(panic) = read {
            std::panic::resume_unwind(panic);
        }
    });
}

const PAIRS: [(Protocol, Concurrency); 6] = [
    (Protocol::Taurus, Concurrency::Silo),
    (Protocol::Taurus, Concurrency::NoWait),
    (Protocol::None, Concurrency::Silo),
    (POPLAR, Concurrency::Silo),
    (Protocol::Taurus, TICTOC),
    (Protocol::None, TICTOC),
];

/// Reads both rows, and yields between the reads so that a writer can run.
fn both(tx: &Transaction<'_>) -> Result<(i64, i64), Abort> {
    let left = value(tx, LEFT)?;
    std::thread::yield_now();
    Ok((left, value(tx, RIGHT)?))
}

#[test]
fn no_panic_result_or_error_comes_from_a_view_that_never_was() {
    for (protocol, concurrency) in PAIRS {
        let dir = directory();
        let db = open(dir.path(), protocol, concurrency);
        let mut torn = 0u64;
        beside_writers(&db, || {
            let mut session = db.session().unwrap();
            let began = Instant::now();
            // On a busy machine writers may stall for a while, and then no inconsistent snapshot
            // occurs.
            let may_tear = concurrency != Concurrency::NoWait;
            while began.elapsed() < SHORT || (may_tear && torn == 0 && began.elapsed() < LONG) {
                let asserts = |tx: &Transaction<'_>| {
                    let (left, right) = both(tx)?;
                    torn += u64::from(left != right);
                    assert_eq!(left, right, "an inconsistent snapshot");
                    Ok::<_, Abort>(())
                };
                session.try_submit(asserts).unwrap().0.unwrap();
                let returns = |tx: &Transaction<'_>| both(tx);
                let (left, right) = session.try_submit(returns).unwrap().0.unwrap();
                assert_eq!(left, right, "a result");
                let fails = |tx: &Transaction<'_>| {
                    let (left, right) = both(tx)?;
                    Err::<(), _>(Abort::User(left - right))
                };
                assert_eq!(session.try_submit(fails).unwrap().0, Err(Abort::User(0)), "an error");
            }
        });
        // Otherwise nothing was tested.
        assert!(torn > 0 || concurrency == Concurrency::NoWait, "{protocol:?}: no view was torn");
    }
}

#[test]
fn a_panic_on_a_view_that_is_valid_reaches_the_caller() {
    for (protocol, concurrency) in PAIRS {
        let dir = directory();
        let db = open(dir.path(), protocol, concurrency);
        let mut runs = 0;
        let panics = |tx: &Transaction<'_>| {
            runs += 1;
            tx.update(ROWS, LEFT, &[VALUE.set(5i64)])?;
            assert_eq!(value(tx, LEFT)?, 6, "the caller's own");
            Ok::<_, Abort>(())
        };
        let result = catch_unwind(AssertUnwindSafe(|| db.try_transact(panics)));
        let panic = result.unwrap_err();
        let text = panic.downcast_ref::<String>().expect("a message");
        assert!(text.contains("the caller's own"), "{text}");
        assert_eq!(runs, 1);
        // Nothing of the transaction remains, not even a lock, and its session still works.
        assert_eq!(db.try_transact(|tx| value(tx, LEFT)).unwrap(), Ok(0));
        db.try_transact(|tx| tx.update(ROWS, LEFT, &[VALUE.set(7i64)])).unwrap().unwrap();
    }
}

#[test]
fn a_body_that_loops_on_a_view_that_never_was_is_ended() {
    for (protocol, concurrency) in PAIRS {
        let dir = directory();
        let db = open(dir.path(), protocol, concurrency);
        let mut loops = 0u64;
        beside_writers(&db, || {
            let mut session = db.session().unwrap();
            let began = Instant::now();
            let may_tear = concurrency != Concurrency::NoWait;
            let mut runs = 0;
            while runs < 300 || (may_tear && loops == 0 && began.elapsed() < LONG) {
                runs += 1;
                let mut passes_on = true;
                let waits = |tx: &Transaction<'_>| {
                    let (mut left, right) = both(tx)?;
                    // The body relies on an invariant of all committed states.
                    while left != right {
                        loops += 1;
                        match value_or_conflict(tx) {
                            Ok(value) => left = value,
                            // A body that ignores conflicts would loop for ever if not ended.
                            Err(abort) if passes_on => return Err(abort),
                            Err(_) => {}
                        }
                    }
                    passes_on = !passes_on;
                    Ok::<_, Abort>(())
                };
                session.try_submit(waits).unwrap().0.unwrap();
            }
        });
        assert!(loops > 0 || concurrency == Concurrency::NoWait, "{protocol:?}: no view was torn");
    }
}

/// Reads the right row again and returns a number that never equals the right value, so only a
/// conflict ends the loop.
fn value_or_conflict(tx: &Transaction<'_>) -> Result<i64, Abort> {
    value(tx, RIGHT).map(|_| i64::MIN)
}
