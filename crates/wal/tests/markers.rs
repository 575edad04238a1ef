//! The error for a missing marker names the directory.
#![allow(missing_docs)]

mod common;
use common::{append, read_all, reopen, small};
use hyades_platform::device::FileDevice;
use hyades_wal::{LogOptions, open, open_damaged, open_read};
use std::path::Path;

/// A log of two directories with a stream in each.
fn two(root: &Path) -> LogOptions {
    let mut options = small(root, 2, FileDevice::shared());
    options.dirs = vec![root.join("a"), root.join("b")];
    let (log, _) = reopen(options.clone()).unwrap();
    let mut writer = log.writer().unwrap();
    for stream in [0, 1] {
        append(&mut writer, stream, b"something");
    }
    drop(writer);
    log.close().unwrap();
    options
}

#[test]
fn a_missing_marker_is_named_with_its_directory() {
    for lost in ["a", "b"] {
        let root = tempfile::tempdir().unwrap();
        let options = two(root.path());
        let marker = root.path().join(lost).join("HYADES");
        let kept = std::fs::read(&marker).unwrap();
        std::fs::remove_file(&marker).unwrap();
        for open in [open, open_read] {
            let error = open(options.clone()).unwrap_err().to_string();
            assert!(error.starts_with(marker.to_str().unwrap()), "{error}");
            assert!(error.contains("the file is missing"), "{error}");
        }
        // A tool for damaged logs reports the damage, and identifies the directory by path.
        let damaged = open_damaged(options.clone()).unwrap();
        let [damage] = damaged.damage() else { panic!("{:?}", damaged.damage()) };
        assert!(damage.to_string().starts_with(marker.to_str().unwrap()), "{damage}");
        assert!(read_all(&damaged).unwrap().0.len() >= 2);
        drop(damaged);
        std::fs::write(&marker, kept).unwrap();
        reopen(options).unwrap();
    }
}

#[test]
fn a_directory_that_was_moved_and_lost_its_marker_is_named() {
    let root = tempfile::tempdir().unwrap();
    let mut options = two(root.path());
    let moved = root.path().join("c");
    std::fs::rename(root.path().join("b"), &moved).unwrap();
    options.dirs[1].clone_from(&moved);
    drop(open(options.clone()).unwrap());
    std::fs::remove_file(moved.join("HYADES")).unwrap();
    let error = open(options).unwrap_err().to_string();
    let named = format!("{} has no HYADES file", moved.display());
    assert!(error.contains(&named), "{error}");
}
