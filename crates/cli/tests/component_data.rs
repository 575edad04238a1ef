//! Databases of `hyades-deuteronomy` from the command line: backup, recovery, verification.
#![allow(missing_docs, reason = "tests are named by what they promise")]
#![cfg(feature = "redb")]

mod common;

use common::{code, hyades, stderr, stdout};
use hyades_deuteronomy::{Database, LogOptions, Options, RedbData};
use std::path::Path;
use std::sync::Arc;

fn open(root: &Path, log: &str, data: &str) -> Database {
    let mut options = LogOptions::new(vec![root.join(log)], 2);
    options.segment_bytes = 1 << 16;
    options.archive = Some(root.join(format!("{log}-archive")));
    let data = RedbData::open(&root.join(data), 1 << 20).unwrap();
    Database::open(Options::new(options), Arc::new(data)).unwrap()
}

/// Writes keys; returns the timestamp of the last transaction.
fn write(database: &Database, from: u32, count: u32) -> u64 {
    let mut session = database.session().unwrap();
    let mut last = 0;
    for key in from..from + count {
        let put = |tx: &mut hyades_deuteronomy::Transaction<'_>| {
            tx.put(&key.to_be_bytes(), &[7; 300]).map(|()| tx.timestamp())
        };
        last = session.execute(put).unwrap();
    }
    last
}

fn count(database: &Database) -> usize {
    use std::ops::Bound::Unbounded;
    let mut session = database.session().unwrap();
    session.execute(|tx| tx.scan(Unbounded, Unbounded, usize::MAX)).unwrap().len()
}

#[test]
fn a_backup_is_recovered_to_any_later_moment() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name).to_str().unwrap().to_string();
    let data = |name: &str| format!("redb:{}", at(name));
    let database = open(root.path(), "log", "data");
    write(&database, 0, 300);
    database.close().unwrap();
    let (from, to) = (data("data"), data("copy.redb"));
    let words = [&at("log"), "--data", &from, "--out", &at("copy"), "--data-out", &to];
    let output = hyades("backup", &words);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stdout(&output).starts_with("300 keys with "), "{}", stdout(&output));
    let output = hyades("verify", &[&at("copy"), "--data", &to]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stdout(&output).contains("300 keys, 91,200 bytes"), "{}", stdout(&output));
    // Two more lives, each with truncations.
    let mut moment = 0;
    for life in 1..3 {
        let database = open(root.path(), "log", "data");
        moment = write(&database, 300 * life, 300);
        database.checkpoint().unwrap();
        write(&database, 10_000 * life, 400);
        database.close().unwrap();
    }
    let (moment, recovered) = (moment.to_string(), data("new.redb"));
    let mut words: Vec<String> = vec![at("copy"), "--data".into(), to.clone()];
    words.extend(["--archive", &at("log-archive"), "--log", &at("log")].map(String::from));
    words.extend(["--until", &moment, "--out", &at("new")].map(String::from));
    words.extend(["--data-out", &recovered].map(String::from));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let output = hyades("recover", &words);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stdout(&output).contains("400 later transactions are left out"), "{}", stdout(&output));
    let database = open(root.path(), "new", "new.redb");
    assert_eq!(count(&database), 300 + 300 + 400 + 300);
    database.close().unwrap();
    let output = hyades("log dump", &[&at("log")]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    // The archive has the life before the backup, too.
    let output = hyades("prune", &[&at("log-archive"), "--before", &at("copy")]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stdout(&output).contains("segments removed from"), "{}", stdout(&output));
}

#[test]
fn what_is_wrong_is_said() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name).to_str().unwrap().to_string();
    let database = open(root.path(), "log", "data");
    write(&database, 0, 10);
    database.close().unwrap();
    let data = format!("redb:{}", at("data"));
    let fails = |words: &str, more: &[&str], exit: i32, why: &str| {
        let output = hyades(words, more);
        assert_eq!(code(&output), exit, "{words} {more:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(why), "{words} {more:?}: {}", stderr(&output));
    };
    fails("backup", &[&at("log"), "--out", &at("x")], 2, "give them with --data KIND:PATH");
    let into = format!("redb:{}", at("data"));
    let words = [&at("log"), "--data", &data, "--out", &at("x"), "--data-out", &into];
    fails("backup", &words, 2, "exists: give a place for the copy");
    fails("verify", &[&at("log"), "--data", "sqlite:a"], 2, "names no data component");
    let absent = format!("redb:{}", at("absent"));
    fails("verify", &[&at("log"), "--data", &absent], 2, "there is no");
    let new = format!("redb:{}", at("new"));
    let words = [&at("log"), "--data", &data, "--out", &at("x"), "--data-out", &new];
    fails("recover --until 1.2.3", &words, 2, "has no transaction ids");
    fails("prune", &[&at("log"), "--before", &at("log")], 1, "no archive of a log");
    // Data of another log.
    let other = open(root.path(), "other", "other.redb");
    write(&other, 0, 1);
    other.close().unwrap();
    let other = format!("redb:{}", at("other.redb"));
    fails("verify", &[&at("log"), "--data", &other], 1, "another log");
}
