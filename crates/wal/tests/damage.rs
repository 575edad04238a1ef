//! Damage of any kind gives an error, or is taken for a torn tail without proof of damage; damage
//! never causes a panic, and durable data is never lost silently.

mod common;
use common::{Read, append, read_all, reopen, small};
use hyades_platform::device::MemoryDevice;
use hyades_platform::random::Random;
use hyades_wal::{Error, FrameKind, Lane, LogOptions, open};
use std::fs;
use std::path::{Path, PathBuf};

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn options(dir: &Path) -> LogOptions {
    let mut options = small(dir, 2, MemoryDevice::shared());
    options.segment_bytes = 16 * 1024;
    options.buffer_bytes = 4096;
    options.anchor_interval_bytes = 1024;
    options
}

/// A log of two incarnations, the second closed cleanly or not.
fn build(dir: &Path, clean: bool) -> Vec<Read> {
    for round in 0..2 {
        let (log, _) = reopen(options(dir)).unwrap();
        let mut writer = log.writer().unwrap();
        for i in 0..60u32 {
            let end = append(&mut writer, (i % 2) as usize, &vec![i as u8; 37 * (i as usize % 17)]);
            if i % 3 == 0 {
                log.frontier().wait(Lane::position((i % 2) as usize), end).unwrap();
            }
        }
        log.flush().unwrap();
        // The last record has a batch of its own: nothing in the other stream can state its
        // durability.
        append(&mut writer, 1, &[b'l'; 296]);
        log.flush().unwrap();
        if clean || round == 0 { log.close().unwrap() } else { drop(log) }
    }
    read(dir).unwrap()
}

fn read(dir: &Path) -> Result<Vec<Read>, Error> {
    read_all(&open(options(dir))?).map(|(frames, _)| frames)
}

/// `read` holds a prefix of each stream of the newest incarnation, and the whole older incarnation.
fn is_prefix(read: &[Read], whole: &[Read]) -> bool {
    let newest = whole.last().unwrap().incarnation;
    [1, 2].into_iter().all(|incarnation| {
        [0, 1].into_iter().all(|lane| {
            let is_own = |f: &&Read| f.incarnation == incarnation && f.lane == lane;
            let (r, w): (Vec<_>, Vec<_>) =
                (read.iter().filter(is_own).collect(), whole.iter().filter(is_own).collect());
            r.len() <= w.len() && r[..] == w[..r.len()] && (incarnation == newest || r == w)
        })
    })
}

#[test]
fn any_flipped_bit_or_cut_is_an_error_or_a_tail() {
    let mut random = Random::seeded(11);
    for clean in [true, false] {
        let dir = tempfile::tempdir_in(MemoryDevice::ROOT).unwrap();
        let whole = build(dir.path(), clean);
        assert!(whole.len() >= 120);
        let (mut refused, mut shortened) = (0, 0);
        for trial in 0..1500 {
            let all = files(dir.path());
            let path = &all[random.below(all.len() as u64) as usize];
            let original = fs::read(path).unwrap();
            let mut damaged = original.clone();
            let kind = trial % 4;
            // Early bytes more often: later bytes are often the zeros of an unused segment.
            let bound = original.len() as u64 >> random.below(4);
            let at = random.below(bound.max(1)) as usize;
            match kind {
                0 | 1 => damaged[at] ^= 1 << random.below(8),
                2 => damaged.truncate(at),
                _ => {
                    let end = (at + random.below(3000) as usize).min(damaged.len());
                    random.fill(&mut damaged[at..end]);
                }
            }
            fs::write(path, &damaged).unwrap();
            match read(dir.path()) {
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().contains(dir.path().to_str().unwrap()), "{error}");
                }
                Ok(frames) => {
                    assert!(is_prefix(&frames, &whole), "trial {trial}: not a prefix");
                    // A clean end is a durable statement about the end of every stream.
                    assert!(!clean || frames == whole, "trial {trial}: silently cut");
                    shortened += u32::from(frames != whole);
                }
            }
            fs::write(path, &original).unwrap();
        }
        assert!(refused > 100, "only {refused} refused");
        assert!(clean || shortened > 0, "no tail was ever shortened");
        assert_eq!(read(dir.path()).unwrap(), whole);
    }
}

#[test]
fn a_missing_file_is_named() {
    let dir = tempfile::tempdir_in(MemoryDevice::ROOT).unwrap();
    build(dir.path(), true);
    let all = files(dir.path());
    for path in all.iter() {
        // The last segment of each stream is prepared and has not begun: nothing is lost without
        // the segment.
        let spare = !files(path.parent().unwrap()).iter().any(|p| p > path);
        let bytes = fs::read(path).unwrap();
        fs::remove_file(path).unwrap();
        let result = read(dir.path());
        fs::write(path, bytes).unwrap();
        if spare && path.to_string_lossy().contains("segment") {
            continue;
        }
        let error = result.expect_err(&path.display().to_string()).to_string();
        assert!(error.contains(dir.path().to_str().unwrap()), "{error}");
    }
}

#[test]
fn a_torn_tail_is_cut_and_the_log_goes_on_behind_it() {
    let dir = tempfile::tempdir_in(MemoryDevice::ROOT).unwrap();
    let whole = build(dir.path(), false);
    let last = whole.iter().rfind(|f| f.lane == 1 && f.kind == FrameKind::Record).unwrap();
    // Damages the last record of lane 1. The previous incarnation holds the same bytes, in earlier
    // files.
    let mut damaged = false;
    for path in files(dir.path()).into_iter().rev() {
        let mut bytes = fs::read(&path).unwrap();
        let found = bytes.windows(last.payload.len()).rposition(|w| w == last.payload);
        if let Some(at) = found.filter(|_| path.to_string_lossy().contains("stream-0001")) {
            bytes[at] ^= 1;
            fs::write(&path, bytes).unwrap();
            damaged = true;
            break;
        }
    }
    assert!(damaged);
    let (log, frames) = reopen(options(dir.path())).unwrap();
    // An anchor may follow the tail.
    let behind = |f: &&Read| {
        f.incarnation == last.incarnation && f.lane == last.lane && f.start >= last.start
    };
    assert_eq!(frames.len(), whole.len() - whole.iter().filter(behind).count());
    let mut writer = log.writer().unwrap();
    let end = append(&mut writer, 1, b"after the tail");
    log.frontier().wait(Lane::position(1), end).unwrap();
    drop((writer, log));
    let again = read(dir.path()).unwrap();
    assert!(again.iter().all(|f| f != last));
    assert_eq!(again.last().unwrap().payload, b"after the tail");
    assert_eq!(again.last().unwrap().start, last.start, "positions go on at the cut");
}
