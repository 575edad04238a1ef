//! The flush interval lets work collect, and `flush_fill_bytes` ends the interval early.
#![allow(missing_docs)]

mod common;
use common::{append, reopen, small};
use hyades_platform::device::FileDevice;
use hyades_wal::Lane;
use std::time::{Duration, Instant};

#[test]
fn an_interval_collects_though_somebody_waits() {
    // A slow disk, or a delayed thread, may use up the interval: then the test tries again.
    assert!((0..10).any(|_| collects()), "what is appended is flushed before the interval ends");
}

fn collects() -> bool {
    let dir = tempfile::tempdir().unwrap();
    let mut options = small(dir.path(), 1, FileDevice::shared());
    // Long enough for the test, also on a busy machine.
    let interval = Duration::from_millis(1500);
    options.flush_interval = Some(interval);
    let (log, _) = reopen(options).unwrap();
    let mut writer = log.writer().unwrap();
    let first = append(&mut writer, 0, b"first");
    log.wait(Lane::position(0), first).unwrap();
    let began = Instant::now();
    let ends: Vec<u64> = (0..10).map(|_| append(&mut writer, 0, b"more")).collect();
    log.wait(Lane::position(0), ends[0]).unwrap();
    let (took, durable) = (began.elapsed(), log.frontier().durable(0));
    eprintln!("flushed after {took:?}, up to {durable}: {ends:?}");
    // All collected frames are in a single batch.
    took >= interval / 2 && durable == ends[9]
}

/// The options of a log with an endless flush interval.
fn endless(dir: &std::path::Path) -> hyades_wal::LogOptions {
    let mut options = small(dir, 1, FileDevice::shared());
    options.flush_interval = Some(Duration::from_secs(3600));
    options
}

/// Waits until `end` is flushed, at most for `within`; returns whether `end` is flushed. Before the
/// flush interval ends only a complete collection is flushed.
fn is_flushed(log: &hyades_wal::Log, end: u64, within: Duration) -> bool {
    let began = Instant::now();
    while log.frontier().durable(0) < end && began.elapsed() < within {
        std::thread::sleep(Duration::from_millis(1));
    }
    log.frontier().durable(0) >= end
}

#[test]
fn a_number_of_frames_ends_the_interval() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = endless(dir.path());
    options.flush_fill_frames = Some(3);
    let (log, _) = reopen(options).unwrap();
    let mut writer = log.writer().unwrap();
    for round in 0..3 {
        append(&mut writer, 0, b"one");
        let second = append(&mut writer, 0, b"two");
        assert!(!is_flushed(&log, second, Duration::from_millis(30)), "round {round}");
        let third = append(&mut writer, 0, b"three");
        assert!(is_flushed(&log, third, Duration::from_secs(60)), "round {round}");
    }
    drop(writer);
    log.close().unwrap();
}

#[test]
fn a_group_of_no_frames_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = endless(dir.path());
    options.flush_fill_frames = Some(0);
    assert!(reopen(options).unwrap_err().to_string().contains("1 or more"));
}

#[test]
fn a_fill_ends_the_interval() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = small(dir.path(), 1, FileDevice::shared());
    options.flush_interval = Some(Duration::from_secs(3600));
    options.flush_fill_bytes = 4000;
    let (log, _) = reopen(options).unwrap();
    let mut writer = log.writer().unwrap();
    let first = append(&mut writer, 0, &[1; 1000]);
    std::thread::sleep(Duration::from_millis(50));
    assert!(log.frontier().durable(0) < first, "less than the fill is kept back");
    let mut end = first;
    for _ in 0..4 {
        end = append(&mut writer, 0, &[2; 1000]);
    }
    let began = Instant::now();
    log.wait(Lane::position(0), end.min(first)).unwrap();
    assert!(began.elapsed() < Duration::from_secs(60));
    drop(writer);
    log.close().unwrap();
}
