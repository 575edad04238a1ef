//! Promise: a version of a row tells a later transaction whether the row was written in between,
//! under every concurrency control.

use crate::common::directory;
use hyades::{Abort, Column, Concurrency, Database, Error, Schema, Table, Transaction, Type};
use hyades_schemes::all_controls;
use std::sync::atomic::{AtomicU64, Ordering};

const ROWS: Table = Table::nth(0);
const VALUE: Column<i64> = Column::at(1);

fn open(dir: &std::path::Path, concurrency: Concurrency) -> Database {
    let mut builder = Database::builder().concurrency(concurrency);
    let schema = Schema::new("rows").column("id", Type::I64).column("value", Type::I64);
    builder.table(schema.primary_key(&["id"]));
    builder.open(dir).unwrap()
}

fn version(tx: &Transaction<'_>) -> Result<Option<u64>, Error> {
    Ok(tx.version(ROWS, 1i64)?)
}

#[test]
fn every_write_gives_another_version() {
    for concurrency in all_controls() {
        let dir = directory();
        let db = open(dir.path(), concurrency);
        let now = || db.transact(version).unwrap();
        assert_eq!(now(), None);
        let mut seen = Vec::new();
        for value in [1i64, 1, 2, 2] {
            db.transact(|tx| Ok(tx.overwrite(ROWS, &[1i64.into(), value.into()])?)).unwrap();
            let version = now();
            assert!(version.is_some() && !seen.contains(&version), "{concurrency:?}");
            assert_eq!(version, now());
            seen.push(version);
            db.transact(|tx| Ok(tx.update(ROWS, 1i64, &[VALUE.set(value)])?)).unwrap();
            assert!(!seen.contains(&now()));
            seen.push(now());
        }
        db.transact(|tx| Ok(tx.delete(ROWS, 1i64)?)).unwrap();
        assert_eq!(now(), None);
        db.transact(|tx| Ok(tx.insert(ROWS, &[1i64.into(), 2i64.into()])?)).unwrap();
        assert!(!seen.contains(&now()));
        // A transaction's own write has no version yet.
        let own = db.transact(|tx| {
            let before = version(tx)?;
            tx.update(ROWS, 1i64, &[VALUE.set(7)])?;
            Ok(before == version(tx)?)
        });
        assert!(own.unwrap());
        let snapshot = db.open_snapshot();
        let refused = snapshot.read(|tx| Ok(tx.version(ROWS, 1i64).unwrap_err()));
        assert_eq!(refused.unwrap(), Abort::ReadOnly);
    }
}

/// Threads add one to a counter in two transactions each: the second writes what the first has read
/// only if the version is still the same. No addition is lost.
#[test]
fn compare_and_set_by_version_loses_nothing() {
    const EACH: u64 = 200;
    for concurrency in all_controls() {
        let dir = directory();
        let db = open(dir.path(), concurrency);
        db.transact(|tx| Ok(tx.overwrite(ROWS, &[1i64.into(), 0i64.into()])?)).unwrap();
        let lost = AtomicU64::new(0);
        let add = || {
            let mut done = 0;
            while done < EACH {
                let seen = db.transact(version).unwrap();
                let value =
                    db.transact(|tx| Ok(tx.get(ROWS, 1i64)?.map_or(0, |row| row.get(VALUE))));
                let value = value.unwrap();
                let is_set = db.transact(|tx| {
                    if version(tx)? != seen {
                        return Ok(false);
                    }
                    Ok(tx.update(ROWS, 1i64, &[VALUE.set(value + 1)])?)
                });
                match is_set.unwrap() {
                    true => done += 1,
                    false => drop(lost.fetch_add(1, Ordering::Relaxed)),
                }
            }
        };
        std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(add))));
        let value = db.transact(|tx| Ok(tx.get(ROWS, 1i64)?.map_or(0, |row| row.get(VALUE))));
        assert_eq!(value.unwrap(), 3 * EACH as i64, "{concurrency:?}");
    }
}
