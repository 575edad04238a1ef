//! A member that joins with a base of another member, and gives bases to others.

use super::{AGAIN_NS, MemberLoop, MemberState, Role};
use crate::base_fetch::{BaseFetch, Fetched};
use crate::hold_keeper::HOLD_AGAIN_NS;
use crate::holds::{self, Holds};
use crate::lease;
use crate::standby::StandbyError;
use hyades_platform::clock;
use hyades_wal::{Error, RemoteEnded};
use std::time::Duration;

impl MemberLoop {
    /// Begins to fetch a base from a member with a place: from standbys first.
    ///
    /// # Errors
    /// The service holds something else, or does not answer.
    pub(super) fn begin_fetch(
        &mut self,
        (database, lanes): ([u8; 16], usize),
        holds: &Holds,
    ) -> Result<(), RemoteEnded> {
        let holder = lease::newest(&*self.service)?.map(|(_, lease)| lease.node);
        let members = holds.members.iter();
        let there = members.filter(|(node, needs)| needs.has_place() && **node != self.holder.node);
        let mut there: Vec<&String> = there.map(|(node, _)| node).collect();
        there.sort_by_key(|node| Some(*node) == holder.as_ref());
        if there.is_empty() {
            self.reason =
                "the lanes do not reach back to this member's files, and no other member \
                           has files to begin with"
                    .to_owned();
            return Ok(());
        }
        let node = there[self.failed_fetches % there.len()];
        self.reason = format!("a base comes from node {node}");
        let options = (self.declare)().mirror_options(self.settings.dirs.clone(), lanes);
        let fetch = BaseFetch::begin(self.service.clone(), node, database, options);
        self.holds_again_ns = clock::monotonic_ns() + HOLD_AGAIN_NS;
        self.state = MemberState::Fetching(Box::new(fetch));
        Ok(())
    }

    /// Goes on with a base.
    pub(super) fn fetch(&mut self, wait: Duration) -> Result<Option<Role>, StandbyError> {
        self.watch.step()?;
        let MemberState::Fetching(fetch) = &mut self.state else { return Ok(None) };
        if clock::monotonic_ns() >= self.holds_again_ns {
            holds::hold_again(&*self.service, &self.holder.node)?;
            self.holds_again_ns = clock::monotonic_ns() + HOLD_AGAIN_NS;
        }
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

    /// A member that does not find the messages that follow joins anew if the key states no place
    /// of the member: then the messages may have been purged.
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
                Ok(Some(self.leave("the member was silent for long, and is forgotten".to_owned())))
            }
            // Not known: the next step meets the same lanes.
            Err(RemoteEnded::Silent) => Err(RemoteEnded::Silent.into()),
            _ => result,
        }
    }
}
