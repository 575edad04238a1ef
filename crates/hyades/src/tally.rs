//! Session counters: a cell for each session, readable by other threads while the session lives.

use crate::storage::usage::{Usage, UsageCells};
use hyades_platform::sync::{Padded, Unpoisoned};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Work done by sessions, and garbage that remains to be freed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SessionCounts {
    pub attempts: u64,
    pub conflicts: u64,
    /// Attempts ended by their body with an error, and with a panic.
    pub failures: u64,
    pub panics: u64,
    /// Transactions that were not tried again.
    pub starved: u64,
    pub garbage: u64,
}

/// Counters of one session. Written by the session alone, with plain stores; read for the sum.
/// Relaxed: nothing else depends on the counters.
#[derive(Debug)]
pub(crate) struct Tally {
    attempts: AtomicU64,
    conflicts: AtomicU64,
    failures: AtomicU64,
    panics: AtomicU64,
    starved: AtomicU64,
    garbage: AtomicU64,
    /// The session's additions to the tables.
    pub usage: Arc<UsageCells>,
}

/// Adds one to a counter with a single writer: no read-modify-write instruction.
#[inline(always)]
fn increment(counter: &AtomicU64) -> u64 {
    let count = counter.load(Ordering::Relaxed) + 1;
    counter.store(count, Ordering::Relaxed);
    count
}

impl Tally {
    fn new(tables: usize) -> Tally {
        let [attempts, conflicts, failures, panics, starved, garbage] =
            [(); 6].map(|()| AtomicU64::new(0));
        let usage = Arc::new(UsageCells::new(tables));
        Tally { attempts, conflicts, failures, panics, starved, garbage, usage }
    }

    /// Counts an attempt at a transaction; returns the new count.
    #[inline(always)]
    pub fn attempt(&self) -> u64 {
        increment(&self.attempts)
    }

    /// Counts an attempt that ended in a conflict.
    pub fn conflict(&self) {
        increment(&self.conflicts);
    }

    /// Counts an attempt ended by its body with an error.
    pub fn failure(&self) {
        increment(&self.failures);
    }

    /// Counts an attempt ended by its body with a panic.
    pub fn panic(&self) {
        increment(&self.attempts);
        increment(&self.panics);
    }

    /// Counts a transaction not tried again after its conflicts.
    pub fn starved(&self) {
        increment(&self.starved);
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
        counts.failures += self.failures.load(Ordering::Relaxed);
        counts.panics += self.panics.load(Ordering::Relaxed);
        counts.starved += self.starved.load(Ordering::Relaxed);
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
    /// The additions of ended sessions to the tables.
    added: Vec<Usage>,
}

impl Tallies {
    /// Adds a tally for a new session of a database with this number of tables.
    pub fn add(&self, tables: usize) -> Arc<Padded<Tally>> {
        let tally = Arc::new(Padded(Tally::new(tables)));
        self.0.lock().unpoisoned().live.push(tally.clone());
        tally
    }

    /// Ends the tally of a session without garbage. The counts stay in the sum.
    pub fn end(&self, tally: &Arc<Padded<Tally>>, tables: usize) {
        let mut kept = self.0.lock().unpoisoned();
        tally.add_to(&mut kept.ended);
        kept.added.resize(tables, Usage::default());
        tally.usage.add_to(&mut kept.added);
        kept.live.retain(|live| !Arc::ptr_eq(live, tally));
    }

    /// Adds the additions of all sessions to the tables to `sums`.
    pub fn add_usage(&self, sums: &mut [Usage]) {
        let kept = self.0.lock().unpoisoned();
        sums.iter_mut().zip(&kept.added).for_each(|(sum, added)| *sum += *added);
        kept.live.iter().for_each(|tally| tally.usage.add_to(sums));
    }

    /// Returns the sum over all sessions.
    pub fn sum(&self) -> SessionCounts {
        let kept = self.0.lock().unpoisoned();
        let mut counts = kept.ended;
        kept.live.iter().for_each(|tally| tally.add_to(&mut counts));
        counts
    }
}
