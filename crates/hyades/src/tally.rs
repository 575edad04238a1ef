//! Session counters: a cell for each session, which other threads can read while the session lives.

use hyades_platform::sync::Padded;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Work done by sessions, and garbage that remains to be freed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SessionCounts {
    pub attempts: u64,
    pub conflicts: u64,
    pub garbage: u64,
}

/// Counters of one session. Written by the session alone, with plain stores; read for the sum.
/// Relaxed: nothing else depends on them.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    attempts: AtomicU64,
    conflicts: AtomicU64,
    garbage: AtomicU64,
}

impl Tally {
    /// Counts an attempt at a transaction; returns the new count.
    #[inline(always)]
    pub fn attempt(&self) -> u64 {
        // No read-modify-write instruction, since there is one writer.
        let attempts = self.attempts.load(Ordering::Relaxed) + 1;
        self.attempts.store(attempts, Ordering::Relaxed);
        attempts
    }

    /// Counts an attempt that ended in a conflict.
    pub fn conflict(&self) {
        self.conflicts.store(self.conflicts() + 1, Ordering::Relaxed);
    }

    /// Returns how many attempts ended in a conflict.
    pub fn conflicts(&self) -> u64 {
        self.conflicts.load(Ordering::Relaxed)
    }

    /// Sets the number of garbage items of the session.
    pub fn set_garbage(&self, items: usize) {
        self.garbage.store(items as u64, Ordering::Relaxed);
    }

    fn add_to(&self, counts: &mut SessionCounts) {
        counts.attempts += self.attempts.load(Ordering::Relaxed);
        counts.conflicts += self.conflicts();
        counts.garbage += self.garbage.load(Ordering::Relaxed);
    }
}

/// The counters of all sessions, ended ones included.
#[derive(Debug, Default)]
pub(crate) struct Tallies(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    live: Vec<Arc<Padded<Tally>>>,
    ended: SessionCounts,
}

impl Tallies {
    /// Adds a tally for a new session.
    pub fn add(&self) -> Arc<Padded<Tally>> {
        let tally = Arc::<Padded<Tally>>::default();
        self.0.lock().expect("no holder panics").live.push(tally.clone());
        tally
    }

    /// Ends the tally of a session without garbage. Its counts stay in the sum.
    pub fn end(&self, tally: &Arc<Padded<Tally>>) {
        let mut kept = self.0.lock().expect("no holder panics");
        tally.add_to(&mut kept.ended);
        kept.live.retain(|live| !Arc::ptr_eq(live, tally));
    }

    /// Returns the sum over all sessions.
    pub fn sum(&self) -> SessionCounts {
        let kept = self.0.lock().expect("no holder panics");
        let mut counts = kept.ended;
        kept.live.iter().for_each(|tally| tally.add_to(&mut counts));
        counts
    }
}
