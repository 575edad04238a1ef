//! Posted calls of a worker that have not run.

use hyades::{Abort, Error, PostedCall, Ticket};
use std::collections::VecDeque;

/// The most calls that a database takes ([`hyades::Builder::posted_calls`]).
pub const MOST_POSTED: usize = 10_000;

/// The most calls of a worker: enough that no site is idle, few enough that they stay in the cache.
const MOST_OF_ONE: usize = 256;

/// A call that has run: its outcome, and when it was started.
type RunCall = (Result<(Result<(), Abort>, Ticket), Error>, u64);

/// Calls that have not run, with the times at which they were started, oldest first.
pub struct PostedInOrder {
    calls: VecDeque<(PostedCall<()>, u64)>,
    most: usize,
}

impl PostedInOrder {
    /// For one of `workers`.
    pub fn of(workers: usize) -> Self {
        let most = (MOST_POSTED / workers).clamp(1, MOST_OF_ONE);
        PostedInOrder { calls: VecDeque::with_capacity(most), most }
    }

    /// The number of calls.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether no more may be posted until one has run.
    pub fn is_full(&self) -> bool {
        self.calls.len() >= self.most
    }

    /// Adds a call.
    pub fn push(&mut self, call: PostedCall<()>, at_ns: u64) {
        self.calls.push_back((call, at_ns));
    }

    /// Waits until half of the calls have run, so that the thread is not woken for each.
    pub fn wait_for_some(&self) {
        let middle = self.calls.get(self.calls.len() / 2);
        self.calls.front().into_iter().chain(middle).for_each(|(call, _)| call.wait_until_run());
    }

    /// Takes the oldest call if it has run.
    pub fn next_that_ran(&mut self) -> Option<RunCall> {
        let (call, at_ns) = self.calls.front_mut()?;
        let ran = (call.try_outcome()?, *at_ns);
        self.calls.pop_front();
        Some(ran)
    }
}
