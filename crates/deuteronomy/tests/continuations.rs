//! Operations without waits for the data component.
#![allow(missing_docs)]

use hyades_deuteronomy::{
    Abort, DataComponent, DataLayer, Database, Error, Found, LogOptions, MemoryData, Operation,
    Options,
};
use hyades_platform::device::MemoryDevice;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

/// A data component with reads that wait at a gate, fail, or panic.
struct Gate {
    data: MemoryData,
    keys: usize,
    /// The number of reads allowed to pass.
    open: Mutex<usize>,
    opened: Condvar,
    at_gate: AtomicUsize,
    fails: Option<&'static str>,
}

impl Gate {
    fn new(keys: usize, open: usize, fails: Option<&'static str>) -> Arc<Self> {
        let (open, opened) = (Mutex::new(open), Condvar::new());
        let (data, at_gate) = (MemoryData::new(), AtomicUsize::new(0));
        Arc::new(Self { data, keys, open, opened, at_gate, fails })
    }

    /// Puts the keys there, behind a freshly opened database.
    fn fill(&self) {
        for key in 0..self.keys {
            let key = format!("k{key:03}");
            let operation = Operation { key: key.as_bytes(), ts: 1, value: Some(key.as_bytes()) };
            self.data.apply(&[operation]).unwrap();
        }
    }

    fn let_pass(&self, reads: usize) {
        *self.open.lock().unwrap() += reads;
        self.opened.notify_all();
    }

    fn wait_for(&self, reads: usize) {
        while self.at_gate.load(Ordering::Relaxed) < reads {
            std::thread::yield_now();
        }
    }
}

impl DataLayer for Gate {
    fn below(&self) -> &dyn DataComponent {
        &self.data
    }

    fn get(&self, key: &[u8]) -> Result<Found, Error> {
        self.at_gate.fetch_add(1, Ordering::Relaxed);
        let mut open = self.open.lock().unwrap();
        while *open == 0 {
            let waited = self.opened.wait_timeout(open, Duration::from_secs(60)).unwrap();
            assert!(!waited.1.timed_out(), "the gate is not opened");
            open = waited.0;
        }
        *open -= 1;
        drop(open);
        match self.fails {
            Some("panic") => panic!("a test says so"),
            Some(why) => Err(Error::DataComponent(why.into())),
            None => self.data.get(key),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn waker() -> Waker {
    Waker::from(Arc::new(Unpark(std::thread::current())))
}

/// Runs a future to the end.
fn block_on<F: Future>(future: F) -> F::Output {
    let (mut future, waker) = (pin!(future), waker());
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Runs all futures to the end, in turn. Returns the results.
fn join_all<T>(futures: Vec<Pin<Box<dyn Future<Output = T> + '_>>>) -> Vec<T> {
    let waker = waker();
    let mut futures: Vec<_> = futures.into_iter().map(Some).collect();
    let mut results: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    while futures.iter().any(Option::is_some) {
        for (future, result) in futures.iter_mut().zip(&mut results) {
            let Some(running) = future else { continue };
            if let Poll::Ready(found) = running.as_mut().poll(&mut Context::from_waker(&waker)) {
                *result = Some(found);
                *future = None;
            }
        }
        if futures.iter().any(Option::is_some) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
    results.into_iter().flatten().collect()
}

fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn open(data: &Arc<Gate>, change: impl FnOnce(&mut Options)) -> (tempfile::TempDir, Database) {
    let dir = tempfile::tempdir().unwrap();
    let mut log = LogOptions::new(vec![dir.path().to_owned()], 2);
    log.device = MemoryDevice::shared();
    let mut options = Options::new(log);
    change(&mut options);
    let database = Database::open(options, Arc::clone(data) as Arc<dyn DataComponent>).unwrap();
    data.fill();
    (dir, database)
}

#[test]
fn a_session_goes_on_while_the_data_component_is_read() {
    let gate = Gate::new(2, 0, None);
    let (_dir, database) = open(&gate, |_| {});
    let (mut one, mut two) = (database.session().unwrap(), database.session().unwrap());
    two.execute(|tx| tx.put(b"here", b"1")).unwrap();
    let tx = one.begin().unwrap();
    {
        let mut slow = pin!(tx.get_async(b"k001"));
        assert!(poll(slow.as_mut()).is_pending());
        gate.wait_for(1);
        // The same transaction: a version in memory is there at once, and so is an own write.
        let here = poll(pin!(tx.get_async(b"here")));
        assert!(matches!(here, Poll::Ready(Ok(Some(here))) if *here == *b"1"));
        let old = poll(pin!(tx.update_async(b"here", b"2")));
        assert!(matches!(old, Poll::Ready(Ok(old)) if *old == *b"1"));
        // Another transaction, on the same thread.
        two.execute(|tx| tx.put(b"there", b"1")).unwrap();
        assert!(poll(slow.as_mut()).is_pending());
        gate.let_pass(1);
        assert_eq!(block_on(slow).unwrap().as_deref(), Some(&b"k001"[..]));
    }
    block_on(tx.commit().unwrap()).unwrap();
    assert_eq!(two.execute(|tx| tx.get(b"here")).unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn many_reads_are_under_way_at_a_time_and_no_more_than_there_are_threads() {
    const KEYS: usize = 200;
    for threads in [1, 8] {
        let gate = Gate::new(KEYS, 0, None);
        let (_dir, database) = open(&gate, |options| options.reader_threads = threads);
        let mut session = database.session().unwrap();
        let tx = session.begin().unwrap();
        let keys: Vec<String> = (0..KEYS).map(|key| format!("k{key:03}")).collect();
        let mut futures: Vec<Pin<Box<dyn Future<Output = _> + '_>>> = Vec::new();
        for key in &keys {
            futures.push(Box::pin(tx.get_async(key.as_bytes())));
        }
        for future in &mut futures {
            assert!(poll(future.as_mut()).is_pending());
        }
        gate.wait_for(threads);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(gate.at_gate.load(Ordering::Relaxed), threads);
        gate.let_pass(KEYS);
        for (found, key) in join_all(futures).into_iter().zip(&keys) {
            assert_eq!(found.unwrap().as_deref(), Some(key.as_bytes()));
        }
        tx.commit().unwrap().wait().unwrap();
    }
}

#[test]
fn a_read_that_fails_fails_the_operation_and_others_go_on() {
    for (why, words) in [("a test says so", "a test says so"), ("panic", "panicked")] {
        let gate = Gate::new(1, usize::MAX, Some(why));
        let (_dir, database) = open(&gate, |options| options.reader_threads = 1);
        let mut session = database.session().unwrap();
        for _ in 0..3 {
            let tx = session.begin().unwrap();
            let found = block_on(tx.get_async(b"k000"));
            assert!(matches!(&found, Err(Error::DataComponent(text)) if text.contains(words)));
            assert!(block_on(tx.insert_async(b"new", b"1")).is_err());
            tx.abort().wait().unwrap();
        }
    }
}

#[test]
fn what_is_not_there_and_what_is_are_told_apart() {
    let gate = Gate::new(1, usize::MAX, None);
    let (_dir, database) = open(&gate, |_| {});
    let mut session = database.session().unwrap();
    let tx = session.begin().unwrap();
    assert!(matches!(block_on(tx.update_async(b"none", b"1")), Err(Error::NotFound)));
    assert!(matches!(block_on(tx.insert_async(b"k000", b"1")), Err(Error::Exists)));
    {
        // Both are under way, and the second finds the write of the first.
        let (mut one, mut two) =
            (pin!(tx.insert_async(b"none", b"1")), pin!(tx.insert_async(b"none", b"3")));
        let both = [poll(one.as_mut()).is_ready(), poll(two.as_mut()).is_ready()];
        if !both[0] {
            block_on(one).unwrap();
        }
        if !both[1] {
            assert!(matches!(block_on(two), Err(Error::Exists)));
        }
    }
    assert_eq!(*block_on(tx.update_async(b"none", b"2")).unwrap(), *b"1");
    block_on(tx.commit().unwrap()).unwrap();
}

#[test]
fn a_dropped_operation_and_a_closed_database_leave_nothing_waiting() {
    let gate = Gate::new(2, 0, None);
    let (_dir, database) = open(&gate, |options| options.reader_threads = 1);
    let (mut one, mut two) = (database.session().unwrap(), database.session().unwrap());
    let (first, second) = (one.begin().unwrap(), two.begin().unwrap());
    {
        let mut dropped = pin!(first.get_async(b"k000"));
        assert!(poll(dropped.as_mut()).is_pending());
        // Before, the key would not be read at all.
        gate.wait_for(1);
    }
    // The only thread is at the gate: the second read is not begun.
    let mut waiting = pin!(second.get_async(b"k001"));
    assert!(poll(waiting.as_mut()).is_pending());
    let closer = std::thread::spawn(move || drop(database));
    let ended = loop {
        if let Poll::Ready(ended) = poll(waiting.as_mut()) {
            break ended;
        }
        gate.let_pass(1);
        std::thread::yield_now();
    };
    assert!(matches!(ended, Ok(_) | Err(Error::DataComponent(_))), "{ended:?}");
    gate.let_pass(10);
    closer.join().unwrap();
    let late = block_on(first.get_async(b"k000"));
    assert!(matches!(late, Err(Error::DataComponent(_))), "{late:?}");
}

/// One thread runs two transactions; the younger waits for the older; the older goes on meanwhile.
#[test]
fn a_thread_does_not_wait_for_itself() {
    let gate = Gate::new(1, usize::MAX, None);
    let (_dir, database) = open(&gate, |options| options.patience = Duration::from_secs(20));
    let (mut one, mut two) = (database.session().unwrap(), database.session().unwrap());
    let older = one.begin().unwrap();
    block_on(older.insert_async(b"a", b"1")).unwrap();
    let younger = two.begin().unwrap();
    let mut read = pin!(younger.get_async(b"a"));
    assert!(poll(read.as_mut()).is_pending());
    drop(older.commit().unwrap());
    let Poll::Ready(found) = poll(read.as_mut()) else { panic!("the older one has ended") };
    assert_eq!(found.unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn patience_has_an_end() {
    let gate = Gate::new(1, usize::MAX, None);
    let (_dir, database) = open(&gate, |_| {});
    let (mut one, mut two) = (database.session().unwrap(), database.session().unwrap());
    let older = one.begin().unwrap();
    block_on(older.insert_async(b"a", b"1")).unwrap();
    let younger = two.begin().unwrap();
    let found = block_on(younger.get_async(b"a"));
    assert!(matches!(found, Err(Error::Aborted(Abort::Unfinished))), "{found:?}");
    assert!(matches!(block_on(younger.get_async(b"b")), Err(Error::Aborted(_))), "it has ended");
    drop(older.commit().unwrap());
}

/// Does something when woken.
struct OnWake(Mutex<Option<Box<dyn FnOnce() + Send>>>, AtomicUsize);

impl OnWake {
    fn new(act: impl FnOnce() + Send + 'static) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(Box::new(act))), AtomicUsize::new(0)))
    }

    fn wait(&self) {
        while self.1.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
    }
}

impl Wake for OnWake {
    fn wake(self: Arc<Self>) {
        let act = self.0.lock().unwrap().take();
        self.1.fetch_add(1, Ordering::Release);
        act.into_iter().for_each(|act| act());
    }
}

#[test]
fn a_waker_that_panics_or_drops_the_database_ends_no_other_read() {
    let gate = Gate::new(2, 0, None);
    let (_dir, database) = open(&gate, |options| options.reader_threads = 1);
    let (mut one, mut two) = (database.session().unwrap(), database.session().unwrap());
    let (first, second) = (one.begin().unwrap(), two.begin().unwrap());
    let panics = OnWake::new(|| panic!("a test says so"));
    let mut read = pin!(first.get_async(b"k000"));
    let waker = Waker::from(panics.clone());
    assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    gate.let_pass(1);
    panics.wait();
    assert_eq!(block_on(read).unwrap().as_deref(), Some(&b"k000"[..]));
    // The only thread goes on, and drops the database.
    let (done, is_done) = std::sync::mpsc::channel();
    let drops = OnWake::new(move || {
        drop(database);
        done.send(()).unwrap();
    });
    let mut read = pin!(second.get_async(b"k001"));
    let waker = Waker::from(drops.clone());
    assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    gate.let_pass(1);
    is_done.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(block_on(read).unwrap().as_deref(), Some(&b"k001"[..]));
}

/// Two tasks of a transaction on two threads: the write of one is found by the other.
#[test]
fn of_two_inserts_of_a_key_one_finds_it_there() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = LogOptions::new(vec![dir.path().to_owned()], 1);
    log.device = MemoryDevice::shared();
    let database = Database::open(Options::new(log), Arc::new(MemoryData::new())).unwrap();
    let keys: Vec<[u8; 4]> = (0..3000u32).map(u32::to_be_bytes).collect();
    // The keys are in memory then: no task waits for the data component, and both go at once.
    let mut session = database.session().unwrap();
    session.execute(|tx| keys.iter().try_for_each(|key| tx.get(key).map(drop))).unwrap();
    for _ in 0..10 {
        let tx = session.begin().unwrap();
        let insert_all = || {
            let insert = |key: &[u8; 4]| match block_on(tx.insert_async(key, b"1")) {
                Ok(()) => true,
                Err(Error::Exists) => false,
                Err(error) => panic!("{error}"),
            };
            keys.iter().map(insert).collect::<Vec<_>>()
        };
        let (one, two) = std::thread::scope(|scope| {
            let two = scope.spawn(insert_all);
            (insert_all(), two.join().unwrap())
        });
        for (one, two) in one.iter().zip(two) {
            assert!(*one != two, "both: {one}");
        }
        drop(tx.abort());
    }
}

/// A read polled once and dropped, as by a timeout, is not made any more, and delays no other read.
#[test]
fn reads_that_were_dropped_leave_the_queue() {
    let gate = Gate::new(4, 0, None);
    let (_dir, database) = open(&gate, |options| options.reader_threads = 2);
    let mut sessions = [(); 3].map(|()| database.session().unwrap());
    let [one, two, three] = &mut sessions;
    let [one, two, three] = [one, two, three].map(|session| session.begin().unwrap());
    let (mut first, mut second) = (pin!(one.get_async(b"k000")), pin!(two.get_async(b"k001")));
    assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
    gate.wait_for(2);
    for _ in 0..20_000 {
        assert!(poll(pin!(three.get_async(b"k002"))).is_pending());
    }
    let mut last = pin!(three.get_async(b"k003"));
    assert!(poll(last.as_mut()).is_pending());
    // As many as are wanted.
    gate.let_pass(3);
    for future in [first, second, last] {
        assert!(block_on(future).unwrap().is_some());
    }
    assert_eq!(gate.at_gate.load(Ordering::Relaxed), 3, "what was dropped is read");
}
