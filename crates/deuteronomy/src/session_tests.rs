//! Sessions: the choice of the stream.

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
