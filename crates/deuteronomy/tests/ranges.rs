//! Scans: results and conflicts.
#![allow(missing_docs)]

#[path = "common/between.rs"]
mod between;
#[path = "common/older_stream.rs"]
mod older_stream;

use between::{At, inserts_behind_a_scan, misses_what_moves};
use hyades_deuteronomy::{
    Abort, Database, Error, LogOptions, MemoryData, Options, ScanOrder, Session, Transaction,
};
use hyades_platform::device::MemoryDevice;
use older_stream::recovered_from_older;
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::ops::ControlFlow::{Break, Continue};
use std::path::Path;
use std::sync::Arc;

fn options(dir: &Path) -> Options {
    let mut log = LogOptions::new(vec![dir.to_owned()], 1);
    log.device = MemoryDevice::shared();
    log.buffer_bytes = 1 << 16;
    log.segment_bytes = 1 << 18;
    log.stepped = true;
    let mut options = Options::new(log);
    options.memory_bytes = 4 << 10;
    options
}

fn open(dir: &Path) -> Database {
    Database::open(options(dir), Arc::new(MemoryData::new())).unwrap()
}

/// Commits writes; None deletes.
fn write(session: &mut Session, writes: &[(&str, Option<&[u8]>)]) {
    let mut tx = session.begin().unwrap();
    for (key, value) in writes {
        match value {
            Some(value) => tx.put(key.as_bytes(), value).unwrap(),
            None => tx.delete(key.as_bytes()).unwrap(),
        }
    }
    drop(tx.commit().unwrap());
}

/// Leaves all committed versions to the data component.
fn empty_the_table(database: &Database, session: &mut Session) {
    // Versions read since the last sweep stay for another sweep. Each time the sweep ends with the
    // bucket of the filler, any bucket: three sweeps contain two whole sweeps.
    for _ in 0..3 {
        write(session, &[("\u{7f}filler", Some(&[0; 3300]))]);
        while database.log().step(0) {}
        database.step_proxy().unwrap();
        // There may be more buckets than swept by a single transaction.
        drop(session.begin().unwrap());
        drop(session.begin().unwrap());
    }
    assert_eq!(database.stats().version_bytes, 0, "transactions that begin have swept the table");
}

fn keys(tx: &mut Transaction<'_>, from: Bound<&str>, to: Bound<&str>, limit: usize) -> String {
    let rows = tx.scan(from.map(str::as_bytes), to.map(str::as_bytes), limit).unwrap();
    rows.iter().map(|(key, _)| std::str::from_utf8(key).unwrap()).collect()
}

fn is<T>(result: &Result<T, Error>, abort: Abort) -> bool {
    matches!(result, Err(Error::Aborted(is)) if *is == abort)
}

#[test]
fn a_scan_returns_what_is_in_its_range_wherever_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path());
    let mut session = database.session().unwrap();
    let x: Option<&[u8]> = Some(b"x");
    write(&mut session, &[("a", x), ("c", x), ("e", x), ("g", x), ("i", x)]);
    write(&mut session, &[("e", None)]);
    empty_the_table(&database, &mut session);
    // In the table: a new key, an old key with a newer value, a deleted key.
    write(&mut session, &[("b", x), ("c", Some(b"y")), ("g", None)]);
    let mut tx = session.begin().unwrap();
    tx.put(b"d", b"own").unwrap();
    tx.put(b"e", b"own").unwrap();
    tx.delete(b"a").unwrap();
    let all = tx.scan(Unbounded, Excluded(b"z"), 100).unwrap();
    let all: Vec<_> = all.iter().map(|(key, value)| (&**key, &**value)).collect();
    let expected: [(&[u8], &[u8]); 5] =
        [(b"b", b"x"), (b"c", b"y"), (b"d", b"own"), (b"e", b"own"), (b"i", b"x")];
    assert_eq!(all, expected);
    let mut scan = |from, to, limit| keys(&mut tx, from, to, limit);
    assert_eq!(scan(Included("b"), Included("d"), 100), "bcd");
    assert_eq!(scan(Excluded("b"), Excluded("d"), 100), "c");
    assert_eq!(scan(Excluded("e"), Excluded("z"), 100), "i");
    for limit in 0..=5 {
        assert_eq!(scan(Unbounded, Excluded("z"), limit), "bcdei"[..limit]);
    }
    assert_eq!(scan(Included("d"), Included("d"), 9), "d");
    for (from, to) in [
        (Included("d"), Excluded("d")),
        (Excluded("d"), Included("d")),
        (Excluded("d"), Excluded("d")),
        (Included("e"), Included("b")),
    ] {
        assert_eq!(scan(from, to, 9), "", "{from:?} to {to:?}");
    }
}

#[test]
fn an_older_writer_into_what_was_scanned_aborts() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path());
    let mut sessions: Vec<_> = (0..5).map(|_| database.session().unwrap()).collect();
    let [one, two, three, four, five] = &mut sessions[..] else { unreachable!() };
    let (mut inside, mut outside) = (one.begin().unwrap(), two.begin().unwrap());
    let mut scanner = three.begin().unwrap();
    let mut younger = four.begin().unwrap();
    assert_eq!(keys(&mut scanner, Included("b"), Excluded("d"), 9), "");
    assert!(is(&inside.put(b"c", b""), Abort::ReadByYounger));
    drop(inside);
    outside.put(b"d", b"").unwrap();
    outside.put(b"a", b"").unwrap();
    younger.put(b"c", b"").unwrap();
    scanner.put(b"bb", b"own").unwrap();
    drop(outside.commit().unwrap());
    drop(younger.commit().unwrap());
    assert_eq!(keys(&mut scanner, Included("b"), Excluded("d"), 9), "bb", "as of its timestamp");
    drop(scanner.commit().unwrap());
    // The scanner was committed, and the range is still protected from then active transactions.
    let mut scanner = three.begin().unwrap();
    let mut second = two.begin().unwrap();
    assert_eq!(keys(&mut second, Unbounded, Excluded("c"), 9), "abb");
    drop(second.commit().unwrap());
    for _ in 0..10 {
        drop(five.begin().unwrap().scan(Included(b"x"), Unbounded, 1).unwrap());
    }
    assert!(is(&scanner.put(b"aa", b""), Abort::ReadByYounger));
    drop(scanner);
    // A pending version of an older transaction: the scan waits for the older transaction.
    let (mut older, mut younger) = (one.begin().unwrap(), two.begin().unwrap());
    older.put(b"k", b"").unwrap();
    assert!(is(&younger.scan(Included(b"j"), Excluded(b"l"), 9), Abort::Unfinished));
    assert!(is(&younger.get(b"other"), Abort::Unfinished), "it has ended");
}

#[test]
fn a_scan_whose_versions_are_gone_aborts() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = options(dir.path());
    settings.lag_bytes = 0;
    let database = Database::open(settings, Arc::new(MemoryData::new())).unwrap();
    let (mut one, mut two) = (database.session().unwrap(), database.session().unwrap());
    write(&mut two, &[("a", Some(b"1")), ("b", Some(b"1"))]);
    let mut old = one.begin().unwrap();
    write(&mut two, &[("b", Some(b"2"))]);
    while database.log().step(0) {}
    assert!(database.step_proxy().unwrap());
    // In the table, with the versions readable for an active transaction.
    let rows = old.scan(Unbounded, Unbounded, 9).unwrap();
    assert!(rows.iter().all(|(_, value)| **value == *b"1"));
    drop(old);
    empty_the_table(&database, &mut two);
    let mut old = one.begin().unwrap();
    write(&mut two, &[("c", Some(b"2"))]);
    while database.log().step(0) {}
    assert!(database.step_proxy().unwrap());
    // Own reads of `c` find the key absent as of the timestamp, or cannot tell.
    let scanned = old.scan(Included(b"c"), Excluded(b"d"), 9);
    assert!(is(&scanned, Abort::SnapshotTooOld), "{scanned:?}");
}

#[test]
fn without_ranges_a_scan_is_an_error_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = options(dir.path());
    settings.ranges = false;
    let database = Database::open(settings, Arc::new(MemoryData::new())).unwrap();
    let mut session = database.session().unwrap();
    let mut tx = session.begin().unwrap();
    tx.put(b"a", b"1").unwrap();
    let message = tx.scan(Unbounded, Unbounded, 1).unwrap_err().to_string();
    assert!(message.contains("Options::ranges"), "{message}");
    drop(tx.commit().unwrap());
    let mut tx = session.begin().unwrap();
    assert!(tx.get(b"a").unwrap().is_some());
}

#[test]
fn what_was_scanned_is_recovered_or_those_that_have_scanned_it_are_not() {
    let read = |tx: &mut Transaction<'_>| assert_eq!(tx.get(b"u").unwrap().unwrap().len(), 3500);
    assert_eq!(recovered_from_older(read), (false, false));
    let scan = |tx: &mut Transaction<'_>| {
        assert_eq!(tx.scan(Unbounded, Unbounded, 9).unwrap().len(), 1);
    };
    assert_eq!(recovered_from_older(scan), (false, false));
    let depends_on_nothing = |_: &mut Transaction<'_>| {};
    assert_eq!(recovered_from_older(depends_on_nothing), (false, true));
}

#[test]
fn an_early_end_leaves_the_rest_to_older_writers() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path());
    let mut sessions: Vec<_> = (0..4).map(|_| database.session().unwrap()).collect();
    let [one, two, three, four] = &mut sessions[..] else { unreachable!() };
    let x: Option<&[u8]> = Some(b"x");
    write(one, &[("b", x), ("d", x), ("f", x), ("h", x)]);
    empty_the_table(&database, one);
    let mut behind = one.begin().unwrap();
    let mut within = two.begin().unwrap();
    let mut scanner = three.begin().unwrap();
    assert_eq!(keys(&mut scanner, Unbounded, Excluded("z"), 2), "bd");
    behind.put(b"da", b"").unwrap();
    behind.put(b"f", b"").unwrap();
    // The last key is only in the data component: the note alone protects it.
    assert!(is(&within.put(b"d", b""), Abort::ReadByYounger));
    drop(within);
    drop(behind.commit().unwrap());
    drop(scanner.commit().unwrap());
    let mut before = one.begin().unwrap();
    let mut within = two.begin().unwrap();
    let mut scanner = four.begin().unwrap();
    let mut met = Vec::new();
    scanner
        .scan_each(Included(b"a"), Included(b"h"), ScanOrder::Descending, |(key, _)| {
            met.extend_from_slice(&key);
            if *key == *b"f" { Break(()) } else { Continue(()) }
        })
        .unwrap();
    assert_eq!(met, b"hf");
    before.put(b"e", b"").unwrap();
    assert!(is(&within.put(b"g", b""), Abort::ReadByYounger));
    drop(before.commit().unwrap());
    let back = scanner.scan_back(Unbounded, Excluded(b"e"), 3).unwrap();
    let back: Vec<_> = back.iter().map(|(key, _)| &**key).collect();
    assert_eq!(back, [&b"da"[..], b"d", b"b"]);
    assert_eq!(scanner.scan_back(Unbounded, Unbounded, 0).unwrap().len(), 0);
}

#[test]
fn what_a_scan_did_not_come_to_may_be_too_new() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = options(dir.path());
    settings.lag_bytes = 0;
    let database = Database::open(settings, Arc::new(MemoryData::new())).unwrap();
    let (mut one, mut two) = (database.session().unwrap(), database.session().unwrap());
    write(&mut two, &[("a", Some(b"1")), ("b", Some(b"1"))]);
    empty_the_table(&database, &mut two);
    let mut old = one.begin().unwrap();
    write(&mut two, &[("c", Some(b"2")), ("d", Some(&[0; 3300]))]);
    while database.log().step(0) {}
    assert!(database.step_proxy().unwrap());
    assert_eq!(keys(&mut old, Unbounded, Unbounded, 2), "ab");
    drop(old);
}

#[test]
fn what_happens_between_the_steps_of_a_scan_is_seen_or_refused() {
    for at in [At::Begin, At::End] {
        assert!(!inserts_behind_a_scan(at), "{at:?}: an older writer inserts behind the scan");
        assert!(!misses_what_moves(at), "{at:?}: the scan misses a key that leaves memory");
    }
}
