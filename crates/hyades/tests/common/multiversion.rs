//! Interleavings under concurrency controls that keep several versions of a row: each function
//! returns whether a rule holds.

pub use super::beside::*;
use super::directory;
use hyades::{
    Abort, Builder, Column, Concurrency, Database, Index, Isolation, Protocol, RecordKind, Schema,
    Table, Transaction, Type,
};
use hyades_schemes::TIMESTAMP_ORDER;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The builder of a database under Hekaton.
pub fn hekaton(protocol: Protocol, isolation: Isolation) -> Builder {
    builder(protocol, Concurrency::Hekaton).isolation(isolation)
}

pub fn open(protocol: Protocol, isolation: Isolation) -> Opened {
    open_filled(hekaton(protocol, isolation))
}

/// The same, where commands may be late and are replayed on several versions.
pub fn late_hekaton() -> Builder {
    hekaton(Protocol::Taurus, Isolation::Snapshot).streams(2)
}

/// Without a log, and serializable.
pub fn serializable() -> Opened {
    open(Protocol::None, Isolation::Serializable)
}

/// The same, where transactions read what others are about to commit.
pub fn speculative(protocol: Protocol) -> Opened {
    open_filled(hekaton(protocol, Isolation::Serializable).speculative_reads(true))
}

/// The builder of a database under timestamp order.
pub fn ordered(protocol: Protocol) -> Builder {
    builder(protocol, TIMESTAMP_ORDER)
}

/// A reader sees the rows as of its beginning, however often a row is overwritten, at once.
pub fn a_reader_sees_its_beginning(opened: Opened) -> bool {
    let Opened { db, dir: _dir } = opened;
    let look = |tx: &Transaction<'_>, pause: &dyn Fn()| {
        pause();
        Ok((count(tx, A)?, count(tx, B)?, tx.get(ITEMS, 1000i64)?.is_some()))
    };
    let seen = beside(&db, look, || {
        for n in 1..=10 {
            set(&db, A, n);
            set(&db, B, n);
        }
        let new =
            |tx: &Transaction<'_>| tx.insert(ITEMS, &[1000i64.into(), 0i64.into(), 0i64.into()]);
        db.transact(|tx| Ok(new(tx)?)).unwrap();
    });
    seen == ((0, 0, false), 1)
}

/// Of two writers of the same row the second runs again: no update is lost.
pub fn the_first_writer_wins() -> bool {
    let Opened { db, dir: _dir } = serializable();
    let add = |tx: &Transaction<'_>, pause: &dyn Fn()| {
        let seen = count(tx, A)?;
        pause();
        tx.update(ITEMS, A, &[COUNT.set(seen + 1)])
    };
    let (_, attempts) = beside(&db, add, || set(&db, A, 10));
    get(&db, A) == 11 && attempts == 2
}

/// A deleted row, and a row taken out of a group, stays where an earlier reader looks for the row.
pub fn what_a_reader_needs_stays(opened: Opened) -> bool {
    let Opened { db, dir: _dir } = opened;
    let look = |tx: &Transaction<'_>, pause: &dyn Fn()| {
        pause();
        let of_group = tx.scan_index(ITEMS, BY_GROUP).prefix(&[B.into()]).rows()?.len();
        Ok((count(tx, C)?, of_group, tx.scan(ITEMS).rows()?.len()))
    };
    let (seen, attempts) = beside(&db, look, || {
        let mut session = db.session().unwrap();
        let leave = |tx: &Transaction<'_>| {
            tx.delete(ITEMS, C)?;
            tx.update(ITEMS, B, &[GROUP.set(50)])
        };
        session.try_submit(leave).unwrap().0.unwrap();
        remove_garbage(&db);
    });
    seen == (0, 1, Item::ALL) && attempts == 1
}

/// A key of a unique index is free or not in the present, also under snapshot isolation.
pub fn a_unique_key_is_of_the_present(mut builder: Builder) -> bool {
    const NAMES: Table = Table::nth(2);
    const NAME: Column<i64> = Column::at(1);
    let names = Schema::new("names").column("id", Type::I64).column("name", Type::I64);
    builder.table(names.primary_key(&["id"]).unique("by_name", &["name"]));
    let Opened { db, dir: _dir } = open_filled(builder);
    let insert = |tx: &Transaction<'_>, id: i64| tx.insert(NAMES, &[id.into(), 7i64.into()]);
    let second = |tx: &Transaction<'_>, pause: &dyn Fn()| {
        count(tx, A)?;
        pause();
        match insert(tx, 2) {
            Err(Abort::DuplicateKey { .. }) => Ok(false),
            inserted => inserted.map(|_| true),
        }
    };
    let (inserted, _) = beside(&db, second, || {
        db.transact(|tx| Ok(insert(tx, 1)?)).unwrap();
    });
    let found = db.transact(|tx| {
        let rows = tx.scan_index(NAMES, Index(0)).rows()?;
        Ok(rows.iter().map(|row| row.get(NAME)).collect::<Vec<_>>())
    });
    !inserted && found.unwrap() == [7]
}

/// Threads move amounts among few rows, and write rows only if the rows read allow the write, while
/// other threads read all rows. Runs until a wrong sum or a broken rule is seen, or the time is
/// over. Returns whether all was right.
pub fn sums_stay_right(opened: Opened, time: Duration) -> bool {
    let Opened { db, dir: _dir } = opened;
    let (wrong, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let until = Instant::now() + time;
    let goes_on = || Instant::now() < until && !wrong.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        for seed in 0..2u64 {
            let (db, rounds) = (&db, &rounds);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                let mut session = db.session().unwrap();
                while goes_on() {
                    let (from, to) = (rng.i64(1..4), rng.i64(1..4));
                    let on_call = [rng.i64(5..7), rng.i64(5..7)];
                    session.try_submit(|tx| change(tx, from, to, on_call)).unwrap().0.unwrap();
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..2 {
            let (db, wrong) = (&db, &wrong);
            scope.spawn(move || {
                let mut session = db.session().unwrap();
                while goes_on() {
                    let is_right = session.try_submit(is_right).unwrap().0.unwrap();
                    wrong.fetch_or(!is_right, Ordering::Relaxed);
                }
            });
        }
    });
    assert!(wrong.load(Ordering::Relaxed) || rounds.load(Ordering::Relaxed) > 100);
    !wrong.load(Ordering::Relaxed)
}

/// Rows 1 to 3 have the sum 0, and of rows 5 and 6 at most one is 1.
fn is_right(tx: &Transaction<'_>) -> Result<bool, Abort> {
    let sum = count(tx, 1)? + count(tx, 2)? + count(tx, 3)?;
    Ok(sum == 0 && count(tx, 5)? + count(tx, 6)? <= 1)
}

/// Moves 1 from a row to another; then ends or begins the duty of one row, provided that the other
/// has none.
fn change(tx: &Transaction<'_>, from: i64, to: i64, on_call: [i64; 2]) -> Result<(), Abort> {
    if from != to {
        let (less, more) = (count(tx, from)? - 1, count(tx, to)? + 1);
        tx.update(ITEMS, from, &[COUNT.set(less)])?;
        tx.update(ITEMS, to, &[COUNT.set(more)])?;
    }
    let [one, other] = on_call;
    let duty = if one == other { 0 } else { i64::from(count(tx, other)? == 0) };
    tx.update(ITEMS, one, &[COUNT.set(duty)]).map(drop)
}

/// A procedure that commits late, with a row that was overwritten meanwhile, is run again at replay
/// on the versions that it has read. In between there may be a checkpoint, which ends an epoch.
/// Returns whether the state is the same.
pub fn a_late_procedure_is_replayed_on_its_version(
    build: impl Fn() -> Builder,
    has_checkpoint: bool,
) -> bool {
    let dir = directory();
    let (pause, calls) = (Pause::new(), Arc::new(AtomicU64::new(0)));
    let declare = || {
        let (pause, calls) = (pause.clone(), calls.clone());
        let mut builder = build().record(RecordKind::Command);
        builder.procedure("copy", 1, move |tx: &Transaction<'_>, ()| {
            calls.fetch_add(1, Ordering::Relaxed);
            copy(tx, &|| pause.pause()).map(drop)
        });
        builder
    };
    let db = declare().open(dir.path()).unwrap();
    fill(&db);
    std::thread::scope(|scope| {
        let late = scope.spawn(|| db.call::<_, ()>("copy", &()).unwrap());
        pause.meanwhile(|| {
            (7..20).for_each(|n| set(&db, A, n));
            if has_checkpoint {
                db.checkpoint().unwrap();
            }
        });
        late.join().unwrap();
    });
    assert_eq!((calls.load(Ordering::Relaxed), get(&db, B)), (1, 100));
    let digest = db.digest();
    db.close().unwrap();
    let again = declare().open(dir.path());
    let again = again.inspect_err(|why| eprintln!("{why}"));
    let is_same = again.is_ok_and(|db| db.digest() == digest);
    // A command is run again, and before that to find its rows; a data record is not.
    is_same && (calls.load(Ordering::Relaxed) == 1) == has_checkpoint
}

pub const LARGE: Table = Table::nth(2);
const BYTES: usize = 40_000;

/// Writes 80 MB.
pub fn fill_large(db: &Database, byte: u8) {
    for id in 0..2000i64 {
        let row = vec![byte; BYTES];
        db.transact(|tx| Ok(tx.upsert(LARGE, &[id.into(), row[..].into()])?)).unwrap();
    }
}

/// Removes all removable garbage, or tries to for a while.
fn remove_garbage(db: &Database) {
    let mut session = db.session().unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    let mut rounds = 0;
    while Instant::now() < until && (rounds < 200 || db.stats().garbage > 0) && rounds < 2000 {
        // Ends an epoch.
        db.snapshot(|_| Ok(())).unwrap();
        session.try_submit(|tx| tx.update(ITEMS, 0i64, &[COUNT.set(1)])).unwrap().0.unwrap();
        rounds += 1;
    }
}

/// A transaction that was ended looks for a row whose tombstone is gone. Returns its attempts.
pub fn attempts_of_one_that_misses_a_row(db: &Database) -> u64 {
    fill_large(db, 1);
    let look = |tx: &Transaction<'_>, pause: &dyn Fn()| {
        pause();
        count(tx, C)
    };
    let (seen, attempts) = beside(db, look, || {
        db.transact(|tx| Ok(tx.delete(ITEMS, C)?)).unwrap();
        fill_large(db, 2);
        remove_garbage(db);
        assert_eq!(db.stats().garbage, 0);
    });
    assert_eq!(seen, -1);
    attempts
}

/// A transaction whose older versions take too much memory ends, and runs again. Returns its
/// attempts.
pub fn attempts_of_one_that_needs_too_much(db: &Database) -> u64 {
    fill_large(db, 1);
    let look = |tx: &Transaction<'_>, pause: &dyn Fn()| {
        pause();
        let row = tx.get(LARGE, 0i64)?.expect("it is there");
        Ok(row.get(Column::<[u8]>::at(1)).to_vec())
    };
    let (seen, attempts) = beside(db, look, || fill_large(db, 2));
    assert!(seen == [1; BYTES] || seen == [2; BYTES]);
    attempts
}
