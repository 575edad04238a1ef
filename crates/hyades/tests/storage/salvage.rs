//! Damaged databases. Promise: a damaged database is refused, and all provably intact data can be
//! salvaged into a new directory.

use crate::common::checkpointing::ballast;
use crate::common::held::HeldDevice;
use crate::common::{
    Combination, How, Opened, Transfer, builder, check, combinations, directory, files,
    fingerprint, populate, refused, run, try_open,
};
use hyades::{Error, Loss, Replay, Restore, RestoreReport};
use hyades_platform::device::FileDevice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn open(dir: &Path, c: Combination) -> Opened {
    try_open(dir, c, How::default()).unwrap_or_else(|error| panic!("{c:?}: {error}"))
}

fn few() -> Vec<Combination> {
    combinations().into_iter().filter(|c| c.streams < 16).collect()
}

/// The segments that have batches with frames of an incarnation, and the batches' offsets.
fn segments(dir: &Path, incarnation: u8) -> Vec<(PathBuf, Vec<usize>)> {
    let segments = files(dir).into_iter().filter(|p| p.to_string_lossy().contains("segment-"));
    let segment = |path: PathBuf| {
        // An open database creates and removes files.
        let bytes = std::fs::read(&path).unwrap_or_default();
        let ours = bytes.get(36) == Some(&incarnation);
        let begins =
            |at: &usize| bytes[*at..].starts_with(b"HYB1") && bytes[*at + 32..*at + 36] != [0; 4];
        let all = (4096..bytes.len()).step_by(4096);
        let at: Vec<usize> = all.filter(begins).filter(|_| ours).collect();
        (path, at)
    };
    segments.map(segment).filter(|(_, at)| !at.is_empty()).collect()
}

/// The segment of an incarnation with the most batches, and the offsets of the batches.
fn batches(dir: &Path, incarnation: u8) -> (PathBuf, Vec<usize>) {
    let found = segments(dir, incarnation).into_iter().max_by_key(|(_, at)| at.len());
    found.unwrap_or_else(|| panic!("incarnation {incarnation} wrote nothing"))
}

/// Flips a bit of the first frame of a batch.
fn flip(path: &Path, batch: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[batch + 40 + 9] ^= 4;
    std::fs::write(path, bytes).unwrap();
}

fn salvage(dir: &Path, c: Combination, to: &Path) -> Result<RestoreReport, hyades::Error> {
    let how = Restore::new(vec![dir.to_owned()], to).salvage(true);
    builder(c, How::default()).0.restore(&how)
}

/// Checks that the directory is refused and can be salvaged: consistent, with all of `kept`.
/// Returns the report.
fn saved(dir: &Path, c: Combination, kept: &[Transfer], what: &str) -> RestoreReport {
    refused(try_open(dir, c, How::default()), "a damaged database");
    let before = fingerprint(dir);
    let to = directory();
    let new = to.path().join("new");
    let plain = Restore::new(vec![dir.to_owned()], &new);
    let error = refused(builder(c, How::default()).0.restore(&plain), "a damaged database");
    assert!(!error.to_string().is_empty());
    // The failed restore has left nothing that stops this restore.
    let report = salvage(dir, c, &new).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(!report.losses.is_empty(), "{what}: nothing was said to be lost");
    assert_eq!(fingerprint(dir), before, "{what}: the original was changed");
    let note = std::fs::read_to_string(new.join("RECOVERED.txt")).unwrap();
    assert!(note.contains("SALVAGED") && note.contains("lost: "), "{what}: {note}");
    for _ in 0..2 {
        let again = open(&new, c);
        check(&again, kept, what);
        again.db.close().unwrap();
    }
    report
}

#[test]
fn what_does_not_depend_on_a_damaged_place_is_saved() {
    let mut some_were_lost = 0;
    for (seed, c) in few().into_iter().enumerate() {
        let dir = directory();
        let opened = open(dir.path(), c);
        populate(&opened);
        let kept = run(&opened, seed as u64, 100);
        opened.db.close().unwrap();
        let opened = open(dir.path(), c);
        let later = run(&opened, seed as u64 + 50, 1000);
        opened.db.close().unwrap();
        let (path, at) = batches(dir.path(), 2);
        flip(&path, at[at.len() / 2]);
        let what = format!("{c:?}: damage in {} at {}", path.display(), at[at.len() / 2]);
        let report = saved(dir.path(), c, &kept, &what);
        let Some(Loss::Stream { message, .. }) = report.losses.first() else {
            panic!("{what}: {report:?}");
        };
        assert!(message.contains(path.to_str().unwrap()), "{what}: {message}");
        some_were_lost += u64::from(report.transactions < later.len() as u64);
    }
    assert!(some_were_lost > 0, "no damage took anything away");
}

#[test]
fn what_built_on_a_damaged_incarnation_is_left_out() {
    for (seed, c) in few().into_iter().enumerate() {
        let dir = directory();
        let opened = open(dir.path(), c);
        populate(&opened);
        opened.db.close().unwrap();
        let opened = open(dir.path(), c);
        run(&opened, seed as u64, 500);
        opened.db.close().unwrap();
        let opened = open(dir.path(), c);
        run(&opened, seed as u64 + 1, 50);
        opened.db.close().unwrap();
        // Damage in the second of three incarnations.
        let (path, at) = batches(dir.path(), 2);
        flip(&path, at[0]);
        let report = saved(dir.path(), c, &[], &format!("{c:?}"));
        assert!(report.losses.contains(&Loss::Incarnation(3)), "{c:?}: {report:?}");
    }
}

#[test]
fn a_missing_segment_and_a_missing_stream_take_no_more_than_what_depends_on_them() {
    // Several rounds, because the schedule decides which records follow an anchor in one stream and
    // are read from another.
    let rounds = few().into_iter().enumerate().cycle().take(3 * few().len());
    for (seed, c) in rounds {
        for whole in [false, true] {
            let dir = directory();
            let opened = open(dir.path(), c);
            populate(&opened);
            let kept = run(&opened, seed as u64, 50);
            opened.db.checkpoint().unwrap();
            ballast(&opened, 2000);
            run(&opened, seed as u64 + 9, 500);
            opened.db.close().unwrap();
            let path = batches(dir.path(), 1).0;
            if whole {
                std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
            } else {
                std::fs::remove_file(&path).unwrap();
            }
            // Rows in the checkpoint are not affected.
            let report = saved(dir.path(), c, &kept, &format!("{c:?}: without {}", path.display()));
            assert!(matches!(report.losses[0], Loss::File(_)), "{c:?}: {report:?}");
        }
    }
}

/// A reader skips records held by a checkpoint, but later records in the same segment are lost.
#[test]
fn damage_below_a_checkpoint_is_named() {
    for c in few() {
        let dir = directory();
        let opened = open(dir.path(), c);
        populate(&opened);
        run(&opened, 1, 50);
        opened.db.checkpoint().unwrap();
        let before = segments(dir.path(), 1);
        // A segment covered as a whole by the checkpoint is not read.
        let both_sides = |(path, at): &(PathBuf, Vec<usize>)| {
            before.iter().any(|(old, above)| old == path && above.len() < at.len())
        };
        let mut runs = 2..20;
        let (segment, at) = loop {
            run(&opened, runs.next().expect("a segment that continues"), 50);
            if let Some(found) = segments(dir.path(), 1).into_iter().find(both_sides) {
                break found;
            }
        };
        opened.db.close().unwrap();
        flip(&segment, at[0]);
        for (threads, replay) in [
            (1, Replay::Wavefront),
            (2, Replay::Wavefront),
            (2, Replay::Pools),
            (2, Replay::Serial),
        ] {
            let how = How { threads, replay, ..How::default() };
            let error = refused(try_open(dir.path(), c, how), "damage below a checkpoint");
            let what = format!("{c:?}, {threads} threads, {replay:?}: {error}");
            let Error::Log(hyades_wal::Error::Corrupt { path, offset, .. }) = error else {
                panic!("{what}")
            };
            assert_eq!((path, offset), (segment.clone(), at[0] as u64 + 40), "{what}");
        }
    }
}

#[test]
fn a_damaged_checkpoint_is_not_guessed_at() {
    let c = few()[0];
    let dir = directory();
    let opened = open(dir.path(), c);
    populate(&opened);
    opened.db.checkpoint().unwrap();
    opened.db.close().unwrap();
    let is_part = |path: &PathBuf| path.to_string_lossy().contains("checkpoint-");
    let part = files(dir.path()).into_iter().find(is_part).unwrap();
    let mut bytes = std::fs::read(&part).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&part, bytes).unwrap();
    let to = directory();
    let error = refused(salvage(dir.path(), c, to.path()), "a damaged checkpoint").to_string();
    assert!(error.contains(part.to_str().unwrap()), "{error}");
    // The failed salvage has left no files in the new directory.
    assert!(files(to.path()).is_empty());
}

#[test]
fn what_is_whole_is_saved_as_a_whole() {
    for (seed, c) in few().into_iter().enumerate() {
        let (dir, to) = (directory(), directory());
        let opened = open(dir.path(), c);
        populate(&opened);
        let all = run(&opened, seed as u64, 100);
        let digest = opened.db.digest();
        opened.db.close().unwrap();
        let report = salvage(dir.path(), c, to.path()).unwrap();
        assert_eq!(report.losses, []);
        let again = open(to.path(), c);
        check(&again, &all, "a whole database");
        assert_eq!(again.db.digest(), digest, "{c:?}");
    }
}

/// Streams are read more than once. Promise: where one reading fails and the other does not,
/// nothing is replayed by ends that the replay did not find.
#[test]
fn a_read_that_fails_once_during_a_salvage_leaves_a_consistent_state() {
    let (mut refused, mut saved) = (0, 0);
    for (seed, c) in few().into_iter().enumerate() {
        let dir = directory();
        let opened = open(dir.path(), c);
        populate(&opened);
        // The accounts themselves are not at stake.
        opened.db.checkpoint().unwrap();
        run(&opened, seed as u64, 300);
        opened.db.close().unwrap();
        let segment = batches(dir.path(), 1).0;
        let name = segment.file_name().unwrap().to_str().unwrap();
        for before in 0.. {
            let device = HeldDevice::new(FileDevice::shared());
            device.fail_read(name, before);
            let to = directory();
            let new = to.path().join("new");
            let how = How { device: Some(Arc::new(device.clone())), ..How::default() };
            let salvaging = Restore::new(vec![dir.path().to_owned()], &new).salvage(true);
            let result = builder(c, how).0.restore(&salvaging);
            if !device.has_failed() {
                result.unwrap();
                break;
            }
            let what = format!("{c:?}: read {before} of {name} failed");
            match result {
                Ok(_) => {
                    let again = open(&new, c);
                    check(&again, &[], &what);
                    again.db.close().unwrap();
                    saved += 1;
                }
                Err(error) => {
                    assert!(error.to_string().contains("recover again"), "{what}: {error}");
                    refused += 1;
                }
            }
        }
    }
    eprintln!("{saved} salvages, {refused} were refused");
    assert!(saved > 0 && refused > 0);
}
