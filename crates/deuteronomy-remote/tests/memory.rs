//! The memory of a database whose server of data is away, measured from outside.
#![allow(missing_docs)]

mod common;

use common::Far;
use hyades_deuteronomy::{Database, LogOptions, Options};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The memory of the process, in bytes.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn a_server_that_is_away_costs_the_budget_and_little_more() {
    const BUDGET: usize = 8 << 20;
    let (dir, far) = (tempfile::tempdir().unwrap(), Far::start());
    let mut log = LogOptions::new(vec![dir.path().to_owned()], 2);
    log.buffer_bytes = 1 << 18;
    let mut options = Options::new(log);
    (options.memory_bytes, options.redo_bytes) = (BUDGET, 4 << 20);
    let database = Database::open(options, Arc::new(far.connect())).unwrap();
    let (is_over, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let write = |writer: u64| {
        let mut session = database.session().unwrap();
        let mut count = 0u64;
        while !is_over.load(Ordering::Relaxed) {
            // Few keys: at the server, in this process, the data do not grow.
            let key = [writer, count % 500].map(u64::to_be_bytes).concat();
            session.execute(|tx| tx.put(&key, &[count as u8; 1000])).unwrap();
            count += 1;
            written.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let writers = [0, 1].map(|writer| scope.spawn(move || write(writer)));
        std::thread::sleep(Duration::from_secs(1));
        let (before, at_kill) = (resident(), written.load(Ordering::Relaxed));
        far.kill();
        let (began, mut most) = (Instant::now(), 0);
        while began.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(20));
            most = most.max(resident());
        }
        let meanwhile = written.load(Ordering::Relaxed) - at_kill;
        let grown = most.saturating_sub(before);
        println!("{meanwhile} writes of 1 kB meanwhile; {grown} bytes more, of {before}");
        far.revive();
        is_over.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert!(meanwhile * 1000 > BUDGET as u64 / 2, "the budget was not met");
        assert!(grown < 4 * BUDGET as u64, "{grown} bytes more");
    });
    let stats = database.stats();
    println!("{stats:?}");
    database.close().unwrap();
}
