//! Two-phase locking that looks again for a lock before an abort. Promise: a transaction gets a
//! lock released meanwhile, and transactions that wait for each other do not wait for ever.
#![allow(missing_docs)]

mod common;
use common::{directory, watched::watched};
use hyades::{Abort, Column, Concurrency, Database, Protocol, Schema, Table, Transaction, Type};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const ROWS: Table = Table::nth(0);
const VALUE: Column<i64> = Column::at(1);

fn open(dir: &Path, patience: u32) -> Database {
    let mut builder = Database::builder()
        .protocol(Protocol::Taurus)
        .concurrency(Concurrency::NoWait)
        .patience(patience);
    let schema = Schema::new("rows").column("id", Type::I64).column("value", Type::I64);
    builder.table(schema.primary_key(&["id"]).hash());
    let db = builder.open(dir).unwrap();
    let fill = |tx: &Transaction<'_>| {
        (0..4i64).try_for_each(|id| tx.insert(ROWS, &[id.into(), 0i64.into()]).map(drop))
    };
    db.try_transact(fill).unwrap().unwrap();
    db
}

fn add(tx: &Transaction<'_>, id: i64) -> Result<bool, Abort> {
    let value = tx.get(ROWS, id)?.expect("it is there").get(VALUE);
    tx.update(ROWS, id, &[VALUE.set(value + 1)])
}

/// Attempts that conflict while another transaction holds the lock: without patience until a
/// conflict.
fn conflicts_beside_a_holder(patience: u32) -> u64 {
    let dir = directory();
    let db = open(dir.path(), patience);
    let held = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let hold = |tx: &Transaction<'_>| {
                tx.update(ROWS, 1i64, &[VALUE.set(1)])?;
                held.store(true, Ordering::Release);
                std::thread::sleep(Duration::from_millis(20));
                while patience == 0 && db.stats().conflicts == 0 {
                    std::thread::yield_now();
                }
                Ok::<_, Abort>(())
            };
            db.try_transact(hold).unwrap().unwrap();
        });
        while !held.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let mut session = db.session().unwrap();
        session.try_submit(|tx| tx.get(ROWS, 1i64).map(drop)).unwrap().0.unwrap();
        session.try_submit(|tx| add(tx, 1)).unwrap().0.unwrap();
        session.conflicts()
    })
}

#[test]
fn a_lock_that_is_released_in_time_is_no_conflict() {
    // A delayed thread finds the lock free again: then the check is tried again.
    assert!((0..20).any(|_| conflicts_beside_a_holder(0) > 0));
    assert_eq!(conflicts_beside_a_holder(u32::MAX), 0);
}

#[test]
fn transactions_that_wait_for_each_other_go_on() {
    for patience in [1, 100, 20_000] {
        let (dir, sum) = (directory(), 400i64);
        let db = open(dir.path(), patience);
        let began = Instant::now();
        let _watched = watched("transactions that wait for each other");
        let both = Barrier::new(2);
        std::thread::scope(|scope| {
            for order in [[0, 1], [1, 0]] {
                let (db, both) = (&db, &both);
                scope.spawn(move || {
                    let mut session = db.session().unwrap();
                    for _ in 0..sum / 2 {
                        both.wait();
                        let add_to_both = |tx: &Transaction<'_>| {
                            add(tx, order[0])?;
                            std::thread::yield_now();
                            add(tx, order[1])
                        };
                        session.try_submit(add_to_both).unwrap().0.unwrap();
                    }
                });
            }
        });
        let value = |tx: &Transaction<'_>| Ok(tx.get(ROWS, 0i64)?.unwrap().get(VALUE));
        assert_eq!(db.snapshot(value).unwrap(), sum, "after {:?}", began.elapsed());
    }
}
