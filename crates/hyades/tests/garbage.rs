//! Promise: deleted rows and stale index entries do not accumulate, whatever operations cause them.
#![allow(missing_docs)]

mod common;
use common::{directory, watched::watched};
use hyades::{Abort, Concurrency, Database, Protocol, Schema, Session, Table, Type, Value};
use hyades_schemes::{POPLAR, SILO_R, TIMESTAMP_ORDER, all_controls};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const HOT: Table = Table::nth(0);

/// One test at a time: the tests measure garbage and time, and some break a rule, which is global
/// to the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const EPOCH: Duration = Duration::from_millis(2);

fn open(dir: &Path, protocol: Protocol, concurrency: Concurrency) -> Database {
    let mut builder =
        Database::builder().protocol(protocol).concurrency(concurrency).streams(streams(protocol));
    builder = builder.log_settings(|log| log.epoch = Some(EPOCH));
    builder.table(
        Schema::new("hot")
            .column("id", Type::I64)
            .column("group", Type::I64)
            .column("name", Type::I64)
            .primary_key(&["id"])
            .index("by_group", &["group"])
            .unique("by_name", &["name"]),
    );
    builder.open(dir).unwrap()
}

fn streams(protocol: Protocol) -> usize {
    if protocol == Protocol::Serial { 1 } else { 2 }
}

fn all() -> impl Iterator<Item = (Protocol, Concurrency)> {
    let protocols = [Protocol::Taurus, Protocol::Serial, SILO_R, POPLAR, Protocol::None];
    let pairs = protocols.into_iter().flat_map(|p| all_controls().map(move |control| (p, control)));
    pairs.filter(|(protocol, control)| control.runs_under(*protocol))
}

/// A row with new values in its indexed columns.
fn row(id: u64, n: u64, worker: u64) -> [Value<'static>; 3] {
    [Value::I64(id as i64), Value::I64((n % 1000) as i64), Value::I64((n * 2 + worker) as i64)]
}

/// Runs a few more transactions in each session. Returns the garbage left afterwards.
fn left_after_a_few_more(db: &Database, mut sessions: Vec<Session>) -> u64 {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        for session in &mut sessions {
            for _ in 0..64 {
                session.try_submit(|tx| tx.get(HOT, 1i64).map(|_| ())).unwrap().0.unwrap();
            }
        }
        let left = db.stats().garbage;
        if left == 0 || Instant::now() > until {
            return left;
        }
        std::thread::sleep(EPOCH);
    }
}

/// Garbage left by two threads.
struct Left {
    /// The maximum at any time.
    most: u64,
    /// The garbage left after a few more transactions.
    end: u64,
    /// Number of transactions per epoch.
    per_epoch: u64,
}

/// Runs `step` on two threads, with the number of the worker and of the repetition.
fn churn(db: &Database, count: u64, step: impl Fn(&mut Session, u64, u64) + Sync) -> Left {
    let (over, most) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let began = Instant::now();
        let run = |worker| {
            let mut session = db.session().unwrap();
            (0..count).for_each(|n| step(&mut session, worker, n));
            session
        };
        let workers = [0, 1].map(|worker| scope.spawn(move || run(worker)));
        let looker = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                most.fetch_max(db.stats().garbage, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let sessions = workers.map(|worker| worker.join());
        let epochs = began.elapsed().as_secs_f64() / EPOCH.as_secs_f64();
        over.store(true, Ordering::Relaxed);
        looker.join().unwrap();
        let sessions = sessions.map(Result::unwrap);
        let end = left_after_a_few_more(db, sessions.into());
        Left {
            most: most.load(Ordering::Relaxed),
            end,
            per_epoch: (2.0 * count as f64 / epochs) as u64,
        }
    })
}

fn upserts(db: &Database, count: u64) -> Left {
    churn(db, count, |session, worker, n| {
        let row = row(n % 8, n, worker);
        session.try_submit(|tx| tx.upsert(HOT, &row).map(|_| ())).unwrap().0.unwrap();
    })
}

/// Whether versions stay that a transaction in progress may read: while its thread is descheduled
/// the number of versions has no bound.
fn keeps_versions(concurrency: Concurrency) -> bool {
    [Concurrency::Hekaton, TIMESTAMP_ORDER].contains(&concurrency)
}

#[test]
fn stale_entries_of_rows_that_are_upserted_all_the_time_do_not_pile_up() {
    let (_alone, _watched) = (alone(), watched("upserts"));
    for (protocol, concurrency) in all() {
        let dir = directory();
        let db = open(dir.path(), protocol, concurrency);
        let Left { most, end, .. } = upserts(&db, 100_000);
        eprintln!("{protocol:?}, {concurrency:?}: at most {most}, {end} left");
        // Two sessions, with two entries for each transaction.
        assert!(
            most <= 1_000 || keeps_versions(concurrency),
            "{protocol:?}, {concurrency:?}: {most}"
        );
        assert_eq!(end, 0, "{protocol:?}, {concurrency:?}");
        assert_eq!(db.rows(), 8);
    }
}

#[test]
fn rows_that_come_and_go_under_the_same_keys_do_not_pile_up() {
    let (_alone, _watched) = (alone(), watched("deletions"));
    for (protocol, concurrency) in all() {
        let dir = directory();
        let db = open(dir.path(), protocol, concurrency);
        let Left { most, end, per_epoch } = churn(&db, 50_000, |session, worker, n| {
            let id = (n / 2 % 8) as i64;
            if n % 2 == 0 {
                let row = row(id as u64, n, worker);
                session.try_submit(|tx| tx.upsert(HOT, &row).map(|_| ())).unwrap().0.unwrap();
            } else {
                session.try_submit(|tx| tx.delete(HOT, id).map(|_| ())).unwrap().0.unwrap();
            }
        });
        // Rows deleted in the last two epochs, which last longer on a busy machine.
        eprintln!(
            "{protocol:?}, {concurrency:?}: at most {most}, {per_epoch} an epoch, {end} left"
        );
        let bound = 1_000 + 20 * per_epoch;
        assert!(
            most <= bound || keeps_versions(concurrency),
            "{protocol:?}, {concurrency:?}: {most}"
        );
        assert_eq!(end, 0, "{protocol:?}, {concurrency:?}");
    }
}

/// A scan of an empty table takes a fraction of this time, a scan over 100,000 deleted rows far
/// more.
const SHORT: Duration = Duration::from_micros(100);

/// Measures how long scans of the empty table take: the fastest and the slowest of a few, since the
/// thread may be descheduled during one.
fn scans_of_nothing(db: &Database) -> [Duration; 2] {
    let scans = db.try_transact(|tx| {
        let (mut fastest, mut slowest) = (Duration::MAX, Duration::ZERO);
        for _ in 0..5 {
            let began = Instant::now();
            assert!(tx.scan(HOT).rows()?.is_empty());
            let took = began.elapsed();
            (fastest, slowest) = (fastest.min(took), slowest.max(took));
        }
        Ok::<_, Abort>([fastest, slowest])
    });
    scans.unwrap().unwrap()
}

/// Sessions that insert a row, delete it and end. Then sessions that do nothing.
fn sessions_that_end(db: &Database, count: u64) {
    for id in 0..count {
        let mut session = db.session().unwrap();
        let row = row(id, id, 0);
        session.try_submit(|tx| tx.insert(HOT, &row).map(|_| ())).unwrap().0.unwrap();
        session.try_submit(|tx| tx.delete(HOT, id as i64).map(|_| ())).unwrap().0.unwrap();
    }
    let until = Instant::now() + Duration::from_secs(20);
    while db.stats().garbage > 0 && Instant::now() < until {
        std::thread::sleep(EPOCH);
        drop(db.session().unwrap());
    }
}

#[test]
fn sessions_that_end_leave_nothing_behind() {
    let (_alone, _watched) = (alone(), watched("sessions that end"));
    for (protocol, concurrency) in all() {
        let dir = directory();
        let db = open(dir.path(), protocol, concurrency);
        sessions_that_end(&db, 25_000);
        assert_eq!(db.stats().garbage, 0, "{protocol:?}, {concurrency:?}");
        let [took, _] = scans_of_nothing(&db);
        eprintln!("{protocol:?}, {concurrency:?}: a scan of the empty table took {took:?}");
        assert!(took < 20 * SHORT, "{protocol:?}, {concurrency:?}: {took:?}");
        assert_eq!(db.stats().attempts, 50_001);
    }
}

#[test]
fn what_is_done_without_a_session_is_counted_and_cleared_away() {
    let (_alone, _watched) = (alone(), watched("without a session"));
    for (protocol, concurrency) in all() {
        let dir = directory();
        let db = open(dir.path(), protocol, concurrency);
        for id in 0..1000u64 {
            let row = row(id, id, 0);
            db.try_transact(|tx| tx.insert(HOT, &row).map(|_| ())).unwrap().unwrap();
        }
        let delete_all =
            db.try_transact(|tx| (0..1000i64).try_for_each(|id| tx.delete(HOT, id).map(|_| ())));
        delete_all.unwrap().unwrap();
        assert!(db.stats().attempts >= 1001, "{:?}", db.stats());
        if protocol == Protocol::None {
            std::thread::sleep(2 * EPOCH);
            while db.stats().garbage > 0 {
                db.try_transact(|tx| tx.get(HOT, 1i64).map(|_| ())).unwrap().unwrap();
            }
        } else {
            // No further transaction runs here; the checkpoint must collect the garbage.
            db.checkpoint().unwrap();
        }
        assert_eq!(db.stats().garbage, 0, "{protocol:?}, {concurrency:?}");
        scans_of_nothing(&db);
    }
}

/// Promise: a conflict is counted while its session lives. The inner transaction must conflict once
/// under no-wait.
#[test]
fn conflicts_are_counted_while_sessions_live() {
    let _alone = alone();
    let dir = directory();
    let db = open(dir.path(), Protocol::Taurus, Concurrency::NoWait);
    db.try_transact(|tx| tx.upsert(HOT, &row(1, 1, 0)).map(|_| ())).unwrap().unwrap();
    let (mut one, mut other) = (db.session().unwrap(), db.session().unwrap());
    let mut tried = 0;
    let inner = |tx: &hyades::Transaction<'_>| {
        tx.upsert(HOT, &row(1, 2, 0)).map(|_| ())?;
        let meets_it = |tx: &hyades::Transaction<'_>| {
            tried += 1;
            if tried > 1 {
                return Ok::<_, hyades::Abort>(());
            }
            tx.upsert(HOT, &row(1, 3, 0)).map(|_| ())
        };
        let other = &mut other;
        std::thread::scope(|scope| scope.spawn(|| other.try_submit(meets_it).unwrap().0).join())
            .unwrap()
    };
    one.try_submit(inner).unwrap().0.unwrap();
    assert!(db.stats().conflicts >= 1, "{:?}", db.stats());
}

/// A session that runs no more transactions frees its own garbage and the garbage of an ended
/// session, once no snapshot needs the versions.
#[test]
fn an_idle_session_frees_what_was_deleted() {
    let _alone = alone();
    for (protocol, concurrency) in all() {
        let _watched = watched(&format!("{protocol:?} {concurrency:?}"));
        let dir = directory();
        let db = open(dir.path(), protocol, concurrency);
        let [mut idle, mut other] = [db.session().unwrap(), db.session().unwrap()];
        let insert = |tx: &hyades::Transaction<'_>, from: u64| {
            (from..from + 3_000).try_for_each(|id| tx.insert(HOT, &row(id, id, 0)).map(drop))
        };
        let delete = |tx: &hyades::Transaction<'_>, from: u64| {
            (from..from + 3_000).try_for_each(|id| tx.delete(HOT, id as i64).map(drop))
        };
        idle.try_submit(|tx| insert(tx, 0)).unwrap().0.unwrap();
        idle.try_submit(|tx| insert(tx, 3_000)).unwrap().0.unwrap();
        let snapshot = db.open_snapshot();
        other.try_submit(|tx| delete(tx, 0)).unwrap().0.unwrap();
        idle.try_submit(|tx| delete(tx, 3_000)).unwrap().0.unwrap();
        drop(other);
        // A call that has removed something says so.
        let mut free = |rounds: u32| {
            let (mut left, mut has_freed) = (rounds, false);
            while idle.has_unused() && left > 0 {
                let before = db.stats().garbage;
                has_freed = idle.free_unused();
                assert!(has_freed || db.stats().garbage == before, "{protocol:?} {concurrency:?}");
                std::thread::sleep(EPOCH);
                left -= 1;
            }
            (idle.has_unused(), has_freed, db.stats().garbage)
        };
        let (has_unused, has_freed, left) = free(50);
        assert!(has_unused && left >= 6_000, "{protocol:?} {concurrency:?}: {left} of 6000 rows");
        assert!(!has_freed, "{protocol:?} {concurrency:?}: a snapshot needs them");
        snapshot.read(|tx| Ok(tx.get(HOT, 1i64)?.is_some())).map(|found| assert!(found)).unwrap();
        drop(snapshot);
        let (has_unused, _, left) = free(10_000);
        assert_eq!((has_unused, left), (false, 0), "{protocol:?} {concurrency:?}");
        let count = db.transact(|tx| Ok(tx.scan(HOT).rows()?.len())).unwrap();
        assert_eq!(count, 0);
    }
}

/// Mutation test: with the rules broken, garbage accumulates.
#[cfg(feature = "mutations")]
#[test]
fn without_the_rules_it_piles_up() {
    use hyades_platform::mutation::{self, Mutation};
    let (_alone, _watched) = (alone(), watched("broken rules"));
    let (first, second) = (directory(), directory());
    mutation::set(Some(Mutation::SweepHeldUp));
    let db = open(first.path(), Protocol::Taurus, Concurrency::Silo);
    let Left { most, .. } = upserts(&db, 200_000);
    mutation::set(Some(Mutation::ForgetLeftBehind));
    let db = open(second.path(), Protocol::Taurus, Concurrency::Silo);
    sessions_that_end(&db, 100_000);
    let sound = open(directory().path(), Protocol::None, Concurrency::Silo);
    mutation::set(None);
    sessions_that_end(&sound, 10);
    // The first scan finds all tombstones; later scans find the tombstones not cleared away yet.
    let [_, slowest] = scans_of_nothing(&db);
    eprintln!("at most {most}; {slowest:?}");
    assert!(most > 1_000, "{most}");
    assert!(slowest > 20 * scans_of_nothing(&sound)[0].max(SHORT), "{slowest:?}");
}

/// A transaction finds no row, then the tombstone is removed; the transaction sees the row that it
/// inserts.
#[test]
fn a_row_is_seen_by_the_transaction_that_inserts_it_again() {
    let _alone = alone();
    for (protocol, concurrency) in all().filter(|(protocol, _)| *protocol != Protocol::None) {
        let dir = directory();
        let db = open(dir.path(), protocol, concurrency);
        db.transact(|tx| Ok(tx.insert(HOT, &row(1, 1, 0)).map(drop)?)).unwrap();
        let mut other = db.session().unwrap();
        other.submit(|tx| Ok(tx.delete(HOT, 1i64).map(drop)?)).unwrap().1.wait().unwrap();
        // The session hands its garbage over.
        drop(other);
        std::thread::sleep(3 * EPOCH);
        let is_first = std::cell::Cell::new(true);
        let seen = db.try_transact(|tx| {
            let before = tx.get(HOT, 1i64)?.is_some();
            // A transaction that writes beside a checkpoint may have to run again.
            for _ in 0..if is_first.replace(false) { 2 } else { 0 } {
                db.checkpoint().unwrap();
                std::thread::sleep(2 * EPOCH);
            }
            tx.insert(HOT, &row(1, 2, 0))?;
            Ok::<_, Abort>((before, tx.get(HOT, 1i64)?.is_some()))
        });
        assert_eq!(seen.unwrap(), Ok((false, true)), "{protocol:?} {concurrency:?}");
    }
}
