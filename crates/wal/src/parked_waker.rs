//! The waker of a future waiting for the log.

use crate::lane::Lane;
use crate::log::Log;
use crate::needs::is_met;
use std::task::Waker;

/// A waker parked at a slot of the frontier with the awaited number, or at the lease of answers.
/// The waker is withdrawn on replacement and on drop, so at most a waker for each waiting future is
/// parked.
#[derive(Debug, Default)]
pub(crate) struct ParkedWaker(Option<Box<Place>>);

#[derive(Debug)]
struct Place {
    log: Log,
    at: ParkedAt,
    key: u64,
    /// The identity of the parked waker. No clone of the waker is kept here: the task may own the
    /// place, and would keep itself alive. The frontier holds a parked waker, so no different waker
    /// has its identity.
    identity: (usize, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParkedAt {
    Lane(Lane, u64),
    Lease,
}

/// Two wakers with the same identity wake the same task, see [`Waker::will_wake`].
fn identity(waker: &Waker) -> (usize, usize) {
    (waker.data().addr(), std::ptr::from_ref(waker.vtable()).addr())
}

impl ParkedWaker {
    /// As [`Log::register`], unless a waker of the same task is registered for the same number. A
    /// registered waker is gone only if the number has been reached, or the log has stopped.
    pub fn register(&mut self, log: &Log, lane: Lane, number: u64, waker: &Waker) {
        let at = ParkedAt::Lane(lane, number);
        if let Some(place) = &self.0
            && place.at == at
            && place.identity == identity(waker)
        {
            return;
        }
        self.replace(log, at, waker, |parked| log.register(lane, number, parked));
    }

    /// Parks the waker until the lease of answers is extended or ended, or the log stops. Always
    /// anew: an extension that came too late has taken the waker, too.
    pub fn register_to_answer(&mut self, log: &Log, waker: &Waker) {
        let park = |parked| log.frontier().park_to_answer(parked);
        self.replace(log, ParkedAt::Lease, waker, park);
    }

    fn replace(&mut self, log: &Log, at: ParkedAt, waker: &Waker, park: impl FnOnce(Waker) -> u64) {
        self.withdraw();
        let parked = waker.clone();
        let identity = identity(&parked);
        let key = park(parked);
        self.0 = Some(Box::new(Place { log: log.clone(), at, key, identity }));
    }

    /// Returns the number for which a waker of the same task is still parked.
    pub fn parked_for(&self, waker: &Waker) -> Option<u64> {
        let place = self.0.as_deref()?;
        let ParkedAt::Lane(_, number) = place.at else { return None };
        (!place.is_reached() && place.identity == identity(waker)).then_some(number)
    }

    /// Ends the waiting.
    pub fn withdraw(&mut self) {
        let Some(place) = self.0.take() else { return };
        match place.at {
            // A waker with a reached number has been taken away, or is being woken.
            ParkedAt::Lane(..) if place.is_reached() => {}
            ParkedAt::Lane(lane, number) => place.log.withdraw(lane, number, place.key),
            ParkedAt::Lease => place.log.frontier().withdraw_answer(place.key),
        }
    }
}

impl Place {
    fn is_reached(&self) -> bool {
        match self.at {
            ParkedAt::Lane(lane, number) => is_met(self.log.frontier().at(lane), number),
            ParkedAt::Lease => false,
        }
    }
}

impl Drop for ParkedWaker {
    fn drop(&mut self) {
        self.withdraw();
    }
}
