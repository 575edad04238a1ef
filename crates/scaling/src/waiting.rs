//! Transactions that wait to be acknowledged.

use crate::shared::Time;
use hyades_wal::Needs;
use std::cmp::Ordering;

/// A transaction that waits to be acknowledged.
pub(crate) struct Waiting {
    /// What its slot of the frontier has to reach first.
    pub until: u64,
    /// The order in which transactions came to wait, so that a run can be repeated.
    pub number: u64,
    /// What it needs besides, if that is more.
    pub others: Option<Box<Needs>>,
    pub started: Time,
    pub worker: usize,
}

/// Reversed, so that a heap yields the least `until` first.
impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.until, other.number).cmp(&(self.until, self.number))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}
