//! The waker of a future that waits for the log.

use crate::lane::Lane;
use crate::log::Log;
use crate::needs::is_met;
use std::task::Waker;

/// A waker that is parked at a slot of the frontier, and what it waits for. It is withdrawn when
/// another one takes its place and when this is dropped, so that no more are parked than there are
/// futures that wait.
#[derive(Debug, Default)]
pub(crate) struct ParkedWaker(Option<Box<Place>>);

#[derive(Debug)]
struct Place {
    log: Log,
    lane: Lane,
    number: u64,
    key: u64,
    /// Of the waker that is parked. No clone of it is kept here: the task may own this place, and
    /// would keep itself. While a waker is parked the frontier has it, so no other one has its
    /// identity.
    identity: (usize, usize),
}

/// Two wakers of one identity wake the same task, see [`Waker::will_wake`].
fn identity(waker: &Waker) -> (usize, usize) {
    (waker.data().addr(), std::ptr::from_ref(waker.vtable()).addr())
}

impl ParkedWaker {
    /// As [`Log::register`], unless a waker of the same task is registered for the same. That one
    /// is gone only if what it waits for has been reached, or the log has stopped.
    pub fn register(&mut self, log: &Log, lane: Lane, number: u64, waker: &Waker) {
        if let Some(place) = &self.0
            && (place.lane, place.number) == (lane, number)
            && place.identity == identity(waker)
        {
            return;
        }
        self.withdraw();
        let parked = waker.clone();
        let identity = identity(&parked);
        let key = log.register(lane, number, parked);
        self.0 = Some(Box::new(Place { log: log.clone(), lane, number, key, identity }));
    }

    /// The number for which a waker of the same task is still parked.
    pub fn parked_for(&self, waker: &Waker) -> Option<u64> {
        let place = self.0.as_deref()?;
        (!place.is_reached() && place.identity == identity(waker)).then_some(place.number)
    }

    /// Ends the waiting.
    pub fn withdraw(&mut self) {
        let Some(place) = self.0.take() else { return };
        // What is reached has been taken away, or is being woken.
        if !place.is_reached() {
            place.log.withdraw(place.lane, place.number, place.key);
        }
    }
}

impl Place {
    fn is_reached(&self) -> bool {
        is_met(self.log.frontier().at(self.lane), self.number)
    }
}

impl Drop for ParkedWaker {
    fn drop(&mut self) {
        self.withdraw();
    }
}
