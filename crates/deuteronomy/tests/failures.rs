//! A failing or panicking data component loses nothing, and no call claims otherwise.
#![allow(missing_docs)]

#[path = "common/faulty.rs"]
mod faulty;

use faulty::{Fault, Faulty};
use hyades_deuteronomy::{DataComponent, Database, Error, LogOptions, MemoryData, Options};
use hyades_platform::device::MemoryDevice;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const FAULTS: [Fault; 3] = [Fault::Fails, Fault::FailsOddly, Fault::Panics];

fn options(dir: &Path, stepped: bool) -> Options {
    let mut log = LogOptions::new(vec![dir.to_owned()], 2);
    log.device = MemoryDevice::shared();
    log.buffer_bytes = 1 << 16;
    log.segment_bytes = 1 << 18;
    log.stepped = stepped;
    Options::new(log)
}

/// Checks that the state of the data component after a crash, and the log, still hold the keys.
fn is_recovered(dir: &Path, data: &MemoryData, keys: &[&[u8]]) {
    let data = Arc::new(data.after_crash(|| false));
    let database = Database::open(options(dir, true), data as Arc<dyn DataComponent>).unwrap();
    let mut session = database.session().unwrap();
    for key in keys {
        let value = session.execute(|tx| tx.get(key)).unwrap();
        assert_eq!(value.as_deref(), Some(&b"1"[..]), "of {key:?}");
    }
}

fn write(database: &Database, key: &[u8]) {
    let mut session = database.session().unwrap();
    let (_, ticket) = session.submit(|tx| tx.put(key, b"1")).unwrap();
    for stream in 0..2 {
        database.log().step(stream);
    }
    ticket.wait().unwrap();
}

#[test]
fn what_could_not_be_applied_is_not_lost_at_a_checkpoint_or_when_it_is_closed() {
    for (fault, is_closed) in FAULTS.into_iter().flat_map(|fault| [(fault, false), (fault, true)]) {
        let dir = tempfile::tempdir().unwrap();
        let data = Faulty::new(Arc::new(MemoryData::outliving()));
        let database = Database::open(options(dir.path(), true), data.clone()).unwrap();
        write(&database, b"a");
        database.checkpoint().unwrap();
        write(&database, b"b");
        *data.apply.lock().unwrap() = Some(fault);
        let step = catch_unwind(AssertUnwindSafe(|| database.step_proxy()));
        assert_eq!(step.is_err(), fault == Fault::Panics);
        assert!(step.map_or(true, |step| step.is_err()), "{fault:?}");
        assert!(matches!(database.session().unwrap().begin().map(drop), Err(Error::Log(_))));
        assert!(database.step_proxy().is_err(), "{fault:?}");
        match is_closed {
            true => assert!(database.close().is_err(), "{fault:?}"),
            false => {
                assert!(database.checkpoint().is_err(), "{fault:?}");
                drop(database);
            }
        }
        is_recovered(dir.path(), &data.data, &[b"a", b"b"]);
    }
}

#[test]
fn a_checkpoint_that_failed_is_not_tried_again() {
    for fault in FAULTS {
        let dir = tempfile::tempdir().unwrap();
        let data = Faulty::new(Arc::new(MemoryData::outliving()));
        let database = Database::open(options(dir.path(), true), data.clone()).unwrap();
        write(&database, b"a");
        *data.checkpoint.lock().unwrap() = Some(fault);
        let checkpoint = catch_unwind(AssertUnwindSafe(|| database.checkpoint()));
        assert!(checkpoint.map_or(true, |checkpoint| checkpoint.is_err()), "{fault:?}");
        assert!(database.log().poisoned().is_some(), "{fault:?}");
        assert!(database.checkpoint().is_err(), "{fault:?}");
        assert!(database.close().is_err(), "{fault:?}");
        is_recovered(dir.path(), &data.data, &[b"a"]);
    }
}

#[test]
fn a_proxy_that_fails_stops_the_log() {
    for fault in FAULTS {
        let dir = tempfile::tempdir().unwrap();
        let data = Faulty::new(Arc::new(MemoryData::outliving()));
        let database = Database::open(options(dir.path(), false), data.clone()).unwrap();
        *data.apply.lock().unwrap() = Some(fault);
        let mut session = database.session().unwrap();
        session.execute(|tx| tx.put(b"a", b"1")).unwrap();
        let begun = Instant::now();
        while database.log().poisoned().is_none() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{fault:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(matches!(session.begin().map(drop), Err(Error::Log(_))));
        drop(session);
        assert!(database.close().is_err(), "{fault:?}");
        is_recovered(dir.path(), &data.data, &[b"a"]);
    }
}

#[test]
fn a_stopped_log_is_not_closed_as_if_it_were_sound() {
    let dir = tempfile::tempdir().unwrap();
    let data = Arc::new(MemoryData::outliving());
    let database = Database::open(options(dir.path(), true), data.clone()).unwrap();
    write(&database, b"a");
    database.log().stop("a test says so");
    assert!(database.close().is_err());
    is_recovered(dir.path(), &data, &[b"a"]);
}

#[test]
fn no_checkpoint_is_taken_while_the_resume_point_cannot_move() {
    let dir = tempfile::tempdir().unwrap();
    let data = Faulty::new(Arc::new(MemoryData::outliving()));
    let mut settings = options(dir.path(), false);
    settings.redo_bytes = 4000;
    let database = Database::open(settings, data.clone()).unwrap();
    let (mut old, mut young) = (database.session().unwrap(), database.session().unwrap());
    // No younger transaction is applied while `old` runs.
    let old = old.begin().unwrap();
    for i in 0..300u32 {
        young.execute(|tx| tx.put(&i.to_be_bytes(), &[1; 100])).unwrap();
    }
    std::thread::sleep(Duration::from_millis(300));
    let taken = data.checkpoints.load(Ordering::Relaxed);
    // The other stream may move as far as the first record of the held stream.
    assert!(taken <= 20, "{taken} checkpoints");
    drop(old);
    let begun = Instant::now();
    while data.checkpoints.load(Ordering::Relaxed) == taken {
        assert!(begun.elapsed() < Duration::from_secs(60), "none is taken now that it can move");
        young.execute(|tx| tx.put(b"next", b"1")).unwrap();
    }
    drop(young);
    database.close().unwrap();
}

/// A queue returns acknowledged transactions and nothing else, also when the log stops.
#[test]
fn a_queue_returns_what_is_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let open = |dir: &Path| {
        let data: Arc<dyn DataComponent> = Arc::new(MemoryData::new());
        Database::open(options(dir, true), data).unwrap()
    };
    let database = open(dir.path());
    let (mut session, mut queue) = (database.session().unwrap(), database.commit_queue());
    let mut put = |key: &[u8]| session.submit(|tx| tx.put(key, b"1")).unwrap().1;
    queue.push(put(b"a"), 'a');
    let mut returned = Vec::new();
    assert_eq!(queue.drain(|item| returned.push(item)).unwrap(), 0);
    for stream in 0..2 {
        database.log().step(stream);
    }
    queue.push(put(b"b"), 'b');
    queue.wait_for_one().unwrap();
    assert_eq!(queue.drain(|item| returned.push(item)).unwrap(), 1);
    let waits_for_nothing = database.session().unwrap().begin().unwrap().abort();
    database.log().stop("for this test");
    queue.push(waits_for_nothing, 'c');
    let drained = queue.drain(|item| returned.push(item));
    assert!(matches!(drained, Err(Error::OutcomeUnknown)), "{drained:?}");
    assert_eq!((&returned[..], queue.len()), (&['a', 'c'][..], 1));
    assert!(matches!(queue.wait_for_one(), Err(Error::OutcomeUnknown)));

    let other_dir = tempfile::tempdir().unwrap();
    let other = open(other_dir.path());
    let (_, ticket) = other.session().unwrap().submit(|tx| tx.put(b"a", b"1")).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| queue.push(ticket, 'd'))).is_err());
}
