//! Deleted keys do not slow down a queue.
#![allow(missing_docs)]

use hyades_deuteronomy::{Database, Error, LogOptions, MemoryData, Options};
use hyades_platform::clock::thread_cpu_ns;
use hyades_platform::device::MemoryDevice;
use std::ops::Bound::Unbounded;
use std::sync::Arc;

/// The first key is taken, and a key is added behind the last, again and again.
#[test]
fn a_queue_stays_as_fast_as_it_is_however_many_have_gone_through() {
    const LIVE: u64 = 1000;
    const ROUND: u64 = 2000;
    let dir = tempfile::tempdir().unwrap();
    let mut log = LogOptions::new(vec![dir.path().to_owned()], 1);
    log.device = MemoryDevice::shared();
    let data = Arc::new(MemoryData::outliving());
    let database = Database::open(Options::new(log), data.clone()).unwrap();
    let mut session = database.session().unwrap();
    let mut next = 0u64;
    let mut push_and_pop = |is_pop: bool| {
        let done = session.submit(|tx| {
            tx.put(&next.to_be_bytes(), &[7; 100])?;
            if is_pop {
                let first = tx.scan(Unbounded, Unbounded, 1)?.remove(0).0;
                assert_eq!(*first, (next - LIVE).to_be_bytes());
                tx.delete(&first)?;
            }
            Ok::<_, Error>(())
        });
        drop(done.unwrap());
        next += 1;
    };
    (0..LIVE).for_each(|_| push_and_pop(false));
    let mut rounds = Vec::new();
    for _ in 0..15 {
        let begun = thread_cpu_ns();
        (0..ROUND).for_each(|_| push_and_pop(true));
        rounds.push((thread_cpu_ns() - begun) / ROUND);
    }
    println!("{rounds:?} ns, {} items", data.items());
    // The data component forgets deleted keys now and then, and the machine may be busy.
    let (first, last) = (rounds[0], rounds[10..].iter().min().unwrap());
    assert!(*last <= 4 * first + 20_000, "{rounds:?}");
}
