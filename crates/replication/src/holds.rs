//! The key `holds`: what members need of the lanes, and up to where the lanes may be purged.
//!
//! **The rule.** The key states, for each member, the places that its files reach after any crash,
//! or a *hold* of a member that joins; and `purged`, up to where the lanes may be purged. Each
//! change is a compare-and-set of the whole key, and none makes a place or a hold that is below
//! `purged`. So what may be purged is decided with what is needed, in one step: a purge carried out
//! at any later time, by whatever process, takes no message that a member needs.
//!
//! `purged` is raised up to the lowest of all places and holds, if the member that raises has a
//! place, and another one: the files of a member with a place are a base for others, and a machine
//! that burns leaves the files of another.

use crate::hex::{hex, unhex};
use crate::keys::{self, FORMAT, different};
use crate::lane_place::LanePlace;
use crate::service::{LogService, Patience, Reply, Revision, Versioned};
use hyades_platform::broken;
use hyades_wal::RemoteEnded;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The name of the key.
pub(crate) const KEY: &str = "holds";
/// How long a change is tried.
const PATIENCE: Duration = Duration::from_secs(3);

/// The value of the key `holds`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holds {
    format: u32,
    /// The database's uuid, in hexadecimal digits.
    pub database: String,
    /// By lane, the place of the last message that may be purged; 0: none.
    pub purged: Vec<u64>,
    /// By node.
    pub members: BTreeMap<String, MemberNeeds>,
}

/// What a member needs of the lanes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberNeeds {
    /// Counts the statements of the member.
    pub stated: u64,
    /// By lane, the place behind which the member needs the messages.
    pub behind: Vec<u64>,
    /// The same places, as the member may read on from them; empty for a hold.
    pub places: Vec<LanePlace>,
}

impl MemberNeeds {
    /// Whether the member's files reach the places. Otherwise the member is joining.
    pub fn has_place(&self) -> bool {
        !self.places.is_empty()
    }
}

/// A lane was purged above what a member has: the member joins anew, with a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLate;

impl Holds {
    /// Of a database with lanes of which nothing was purged, and without members.
    pub(crate) fn new(database: &[u8; 16], lanes: usize) -> Holds {
        let (format, database) = (FORMAT, hex(database));
        Holds { format, database, purged: vec![0; lanes], members: BTreeMap::new() }
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Holds, RemoteEnded> {
        let holds: Holds = keys::decode(KEY, value)?;
        let is_below = |needs: &MemberNeeds| {
            let mut lanes = needs.behind.iter().zip(&holds.purged);
            needs.behind.len() != holds.purged.len() || lanes.any(|(needs, purged)| needs < purged)
        };
        match holds.members.iter().find(|(_, needs)| is_below(needs)) {
            None => Ok(holds),
            Some((node, needs)) => Err(different(format!(
                "key {KEY:?} of the log service lets lanes be purged up to {:?}, and node {node:?} \
                 needs what is behind {:?}",
                holds.purged, needs.behind
            ))),
        }
    }

    /// Whether any message may have been purged.
    pub(crate) fn has_purged(&self) -> bool {
        self.purged.iter().any(|purged| *purged > 0)
    }

    /// Gives a member a place: its files reach `places` after any crash.
    pub(crate) fn state(&mut self, node: &str, places: &[LanePlace]) -> Result<(), TooLate> {
        let behind: Vec<u64> = places.iter().map(|place| place.place).collect();
        let is_there = behind.iter().zip(&self.purged).all(|(needs, purged)| needs >= purged);
        if behind.len() != self.purged.len() || !is_there && !broken!(HoldAfterBase) {
            return Err(TooLate);
        }
        self.set(node, behind, places.to_vec());
        Ok(())
    }

    /// Has a member that joins hold what is there now.
    pub(crate) fn hold(&mut self, node: &str) {
        if broken!(HoldAfterBase) {
            self.members.remove(node);
            return;
        }
        self.set(node, self.purged.clone(), Vec::new());
    }

    fn set(&mut self, node: &str, behind: Vec<u64>, places: Vec<LanePlace>) {
        let stated = self.members.get(node).map_or(0, |needs| needs.stated) + 1;
        self.members.insert(node.to_owned(), MemberNeeds { stated, behind, places });
    }

    /// Raises what may be purged, as far as the members allow; `own` is the node that asks.
    pub(crate) fn raise(&mut self, own: &str) {
        let has_place = |(_, needs): &(&String, &MemberNeeds)| needs.has_place();
        let (mut copies, mut has_own) = (0, false);
        for (node, _) in self.members.iter().filter(has_place) {
            (copies, has_own) = (copies + 1, has_own || node == own);
        }
        if !has_own || copies < 2 && !broken!(PurgePastBase) {
            return;
        }
        let counts = |node: &str| node == own || !broken!(PurgePastBase);
        for (lane, purged) in self.purged.iter_mut().enumerate() {
            let members = self.members.iter().filter(|(node, _)| counts(node));
            let lowest = members.map(|(_, needs)| needs.behind[lane]).min();
            *purged = lowest.unwrap_or(0).max(*purged);
        }
    }
}

/// Reads the key, and waits for the service. `None`: no member has stated anything.
///
/// # Errors
/// The service holds something else.
pub(crate) fn newest(service: &dyn LogService) -> Result<Option<(Revision, Holds)>, RemoteEnded> {
    decoded(keys::get(service, KEY)?)
}

/// A value of the key.
pub(crate) fn decoded(value: Option<Versioned>) -> Result<Option<(Revision, Holds)>, RemoteEnded> {
    value.map(|(revision, value)| Ok((revision, Holds::decode(&value)?))).transpose()
}

/// Changes the key, and waits for the service: `change` is called with the newest value until a
/// change is stored. Returns what `change` returned last.
///
/// # Errors
/// The service holds something else, or does not answer.
pub(crate) fn change<T>(
    service: &dyn LogService,
    (database, lanes): (&[u8; 16], usize),
    mut change: impl FnMut(&mut Holds) -> T,
) -> Result<T, RemoteEnded> {
    let patience = Patience::new(PATIENCE);
    loop {
        patience.check()?;
        let (seen, mut holds) = match newest(service)? {
            Some((revision, holds)) => (revision, holds),
            None => (Revision::NONE, Holds::new(database, lanes)),
        };
        let changed = change(&mut holds);
        match service.ask(keys::put(KEY, seen, keys::encode(&holds))) {
            Reply::Put(_) => return Ok(changed),
            Reply::Gone(what) => return Err(RemoteEnded::Different(what)),
            // Refused; or not known, and then a change that was applied is made again.
            _ => {}
        }
    }
}

/// Changes the key, if a member has stated anything.
fn change_stated<T>(
    service: &dyn LogService,
    change_one: impl FnMut(&mut Holds) -> T,
) -> Result<Option<T>, RemoteEnded> {
    let Some((_, known)) = newest(service)? else { return Ok(None) };
    let database = unhex(&known.database).and_then(|uuid| uuid.try_into().ok());
    let database = database
        .ok_or_else(|| different(format!("key {KEY:?} of the log service names no database")))?;
    change(service, (&database, known.purged.len()), change_one).map(Some)
}

/// Takes the place of a node's member: the lanes are kept for the member no longer. Returns whether
/// the node had one. A member that runs takes a place again.
///
/// # Errors
/// The service holds something else, or does not answer.
pub fn remove(service: &dyn LogService, node: &str) -> Result<bool, RemoteEnded> {
    let removed = change_stated(service, |holds| holds.members.remove(node).is_some())?;
    Ok(removed == Some(true))
}

/// Has a node's member, which fetches a base, hold the lanes for longer.
pub(crate) fn hold_again(service: &dyn LogService, node: &str) -> Result<(), RemoteEnded> {
    change_stated(service, |holds| holds.hold(node)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(at: [u64; 2]) -> Vec<LanePlace> {
        let place = |place| LanePlace { incarnation: 1, place, next: 0, chain: 0, end: 0 };
        at.map(place).to_vec()
    }

    #[test]
    fn lanes_are_purged_up_to_what_all_members_have_if_another_has_a_place() {
        let mut holds = Holds::new(&[1; 16], 2);
        holds.state("a", &places([5, 9])).unwrap();
        holds.raise("a");
        assert!(!holds.has_purged(), "the files of the purger alone are no copy");
        holds.hold("b");
        holds.raise("a");
        assert!(!holds.has_purged(), "a member that joins has no files");
        holds.state("b", &places([7, 3])).unwrap();
        holds.raise("a");
        assert_eq!(holds.purged, [5, 3]);
        holds.hold("c");
        holds.state("a", &places([8, 9])).unwrap();
        holds.raise("a");
        assert_eq!(holds.purged, [5, 3], "a hold stops the purge where the purge is");
        assert_eq!(holds.state("d", &places([4, 8])), Err(TooLate));
        holds.state("c", &places([5, 3])).unwrap();
        // A member that was forgotten lets nothing be purged.
        let mut forgotten = holds.clone();
        forgotten.members.remove("a");
        forgotten.raise("a");
        assert_eq!(forgotten.purged, [5, 3]);
        // A member that has lost its files goes back, and no purge does.
        holds.hold("a");
        assert_eq!(holds.members["a"].behind, [5, 3]);
        assert_eq!(Holds::decode(&keys::encode(&holds)), Ok(holds.clone()));
        holds.purged[0] = 6;
        assert!(Holds::decode(&keys::encode(&holds)).is_err(), "a place below what is purged");
    }
}
