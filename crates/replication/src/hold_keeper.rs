//! Keeps a member's place in the key `holds`, and purges the lanes as the primary.
//!
//! Nothing here waits: the thread of a primary has a lease to keep.

use crate::holds::{self, Holds, KEY, MemberNeeds, TooLate};
use crate::keys;
use crate::lane_place::LanePlace;
use crate::service::{LogService, Place, Reply, Request, RequestId, Revision};
use hyades_platform::clock;
use hyades_wal::RemoteEnded;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How soon the key is asked for again after silence.
const AGAIN_NS: u64 = 50_000_000;
/// A member states a place again that is the same after as many intervals, or before it would be
/// forgotten.
const SAME_INTERVALS: u64 = 12;

/// A member that joins loses its hold if the hold was not stated for as long.
const HOLD_NS: u64 = 600_000_000_000;
/// A member that joins states its hold again after as long.
pub(crate) const HOLD_AGAIN_NS: u64 = HOLD_NS / 10;

/// How often a member states its place, and when others are forgotten.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldLimits {
    pub interval: Duration,
    /// A member whose statement is as old loses its place.
    pub forget_after: Duration,
    /// A member that lacks more of the log loses its place.
    pub log_bytes: u64,
}

/// What a keeper has under way.
#[derive(Debug)]
enum HoldRequest {
    Nothing,
    Look(RequestId),
    Put(RequestId, Box<Holds>),
}

/// The purge of a lane.
#[derive(Clone, Copy, Debug, Default)]
struct LanePurge {
    under_way: Option<(RequestId, u64)>,
    done: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct HoldKeeper {
    service: Arc<dyn LogService>,
    node: String,
    database: [u8; 16],
    interval_ns: u64,
    forget_ns: u64,
    log_bytes: u64,
    /// Whether the member is the primary.
    purges: bool,
    under_way: HoldRequest,
    due_ns: u64,
    /// When a statement was stored last.
    stored_ns: u64,
    /// The newest value that is known.
    newest: Option<Holds>,
    purge: Vec<LanePurge>,
    /// By other node, the number of the last statement seen, and since when.
    heard: BTreeMap<String, (u64, u64)>,
}

impl HoldKeeper {
    /// Keeps the place of a node's member; `purges`: and purges the lanes.
    pub fn new(
        service: Arc<dyn LogService>,
        (node, database): (&str, [u8; 16]),
        limits: HoldLimits,
        purges: bool,
    ) -> HoldKeeper {
        HoldKeeper {
            service,
            node: node.to_owned(),
            database,
            interval_ns: limits.interval.as_nanos() as u64,
            forget_ns: limits.forget_after.as_nanos() as u64,
            log_bytes: limits.log_bytes,
            purges,
            under_way: HoldRequest::Nothing,
            due_ns: 0,
            stored_ns: 0,
            newest: None,
            purge: Vec::new(),
            heard: BTreeMap::new(),
        }
    }

    /// The newest value of the key that is known.
    pub fn newest(&self) -> Option<&Holds> {
        self.newest.as_ref()
    }

    /// States the place when a statement is due, and takes answers. `places`: by lane, what the
    /// files reach after any crash; empty if not known yet. False: the member has lost its place,
    /// and is too late for another.
    ///
    /// # Errors
    /// The service holds something else.
    pub fn step(&mut self, places: impl FnOnce() -> Vec<LanePlace>) -> Result<bool, RemoteEnded> {
        self.step_purges()?;
        match std::mem::replace(&mut self.under_way, HoldRequest::Nothing) {
            HoldRequest::Nothing => {
                let now = clock::monotonic_ns();
                if now >= self.due_ns {
                    self.due_ns = now + self.interval_ns;
                    self.look();
                }
            }
            HoldRequest::Look(request) => match self.service.answer(request, false) {
                None => self.under_way = HoldRequest::Look(request),
                Some(Reply::Value(value)) => {
                    let found = holds::decoded(value)?;
                    return Ok(self.saw(found, &places()).is_ok());
                }
                Some(Reply::Gone(what)) => return Err(RemoteEnded::Different(what)),
                Some(_) => self.due_ns = clock::monotonic_ns() + AGAIN_NS,
            },
            HoldRequest::Put(request, value) => match self.service.answer(request, false) {
                None => self.under_way = HoldRequest::Put(request, value),
                Some(Reply::Put(_)) => {
                    self.stored_ns = clock::monotonic_ns();
                    self.newest = Some(*value);
                }
                Some(Reply::Gone(what)) => return Err(RemoteEnded::Different(what)),
                // Refused, or not known: what was stored is seen.
                Some(_) => self.look(),
            },
        }
        Ok(true)
    }

    fn look(&mut self) {
        let request = self.service.begin(Request::Get { key: KEY.to_owned() });
        self.under_way = HoldRequest::Look(request);
    }

    /// Changes what a look has shown.
    fn saw(
        &mut self,
        found: Option<(Revision, Holds)>,
        places: &[LanePlace],
    ) -> Result<(), TooLate> {
        if places.is_empty() {
            return Ok(());
        }
        let now = clock::monotonic_ns();
        let (seen, found) = match found {
            Some((revision, holds)) => (revision, holds),
            None => (Revision::NONE, Holds::new(&self.database, places.len())),
        };
        let mut next = found.clone();
        let is_same = next.members.get(&self.node).is_some_and(|own| own.places == places);
        let late_ns = (self.interval_ns * SAME_INTERVALS).min(self.forget_ns / 4);
        let is_late = now.saturating_sub(self.stored_ns) >= late_ns;
        if !is_same || is_late {
            let stated = next.state(&self.node, places);
            // The files of a primary have all that was purged by members that forgot the primary.
            if stated.is_err() && !self.purges {
                self.newest = Some(found);
                return Err(TooLate);
            }
        }
        if self.purges {
            self.forget(&mut next, places, now);
            next.raise(&self.node);
        }
        if next == found {
            self.newest = Some(found);
            return Ok(());
        }
        let request = self.service.begin(keys::put(KEY, seen, keys::encode(&next)));
        self.under_way = HoldRequest::Put(request, Box::new(next));
        Ok(())
    }

    /// Takes the places of members that have stated nothing for long, or lack too much of the log,
    /// which this member has up to `places`.
    fn forget(&mut self, holds: &mut Holds, places: &[LanePlace], now: u64) {
        let (own, heard, forget_ns) = (&self.node, &mut self.heard, self.forget_ns);
        let lacks = |needs: &MemberNeeds| {
            let lanes = needs.places.iter().zip(places);
            lanes.map(|(theirs, own)| own.end.saturating_sub(theirs.end)).sum::<u64>()
        };
        heard.retain(|node, _| holds.members.contains_key(node));
        holds.members.retain(|node, needs| {
            let known = heard.entry(node.clone()).or_insert((needs.stated, now));
            if known.0 != needs.stated {
                *known = (needs.stated, now);
            }
            let silent_ns = now.saturating_sub(known.1);
            let limit_ns = if needs.has_place() { forget_ns } else { forget_ns.min(HOLD_NS) };
            node == own || silent_ns < limit_ns && lacks(needs) <= self.log_bytes
        });
    }

    /// Purges the lanes up to what is agreed.
    fn step_purges(&mut self) -> Result<(), RemoteEnded> {
        let Some(newest) = self.newest.as_ref().filter(|_| self.purges) else { return Ok(()) };
        self.purge.resize(newest.purged.len(), LanePurge::default());
        for (lane, (purge, &through)) in self.purge.iter_mut().zip(&newest.purged).enumerate() {
            match purge.under_way.take() {
                None if purge.done < through => {
                    let asked = Request::Purge { lane, through: Place(through) };
                    purge.under_way = Some((self.service.begin(asked), through));
                }
                None => {}
                Some((request, asked)) => match self.service.answer(request, false) {
                    None => purge.under_way = Some((request, asked)),
                    Some(Reply::Purged) => purge.done = purge.done.max(asked),
                    Some(Reply::Gone(what)) => return Err(RemoteEnded::Different(what)),
                    Some(_) => {}
                },
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::{Faults, SimulatedLog};
    use std::cell::Cell;

    fn places(place: u64, end: u64) -> Vec<LanePlace> {
        vec![LanePlace { incarnation: 1, place, next: place, chain: 0, end }]
    }

    #[test]
    fn members_that_lack_too_much_or_are_silent_lose_their_places() {
        let service: Arc<dyn LogService> = Arc::new(SimulatedLog::new(1, 1, Faults::default()));
        let limits = HoldLimits {
            interval: Duration::from_secs(1),
            forget_after: Duration::from_secs(3600),
            log_bytes: 1000,
        };
        let now = Cell::new(1_000_000_000);
        let keep = |keeper: &mut HoldKeeper, place, end| {
            for _ in 0..10 {
                now.set(now.get() + limits.interval.as_nanos() as u64);
                clock::simulate(Some(now.get()));
                keeper.step(|| places(place, end)).unwrap();
            }
            keeper.newest().unwrap().clone()
        };
        let keeper =
            |node, purges| HoldKeeper::new(service.clone(), (node, [1; 16]), limits, purges);
        let (mut primary, mut standby) = (keeper("a", true), keeper("b", false));
        keep(&mut standby, 3, 500);
        let holds = keep(&mut primary, 9, 1500);
        assert_eq!((holds.purged, holds.members.len()), (vec![3], 2));
        // The standby is there, and too far behind.
        keep(&mut standby, 4, 600);
        let holds = keep(&mut primary, 12, 1700);
        assert_eq!((holds.purged, holds.members.len()), (vec![3], 1), "no other has files");
        keep(&mut standby, 11, 1600);
        let holds = holds::change(&*service, (&[1; 16], 1), |holds| {
            holds.hold("c");
            holds.clone()
        });
        assert_eq!(holds.unwrap().members.len(), 3);
        assert_eq!(keep(&mut primary, 12, 1700).members.len(), 3);
        now.set(now.get() + HOLD_NS);
        keep(&mut standby, 11, 1600);
        let holds = keep(&mut primary, 12, 1700);
        assert_eq!((holds.purged, holds.members.len()), (vec![11], 2), "the hold is forgotten");
        clock::simulate(None);
    }
}
