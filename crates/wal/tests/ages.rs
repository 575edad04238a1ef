//! Directories of different ages. Promise: a directory older than the state seen by another
//! directory's records is refused, and no acknowledged record is lost in silence.
#![allow(missing_docs)]

mod common;
use common::{append, reopen, small};
use hyades_platform::device::FileDevice;
use hyades_wal::{Lane, LogOptions};
use std::fs;
use std::path::Path;
use std::time::Duration;

fn options(dirs: [&Path; 2]) -> LogOptions {
    let mut options = small(dirs[0], 2, FileDevice::shared());
    options.dirs = dirs.map(Path::to_owned).to_vec();
    // More bytes than written by the tests.
    options.anchor_interval_bytes = 1 << 30;
    options
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Copies a directory, and goes on for a moment like a database with a little to do. Then the
/// process is killed, and the copy takes the place of the directory.
#[test]
fn an_older_directory_of_the_same_incarnation_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["a", "b", "old"].map(|name| dir.path().join(name));
    let dirs = [&*paths[0], &*paths[1]];
    let (log, _) = reopen(options(dirs)).unwrap();
    let mut writer = log.writer().unwrap();
    let mut write = |stream: usize, what: &[u8]| {
        let end = append(&mut writer, stream, what);
        log.wait(Lane::position(stream), end).unwrap();
    };
    (0..2).for_each(|stream| write(stream, b"before the copy"));
    copy(dirs[1], &paths[2]);
    for _ in 0..5 {
        (0..2).for_each(|stream| write(stream, b"after the copy"));
        std::thread::sleep(Duration::from_millis(50));
    }
    drop((writer, log));
    let newer = dir.path().join("newer");
    fs::rename(dirs[1], &newer).unwrap();
    copy(&paths[2], dirs[1]);
    let error = reopen(options(dirs)).map(drop).unwrap_err().to_string();
    assert!(error.contains("durable"), "{error}");
    // Nothing was changed: the right directory is accepted again.
    fs::remove_dir_all(dirs[1]).unwrap();
    fs::rename(&newer, dirs[1]).unwrap();
    let (_, frames) = reopen(options(dirs)).unwrap();
    let records = frames.iter().filter(|frame| frame.payload.ends_with(b"the copy"));
    assert_eq!(records.count(), 12);
}
