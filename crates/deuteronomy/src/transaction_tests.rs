//! Transactions, where the order of the steps of asynchronous operations matters.

use super::*;
use crate::{Database, LogOptions, MemoryData, Options};
use hyades_platform::device::MemoryDevice;
use std::sync::Arc;

/// Both tasks have looked before either writes, as on two threads.
#[test]
fn what_another_task_has_written_since_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = LogOptions::new(vec![dir.path().to_owned()], 1);
    log.device = MemoryDevice::shared();
    let database = Database::open(Options::new(log), Arc::new(MemoryData::new())).unwrap();
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
    // Not after the end of the transaction.
    tx.session().parts().1.fail(Abort::Shed);
    assert!(matches!(tx.insert_absent(b"a", b"7"), Err(Error::Aborted(Abort::Shed))));
}
