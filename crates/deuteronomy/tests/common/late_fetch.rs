//! A fetch ending after a newer version has been written, applied, and dropped.

use hyades_deuteronomy::{
    DataComponent, DataLayer, Database, Error, Found, LogOptions, MemoryData, Options, Value,
};
use hyades_platform::device::MemoryDevice;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The data component in memory; the first read of `k` tells its arrival, and waits.
struct Stopped {
    data: MemoryData,
    stop: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl DataLayer for Stopped {
    fn below(&self) -> &dyn DataComponent {
        &self.data
    }

    fn get(&self, key: &[u8]) -> Result<Found, Error> {
        let found = self.data.get(key);
        let stop = if key == b"k" { self.stop.lock().unwrap().take() } else { None };
        if let Some((reached, go_on)) = stop {
            reached.send(()).unwrap();
            go_on.recv_timeout(Duration::from_secs(20)).unwrap();
        }
        found
    }
}

/// The events before the fetch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeforeEnd {
    /// Another transaction reads the key.
    Read,
    /// Another transaction writes the key, and aborts: a record without versions is left.
    Abort,
}

/// Returns the reads of a key by three transactions: a fetching transaction, without a finding; a
/// transaction begun after another transaction's write, before the fetch's end, if any; and a
/// transaction begun after the fetch's end.
pub fn reads_around_a_late_fetch(before_end: BeforeEnd) -> [Option<Value>; 3] {
    let dir = tempfile::tempdir().unwrap();
    let ((reached, is_reached), (go_on, goes_on)) = (channel(), channel());
    let stop = Mutex::new(Some((reached, goes_on)));
    let data = Arc::new(Stopped { data: MemoryData::new(), stop });
    let mut log = LogOptions::new(vec![dir.path().to_owned()], 2);
    log.device = MemoryDevice::shared();
    (log.buffer_bytes, log.segment_bytes) = (1 << 16, 1 << 18);
    let mut options = Options::new(log);
    options.memory_bytes = 64 << 10;
    let database = Database::open(options, data).unwrap();
    let (older, younger) = std::thread::scope(|scope| {
        let older = scope.spawn(|| {
            let mut session = database.session().unwrap();
            let mut tx = session.begin().unwrap();
            tx.get(b"k").unwrap()
        });
        is_reached.recv_timeout(Duration::from_secs(20)).unwrap();
        let mut session = database.session().unwrap();
        session.execute(|tx| tx.put(b"k", b"1")).unwrap();
        // Though the older transaction is active, the writes drive the version out of memory.
        for key in 0..1000u64 {
            drop(session.submit(|tx| tx.put(&key.to_be_bytes(), &[2; 300])).unwrap());
        }
        let (read, is_read) = channel();
        let younger = scope.spawn(move || {
            let found = match before_end {
                BeforeEnd::Read => session.execute(|tx| tx.get(b"k")).unwrap(),
                BeforeEnd::Abort => {
                    let mut tx = session.begin().unwrap();
                    tx.put(b"k", b"3").unwrap();
                    drop(tx.abort());
                    None
                }
            };
            // After a late read, none waits for the message.
            let _ = read.send(());
            found
        });
        // The younger transaction does not wait for the older; otherwise the older would have to go
        // on.
        let _ = is_read.recv_timeout(Duration::from_secs(1));
        go_on.send(()).unwrap();
        (older.join().unwrap(), younger.join().unwrap())
    });
    let last = database.session().unwrap().execute(|tx| tx.get(b"k")).unwrap();
    [older, younger, last]
}
