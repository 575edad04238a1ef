//! Promise: an open, idle database uses no processor. The only test in its file, because it counts
//! the context switches of all threads of the process.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

mod common;
use common::{Combination, DATA_ONLY, directory, open, populate, run};
use hyades::{Concurrency, Protocol, RecordKind, Replay};
use hyades_schemes::TAURUS_2016;
use std::fs;
use std::time::Duration;

/// Processor time of the process in ticks of 10 ms, and context switches of all its threads.
fn used() -> (u64, u64) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    let mut switches = 0;
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let lines = status.lines().filter(|line| line.contains("ctxt_switches"));
        switches += lines
            .map(|line| line.split_whitespace().last().unwrap().parse::<u64>().unwrap())
            .sum::<u64>();
    }
    (ticks, switches)
}

#[test]
fn an_idle_database_uses_no_processor() {
    let numbered = DATA_ONLY.map(|protocol| (protocol, 8));
    for (protocol, streams) in
        [(Protocol::Serial, 1), (Protocol::Taurus, 8), (TAURUS_2016, 8)].into_iter().chain(numbered)
    {
        let concurrency = Concurrency::Silo;
        let record =
            if DATA_ONLY.contains(&protocol) { RecordKind::Data } else { RecordKind::Adaptive };
        let c = Combination { protocol, concurrency, record, streams };
        let dir = directory();
        let opened = open(dir.path(), c, None, 2, Replay::Wavefront);
        populate(&opened);
        run(&opened, 1, 200);
        let pause = || std::thread::sleep(Duration::from_millis(300));
        // This thread and the test harness are switched a few times. Polling would show as
        // hundreds, in each of some tries; the aftermath of the last transactions, later than
        // expected on a busy machine, does not.
        let is_idle = |_| {
            pause();
            let before = used();
            pause();
            let after = used();
            let (ticks, switches) =
                (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
            eprintln!("{c:?}: {switches} context switches, {ticks} ticks");
            switches < 30 && ticks < 10
        };
        assert!((0..10).any(is_idle), "{c:?}: it uses the processor");
        opened.db.close().unwrap();
    }
}
