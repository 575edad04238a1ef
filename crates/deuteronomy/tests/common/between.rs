//! Acts between the steps of a scan, or of the proxy: another thread acts while the scan or the
//! proxy is at the data component.
#![allow(dead_code, reason = "each test file uses a part of this")]

use hyades_deuteronomy::{
    Abort, DataComponent, DataLayer, Database, Error, KeyRange, LogOptions, MemoryData, Operation,
    Options, ScanOrder,
};
use hyades_platform::device::MemoryDevice;
use std::ops::Bound;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Where a scan, or the proxy, waits for a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Before a scan is at the data component.
    Begin,
    /// Once a scan has been there.
    End,
    /// Before the proxy applies a batch.
    Apply,
}

/// Stops a scan, or the proxy.
struct Stop {
    at: At,
    reached: Sender<()>,
    go_on: Receiver<()>,
}

/// The data component in memory; the next scan, or batch, tells its arrival, and waits.
pub struct Between {
    data: MemoryData,
    stop: Mutex<Option<Stop>>,
}

impl Between {
    fn meet(&self, at: At) {
        let mut stop = self.stop.lock().unwrap();
        if let Some(met) = stop.take_if(|stop| stop.at == at) {
            drop(stop);
            met.reached.send(()).unwrap();
            met.go_on.recv_timeout(Duration::from_secs(20)).unwrap();
        }
    }
}

impl DataLayer for Between {
    fn below(&self) -> &dyn DataComponent {
        &self.data
    }

    fn apply(&self, batch: &[Operation<'_>]) -> Result<(), Error> {
        self.meet(At::Apply);
        self.data.apply(batch)
    }

    fn scan(
        &self,
        range: KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.meet(At::Begin);
        let scanned = self.data.scan(range, order, each);
        self.meet(At::End);
        scanned
    }
}

fn open(dir: &Path) -> (Database, Arc<Between>) {
    let mut log = LogOptions::new(vec![dir.to_owned()], 1);
    log.device = MemoryDevice::shared();
    log.buffer_bytes = 1 << 16;
    log.segment_bytes = 1 << 18;
    log.stepped = true;
    let mut options = Options::new(log);
    options.memory_bytes = 4 << 10;
    let data = Arc::new(Between { data: MemoryData::new(), stop: Mutex::default() });
    (Database::open(options, Arc::clone(&data) as Arc<dyn DataComponent>).unwrap(), data)
}

/// The number of rows with the keys `k` in a scan with `act` on its way.
fn rows_of_scan(database: &Database, data: &Between, at: At, act: impl FnOnce()) -> usize {
    let scan = || {
        let mut session = database.session().unwrap();
        let mut tx = session.begin().unwrap();
        let (from, to) = (Bound::Included(&b"k"[..]), Bound::Excluded(&b"l"[..]));
        let rows = tx.scan(from, to, 9).unwrap().len();
        drop(tx.commit().unwrap());
        rows
    };
    stopped(data, at, scan, act)
}

/// Runs `run` up to a stop at the data component, and `act` meanwhile.
fn stopped<T: Send>(
    data: &Between,
    at: At,
    run: impl FnOnce() -> T + Send,
    act: impl FnOnce(),
) -> T {
    let ((reached, is_reached), (go_on, goes_on)) = (channel(), channel());
    *data.stop.lock().unwrap() = Some(Stop { at, reached, go_on: goes_on });
    std::thread::scope(|scope| {
        let running = scope.spawn(run);
        is_reached.recv_timeout(Duration::from_secs(20)).unwrap();
        act();
        go_on.send(()).unwrap();
        running.join().unwrap()
    })
}

/// Whether a transaction older than a scan inserts, while the scan is at the data component, into a
/// part found empty by the scan.
pub fn inserts_behind_a_scan(at: At) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let (database, data) = open(dir.path());
    let mut session = database.session().unwrap();
    let mut older = session.begin().unwrap();
    let mut inserted = false;
    let rows = rows_of_scan(&database, &data, at, || match older.insert(b"k1", b"1") {
        Err(Error::Aborted(Abort::ReadByYounger)) => {}
        done => {
            done.unwrap();
            drop(older.commit().unwrap());
            inserted = true;
        }
    });
    inserted && rows == 0
}

/// Commits a key, and a value of most of the budget: the next transaction to begin sweeps the
/// table, up to the key.
fn commit_key_and_filler(session: &mut hyades_deuteronomy::Session) {
    let mut tx = session.begin().unwrap();
    tx.put(b"k1", b"1").unwrap();
    tx.put(b"filler1", &[0; 3200]).unwrap();
    drop(tx.commit().unwrap());
}

/// Whether a read misses a committed key while the proxy hands the key to the data component.
pub fn misses_what_is_being_applied() -> bool {
    let dir = tempfile::tempdir().unwrap();
    let (database, data) = open(dir.path());
    let mut session = database.session().unwrap();
    commit_key_and_filler(&mut session);
    while database.log().step(0) {}
    let mut read = None;
    let apply = || database.step_proxy().unwrap();
    let applied = stopped(&data, At::Apply, apply, || {
        drop(session.begin().unwrap());
        read = session.begin().unwrap().get(b"k1").unwrap();
    });
    assert!(applied);
    read.is_none()
}

/// Whether a scan misses a committed key leaving memory for the data component meanwhile.
pub fn misses_what_moves(at: At) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let (database, data) = open(dir.path());
    let mut session = database.session().unwrap();
    commit_key_and_filler(&mut session);
    let rows = rows_of_scan(&database, &data, at, || {
        while database.log().step(0) {}
        assert!(database.step_proxy().unwrap());
        drop(session.begin().unwrap());
        assert!(database.stats().version_bytes < 300, "only the note of the scan is left");
    });
    rows == 0
}
