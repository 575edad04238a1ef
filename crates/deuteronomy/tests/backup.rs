//! Backups of a running database, and restores to an earlier moment.
#![allow(missing_docs)]

use hyades_deuteronomy::{
    DataComponent, Database, Error, FjallData, LogOptions, MemoryData, Operation, Options,
    RedbData, Restored, restore,
};
use std::collections::BTreeMap;
use std::ops::Bound::Unbounded;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(dir: &Path, streams: usize) -> Options {
    let mut log = LogOptions::new(vec![dir.to_owned()], streams);
    log.buffer_bytes = 1 << 16;
    log.segment_bytes = 1 << 18;
    let mut options = Options::new(log);
    options.redo_bytes = 1 << 18;
    options
}

fn redb(path: &Path) -> Arc<RedbData> {
    Arc::new(RedbData::open(path, 1 << 20).unwrap())
}

fn rows(database: &Database) -> Rows {
    let mut session = database.session().unwrap();
    let rows = session.execute(|tx| tx.scan(Unbounded, Unbounded, usize::MAX)).unwrap();
    rows.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn is_refused(result: Result<impl Sized, Error>, why: &str) {
    let error = result.err().expect("it is refused").to_string();
    assert!(error.contains(why), "{error}");
}

/// Two accounts, money is moved between these, and a count goes up; some keys come and go.
fn work(database: &Database, is_over: &AtomicBool) {
    let (mut session, mut count) = (database.session().unwrap(), 0u64);
    while !is_over.load(Ordering::Relaxed) {
        count += 1;
        let amount = (count as i64 * 7919 % 1000).to_be_bytes();
        let done = session.execute(|tx| {
            let less = i64::from_be_bytes(amount).wrapping_neg().to_be_bytes();
            tx.put(b"a", &amount)?;
            tx.put(b"b", &less)?;
            let key = [b"k", &(count % 5000).to_be_bytes()[..]].concat();
            if count.is_multiple_of(3) {
                tx.delete(&key)?
            } else {
                tx.put(&key, &[7; 60])?
            }
            tx.put(b"count", &count.to_be_bytes())
        });
        done.unwrap();
    }
}

#[test]
fn a_backup_beside_writers_opens_with_all_acknowledged_before() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for kind in ["redb", "fjall"] {
        let make = |name: &str| -> Arc<dyn DataComponent> {
            match kind {
                "redb" => redb(&at(name)),
                _ => Arc::new(FjallData::open(&at(name), 1 << 20).unwrap()),
            }
        };
        let name = |part: &str| format!("{kind}-{part}");
        let open = |log: &str, data: &str, streams| {
            Database::open(options(&at(&name(log)), streams), make(&name(data)))
        };
        let database = open("log", "data", 3).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| work(&database, &is_over));
            std::thread::sleep(Duration::from_millis(500));
            for nth in 0..3 {
                let before = rows(&database);
                let (log, data) = (format!("log{nth}"), format!("data{nth}"));
                let copy = make(&name(&data));
                let backup = database.backup(at(&name(&log)), &*copy).unwrap();
                let after = rows(&database);
                println!("{kind}: {backup:?}");
                drop(copy);
                let restored = open(&log, &data, 2).unwrap();
                let found = rows(&restored);
                let number = |rows: &Rows, key: &str| {
                    i64::from_be_bytes(rows[key.as_bytes()][..].try_into().unwrap())
                };
                assert_eq!(number(&found, "a"), -number(&found, "b"));
                let count = number(&found, "count");
                assert!(number(&before, "count") <= count && count <= number(&after, "count"));
                assert!(backup.keys > 100 && backup.data_bytes > 6000 && backup.log_bytes > 0);
                // The copies are databases of their own.
                restored.session().unwrap().execute(|tx| tx.put(b"a", b"1")).unwrap();
                restored.close().unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        database.close().unwrap();
    }
}

/// Runs transactions on a few keys; returns the state behind each timestamp.
fn history(database: &Database, from: Rows, transactions: usize) -> Vec<(u64, Rows)> {
    let mut rng = fastrand::Rng::with_seed(transactions as u64);
    let (mut session, mut now) = (database.session().unwrap(), from);
    let run = |_| {
        let key = vec![rng.u8(..20)];
        let value = (rng.u8(..3) > 0).then(|| vec![rng.u8(..); rng.usize(..200)]);
        let ts = session.execute(|tx| {
            match &value {
                Some(value) => tx.put(&key, value)?,
                None => tx.delete(&key)?,
            }
            Ok::<_, Error>(tx.timestamp())
        });
        match value {
            Some(value) => now.insert(key, value),
            None => now.remove(&key),
        };
        (ts.unwrap(), now.clone())
    };
    (0..transactions).map(run).collect()
}

#[test]
fn each_moment_since_a_backup_is_restored() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let mut options = options(&at("log"), 3);
    // The log is whole at the end: nothing that the backup needs is truncated.
    options.redo_bytes = 1 << 30;
    let database = Database::open(options.clone(), redb(&at("data"))).unwrap();
    history(&database, Rows::new(), 300);
    database.checkpoint().unwrap();
    let (last, _) = history(&database, rows(&database), 150).pop().unwrap();
    let base = rows(&database);
    let copy = redb(&at("copy"));
    let backup = database.backup(at("copied-log"), &*copy).unwrap();
    let later = history(&database, base.clone(), 200);
    let states: Vec<(u64, Rows)> = [(backup.timestamp, base)].into_iter().chain(later).collect();
    // As after a crash.
    drop(database);
    let log = vec![at("log")];
    for (nth, (ts, expected)) in states.iter().enumerate().step_by(23) {
        let (new, into) = (at(&format!("new{nth}")), at(&format!("into{nth}")));
        let restored = restore(&log, &*copy, Some(*ts), &new, &*redb(&into)).unwrap();
        println!("{restored:?}");
        assert_eq!(restored.later + restored.transactions, 200);
        let database = Database::open(self::options(&new, 1), redb(&into)).unwrap();
        assert_eq!(&rows(&database), expected);
        // Later transactions have later timestamps.
        let mut session = database.session().unwrap();
        assert!(session.begin().unwrap().timestamp() > *ts);
    }
    let to = |name: &str| restore(&log, &*copy, None, at(name), &*redb(&at(&format!("{name}i"))));
    let Restored { transactions, later, .. } = to("whole").unwrap();
    assert_eq!((transactions, later), (200, 0));
    let until = Some(last - 1);
    is_refused(restore(&log, &*copy, until, at("x"), &*redb(&at("xi"))), "an older backup");
}

#[test]
fn what_is_not_whole_or_does_not_belong_together_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let database = Database::open(options(&at("log"), 2), redb(&at("data"))).unwrap();
    let mut session = database.session().unwrap();
    session.execute(|tx| tx.put(b"a", b"1")).unwrap();
    let copy = redb(&at("copy"));
    let apply = |data: &dyn DataComponent| {
        data.apply(&[Operation { key: b"x", ts: 1, value: Some(b"y") }]).unwrap();
    };
    // Not empty, not durable, another's directory.
    apply(&*copy);
    is_refused(database.backup(at("to"), &*copy), "not empty");
    is_refused(database.backup(at("to"), &MemoryData::new()), "does not outlive");
    let copy = redb(&at("copy2"));
    is_refused(database.backup(at("log"), &*copy), "not empty");
    // The database goes on.
    session.execute(|tx| tx.put(b"b", b"2")).unwrap();
    database.backup(at("to"), &*copy).unwrap();
    // Data written in part have no resume point.
    let part = redb(&at("part"));
    apply(&*part);
    is_refused(Database::open(options(&at("to"), 2), part), "does not say of which log");
    // A restore that is not finished.
    let log: Vec<PathBuf> = vec![at("to")];
    is_refused(restore(&log, &*copy, None, at("to"), &*redb(&at("n1"))), "not empty");
    is_refused(restore(&[at("none")], &*copy, None, at("n2"), &*redb(&at("n3"))), "none");
    let other = redb(&at("other"));
    Database::open(options(&at("other-log"), 1), other.clone()).unwrap().close().unwrap();
    is_refused(restore(&log, &*other, None, at("n4"), &*redb(&at("n5"))), "another log");
}
