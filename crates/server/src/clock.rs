//! The time by which keys expire: the wall clock, which for this purpose never goes back.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

/// A clock that all threads share.
#[derive(Debug, Default)]
pub struct Clock(AtomicI64);

impl Clock {
    /// Milliseconds since 1970, never less than any call before returned: a client that saw a key
    /// expire does not see it again when the clock is set back.
    pub fn now_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = since.as_millis() as i64;
        self.0.fetch_max(now, Relaxed).max(now)
    }
}

/// Microseconds since 1970, as they are.
pub fn wall_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}
