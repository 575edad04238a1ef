//! An idle log sleeps. The test is alone in its file, and so in its process, because of the
//! counters of all threads.
#![cfg(target_os = "linux")]

mod common;
use common::{append, reopen, small};
use hyades_platform::device::MemoryDevice;
use std::fs;

/// The number of context switches of the log's threads.
fn switches() -> u64 {
    let mut sum = 0;
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        if !fs::read_to_string(path.join("comm")).unwrap().starts_with("log-") {
            continue;
        }
        let status = fs::read_to_string(path.join("status")).unwrap();
        let lines = status.lines().filter(|l| l.contains("ctxt_switches"));
        sum += lines
            .map(|l| l.split_whitespace().last().unwrap().parse::<u64>().unwrap())
            .sum::<u64>();
    }
    sum
}

#[test]
fn an_idle_log_wakes_nobody() {
    let dir = tempfile::tempdir_in(MemoryDevice::ROOT).unwrap();
    let (log, _) = reopen(small(dir.path(), 4, MemoryDevice::shared())).unwrap();
    let mut writer = log.writer().unwrap();
    for i in 0..100 {
        append(&mut writer, i % 4, &[7; 100]);
    }
    log.flush().unwrap();
    // Wait until the threads sleep.
    let pause = || std::thread::sleep(std::time::Duration::from_millis(100));
    let sleep = |_| {
        pause();
        let before = switches();
        assert!(before > 0);
        pause();
        switches() == before
    };
    // The effects of the last flush come later on a busy machine.
    assert!((0..20).any(sleep), "the threads of an idle log wake up");
}
