//! Long snapshots: all data as of a moment, beside writers, over every data component.
#![allow(missing_docs)]

#[path = "common/cuts.rs"]
mod cuts;

use cuts::{differs_from_commits, options};
use hyades_deuteronomy::{
    Abort, DataComponent, DataLayer, DataSnapshot, Database, Error, FjallData, LongSnapshot,
    MemoryData, PartitionedData, RedbData, ScanOrder,
};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

type Make = fn(&Path) -> Arc<dyn DataComponent>;

fn memory(_: &Path) -> Arc<dyn DataComponent> {
    Arc::new(MemoryData::new())
}

fn redb(dir: &Path) -> Arc<dyn DataComponent> {
    Arc::new(RedbData::open(&dir.join("data.redb"), 1 << 20).unwrap())
}

fn fjall(dir: &Path) -> Arc<dyn DataComponent> {
    Arc::new(FjallData::open(&dir.join("fjall"), 1 << 20).unwrap())
}

fn partitioned(dir: &Path) -> Arc<dyn DataComponent> {
    let parts: Vec<Arc<dyn DataComponent>> = vec![memory(dir), redb(dir), fjall(dir)];
    Arc::new(PartitionedData::new(vec![vec![1], vec![1, 1]], parts).unwrap())
}

#[cfg(feature = "rocksdb")]
fn rocksdb(dir: &Path) -> Arc<dyn DataComponent> {
    Arc::new(hyades_deuteronomy::RocksDbData::open(&dir.join("rocksdb"), 1 << 20).unwrap())
}

#[cfg(not(feature = "rocksdb"))]
const ALL: [Make; 4] = [memory, redb, fjall, partitioned];
#[cfg(feature = "rocksdb")]
const ALL: [Make; 5] = [memory, redb, fjall, partitioned, rocksdb];

fn rows(snapshot: &LongSnapshot, order: ScanOrder) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    let each = |key: &[u8], value: &[u8]| {
        rows.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    };
    snapshot.scan(Unbounded, Unbounded, order, each).unwrap();
    rows
}

#[test]
fn a_snapshot_has_exactly_the_commits_up_to_its_timestamp() {
    for lag_bytes in [0, 2000, 1 << 20] {
        for make in ALL {
            let dir = tempfile::tempdir().unwrap();
            let time = Duration::from_millis(700);
            let (taken, differing) = differs_from_commits(make(dir.path()), lag_bytes, time);
            println!("lag of {lag_bytes}: {taken} snapshots");
            assert_eq!(differing, None);
            assert!(taken > 3, "{taken}");
        }
    }
}

#[test]
fn what_is_written_deleted_and_applied_later_is_not_in_it() {
    for make in ALL {
        let dir = tempfile::tempdir().unwrap();
        let database = Database::open(options(dir.path(), 1 << 20), make(dir.path())).unwrap();
        let mut session = database.session().unwrap();
        let keys: Vec<[u8; 2]> = (0..600u16).map(|n| (n * 100).to_be_bytes()).collect();
        session.execute(|tx| keys.iter().try_for_each(|key| tx.put(key, b"old"))).unwrap();
        session.execute(|tx| tx.delete(&keys[7])).unwrap();
        let snapshot = database.long_snapshot().unwrap();
        let expected: Vec<_> = (0..600).filter(|n| *n != 7).map(|n| keys[n].to_vec()).collect();
        for round in 0..3 {
            for key in &keys {
                match (round + u16::from_be_bytes(*key)) % 3 {
                    0 => session.execute(|tx| tx.delete(key)).unwrap(),
                    _ => session.execute(|tx| tx.put(key, b"new")).unwrap(),
                }
            }
            database.checkpoint().unwrap();
            let found = rows(&snapshot, ScanOrder::Ascending);
            assert!(found.iter().all(|(_, value)| value == b"old"));
            assert!(found.iter().map(|(key, _)| key).eq(&expected));
            let mut back = rows(&snapshot, ScanOrder::Descending);
            back.reverse();
            assert_eq!(back, found);
        }
        assert_eq!(snapshot.get(&keys[8]).unwrap().as_deref(), Some(&b"old"[..]));
        assert_eq!(snapshot.get(&keys[7]).unwrap(), None);
        assert_eq!(snapshot.get(&[0; 100_000]).unwrap(), None);
        let mut some = Vec::new();
        let bounds = (Excluded(&keys[2][..]), Included(&keys[9][..]));
        let each = |key: &[u8], _: &[u8]| {
            some.push(key.to_vec());
            if some.len() == 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        snapshot.scan(bounds.0, bounds.1, ScanOrder::Ascending, each).unwrap();
        assert_eq!(some, [3, 4, 5, 6, 8].map(|n| keys[n].to_vec()));
        let none = |_: &[u8], _: &[u8]| panic!("the range is empty");
        snapshot.scan(bounds.1, bounds.0, ScanOrder::Ascending, none).unwrap();
    }
}

/// Transactions are open, and the reader is not held up by them, nor holds them up.
#[test]
fn open_transactions_are_not_in_it_and_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::open(options(dir.path(), 1 << 20), memory(dir.path())).unwrap();
    let (mut one, mut two) = (database.session().unwrap(), database.session().unwrap());
    one.execute(|tx| tx.put(b"a", b"1")).unwrap();
    let mut open = one.begin().unwrap();
    open.put(b"a", b"2").unwrap();
    // Younger than the open one, so not in the snapshot.
    two.execute(|tx| tx.put(b"b", b"3")).unwrap();
    let snapshot = database.long_snapshot().unwrap();
    assert_eq!(snapshot.timestamp() + 1, open.timestamp());
    assert_eq!(rows(&snapshot, ScanOrder::Ascending), [(b"a".to_vec(), b"1".to_vec())]);
    open.commit().unwrap().wait().unwrap();
    assert_eq!(snapshot.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    let later = database.long_snapshot().unwrap();
    assert_eq!(rows(&later, ScanOrder::Ascending).len(), 2);
}

#[test]
fn where_too_much_is_applied_beside_an_open_transaction_there_is_none_until_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(dir.path(), 0);
    options.patience = Duration::from_millis(100);
    let database = Database::open(options, memory(dir.path())).unwrap();
    let (mut one, mut two) = (database.session().unwrap(), database.session().unwrap());
    let open = one.begin().unwrap();
    two.execute(|tx| tx.put(b"b", b"3")).unwrap();
    // The proxy applies what is younger than the open transaction.
    while database.stats().lag.bytes > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let refused = database.long_snapshot();
    assert!(matches!(refused, Err(Error::Aborted(Abort::Unfinished))), "{refused:?}");
    drop(open);
    assert_eq!(rows(&database.long_snapshot().unwrap(), ScanOrder::Ascending).len(), 1);
}

/// A data component without snapshots.
struct Plain(MemoryData);

impl DataLayer for Plain {
    fn below(&self) -> &dyn DataComponent {
        &self.0
    }

    fn snapshot(&self) -> Result<Option<Arc<dyn DataSnapshot>>, Error> {
        Ok(None)
    }
}

#[test]
fn a_data_component_without_snapshots_is_named_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let data = Arc::new(Plain(MemoryData::new()));
    let database = Database::open(options(dir.path(), 0), data).unwrap();
    let refused = database.long_snapshot();
    assert!(matches!(refused, Err(Error::NoSnapshots)), "{refused:?}");
    let mut session = database.session().unwrap();
    session.execute(|tx| tx.put(b"a", b"1")).unwrap();
    drop(session);
    database.close().unwrap();
}

/// Data ten times larger than memory are read in order beside a writer at full speed.
#[test]
fn a_scan_of_all_ends_beside_a_writer_at_full_speed() {
    const KEYS: u32 = 20_000;
    for make in [redb as Make, fjall] {
        let dir = tempfile::tempdir().unwrap();
        let mut options = options(dir.path(), 64 << 10);
        options.memory_bytes = 256 << 10;
        options.redo_bytes = 1 << 20;
        let database = Database::open(options, make(dir.path())).unwrap();
        let mut session = database.session().unwrap();
        for keys in (0..KEYS).collect::<Vec<_>>().chunks(200) {
            let put = |key: &u32| (key.to_be_bytes(), [0; 128]);
            session
                .execute(|tx| keys.iter().map(put).try_for_each(|(k, v)| tx.put(&k, &v)))
                .unwrap();
        }
        drop(session);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let (mut session, mut written) = (database.session().unwrap(), 0u64);
                let mut rng = fastrand::Rng::with_seed(1);
                while !is_over.load(Ordering::Relaxed) {
                    let key = rng.u32(..KEYS).to_be_bytes();
                    drop(session.submit(|tx| tx.put(&key, &[1; 128])).unwrap());
                    written += 1;
                }
                written
            });
            for _ in 0..2 {
                let snapshot = database.long_snapshot().unwrap();
                let (mut seen, mut first) = (0, None);
                let each = |key: &[u8], _: &[u8]| {
                    first.get_or_insert(key.to_vec());
                    seen += 1;
                    if seen % 500 == 0 {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    ControlFlow::Continue(())
                };
                snapshot.scan(Unbounded, Unbounded, ScanOrder::Ascending, each).unwrap();
                assert_eq!(seen, KEYS);
                assert!(
                    database.stats().version_bytes <= 512 << 10,
                    "{}",
                    database.stats().version_bytes
                );
            }
            is_over.store(true, Ordering::Relaxed);
            println!("{} writes beside", writer.join().unwrap());
        });
        database.close().unwrap();
    }
}
