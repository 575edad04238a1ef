//! How a member begins: with its own files if the lanes reach back to them, or else with a base of
//! another member.
//!
//! Both are decided by one change of the key [`holds`]: the place that the files reach is stated
//! before the first read, or a hold keeps what is there until a base has come.

use crate::begin::Begin;
use crate::holds::{self, Holds};
use crate::service::LogService;
use crate::standby::{ReadFrom, StandbyError};
use hyades_wal::Mirror;

/// With what a member begins.
pub(super) enum TakenPlace {
    /// With its files, from these places on.
    Place(Box<ReadFrom>),
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
        None => TakenPlace::Place(Box::new(from)),
        Some(holds) => TakenPlace::Hold(holds),
    })
}
