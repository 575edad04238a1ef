//! A long transaction beside short transactions that make it conflict again and again. Promise: the
//! long transaction succeeds, or ends with an error within its time limit.
#![allow(missing_docs)]

mod common;
use common::directory;
use hyades::{
    Abort, Column, Concurrency, Database, Error, Protocol, Schema, Table, Transaction, Type,
};
use hyades_schemes::{TIMESTAMP_ORDER, all_controls};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const ROWS: Table = Table::nth(0);
const VALUE: Column<i64> = Column::at(1);
const COUNT: i64 = 20_000;

/// One test at a time: one breaks a rule, and a broken rule is global to the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn builder(concurrency: Concurrency) -> hyades::Builder {
    let mut builder = Database::builder().protocol(Protocol::Taurus).concurrency(concurrency);
    let schema = Schema::new("rows").column("id", Type::I64).column("value", Type::I64);
    builder.table(schema.primary_key(&["id"]));
    builder
}

fn fill(db: &Database) {
    for from in (0..COUNT).step_by(1000) {
        let insert = |tx: &Transaction<'_>| {
            (from..from + 1000)
                .try_for_each(|id| tx.insert(ROWS, &[id.into(), 0i64.into()]).map(drop))
        };
        db.try_transact(insert).unwrap().unwrap();
    }
}

/// Long enough for the writer to commit, if not held at the gate.
const A_WHILE: Duration = Duration::from_millis(20);
/// Long enough for the writer to commit in any case.
const FOR_EVER: Duration = Duration::from_secs(60);

/// Number of commits of the writer.
type Commits = AtomicU64;

/// Reads all rows after the writer has committed in between, or after `patience`: a writer held at
/// the gate does not commit. Of two counted commits, the first may precede the first read.
fn sum(tx: &Transaction<'_>, commits: &Commits, patience: Duration) -> Result<i64, Abort> {
    let first = tx.get(ROWS, 0i64)?.expect("it is there").get(VALUE);
    let (began, before) = (Instant::now(), commits.load(Ordering::Acquire));
    while commits.load(Ordering::Acquire) < before + 2 && began.elapsed() < patience {
        std::thread::sleep(Duration::from_micros(100));
    }
    let rows = tx.scan(ROWS).rows()?;
    Ok(rows.iter().map(|row| row.get(VALUE)).sum::<i64>() - first)
}

/// Writes, so that the transaction cannot run as of a snapshot, then reads all rows.
fn write_and_sum(tx: &Transaction<'_>, commits: &Commits) -> Result<i64, Abort> {
    tx.update(ROWS, 1i64, &[VALUE.set(1)])?;
    sum(tx, commits, FOR_EVER)
}

/// Reads all rows like `sum`, then writes.
fn sum_up(tx: &Transaction<'_>, commits: &Commits, patience: Duration) -> Result<(), Abort> {
    let sum = sum(tx, commits, patience)?;
    tx.update(ROWS, 1i64, &[VALUE.set(sum)]).map(drop)
}

/// Runs `body` while another thread updates one row continually.
fn beside_a_writer<T>(db: &Database, body: impl FnOnce(&Commits) -> T) -> T {
    let (over, commits) = (AtomicBool::new(false), Commits::new(0));
    let (over, commits, db) = (&over, &commits, &db);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut session = db.session().unwrap();
            let mut n = 0i64;
            while !over.load(Ordering::Relaxed) {
                n += 1;
                let touch = |tx: &Transaction<'_>| tx.update(ROWS, 0i64, &[VALUE.set(n)]);
                // A timeout of the writer does not matter here.
                if let Ok((touched, _)) = session.try_submit(touch) {
                    touched.unwrap();
                    commits.fetch_add(1, Ordering::Release);
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let result = catch_unwind(AssertUnwindSafe(|| body(commits)));
        over.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

#[test]
fn a_long_reader_beside_a_quick_writer_gets_through() {
    let _alone = alone();
    for concurrency in all_controls() {
        let dir = directory();
        let db = builder(concurrency).open(dir.path()).unwrap();
        fill(&db);
        let began = Instant::now();
        beside_a_writer(&db, |commits| {
            for _ in 0..3 {
                db.try_transact(|tx| sum(tx, commits, A_WHILE)).unwrap().unwrap();
            }
        });
        // Each transaction runs alone after 100 ms. The rest of the bound is for a busy machine.
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
}

#[test]
fn a_long_writer_beside_a_quick_writer_gets_through() {
    let _alone = alone();
    for concurrency in all_controls() {
        let dir = directory();
        let db = builder(concurrency).open(dir.path()).unwrap();
        fill(&db);
        beside_a_writer(&db, |commits| {
            db.try_transact(|tx| sum_up(tx, commits, A_WHILE)).unwrap().unwrap();
        });
    }
}

/// With the rule broken, the time limit ends the transaction.
#[cfg(feature = "mutations")]
#[test]
fn without_running_alone_a_long_writer_starves() {
    use hyades_platform::mutation::{self, Mutation};

    let _alone = alone();
    for (broken, starves) in [(None, false), (Some(Mutation::NoExclusiveRetry), true)] {
        let limited = builder(Concurrency::Silo)
            .retries(|retries| retries.deadline = Some(Duration::from_secs(2)));
        let dir = directory();
        let db = limited.open(dir.path()).unwrap();
        fill(&db);
        mutation::set(broken);
        // Without the gate the writer commits in any case.
        let patience = if starves { FOR_EVER } else { A_WHILE };
        let ended =
            beside_a_writer(&db, |commits| db.try_transact(|tx| sum_up(tx, commits, patience)));
        mutation::set(None);
        assert_eq!(matches!(ended, Err(Error::Starved { .. })), starves, "{broken:?}: {ended:?}");
    }
}

/// Writes for a few milliseconds while another thread takes one checkpoint after the other.
fn write_beside_checkpoints(concurrency: Concurrency) -> Result<(), Error> {
    let dir = directory();
    let limited =
        builder(concurrency).retries(|retries| retries.deadline = Some(Duration::from_secs(4)));
    let db = limited.open(dir.path()).unwrap();
    db.try_transact(|tx| tx.insert(ROWS, &[1i64.into(), 0i64.into()]).map(drop)).unwrap().unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                db.checkpoint().unwrap();
            }
        });
        let slowly = |tx: &Transaction<'_>| {
            tx.update(ROWS, 1i64, &[VALUE.set(1)])?;
            std::thread::sleep(Duration::from_millis(20));
            Ok::<_, Abort>(())
        };
        let ended = (0..3).try_for_each(|_| db.try_transact(slowly).map(Result::unwrap));
        over.store(true, Ordering::Relaxed);
        ended
    })
}

/// A checkpoint closes an epoch; a transaction that has drawn its timestamp in the epoch must not
/// commit there.
#[test]
fn a_slow_writer_beside_checkpoints_gets_through() {
    let _alone = alone();
    for concurrency in all_controls() {
        write_beside_checkpoints(concurrency).unwrap();
    }
}

/// The same under the broken rule.
#[cfg(feature = "mutations")]
#[test]
fn if_checkpoints_do_not_wait_a_slow_writer_starves() {
    use hyades_platform::mutation::{self, Mutation};

    let _alone = alone();
    // The writer gets through if the thread of checkpoints is held up: then the check is tried
    // again.
    let starves = |_| {
        mutation::set(Some(Mutation::CloseEpochsOfStarving));
        let ended = write_beside_checkpoints(TIMESTAMP_ORDER);
        mutation::set(None);
        matches!(ended, Err(Error::Starved { .. }))
    };
    assert!((0..10).any(starves), "the writer gets through");
}

#[test]
fn attempts_and_time_are_limited_if_that_is_wanted() {
    let _alone = alone();
    let dir = directory();
    let limited = builder(Concurrency::Silo).retries(|retries| {
        retries.alone_after = None;
        retries.deadline = Some(Duration::from_secs(1));
    });
    let db = limited.open(dir.path()).unwrap();
    fill(&db);
    let began = Instant::now();
    let error = beside_a_writer(&db, |commits| {
        db.try_transact(|tx| write_and_sum(tx, commits)).unwrap_err()
    });
    assert!(matches!(error, Error::Starved { attempts, .. } if attempts > 1), "{error}");
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert!(error.to_string().contains("Builder::retries"), "{error}");
    db.close().unwrap();

    for most in [1, 5] {
        let limited = builder(Concurrency::Silo).retries(|retries| {
            retries.alone_after = None;
            retries.attempts = Some(most);
        });
        let db = limited.open(dir.path()).unwrap();
        let mut runs = 0;
        let error = beside_a_writer(&db, |commits| {
            let counted = |tx: &Transaction<'_>| {
                runs += 1;
                write_and_sum(tx, commits)
            };
            db.try_transact(counted).unwrap_err()
        });
        assert!(matches!(error, Error::Starved { attempts, .. } if attempts == most), "{error}");
        assert_eq!(runs, most);
        // The database works normally afterwards.
        db.try_transact(|tx| sum(tx, &Commits::new(0), Duration::ZERO)).unwrap().unwrap();
        db.close().unwrap();
    }

    let none = builder(Concurrency::Silo).retries(|retries| retries.attempts = Some(0));
    let error = none.open(directory().path()).err().expect("it is refused");
    assert!(error.to_string().contains("RetrySettings::attempts is 0"), "{error}");
}

#[test]
fn a_transaction_inside_another_is_an_error() {
    let _alone = alone();
    for concurrency in all_controls() {
        let (dir, other_dir) = (directory(), directory());
        let db = builder(concurrency).open(dir.path()).unwrap();
        let other = builder(concurrency).open(other_dir.path()).unwrap();
        fill(&db);
        fill(&other);
        let mut inner = None;
        let outer = |tx: &Transaction<'_>| {
            tx.update(ROWS, 3i64, &[VALUE.set(1i64)])?;
            let touch = |tx: &Transaction<'_>| tx.update(ROWS, 3i64, &[VALUE.set(2i64)]);
            inner = Some(db.try_transact(touch));
            // A transaction of another database is allowed.
            other.try_transact(touch).unwrap().unwrap();
            let again = db.session().unwrap().try_submit(touch).map(drop);
            assert!(matches!(again, Err(Error::Misuse(_))));
            Ok::<_, Abort>(())
        };
        db.try_transact(outer).unwrap().unwrap();
        let error = inner.expect("it ran").unwrap_err();
        assert!(error.to_string().contains("inside another one of the same database"), "{error}");
        let value = |tx: &Transaction<'_>| Ok::<_, Abort>(tx.get(ROWS, 3i64)?.unwrap().get(VALUE));
        assert_eq!(db.try_transact(value).unwrap(), Ok(1));
    }
}

#[test]
fn a_closure_that_waits_for_a_thread_at_the_gate_goes_on() {
    let _alone = alone();
    let dir = directory();
    let alone_at_once =
        builder(Concurrency::Silo).retries(|retries| retries.alone_after = Some(Duration::ZERO));
    let db = alone_at_once.open(dir.path()).unwrap();
    fill(&db);
    let mut attempts = 0i64;
    let waits = |tx: &Transaction<'_>| {
        attempts += 1;
        tx.update(ROWS, 1i64, &[VALUE.set(attempts)])?;
        tx.get(ROWS, 0i64)?;
        let touch = |tx: &Transaction<'_>| tx.update(ROWS, 0i64, &[VALUE.set(attempts)]);
        let db = &db;
        if attempts < 3 {
            // The transaction causes its own conflict. From the second attempt on it runs alone.
            std::thread::scope(|scope| {
                scope.spawn(move || db.try_transact(touch).unwrap().unwrap());
            });
        }
        Ok::<_, Abort>(())
    };
    let began = Instant::now();
    db.try_transact(waits).unwrap().unwrap();
    assert_eq!(attempts, 3);
    assert!(began.elapsed() < Duration::from_secs(10));
}
