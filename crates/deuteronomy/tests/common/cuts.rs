//! Long snapshots beside writers, each compared with the commits up to its timestamp.

use hyades_deuteronomy::{
    DataComponent, Database, Error, LogOptions, LongSnapshot, Options, ScanOrder,
};
use hyades_platform::device::MemoryDevice;
use std::ops::{Bound::Unbounded, ControlFlow};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The threads that write, each its own keys.
const WRITERS: usize = 3;

/// Options under which much is applied beside older transactions.
pub fn options(dir: &Path, lag_bytes: usize) -> Options {
    let mut log = LogOptions::new(vec![dir.to_owned()], 2);
    log.device = MemoryDevice::shared();
    log.buffer_bytes = 1 << 16;
    log.segment_bytes = 1 << 18;
    let mut options = Options::new(log);
    options.lag_bytes = lag_bytes;
    options
}

/// By writer, the timestamp in the writer's first key, which each transaction of the writer sets to
/// its own; 0 without one. The second key has the same value.
fn read(snapshot: &LongSnapshot) -> Result<[u64; WRITERS], Error> {
    let mut found = [[0; 2]; WRITERS];
    snapshot.scan(Unbounded, Unbounded, ScanOrder::Ascending, |key, value| {
        let ts = u64::from_be_bytes(value.try_into().expect("a timestamp"));
        found[usize::from(key[0])][usize::from(key[1])] = ts;
        ControlFlow::Continue(())
    })?;
    for (writer, [first, second]) in found.iter().enumerate() {
        assert_eq!(first, second, "writer {writer} is there in part");
        let read = snapshot
            .get(&[writer as u8, 0])?
            .map_or(0, |value| u64::from_be_bytes(value.try_into().expect("a timestamp")));
        assert_eq!(read, *first, "a scan and a read differ");
    }
    Ok(found.map(|[first, _]| first))
}

/// Takes long snapshots for a time, beside writers; returns how many were taken, and the first
/// difference from the commits up to the timestamp of a snapshot.
pub fn differs_from_commits(
    data: Arc<dyn DataComponent>,
    lag_bytes: usize,
    time: Duration,
) -> (usize, Option<String>) {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::open(options(dir.path(), lag_bytes), data).unwrap();
    let is_over = AtomicBool::new(false);
    let write = |writer: usize| {
        let (mut session, mut commits) = (database.session().unwrap(), Vec::new());
        while !is_over.load(Ordering::Relaxed) {
            let commit = session.submit(|tx| {
                let ts = tx.timestamp();
                for key in 0..2 {
                    tx.put(&[writer as u8, key], &ts.to_be_bytes())?;
                }
                // Reads the writes of others, so depends on these.
                tx.get(&[(writer as u8 + 1) % WRITERS as u8, 0])?;
                Ok::<_, Error>(ts)
            });
            // A crowded moment: too many attempts were in vain.
            if let Ok((ts, _)) = commit {
                commits.push(ts);
            }
        }
        commits
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|n| scope.spawn(move || write(n))).collect();
        let (began, mut taken) = (Instant::now(), Vec::new());
        while began.elapsed() < time {
            match database.long_snapshot() {
                Ok(snapshot) => taken.push((snapshot.timestamp(), read(&snapshot).unwrap())),
                Err(Error::Aborted(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        is_over.store(true, Ordering::Relaxed);
        let commits: Vec<Vec<u64>> = writers.into_iter().map(|w| w.join().unwrap()).collect();
        let last = |writer: usize, ts| {
            let of_writer = &commits[writer];
            of_writer[..of_writer.partition_point(|commit| *commit <= ts)].last().copied()
        };
        let differing = taken.iter().find_map(|(ts, found)| {
            let expected: [u64; WRITERS] = std::array::from_fn(|w| last(w, *ts).unwrap_or(0));
            (found != &expected).then(|| format!("at {ts} {found:?}, and not {expected:?}"))
        });
        (taken.len(), differing)
    })
}
