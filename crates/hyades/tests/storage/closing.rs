//! Closing a database while transactions are outstanding.

use crate::common::watched::watched;
use hyades::{Column, Database, Error, Schema, Table, Type};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const NUMBERS: Table = Table::nth(0);

fn open(dir: &Path) -> Result<Database, Error> {
    open_flushing(dir, Duration::from_millis(200))
}

fn open_flushing(dir: &Path, interval: Duration) -> Result<Database, Error> {
    let mut builder = Database::builder().streams(2).log_settings(|log| {
        log.flush_interval = Some(interval);
    });
    let schema = Schema::new("numbers").column("n", Type::I64).primary_key(&["n"]);
    builder.table(schema);
    builder.open(dir)
}

/// A waker that holds the last handle to the database.
struct Waits(Mutex<Option<Database>>);

impl Wake for Waits {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().unwrap().take());
    }
}

#[test]
fn a_waker_that_drops_the_last_handle_loses_nothing_and_waits_for_nobody() {
    let _watched = watched("a database that is dropped by a waker");
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path()).unwrap();
    let mut session = db.session().unwrap();
    let mut insert = |n: i64| session.try_submit(|tx| tx.insert(NUMBERS, &[n.into()])).unwrap();
    insert(0).1.wait().unwrap();
    // The next flush is due after this point.
    let (inserted, mut ticket) = insert(1);
    inserted.unwrap();
    let waker = Waker::from(Arc::new(Waits(Mutex::new(Some(db.clone())))));
    let polled = std::pin::Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker));
    drop(waker);
    // These transactions are not yet durable when the waker runs.
    let mut last = 1;
    while matches!(polled, Poll::Pending) && last < 2000 {
        last += 1;
        drop(insert(last));
    }
    drop((ticket, session, db));
    // The directory is unlocked once everything has been closed.
    let again = loop {
        match open(dir.path()) {
            Ok(db) => break db,
            Err(Error::Log(hyades_wal::Error::InUse { .. })) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(again.rows(), last as u64 + 1, "all that was submitted is there");
    let column = Column::<i64>::at(0);
    let sum = again.try_transact(|tx| {
        Ok::<_, hyades::Abort>(tx.scan(NUMBERS).rows()?.iter().map(|row| row.get(column)).sum())
    });
    assert_eq!(sum.unwrap(), Ok(last * (last + 1) / 2));
}

#[test]
fn closing_waits_for_no_interval_though_a_checkpoint_does() {
    let _watched = watched("a database that is closed while a checkpoint waits for its log");
    let dir = tempfile::tempdir().unwrap();
    let db = open_flushing(dir.path(), Duration::from_secs(3600)).unwrap();
    let mut session = db.session().unwrap();
    let (inserted, ticket) = session.try_submit(|tx| tx.insert(NUMBERS, &[1i64.into()])).unwrap();
    inserted.unwrap();
    let taking = db.clone();
    let checkpoint = std::thread::spawn(move || drop(taking.checkpoint()));
    while !db.checkpoints().under_way {
        std::thread::sleep(Duration::from_millis(1));
    }
    // Time to write the row: then only the wait for the log is left.
    std::thread::sleep(Duration::from_millis(200));
    db.close().unwrap();
    checkpoint.join().unwrap();
    ticket.wait().unwrap();
}
