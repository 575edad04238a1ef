//! Threads that begin and end transactions while another looks for the oldest: lives have one
//! thread, and nothing happens there between a draw and an announcement.

use crate::transaction_component::timestamp::Timestamps;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::scope;
use std::time::{Duration, Instant};

/// The threads that begin transactions.
const BEGINNERS: usize = 3;
/// Ended transactions are noted in a ring of this many places.
const NOTED: u64 = 1 << 12;

/// What a look at the clock has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockWatch {
    /// The transactions that have begun.
    pub begun: u64,
    /// How often the oldest active one was looked for.
    pub looks: u64,
    /// A transaction that was active below the oldest that was found, if there was one.
    pub missed: Option<u64>,
}

/// Begins and ends transactions by some threads for this long, or until the oldest that another
/// thread finds is above one that is active.
pub fn watch_clock(longest: Duration) -> ClockWatch {
    let (timestamps, over) = (Timestamps::new(0, BEGINNERS), AtomicBool::new(false));
    // Each place has the last of its timestamps that has ended, plus one.
    let ended: Vec<AtomicU64> = (0..NOTED).map(|_| AtomicU64::new(0)).collect();
    // Below this all have been found ended: those that begin do not go farther ahead than the ring.
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
