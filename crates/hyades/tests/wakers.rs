//! Promise: the wakers of tasks take no more room than there are waiting tickets, and no waker,
//! whatever its work, stops the database or a stream.
#![allow(missing_docs)]

mod common;
use common::watched::watched;
use hyades::{
    Database, Error, LogSettings, Protocol, RecordKind, Schema, Session, Table, Ticket, Type,
};
use hyades_schemes::ARRIVAL;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError::Disconnected;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tempfile::TempDir;

const NUMBERS: Table = Table::nth(0);
const PARKED: &str = "hyades_parked_wakers";
const PANICKED: &str = "hyades_waker_panics_total";

fn open(change: impl FnOnce(&mut LogSettings)) -> (TempDir, Database) {
    let dir = tempfile::tempdir().unwrap();
    let mut builder = Database::builder().streams(2).log_settings(change);
    builder.table(Schema::new("numbers").column("n", Type::I64).primary_key(&["n"]));
    builder.procedure("put", 1, |tx: &hyades::Transaction<'_>, n: i64| {
        tx.overwrite(NUMBERS, &[n.into()])
    });
    let db = builder.open(dir.path()).unwrap();
    (dir, db)
}

fn put(session: &mut Session, n: i64) -> Ticket {
    session.submit(|tx| Ok(tx.overwrite(NUMBERS, &[n.into()])?)).unwrap().1
}

fn poll(ticket: &mut Ticket, waker: &Waker) -> Poll<Result<(), Error>> {
    Pin::new(ticket).poll(&mut Context::from_waker(waker))
}

/// Runs the given work when woken, and reports the end.
struct Runs<F: FnOnce() + Send>(Mutex<Option<(F, Sender<()>)>>);

impl<F: FnOnce() + Send> Wake for Runs<F> {
    fn wake(self: Arc<Self>) {
        let taken = self.0.lock().unwrap_or_else(|e| e.into_inner()).take();
        if let Some((run, ended)) = taken {
            // Reported when dropped: by a panic, too.
            let _ended = ended;
            run();
        }
    }
}

/// Has a waker run `work` when a transaction becomes durable, and waits for the end.
fn in_a_waker(db: &Database, work: impl FnOnce() + Send + 'static) {
    let (ended, has_ended) = channel();
    let waker = Waker::from(Arc::new(Runs(Mutex::new(Some((work, ended))))));
    let mut session = db.session().unwrap();
    // Once the flush interval has begun no transaction becomes durable before it is polled.
    let mut ticket = put(&mut session, 0);
    while poll(&mut ticket, &waker).is_ready() {
        ticket = put(&mut session, 0);
    }
    drop(waker);
    assert_eq!(has_ended.recv_timeout(Duration::from_secs(60)), Err(Disconnected));
}

/// A waker of its own for each poll.
struct Idle;

impl Wake for Idle {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn as_many_wakers_are_parked_as_tickets_wait() {
    // Nothing becomes durable without a step.
    let (_dir, db) = open(|log| log.research.stepped = true);
    let parked = || db.metrics().total(PARKED).unwrap();
    let mut session = db.session().unwrap();
    let mut waiting = Vec::new();
    for n in 0..1_000 {
        let mut ticket = put(&mut session, n);
        for _ in 0..20 {
            assert!(poll(&mut ticket, &Waker::from(Arc::new(Idle))).is_pending());
        }
        if n % 10 == 0 {
            waiting.push(ticket);
        }
    }
    assert_eq!(parked(), 100.0, "tickets that are dropped leave nothing");
    for n in 0..1_000 {
        let mut queue = db.commit_queue();
        queue.push(put(&mut session, n), ());
        (0..3).for_each(|_| queue.arm(&Waker::from(Arc::new(Idle))));
    }
    assert_eq!(parked(), 100.0, "queues that are dropped leave nothing");
    let log = db.log().unwrap().clone();
    while (0..2).any(|stream| log.step(stream)) {}
    assert_eq!(parked(), 0.0);
    let polled = |ticket: &mut Ticket| poll(ticket, Waker::noop());
    assert!(waiting.iter_mut().all(|ticket| polled(ticket).is_ready()));
}

/// The last reference to a task is the reference of its waker, and the task owns a ticket.
#[test]
fn a_waker_that_is_withdrawn_may_own_what_withdraws_wakers() {
    struct Owns(#[expect(dead_code, reason = "dropped with this")] Mutex<Option<Ticket>>);
    impl Wake for Owns {
        fn wake(self: Arc<Self>) {}
    }
    let _watched = watched("a waker that owns a ticket");
    let (_dir, db) = open(|log| log.research.stepped = true);
    let mut session = db.session().unwrap();
    let mut inner = put(&mut session, 1);
    assert!(poll(&mut inner, &Waker::from(Arc::new(Idle))).is_pending());
    let mut outer = put(&mut session, 2);
    let waker = Waker::from(Arc::new(Owns(Mutex::new(Some(inner)))));
    assert!(poll(&mut outer, &waker).is_pending());
    drop(waker);
    drop(outer);
    assert_eq!(db.metrics().total(PARKED), Some(0.0));
    let log = db.log().unwrap().clone();
    while (0..2).any(|stream| log.step(stream)) {}
}

fn collects(log: &mut LogSettings) {
    log.flush_interval = Some(Duration::from_millis(50));
}

fn is_refused<T>(what: &str, result: Result<T, Error>) {
    let error = result.map(drop).expect_err(what);
    assert!(matches!(&error, Error::Misuse(why) if why.contains("waker")), "{what}: {error}");
}

/// The operations refused on a thread of the database, in a waker of a task of `db`.
fn try_all(db: Database, session: &mut Session) {
    is_refused("transact", db.transact(|tx| Ok(tx.overwrite(NUMBERS, &[7i64.into()])?)));
    is_refused("submit", session.submit(|tx| Ok(tx.overwrite(NUMBERS, &[8i64.into()])?)));
    is_refused("attempt", session.attempt::<(), hyades::Abort>(|_| Ok(())));
    is_refused("call", db.call::<i64, ()>("put", &9));
    is_refused("checkpoint", db.checkpoint());
    is_refused("snapshot", db.snapshot(|_| Ok(())));
    is_refused("wait", db.commit_queue::<()>().wait_for_one());
    is_refused("close", db.close());
}

#[test]
fn what_would_wait_for_its_own_thread_is_refused_in_a_waker() {
    let _watched = watched("a waker that commits");
    let (_dir, db) = open(collects);
    let (told, tells) = channel();
    let inner = db.clone();
    let mut session = db.session().unwrap();
    in_a_waker(&db, move || {
        let put = inner.prepare("put").unwrap();
        told.send(inner.post::<i64, ()>(put, &10)).unwrap();
        try_all(inner, &mut session);
        told.send(Err(Error::Misuse("the end".to_string()))).unwrap();
    });
    // A call that is only queued may be posted.
    tells.recv().unwrap().unwrap().wait().unwrap();
    assert!(tells.recv().is_ok(), "all was refused");
}

#[test]
fn a_ticket_is_not_waited_for_in_a_waker() {
    let _watched = watched("a waker that waits");
    let (_dir, db) = open(collects);
    let (told, tells) = channel();
    let (mut session, mut late) = (db.session().unwrap(), db.session().unwrap());
    // The ticket of a transaction flushed after the transaction whose waker runs.
    let (give, given) = channel::<Ticket>();
    put(&mut session, 0).wait().unwrap();
    let mut first = put(&mut session, 1);
    let waker = Waker::from(Arc::new(Runs(Mutex::new(Some((
        move || {
            let ticket = given.recv().unwrap();
            let result = match ticket.is_acknowledged().unwrap() {
                true => Err(Error::Misuse("not in time for the waker".to_string())),
                false => ticket.wait(),
            };
            told.send(result).unwrap();
        },
        channel().0,
    ))))));
    assert!(poll(&mut first, &waker).is_pending());
    while !first.is_acknowledged().unwrap() {
        std::thread::yield_now();
    }
    // The flusher is in the waker.
    give.send(put(&mut late, 2)).unwrap();
    is_refused("wait", tells.recv().unwrap());
}

#[test]
fn a_waker_that_panics_stops_nothing() {
    let _watched = watched("a waker that panics");
    let (_dir, db) = open(collects);
    for n in 1..=3 {
        in_a_waker(&db, || panic!("a panic of this test's waker"));
        while db.metrics().total(PANICKED) != Some(f64::from(n)) {
            std::thread::yield_now();
        }
        db.transact(|tx| Ok(tx.overwrite(NUMBERS, &[i64::from(n).into()])?)).unwrap();
    }
    // Other wakers for the same position are woken all the same.
    struct Counts(AtomicU64);
    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            assert!(!self.0.fetch_add(1, Ordering::SeqCst).is_multiple_of(2), "every second one");
        }
    }
    let counts = Arc::new(Counts(AtomicU64::new(0)));
    let mut session = db.session().unwrap();
    let mut tickets: Vec<Ticket> = (0..10).map(|n| put(&mut session, n)).collect();
    let waker = Waker::from(counts.clone());
    let waiting = tickets.iter_mut().map(|t| u64::from(poll(t, &waker).is_pending())).sum();
    tickets.into_iter().for_each(|ticket| ticket.wait().unwrap());
    while counts.0.load(Ordering::SeqCst) < waiting {
        std::thread::yield_now();
    }
    drop(session);
    db.close().unwrap();
}

#[test]
fn a_waker_of_a_posted_call_may_panic_and_may_not_commit() {
    let _watched = watched("a waker of a posted call");
    for sites in [None, Some(2)] {
        let dir = tempfile::tempdir().unwrap();
        let protocol = if sites.is_some() { ARRIVAL } else { Protocol::Taurus };
        let mut builder = Database::builder().streams(2).protocol(protocol);
        if let Some(sites) = sites {
            builder = builder.partitions(4).sites(sites).record(RecordKind::Command);
        }
        builder.table(Schema::new("numbers").column("n", Type::I64).primary_key(&["n"]));
        builder.procedure("put", 1, |tx: &hyades::Transaction<'_>, n: i64| {
            std::thread::sleep(Duration::from_millis(5));
            tx.overwrite(NUMBERS, &[n.into()])
        });
        let db = builder.open(dir.path()).unwrap();
        let put = db.prepare("put").unwrap();
        let mut refused = 0;
        for n in 0..20i64 {
            let (told, tells) = channel();
            let inner = db.clone();
            let run = move || {
                told.send(inner.call::<i64, ()>("put", &-1)).unwrap();
                panic!("a panic of this test's waker");
            };
            let waker = Waker::from(Arc::new(Runs(Mutex::new(Some((run, channel().0))))));
            let mut call = db.post::<i64, ()>(put, &n).unwrap();
            if Pin::new(&mut call).poll(&mut Context::from_waker(&waker)).is_pending() {
                is_refused("call", tells.recv().unwrap());
                refused += 1;
            }
            call.wait().unwrap();
        }
        assert!(refused > 0, "no waker was woken");
        db.close().unwrap();
    }
}

#[test]
fn closing_tells_that_the_log_had_failed_though_all_is_durable() {
    let (_dir, db) = open(|_| {});
    db.transact(|tx| Ok(tx.overwrite(NUMBERS, &[1i64.into()])?)).unwrap();
    db.log().unwrap().stop("told to by this test");
    let error = db.close().unwrap_err();
    assert!(error.to_string().contains("told to by this test"), "{error}");
}
