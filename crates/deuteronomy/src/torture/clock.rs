//! Threads beginning and ending transactions while another thread looks for the oldest: lives have
//! a single thread, without events between a draw and an announcement.

use crate::transaction_component::timestamp::Timestamps;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::scope;
use std::time::{Duration, Instant};

/// The threads that begin transactions.
const BEGINNERS: usize = 3;
/// The places of the ring of ended transactions.
const NOTED: u64 = 1 << 12;

/// The findings of the looks at the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockWatch {
    /// The begun transactions.
    pub begun: u64,
    /// The number of looks for the oldest active transaction.
    pub looks: u64,
    /// A transaction active below the oldest found, if any.
    pub missed: Option<u64>,
}

/// Begins and ends transactions by some threads for `longest`, or until another thread finds an
/// oldest above an active transaction.
pub fn watch_clock(longest: Duration) -> ClockWatch {
    let (timestamps, over) = (Timestamps::new(0, BEGINNERS, 0), AtomicBool::new(false));
    // Each place has its last ended timestamp, plus one.
    let ended: Vec<AtomicU64> = (0..NOTED).map(|_| AtomicU64::new(0)).collect();
    // All transactions below have been found ended: beginning transactions do not go farther ahead
    // than the ring.
    let seen = AtomicU64::new(0);
    let place = |ts: u64| &ended[(ts % NOTED) as usize];
    let mut watch = ClockWatch::default();
    scope(|scope| {
        for _ in 0..BEGINNERS {
            scope.spawn(|| {
                let at = timestamps.enter().expect("there is a place for each");
                while !over.load(Ordering::Relaxed) {
                    if timestamps.next() + BEGINNERS as u64 >= seen.load(Ordering::Relaxed) + NOTED
                    {
                        std::thread::yield_now();
                        continue;
                    }
                    timestamps.announce(at);
                    let ts = timestamps.draw(at).expect("the clock is far from its end");
                    place(ts).store(ts + 1, Ordering::Release);
                    timestamps.end(at);
                }
            });
        }
        let began = Instant::now();
        while watch.missed.is_none() && began.elapsed() < longest {
            let oldest = timestamps.oldest_active();
            watch.looks += 1;
            let is_active = |ts: &u64| place(*ts).load(Ordering::Acquire) != ts + 1;
            watch.missed = (seen.load(Ordering::Relaxed)..oldest).find(is_active);
            seen.fetch_max(oldest, Ordering::Relaxed);
        }
        over.store(true, Ordering::Relaxed);
    });
    watch.begun = timestamps.next();
    watch
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn none_is_active_below_the_oldest() {
        let (mut begun, mut looks) = (0, 0);
        // Where the threads get little of a processor, longer.
        for _ in 0..100 {
            let watch = watch_clock(Duration::from_millis(300));
            assert_eq!(watch.missed, None, "{watch:?}");
            (begun, looks) = (begun + watch.begun, looks + watch.looks);
            if begun > 1000 && looks > 100 {
                return;
            }
        }
        panic!("{begun} have begun, and the oldest was looked for {looks} times");
    }
}
