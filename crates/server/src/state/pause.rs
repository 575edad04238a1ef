//! CLIENT PAUSE: for a time, commands are set aside instead of being run.

use hyades_platform::sync::Unpoisoned;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Which commands are set aside; the last mode is the strictest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PauseMode {
    /// Commands that may write, or publish.
    Write,
    /// All.
    All,
}

/// The pause of all clients.
#[derive(Debug, Default)]
pub struct Pause {
    /// Whether there may be a pause: read before each command, and written under the lock.
    may_be: AtomicBool,
    until: Mutex<Option<(PauseMode, Instant)>>,
    clients: AtomicU64,
}

impl Pause {
    /// Begins a pause. During another pause the stricter mode holds, and the later end.
    pub fn begin(&self, mode: PauseMode, time: Duration) {
        // A longer pause ends in a hundred years.
        let longest = Duration::from_secs(100 * 365 * 24 * 3_600);
        let end = Instant::now() + time.min(longest);
        let mut until = self.until.lock().unpoisoned();
        *until = Some(match *until {
            Some((other, other_end)) if other_end > Instant::now() => {
                (mode.max(other), end.max(other_end))
            }
            _ => (mode, end),
        });
        self.may_be.store(true, Relaxed);
    }

    /// Ends the pause. The caller wakes the event loops, which have set commands aside.
    pub fn end(&self) {
        let mut until = self.until.lock().unpoisoned();
        *until = None;
        self.may_be.store(false, Relaxed);
    }

    /// The mode and the end of the present pause, if any.
    #[inline]
    pub fn running(&self) -> Option<(PauseMode, Instant)> {
        if !self.may_be.load(Relaxed) {
            return None;
        }
        let mut until = self.until.lock().unpoisoned();
        if until.is_some_and(|(_, end)| end <= Instant::now()) {
            *until = None;
            self.may_be.store(false, Relaxed);
        }
        *until
    }

    /// Clients with a command set aside.
    pub fn clients(&self) -> u64 {
        self.clients.load(Relaxed)
    }
}

/// A client with a command set aside, counted until dropped.
pub struct PausedClient(Arc<Pause>);

impl PausedClient {
    /// Counts a client.
    pub fn new(pause: &Arc<Pause>) -> PausedClient {
        pause.clients.fetch_add(1, Relaxed);
        PausedClient(Arc::clone(pause))
    }
}

impl Drop for PausedClient {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stricter_mode_and_the_later_end_hold() {
        let pause = Pause::default();
        assert_eq!(pause.running(), None);
        pause.begin(PauseMode::All, Duration::from_secs(100));
        pause.begin(PauseMode::Write, Duration::from_secs(1));
        let (mode, end) = pause.running().unwrap();
        assert_eq!(mode, PauseMode::All);
        assert!(end > Instant::now() + Duration::from_secs(50));
        pause.end();
        assert_eq!(pause.running(), None);
        pause.begin(PauseMode::Write, Duration::MAX);
        assert_eq!(pause.running().map(|(mode, _)| mode), Some(PauseMode::Write));
        pause.end();
        pause.begin(PauseMode::All, Duration::ZERO);
        assert_eq!(pause.running(), None);
    }
}
