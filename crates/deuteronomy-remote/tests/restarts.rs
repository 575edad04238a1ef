//! Servers that are killed, and clients that come and go.
#![allow(missing_docs)]

mod common;

use common::{Far, point};
use hyades_deuteronomy::{DataComponent, Database, Error, LogOptions, Operation, Options};
use std::collections::BTreeMap;
use std::ops::Bound::Unbounded;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const ACCOUNTS: u64 = 400;

fn options(dir: &Path) -> Options {
    let mut log = LogOptions::new(vec![dir.to_owned()], 2);
    log.buffer_bytes = 1 << 16;
    log.segment_bytes = 1 << 18;
    let mut options = Options::new(log);
    // Most reads go to the server.
    options.memory_bytes = 64 << 10;
    options.redo_bytes = 256 << 10;
    options
}

fn key(account: u64) -> Vec<u8> {
    [&account.to_be_bytes()[..], &[b'.'; 40]].concat()
}

fn balances(database: &Database) -> BTreeMap<Vec<u8>, i64> {
    let mut session = database.session().unwrap();
    let rows = session.execute(|tx| tx.scan(Unbounded, Unbounded, usize::MAX)).unwrap();
    let number = |value: &[u8]| i64::from_be_bytes(value[..8].try_into().unwrap());
    rows.into_iter().map(|(key, value)| (key.to_vec(), number(&value))).collect()
}

/// Moves money between accounts, and counts up a key of the writer's own.
fn write(database: &Database, writer: u64, is_over: &AtomicBool) -> u64 {
    let (mut session, mut rng) = (database.session().unwrap(), fastrand::Rng::with_seed(writer));
    let mut acknowledged = 0;
    while !is_over.load(Ordering::Relaxed) {
        let [from, to] = [(); 2].map(|()| key(rng.u64(0..ACCOUNTS)));
        let amount = rng.i64(1..100);
        let done: Result<(), Error> = session.execute(|tx| {
            for (account, change) in [(&from, -amount), (&to, amount)] {
                let old = tx.get(account)?.map_or(0, |value| {
                    i64::from_be_bytes(value[..8].try_into().expect("it is a balance"))
                });
                let value = [&(old + change).to_be_bytes()[..], &[7; 100]].concat();
                tx.put(account, &value)?;
            }
            let count = (acknowledged + 1i64).to_be_bytes();
            tx.put(format!("writer {writer}").as_bytes(), &count)
        });
        done.unwrap();
        acknowledged += 1;
    }
    acknowledged as u64
}

fn check(database: &Database, acknowledged: &[u64]) {
    let all = balances(database);
    let mut sum = 0;
    for (key, value) in &all {
        match key.strip_prefix(b"writer ") {
            None => sum += value,
            Some(writer) => {
                let writer: usize = std::str::from_utf8(writer).unwrap().parse().unwrap();
                assert_eq!(*value as u64, acknowledged[writer], "writer {writer}");
            }
        }
    }
    assert_eq!(sum, 0, "money has come or gone");
    assert!(all.len() as u64 > ACCOUNTS / 2);
}

#[test]
fn a_server_killed_a_hundred_times_loses_nothing() {
    let (dir, far) = (tempfile::tempdir().unwrap(), Far::start());
    let data = Arc::new(far.connect());
    let database = Database::open(options(dir.path()), data.clone()).unwrap();
    let (is_over, most_kept) = (AtomicBool::new(false), AtomicU64::new(0));
    let acknowledged: Vec<u64> = std::thread::scope(|scope| {
        let (database, is_over) = (&database, &is_over);
        let writers = [0, 1].map(|writer| scope.spawn(move || write(database, writer, is_over)));
        let mut rng = fastrand::Rng::with_seed(5);
        for _ in 0..100 {
            std::thread::sleep(Duration::from_millis(rng.u64(1..25)));
            far.kill();
            std::thread::sleep(Duration::from_millis(rng.u64(0..8)));
            far.revive();
            most_kept.fetch_max(data.kept_bytes() as u64, Ordering::Relaxed);
        }
        std::thread::sleep(Duration::from_millis(50));
        is_over.store(true, Ordering::Relaxed);
        writers.map(|writer| writer.join().unwrap()).to_vec()
    });
    println!("{acknowledged:?} acknowledged, at most {most_kept:?} bytes kept");
    assert!(acknowledged.iter().sum::<u64>() > 500, "{acknowledged:?}");
    let most = most_kept.load(Ordering::Relaxed);
    assert!(0 < most && most < 8 << 20, "{most} bytes were kept");
    check(&database, &acknowledged);
    // Both ends crash.
    drop((database, data));
    far.kill();
    far.revive();
    let database = Database::open(options(dir.path()), Arc::new(far.connect())).unwrap();
    check(&database, &acknowledged);
    database.close().unwrap();
    far.kill();
    far.revive();
    let database = Database::open(options(dir.path()), Arc::new(far.connect())).unwrap();
    assert_eq!(database.recovered().keys, 0, "a close makes everything stable");
    check(&database, &acknowledged);
}

#[test]
fn commits_do_not_wait_for_a_server_that_is_away() {
    let (dir, far) = (tempfile::tempdir().unwrap(), Far::start());
    let mut options = options(dir.path());
    options.memory_bytes = 16 << 20;
    let database = Database::open(options, Arc::new(far.connect())).unwrap();
    let mut session = database.session().unwrap();
    session.execute(|tx| tx.put(b"a", b"0")).unwrap();
    far.kill();
    for count in 1..200u32 {
        session.execute(|tx| tx.put(b"a", &count.to_be_bytes())).unwrap();
    }
    // A read of what is not in memory waits for the server.
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| database.session().unwrap().execute(|tx| tx.get(b"absent")));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!reading.is_finished());
        far.revive();
        assert_eq!(reading.join().unwrap().unwrap(), None);
    });
    assert_eq!(session.execute(|tx| tx.get(b"a")).unwrap().as_deref(), Some(&[0, 0, 0, 199][..]));
    drop(session);
    database.close().unwrap();
}

fn is_refused(result: Result<impl Sized, Error>, why: &str) {
    let error = result.err().expect("it is refused").to_string();
    assert!(error.contains(why), "{error}");
}

#[test]
fn only_the_last_client_is_served() {
    let far = Far::start();
    let put = |client: &dyn DataComponent, ts| {
        client.apply(&[Operation { key: b"a", ts, value: Some(b"1") }])
    };
    let old = far.connect();
    old.checkpoint(&point(1)).unwrap();
    put(&old, 1).unwrap();
    let new = far.connect();
    is_refused(put(&old, 2), "taken this one's place");
    is_refused(old.get(b"a"), "taken this one's place");
    assert_eq!(new.get(b"a").unwrap().ts, 1);
    new.checkpoint(&point(2)).unwrap();
    // A new process knows no client; the resume point tells.
    far.kill();
    far.revive();
    is_refused(put(&old, 3), "taken this one's place");
    put(&new, 4).unwrap();
    assert_eq!(new.get(b"a").unwrap().ts, 4);
}

#[test]
fn a_client_whose_point_was_not_made_stable_returns() {
    let far = Far::start();
    let client = far.connect();
    client.checkpoint(&point(1)).unwrap();
    client.apply(&[Operation { key: b"a", ts: 1, value: Some(b"1") }]).unwrap();
    client.apply(&[Operation { key: b"b", ts: 2, value: None }]).unwrap();
    for _ in 0..3 {
        far.kill();
        far.revive();
        assert_eq!(client.get(b"a").unwrap().value.as_deref(), Some(&b"1"[..]));
        assert_eq!(client.get(b"b").unwrap().ts, 2);
    }
    let kept = client.kept_bytes();
    assert!(kept > 0);
    client.checkpoint(&point(2)).unwrap();
    assert_eq!(client.kept_bytes(), 0);
    far.kill();
    far.revive();
    assert_eq!(client.get(b"a").unwrap().ts, 1);
}
