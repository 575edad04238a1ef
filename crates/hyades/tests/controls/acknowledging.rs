//! Acknowledgement of transactions: tickets, the records for which a ticket waits, and the results
//! of tickets when a device fails.

use crate::common::held::HeldDevice;
use crate::common::{directory, power_cut};
use hyades::{
    Abort, Column, Concurrency, Database, Error, Protocol, RecordKind, Schema, Session, Table,
    Ticket, Type,
};
use hyades_platform::device::{
    Device, Fault, FaultyDevice, FileDevice, PowerCutDevice, PowerCutOptions,
};
use hyades_schemes::{GSN, PHYSIOLOGICAL, PLOVER, POPLAR, SILO_R, TAURUS_2016, all_controls};
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

const ROWS: Table = Table::nth(0);
const NUMBER: Column<i64> = Column::at(1);

fn open(
    dir: &Path,
    device: Arc<dyn Device>,
    (protocol, streams): (Protocol, usize),
    concurrency: Concurrency,
) -> Database {
    let mut builder = Database::builder()
        .protocol(protocol)
        .streams(streams)
        .concurrency(concurrency)
        .recovery_threads(2)
        .log_settings(|log| {
            log.device = Some(device);
            log.segment_bytes = 1 << 18;
            log.buffer_bytes = 1 << 16;
            log.epoch = Some(Duration::from_millis(2));
        });
    builder.table(
        Schema::new("rows")
            .column("id", Type::I64)
            .column("number", Type::I64)
            .primary_key(&["id"])
            .partition_by("id"),
    );
    // Logs with commands also record read stamps, so that readers matter to later writers.
    let takes_commands = concurrency.takes_commands_under(protocol);
    let record = if takes_commands { RecordKind::Command } else { RecordKind::Data };
    builder.procedure_recorded("touch", 1, record, |tx, id: i64| {
        tx.get(ROWS, id)?;
        Ok(())
    });
    builder.open(dir).unwrap()
}

fn files() -> Arc<dyn Device> {
    FileDevice::shared()
}

fn put(session: &mut Session, id: i64, number: i64) -> Result<Ticket, Error> {
    let (result, ticket) =
        session.try_submit(|tx| tx.upsert(ROWS, &[id.into(), number.into()]).map(|_| ()))?;
    result.unwrap();
    Ok(ticket)
}

fn number(db: &Database, id: i64) -> Option<i64> {
    db.try_transact(|tx| Ok::<_, Abort>(tx.get(ROWS, id)?.map(|row| row.get(NUMBER))))
        .unwrap()
        .unwrap()
}

/// Wakes a thread and counts the wake-ups.
struct Waking(Thread, AtomicU64);

impl Wake for Waking {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.unpark();
    }
}

/// A minimal executor that polls only after a wake-up.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waking = Arc::new(Waking(std::thread::current(), AtomicU64::new(1)));
    let waker = Waker::from(waking.clone());
    loop {
        while waking.1.swap(0, Ordering::SeqCst) == 0 {
            std::thread::park();
        }
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
    }
}

const LAYOUTS: [(Protocol, usize); 10] = [
    (Protocol::Serial, 1),
    (Protocol::Taurus, 1),
    (Protocol::Taurus, 4),
    (TAURUS_2016, 1),
    (TAURUS_2016, 4),
    (SILO_R, 3),
    (GSN, 3),
    (PLOVER, 3),
    (POPLAR, 3),
    (PHYSIOLOGICAL, 1),
];

#[test]
fn tickets_are_awaited_waited_for_or_dropped_and_all_is_recovered() {
    for layout in LAYOUTS {
        let dir = directory();
        let device = power_cut(3);
        let db = open(dir.path(), Arc::new(device.clone()), layout, Concurrency::Silo);
        std::thread::scope(|scope| {
            for thread in 0..2i64 {
                let db = &db;
                scope.spawn(move || {
                    let mut session = db.session().unwrap();
                    for n in 0..90 {
                        let ticket = put(&mut session, thread * 1000 + n, n).unwrap();
                        match n % 3 {
                            0 => block_on(ticket).unwrap(),
                            1 => ticket.wait().unwrap(),
                            _ => drop(ticket),
                        }
                    }
                    // A session may be dropped before its tickets.
                    let last = put(&mut session, thread * 1000 + 90, 90).unwrap();
                    drop(session);
                    block_on(last).unwrap();
                });
            }
        });
        // A dropped ticket loses nothing: later tickets wait for no less.
        db.log().unwrap().flush().unwrap();
        device.cut();
        drop(db);
        let db = open(dir.path(), files(), layout, Concurrency::Silo);
        for id in (0..=90).chain(1000..=1090) {
            assert_eq!(number(&db, id), Some(id % 1000), "{layout:?}");
        }
    }
}

#[test]
fn one_executor_awaits_many_tickets() {
    let dir = directory();
    let db = open(dir.path(), files(), (Protocol::Taurus, 4), Concurrency::NoWait);
    let mut session = db.session().unwrap();
    let tickets: Vec<Ticket> = (0..200).map(|n| put(&mut session, n % 5, n).unwrap()).collect();
    block_on(async {
        for ticket in tickets {
            ticket.await.unwrap();
        }
    });
    db.close().unwrap();
}

/// A ticket holds positions in the log of its own database, so a queue must reject tickets of
/// another database.
#[test]
#[should_panic(expected = "a ticket goes to a queue of its own database")]
fn a_queue_takes_no_ticket_of_another_database() {
    let (here, there) = (directory(), directory());
    let taurus = (Protocol::Taurus, 2);
    let db = open(here.path(), files(), taurus, Concurrency::Silo);
    let other = open(there.path(), files(), taurus, Concurrency::Silo);
    let ticket = put(&mut other.session().unwrap(), 1, 1).unwrap();
    db.commit_queue().push(ticket, ());
}

/// Promise: every ticket returns from its queue once, although tickets and queues pass references
/// to the log back and forth, here through two queues.
#[test]
fn every_ticket_of_many_comes_back_from_its_queue() {
    let dir = directory();
    let db = open(dir.path(), files(), (Protocol::Taurus, 2), Concurrency::Silo);
    let (mut session, mut queues) = (db.session().unwrap(), [db.commit_queue(), db.commit_queue()]);
    let mut back = Vec::new();
    for id in 0..1000 {
        let ticket = put(&mut session, id, id).unwrap();
        queues[usize::from(id % 3 == 0)].push(ticket, id);
        for queue in &mut queues {
            queue.drain(|id| back.push(id)).unwrap();
        }
    }
    for queue in &mut queues {
        while !queue.is_empty() {
            queue.wait_for_one().unwrap();
            queue.drain(|id| back.push(id)).unwrap();
        }
    }
    back.sort_unstable();
    assert_eq!(back, (0..1000).collect::<Vec<_>>());
}

/// Holds stream 0 of four and leaves a row 1 in the stream that is not hardened.
fn with_a_held_row(
    concurrency: Concurrency,
    inner: Arc<dyn Device>,
    dir: &Path,
    then: impl FnOnce(&Database, &HeldDevice, Ticket),
) {
    let device = HeldDevice::new(inner);
    let db = open(dir, Arc::new(device.clone()), (Protocol::Taurus, 4), concurrency);
    for id in 1..=8 {
        let mut session = db.session().unwrap();
        put(&mut session, id, 0).unwrap().wait().unwrap();
    }
    let first = {
        let mut names: Vec<_> =
            std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.retain(|name| name.to_string_lossy().starts_with("stream-"));
        names.sort();
        names[0].to_string_lossy().into_owned()
    };
    // The log may write to a stream by itself: the stream is held while empty, and again if the log
    // writes afterwards.
    let (_released, held) = loop {
        measure_streams(&db);
        let released = device.hold(&first);
        if let Some(ticket) = write_to_stream_0(&db) {
            break (released, ticket);
        }
    };
    then(&db, &device, held);
}

/// Writes to all streams until everything is durable, several times: sessions avoid a stream that
/// seems slow, such as a stream with a flush delayed by a busy machine.
fn measure_streams(db: &Database) {
    let log = db.log().unwrap();
    let mut writer = log.writer().unwrap();
    for _ in 0..8 {
        (0..log.streams()).for_each(|stream| writer.reserve(stream, 8).void());
        log.flush().unwrap();
    }
}

/// Writes row 1 in stream 0, if the stream has nothing to do. Sessions begin on a stream with
/// little to do, and one of the first sessions on stream 0: a write that changes nothing tells
/// which session.
fn write_to_stream_0(db: &Database) -> Option<Ticket> {
    for _ in 0..50 {
        let log = db.log().unwrap();
        if log.backlog(0) > 0 {
            return None;
        }
        let is_in_stream_0 =
            |ticket: &Ticket| ticket.transaction_id().is_some_and(|id| id.stream == 0);
        let mut session = db.session().unwrap();
        let probe = put(&mut session, 1, 0).unwrap();
        if is_in_stream_0(&probe) {
            let ticket = put(&mut session, 1, 7).unwrap();
            assert!(is_in_stream_0(&ticket), "a session stays where it began");
            return Some(ticket);
        }
        probe.wait().unwrap();
    }
    None
}

/// A session on a stream other than stream 0, which is held.
fn elsewhere(db: &Database) -> Session {
    let log = db.log().unwrap();
    assert!(log.backlog(0) > 0, "stream 0 is held, so others are less loaded");
    db.session().unwrap()
}

#[test]
fn readers_and_visible_aborts_wait_for_what_they_read() {
    for concurrency in all_controls() {
        let dir = directory();
        with_a_held_row(concurrency, files(), dir.path(), |db, device, writer| {
            let mut session = elsewhere(db);
            let read = |session: &mut Session, id: i64| {
                let (result, ticket) = session
                    .try_submit(|tx| Ok::<_, Abort>(tx.get(ROWS, id)?.unwrap().get(NUMBER)))
                    .unwrap();
                (result.unwrap(), ticket)
            };
            let (seen, reader) = read(&mut session, 1);
            assert_eq!(seen, 7, "a pre-committed row is seen");
            let (user, abort) = session
                .try_submit(|tx| {
                    let seen = tx.get(ROWS, 1i64)?.unwrap().get(NUMBER);
                    tx.update(ROWS, 2i64, &[NUMBER.set(99i64)])?;
                    Err::<(), _>(Abort::User(seen))
                })
                .unwrap();
            assert_eq!(user, Err(Abort::User(7)));
            let (duplicate, constraint) =
                session.try_submit(|tx| tx.insert(ROWS, &[1i64.into(), 0i64.into()])).unwrap();
            assert_eq!(duplicate, Err(Abort::DuplicateKey { table: 0, index: None }));
            // A scan that passes over the row has read it.
            let (rows, scan) =
                session.try_submit(|tx| Ok::<_, Abort>(tx.scan(ROWS).rows()?.len())).unwrap();
            assert_eq!(rows, Ok(8));
            let waiting = [("writer", &writer), ("reader", &reader), ("abort", &abort)];
            for (what, ticket) in waiting.into_iter().chain([("key", &constraint), ("scan", &scan)])
            {
                assert!(!ticket.is_acknowledged().unwrap(), "{concurrency:?}: {what}");
            }
            // A transaction that has not read the row does not wait.
            read(&mut session, 3).1.wait().unwrap();
            assert_eq!(number(db, 2), Some(0), "the abort changed nothing");
            assert!(!reader.is_acknowledged().unwrap(), "{concurrency:?}");
            device.release();
            for ticket in [writer, reader, abort, constraint, scan] {
                ticket.wait().unwrap();
            }
        });
    }
}

#[test]
fn while_one_stream_is_held_independent_transactions_are_acknowledged() {
    for concurrency in all_controls() {
        let dir = directory();
        // Nothing reaches the medium before its sync, so the held records are lost.
        let device = PowerCutDevice::new(PowerCutOptions::default());
        let inner = Arc::new(device.clone());
        with_a_held_row(concurrency, inner, dir.path(), |db, held, writer| {
            let mut session = elsewhere(db);
            for id in 3..=8 {
                put(&mut session, id, id).unwrap().wait().unwrap();
            }
            // This transaction depends on the held row, although its own record becomes durable.
            let (result, dependent) = session
                .try_submit(|tx| {
                    let seen = tx.get(ROWS, 1i64)?.unwrap().get(NUMBER);
                    tx.update(ROWS, 2i64, &[NUMBER.set(seen)])
                })
                .unwrap();
            assert_eq!(result, Ok(true));
            // A later record of the same stream, acknowledged before the dependent one.
            put(&mut session, 8, 88).unwrap().wait().unwrap();
            assert!(!dependent.is_acknowledged().unwrap());
            assert!(!writer.is_acknowledged().unwrap());
            device.cut();
            held.release();
            assert!(matches!(writer.wait(), Err(Error::OutcomeUnknown)));
            assert!(matches!(block_on(dependent), Err(Error::OutcomeUnknown)));
        });
        let db = open(dir.path(), files(), (Protocol::Taurus, 4), concurrency);
        assert!(db.recovery().dead >= 1, "the dependent record is on disk, and dead");
        assert_eq!((number(&db, 1), number(&db, 2)), (Some(0), Some(0)));
        for id in 3..=7 {
            assert_eq!(number(&db, id), Some(id), "acknowledged, so recovered");
        }
        assert_eq!(number(&db, 8), Some(88));
    }
}

#[test]
fn a_device_that_fails_leaves_what_was_admitted_and_makes_the_rest_unknown() {
    for (round, (layout, concurrency)) in LAYOUTS
        .into_iter()
        .flat_map(|l| all_controls().map(move |control| (l, control)))
        .filter(|(l, control)| control.runs_under(l.0))
        .enumerate()
    {
        for write in [false, true] {
            let dir = directory();
            let device = FaultyDevice::new(files());
            let db = open(dir.path(), Arc::new(device.clone()), layout, concurrency);
            let mut session = db.session().unwrap();
            let admitted = put(&mut session, -1, 1).unwrap();
            while !admitted.is_acknowledged().unwrap() {
                std::thread::yield_now();
            }
            let k = 3 + 5 * round as u64;
            device.arm(if write { Fault::Write(k) } else { Fault::Sync(k) });
            // A failure while a segment is prepared ahead stops no transaction. Then another fault
            // is armed.
            let again = || device.arm(Fault::Sync(0));
            let acknowledged: Vec<(i64, i64)> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..2i64)
                    .map(|thread| (thread, &db))
                    .map(|(thread, db)| scope.spawn(move || until_it_fails(db, thread, again)))
                    .collect();
                threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
            });
            assert!(admitted.is_acknowledged().unwrap(), "what was admitted stays so");
            admitted.wait().unwrap();
            assert!(
                matches!(put(&mut session, 5, 5), Err(Error::Poisoned(_))),
                "new work is refused"
            );
            let reading = db.try_transact(|tx| Ok::<_, Abort>(tx.get(ROWS, -1i64)?.is_some()));
            assert!(matches!(reading, Err(Error::Poisoned(_))), "so are readers: {reading:?}");
            assert!(db.clone().close().is_err(), "what is lost cannot be closed in good order");
            drop((session, db));
            let recovered = open(dir.path(), files(), layout, concurrency);
            for (id, n) in &acknowledged {
                let now = number(&recovered, *id).unwrap_or_else(|| panic!("{id} is missing"));
                assert!(now >= *n, "{layout:?} {concurrency:?} {id}: {now} is older than {n}");
            }
            assert_eq!(number(&recovered, -1), Some(1));
        }
    }
}

/// Writes ascending numbers to three rows until the log refuses. Returns the acknowledged writes.
fn until_it_fails(db: &Database, thread: i64, again: impl Fn()) -> Vec<(i64, i64)> {
    let mut session = db.session().unwrap();
    let mut tickets = Vec::new();
    for n in 0.. {
        let id = thread * 10 + n % 3;
        match put(&mut session, id, n) {
            Ok(ticket) => tickets.push(((id, n), ticket)),
            Err(Error::Poisoned(_)) => break,
            Err(error) => panic!("{error}"),
        }
        if n % 1000 == 999 {
            again();
        }
    }
    let mut acknowledged = Vec::new();
    for (what, ticket) in tickets {
        let seen = ticket.is_acknowledged();
        match ticket.wait() {
            Ok(()) => acknowledged.push(what),
            Err(Error::OutcomeUnknown) => assert!(!matches!(seen, Ok(true))),
            Err(error) => panic!("not an outcome: {error}"),
        }
    }
    acknowledged
}
