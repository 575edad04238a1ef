//! Interleavings under timestamp order: each function returns whether a rule holds.

pub use super::multiversion::*;
use hyades::{Abort, Protocol, Schema, Transaction, Type};
use std::time::{Duration, Instant};

/// A key of no row.
const MISSED: i64 = 1000;

/// Writes a row after `later`, which runs in a transaction that began later. Returns whether the
/// writer had to run again.
fn runs_again_after(
    opened: Opened,
    write: impl Fn(&Transaction<'_>) -> Result<bool, Abort> + Sync,
    later: impl Fn(&Transaction<'_>) -> Result<(), Abort> + Sync,
) -> bool {
    let Opened { db, dir: _dir } = opened;
    let late = |tx: &Transaction<'_>, pause: &dyn Fn()| {
        pause();
        write(tx)
    };
    let (_, attempts) = beside(&db, late, || {
        db.session().unwrap().try_submit(&later).unwrap().0.unwrap();
    });
    attempts == 2
}

fn write_a(tx: &Transaction<'_>) -> Result<bool, Abort> {
    tx.update(ITEMS, A, &[COUNT.set(7)])
}

/// A row read by a later transaction is not overwritten before that transaction.
pub fn a_later_reader_is_not_overtaken(opened: Opened) -> bool {
    runs_again_after(opened, write_a, |tx| count(tx, A).map(drop))
}

/// The same, if the later transaction has marked the row, and does not write the row.
pub fn a_row_marked_later_is_not_overtaken(opened: Opened) -> bool {
    runs_again_after(opened, write_a, |tx| {
        let savepoint = tx.savepoint();
        assert!(tx.update(ITEMS, A, &[COUNT.set(9)])?);
        tx.rollback_to(savepoint)?;
        tx.update(ITEMS, B, &[COUNT.set(9)]).map(drop)
    })
}

/// The same, if the later transaction has found that no row has a key, one by one or in a range.
pub fn a_later_miss_is_not_overtaken(opened: Opened, is_hash: bool, is_scan: bool) -> bool {
    let table = if is_hash { HASHED } else { ITEMS };
    let insert = move |tx: &Transaction<'_>| {
        tx.insert(table, &[MISSED.into(), 0i64.into(), 0i64.into()])?;
        Ok(true)
    };
    runs_again_after(opened, insert, move |tx| {
        if is_scan {
            let rows = tx.scan(table).from(&[(MISSED - 10).into()]).rows()?;
            assert!(rows.is_empty());
        } else {
            assert!(tx.get(table, MISSED)?.is_none());
        }
        Ok(())
    })
}

/// The same, if the later transaction has found no row of a group in an index.
pub fn a_later_look_into_an_index_is_not_overtaken(opened: Opened) -> bool {
    const GROUP_OF_NONE: i64 = 500;
    let join = |tx: &Transaction<'_>| tx.update(ITEMS, A, &[GROUP.set(GROUP_OF_NONE)]);
    runs_again_after(opened, join, |tx| {
        let found = tx.scan_index(ITEMS, BY_GROUP).prefix(&[GROUP_OF_NONE.into()]).rows()?;
        assert!(found.is_empty());
        Ok(())
    })
}

/// An open snapshot does not change, although a transaction that began before the snapshot ends
/// after it.
pub fn a_snapshot_does_not_change(opened: Opened) -> bool {
    let Opened { db, dir: _dir } = opened;
    let mut is_same = true;
    let write = |tx: &Transaction<'_>, pause: &dyn Fn()| {
        pause();
        write_a(tx)
    };
    let snapshot = std::cell::OnceCell::new();
    let (_, attempts) = beside(&db, write, || {
        let opened = db.open_snapshot();
        is_same &= opened.read(|tx| Ok(count(tx, A)?)).unwrap() == 0;
        assert!(snapshot.set(opened).is_ok());
    });
    let snapshot = snapshot.into_inner().expect("it was opened");
    is_same &= snapshot.read(|tx| Ok(count(tx, A)?)).unwrap() == 0;
    assert_eq!(get(&db, A), 7);
    is_same && attempts == 2
}

/// A checkpoint is taken while an earlier transaction runs. Returns whether the state is recovered.
pub fn a_checkpoint_loses_nothing() -> bool {
    let declare = || ordered(Protocol::Taurus).streams(2);
    let Opened { db, dir } = open_filled(declare());
    let write = |tx: &Transaction<'_>, pause: &dyn Fn()| {
        pause();
        write_a(tx)
    };
    beside(&db, write, || {
        db.checkpoint().unwrap();
    });
    assert_eq!(get(&db, A), 7);
    let digest = db.digest();
    db.close().unwrap();
    let db = declare().open(dir.path()).unwrap();
    get(&db, A) == 7 && db.digest() == digest
}

/// A writing transaction was ended, since older versions take too much memory, and looks for a row
/// whose tombstone is gone. Returns whether the transaction runs again. Epochs end by time: a
/// snapshot would be a conflict, too.
pub fn what_was_ended_runs_again() -> bool {
    let mut builder = ordered(Protocol::None).snapshots(|snapshots| snapshots.memory = 32 << 20);
    builder = builder.log_settings(|log| log.epoch = Some(Duration::from_millis(2)));
    let large = Schema::new("large").column("id", Type::I64).column("bytes", Type::Bytes);
    builder.table(large.primary_key(&["id"]));
    let Opened { db, dir: _dir } = open_filled(builder);
    fill_large(&db, 1);
    let copy = |tx: &Transaction<'_>, pause: &dyn Fn()| {
        pause();
        let seen = count(tx, C)?;
        tx.update(ITEMS, B, &[COUNT.set(seen)])
    };
    let (_, attempts) = beside(&db, copy, || {
        db.transact(|tx| Ok(tx.delete(ITEMS, C)?)).unwrap();
        fill_large(&db, 2);
        let mut session = db.session().unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while db.stats().garbage > 0 {
            assert!(Instant::now() < until, "the tombstone stays");
            session.try_submit(|tx| count(tx, A)).unwrap().0.unwrap();
        }
    });
    assert_eq!(get(&db, B), -1);
    attempts == 2
}
