//! Backups of a running database, and restores to an earlier moment.
#![allow(missing_docs)]

#[path = "common/restoring.rs"]
mod restoring;

use hyades_deuteronomy::{
    DataComponent, Database, FjallData, MemoryData, Operation, Restored, Until,
};
use restoring::{Rows, history, is_refused, options, redb, restore, rows};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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
        let restored = restore(&log, &*copy, Until::Timestamp(*ts), &new, &*redb(&into)).unwrap();
        println!("{restored:?}");
        assert_eq!(restored.later + restored.transactions, 200);
        let database = Database::open(self::options(&new, 1), redb(&into)).unwrap();
        assert_eq!(&rows(&database), expected);
        // Later transactions have later timestamps.
        let mut session = database.session().unwrap();
        assert!(session.begin().unwrap().timestamp() > *ts);
    }
    let to = |name: &str| {
        restore(&log, &*copy, Until::Newest, at(name), &*redb(&at(&format!("{name}i"))))
    };
    let Restored { transactions, later, .. } = to("whole").unwrap();
    assert_eq!((transactions, later), (200, 0));
    let until = Until::Timestamp(last - 1);
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
    is_refused(restore(&log, &*copy, Until::Newest, at("to"), &*redb(&at("n1"))), "not empty");
    is_refused(restore(&[at("none")], &*copy, Until::Newest, at("n2"), &*redb(&at("n3"))), "none");
    let other = redb(&at("other"));
    Database::open(options(&at("other-log"), 1), other.clone()).unwrap().close().unwrap();
    is_refused(restore(&log, &*other, Until::Newest, at("n4"), &*redb(&at("n5"))), "another log");
}
