//! DEBUG SLEEP: for a time all event loops stand still, like the single thread of Redis. No client
//! is read, run or written meanwhile; other threads go on.

use hyades_platform::sync::Unpoisoned;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The longest sleep of a command, in seconds.
pub const LONGEST_SLEEP: f64 = 3_600.0;

/// The end of the standstill of all event loops.
#[derive(Debug, Default)]
pub struct Standstill {
    /// Whether there may be a standstill: read before each connection is served, and written under
    /// the lock.
    may_be: AtomicBool,
    until: Mutex<Option<Instant>>,
    /// The end of the last standstill, in milliseconds since 1970.
    last_end_ms: AtomicI64,
}

impl Standstill {
    /// Begins a standstill, at this time of the wall clock. Two concurrent standstills take the sum
    /// of their times.
    pub fn begin(&self, time: Duration, now_ms: i64) {
        let mut until = self.until.lock().unpoisoned();
        let now = Instant::now();
        let end = until.map_or(now, |end| end.max(now)) + time;
        *until = Some(end);
        let left_ms = end.duration_since(now).as_millis() as i64;
        self.last_end_ms.store(now_ms.saturating_add(left_ms), Relaxed);
        self.may_be.store(true, Relaxed);
    }

    /// The end of the last standstill, past or future, in milliseconds since 1970. Until then no
    /// client was read.
    pub fn last_end_ms(&self) -> i64 {
        self.last_end_ms.load(Relaxed)
    }

    /// The rest of the present standstill, if any.
    #[inline]
    pub fn left(&self) -> Option<Duration> {
        if !self.may_be.load(Relaxed) {
            return None;
        }
        let mut until = self.until.lock().unpoisoned();
        let left = until.map(|end| end.saturating_duration_since(Instant::now()));
        let left = left.filter(|left| !left.is_zero());
        if left.is_none() {
            *until = None;
            self.may_be.store(false, Relaxed);
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::state::{Shared, Stopping};

    #[test]
    fn two_take_as_long_as_one_after_the_other() {
        let standstill = Standstill::default();
        assert_eq!(standstill.left(), None);
        standstill.begin(Duration::from_secs(100), 7);
        standstill.begin(Duration::from_secs(100), 7);
        assert!(
            (150_000..=200_007).contains(&standstill.last_end_ms()),
            "{}",
            standstill.last_end_ms()
        );
        let left = standstill.left().unwrap();
        assert!((150..=200).contains(&left.as_secs()), "{left:?}");
        let short = Standstill::default();
        short.begin(Duration::from_millis(1), 0);
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(short.left(), None);
        assert!(!short.may_be.load(Relaxed));
    }

    #[test]
    fn it_ends_by_itself_and_when_the_server_stops() {
        let shared = Shared::new(Settings::default());
        let began = Instant::now();
        shared.stand_still();
        shared.limits.standstill.begin(Duration::from_millis(50), 0);
        shared.stand_still();
        assert!(began.elapsed() >= Duration::from_millis(50));
        shared.limits.standstill.begin(Duration::from_secs(3_600), 0);
        let waits = shared.clone();
        let thread = std::thread::spawn(move || waits.stand_still());
        std::thread::sleep(Duration::from_millis(50));
        assert!(!thread.is_finished());
        shared.stop(Stopping::Asked);
        thread.join().unwrap();
        assert!(began.elapsed() < Duration::from_secs(60));
    }
}
