//! A database with threads, and its refusals.
#![allow(missing_docs)]

use hyades_deuteronomy::torture::{
    ExecutedInLife, KeyByte, KeyState, LifeHistory, ScannedKeys, bytes, number,
};
use hyades_deuteronomy::{
    Abort, DataComponent, Database, Error, LogOptions, MemoryData, Options, ResumePoint, ScanOrder,
    Session, Ticket,
};
use hyades_platform::device::{MemoryDevice, Throttle, ThrottledDevice};
use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Bound::{Excluded, Included};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

fn options(dir: &Path, streams: usize) -> Options {
    let mut log = LogOptions::new(vec![dir.to_owned()], streams);
    log.device = MemoryDevice::shared();
    log.buffer_bytes = 1 << 16;
    log.segment_bytes = 1 << 18;
    Options::new(log)
}

fn open(dir: &Path, data: &Arc<MemoryData>) -> Result<Database, Error> {
    Database::open(options(dir, 2), Arc::clone(data) as Arc<dyn DataComponent>)
}

const KEYS: [KeyByte; 12] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];

/// Runs random transactions; returns the committed transactions.
fn run(session: &mut Session, seed: u64, next_write: &AtomicU64) -> Vec<ExecutedInLife> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut executed, orders) = (Vec::new(), [ScanOrder::Ascending, ScanOrder::Descending]);
    for _ in 0..1500 {
        let accesses: Vec<_> =
            (0..rng.usize(1..6)).map(|_| (KEYS[rng.usize(0..KEYS.len())], rng.u8(0..10))).collect();
        let (done, ticket) = session
            .submit(|tx| {
                let (ts, mut reads, mut writes) = (tx.timestamp(), Vec::new(), BTreeMap::new());
                for (key, act) in &accesses {
                    match act {
                        0 => {
                            let (to, limit) = (key + key % 5, 1 + usize::from(key % 4));
                            let (from, order) = (Included(&[*key][..]), orders[limit % 2]);
                            let rows = match order {
                                ScanOrder::Ascending => tx.scan(from, Excluded(&[to]), limit)?,
                                _ => tx.scan_back(from, Excluded(&[to]), limit)?,
                            };
                            let range = *key..to;
                            let rows = rows.iter().map(|(key, value)| (key[0], number(value)));
                            let rows: Vec<_> = rows.collect();
                            let scanned = ScannedKeys { range, order, limit, rows: &rows };
                            scanned.note(&mut reads, &writes);
                        }
                        1..6 if !writes.contains_key(key) => {
                            reads.push((*key, tx.get(&[*key])?.as_deref().map(number)));
                        }
                        6 => {
                            tx.delete(&[*key])?;
                            writes.insert(*key, None);
                        }
                        _ => {
                            let written = next_write.fetch_add(1, Ordering::Relaxed);
                            tx.put(&[*key], &bytes(written, 50))?;
                            writes.insert(*key, Some(written));
                        }
                    }
                }
                Ok::<_, Error>((ts, reads, writes))
            })
            .unwrap();
        let (ts, reads, writes) = done;
        let one = ExecutedInLife { ts, reads, writes, ticket: Some(ticket), acknowledged: false };
        executed.push(one);
    }
    executed
}

#[test]
fn threads_are_serializable_and_what_they_leave_is_there_again() {
    let dir = tempfile::tempdir().unwrap();
    let data = Arc::new(MemoryData::outliving());
    let mut settings = options(dir.path(), 2);
    settings.memory_bytes = 32 << 10;
    settings.sessions = 128;
    settings.transactions = 256;
    settings.redo_bytes = 200_000;
    let next_write = AtomicU64::new(1);
    let mut base = KeyState::new();
    for life in 0..2u64 {
        let database = Database::open(settings.clone(), data.clone()).unwrap();
        let mut history = LifeHistory { base, executed: Vec::new() };
        std::thread::scope(|scope| {
            let (database, next_write) = (&database, &next_write);
            let run = |thread: u64| {
                let mut session = database.session().unwrap();
                scope.spawn(move || run(&mut session, life * 10 + thread, next_write))
            };
            let threads: Vec<_> = (0..4u64).map(run).collect();
            history.executed = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
        });
        history.check_reads().unwrap();
        base = history.last_state();
        assert!(
            database.stats().version_bytes <= 40 << 10,
            "{} bytes",
            database.stats().version_bytes
        );
        database.close().unwrap();
        let content = data.content().into_iter().map(|(key, _, value)| (key[0], number(&value)));
        let expected = base.iter().filter_map(|(key, written)| Some((*key, (*written)?)));
        assert_eq!(content.collect::<BTreeMap<_, _>>(), expected.collect());
    }
}

#[test]
fn more_than_the_budget_of_memory_is_written_and_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = options(dir.path(), 2);
    settings.memory_bytes = 256 << 10;
    let data = Arc::new(MemoryData::outliving());
    let database = Database::open(settings, data.clone()).unwrap();
    let mut session = database.session().unwrap();
    for i in 0..4000u64 {
        let put = session.submit(|tx| tx.put(&i.to_be_bytes(), &bytes(i, 1000)));
        drop(put.unwrap());
        assert!(
            database.stats().version_bytes < 300 << 10,
            "{} bytes",
            database.stats().version_bytes
        );
    }
    for i in (0..4000u64).step_by(7) {
        let read = session.execute(|tx| tx.get(&i.to_be_bytes())).unwrap().unwrap();
        assert_eq!(number(&read), i);
    }
    drop(session);
    database.close().unwrap();
    assert_eq!(data.content().len(), 4000);
}

#[test]
fn a_reader_waits_for_what_it_has_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = options(dir.path(), 2);
    settings.log.stepped = true;
    let database = Database::open(settings, Arc::new(MemoryData::new())).unwrap();
    let mut sessions = [database.session().unwrap(), database.session().unwrap()];
    // T in one stream reads U of the other stream; R reads T only.
    let commit = |session: &mut Session, read: &[u8], write: &[u8]| -> Ticket {
        let mut tx = session.begin().unwrap();
        drop(tx.get(read).unwrap());
        tx.put(write, b"x").unwrap();
        tx.commit().unwrap()
    };
    let first = commit(&mut sessions[0], b"-", b"u");
    let stream_of_first = (0..2).find(|s| database.log().backlog(*s) > 0).unwrap();
    let second = commit(&mut sessions[1], b"u", b"t");
    let other = 1 - stream_of_first;
    assert!(database.log().backlog(other) > 0, "they are in different streams");
    let mut tx = sessions[1].begin().unwrap();
    assert_eq!(tx.get(b"t").unwrap().as_deref(), Some(&b"x"[..]));
    let reader = tx.commit().unwrap();
    database.log().step(other);
    // The record of T is durable, and U is not: D7.
    let are = |tickets: [&Ticket; 3]| tickets.map(|t| t.is_acknowledged().unwrap());
    assert_eq!(are([&first, &second, &reader]), [false; 3]);
    database.log().step(stream_of_first);
    assert_eq!(are([&first, &second, &reader]), [true; 3]);
}

#[test]
fn a_stopped_log_answers_with_an_unknown_outcome() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = options(dir.path(), 1);
    settings.log.stepped = true;
    let database = Database::open(settings, Arc::new(MemoryData::new())).unwrap();
    let mut session = database.session().unwrap();
    let (_, ticket) = session.submit(|tx| tx.put(b"a", b"1")).unwrap();
    let mut open = session.begin().unwrap();
    open.put(b"b", b"1").unwrap();
    database.log().stop("a test says so");
    assert!(matches!(ticket.is_acknowledged(), Err(Error::OutcomeUnknown)));
    // There is room in the buffer, so the record is filled, and never becomes durable.
    let ticket = open.commit().unwrap();
    assert!(matches!(ticket.wait(), Err(Error::OutcomeUnknown)));
    assert!(matches!(session.begin().map(drop), Err(Error::Log(_))));
}

#[test]
fn what_does_not_fit_is_an_error_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let data = Arc::new(MemoryData::new());
    let database = open(dir.path(), &data).unwrap();
    let mut session = database.session().unwrap();
    session.execute(|tx| tx.insert(b"a", b"1")).unwrap();
    let insert = session.execute(|tx| {
        tx.put(b"b", b"2")?;
        tx.insert(b"a", b"3")
    });
    assert!(matches!(insert, Err(Error::Exists)));
    assert!(matches!(session.execute(|tx| tx.update(b"b", b"4")), Err(Error::NotFound)));
    let large = vec![0; 100_000];
    let too_large = session.execute(|tx| tx.put(b"b", &large));
    assert!(matches!(too_large, Err(Error::WriteTooLarge(..))), "{too_large:?}");
    drop(session.begin().unwrap().put(b"b", b"5"));
    let abort = session.begin().unwrap().abort();
    abort.wait().unwrap();
    assert_eq!(session.execute(|tx| tx.get(b"b")).unwrap(), None);
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = session.execute::<(), Error>(|tx| {
            tx.put(b"b", b"6")?;
            panic!("of the closure")
        });
    }));
    assert!(panics.is_err());
    assert_eq!(session.execute(|tx| tx.get(b"b")).unwrap(), None);
}

#[test]
fn conflicts_have_reasons() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = options(dir.path(), 1);
    settings.log.stepped = true;
    let database = Database::open(settings, Arc::new(MemoryData::new())).unwrap();
    let mut sessions: Vec<_> = (0..3).map(|_| database.session().unwrap()).collect();
    let [one, two, three] = &mut sessions[..] else { unreachable!() };
    let (mut older, mut younger) = (one.begin().unwrap(), two.begin().unwrap());
    younger.get(b"read").unwrap();
    younger.put(b"written", b"").unwrap();
    let is =
        |result: Result<(), Error>, abort| matches!(result, Err(Error::Aborted(a)) if a == abort);
    assert!(is(older.put(b"read", b""), Abort::ReadByYounger));
    assert!(is(older.get(b"other").map(drop), Abort::ReadByYounger), "it has ended");
    drop(older);
    let mut youngest = three.begin().unwrap();
    assert!(is(youngest.get(b"written").map(drop), Abort::Unfinished));
    drop(youngest);
    drop(younger);
    let (mut older, mut younger) = (one.begin().unwrap(), two.begin().unwrap());
    younger.put(b"written", b"").unwrap();
    assert!(is(older.put(b"written", b""), Abort::TooLate));
}

#[test]
fn a_log_and_a_data_component_that_do_not_belong_together_are_refused() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let write = |dir: &Path, data: &Arc<MemoryData>| {
        let database = open(dir, data).unwrap();
        let mut session = database.session().unwrap();
        session.execute(|tx| tx.put(b"k", &[0; 1000])).unwrap();
        database.close().unwrap();
    };
    let (first, second) = (Arc::new(MemoryData::outliving()), Arc::new(MemoryData::outliving()));
    write(one.path(), &first);
    write(two.path(), &second);
    let message = |opened: Result<Database, Error>| opened.map(drop).unwrap_err().to_string();
    let other = message(open(one.path(), &second));
    assert!(other.contains("another log"), "{other}");
    let empty = message(open(one.path(), &Arc::new(MemoryData::outliving())));
    assert!(empty.contains("truncated"), "{empty}");
    let fresh = tempfile::tempdir().unwrap();
    let new = message(open(fresh.path(), &first));
    assert!(new.contains("the log is new"), "{new}");
    let point = first.resume_point().unwrap().unwrap();
    let with = |point: ResumePoint| {
        let data = Arc::new(MemoryData::outliving());
        data.checkpoint(&point).unwrap();
        message(open(one.path(), &data))
    };
    let ahead = with(ResumePoint { incarnation: 9, ..point.clone() });
    assert!(ahead.contains("ahead"), "{ahead}");
    let high = with(ResumePoint { highest_ts: u64::MAX, ..point.clone() });
    assert!(high.contains("damaged"), "{high}");
    let behind = with(ResumePoint { positions: vec![0, 0], ..point.clone() });
    assert!(behind.contains("truncated beyond"), "{behind}");
    // The two still belong together.
    assert_eq!(first.resume_point().unwrap(), Some(point));
    write(one.path(), &first);
}

/// The data component has had no checkpoint yet, and has keys whose timestamps the new log would
/// give out again.
#[test]
fn a_data_component_that_was_filled_from_another_log_is_refused_by_a_new_one() {
    for data in [MemoryData::new(), MemoryData::outliving()] {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let data = Arc::new(data);
        let mut settings = options(one.path(), 2);
        settings.log.stepped = true;
        let database = Database::open(settings.clone(), data.clone()).unwrap();
        let mut session = database.session().unwrap();
        // A deleted key is known to the data component, too.
        let (_, ticket) = session.submit(|tx| tx.delete(b"k")).unwrap();
        database.log().step(0);
        database.log().step(1);
        ticket.wait().unwrap();
        assert!(database.step_proxy().unwrap());
        drop((session, database));
        assert_eq!(data.items(), 1);
        assert!(data.resume_point().unwrap().is_some_and(|point| point.incarnation == 1));
        let message = open(two.path(), &data).map(drop).unwrap_err().to_string();
        assert!(message.contains("the log is new"), "{message}");
        // Nothing was changed, here or there.
        drop(open(two.path(), &Arc::new(MemoryData::new())).unwrap());
        drop(Database::open(settings, data).unwrap());
    }
}

#[test]
fn what_is_deleted_leaves_a_data_component_that_has_no_checkpoints() {
    let dir = tempfile::tempdir().unwrap();
    let data = Arc::new(MemoryData::new());
    let mut settings = options(dir.path(), 2);
    settings.redo_bytes = 4000;
    let database = Database::open(settings, data.clone()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(|tx| tx.put(b"kept", b"1")).unwrap();
    let until = std::time::Instant::now() + Duration::from_secs(60);
    for key in 0..2000u32 {
        session.execute(|tx| tx.put(&key.to_be_bytes(), b"1")).unwrap();
        session.execute(|tx| tx.delete(&key.to_be_bytes())).unwrap();
    }
    // By itself, as the log grows.
    while data.items() > 1500 {
        assert!(std::time::Instant::now() < until, "{} keys stay", data.items());
        session.execute(|tx| tx.put(b"kept", b"2")).unwrap();
    }
    session.execute(|tx| tx.put(b"kept", b"3")).unwrap();
    drop(session);
    database.close().unwrap();
    assert_eq!(data.items(), 1);
    assert_eq!(data.content()[0].0, b"kept");
    // The log has everything, for the next data component.
    let database = open(dir.path(), &Arc::new(MemoryData::new())).unwrap();
    let mut session = database.session().unwrap();
    assert_eq!(session.execute(|tx| tx.get(b"kept")).unwrap().as_deref(), Some(&b"3"[..]));
    assert_eq!(session.execute(|tx| tx.get(&1u32.to_be_bytes())).unwrap(), None);
}

#[test]
fn memory_that_is_full_of_what_is_not_durable_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = options(dir.path(), 2);
    let slow = Throttle { latency_ns: 20_000_000, ..Throttle::default() };
    settings.log.device = Arc::new(ThrottledDevice::new(MemoryDevice::shared(), slow));
    settings.memory_bytes = 16 << 10;
    settings.attempts = 1;
    let database = Database::open(settings, Arc::new(MemoryData::new())).unwrap();
    let mut session = database.session().unwrap();
    for key in 0..200u32 {
        let put = session.submit(|tx| tx.put(&key.to_be_bytes(), &[1; 1000]));
        assert!(put.is_ok(), "{key}: {:?}", put.map(drop));
    }
    // A transaction too large even alone is refused, and not shed again and again.
    let large = session.execute(|tx| (0..99u8).try_for_each(|key| tx.put(&[key], &[1; 100])));
    assert!(matches!(large, Err(Error::TransactionTooLarge(..))), "{large:?}");
}

#[test]
fn a_leaked_transaction_is_aborted() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path(), &Arc::new(MemoryData::new())).unwrap();
    let mut session = database.session().unwrap();
    let mut leaked = session.begin().unwrap();
    leaked.put(b"a", b"1").unwrap();
    std::mem::forget(leaked);
    session.execute(|tx| tx.put(b"b", b"2")).unwrap();
    let mut leaked = session.begin().unwrap();
    leaked.put(b"a", b"3").unwrap();
    std::mem::forget(leaked);
    drop(session);
    let mut session = database.session().unwrap();
    assert_eq!(session.execute(|tx| tx.get(b"a")).unwrap(), None);
    assert_eq!(session.execute(|tx| tx.get(b"b")).unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn options_that_cannot_work_are_refused() {
    let refused = |change: fn(&mut Options), word: &str| {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = options(dir.path(), 1);
        change(&mut settings);
        let opened = Database::open(settings, Arc::new(MemoryData::new()));
        let message = opened.map(drop).unwrap_err().to_string();
        assert!(message.contains(word), "{message}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "a file was made");
    };
    let few_entries = |settings: &mut Options| {
        settings.sessions = 16;
        settings.transactions = 16;
    };
    refused(few_entries, "more entries than sessions");
    refused(|settings| settings.transactions = 24, "a power of two");
    refused(|settings| settings.memory_bytes = 4095, "memory");
    refused(|settings| settings.sessions = 257, "writers");
    refused(|settings| settings.attempts = 0, "attempt");
}

#[test]
fn a_session_too_many_is_an_error_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = options(dir.path(), 1);
    settings.log.max_writers = 2;
    let settings = Options::new(settings.log);
    let database = Database::open(settings, Arc::new(MemoryData::new())).unwrap();
    let sessions = [database.session().unwrap(), database.session().unwrap()];
    for _ in 0..3 {
        let third = database.session().map(drop);
        assert!(matches!(third, Err(Error::Sessions(2))), "{third:?}");
    }
    drop(sessions);
    let _sessions = [database.session().unwrap(), database.session().unwrap()];
}

/// Threads want more sessions than there are, with as few writers of the log: each time a thread
/// gets a session, or is told that all are in use.
#[test]
fn a_session_that_is_being_dropped_is_in_use_until_its_writer_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = options(dir.path(), 1);
    settings.log.max_writers = 2;
    let settings = Options::new(settings.log);
    let database = Database::open(settings, Arc::new(MemoryData::new())).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..30_000 {
                    match database.session() {
                        Ok(session) => drop(session),
                        Err(error) => assert!(matches!(error, Error::Sessions(2)), "{error}"),
                    }
                }
            });
        }
    });
}

#[test]
fn closing_waits_for_no_flush_interval() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = options(dir.path(), 2);
    settings.log.flush_interval = Some(Duration::from_secs(3_600));
    let database = Database::open(settings, Arc::new(MemoryData::new())).unwrap();
    let mut session = database.session().unwrap();
    let ((), ticket) = session.submit(|tx| tx.put(b"a", b"1")).unwrap();
    let (told, closed) = std::sync::mpsc::channel();
    // On a separate thread: the close would not end.
    std::thread::spawn(move || told.send(database.close().map_err(|error| error.to_string())));
    assert_eq!(closed.recv_timeout(Duration::from_secs(120)), Ok(Ok(())));
    ticket.wait().unwrap();
}

#[test]
fn patience_has_no_end_if_it_is_so_long() {
    for patience in [Duration::MAX, Duration::from_nanos(u64::MAX)] {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = options(dir.path(), 1);
        settings.patience = patience;
        let database = Database::open(settings, Arc::new(MemoryData::new())).unwrap();
        let mut sessions = [database.session().unwrap(), database.session().unwrap()];
        let [one, two] = &mut sessions;
        let (mut older, mut younger) = (one.begin().unwrap(), two.begin().unwrap());
        older.put(b"a", b"1").unwrap();
        std::thread::scope(|scope| {
            let read = scope.spawn(move || younger.get(b"a"));
            std::thread::sleep(Duration::from_millis(100));
            drop(older.commit().unwrap());
            assert_eq!(read.join().unwrap().unwrap().as_deref(), Some(&b"1"[..]));
        });
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn a_ticket_is_a_future() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path(), &Arc::new(MemoryData::new())).unwrap();
    let mut session = database.session().unwrap();
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    for i in 0..100u32 {
        let (_, ticket) = session.submit(|tx| tx.put(&i.to_le_bytes(), b"")).unwrap();
        let mut ticket = std::pin::pin!(ticket);
        while ticket.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            std::thread::park();
        }
    }
}
