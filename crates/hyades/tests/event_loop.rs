//! The needs of a thread that serves many clients and must not wait: attempts, and a waker.
#![allow(missing_docs, reason = "tests are named by what they promise")]

use hyades::{Abort, Attempt, Column, CommitQueue, Database, Schema, Session, Table, Type};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const COUNT: Column<i64> = Column::at(1);

fn open(stepped: bool) -> (TempDir, Database, Table) {
    let dir = tempfile::tempdir().unwrap();
    let mut builder =
        Database::builder().streams(2).log_settings(|log| log.research.stepped = stepped);
    let schema = Schema::new("counters").column("id", Type::I64).column("count", Type::I64);
    let counters = builder.table(schema.primary_key(&["id"]));
    let db = builder.open(dir.path()).unwrap();
    db.transact(|tx| Ok(tx.insert(counters, &[1i64.into(), 0i64.into()])?)).unwrap();
    (dir, db, counters)
}

fn set(session: &mut Session, counters: Table, to: i64) -> Attempt<(), Abort> {
    let body = |tx: &hyades::Transaction<'_>| {
        tx.update(counters, 1i64, &[COUNT.set(to)])?;
        Ok(())
    };
    session.attempt(body).unwrap()
}

#[test]
fn an_attempt_runs_once_and_reports_a_conflict() {
    let (_dir, db, counters) = open(false);
    let (mut session, mut runs) = (db.session().unwrap(), 0);
    let attempt = session.attempt::<(), Abort>(|tx| {
        runs += 1;
        let count = tx.get(counters, 1i64)?.unwrap().get(COUNT);
        // Another thread overwrites the row read.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                db.transact(|tx| Ok(tx.update(counters, 1i64, &[COUNT.set(7)])?)).unwrap();
            });
        });
        tx.update(counters, 1i64, &[COUNT.set(count + 1)])?;
        Ok(())
    });
    assert!(matches!(attempt.unwrap(), Attempt::Conflict));
    assert_eq!((runs, session.conflicts()), (1, 1));
    assert!(matches!(set(&mut session, counters, 9), Attempt::Committed(..)));
    let refused = session.attempt::<(), Abort>(|tx| {
        tx.update(counters, 1i64, &[COUNT.set(10)])?;
        Err(Abort::User(3))
    });
    assert!(matches!(refused.unwrap(), Attempt::Abandoned(Abort::User(3), _)));
    let read = db.transact(|tx| Ok(tx.get(counters, 1i64)?.unwrap().get(COUNT))).unwrap();
    assert_eq!(read, 9);
}

/// Nothing is written before the test says so: an attempt finds no room, and does not wait for
/// room.
#[test]
fn an_attempt_without_room_runs_nothing() {
    let (_dir, db, counters) = open(true);
    let mut session = db.session().unwrap();
    let mut committed = 0u64;
    let no_room = loop {
        match set(&mut session, counters, 1) {
            Attempt::Committed(_, ticket) => drop(ticket),
            other => break other,
        }
        committed += 1;
        assert!(committed < 10_000_000, "two buffers of 8 MiB hold no more");
    };
    assert!(matches!(no_room, Attempt::NoRoom), "{no_room:?}");
    let log = db.log().unwrap();
    while (0..log.streams()).any(|stream| log.step(stream)) {}
    assert!(matches!(set(&mut session, counters, 2), Attempt::Committed(..)));
}

struct Unpark(Thread, AtomicU64);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.unpark();
    }
}

fn sleep_until(queue: &mut CommitQueue<i64>, waker: &Waker, mut done: impl FnMut(i64)) {
    let limit = Instant::now() + Duration::from_secs(60);
    while queue.drain(&mut done).unwrap() == 0 {
        queue.arm(waker);
        std::thread::park_timeout(Duration::from_secs(60));
        assert!(Instant::now() < limit, "no wake-up was lost");
    }
}

#[test]
fn an_armed_queue_wakes_its_thread() {
    let (_dir, db, counters) = open(false);
    let (mut session, mut queue) = (db.session().unwrap(), db.commit_queue());
    let unpark = Arc::new(Unpark(std::thread::current(), AtomicU64::new(0)));
    let waker = Waker::from(unpark.clone());
    queue.arm(&waker);
    assert_eq!(unpark.1.load(Ordering::SeqCst), 0, "an empty queue wakes nothing");
    let mut seen = Vec::new();
    for turn in 0..200 {
        session.turn();
        for n in 0..3 {
            let Attempt::Committed((), ticket) = set(&mut session, counters, n) else {
                panic!("nothing else runs")
            };
            queue.push(ticket, turn * 3 + n);
        }
        sleep_until(&mut queue, &waker, |item| seen.push(item));
    }
    while !queue.is_empty() {
        sleep_until(&mut queue, &waker, |item| seen.push(item));
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..600).collect::<Vec<_>>());
}

#[test]
fn a_failure_of_the_log_wakes_an_armed_queue() {
    let (_dir, db, counters) = open(true);
    let (mut session, mut queue) = (db.session().unwrap(), db.commit_queue());
    let unpark = Arc::new(Unpark(std::thread::current(), AtomicU64::new(0)));
    let waker = Waker::from(unpark.clone());
    let Attempt::Committed((), ticket) = set(&mut session, counters, 1) else {
        panic!("nothing else runs")
    };
    queue.push(ticket, 1);
    queue.arm(&waker);
    queue.arm(&waker);
    assert_eq!(unpark.1.load(Ordering::SeqCst), 0);
    db.log().unwrap().stop("a test");
    assert_eq!(unpark.1.load(Ordering::SeqCst), 1, "one waker was parked, however often armed");
    assert!(queue.drain(|_| panic!("it is not durable")).is_err());
    assert!(session.attempt::<(), Abort>(|_| Ok(())).is_err());
}
