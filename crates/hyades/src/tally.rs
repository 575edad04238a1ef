//! What sessions count: a cell for each session, that all who ask can read while the session lives.

use hyades_platform::sync::Padded;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// What sessions have done, and what they have still to clear away.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SessionCounts {
    pub attempts: u64,
    pub conflicts: u64,
    pub garbage: u64,
}

/// One session's counts. Written by the session alone, with plain stores; read by whoever asks for the sum.
/// Relaxed: nothing else is concluded from them.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    attempts: AtomicU64,
    conflicts: AtomicU64,
    garbage: AtomicU64,
}

impl Tally {
    /// Counts an attempt at a transaction; returns how many there were.
    #[inline(always)]
    pub fn attempt(&self) -> u64 {
        // No read-modify-write instruction: there is one writer.
        let attempts = self.attempts.load(Ordering::Relaxed) + 1;
        self.attempts.store(attempts, Ordering::Relaxed);
        attempts
    }

    /// Counts an attempt that ended in a conflict.
    pub fn conflict(&self) {
        self.conflicts.store(self.conflicts() + 1, Ordering::Relaxed);
    }

    /// How many attempts ended in a conflict.
    pub fn conflicts(&self) -> u64 {
        self.conflicts.load(Ordering::Relaxed)
    }

    /// So much has the session to clear away now.
    pub fn set_garbage(&self, items: usize) {
        self.garbage.store(items as u64, Ordering::Relaxed);
    }

    fn add_to(&self, counts: &mut SessionCounts) {
        counts.attempts += self.attempts.load(Ordering::Relaxed);
        counts.conflicts += self.conflicts();
        counts.garbage += self.garbage.load(Ordering::Relaxed);
    }
}

/// The tallies of all sessions, those that have ended included.
#[derive(Debug, Default)]
pub(crate) struct Tallies(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    live: Vec<Arc<Padded<Tally>>>,
    ended: SessionCounts,
}

impl Tallies {
    /// A tally for a new session.
    pub fn add(&self) -> Arc<Padded<Tally>> {
        let tally = Arc::<Padded<Tally>>::default();
        self.0.lock().expect("no holder panics").live.push(tally.clone());
        tally
    }

    /// The session ends, with nothing to clear away; what it has counted stays in the sum.
    pub fn end(&self, tally: &Arc<Padded<Tally>>) {
        let mut kept = self.0.lock().expect("no holder panics");
        tally.add_to(&mut kept.ended);
        kept.live.retain(|live| !Arc::ptr_eq(live, tally));
    }

    /// The sum of all.
    pub fn sum(&self) -> SessionCounts {
        let kept = self.0.lock().expect("no holder panics");
        let mut counts = kept.ended;
        kept.live.iter().for_each(|tally| tally.add_to(&mut counts));
        counts
    }
}
