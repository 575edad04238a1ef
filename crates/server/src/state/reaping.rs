//! The work of the reaper, and its times.

use super::stopping::StopSignal;
use crate::base::clock::Clock;
use hyades_platform::sync::Unpoisoned;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

impl Default for ReapTimes {
    fn default() -> ReapTimes {
        ReapTimes { next: i64::MAX, earliest: 0, in_pass: false, garbage: false }
    }
}

/// When the reaper looks for keys of flushed databases, in milliseconds since 1970.
struct ReapTimes {
    /// The time at which there is something to remove; 0: now, `i64::MAX`: never.
    next: i64,
    /// The end of a pause, without regard to the rows to remove.
    earliest: i64,
    /// A pass over the keys is under way: the pass goes on at `earliest`, and `next` is for the
    /// following pass.
    in_pass: bool,
    /// There are blocks to remove.
    garbage: bool,
}

/// The next work of the reaper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaping {
    /// To walk over the keys.
    Keys,
    /// To remove garbage blocks.
    Garbage,
}

/// Orders for the reaper.
#[derive(Default)]
pub struct ReapQueue {
    times: Mutex<ReapTimes>,
    changed: Condvar,
}

impl ReapQueue {
    /// Makes the reaper look for keys to remove at this time, or earlier.
    pub fn no_later_than(&self, at_ms: i64) {
        let mut reap_at = self.times.lock().unpoisoned();
        if at_ms < reap_at.next {
            reap_at.next = at_ms;
            self.changed.notify_all();
        }
    }

    /// For the reaper: pauses until this time.
    pub fn no_earlier_than(&self, at_ms: i64) {
        self.times.lock().unpoisoned().earliest = at_ms;
    }

    /// For the reaper: ends the pass over the keys that began with the order to walk.
    pub fn end_pass(&self) {
        self.times.lock().unpoisoned().in_pass = false;
    }

    /// Makes the reaper remove garbage blocks.
    pub fn remove_garbage(&self) {
        self.times.lock().unpoisoned().garbage = true;
        self.changed.notify_all();
    }

    /// For the reaper: waits until there is work, and removes the order, but a pass over the keys
    /// is kept until the pass [has ended](ReapQueue::end_pass). `None` if the server stops.
    pub fn wait(&self, clock: &Clock, stop: &StopSignal) -> Option<Reaping> {
        let mut reap_at = self.times.lock().unpoisoned();
        loop {
            if stop.cause().is_some() {
                return None;
            }
            if std::mem::take(&mut reap_at.garbage) {
                return Some(Reaping::Garbage);
            }
            let now = clock.now_ms();
            let next = if reap_at.in_pass { i64::MIN } else { reap_at.next };
            let next = next.max(reap_at.earliest);
            if next <= now {
                if !std::mem::replace(&mut reap_at.in_pass, true) {
                    reap_at.next = i64::MAX;
                }
                return Some(Reaping::Keys);
            }
            reap_at = match next {
                i64::MAX => self.changed.wait(reap_at).unpoisoned(),
                at => {
                    let left = Duration::from_millis((at - now).clamp(1, 60_000) as u64);
                    self.changed.wait_timeout(reap_at, left).unpoisoned().0
                }
            };
        }
    }

    /// Forgets all orders: the database was let go.
    #[cfg(feature = "replication")]
    pub fn forget(&self) {
        *self.times.lock().unpoisoned() = ReapTimes::default();
    }

    /// The server stops, or lets its database go.
    pub fn wake(&self) {
        // The reaper checks the cause and begins to wait under this lock, so no wake-up is lost.
        drop(self.times.lock().unpoisoned());
        self.changed.notify_all();
    }
}
