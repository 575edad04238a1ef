//! Breaks the rules by which a candidate measures time: each broken rule lets a candidate take the
//! lease before its holder has stopped to answer.
#![allow(missing_docs)]

use hyades_platform::clock;
use hyades_platform::mutation::{self, Mutation};
use hyades_replication::lease::{self, Holder, Lease};
use hyades_replication::lease_watch::LeaseWatch;
use hyades_replication::service::{Question, Revision};
use hyades_replication::simulated::{Faults, SimulatedLog};
use hyades_replication::{LogService, Reply, Request, RequestId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// How long the lease lasts. A candidate adds a tenth of the term at most.
const TERM: Duration = Duration::from_secs(3);

/// A log service that cannot always be reached.
#[derive(Debug)]
struct Reachable {
    log: SimulatedLog,
    is_cut: AtomicBool,
}

impl LogService for Reachable {
    fn max_message_bytes(&self) -> usize {
        self.log.max_message_bytes()
    }

    fn begin(&self, request: Request) -> RequestId {
        self.log.begin(request)
    }

    fn answer(&self, request: RequestId, wait: bool) -> Option<Reply> {
        let reply = self.log.answer(request, wait);
        if self.is_cut.load(Ordering::Relaxed) { Some(Reply::Silence) } else { reply }
    }

    fn broadcast(&self, message: Vec<u8>) {
        self.log.broadcast(message);
    }

    fn listen(&self) -> Receiver<Vec<u8>> {
        self.log.listen()
    }

    fn questions(&self, node: &str) -> Receiver<Question> {
        self.log.questions(node)
    }
}

fn holder(node: &str) -> Holder {
    Holder { node: node.into(), address: "h:1".into(), place: format!("place of {node}") }
}

/// Whether a candidate takes a lease that is not renewed. Each look has a sending, an arrival of
/// the answer, both in seconds, and whether the service can be reached.
fn takes(looks: &[(f64, f64, bool)]) -> bool {
    let at = |seconds: f64| clock::simulate(Some(1_000_000_000 + (seconds * 1e9) as u64));
    at(0.0);
    let log = SimulatedLog::new(1, 1, Faults::default());
    let service = Arc::new(Reachable { log, is_cut: AtomicBool::new(false) });
    let held = Lease::new(&[1; 16], 1, &holder("a"), 0);
    lease::take(&*service, Revision::NONE, &held).unwrap().unwrap();
    let mut watch = LeaseWatch::new(service.clone(), TERM);
    let mut is_taken = false;
    for &(sent, answered, is_reached) in looks {
        service.is_cut.store(!is_reached, Ordering::Relaxed);
        for time in [sent, answered] {
            at(time);
            watch.step().unwrap();
        }
        is_taken |= watch.may_take(&holder("b")).is_some();
    }
    clock::simulate(None);
    is_taken
}

/// Promise: a candidate counts time from the first answer, and anew after each look that fails. The
/// broken rule is global to the process, so all is in one test.
#[test]
fn broken_rules_of_time_are_found() {
    // Seven quick looks in 3.6 seconds, of which the fourth fails.
    let outage: Vec<_> = (0..7).map(|n| (0.6 * f64::from(n), 0.6 * f64::from(n), n != 3)).collect();
    // The first answer is late by 0.45 seconds; the last comes 3.4 seconds after the first look.
    let later = (0..6).map(|n| 0.9 + 0.5 * f64::from(n)).map(|second| (second, second, true));
    let late: Vec<_> = [(0.0, 0.45, true)].into_iter().chain(later).collect();
    for (rule, looks) in [(Mutation::TimerThroughOutage, outage), (Mutation::TimerFromLook, late)] {
        assert!(!takes(&looks), "{}: taken although the rule holds", rule.name());
        mutation::set(Some(rule));
        let is_taken = takes(&looks);
        mutation::set(None);
        assert!(is_taken, "{} goes unnoticed", rule.name());
    }
}
