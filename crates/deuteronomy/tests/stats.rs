//! The figures of a running database.
#![allow(missing_docs)]

use hyades_deuteronomy::{Abort, Database, Error, LogOptions, MemoryData, Options};
use hyades_platform::device::MemoryDevice;
use std::sync::Arc;

#[test]
fn what_transactions_meet_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = LogOptions::new(vec![dir.path().to_owned()], 1);
    log.device = MemoryDevice::shared();
    log.stepped = true;
    let mut options = Options::new(log);
    options.memory_bytes = 64 << 10;
    let database = Database::open(options, Arc::new(MemoryData::new())).unwrap();
    let [mut one, mut two] = [(); 2].map(|()| database.session().unwrap());
    let mut tx = one.begin().unwrap();
    tx.put(b"a", b"1").unwrap();
    assert_eq!(tx.get(b"b").unwrap(), None);
    drop(tx.commit().unwrap());
    // A version in memory; one that was fetched before; and the transaction's own write.
    let mut tx = one.begin().unwrap();
    tx.get(b"a").unwrap();
    tx.get(b"b").unwrap();
    tx.put(b"c", b"1").unwrap();
    tx.get(b"c").unwrap();
    drop(tx.abort());
    let mut older = one.begin().unwrap();
    let mut younger = two.begin().unwrap();
    younger.get(b"a").unwrap();
    let refused = older.put(b"a", b"2");
    assert!(matches!(refused, Err(Error::Aborted(Abort::ReadByYounger))), "{refused:?}");
    assert_eq!(database.stats().aborted.read_by_younger, 0, "it runs");
    drop((older, younger.commit().unwrap()));
    let stats = database.stats();
    assert_eq!((stats.committed, stats.rolled_back), (2, 1));
    assert_eq!((stats.hits, stats.misses), (3, 1));
    assert!((stats.hit_rate() - 0.75).abs() < 1e-9);
    assert_eq!((stats.aborted.read_by_younger, stats.aborted.too_late, stats.shed), (1, 0, 0));
    assert_eq!((stats.memory_bytes, stats.proxy_threads), (64 << 10, 1));
    assert!(stats.version_bytes > 0 && stats.lag.bytes > 0 && stats.redo_bytes == 0);
    database.log().flush().unwrap();
    database.step_proxy().unwrap();
    let stats = database.stats();
    assert!(stats.lag.bytes == 0 && stats.redo_bytes > 0, "{stats:?}");
    database.checkpoint().unwrap();
    assert_eq!(database.stats().redo_bytes, 0);
}

/// The counts of a session are left when the session ends, and the next in its place adds to them.
#[test]
fn counts_outlive_sessions() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = LogOptions::new(vec![dir.path().to_owned()], 1);
    log.device = MemoryDevice::shared();
    let database = Database::open(Options::new(log), Arc::new(MemoryData::new())).unwrap();
    for turn in 1..=10u64 {
        database.session().unwrap().execute(|tx| tx.put(b"a", &turn.to_be_bytes())).unwrap();
        assert_eq!(database.stats().committed, turn);
    }
}

#[test]
fn open_long_snapshots_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let log = LogOptions::new(vec![dir.path().to_owned()], 1);
    let database = Database::open(Options::new(log), Arc::new(MemoryData::new())).unwrap();
    let one = database.long_snapshot().unwrap();
    let (two, clone) = (database.long_snapshot().unwrap(), one.clone());
    assert_eq!(database.stats().long_snapshots, 3);
    drop((one, two));
    assert_eq!(database.stats().long_snapshots, 1);
    drop(clone);
    assert_eq!(database.stats().long_snapshots, 0);
}
