//! Object storage that is away for a while or for long, and two processes with the same database.
#![allow(missing_docs)]

mod common;

use common::storage::Storage;
use common::{PATH, everything, point, small_tables};
use hyades_deuteronomy::{DataComponent, Database, LogOptions, Operation, Options};
use hyades_deuteronomy_slatedb::object_store::memory::InMemory;
use hyades_deuteronomy_slatedb::{SlateData, SlateOptions};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

fn put(data: &SlateData, key: &[u8], ts: u64) {
    data.apply(&[Operation { key, ts, value: Some(b"value") }]).unwrap();
}

#[test]
fn a_storage_that_comes_back_is_waited_for() {
    let storage = Storage::new(Arc::new(InMemory::new()));
    let data = SlateData::open(storage.clone(), PATH, small_tables()).unwrap();
    for ts in 1..400 {
        put(&data, &[ts as u8], ts);
    }
    data.checkpoint(&point(399)).unwrap();
    storage.is_away.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(1500));
            storage.is_away.store(false, Ordering::SeqCst);
        });
        // More than the memory tables hold.
        for ts in 400..2500 {
            put(&data, &[ts as u8], ts);
        }
        data.checkpoint(&point(2499)).unwrap();
    });
    assert!(storage.refused.load(Ordering::SeqCst) > 3);
    drop(data);
    let data = SlateData::open(storage, PATH, small_tables()).unwrap();
    assert_eq!(data.resume_point().unwrap(), Some(point(2499)));
    assert_eq!((everything(&data).len(), data.get(&[7]).unwrap().ts), (256, 2311));
}

#[test]
fn a_storage_that_stays_away_is_an_error_that_says_so_after_patience() {
    let storage = Storage::new(Arc::new(InMemory::new()));
    let patience = Duration::from_millis(300);
    let options = || small_tables().patience(patience).read_patience(patience);
    let data = SlateData::open(storage.clone(), PATH, options()).unwrap();
    put(&data, b"a", 1);
    data.checkpoint(&point(1)).unwrap();
    drop(data);
    let data = SlateData::open(storage.clone(), PATH, options()).unwrap();
    storage.is_away.store(true, Ordering::SeqCst);
    let late = |began: Instant| began.elapsed() >= patience && began.elapsed() < 20 * patience;
    let began = Instant::now();
    let error = data.get(b"a").unwrap_err().to_string();
    assert!(error.contains("has not answered for 300ms while reading") && late(began), "{error}");
    let began = Instant::now();
    let error = data.checkpoint(&point(2)).unwrap_err().to_string();
    assert!(error.contains("while taking a checkpoint") && late(began), "{error}");
    let began = Instant::now();
    let error = SlateData::open(storage.clone(), PATH, options()).unwrap_err().to_string();
    assert!(error.contains("while opening") && late(began), "{error}");
    // The reader that has failed reads again.
    storage.is_away.store(false, Ordering::SeqCst);
    let found = (0..50).find_map(|_| data.get(b"a").ok());
    assert_eq!(found.map(|found| found.ts), Some(1));
}

/// Transactions go on while the storage is away, as far as memory reaches.
#[test]
fn transactions_commit_while_the_storage_is_away() {
    let (dir, storage) = (tempfile::tempdir().unwrap(), Storage::new(Arc::new(InMemory::new())));
    let open = || {
        let data = SlateData::open(storage.clone(), PATH, SlateOptions::default()).unwrap();
        let log = LogOptions::new(vec![dir.path().to_owned()], 2);
        Database::open(Options::new(log), Arc::new(data)).unwrap()
    };
    let database = open();
    let mut session = database.session().unwrap();
    storage.is_away.store(true, Ordering::SeqCst);
    for key in 0..500u32 {
        session.execute(|tx| tx.put(&key.to_be_bytes(), b"while it is away")).unwrap();
    }
    storage.is_away.store(false, Ordering::SeqCst);
    drop((session, database));
    let database = open();
    let mut session = database.session().unwrap();
    for key in 0..500u32 {
        let value = session.execute(|tx| tx.get(&key.to_be_bytes())).unwrap();
        assert_eq!(value.as_deref(), Some(&b"while it is away"[..]));
    }
    drop(session);
    database.close().unwrap();
}

#[test]
fn a_process_whose_database_was_opened_elsewhere_makes_nothing_stable_any_more() {
    let storage = Arc::new(InMemory::new());
    let open = || SlateData::open(storage.clone(), PATH, small_tables()).unwrap();
    let first = open();
    put(&first, b"a", 1);
    first.checkpoint(&point(1)).unwrap();
    let second = open();
    // Unnoticed, or refused at once.
    let _ = first.apply(&[Operation { key: b"a", ts: 9, value: Some(b"of a zombie") }]);
    let error = first.checkpoint(&point(9)).unwrap_err().to_string();
    assert!(error.contains("another process has opened the database"), "{error}");
    put(&second, b"b", 2);
    second.checkpoint(&point(2)).unwrap();
    drop((first, second));
    let third = open();
    assert_eq!(third.resume_point().unwrap(), Some(point(2)));
    assert_eq!((third.get(b"a").unwrap().ts, third.highest_ts().unwrap()), (1, 2));
}
