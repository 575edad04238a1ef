//! A transaction that claims a key without writing it.
#![allow(dead_code, reason = "each test file uses a part of this")]

use hyades_deuteronomy::{Database, Error, LogOptions, MemoryData, Options};
use hyades_platform::device::MemoryDevice;
use std::sync::Arc;

/// Whether a key is lost if a transaction claims and reads the key, and commits or aborts without
/// writing it.
pub fn loses_what_was_claimed() -> bool {
    let dir = tempfile::tempdir().unwrap();
    let mut log = LogOptions::new(vec![dir.path().to_owned()], 1);
    log.device = MemoryDevice::shared();
    log.stepped = true;
    let database = Database::open(Options::new(log), Arc::new(MemoryData::new())).unwrap();
    let (mut one, mut other) = (database.session().unwrap(), database.session().unwrap());
    drop(one.submit(|tx| tx.put(b"k", b"1")).unwrap());
    for commits in [true, false] {
        let mut attempts = 0;
        let done = one.submit(|tx| {
            attempts += 1;
            if attempts <= 2 {
                other.submit(|young| young.get(b"k")).map(drop)?;
                return tx.put(b"k", b"2");
            }
            assert_eq!(tx.get(b"k")?.as_deref(), Some(&b"1"[..]), "it finds its claim");
            // A younger transaction waits for the claim.
            let waits = other.begin()?.get(b"k");
            assert!(matches!(waits, Err(Error::Aborted(_))), "{waits:?}");
            tx.put(b"other", b"2")?;
            if commits { Ok(()) } else { Err(Error::Exists) }
        });
        assert_eq!((done.is_ok(), attempts), (commits, 3));
        drop(done);
        let read = other.submit(|tx| tx.get(b"k")).unwrap().0;
        if read.as_deref() != Some(&b"1"[..]) {
            return true;
        }
    }
    false
}
