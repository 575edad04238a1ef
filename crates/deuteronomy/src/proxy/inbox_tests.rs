//! The inbox of the proxy: no record stays there while the proxy sleeps.

use super::*;
use crate::data::MemoryData;
use crate::recovery::restart;
use hyades_platform::device::MemoryDevice;
use hyades_wal::LogOptions;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// The records that are handed over, and the threads that do so.
const RECORDS: usize = 30_000;
const SESSIONS: usize = 2;

/// Takes in what was handed over, as if all of it were applied; returns how many that were.
fn take_all(proxy: &Proxy, log: &Log, timestamps: &Timestamps) -> usize {
    let scans = &mut *locked(&proxy.scans);
    proxy.receive(scans, log, timestamps);
    let mut taken = 0;
    while scans.waiting[0].take_first().is_some() {
        taken += 1;
    }
    scans.bytes = 0;
    taken
}

/// Each time that nothing waits the proxy sleeps until a record wakes it: one that came between its
/// look and its sleep would stay. Another thread takes records in as well, as a checkpoint does.
#[test]
fn no_record_stays_in_the_inbox_of_a_proxy_that_sleeps() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = LogOptions::new(vec![dir.path().to_owned()], 1);
    options.device = MemoryDevice::shared();
    options.stepped = true;
    let (log, ..) = restart(options.clone(), &MemoryData::new(), 1 << 20).unwrap();
    let (proxy, timestamps) = (Proxy::new(&log, &Options::new(options)), Timestamps::new(1, 1));
    let (start, next) = (log.frontier().durable(0), AtomicU64::new(0));
    let (taken, slept, over) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let count = |records| taken.fetch_add(records, Ordering::Relaxed) + records;
    let stuck = std::thread::scope(|scope| {
        scope.spawn(|| {
            while proxy.wait(&log) {
                slept.fetch_add(1, Ordering::Relaxed);
                count(take_all(&proxy, &log, &timestamps));
            }
        });
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                count(take_all(&proxy, &log, &timestamps));
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        for _ in 0..SESSIONS {
            scope.spawn(|| {
                for nth in 0..RECORDS / SESSIONS {
                    let place = start + 8 * next.fetch_add(1, Ordering::Relaxed);
                    let (needs, operations) = (Needs::default(), SmallVec::new());
                    proxy.hand_over(Handed {
                        ts: 1,
                        stream: 0,
                        place: (place, place + 8),
                        first: place,
                        needs,
                        operations,
                        bytes: 8,
                    });
                    // It goes to sleep between two of them, or is about to.
                    (0..nth % 97).for_each(|_| std::hint::spin_loop());
                    if nth % 16 == 0 {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let until = Instant::now() + Duration::from_secs(60);
        // The other thread takes none any more once few are left: then the proxy has to.
        while taken.load(Ordering::Relaxed) < RECORDS / 2 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        over.store(true, Ordering::Relaxed);
        while taken.load(Ordering::Relaxed) < RECORDS && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let stuck = RECORDS - taken.load(Ordering::Relaxed);
        proxy.close();
        stuck
    });
    assert_eq!(stuck, 0, "records stay in the inbox");
    assert!(slept.load(Ordering::Relaxed) > 100, "{slept:?}: it hardly ever waited");
}
