//! Promise: a posted call runs once, whatever becomes of its waiter; a call beyond the maximum is
//! refused, and leaves nothing behind.

use crate::common::directory;
use hyades::{
    Abort, Builder, Column, Concurrency, Database, Error, PostedCall, ProcedureId, Protocol,
    Schema, Table, Transaction, Type,
};
use hyades_platform::device::{Device, Fault, FaultyDevice, FileDevice};
use hyades_schemes::PARTITIONED;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

const ROWS: Table = Table::nth(0);
const NUMBER: Column<i64> = Column::at(1);

/// Refused by the procedure `add`.
const REFUSED: i64 = 13;
/// Makes the procedure panic.
const PANICS: i64 = 14;

fn builder() -> (Builder, ProcedureId) {
    let mut builder = Database::builder().streams(2);
    let schema = Schema::new("rows").column("id", Type::I64).column("number", Type::I64);
    builder.table(schema.primary_key(&["id"]));
    let add = builder.procedure("add", 1, |tx: &Transaction<'_>, (id, n): (i64, i64)| {
        let number = tx.get(ROWS, id)?.map_or(0, |row| row.get(NUMBER)) + n;
        tx.upsert(ROWS, &[id.into(), number.into()])?;
        match n {
            REFUSED => Err(Abort::User(n)),
            PANICS => panic!("told to"),
            _ => Ok(number),
        }
    });
    (builder, add)
}

fn number(db: &Database, id: i64) -> i64 {
    let get =
        |tx: &Transaction<'_>| Ok::<_, Abort>(tx.get(ROWS, id)?.map_or(0, |row| row.get(NUMBER)));
    db.try_transact(get).unwrap().unwrap()
}

/// Wakes a thread.
struct Waking(Thread);

impl Wake for Waking {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Waking(std::thread::current())));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        std::thread::park();
    }
}

#[test]
fn all_that_is_posted_is_run_once() {
    for (protocol, concurrency) in [
        (Protocol::None, Concurrency::Silo),
        (Protocol::Taurus, Concurrency::Silo),
        (Protocol::Taurus, Concurrency::NoWait),
        (Protocol::Taurus, PARTITIONED),
    ] {
        let dir = directory();
        let (builder, add) = builder();
        let builder = builder.protocol(protocol).concurrency(concurrency).post_threads(3);
        let db = builder.open(dir.path()).unwrap();
        // All calls write one row: the calls conflict.
        let calls: Vec<PostedCall<i64>> =
            (0..300).map(|_| db.post(add, &(1i64, 1i64)).unwrap()).collect();
        let mut seen: Vec<i64> = calls.into_iter().map(|call| call.wait().unwrap()).collect();
        seen.sort_unstable();
        assert_eq!(seen, (1..=300).collect::<Vec<_>>(), "{concurrency:?}");
        assert_eq!(block_on(db.post::<_, i64>(add, &(1i64, 1i64)).unwrap()).unwrap(), 301);
        let mut call: PostedCall<i64> = db.post(add, &(1i64, 1i64)).unwrap();
        let result = loop {
            match call.try_result() {
                Some(result) => break result,
                None => std::thread::yield_now(),
            }
        };
        assert_eq!(result.unwrap(), 302);
        assert!(matches!(call.try_result(), Some(Err(Error::Misuse(_)))), "it is taken");
    }
}

/// A call beyond the maximum of open calls is refused. When a call has ended there is room again.
#[test]
fn the_queue_has_a_bound() {
    let dir = directory();
    let (builder, add) = builder();
    let db = builder.posted_calls(3).post_threads(0).open(dir.path()).unwrap();
    let post = |id: i64| db.post::<_, i64>(add, &(id, 1i64));
    let (first, second, third) = (post(1).unwrap(), post(2).unwrap(), post(3).unwrap());
    let refused = post(4).unwrap_err();
    assert!(matches!(refused, Error::TooManyPosted(3)), "{refused}");
    assert!(refused.to_string().contains("posted_calls"));
    assert!(db.run_posted().unwrap());
    assert_eq!(first.wait().unwrap(), 1);
    let last = post(5).unwrap();
    assert!(matches!(post(6), Err(Error::TooManyPosted(3))));
    while db.run_posted().unwrap() {}
    for call in [second, third, last] {
        assert_eq!(call.wait().unwrap(), 1);
    }
    assert_eq!([1, 2, 3, 4, 5, 6].map(|id| number(&db, id)), [1, 1, 1, 0, 1, 0]);
}

/// Inside a transaction of the database no posted call is run, and none is lost.
#[test]
fn none_is_run_inside_a_transaction() {
    for concurrency in [Concurrency::Silo, PARTITIONED] {
        let dir = directory();
        let (builder, add) = builder();
        let builder = builder.concurrency(concurrency).post_threads(0);
        let db = builder.open(dir.path()).unwrap();
        let call = db.post::<_, i64>(add, &(1i64, 1i64)).unwrap();
        let inside = db.try_transact(|_| Ok::<_, Abort>(db.run_posted())).unwrap().unwrap();
        assert!(matches!(&inside, Err(Error::Misuse(why)) if why.contains("inside")), "{inside:?}");
        assert!(db.run_posted().unwrap());
        assert_eq!(call.wait().unwrap(), 1);
        assert!(!db.run_posted().unwrap());
    }
}

/// A database closed inside one of its transactions still runs its open calls.
#[test]
fn closing_inside_a_transaction_loses_no_call() {
    let dir = directory();
    let (builder, add) = builder();
    let db = builder.post_threads(0).open(dir.path()).unwrap();
    let call = db.post::<_, i64>(add, &(1i64, 1i64)).unwrap();
    let mut session = db.session().unwrap();
    let closed = session.try_submit(|_| Ok::<_, Abort>(db.clone().close()));
    let (closed, _) = closed.unwrap();
    assert!(matches!(closed.unwrap(), Err(Error::Misuse(_))));
    assert_eq!(call.wait().unwrap(), 1);
}

#[test]
fn aborts_and_panics_are_outcomes() {
    let dir = directory();
    let (builder, add) = builder();
    let db = builder.post_threads(1).open(dir.path()).unwrap();
    let refused = db.post::<_, i64>(add, &(1i64, REFUSED)).unwrap().wait();
    assert!(matches!(refused, Err(Error::Aborted(Abort::User(REFUSED)))), "{refused:?}");
    let panics = db.post::<_, i64>(add, &(1i64, PANICS)).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| panics.wait())).is_err());
    let wrong = db.post::<_, i64>(add, &7u8).unwrap().wait();
    assert!(matches!(wrong, Err(Error::Aborted(Abort::BadArguments))), "{wrong:?}");
    // The thread goes on, and nothing of the failed calls is left.
    assert_eq!(db.post::<_, i64>(add, &(1i64, 1i64)).unwrap().wait().unwrap(), 1);
    let (_, foreign) = self::builder();
    assert!(matches!(db.post::<_, i64>(foreign, &(1i64, 1i64)), Err(Error::Misuse(_))));
}

/// Posted calls are run before the database is closed, waited for or not, with threads or without.
#[test]
fn closing_runs_what_is_open() {
    for threads in [0, 2] {
        let dir = directory();
        let (builder, add) = builder();
        let db = builder.post_threads(threads).open(dir.path()).unwrap();
        for id in 0..50i64 {
            drop(db.post::<_, i64>(add, &(id, 5i64)).unwrap());
        }
        let call: PostedCall<i64> = db.post(add, &(50i64, 5i64)).unwrap();
        let other = db.clone();
        db.close().unwrap();
        assert_eq!(call.wait().unwrap(), 5);
        assert!(matches!(other.post::<_, i64>(add, &(1i64, 1i64)), Err(Error::Misuse(_))));
        drop(other);
        let db = self::builder().0.open(dir.path()).unwrap();
        assert_eq!((0..=50).map(|id| number(&db, id)).sum::<i64>(), 51 * 5);
    }
}

/// The last handle is dropped by a waker, on a thread that the database would wait for.
#[test]
fn a_waker_may_drop_the_database() {
    struct Dropping(std::sync::Mutex<Option<Database>>, Thread);
    impl Wake for Dropping {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().unwrap().take());
            self.1.unpark();
        }
    }
    let dir = directory();
    let (builder, add) = builder();
    let db = builder.post_threads(1).open(dir.path()).unwrap();
    let mut call = Box::pin(db.post::<_, i64>(add, &(1i64, 1i64)).unwrap());
    let thread = std::thread::current();
    let waker = Waker::from(Arc::new(Dropping(std::sync::Mutex::new(Some(db)), thread)));
    let result = loop {
        match call.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => break result,
            Poll::Pending => std::thread::park(),
        }
    };
    assert_eq!(result.unwrap(), 1);
}

/// Once the log has failed calls are not run, and the outcome of calls not yet durable is unknown.
#[test]
fn a_failed_log_is_told() {
    let dir = directory();
    let device = FaultyDevice::new(FileDevice::shared());
    let faulty: Arc<dyn Device> = Arc::new(device.clone());
    let (builder, add) = builder();
    let builder = builder.log_settings(|log| log.device = Some(faulty)).post_threads(2);
    let db = builder.open(dir.path()).unwrap();
    db.post::<_, i64>(add, &(1i64, 1i64)).unwrap().wait().unwrap();
    device.arm(Fault::Write(0));
    let failed = db.post::<_, i64>(add, &(1i64, 1i64)).unwrap().wait();
    assert!(matches!(failed, Err(Error::OutcomeUnknown)), "{failed:?}");
    let refused = db.post::<_, i64>(add, &(1i64, 1i64)).unwrap().wait();
    assert!(matches!(refused, Err(Error::Poisoned(_))), "{refused:?}");
}

/// Threads that post, beside sessions that call.
#[test]
fn posted_and_called() {
    let dir = directory();
    let (builder, add) = builder();
    let db = builder.posted_calls(64).open(dir.path()).unwrap();
    let refused = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for id in 0..2i64 {
            let (db, refused) = (&db, &refused);
            scope.spawn(move || {
                let mut left = 300;
                while left > 0 {
                    match db.post::<_, i64>(add, &(id, 1i64)) {
                        Ok(call) => drop(call),
                        Err(Error::TooManyPosted(_)) => {
                            refused.fetch_add(1, Ordering::Relaxed);
                            std::thread::yield_now();
                            continue;
                        }
                        Err(error) => panic!("{error}"),
                    }
                    left -= 1;
                }
            });
            scope.spawn(move || {
                let mut session = db.session().unwrap();
                for _ in 0..300 {
                    session.call(add, &(id, 1i64)).unwrap().0.unwrap();
                }
            });
        }
    });
    db.close().unwrap();
    let db = self::builder().0.open(dir.path()).unwrap();
    assert_eq!([number(&db, 0), number(&db, 1)], [600, 600]);
    println!("{} posts were refused", refused.load(Ordering::Relaxed));
}
