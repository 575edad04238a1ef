//! Connections whose encryption has failed: counted, and told to standard error now and then.

use hyades_platform::sync::Unpoisoned;
use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A line is written once in this time: clients must not fill a disk.
const EACH: Duration = Duration::from_secs(10);

/// The failures of a server.
#[derive(Default)]
pub struct FailedHandshakes {
    /// When a line was written last, and failures since then.
    state: Mutex<(Option<Instant>, u64)>,
}

impl FailedHandshakes {
    /// A client was disconnected, for this reason.
    pub fn note(&self, address: &str, why: &str) {
        if let Some(line) = self.line(Instant::now(), address, why) {
            // Standard error may be closed.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }

    fn line(&self, now: Instant, address: &str, why: &str) -> Option<String> {
        let mut state = self.state.lock().unpoisoned();
        let (last, silent) = &mut *state;
        if last.is_some_and(|last| now.duration_since(last) < EACH) {
            *silent += 1;
            return None;
        }
        *last = Some(now);
        let since = match std::mem::take(silent) {
            0 => String::new(),
            others => format!(" ({others} others since the last such line)"),
        };
        Some(format!("TLS: disconnected {address}: {why}{since}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_ten_seconds() {
        let (failures, now) = (FailedHandshakes::default(), Instant::now());
        let line = |after| failures.line(now + Duration::from_millis(after), "a:1", "x");
        assert_eq!(line(0).unwrap(), "TLS: disconnected a:1: x");
        assert_eq!([line(1), line(9_999)], [None, None]);
        let told = "TLS: disconnected a:1: x (2 others since the last such line)";
        assert_eq!(line(10_000).unwrap(), told);
        assert_eq!(line(20_000).unwrap(), "TLS: disconnected a:1: x");
    }
}
