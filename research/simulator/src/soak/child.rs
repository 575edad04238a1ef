//! The killed process of a soak test: workers whose transactions are counted, and bystanders that
//! remove much, hold snapshots, visit rows slowly, and run long transactions.

use super::data::{CHURNED, ROWS, SoakData};
use super::life::SoakLife;
use super::watch::COUNTERS;
use hyades::{
    Abort, Columns, CommitQueue, Database, Error, ProcedureId, RecordKind, Session, Ticket,
};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread::sleep;
use std::time::Duration;

/// Writes a line to the parent.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    // Write errors are ignored: if the parent is gone, this process is about to be killed as well.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Tells the parent that a thread goes on.
fn say_progress() {
    say("ran\n");
}

/// Tells the parent the counters of the database, for the report of a process with too much memory.
fn say_counters(db: &Database) -> Result<(), Error> {
    loop {
        say(&format!("{COUNTERS} {:?}\n", db.stats()));
        sleep(Duration::from_millis(100));
    }
}

/// Runs until the process is killed. Prints the recovered state, then acknowledgements.
pub fn run_child(dir: &Path, life: &SoakLife) {
    if let Err(wrong) = run(dir, life) {
        say(&format!("wrong {wrong}\n"));
    }
}

fn run(dir: &Path, life: &SoakLife) -> Result<(), String> {
    let opened = life.open(dir).map_err(|error| format!("it cannot be opened: {error}"));
    let (db, id) = opened?;
    say(&format!("found {:?}\n", life.data.look(&db)?));
    std::thread::scope(|scope| {
        for (name, thread) in threads(&db, id, life) {
            scope.spawn(move || {
                let wrong = match catch_unwind(AssertUnwindSafe(thread)) {
                    Ok(Ok(())) => return,
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => "a panic".to_string(),
                };
                say(&format!("wrong {name}: {wrong}\n"));
            });
        }
    });
    Ok(())
}

type ThreadBody<'d> = Box<dyn FnOnce() -> Result<(), Error> + Send + 'd>;

/// The bodies of the threads of a life, with their names.
fn threads<'d>(
    db: &'d Database,
    id: ProcedureId,
    life: &'d SoakLife,
) -> Vec<(String, ThreadBody<'d>)> {
    let mut threads: Vec<(String, ThreadBody<'d>)> = Vec::new();
    for worker in 0..life.data.workers {
        threads.push((format!("worker {worker}"), Box::new(move || work(db, id, worker, life))));
    }
    for thread in 0..life.removals.map_or(0, |removals| removals.threads) {
        let removals = life.removals.expect("it has threads");
        let run = move || removals.run(db, thread, &say_progress);
        threads.push((format!("removals {thread}"), Box::new(run)));
    }
    if let Some(pause) = life.visitor_ms.map(Duration::from_millis) {
        threads.push(("visitor".to_string(), Box::new(move || visit(db, pause))));
    }
    if let Some(held) = life.snapshot_ms.map(Duration::from_millis) {
        threads.push(("snapshot".to_string(), Box::new(move || hold(db, &life.data, held))));
    }
    if let Some(time) = life.body_ms.map(Duration::from_millis) {
        threads.push(("long transaction".to_string(), Box::new(move || run_long(db, time))));
    }
    threads.push(("counters".to_string(), Box::new(move || say_counters(db))));
    threads
}

fn work(db: &Database, id: ProcedureId, worker: u64, life: &SoakLife) -> Result<(), Error> {
    let (mut session, mut queue) = (db.session()?, db.commit_queue());
    let closures = life.combination.record == RecordKind::Data && worker.is_multiple_of(2);
    loop {
        if life.session_each {
            session = db.session()?;
        }
        let ran = if closures {
            session.try_submit(|tx| life.data.step(tx, worker))
        } else {
            session.call(id, &worker).map(|(called, ticket)| {
                let n = called.map(|()| session.result::<u64>());
                (n.map(|n| n.expect("it returns a number")), ticket)
            })
        };
        let ended = match ran {
            Ok((Ok(n), ticket)) => Ok((n, ticket)),
            Ok((Err(abort), _)) => Err(Error::Aborted(abort)),
            Err(error) => Err(error),
        };
        let (n, mut ticket) = match ended {
            Ok(ended) => ended,
            Err(error) if is_refused(&error) => {
                say_progress();
                continue;
            }
            Err(error) => return Err(error),
        };
        if life.wakers {
            poll(&mut ticket, n);
        }
        if !life.wakers || !n.is_multiple_of(16) {
            queue.push(ticket, n);
        }
        while queue.len() >= life.in_flight {
            wait(&mut queue, worker, life.asynchronous)?;
        }
    }
}

/// Polls a ticket once, every second ticket with a waker that panics.
fn poll(ticket: &mut Ticket, n: u64) {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            // Without a printed message for each.
            std::panic::resume_unwind(Box::new("a waker that panics"));
        }
    }
    let waker =
        if n.is_multiple_of(2) { Waker::from(Arc::new(Panics)) } else { Waker::noop().clone() };
    // The result is found by the later wait for the ticket.
    let _ = Pin::new(ticket).poll(&mut Context::from_waker(&waker));
}

fn wait(queue: &mut CommitQueue<u64>, worker: u64, asynchronous: bool) -> Result<(), Error> {
    queue.wait_for_one()?;
    let mut acknowledged = Vec::new();
    queue.drain(|n| acknowledged.push(n))?;
    if asynchronous {
        // The kill may lose the transactions.
        say_progress();
    } else {
        let lines = acknowledged.iter().map(|n| format!("ack {worker} {n}\n"));
        say(&lines.collect::<String>());
    }
    Ok(())
}

/// Whether a transaction was refused because of memory kept by long transactions, or was itself a
/// long transaction: each can be, where the machine is slow.
pub(super) fn is_refused(error: &Error) -> bool {
    matches!(error, Error::RemovedRows { .. } | Error::Aborted(Abort::RanTooLong))
}

/// Whether a snapshot, or a long transaction, was ended because of its memory.
fn is_ended(error: &Error) -> bool {
    matches!(error, Error::Aborted(Abort::SnapshotEnded | Abort::RanTooLong))
}

/// Visits the rows of snapshots slowly.
fn visit(db: &Database, pause: Duration) -> Result<(), Error> {
    loop {
        let snapshot = db.open_snapshot();
        for table in [ROWS, CHURNED] {
            match snapshot.for_each(table, Columns::ALL, |_| sleep(pause)) {
                Err(error) if !is_ended(&error) => return Err(error),
                _ => {}
            }
        }
        sleep(Duration::from_millis(1));
    }
}

/// Holds a snapshot, which must not change meanwhile.
fn hold(db: &Database, data: &SoakData, held: Duration) -> Result<(), Error> {
    let mut session: Session = db.session()?;
    loop {
        let snapshot = db.open_snapshot();
        let mut look = || match session.read(&snapshot, |tx| data.look_in(tx)) {
            Ok((Ok(looked), _)) => Ok(Some(looked)),
            Ok((Err(abort), _)) if is_ended(&Error::Aborted(abort)) => Ok(None),
            Ok((Err(abort), _)) => Err(Error::Aborted(abort)),
            Err(error) if is_ended(&error) => Ok(None),
            Err(error) => Err(error),
        };
        let before = look()?;
        sleep(held);
        let after = look()?;
        let both = before.as_ref().zip(after.as_ref());
        if both.is_some_and(|(before, after)| before != after || before.is_err()) {
            say(&format!("wrong snapshot: {before:?}, and later {after:?}\n"));
        }
        sleep(Duration::from_millis(1));
    }
}

/// Runs transactions with long bodies that only read.
fn run_long(db: &Database, time: Duration) -> Result<(), Error> {
    let mut session = db.session()?;
    loop {
        let ran = session.submit(|tx| {
            let first = tx.get(CHURNED, 0u64)?.is_some();
            sleep(time);
            Ok(first == tx.get(CHURNED, 0u64)?.is_some())
        });
        match ran {
            Err(error) if !is_ended(&error) && !matches!(error, Error::Starved { .. }) => {
                return Err(error);
            }
            _ => {}
        }
    }
}
