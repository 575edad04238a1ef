//! A data component slower than the log, or hanging: memory stays within its budget, writers are
//! held back, and waits for a hanging call end with an error.
#![allow(missing_docs)]

use hyades_deuteronomy::{
    Abort, DataComponent, DataLayer, Database, Error, LogOptions, MemoryData, Operation, Options,
    ResumePoint, Session,
};
use hyades_platform::device::MemoryDevice;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Longer than any working operation.
const LONG: Duration = Duration::from_secs(60);

/// A gate for calls to pass, or to wait at.
#[derive(Default)]
struct Gate {
    is_shut: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn set_shut(&self, is_shut: bool) {
        *self.is_shut.lock().unwrap() = is_shut;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let shut = self.is_shut.lock().unwrap();
        drop(self.opened.wait_while(shut, |is_shut| *is_shut).unwrap());
    }
}

/// The data component in memory. Applying takes time, and calls may hang.
#[derive(Default)]
struct SlowStore {
    data: Option<MemoryData>,
    /// 0: any.
    bytes_per_second: AtomicU64,
    apply: Gate,
    checkpoint: Gate,
    is_at_checkpoint: AtomicBool,
}

impl SlowStore {
    fn new() -> Arc<Self> {
        Arc::new(Self { data: Some(MemoryData::outliving()), ..Self::default() })
    }

    fn data(&self) -> &MemoryData {
        self.data.as_ref().unwrap()
    }
}

impl DataLayer for SlowStore {
    fn below(&self) -> &dyn DataComponent {
        self.data()
    }

    fn apply(&self, batch: &[Operation<'_>]) -> Result<(), Error> {
        self.apply.pass();
        let speed = self.bytes_per_second.load(Ordering::Relaxed);
        if speed > 0 {
            let bytes = batch.iter().map(|o| o.key.len() + o.value.map_or(0, <[u8]>::len));
            let seconds = bytes.sum::<usize>() as f64 / speed as f64;
            std::thread::sleep(Duration::from_secs_f64(seconds));
        }
        self.data().apply(batch)
    }

    fn checkpoint(&self, point: &ResumePoint) -> Result<(), Error> {
        self.is_at_checkpoint.store(true, Ordering::Relaxed);
        self.checkpoint.pass();
        self.is_at_checkpoint.store(false, Ordering::Relaxed);
        self.data().checkpoint(point)
    }
}

fn options(dir: &Path, memory_bytes: usize, patience: Duration) -> Options {
    let mut log = LogOptions::new(vec![dir.to_owned()], 2);
    log.device = MemoryDevice::shared();
    log.buffer_bytes = 1 << 18;
    log.segment_bytes = 1 << 20;
    let mut options = Options::new(log);
    options.memory_bytes = memory_bytes;
    options.store_patience = patience;
    options
}

fn put(session: &mut Session, key: u64, value: &[u8]) -> Result<(), Error> {
    session.submit(|tx| tx.put(&key.to_be_bytes(), value)).map(drop)
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The keys fit into memory; repeated writes to the keys wait for the data component.
#[test]
fn what_waits_for_a_slow_data_component_stays_within_the_budget() {
    const BUDGET: usize = 4 << 20;
    // The second kind takes more memory beside its values than for the values.
    for (keys, value) in [(200, 8 << 10), (5000, 100)] {
        let dir = tempfile::tempdir().unwrap();
        let store = SlowStore::new();
        let mut settings = options(dir.path(), BUDGET, LONG);
        settings.redo_bytes = 1 << 20;
        let database = Database::open(settings, store.clone()).unwrap();
        store
            .bytes_per_second
            .store(if value > 1000 { 10 << 20 } else { 1 << 20 }, Ordering::Relaxed);
        let (begun, most_lag) = (Instant::now(), AtomicU64::new(0));
        let most = BUDGET + BUDGET / 64 + 4 * (value + 1000);
        let written: u64 = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..2u64)
                .map(|seed| {
                    let (database, most_lag) = (&database, &most_lag);
                    scope.spawn(move || {
                        let mut rng = fastrand::Rng::with_seed(seed);
                        let (mut session, mut written) = (database.session().unwrap(), 0);
                        while begun.elapsed() < Duration::from_secs(3) {
                            put(&mut session, rng.u64(..keys), &vec![7; value]).unwrap();
                            written += value as u64;
                            let bytes = database.stats().version_bytes;
                            assert!(bytes <= most, "{bytes} bytes");
                            most_lag
                                .fetch_max(database.stats().lag.bytes as u64, Ordering::Relaxed);
                        }
                        written
                    })
                })
                .collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).sum()
        });
        let most_lag = most_lag.into_inner();
        println!("{written} bytes were written, {most_lag} waited at most");
        // Waiting versions are in the version table, within the budget, or have left the table, and
        // then take up to half of the budget.
        assert!(most_lag <= (most + BUDGET / 2) as u64, "{most_lag} bytes wait");
        assert!(written > 0, "none is written any more");
        store.bytes_per_second.store(0, Ordering::Relaxed);
        database.close().unwrap();
        assert!(store.data().items() as u64 <= keys);
    }
}

#[test]
fn writers_end_with_an_error_where_applying_hangs_and_go_on_when_it_does() {
    const BUDGET: usize = 256 << 10;
    let dir = tempfile::tempdir().unwrap();
    let (store, patience) = (SlowStore::new(), Duration::from_millis(300));
    let database = Database::open(options(dir.path(), BUDGET, patience), store.clone()).unwrap();
    let mut session = database.session().unwrap();
    assert_eq!(database.stats().lag.bytes, 0);
    store.apply.set_shut(true);
    let begun = Instant::now();
    let mut written = 0;
    let stalled = loop {
        match put(&mut session, written, &[1; 1000]) {
            Ok(()) => written += 1,
            Err(Error::Aborted(Abort::Shed)) => {}
            Err(error) => break error,
        }
        assert!(begun.elapsed() < LONG, "{written} are written");
    };
    assert!(matches!(stalled, Error::Stalled(call) if call > patience), "{stalled}");
    assert!(stalled.to_string().contains("look at its device"), "{stalled}");
    let lag = database.stats().lag;
    assert!(lag.bytes > 0 && lag.age > patience && lag.call > patience, "{lag:?}");
    let bytes = database.stats().version_bytes;
    assert!(bytes <= BUDGET + BUDGET / 64 + 4000, "{bytes} bytes");
    // A checkpoint does not wait for ever either.
    assert!(matches!(database.checkpoint(), Err(Error::Stalled(_))));
    store.apply.set_shut(false);
    wait_until("it goes on", || database.stats().lag.bytes == 0);
    assert_eq!((database.stats().lag.age, database.stats().lag.call), Default::default());
    put(&mut session, written, &[1; 1000]).unwrap();
    drop(session);
    database.close().unwrap();
    assert_eq!(store.data().items() as u64, written + 1);
}

#[test]
fn closing_ends_with_an_error_where_applying_hangs_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (store, patience) = (SlowStore::new(), Duration::from_millis(200));
    let database = Database::open(options(dir.path(), 1 << 20, patience), store.clone()).unwrap();
    store.apply.set_shut(true);
    let mut session = database.session().unwrap();
    session.execute(|tx| tx.put(b"a", b"1")).unwrap();
    wait_until("it is applied", || !database.stats().lag.call.is_zero());
    drop(session);
    let begun = Instant::now();
    let closed = database.close();
    assert!(matches!(closed, Err(Error::Stalled(_))), "{closed:?}");
    assert!(begun.elapsed() < LONG / 2);
    // The log is in use until the call returns.
    let data = || Arc::new(store.data().after_crash(|| false));
    let in_use = Database::open(options(dir.path(), 1 << 20, LONG), data()).map(drop);
    assert!(in_use.is_err());
    store.apply.set_shut(false);
    let mut opened = None;
    wait_until("the log is free", || {
        opened = Database::open(options(dir.path(), 1 << 20, LONG), data()).ok();
        opened.is_some()
    });
    let database = opened.unwrap();
    let read = database.session().unwrap().execute(|tx| tx.get(b"a")).unwrap();
    assert_eq!(read.as_deref(), Some(&b"1"[..]));
}

/// Ten times the budget is written while the data component is at a checkpoint. The log stays far
/// shorter than a log that holds writers back, however late the thread of checkpoints begins.
#[test]
fn a_checkpoint_holds_up_none_that_needs_room() {
    const BUDGET: usize = 256 << 10;
    let dir = tempfile::tempdir().unwrap();
    let store = SlowStore::new();
    let mut settings = options(dir.path(), BUDGET, LONG);
    settings.redo_bytes = 16 << 20;
    let database = Database::open(settings, store.clone()).unwrap();
    let (mut session, mut key) = (database.session().unwrap(), 0);
    store.checkpoint.set_shut(true);
    let begun = Instant::now();
    while !store.is_at_checkpoint.load(Ordering::Relaxed) {
        put(&mut session, key, &[1; 1000]).unwrap();
        key += 1;
        assert!(begun.elapsed() < LONG, "no checkpoint is taken");
    }
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            (key..key + 10 * (BUDGET as u64 / 1000))
                .for_each(|key| put(&mut session, key, &[1; 1000]).unwrap());
            done.send(()).unwrap();
        });
        let waited = is_done.recv_timeout(LONG / 2);
        assert!(store.is_at_checkpoint.load(Ordering::Relaxed), "it is over");
        store.checkpoint.set_shut(false);
        let redo = database.stats().redo_bytes;
        assert!(waited.is_ok(), "a writer waits for the checkpoint, with {redo} bytes of log");
        writer.join().unwrap();
    });
    drop(session);
    database.close().unwrap();
}

/// The log does not grow without end behind a hanging checkpoint.
#[test]
fn a_checkpoint_that_hangs_holds_writers_back_before_the_log_is_long() {
    let dir = tempfile::tempdir().unwrap();
    let (store, patience) = (SlowStore::new(), Duration::from_millis(300));
    let mut settings = options(dir.path(), 256 << 10, patience);
    settings.redo_bytes = 512 << 10;
    let database = Database::open(settings, store.clone()).unwrap();
    let (mut session, mut written) = (database.session().unwrap(), 0);
    store.checkpoint.set_shut(true);
    let stalled = loop {
        match put(&mut session, written, &[1; 1000]) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 8 << 10, "{written} are written");
    };
    assert!(matches!(stalled, Error::Stalled(_)), "{stalled}");
    assert!(written > 2 << 10, "{written} are written");
    store.checkpoint.set_shut(false);
    wait_until("writers go on", || put(&mut session, 0, b"").is_ok());
    drop(session);
    database.close().unwrap();
}
