//! Long transactions succeed beside readers of their keys.
#![allow(missing_docs)]

#[path = "common/claims.rs"]
mod claims;

use claims::loses_what_was_claimed;
use hyades_deuteronomy::{Database, LogOptions, MemoryData, Options};
use hyades_platform::device::MemoryDevice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn a_claim_without_a_write_changes_nothing() {
    assert!(!loses_what_was_claimed());
}

/// A writer with a pause of a millisecond before a write of a key read by another thread all the
/// time; and a writer of two keys read all the time.
#[test]
fn a_slow_writer_beside_a_hot_reader_needs_few_attempts() {
    const COMMITS: u64 = 100;
    let dir = tempfile::tempdir().unwrap();
    let mut log = LogOptions::new(vec![dir.path().to_owned()], 1);
    log.device = MemoryDevice::shared();
    let database = Database::open(Options::new(log), Arc::new(MemoryData::new())).unwrap();
    let mut writer = database.session().unwrap();
    for keys in [&[b"a"][..], &[b"a", b"b"]] {
        let is_over = AtomicBool::new(false);
        let mut attempts = 0;
        let begun = std::time::Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut reader = database.session().unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    let read =
                        reader.submit(|tx| keys.iter().try_for_each(|k| tx.get(*k).map(drop)));
                    drop(read.unwrap());
                }
            });
            for n in 0..COMMITS {
                let done = writer.submit(|tx| {
                    attempts += 1;
                    std::thread::sleep(Duration::from_millis(1));
                    keys.iter().try_for_each(|key| tx.put(*key, &n.to_be_bytes()))
                });
                drop(done.unwrap());
            }
            is_over.store(true, Ordering::Relaxed);
        });
        println!("{attempts} attempts, {:?}", begun.elapsed());
        // The third attempt claims; with two keys the next attempt claims the second.
        assert!(attempts <= COMMITS * (3 + keys.len() as u64), "{attempts} attempts");
    }
}
