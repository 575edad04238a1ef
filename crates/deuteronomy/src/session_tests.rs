//! Sessions, where the order of the steps of asynchronous operations matters.

use super::*;
use crate::{Database, LogOptions, MemoryData, Options};
use hyades_platform::device::MemoryDevice;

fn open(streams: usize) -> (tempfile::TempDir, Database) {
    let dir = tempfile::tempdir().unwrap();
    let mut log = LogOptions::new(vec![dir.path().to_owned()], streams);
    log.device = MemoryDevice::shared();
    let database = Database::open(Options::new(log), Arc::new(MemoryData::new())).unwrap();
    (dir, database)
}

#[test]
fn only_transactions_that_write_look_for_a_stream() {
    let (_dir, database) = open(2);
    let mut session = database.session().unwrap();
    for _ in 0..10 {
        session.execute(|tx| tx.get(b"a")).unwrap();
    }
    assert_eq!(session.streak_bytes, 0);
    session.execute(|tx| tx.put(b"a", b"1")).unwrap();
    session.execute(|tx| tx.put(b"a", b"2")).unwrap();
    let one = session.streak_bytes;
    assert!((4..20).contains(&one), "{one} bytes of the first record");
    session.execute(|tx| tx.get(b"a")).unwrap();
    assert_eq!(session.streak_bytes, one);
}

#[test]
fn a_session_looks_for_another_stream_after_a_quarter_of_a_buffer() {
    let (_dir, database) = open(2);
    let mut session = database.session().unwrap();
    let streak = STREAK_BYTES.min(database.log().buffer_bytes() / 4);
    let value = vec![1; streak / 4];
    for _ in 0..4 {
        session.execute(|tx| tx.put(b"a", &value)).unwrap();
    }
    assert!(session.streak_bytes > streak / 2);
    // The bytes of the fourth count now.
    session.execute(|tx| tx.put(b"a", &value)).unwrap();
    assert_eq!(session.streak_bytes, 0);
}

/// Both tasks have looked before either writes, as on two threads.
#[test]
fn what_another_task_has_written_since_is_found() {
    let (_dir, database) = open(1);
    let mut session = database.session().unwrap();
    let mut tx = session.begin().unwrap();
    assert_eq!(tx.get(b"a").unwrap(), None);
    tx.insert_absent(b"a", b"1").unwrap();
    assert!(matches!(tx.insert_absent(b"a", b"2"), Err(Error::Exists)));
    let found = tx.get(b"a").unwrap();
    let old = tx.update_found(b"a", b"3", found.clone()).unwrap();
    assert_eq!(*old, *b"1");
    assert_eq!(*tx.update_found(b"a", b"4", found.clone()).unwrap(), *b"3");
    tx.delete(b"a").unwrap();
    assert!(matches!(tx.update_found(b"a", b"5", found), Err(Error::NotFound)));
    tx.insert_absent(b"a", b"6").unwrap();
    assert_eq!(tx.get(b"a").unwrap().as_deref(), Some(&b"6"[..]));
    // Not after it has ended.
    tx.session().work.fail(Abort::Shed);
    assert!(matches!(tx.insert_absent(b"a", b"7"), Err(Error::Aborted(Abort::Shed))));
}
