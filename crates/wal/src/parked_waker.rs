//! The waker of a future that waits for the log.

use crate::lane::Lane;
use crate::log::Log;
use std::task::Waker;

/// The waker of a future, and what it waits for: polled again it is not registered twice.
#[derive(Debug, Default)]
pub struct ParkedWaker(Option<(Lane, u64, Waker)>);

impl ParkedWaker {
    /// As [`Log::register`], unless a waker of the same task is registered for the same. That one
    /// is gone only if what it waits for has been reached, or the log has stopped.
    pub fn register(&mut self, log: &Log, lane: Lane, number: u64, waker: &Waker) {
        if let Some((of, wanted, parked)) = &self.0
            && (*of, *wanted) == (lane, number)
            && parked.will_wake(waker)
        {
            return;
        }
        self.0 = Some((lane, number, waker.clone()));
        log.register(lane, number, waker.clone());
    }
}
