//! Counts of what transactions met, for operators.
//!
//! A transaction counts in its session, and adds the counts to the counters of the session's place
//! at its end. Only the session writes to its place, so adding takes no exclusive access. Relaxed:
//! the counts order nothing.

use crate::error::Abort;
use hyades_platform::sync::Padded;
use std::sync::atomic::{AtomicU64, Ordering};

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// A read, or a write's look, found its version in memory.
    Hit,
    /// A read went to the data component.
    Miss,
    /// A transaction committed.
    Commit,
    /// A transaction was aborted by its caller.
    RolledBack,
    /// A transaction or a snapshot was aborted for the reason.
    Aborted(Abort),
}

const KINDS: usize = 9;

impl Counted {
    const fn place(self) -> usize {
        match self {
            Counted::Hit => 0,
            Counted::Miss => 1,
            Counted::Commit => 2,
            Counted::RolledBack => 3,
            Counted::Aborted(Abort::TooLate) => 4,
            Counted::Aborted(Abort::ReadByYounger) => 5,
            Counted::Aborted(Abort::Unfinished) => 6,
            Counted::Aborted(Abort::SnapshotTooOld) => 7,
            Counted::Aborted(Abort::Shed) => 8,
        }
    }
}

/// The counts of a session since its last transaction.
#[derive(Debug, Default)]
pub(crate) struct SessionCounts([u64; KINDS]);

impl SessionCounts {
    #[inline]
    pub fn count(&mut self, what: Counted) {
        self.0[what.place()] += 1;
    }
}

/// The counts by the places of sessions.
#[derive(Debug)]
pub(crate) struct Counts(Box<[Padded<[AtomicU64; KINDS]>]>);

impl Counts {
    pub fn new(sessions: usize) -> Self {
        Self((0..sessions).map(|_| Padded(Default::default())).collect())
    }

    /// Adds the counts of the session at a place, and begins them anew.
    #[inline]
    pub fn add(&self, at: usize, counts: &mut SessionCounts) {
        for (sum, count) in self.0[at].iter().zip(&mut counts.0) {
            if *count > 0 {
                let before = sum.load(Ordering::Relaxed);
                sum.store(before + std::mem::take(count), Ordering::Relaxed);
            }
        }
    }

    /// The sum over all sessions, also the ended ones.
    pub fn sum(&self, what: Counted) -> u64 {
        self.0.iter().map(|place| place[what.place()].load(Ordering::Relaxed)).sum()
    }
}
