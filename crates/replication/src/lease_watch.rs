//! The lease as a candidate sees it: whether the holder is silent for as long as the lease lasts.

use crate::lease::{Holder, KEY, Lease};
use crate::service::{LogService, Reply, Request, RequestId, Revision};
use hyades_platform::{broken, clock};
use hyades_wal::RemoteEnded;
use std::sync::Arc;
use std::time::Duration;

/// The lease as a candidate sees it: looks again and again, without waiting.
#[derive(Debug)]
pub struct LeaseWatch {
    service: Arc<dyn LogService>,
    term_ns: u64,
    under_way: Option<RequestId>,
    looked_ns: u64,
    newest: Option<(Revision, Lease)>,
    /// The arrivals of the first and of the last look that showed the revision of `newest`, without
    /// a look between that failed; `None` after one.
    unchanged: Option<(u64, u64)>,
    /// Added to L: so candidates seldom draw at once.
    patience_ns: u64,
}

impl LeaseWatch {
    /// Watches the lease. `term` is L.
    pub fn new(service: Arc<dyn LogService>, term: Duration) -> LeaseWatch {
        let term_ns = term.as_nanos() as u64;
        LeaseWatch {
            service,
            term_ns,
            under_way: None,
            looked_ns: 0,
            newest: None,
            unchanged: None,
            patience_ns: fastrand::u64(..=term_ns / 10),
        }
    }

    /// The newest lease seen.
    pub fn newest(&self) -> Option<&(Revision, Lease)> {
        self.newest.as_ref()
    }

    /// Whether the service has answered a look within L.
    pub fn is_answered(&self) -> bool {
        let now = clock::boot_ns();
        self.unchanged.is_some_and(|(_, last)| now.saturating_sub(last) < self.term_ns)
    }

    /// Makes a look due: the holder may have given the lease away.
    pub fn hurry(&mut self) {
        self.looked_ns = 0;
    }

    /// Begins a look when one is due, and takes the answer.
    ///
    /// # Errors
    /// The service holds something else.
    pub fn step(&mut self) -> Result<(), RemoteEnded> {
        let now = clock::boot_ns();
        let Some(request) = self.under_way else {
            if now.saturating_sub(self.looked_ns) >= self.term_ns / 6 || self.newest.is_none() {
                self.looked_ns = now;
                let look = Request::Get { key: KEY.to_owned() };
                self.under_way = Some(self.service.begin(look));
            }
            return Ok(());
        };
        let Some(reply) = self.service.answer(request, false) else { return Ok(()) };
        self.under_way = None;
        match reply {
            Reply::Value(None) => self.unchanged = None,
            Reply::Value(Some((revision, value))) => {
                self.saw(clock::boot_ns(), revision, Lease::decode(&value)?);
            }
            Reply::Gone(what) => return Err(RemoteEnded::Different(what)),
            _ if broken!(TimerThroughOutage) => {}
            _ => self.unchanged = None,
        }
        Ok(())
    }

    fn saw(&mut self, now: u64, revision: Revision, lease: Lease) {
        let is_same = self.newest.as_ref().is_some_and(|(known, _)| *known == revision);
        let first = match self.unchanged {
            // A process that was stopped meanwhile begins anew.
            Some((first, last)) if is_same && now - last <= self.term_ns / 2 => first,
            Some((first, _)) if is_same && broken!(TimerThroughOutage) => first,
            _ if broken!(TimerFromLook) => self.looked_ns,
            _ => now,
        };
        self.unchanged = Some((first, now));
        self.newest = Some((revision, lease));
    }

    /// The revision of the lease, if this process may take the lease.
    pub fn may_take(&self, holder: &Holder) -> Option<Revision> {
        let (revision, lease) = self.newest.as_ref()?;
        let (first, last) = self.unchanged?;
        let is_own = lease.node == holder.node && lease.place == holder.place;
        let waits = match (lease.released, &lease.successor) {
            (true, Some(node)) if *node == holder.node => 0,
            // The holder has given the lease away: others first.
            (true, _) if is_own => 2 * self.term_ns,
            (true, Some(_)) => self.term_ns / 2,
            (true, None) => self.patience_ns,
            // The process that had the lease has ended: this process has its directory.
            (false, _) if is_own => 0,
            (false, _) => self.term_ns + self.patience_ns,
        };
        (last - first >= waits).then_some(*revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease_keeper::tests::{TERM, at, held, holder};
    use crate::simulated::{Faults, SimulatedLog};

    /// Looks if a look is due, and takes the answer.
    fn look(watch: &mut LeaseWatch) {
        watch.step().unwrap();
        watch.step().unwrap();
    }

    #[test]
    fn a_candidate_waits_for_the_term_from_the_first_answer() {
        at(0.0);
        let service = Arc::new(SimulatedLog::new(1, 1, Faults::default()));
        let (mut keeper, _answers) = held(&service, 1);
        let (mut watch, own) = (LeaseWatch::new(service.clone(), TERM), holder("b"));
        let look_at = |watch: &mut LeaseWatch, second: f64| {
            at(second);
            look(watch);
            watch.may_take(&own)
        };
        for tenth in 0..31 {
            assert_eq!(look_at(&mut watch, f64::from(tenth) / 10.0 * 0.999), None, "{tenth}");
        }
        // A renewal begins the time anew.
        keeper.step(0, &[], false).unwrap();
        assert!(keeper.step(0, &[], false).unwrap());
        for tenth in 31..61 {
            assert_eq!(look_at(&mut watch, f64::from(tenth) / 10.0), None, "{tenth}");
        }
        // At the latest a tenth later the lease may be taken, unless there was a pause.
        for tenth in 61..71 {
            look_at(&mut watch, f64::from(tenth) / 10.0);
        }
        assert!(watch.may_take(&own).is_some());
        assert_eq!(look_at(&mut watch, 9.0), None, "the process was stopped meanwhile");
        // The holder's own directory: its process has ended.
        assert!(watch.may_take(&holder("a")).is_some());
        // A lease that is given away, to one or to all.
        assert!(keeper.release(Some("c"), &[], TERM));
        look_at(&mut watch, 9.6);
        assert_eq!((watch.may_take(&own), watch.may_take(&holder("a"))), (None, None));
        assert!(watch.may_take(&holder("c")).is_some());
        clock::simulate(None);
    }

    #[test]
    fn a_candidate_begins_anew_after_a_look_that_fails() {
        at(0.0);
        let service = Arc::new(SimulatedLog::new(1, 1, Faults::default()));
        let _held = held(&service, 1);
        let cut =
            Arc::new(SimulatedLog::new(1, 1, Faults { lost_requests: 1.0, ..Faults::default() }));
        let (mut watch, own) = (LeaseWatch::new(service.clone(), TERM), holder("b"));
        for tenth in 0..60 {
            at(f64::from(tenth) / 10.0);
            watch.service = if tenth == 25 { cut.clone() } else { service.clone() };
            look(&mut watch);
            assert_eq!(watch.may_take(&own), None, "{tenth}");
        }
        clock::simulate(None);
    }
}
