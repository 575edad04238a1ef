//! An event count: sleeping until a condition on other variables may have changed, without a lock.
//!
//! The pattern is Dekker's. The sleeper announces itself, *then* checks the condition. The notifier
//! changes the condition, *then* checks for sleepers. Each side does a write followed by a read of
//! the other side's write; if both pairs are sequentially consistent, at least one side sees the
//! other side's write, so a sleeper never misses its event.

use crate::mutation::broken;
use crate::sync::{AtomicU32, Ordering, checker_fence, fence};
use std::time::Duration;

/// A place to sleep until a notification that a condition may hold.
#[derive(Debug)]
pub struct Event {
    /// 1 if a thread may be asleep. Set by sleepers; cleared by the notifier waking all sleepers,
    /// so later notifications need no system call until another thread announces itself.
    sleepers: AtomicU32,
    /// Changes at every notification with sleepers; the word compared by the kernel.
    sequence: AtomicU32,
    #[cfg(not(any(loom, target_os = "linux")))]
    parked: (std::sync::Mutex<()>, std::sync::Condvar),
}

/// An announced sleeper. Check the condition *after* creating the listener, and only then
/// [`wait`](Listener::wait); drop the listener if the condition holds. A dropped announcement costs
/// the next notifier a needless wake-up.
#[derive(Debug)]
pub struct Listener<'a> {
    event: &'a Event,
    seen: u32,
}

impl Default for Event {
    fn default() -> Self {
        Self::new()
    }
}

impl Event {
    /// An event without sleepers.
    pub fn new() -> Self {
        Self {
            sleepers: AtomicU32::new(0),
            sequence: AtomicU32::new(0),
            #[cfg(not(any(loom, target_os = "linux")))]
            parked: Default::default(),
        }
    }

    /// Announces the calling thread. SeqCst, so every later SeqCst load of the condition comes
    /// after the announcement in the single total order (the sleeper's half of Dekker).
    pub fn listen(&self) -> Listener<'_> {
        // Read before the announcement: a notifier clears the announcement and then changes the
        // sequence, so the kernel refuses the sleep. Read after the announcement, the sequence
        // might include the notifier's change, while the condition is checked before the next
        // notification; the next notification would then find no announced sleeper.
        let seen = self.sequence.load(Ordering::SeqCst);
        self.sleepers.store(1, Ordering::SeqCst);
        checker_fence();
        let seen = if broken!(LateSequence) {
            std::thread::yield_now();
            self.sequence.load(Ordering::SeqCst)
        } else {
            seen
        };
        Listener { event: self, seen }
    }

    /// Wakes the sleepers, after the condition was changed with any ordering: the fence makes the
    /// change the notifier's half of Dekker (the sleeper's half has SeqCst operations on both
    /// sides).
    #[inline]
    pub fn notify(&self) {
        fence(Ordering::SeqCst);
        self.notify_ordered();
    }

    /// Wakes the sleepers, where the condition was changed by a SeqCst operation and is read by the
    /// sleepers with SeqCst. Needs no fence and is a single load if no thread sleeps.
    #[inline]
    pub fn notify_ordered(&self) {
        checker_fence();
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            self.wake();
        }
    }

    /// Whether a sleeper is announced; only a hint, and for tests.
    pub fn has_sleepers(&self) -> bool {
        self.sleepers.load(Ordering::SeqCst) != 0
    }

    #[cold]
    fn wake(&self) {
        // If another notifier clears the announcement, the other notifier wakes the same sleepers;
        // a thread with a later announcement also checks the condition later.
        if self.sleepers.swap(0, Ordering::SeqCst) == 0 {
            return;
        }
        self.sequence.fetch_add(1, Ordering::SeqCst);
        #[cfg(all(not(loom), target_os = "linux"))]
        {
            use rustix::thread::futex;
            // Cannot fail for a valid private word; a failure would leave nothing better to do.
            let _ = futex::wake(&self.sequence, futex::Flags::PRIVATE, i32::MAX as u32);
        }
        #[cfg(not(any(loom, target_os = "linux")))]
        {
            // Taking the lock orders the wake-up before or after a sleeper's test of the sequence.
            drop(crate::sync::locked(&self.parked.0));
            self.parked.1.notify_all();
        }
    }
}

impl Listener<'_> {
    /// Sleeps until notified, or until `timeout` has passed; may wake spuriously.
    pub fn wait(self, timeout: Option<Duration>) {
        #[cfg(all(not(loom), target_os = "linux"))]
        {
            use rustix::thread::{Timespec, futex};
            let timespec = timeout.map(|t| Timespec {
                tv_sec: t.as_secs().min(i64::MAX as u64) as i64,
                tv_nsec: i64::from(t.subsec_nanos()),
            });
            // Interrupted, timed out, or the word had changed: the caller checks again.
            let word = &self.event.sequence;
            let _ = futex::wait(word, futex::Flags::PRIVATE, self.seen, timespec.as_ref());
        }
        #[cfg(not(any(loom, target_os = "linux")))]
        {
            let (lock, condition) = &self.event.parked;
            let guard = crate::sync::locked(lock);
            if self.event.sequence.load(Ordering::SeqCst) == self.seen {
                match timeout {
                    Some(t) => drop(condition.wait_timeout(guard, t)),
                    None => drop(condition.wait(guard)),
                }
            }
        }
        #[cfg(loom)]
        {
            // Under the checker a sleeper spins; a lost event shows as a livelock.
            let _ = timeout;
            while self.event.sequence.load(Ordering::SeqCst) == self.seen {
                loom::thread::yield_now();
            }
        }
    }
}
