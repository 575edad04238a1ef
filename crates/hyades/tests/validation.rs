//! A row read by an optimistic transaction changes before the commit, at a point chosen by the
//! test. Promise: the body runs again, and nothing of its first run reaches the caller.
#![allow(missing_docs)]

mod common;
use common::directory;
use hyades::{Column, Concurrency, Database, Error, Protocol, Schema, Table, Transaction, Type};
use hyades_schemes::TICTOC;
#[cfg(feature = "mutations")]
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const ROWS: Table = Table::nth(0);
const VALUE: Column<i64> = Column::at(1);

/// A broken rule is global to the process, so the tests run one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Rows 0 to 9 of value 0.
fn open(dir: &std::path::Path) -> Database {
    let mut builder = Database::builder().concurrency(Concurrency::Silo);
    let schema = Schema::new("rows").column("id", Type::I64).column("value", Type::I64);
    builder.table(schema.primary_key(&["id"]));
    let db = builder.open(dir).unwrap();
    let fill = |tx: &Transaction<'_>| {
        for id in 0..10i64 {
            tx.insert(ROWS, &[id.into(), 0i64.into()])?;
        }
        Ok(())
    };
    db.transact(fill).unwrap();
    db
}

/// Runs `body`; in its first run, `other` commits on another thread after `body` has read, and then
/// `body` ends as `end` says. Returns the number of runs.
fn interleaved(
    db: &Database,
    read: impl Fn(&Transaction<'_>) -> Result<(), Error>,
    other: impl Fn(&Transaction<'_>) -> Result<(), Error> + Sync,
    end: impl Fn(u32),
) -> u32 {
    let runs = AtomicU32::new(0);
    let body = |tx: &Transaction<'_>| {
        read(tx)?;
        if runs.fetch_add(1, Ordering::Relaxed) == 0 {
            std::thread::scope(|scope| {
                scope.spawn(|| db.transact(&other).unwrap()).join().unwrap();
            });
        }
        tx.update(ROWS, 0i64, &[VALUE.set(1)])?;
        end(runs.load(Ordering::Relaxed));
        Ok(())
    };
    db.transact(body).unwrap();
    runs.into_inner()
}

fn after_a_row_in_a_scanned_gap() -> u32 {
    let dir = directory();
    let db = open(dir.path());
    let read = |tx: &Transaction<'_>| Ok(tx.scan(ROWS).from(&[5i64.into()]).rows().map(drop)?);
    let other =
        |tx: &Transaction<'_>| Ok(tx.insert(ROWS, &[77i64.into(), 0i64.into()]).map(drop)?);
    interleaved(&db, read, other, |_| {})
}

fn after_a_change_and_a_panic() -> u32 {
    let dir = directory();
    let db = open(dir.path());
    let read = |tx: &Transaction<'_>| Ok(tx.get(ROWS, 5i64).map(drop)?);
    let other = |tx: &Transaction<'_>| Ok(tx.update(ROWS, 5i64, &[VALUE.set(1)]).map(drop)?);
    interleaved(&db, read, other, |run| assert!(run > 1, "of what the first run has read"))
}

/// A transaction misses key after key and inserts each, so its own insertions change gaps that it
/// has seen: the transaction does not conflict with itself.
#[test]
fn keys_that_were_missed_are_inserted_at_once() {
    let _alone = alone();
    let (silo, no_wait) = (Concurrency::Silo, Concurrency::NoWait);
    for concurrency in [silo, no_wait, TICTOC, Concurrency::Hekaton] {
        let mut builder = Database::builder().protocol(Protocol::None).concurrency(concurrency);
        let hashed = Schema::new("hashed").column("id", Type::I64).primary_key(&["id"]).hash();
        let hashed = builder.table(hashed);
        let ordered = Schema::new("ordered").column("id", Type::I64).column("name", Type::I64);
        let ordered = ordered.primary_key(&["id"]).unique("by_name", &["name"]);
        let ordered = builder.table(ordered);
        let dir = directory();
        let db = builder.open(dir.path()).unwrap();
        let fill = |tx: &Transaction<'_>| {
            for n in 0..2_000i64 {
                // In no order; 2,003 is a prime number.
                let id = n * 1_910 % 2_003;
                let missed = [tx.get(hashed, id)?.is_none(), tx.get(ordered, id)?.is_none()];
                assert_eq!(missed, [true; 2], "{concurrency:?}: {id}");
                tx.overwrite(hashed, &[id.into()])?;
                tx.insert(ordered, &[id.into(), (-id).into()])?;
            }
            Ok(())
        };
        db.transact(fill).unwrap();
        assert_eq!((db.rows(), db.stats().conflicts), (4_000, 0), "{concurrency:?}");
    }
}

#[test]
fn a_row_in_a_scanned_gap_is_a_conflict() {
    let _alone = alone();
    assert_eq!(after_a_row_in_a_scanned_gap(), 2);
}

#[test]
fn a_panic_of_what_has_changed_since_is_a_conflict() {
    let _alone = alone();
    assert_eq!(after_a_change_and_a_panic(), 2);
}

/// Mutation test: without the rules, the gap goes unnoticed and the panic reaches the caller.
#[cfg(feature = "mutations")]
#[test]
fn without_validation_they_are_not() {
    use hyades_platform::mutation::{self, Mutation};
    let _alone = alone();
    mutation::set(Some(Mutation::SkipGaps));
    let gap = after_a_row_in_a_scanned_gap();
    mutation::set(Some(Mutation::RethrowUnvalidated));
    let panic = catch_unwind(after_a_change_and_a_panic);
    mutation::set(None);
    assert_eq!(gap, 1);
    assert!(panic.is_err());
}
