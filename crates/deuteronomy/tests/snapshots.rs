//! Snapshots: reads without conflicts with transactions.
#![allow(missing_docs)]

use hyades_deuteronomy::{
    Abort, DataComponent, Database, Error, LogOptions, MemoryData, Options, ReaderRecords,
    ScanOrder, Snapshot,
};
use hyades_platform::device::MemoryDevice;
use std::ops::Bound::Unbounded;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

fn options(dir: &Path) -> Options {
    let mut log = LogOptions::new(vec![dir.to_owned()], 2);
    log.device = MemoryDevice::shared();
    log.buffer_bytes = 1 << 16;
    log.segment_bytes = 1 << 18;
    Options::new(log)
}

fn open(dir: &Path, change: impl FnOnce(&mut Options)) -> (Database, Arc<MemoryData>) {
    let (mut options, data) = (options(dir), Arc::new(MemoryData::new()));
    change(&mut options);
    (Database::open(options, data.clone() as Arc<dyn DataComponent>).unwrap(), data)
}

fn all(snapshot: &mut Snapshot<'_>, order: ScanOrder) -> Vec<(Vec<u8>, Vec<u8>)> {
    let rows = snapshot.scan(Unbounded, Unbounded, order, usize::MAX).unwrap();
    rows.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

#[test]
fn a_snapshot_waits_for_no_writer_and_aborts_none() {
    for stepped in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (database, _) = open(dir.path(), |options| options.log.stepped = stepped);
        let mut sessions = [(); 3].map(|()| database.session().unwrap());
        let [one, two, three] = &mut sessions;
        let mut first = one.begin().unwrap();
        first.put(b"a", b"1").unwrap();
        first.put(b"b", b"1").unwrap();
        drop(first.commit().unwrap());
        let mut writer = one.begin().unwrap();
        writer.put(b"a", b"2").unwrap();
        let mut snapshot = two.snapshot().unwrap();
        assert_eq!(snapshot.timestamp() + 1, writer.timestamp());
        let old = [(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), b"1".to_vec())];
        assert_eq!(snapshot.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(snapshot.get(b"c").unwrap(), None);
        assert_eq!(all(&mut snapshot, ScanOrder::Ascending), old);
        // The writer writes keys read and scanned by the snapshot, and found absent.
        writer.put(b"b", b"2").unwrap();
        writer.insert(b"c", b"2").unwrap();
        let mut younger = three.begin().unwrap();
        younger.insert(b"d", b"3").unwrap();
        drop(younger.commit().unwrap());
        drop(writer.commit().unwrap());
        let reversed: Vec<_> = old.iter().rev().cloned().collect();
        assert_eq!(all(&mut snapshot, ScanOrder::Descending), reversed);
        drop(snapshot.end());
        let mut snapshot = two.snapshot().unwrap();
        assert_eq!(all(&mut snapshot, ScanOrder::Ascending).len(), 4);
    }
}

#[test]
fn what_a_snapshot_reads_is_kept_while_it_is_overwritten_deleted_and_applied() {
    let dir = tempfile::tempdir().unwrap();
    let (database, data) =
        open(dir.path(), |options| options.reader_records = ReaderRecords::Always);
    let (mut one, mut two) = (database.session().unwrap(), database.session().unwrap());
    let keys: Vec<[u8; 4]> = (0..200u32).map(u32::to_be_bytes).collect();
    one.execute(|tx| keys.iter().try_for_each(|key| tx.put(key, b"old"))).unwrap();
    database.checkpoint().unwrap();
    let mut snapshot = two.snapshot().unwrap();
    for (at, key) in keys.iter().enumerate() {
        match at % 2 {
            0 => one.execute(|tx| tx.delete(key)).unwrap(),
            _ => one.execute(|tx| tx.put(key, b"new")).unwrap(),
        }
    }
    database.checkpoint().unwrap();
    let rows = all(&mut snapshot, ScanOrder::Ascending);
    assert!(rows.len() == 200 && rows.iter().all(|(_, value)| value == b"old"), "{rows:?}");
    for key in &keys {
        assert_eq!(snapshot.get(key).unwrap().as_deref(), Some(&b"old"[..]));
    }
    snapshot.end().wait().unwrap();
    database.checkpoint().unwrap();
    assert_eq!(data.items(), 100, "nothing is kept for it any more");
    let mut snapshot = two.snapshot().unwrap();
    assert_eq!(all(&mut snapshot, ScanOrder::Ascending).len(), 100);
}

#[test]
fn a_snapshot_sees_what_its_session_has_written_or_does_not_begin() {
    let dir = tempfile::tempdir().unwrap();
    let (database, _) = open(dir.path(), |_| {});
    let (mut one, mut two) = (database.session().unwrap(), database.session().unwrap());
    let older = one.begin().unwrap();
    two.execute(|tx| tx.put(b"a", b"1")).unwrap();
    let blocked = two.snapshot().map(drop);
    assert!(matches!(blocked, Err(Error::Aborted(Abort::Unfinished))), "{blocked:?}");
    drop(older);
    let mut snapshot = two.snapshot().unwrap();
    assert_eq!(snapshot.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    // A leaked snapshot ends with the next.
    std::mem::forget(snapshot);
    two.execute(|tx| tx.put(b"a", b"2")).unwrap();
    let mut snapshot = two.snapshot().unwrap();
    assert_eq!(snapshot.get(b"a").unwrap().as_deref(), Some(&b"2"[..]));
}

/// Transfers between accounts, within a small budget and with data too large for the budget: each
/// snapshot finds the same sum.
#[test]
fn snapshots_beside_threads_that_write_find_whole_transactions() {
    const ACCOUNTS: u64 = 60;
    let dir = tempfile::tempdir().unwrap();
    let (database, _) = open(dir.path(), |options| {
        options.memory_bytes = 40 << 10;
        options.redo_bytes = 100_000;
    });
    let mut session = database.session().unwrap();
    let value = |amount: u64| {
        let mut value = vec![0; 400];
        value[..8].copy_from_slice(&amount.to_be_bytes());
        value
    };
    let amount = |value: &[u8]| u64::from_be_bytes(value[..8].try_into().unwrap());
    for account in 0..ACCOUNTS {
        session.execute(|tx| tx.put(&account.to_be_bytes(), &value(1000))).unwrap();
    }
    let (has_ended, whole) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2u64)
            .map(|seed| {
                let database = &database;
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed);
                    let mut session = database.session().unwrap();
                    for _ in 0..3000 {
                        let two = [rng.u64(..ACCOUNTS), rng.u64(..ACCOUNTS)].map(u64::to_be_bytes);
                        let done = session.submit(|tx| {
                            let from = amount(&tx.get(&two[0])?.unwrap());
                            let moved = from.min(7);
                            tx.put(&two[0], &value(from - moved))?;
                            let to = amount(&tx.get(&two[1])?.unwrap());
                            tx.put(&two[1], &value(to + moved))
                        });
                        drop(done.unwrap());
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let mut session = database.session().unwrap();
            while !has_ended.load(Ordering::Relaxed) {
                let mut snapshot = session.snapshot().unwrap();
                let mut sum = 0;
                let scanned = (0..ACCOUNTS).try_for_each(|account| {
                    sum += amount(&snapshot.get(&account.to_be_bytes())?.unwrap());
                    Ok(())
                });
                let rows = scanned.and_then(|()| {
                    snapshot.scan(Unbounded, Unbounded, ScanOrder::Ascending, usize::MAX)
                });
                match rows {
                    Ok(rows) => {
                        let scanned: u64 = rows.iter().map(|(_, value)| amount(value)).sum();
                        assert_eq!((sum, scanned), (ACCOUNTS * 1000, ACCOUNTS * 1000));
                        whole.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(Error::Aborted(Abort::SnapshotTooOld | Abort::Shed)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        has_ended.store(true, Ordering::Relaxed);
    });
    let mut snapshot = session.snapshot().unwrap();
    assert_eq!(all(&mut snapshot, ScanOrder::Ascending).len(), ACCOUNTS as usize);
    println!("{whole:?} snapshots were whole");
}
