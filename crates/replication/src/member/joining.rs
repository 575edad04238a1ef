//! How a member begins: it goes on with its own files, if the lanes reach back to them, or else with
//! a base of another member.
//!
//! Both are decided by one change of the key [`holds`]: the place that the files
//! reach is stated before the first read, or a hold that keeps what is there until a base has come.

use super::{AGAIN_NS, MemberLoop, MemberState, Role};
use crate::base_fetch::{BaseFetch, Fetched};
use crate::begin::Begin;
use crate::holds::{self, Holds};
use crate::service::LogService;
use crate::standby::{ReadFrom, StandbyError};
use hyades_platform::clock;
use hyades_wal::{Error, Mirror, RemoteEnded};
use std::time::Duration;

/// With what a member begins.
pub(super) enum TakenPlace {
    /// With its files, from these places on.
    Place(ReadFrom),
    /// With a base: the lanes are held.
    Hold(Box<Holds>),
}

/// Takes a place with the files of a mirror, or holds the lanes for a base.
pub(super) fn take_place(
    service: &dyn LogService,
    mirror: &Mirror,
    first: Begin,
    node: &str,
) -> Result<TakenPlace, StandbyError> {
    let database = first.database().expect("it was checked when it was read");
    let lanes = first.incarnation.dims.len();
    let (begins, needs_base) = (first.places(), first.needs_base);
    let is_new = mirror.manifest().incarnations.is_empty();
    let newest = holds::newest(service)?;
    let stated = newest.as_ref().and_then(|(_, holds)| holds.members.get(node));
    let stated = stated.map(|needs| &needs.places[..]);
    let from = ReadFrom::of_files(service, mirror, Some(first), stated)?;
    // The files of the founder, before its first incarnation has begun.
    let places = if from.places.is_empty() { begins } else { from.places.clone() };
    let changed = holds::change(service, (&database, lanes), |holds| {
        // New files begin with the first message of each lane.
        let is_missing = is_new && (needs_base || holds.has_purged());
        if is_missing || holds.state(node, &places).is_err() {
            holds.hold(node);
            return Some(Box::new(holds.clone()));
        }
        None
    })?;
    Ok(match changed {
        None => TakenPlace::Place(from),
        Some(holds) => TakenPlace::Hold(holds),
    })
}

impl MemberLoop {
    /// Begins to fetch a base from a member with a place: from standbys first.
    pub(super) fn begin_fetch(&mut self, database: [u8; 16], lanes: usize, holds: &Holds) {
        let holder = self.watch.newest().map(|(_, lease)| lease.node.clone());
        let members = holds.members.iter();
        let there = members.filter(|(node, needs)| needs.has_place() && **node != self.holder.node);
        let mut there: Vec<&String> = there.map(|(node, _)| node).collect();
        there.sort_by_key(|node| Some(*node) == holder.as_ref());
        if there.is_empty() {
            self.reason =
                "the lanes do not reach back to this member's files, and no other member \
                           has files to begin with"
                    .to_owned();
            return;
        }
        let node = there[self.failed_fetches % there.len()];
        self.reason = format!("a base comes from node {node}");
        let options = (self.declare)().mirror_options(self.settings.dirs.clone(), lanes);
        let fetch = BaseFetch::begin(self.service.clone(), node, database, options);
        self.state = MemberState::Fetching(Box::new(fetch));
    }

    /// Goes on with a base.
    pub(super) fn fetch(&mut self, wait: Duration) -> Result<Option<Role>, StandbyError> {
        self.watch.step()?;
        let MemberState::Fetching(fetch) = &mut self.state else { return Ok(None) };
        let node = fetch.node().to_owned();
        let again_ns = match fetch.step(wait) {
            Ok(Fetched::GoesOn) => return Ok(None),
            Ok(Fetched::Done) => {
                self.failed_fetches = 0;
                0
            }
            Ok(Fetched::Failed(why)) => {
                self.failed_fetches += 1;
                self.reason = format!("no base comes from node {node}: {why}");
                AGAIN_NS
            }
            Err(Error::InUse { path }) => {
                self.reason = format!("{} is in use: drop the database before", path.display());
                AGAIN_NS
            }
            Err(error) => return Err(error.into()),
        };
        self.state = MemberState::Joining { until_ns: clock::monotonic_ns() + again_ns };
        Ok(None)
    }

    /// Answers members that ask for a base.
    pub(super) fn give_bases(&mut self) {
        match &mut self.state {
            MemberState::Standby { standby, holds, .. } if holds.newest().is_some() => {
                self.bases.step(Some(standby.uuid()), || standby.base_files());
            }
            MemberState::Primary(primary) if primary.has_place() => {
                self.bases.step(Some(primary.uuid()), || primary.base_files());
            }
            _ => self.bases.step(None, || Ok(None)),
        }
    }

    /// A member that finds the lanes to be others than it has read joins anew, if its place was
    /// given up: then messages that it lacks may have been purged.
    pub(super) fn or_join_anew(
        &mut self,
        result: Result<Option<Role>, StandbyError>,
    ) -> Result<Option<Role>, StandbyError> {
        let Err(StandbyError::Service(RemoteEnded::Different(_))) = &result else { return result };
        let has_place = |holds: &Holds| {
            holds.members.get(&self.holder.node).is_some_and(|needs| needs.has_place())
        };
        match holds::newest(&*self.service) {
            Ok(Some((_, holds))) if !has_place(&holds) => {
                Ok(Some(self.leave("its place in the lanes was given up".to_owned())))
            }
            _ => result,
        }
    }
}
