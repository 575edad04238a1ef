//! Time.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Where [`monotonic_ns`] counts from: the first call in the process.
static START: OnceLock<Instant> = OnceLock::new();

/// Nanoseconds since some moment in the life of the process; never goes back.
pub fn monotonic_ns() -> u64 {
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Milliseconds since 1970 by the machine's clock, which may jump; 0 if it stands before 1970.
pub fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// Microseconds since 1970 by the machine's clock, which may jump; 0 if it stands before 1970.
pub fn wall_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64)
}
