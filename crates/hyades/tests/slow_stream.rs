//! One device of several is slow or hangs. Promise: transactions that do not depend on its stream
//! go on, and dependent transactions are not acknowledged before the device goes on.
#![allow(missing_docs)]

mod common;

use common::directory;
use common::held::HeldDevice;
use hyades::{
    Column, CommitQueue, Concurrency, Database, LogSettings, Protocol, Schema, Session, Table,
    Ticket, Type,
};
use hyades_platform::device::{Device, FileDevice, MountedDevice, Throttle, ThrottledDevice};
#[cfg(feature = "mutations")]
use hyades_platform::mutation::{self, Mutation};
use hyades_schemes::TAURUS_2016;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

const ROWS: Table = Table::nth(0);
const NUMBER: Column<i64> = Column::at(1);

/// Longer than any test takes on a busy machine without waiting for a held device.
const LONG: Duration = Duration::from_secs(15);

/// One test at a time: each measures time, and one breaks rules that are global to the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|e| e.into_inner())
}

/// Four streams, each in a directory of its own.
fn open(
    dir: &Path,
    device: Arc<dyn Device>,
    protocol: Protocol,
    change: impl FnOnce(&mut LogSettings),
) -> Database {
    let dirs = directories(dir);
    let mut builder = Database::builder()
        .protocol(protocol)
        .streams(4)
        .concurrency(Concurrency::Silo)
        .recovery_threads(2)
        .log_settings(|log| {
            log.device = Some(device);
            log.dirs = dirs[1..].to_vec();
            log.epoch = Some(Duration::from_millis(2));
            change(log);
        });
    builder.table(
        Schema::new("rows")
            .column("id", Type::I64)
            .column("number", Type::I64)
            .primary_key(&["id"])
            .hash(),
    );
    builder.open(&dirs[0]).unwrap()
}

fn directories(dir: &Path) -> Vec<PathBuf> {
    (0..4).map(|n| dir.join(format!("device-{n}"))).collect()
}

fn put(session: &mut Session, id: i64, number: i64) -> Ticket {
    let (result, ticket) =
        session.try_submit(|tx| tx.upsert(ROWS, &[id.into(), number.into()]).map(|_| ())).unwrap();
    result.unwrap();
    ticket
}

/// Writes the number of the row `from` into the row `to`.
fn copy(session: &mut Session, from: i64, to: i64) -> Ticket {
    let (result, ticket) = session
        .try_submit(|tx| {
            let number = tx.get(ROWS, from)?.expect("it is written").get(NUMBER);
            tx.upsert(ROWS, &[to.into(), number.into()]).map(|_| ())
        })
        .unwrap();
    result.unwrap();
    ticket
}

/// Fills all rows, so that later transactions do not depend on the first writer of a table.
fn populate(db: &Database, rows: i64) {
    let mut session = db.session().unwrap();
    (0..rows).for_each(|id| drop(put(&mut session, id, 0)));
    db.log().unwrap().flush().unwrap();
}

/// A session that appends to stream 0.
fn session_at_0(db: &Database) -> Session {
    // Sessions on other streams stay open, so that the next one chooses another stream.
    let mut others = Vec::new();
    for id in 0..100 {
        let mut session = db.session().unwrap();
        let ticket = put(&mut session, -1 - id, 1);
        let stream = ticket.transaction_id().expect("it has written a row").stream;
        ticket.wait().unwrap();
        if stream == 0 {
            return session;
        }
        others.push(session);
    }
    panic!("no session is at stream 0");
}

/// Runs `work` on a thread. The result can be waited for with a timeout.
fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(work()));
    receiver
}

/// Submits ten transactions to stream 0, which is held.
fn fill_0(session: &mut Session, queue: &mut CommitQueue<i64>) {
    for id in 0..10 {
        queue.push(put(session, id, 1), id);
    }
}

fn held(
    dir: &Path,
    protocol: Protocol,
    change: impl FnOnce(&mut LogSettings),
) -> (HeldDevice, Database) {
    let device = HeldDevice::new(FileDevice::shared());
    let db = open(dir, Arc::new(device.clone()), protocol, change);
    populate(&db, 100);
    (device, db)
}

/// Sessions stay at their streams, however slow a stream seems on a busy machine.
fn fixed(log: &mut LogSettings) {
    (log.buffer_bytes, log.research.fixed_streams) = (1 << 16, true);
}

/// Promise: a waiter finds ready tickets of one stream while another stream, with more parked
/// tickets, is stalled.
#[test]
fn a_waiter_is_woken_by_any_of_its_streams() {
    let _alone = alone();
    wait_for_any();
}

fn wait_for_any() {
    let dir = directory();
    let (device, db) = held(dir.path(), Protocol::Taurus, fixed);
    let (mut at_0, mut queue) = (session_at_0(&db), db.commit_queue());
    let released = device.hold("device-0");
    fill_0(&mut at_0, &mut queue);
    // The other streams are held, too, until the waiter sleeps: else the waiter may find the ticket
    // ready.
    let others = [1, 2, 3].map(|n| format!("device-{n}"));
    let _held = others.each_ref().map(|name| device.hold(name));
    let mut elsewhere = db.session().unwrap();
    queue.push(put(&mut elsewhere, 50, 1), 50);
    let found = apart(move || {
        queue.wait_for_one().unwrap();
        let mut found = Vec::new();
        queue.drain(|id| found.push(id)).unwrap();
        (found, queue)
    });
    assert!(found.recv_timeout(Duration::from_millis(100)).is_err(), "nothing is durable yet");
    others.iter().for_each(|name| device.release_one(name));
    let (found, queue) = found.recv_timeout(LONG).expect("it sleeps on the held stream");
    assert_eq!(found, [50]);
    // The rest is acknowledged once the device goes on, whichever thread waits.
    let rest = apart(move || {
        let mut queue = queue;
        let mut found = 0;
        while !queue.is_empty() {
            queue.wait_for_one().unwrap();
            found += queue.drain(|_| ()).unwrap();
        }
        found
    });
    assert!(rest.recv_timeout(Duration::from_millis(100)).is_err(), "nothing is durable yet");
    drop(released);
    assert_eq!(rest.recv_timeout(LONG).unwrap(), 10);
}

/// Promise: a waiter that sleeps because nothing becomes durable is woken when the log stops.
#[test]
fn a_waiter_for_several_streams_is_told_that_the_log_stopped() {
    let _alone = alone();
    let dir = directory();
    let (device, db) = held(dir.path(), Protocol::Taurus, fixed);
    let (mut at_0, mut queue) = (session_at_0(&db), db.commit_queue());
    let _released = (0..4).map(|n| device.hold(&format!("device-{n}"))).collect::<Vec<_>>();
    fill_0(&mut at_0, &mut queue);
    let mut elsewhere = db.session().unwrap();
    queue.push(put(&mut elsewhere, 50, 1), 50);
    let waited = apart(move || queue.wait_for_one());
    assert!(waited.recv_timeout(Duration::from_millis(100)).is_err());
    db.log().unwrap().stop("a test");
    let outcome = waited.recv_timeout(LONG).expect("it is not woken by the stop");
    assert!(matches!(outcome, Err(hyades::Error::OutcomeUnknown)), "{outcome:?}");
}

/// Promise: a session whose stream is full moves to another stream.
#[test]
fn a_session_leaves_a_stream_without_room() {
    let _alone = alone();
    leave_full_stream();
}

fn leave_full_stream() {
    for protocol in [Protocol::Taurus, TAURUS_2016] {
        let dir = directory();
        let (device, db) = held(dir.path(), protocol, |log| log.buffer_bytes = 1 << 14);
        let mut session = session_at_0(&db);
        let released = device.hold("device-0");
        let log = db.log().unwrap();
        let mut writer = log.writer().unwrap();
        while log.backlog(0) < 1 << 13 {
            writer.reserve(0, 500).void();
        }
        let mut queue = db.commit_queue();
        let acknowledged = apart(move || {
            for id in 0..120 {
                queue.push(put(&mut session, 10_000 + id, 1), id);
            }
            let mut acknowledged = 0;
            while !queue.is_empty() {
                queue.wait_for_one().unwrap();
                acknowledged += queue.drain(|_| ()).unwrap();
            }
            acknowledged
        });
        let acknowledged = acknowledged.recv_timeout(LONG);
        assert_eq!(acknowledged.expect("it waits for room in the held stream"), 120);
        drop(released);
        db.close().unwrap();
    }
}

/// Promise: if no stream has room, a session goes on in the first stream that has room again.
#[test]
fn a_session_goes_on_in_the_first_stream_that_has_room() {
    let _alone = alone();
    let dir = directory();
    let (device, db) = held(dir.path(), Protocol::Taurus, |log| log.buffer_bytes = 1 << 14);
    let _released = (0..4).map(|n| device.hold(&format!("device-{n}"))).collect::<Vec<_>>();
    let mut session = db.session().unwrap();
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for id in 0..4000 {
            drop(put(&mut session, 1000 + id, 1));
            if sender.send(id).is_err() {
                break;
            }
        }
    });
    let mut last = 0;
    while let Ok(id) = receiver.recv_timeout(Duration::from_millis(300)) {
        last = id;
    }
    assert!(last < 3999, "four full buffers hold fewer");
    device.release_one("device-2");
    assert!(receiver.recv_timeout(LONG).is_ok(), "stream 2 has room");
}

/// Promise: a row written by a held stream holds back its readers, whatever other records become
/// durable and are evicted meanwhile.
#[test]
fn readers_of_a_held_row_wait_for_its_stream() {
    let _alone = alone();
    hold_back_readers();
}

fn hold_back_readers() {
    for protocol in [Protocol::Taurus, TAURUS_2016] {
        let dir = directory();
        let (device, db) = held(dir.path(), protocol, |log| {
            fixed(log);
            (log.research.anchor_interval_bytes, log.research.delta_bytes) = (1, 0);
        });
        let mut at_0 = session_at_0(&db);
        let [mut reader, mut other] = [(); 2].map(|()| db.session().unwrap());
        let released = (0..4).map(|n| device.hold(&format!("device-{n}"))).collect::<Vec<_>>();
        // The row's vector has several components: a single one needs no slot of the table.
        let elsewhere = put(&mut other, 6, 1);
        let written = copy(&mut at_0, 6, 7);
        (1..4).for_each(|n| device.release_one(&format!("device-{n}")));
        elsewhere.wait().unwrap();
        // A session evicts all evictable entries every 64 transactions.
        for _ in 0..6 {
            let tickets = (20..84).map(|id| put(&mut other, id, 1)).collect::<Vec<_>>();
            tickets.into_iter().for_each(|ticket| ticket.wait().unwrap());
        }
        let read = copy(&mut reader, 7, 8);
        let read = apart(move || read.wait());
        let early = read.recv_timeout(Duration::from_millis(200));
        assert!(early.is_err(), "{protocol:?}: acknowledged before what it has read is durable");
        drop(released);
        written.wait().unwrap();
        read.recv_timeout(LONG).unwrap().unwrap();
        db.close().unwrap();
    }
}

/// Result of clients in a closed loop that write only rows without a transaction in flight.
struct Pace {
    acknowledged: u64,
    /// Longest time between two acknowledgements of a client.
    longest_pause: Duration,
}

/// Maximum number of transactions in flight per client: more than a client submits in a few
/// milliseconds.
const IN_FLIGHT: usize = 8192;

fn closed_loop(db: &Database, clients: i64, time: Duration) -> Pace {
    let client = |client: i64| {
        let (mut session, mut queue) = (db.session().unwrap(), db.commit_queue());
        let rows = client << 32..(client << 32) + 2 * IN_FLIGHT as i64;
        let mut free: VecDeque<i64> = rows.collect();
        let began = Instant::now();
        let (mut acknowledged, mut last, mut longest) = (0, began, Duration::ZERO);
        while began.elapsed() < time {
            for _ in 0..16 {
                let id = free.pop_front().unwrap();
                queue.push(put(&mut session, id, 1), id);
            }
            let mut found = queue.drain(|id| free.push_back(id)).unwrap();
            while queue.len() >= IN_FLIGHT {
                queue.wait_for_one().unwrap();
                found += queue.drain(|id| free.push_back(id)).unwrap();
            }
            if found > 0 {
                longest = longest.max(last.elapsed());
                last = Instant::now();
            }
            acknowledged += found;
        }
        Pace { acknowledged: acknowledged as u64, longest_pause: longest.max(last.elapsed()) }
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..clients).map(|c| scope.spawn(move || client(c))).collect();
        let each = clients.into_iter().map(|client| client.join().unwrap());
        each.reduce(|a, b| Pace {
            acknowledged: a.acknowledged + b.acknowledged,
            longest_pause: a.longest_pause.max(b.longest_pause),
        })
        .unwrap()
    })
}

const USUAL: Throttle = Throttle { bytes_per_s: Some(100e6), latency_ns: 1_000_000, depth: 1 };

/// Three streams on devices whose writes take a millisecond, and a fourth on the given one.
fn throttled(dir: &Path, last: Throttle) -> Arc<dyn Device> {
    let on = |throttle| Arc::new(ThrottledDevice::new(FileDevice::shared(), throttle)) as _;
    let mount = |(n, dir)| (dir, on(if n == 3 { last } else { USUAL }));
    Arc::new(MountedDevice::new(directories(dir).into_iter().enumerate().map(mount).collect()))
}

fn with_the_last(throttle: Throttle) -> Pace {
    let dir = directory();
    let device = throttled(dir.path(), throttle);
    let db = open(dir.path(), device, Protocol::Taurus, |log| log.buffer_bytes = 1 << 20);
    closed_loop(&db, 2, Duration::from_millis(500));
    let pace = closed_loop(&db, 2, Duration::from_millis(1500));
    db.close().unwrap();
    pace
}

#[test]
fn a_slow_device_leaves_clients_their_pace() {
    let _alone = alone();
    keep_pace();
}

/// Measures up to three times, for the machine may be busy with something else meanwhile.
fn holds_once(measure: impl Fn() -> bool) -> bool {
    (0..3).any(|_| measure())
}

fn keep_pace() {
    let device = |bytes_per_s, latency_ms: u64| Throttle {
        bytes_per_s: Some(bytes_per_s),
        latency_ns: latency_ms * 1_000_000,
        depth: 1,
    };
    for (times, slow) in [(20, device(5e6, 20)), (1000, device(100e3, 1000))] {
        let keeps = || {
            let without = with_the_last(USUAL).acknowledged;
            let with = with_the_last(slow).acknowledged;
            eprintln!(
                "{without} acknowledged with equal devices, {with} with one {times} times slower"
            );
            with * 2 >= without
        };
        assert!(holds_once(keeps), "less than half with a device {times} times slower");
    }
}

/// Promise: while a device hangs for two seconds, clients go on, except clients whose transactions
/// all were in its stream before the hang could be detected.
#[test]
fn a_device_that_hangs_holds_up_what_is_in_its_stream() {
    let _alone = alone();
    let goes_on = || {
        let pace = while_a_device_hangs();
        let (acknowledged, longest) = (pace.acknowledged, pace.longest_pause);
        eprintln!("{acknowledged} acknowledged, the longest pause {longest:?}");
        longest < Duration::from_millis(500)
    };
    assert!(holds_once(goes_on), "clients pause");
}

fn while_a_device_hangs() -> Pace {
    let dir = directory();
    let inner = throttled(dir.path(), USUAL);
    let device = HeldDevice::new(inner);
    let of_db = Arc::new(device.clone());
    let db = open(dir.path(), of_db, Protocol::Taurus, |log| log.buffer_bytes = 1 << 20);
    closed_loop(&db, 2, Duration::from_millis(500));
    let pace = std::thread::scope(|scope| {
        let clients = scope.spawn(|| closed_loop(&db, 2, Duration::from_millis(1900)));
        std::thread::sleep(Duration::from_millis(200));
        let held = device.hold("device-3");
        std::thread::sleep(Duration::from_millis(2000));
        drop(held);
        clients.join().unwrap()
    });
    db.close().unwrap();
    pace
}

/// Mutation test: each rule on which the tests above rely, broken on purpose, is found.
#[cfg(feature = "mutations")]
#[test]
fn each_broken_rule_of_slow_streams_is_found() {
    are_found(&[
        (Mutation::WaitForOneLane, wait_for_any),
        (Mutation::WaitInFullStream, leave_full_stream),
        (Mutation::EvictBeforeDurable, hold_back_readers),
    ]);
}

/// Mutation test: the rule shows where devices, and not processors, bound the rate.
#[cfg(feature = "mutations")]
#[test]
#[ignore = "compares rates: needs a machine that does nothing else"]
fn backlogs_compared_in_bytes_are_found() {
    are_found(&[(Mutation::BacklogInBytes, keep_pace)]);
}

#[cfg(feature = "mutations")]
fn are_found(rules: &[(Mutation, fn())]) {
    let _alone = alone();
    for (rule, check) in rules {
        mutation::set(Some(*rule));
        // On a busy machine threads may miss the moment that shows the rule.
        let found = (0..5).any(|_| std::panic::catch_unwind(check).is_err());
        mutation::set(None);
        assert!(found, "{} goes unnoticed", rule.name());
    }
}
