//! The limit of epochs of a primary: no record and no mark is of an epoch above, transactions go on
//! in the last epoch, and all that needs the end of an epoch waits, or does without.
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod common;

use common::directory;
use common::watched::watched;
use hyades::{
    Abort, Builder, Column, Concurrency, Database, Error, Protocol, Schema, Table, Transaction,
    Type,
};
use hyades_platform::clock;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

const COUNTS: Table = Table::nth(0);
const COUNT: Column<i64> = Column::at(1);
const ROWS: i64 = 8;

const CONTROLS: [Concurrency; 3] = [Concurrency::Silo, Concurrency::NoWait, Concurrency::Hekaton];

fn declared(control: Concurrency) -> Builder {
    let mut builder = Database::builder()
        .streams(2)
        .concurrency(control)
        .log_settings(|log| log.epoch = Some(Duration::from_micros(200)));
    let schema = Schema::new("counts").column("id", Type::I64).column("count", Type::I64);
    builder.table(schema.primary_key(&["id"]));
    builder
}

/// Opens a database whose epochs end with `limit`.
fn open(dir: &Path, control: Concurrency, limit: u64) -> Database {
    let db = declared(control).epoch_limit(limit).open(dir).unwrap();
    for id in 0..ROWS {
        add(&db, id).unwrap();
    }
    db
}

fn add(db: &Database, id: i64) -> Result<i64, Error> {
    db.transact(|tx| {
        let next = tx.get(COUNTS, id)?.map_or(0, |row| row.get(COUNT)) + 1;
        tx.upsert(COUNTS, &[id.into(), next.into()])?;
        Ok(next)
    })
}

fn total(tx: &Transaction<'_>) -> Result<i64, Error> {
    Ok(tx.scan(COUNTS).rows()?.iter().map(|row| row.get(COUNT)).sum())
}

/// Runs transactions until the epoch is at the limit, and one there.
fn reach(db: &Database, limit: u64) {
    let began = Instant::now();
    while db.epoch() < limit {
        add(db, 0).unwrap();
        assert!(began.elapsed() < Duration::from_secs(60), "epoch {} is the last", db.epoch());
    }
    // A record of the last epoch.
    add(db, 0).unwrap();
}

/// Runs `wait` on a thread. Returns the processor time that it took, in nanoseconds.
fn timed<'s>(
    scope: &'s Scope<'s, '_>,
    name: &str,
    wait: impl FnOnce() + Send + 's,
) -> ScopedJoinHandle<'s, u64> {
    let run = move || {
        let began = clock::thread_cpu_ns();
        wait();
        clock::thread_cpu_ns() - began
    };
    thread::Builder::new().name(name.into()).spawn_scoped(scope, run).unwrap()
}

#[test]
fn transactions_go_on_at_the_limit() {
    let _watched = watched("at the limit");
    for control in CONTROLS {
        let dir = directory();
        let db = open(dir.path(), control, 4);
        reach(&db, 4);
        let before = db.stats().commits;
        thread::scope(|scope| {
            for thread in 0..3 {
                let db = &db;
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(thread);
                    for n in 0..400 {
                        let id = rng.i64(0..ROWS);
                        match n % 8 {
                            // What is deleted at the limit waits for the end of the epoch.
                            0 => db.transact(|tx| Ok(tx.delete(COUNTS, id).map(drop)?)).unwrap(),
                            1 => db.transact(|tx| total(tx).map(drop)).unwrap(),
                            _ => add(db, id).map(drop).unwrap(),
                        }
                        assert_eq!(db.epoch(), 4);
                    }
                });
            }
        });
        assert!(db.stats().commits >= before + 1200);
        let counted = db.transact(total).unwrap();
        db.raise_epoch_limit(3);
        assert_eq!(db.epoch(), 4);
        db.raise_epoch_limit(6);
        reach(&db, 6);
        assert!(db.transact(total).unwrap() > counted);
        // All rows are of epochs up to the limit, and the next run begins above.
        let digest = db.digest();
        db.close().unwrap();
        let db = declared(control).open(dir.path()).unwrap();
        assert_eq!(db.digest(), digest);
        assert_eq!(db.epoch(), 7);
    }
}

/// A snapshot, a checkpoint and a cut mark need the end of an epoch. None of them closes the epoch
/// before: transactions whose timestamps are of the epoch go on.
#[test]
fn snapshots_checkpoints_and_marks_wait_for_the_limit() {
    let _watched = watched("waiting at the limit");
    for control in CONTROLS {
        let dir = directory();
        let db = open(dir.path(), control, 3);
        reach(&db, 3);
        // So that no snapshot is shared.
        add(&db, 1).unwrap();
        let mut marks = db.cut_marks().unwrap();
        assert!((0..3).all(|_| marks.tick().is_none()));
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let (db, over) = (&db, &over);
            let writer = scope.spawn(move || {
                let mut written = 0;
                while !over.load(Ordering::SeqCst) {
                    add(db, 2).unwrap();
                    written += 1;
                }
                written
            });
            let threads = [
                timed(scope, "snapshot", move || _ = db.snapshot(total).unwrap()),
                timed(scope, "two", move || _ = db.open_snapshot().read(total).unwrap()),
                timed(scope, "checkpoint", move || _ = db.checkpoint().unwrap()),
            ];
            thread::sleep(Duration::from_millis(300));
            for thread in &threads {
                assert!(!thread.is_finished(), "{:?} did not wait", thread.thread().name());
            }
            assert!(marks.tick().is_none());
            assert_eq!(db.epoch(), 3);
            db.raise_epoch_limit(50);
            for thread in threads {
                let name = thread.thread().name().map(str::to_string);
                let cpu_ns = thread.join().unwrap();
                assert!(cpu_ns < 150_000_000, "{name:?} took {cpu_ns} ns of a processor");
            }
            over.store(true, Ordering::SeqCst);
            assert!(writer.join().unwrap() > 0, "nothing was written at the limit");
        });
        let began = Instant::now();
        let mark = loop {
            match marks.tick() {
                Some(mark) => break mark,
                None => assert!(began.elapsed() < Duration::from_secs(20), "no mark is made"),
            }
        };
        assert!(mark.epoch >= 3 && mark.epoch < 50, "{mark:?}");
    }
}

/// The end of the database ends the waiting at the limit, and so does a successor.
#[test]
fn waiting_at_the_limit_ends_with_the_database() {
    let _watched = watched("ending at the limit");
    for closes in [true, false] {
        let dir = directory();
        let db = open(dir.path(), Concurrency::Silo, 2);
        reach(&db, 2);
        add(&db, 1).unwrap();
        let tell = |result: Result<(), Error>| result.expect_err("it waited").to_string();
        let waiting = {
            let (first, second) = (db.clone(), db.clone());
            [
                thread::spawn(move || tell(first.checkpoint().map(drop))),
                thread::spawn(move || tell(second.snapshot(|_| Ok(())))),
            ]
        };
        thread::sleep(Duration::from_millis(50));
        assert!(waiting.iter().all(|thread| !thread.is_finished()));
        match closes {
            true => db.clone().close().unwrap(),
            false => db.demote(6),
        }
        let told = waiting.map(|thread| thread.join().unwrap());
        let expected = if closes { "clos" } else { "incarnation 6" };
        assert!(told.iter().all(|text| text.contains(expected)), "{told:?}");
        drop(db);
    }
}

/// A long reader among writers, which would read a snapshot after a few conflicts, goes on without.
#[test]
fn a_reader_that_meets_conflicts_needs_no_snapshot() {
    let _watched = watched("a reader at the limit");
    for control in CONTROLS {
        let dir = directory();
        let db = open(dir.path(), control, 2);
        reach(&db, 2);
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let (db, over) = (&db, &over);
            for id in [1, 2] {
                scope.spawn(move || {
                    while !over.load(Ordering::SeqCst) {
                        add(db, id).unwrap();
                    }
                });
            }
            for _ in 0..20 {
                let counted = db.transact(|tx| {
                    let first = total(tx)?;
                    thread::sleep(Duration::from_millis(1));
                    Ok((first, total(tx)?))
                });
                let (first, second) = counted.unwrap();
                assert_eq!(first, second);
            }
            over.store(true, Ordering::SeqCst);
        });
        assert_eq!(db.epoch(), 2);
    }
}

/// A run begins above all earlier epochs, so a limit from before the last run is refused.
#[test]
fn a_limit_below_the_first_epoch_is_refused() {
    let dir = directory();
    let db = open(dir.path(), Concurrency::Silo, 5);
    reach(&db, 5);
    db.close().unwrap();
    let opened = declared(Concurrency::Silo).epoch_limit(5).open(dir.path());
    let Err(Error::Misuse(text)) = opened.map(drop) else { panic!("it is opened") };
    assert!(text.contains("epoch 6") && text.contains("limit 5"), "{text}");
    // Nothing was begun, so the same limit is enough later.
    let opened = declared(Concurrency::Silo).epoch_limit(6).open(dir.path());
    let db = opened.unwrap();
    assert_eq!(add(&db, 1).map(|_| db.epoch()).unwrap(), 6);
    db.close().unwrap();
    // A change of the schema takes a checkpoint, which ends an epoch.
    let wider = |limit: u64| {
        let mut builder = Database::builder().streams(2).epoch_limit(limit);
        let schema = Schema::new("counts").column("id", Type::I64).column("count", Type::I64);
        builder.table(schema.index("by_count", &["count"]).primary_key(&["id"]));
        builder.open(dir.path())
    };
    assert!(matches!(wider(7).map(drop), Err(Error::Misuse(_))));
    assert!(wider(8).is_ok());
    // Epochs have a limit only where the log can be followed.
    let other = Database::builder().protocol(Protocol::None).epoch_limit(5).open(dir.path());
    assert!(matches!(other.map(drop), Err(Error::Misuse(_))));
}

/// Many openings since the last checkpoint: the opening at the limit does without one.
#[test]
fn an_opening_at_the_limit_takes_no_checkpoint() {
    let _watched = watched("openings at the limit");
    let dir = directory();
    // An opening takes a checkpoint after 64 others.
    for n in 1..=66 {
        let db = declared(Concurrency::Silo).epoch_limit(n).open(dir.path()).unwrap();
        add(&db, 1).unwrap();
        assert_eq!(db.epoch(), n);
        db.close().unwrap();
    }
    let db = declared(Concurrency::Silo).epoch_limit(68).open(dir.path()).unwrap();
    assert!(db.log().unwrap().manifest().checkpoint.is_some());
    assert_eq!(db.epoch(), 68);
}

/// Without a limit nothing is limited by raising it.
#[test]
fn a_database_without_a_limit_has_none() {
    let dir = directory();
    let db = declared(Concurrency::Silo).open(dir.path()).unwrap();
    db.raise_epoch_limit(1);
    reach(&db, 4);
    assert!(matches!(db.transact(|_| Err::<(), _>(Abort::User(1).into())), Err(Error::Aborted(_))));
}
