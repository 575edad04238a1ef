//! Several threads apply a batch: the limits of a resume point, and the state after failures.
#![allow(missing_docs)]

use hyades_deuteronomy::{
    DataComponent, DataLayer, Database, Error, LogOptions, MemoryData, Operation, Options,
    ResumePoint,
};
use hyades_platform::device::MemoryDevice;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Longer than any working operation.
const LONG: Duration = Duration::from_secs(60);

fn options(dir: &Path, threads: usize) -> Options {
    let mut log = LogOptions::new(vec![dir.to_owned()], 2);
    log.device = MemoryDevice::shared();
    log.buffer_bytes = 1 << 18;
    log.segment_bytes = 1 << 20;
    let mut options = Options::new(log);
    options.proxy_threads = threads..=threads;
    options
}

/// The act before a piece is applied, with the piece's number.
type Before = dyn Fn(usize, &[Operation<'_>]) -> Result<(), Error> + Send + Sync;

/// The data component in memory, with batches in pieces.
struct Pieces {
    data: Arc<MemoryData>,
    before: Box<Before>,
    /// How many were begun.
    begun: AtomicUsize,
    /// The keys under application, and the most threads at work at a time.
    under_way: Mutex<(BTreeSet<Vec<u8>>, usize, usize)>,
    /// Of each checkpoint, whether threads were applying meanwhile.
    checkpoints: Mutex<Vec<bool>>,
}

impl Pieces {
    fn new(
        data: Arc<MemoryData>,
        before: impl Fn(usize, &[Operation<'_>]) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (begun, under_way, checkpoints) = Default::default();
        Arc::new(Self { data, before: Box::new(before), begun, under_way, checkpoints })
    }
}

impl DataLayer for Pieces {
    fn below(&self) -> &dyn DataComponent {
        &*self.data
    }

    fn may_cut(&self, _: &[u8], _: &[u8]) -> bool {
        true
    }

    fn apply(&self, batch: &[Operation<'_>]) -> Result<(), Error> {
        {
            let (keys, threads, most) = &mut *self.under_way.lock().unwrap();
            for operation in batch {
                assert!(keys.insert(operation.key.to_vec()), "two threads have a key in common");
            }
            *threads += 1;
            *most = (*most).max(*threads);
        }
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let applied = (self.before)(number, batch).and_then(|()| self.data.apply(batch));
        let (keys, threads, _) = &mut *self.under_way.lock().unwrap();
        batch.iter().for_each(|operation| assert!(keys.remove(operation.key)));
        *threads -= 1;
        applied
    }

    fn checkpoint(&self, point: &ResumePoint) -> Result<(), Error> {
        let is_under_way = self.under_way.lock().unwrap().1 > 0;
        self.checkpoints.lock().unwrap().push(is_under_way);
        self.data.checkpoint(point)
    }
}

/// Writes `keys` keys from a number on, in a single transaction, and waits for the acknowledgement.
fn write(database: &Database, from: u32, keys: u32) -> Result<(), Error> {
    let mut session = database.session()?;
    session.execute(|tx| {
        (from..from + keys).try_for_each(|key| tx.put(&key.to_be_bytes(), &key.to_le_bytes()))
    })
}

/// Checks that the state of the data component after a crash, and the log, still hold the keys.
fn is_recovered(dir: &Path, data: &MemoryData, keys: u32, rng: &mut fastrand::Rng) {
    let kept = rng.f64();
    let data = Arc::new(data.after_crash(|| rng.f64() < kept));
    let database = Database::open(options(dir, 1), data as Arc<dyn DataComponent>).unwrap();
    let mut session = database.session().unwrap();
    let read = session.execute(|tx| {
        (0..keys).try_for_each(|key| {
            let value = tx.get(&key.to_be_bytes())?;
            assert_eq!(value.as_deref(), Some(&key.to_le_bytes()[..]), "of {key}");
            Ok::<_, Error>(())
        })
    });
    read.unwrap();
}

#[test]
fn threads_apply_at_the_same_time_and_have_no_key_in_common() {
    let dir = tempfile::tempdir().unwrap();
    // Until two pieces have met, each waits for another: during a lone piece's wait more is
    // written, so that the next batch is cut.
    let (under_way, met) = (Mutex::new((0, false)), Condvar::new());
    let slow = move |_, _: &[Operation<'_>]| {
        let mut state = under_way.lock().unwrap();
        state.0 += 1;
        state.1 |= state.0 > 1;
        met.notify_all();
        let waited = met.wait_timeout_while(state, Duration::from_millis(50), |state| !state.1);
        let mut state = waited.unwrap().0;
        state.0 -= 1;
        drop(state);
        std::thread::sleep(Duration::from_millis(1));
        Ok(())
    };
    let data = Pieces::new(Arc::new(MemoryData::outliving()), slow);
    let database = Database::open(options(dir.path(), 4), data.clone()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let database = &database;
            // All write the same keys.
            scope.spawn(move || {
                (0..60).try_for_each(|n| write(database, 40 * n, 200)).unwrap();
            });
        }
    });
    database.close().unwrap();
    let (keys, threads, most) = &*data.under_way.lock().unwrap();
    assert!(keys.is_empty() && *threads == 0);
    assert!((2..=4).contains(most), "{most} at a time");
    assert_eq!(data.data.items(), 2560);
}

/// A flag awaited by other threads.
#[derive(Default)]
struct Flag {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Flag {
    fn set(&self) {
        *self.is_set.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let is_set = self.is_set.lock().unwrap();
        let waited = self.changed.wait_timeout_while(is_set, LONG, |is_set| !*is_set).unwrap();
        assert!(!waited.1.timed_out(), "it takes too long");
    }
}

#[test]
fn a_resume_point_passes_only_what_all_threads_have_applied() {
    let dir = tempfile::tempdir().unwrap();
    let (reached, over) = (Arc::new(Flag::default()), Arc::new(Flag::default()));
    let holds = {
        let (reached, over) = (Arc::clone(&reached), Arc::clone(&over));
        move |_, batch: &[Operation<'_>]| {
            // The last piece of the batch.
            if batch.last().is_some_and(|last| last.key == 1999u32.to_be_bytes()) {
                reached.set();
                over.wait();
            }
            Ok(())
        }
    };
    let data = Pieces::new(Arc::new(MemoryData::outliving()), holds);
    let database = Database::open(options(dir.path(), 3), data.clone()).unwrap();
    let opened = data.data.resume_point().unwrap().unwrap();
    write(&database, 0, 2000).unwrap();
    reached.wait();
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| database.checkpoint().unwrap());
        let until = Instant::now() + LONG;
        while data.data.items() == 0 {
            assert!(Instant::now() < until, "the others do not apply their pieces");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(100));
        let point = data.data.resume_point().unwrap().unwrap();
        assert_eq!(point, opened, "a thread has not applied its piece");
        assert!(data.data.items() < 2000);
        over.set();
        checkpoint.join().unwrap();
    });
    assert_ne!(data.data.resume_point().unwrap().unwrap(), opened);
    assert_eq!(data.data.items(), 2000);
    assert!(data.checkpoints.lock().unwrap().iter().all(|is_under_way| !is_under_way));
    drop(database);
    is_recovered(dir.path(), &data.data, 2000, &mut fastrand::Rng::with_seed(1));
}

/// From the piece with the number `death` on nothing is applied any more, on any thread, as after a
/// kill of the process; some pieces are slow. Returns the number of begun pieces.
fn dies_at(death: usize, rng: &mut fastrand::Rng) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let seed = rng.u64(..);
    let before = move |number: usize, _: &[Operation<'_>]| {
        let mut rng = fastrand::Rng::with_seed(seed.wrapping_add(number as u64));
        if rng.bool() {
            std::thread::sleep(Duration::from_micros(rng.u64(0..3000)));
        }
        match number < death {
            true => Ok(()),
            false => Err(Error::DataComponent("the process is dead".into())),
        }
    };
    let data = Pieces::new(Arc::new(MemoryData::outliving()), before);
    let database = Database::open(options(dir.path(), 3), data.clone()).unwrap();
    let (mut written, until) = (0, Instant::now() + LONG);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while database.checkpoint().is_ok() {
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        while Instant::now() < until && write(&database, written, 800).is_ok() {
            written += 800;
        }
        database.log().stop("the process is dead");
    });
    drop(database);
    is_recovered(dir.path(), &data.data, written, rng);
    assert!(data.checkpoints.lock().unwrap().iter().all(|is_under_way| !is_under_way));
    data.begun.load(Ordering::Relaxed)
}

#[test]
fn what_is_acknowledged_is_recovered_whichever_piece_is_the_last() {
    let (mut rng, mut begun) = (fastrand::Rng::with_seed(7), 0);
    for death in 0..16 {
        let pieces = dies_at(death, &mut rng);
        assert!(pieces > death, "{pieces} pieces, and it dies at {death}");
        begun += pieces;
    }
    println!("{begun} pieces");
}

/// How a piece fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    Error,
    Panic,
}

#[test]
fn a_failure_on_any_thread_stops_the_log_and_loses_nothing() {
    let is_helper = || std::thread::current().name() == Some("hyades-applier");
    for (failure, of_helper) in
        [Failure::Error, Failure::Panic].into_iter().flat_map(|f| [(f, false), (f, true)])
    {
        let dir = tempfile::tempdir().unwrap();
        let came = [Flag::default(), Flag::default()];
        let fails = move |_, _: &[Operation<'_>]| {
            // Each of the two threads has a piece: neither goes on to take the other's piece.
            let own = usize::from(is_helper());
            came[own].set();
            came[1 - own].wait();
            match (is_helper() == of_helper, failure) {
                (false, _) => Ok(()),
                (true, Failure::Error) => Err(Error::DataComponent("a test says so".into())),
                (true, Failure::Panic) => panic!("a test says so"),
            }
        };
        let data = Pieces::new(Arc::new(MemoryData::outliving()), fails);
        let database = Database::open(options(dir.path(), 2), data.clone()).unwrap();
        let opened = data.data.resume_point().unwrap().unwrap();
        write(&database, 0, 1000).unwrap();
        let until = Instant::now() + LONG;
        while database.log().poisoned().is_none() {
            assert!(Instant::now() < until, "{failure:?}, {of_helper}");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(database.checkpoint().is_err(), "{failure:?}, {of_helper}");
        assert!(database.close().is_err(), "{failure:?}, {of_helper}");
        assert_eq!(data.data.resume_point().unwrap().unwrap(), opened);
        is_recovered(dir.path(), &data.data, 1000, &mut fastrand::Rng::with_seed(2));
    }
}

/// Holds pieces until told to let pieces go on.
#[derive(Default)]
struct Gate {
    /// How many pieces have come, and how many may go on.
    pieces: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Gate {
    fn change<R>(&self, change: impl FnOnce(&mut (usize, usize)) -> R) -> R {
        let changed = change(&mut self.pieces.lock().unwrap());
        self.changed.notify_all();
        changed
    }

    fn until(&self, holds: impl Fn(&(usize, usize)) -> bool) {
        let pieces = self.pieces.lock().unwrap();
        let waited = self.changed.wait_timeout_while(pieces, LONG, |pieces| !holds(pieces));
        assert!(!waited.unwrap().1.timed_out(), "it takes too long");
    }

    /// A piece comes, and waits.
    fn pass(&self) {
        let number = self.change(|(come, _)| {
            *come += 1;
            *come
        });
        self.until(|(_, allowed)| *allowed >= number);
    }

    /// Waits until `pieces` pieces have come.
    fn wait_for(&self, pieces: usize) {
        self.until(|(come, _)| *come >= pieces);
    }

    /// Lets `pieces` of all pieces go on.
    fn allow(&self, pieces: usize) {
        self.change(|(_, allowed)| *allowed = pieces);
    }
}

/// Longer than between two looks of the proxy at the waiting records.
fn until_the_next_look() {
    std::thread::sleep(Duration::from_millis(20));
}

#[test]
fn threads_become_more_while_what_waits_does_and_fewer_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let holds = {
        let gate = Arc::clone(&gate);
        move |_, _: &[Operation<'_>]| {
            gate.pass();
            Ok(())
        }
    };
    let data = Pieces::new(Arc::new(MemoryData::outliving()), holds);
    let mut settings = options(dir.path(), 1);
    settings.proxy_threads = 1..=2;
    // Less than waits below: so an idle processor does not matter.
    settings.lag_bytes = 16 << 10;
    let database = Database::open(settings, data.clone()).unwrap();
    let write_each = |from: u32, transactions: u32| {
        (0..transactions).try_for_each(|n| write(&database, from + 1000 * n, 1000)).unwrap();
    };
    // The first look. Writes during the hold of the first piece wait at the second look.
    write(&database, 0, 1).unwrap();
    gate.wait_for(1);
    write_each(1, 5);
    until_the_next_look();
    gate.allow(1);
    // A full batch, fit to be cut. More waits at the third look than at the second.
    gate.wait_for(2);
    write_each(5001, 10);
    until_the_next_look();
    assert_eq!(database.stats().proxy_threads, 1, "it was not known that more could help");
    gate.allow(2);
    // Two pieces at a time.
    gate.wait_for(4);
    assert_eq!(database.stats().proxy_threads, 2);
    // More threads are not allowed, with any number of waiting records.
    write_each(15_001, 20);
    until_the_next_look();
    gate.allow(usize::MAX);
    let until = Instant::now() + LONG;
    while database.stats().proxy_threads > 1 {
        assert!(Instant::now() < until, "{} threads", database.stats().proxy_threads);
        std::thread::sleep(Duration::from_millis(10));
    }
    database.close().unwrap();
    assert_eq!(data.data.items(), 35_001);
    assert_eq!(data.under_way.lock().unwrap().2, 2, "at a time");
}

#[test]
fn the_limits_of_the_pool_are_checked() {
    for (threads, fits) in [(0..=1, false), (1..=1, true), (64..=64, true), (1..=65, false)] {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = options(dir.path(), 1);
        settings.proxy_threads = threads.clone();
        let opened = Database::open(settings, Arc::new(MemoryData::new()));
        let refused = opened.as_ref().err().map(ToString::to_string);
        assert_eq!(opened.is_ok(), fits, "{threads:?}: {refused:?}");
        assert!(refused.is_none_or(|why| why.contains("threads of the proxy: choose 1 to 64")));
    }
    let dir = tempfile::tempdir().unwrap();
    let mut settings = options(dir.path(), 1);
    settings.proxy_threads = RangeInclusive::new(2, 1);
    assert!(Database::open(settings, Arc::new(MemoryData::new())).is_err());
}
