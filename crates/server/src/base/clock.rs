//! The time for the expiry of keys: the wall clock, made monotonic.

use hyades_platform::clock::wall_ms;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

pub use hyades_platform::clock::wall_us;

/// A clock shared by all threads.
#[derive(Debug, Default)]
pub struct Clock(AtomicI64);

impl Clock {
    /// Milliseconds since 1970, never less than any call before returned: a client that saw a key
    /// expire does not see it again when the clock is set back.
    pub fn now_ms(&self) -> i64 {
        let now = wall_ms() as i64;
        self.0.fetch_max(now, Relaxed).max(now)
    }

    /// Advances the clock to at least this time: ahead of the wall clock, the clock stands still.
    #[cfg(test)]
    pub fn advance(&self, at_ms: i64) {
        self.0.fetch_max(at_ms, Relaxed);
    }
}

/// The processor's time for this thread so far, in seconds, without other threads.
#[cfg(test)]
pub fn thread_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    // In user mode and in the system, in ticks of 10 ms.
    let fields = text.rsplit_once(") ").unwrap().1.split(' ').skip(11).take(2);
    fields.map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}
