//! The waker of a future waiting for the log.

use crate::lane::Lane;
use crate::log::Log;
use crate::needs::is_met;
use std::task::Waker;

/// A waker parked at a slot of the frontier, and the awaited number. The waker is withdrawn on
/// replacement and on drop, so at most a waker for each waiting future is parked.
#[derive(Debug, Default)]
pub(crate) struct ParkedWaker(Option<Box<Place>>);

#[derive(Debug)]
struct Place {
    log: Log,
    lane: Lane,
    number: u64,
    key: u64,
    /// The identity of the parked waker. No clone of the waker is kept here: the task may own the
    /// place, and would keep itself alive. The frontier holds a parked waker, so no different waker
    /// has its identity.
    identity: (usize, usize),
}

/// Two wakers with the same identity wake the same task, see [`Waker::will_wake`].
fn identity(waker: &Waker) -> (usize, usize) {
    (waker.data().addr(), std::ptr::from_ref(waker.vtable()).addr())
}

impl ParkedWaker {
    /// As [`Log::register`], unless a waker of the same task is registered for the same number. A
    /// registered waker is gone only if the number has been reached, or the log has stopped.
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

    /// Returns the number for which a waker of the same task is still parked.
    pub fn parked_for(&self, waker: &Waker) -> Option<u64> {
        let place = self.0.as_deref()?;
        (!place.is_reached() && place.identity == identity(waker)).then_some(place.number)
    }

    /// Ends the waiting.
    pub fn withdraw(&mut self) {
        let Some(place) = self.0.take() else { return };
        // A waker with a reached number has been taken away, or is being woken.
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
