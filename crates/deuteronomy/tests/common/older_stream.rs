//! A copy of a log with a stream older than the other. A backup may load the streams like this, and
//! a crash that loses bytes never proven durable may leave the streams like this.
#![allow(dead_code, reason = "each test file uses a part of this")]

use hyades_deuteronomy::{Database, LogOptions, MemoryData, Options, Transaction};
use hyades_platform::device::MemoryDevice;
use std::path::Path;
use std::sync::Arc;

fn options(dir: &Path) -> Options {
    let mut log = LogOptions::new(vec![dir.to_owned()], 2);
    log.device = MemoryDevice::shared();
    log.buffer_bytes = 1 << 16;
    log.segment_bytes = 1 << 18;
    // No anchor states a position that the records are to state.
    log.anchor_interval_bytes = 1 << 15;
    log.stepped = true;
    let mut options = Options::new(log);
    options.memory_bytes = 4 << 10;
    options
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// A transaction writes `u`; the write becomes durable in one stream, and leaves memory. Another
/// transaction reads `u` by `read` and writes `t` in the other stream. Returns, for a log with the
/// second record and without the first, whether `u` and `t` have values after recovery.
pub fn recovered_from_older(read: impl Fn(&mut Transaction<'_>)) -> (bool, bool) {
    let (dir, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let database = Database::open(options(dir.path()), Arc::new(MemoryData::new())).unwrap();
    let mut sessions = [database.session().unwrap(), database.session().unwrap()];
    let [one, two] = &mut sessions;
    let mut tx = one.begin().unwrap();
    tx.put(b"u", &[1; 3500]).unwrap();
    let ticket = tx.commit().unwrap();
    let stream = (0..2).find(|s| database.log().backlog(*s) > 0).unwrap();
    let dir_of_stream = format!("stream-{stream:04}");
    copy(&dir.path().join(&dir_of_stream), &to.path().join(&dir_of_stream));
    while database.log().step(stream) {}
    assert!(ticket.is_acknowledged().unwrap());
    assert!(database.step_proxy().unwrap());
    // Most of the budget is used, so a beginning transaction sweeps the table.
    let mut tx = two.begin().unwrap();
    assert_eq!(database.stats().version_bytes, 0, "it has left memory");
    read(&mut tx);
    tx.put(b"t", b"2").unwrap();
    let ticket = tx.commit().unwrap();
    assert!(database.log().backlog(1 - stream) > 0, "they are in different streams");
    while database.log().step(1 - stream) {}
    assert!(ticket.is_acknowledged().unwrap());
    for entry in std::fs::read_dir(dir.path()).unwrap().map(Result::unwrap) {
        let (name, is_dir) = (entry.file_name(), entry.file_type().unwrap().is_dir());
        match is_dir {
            true if name == *dir_of_stream => {}
            true => copy(&entry.path(), &to.path().join(name)),
            false => drop(std::fs::copy(entry.path(), to.path().join(name)).unwrap()),
        }
    }
    let copied = Database::open(options(to.path()), Arc::new(MemoryData::new())).unwrap();
    let mut session = copied.session().unwrap();
    let mut tx = session.begin().unwrap();
    let mut has_value = |key: &[u8]| tx.get(key).unwrap().is_some();
    (has_value(b"u"), has_value(b"t"))
}
