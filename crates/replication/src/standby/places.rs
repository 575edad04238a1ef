//! Where the files of a standby are in the lanes: where the reading goes on, and what other members
//! are told.

use crate::begin::{self, Begin};
use crate::lane_place::LanePlace;
use crate::service::LogService;
use hyades_wal::{Dimension, Lsn, Mirror, RemoteEnded};
use std::collections::VecDeque;

/// Where a standby goes on with its files.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadFrom {
    /// The first incarnation that has begun in the log, if any.
    pub first: Option<Begin>,
    /// By lane, in the incarnation that the files go on with; empty if no lane has the incarnation.
    pub places: Vec<LanePlace>,
}

impl ReadFrom {
    /// The furthest places that are known of the newest incarnation in the files: its seals, what
    /// the manifest notes, and what the member has `stated`. Of new files, the places where the
    /// first incarnation begins.
    pub fn of_files(
        service: &dyn LogService,
        mirror: &Mirror,
        first: Option<Begin>,
        stated: Option<&[LanePlace]>,
    ) -> Result<ReadFrom, RemoteEnded> {
        let places = match mirror.manifest().newest() {
            None => first.as_ref().map_or_else(Vec::new, Begin::places),
            Some(newest) => match begin::read(service, newest.number)? {
                Some(begin) => furthest(mirror, &begin.places(), stated),
                None => Vec::new(),
            },
        };
        Ok(ReadFrom { first, places })
    }
}

fn furthest(mirror: &Mirror, seals: &[LanePlace], stated: Option<&[LanePlace]>) -> Vec<LanePlace> {
    let manifest = mirror.manifest();
    let notes = manifest.member.as_ref().map_or(&[][..], |member| &member.seen);
    let (received, dims) = (mirror.received(), manifest.newest().map_or(&[][..], |i| &i.dims));
    let lane = |(lane, (seal, dim)): (usize, (&LanePlace, &Dimension))| {
        let noted = notes.iter().filter(|seen| seen.stream == dim.stream && seen.end > dim.start);
        let noted = noted.map(|seen| LanePlace::behind(seal.incarnation, seen));
        let stated = stated.and_then(|stated| stated.get(lane)).copied();
        let stated = stated.filter(|stated| stated.incarnation == seal.incarnation);
        let known = noted.chain(stated).filter(|place| place.end <= received[lane]);
        known.chain([*seal]).max_by_key(|place| place.place).unwrap_or(*seal)
    };
    seals.iter().zip(dims).enumerate().map(lane).collect()
}

/// The places of a lane that files reach.
#[derive(Clone, Debug)]
pub(super) struct FilePlaces {
    /// Reached after any crash.
    proven: LanePlace,
    /// Of the messages taken since.
    waiting: VecDeque<LanePlace>,
}

impl FilePlaces {
    /// Files that reach a place after any crash.
    pub fn new(proven: LanePlace) -> FilePlaces {
        FilePlaces { proven, waiting: VecDeque::new() }
    }

    /// A message was taken.
    pub fn received(&mut self, place: LanePlace) {
        self.waiting.push_back(place);
    }

    /// The place reached with frames up to a position.
    pub fn proven(&mut self, position: Lsn) -> LanePlace {
        while let Some(place) = self.waiting.pop_front_if(|place| place.end <= position) {
            self.proven = place;
        }
        self.proven
    }
}
