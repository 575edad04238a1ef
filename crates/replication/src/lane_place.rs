//! A place in a lane from which the lane may be read on: behind the seal of an incarnation, or
//! behind one of its messages.

use hyades_wal::{Lsn, Seen, StreamId};
use serde::{Deserialize, Serialize};

/// A place between two messages of a lane, as all readers of the lane know the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LanePlace {
    /// The incarnation.
    pub incarnation: u32,
    /// The place of the message before: the incarnation's seal, or a data message.
    pub place: u64,
    /// The index of the next data message.
    pub next: u64,
    /// The chain of the message before.
    pub chain: u32,
    /// The position of the next data message's first frame.
    pub end: Lsn,
}

impl LanePlace {
    /// Behind a data message of an incarnation.
    pub(crate) fn behind(incarnation: u32, seen: &Seen) -> LanePlace {
        let Seen { place, index, chain, end, .. } = *seen;
        LanePlace { incarnation, place, next: index + 1, chain, end }
    }

    /// The data message before, of a stream; `None` behind a seal.
    pub(crate) fn seen(&self, stream: StreamId) -> Option<Seen> {
        let LanePlace { place, chain, end, .. } = *self;
        Some(Seen { stream, place, index: self.next.checked_sub(1)?, chain, end })
    }
}

/// By stream, the data messages before the places, for the manifest of a base.
pub(crate) fn seen_before(places: &[LanePlace], streams: &[StreamId]) -> Vec<Seen> {
    places.iter().zip(streams).filter_map(|(place, stream)| place.seen(*stream)).collect()
}
