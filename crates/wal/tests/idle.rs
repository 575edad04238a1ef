//! An idle log sleeps. This test is alone in its file, and so in its process, because it reads the
//! counters of all threads.
#![cfg(target_os = "linux")]

mod common;
use common::{append, reopen, small};
use hyades_platform::device::MemoryDevice;
use std::fs;

/// The number of context switches of the log's threads, and whether all of them sleep.
fn switches() -> (u64, bool) {
    let (mut sum, mut all_sleep) = (0, true);
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        if !fs::read_to_string(path.join("comm")).unwrap().starts_with("log-") {
            continue;
        }
        let status = fs::read_to_string(path.join("status")).unwrap();
        all_sleep &= status.contains("State:\tS");
        let lines = status.lines().filter(|l| l.contains("ctxt_switches"));
        sum += lines
            .map(|l| l.split_whitespace().last().unwrap().parse::<u64>().unwrap())
            .sum::<u64>();
    }
    (sum, all_sleep)
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
    let pause = || std::thread::sleep(std::time::Duration::from_millis(100));
    // Wait until the threads sleep: on a busy machine they may get a processor late.
    let settled = || {
        let before = switches();
        pause();
        (before.1 && switches() == before).then_some(before)
    };
    let before = (0..600).find_map(|_| settled()).expect("the threads of an idle log run");
    assert!(before.0 > 0);
    pause();
    assert_eq!(switches(), before);
}
