//! The files of a standby as the source of its rounds.

use super::places::FilePlaces;
use crate::lane_place::LanePlace;
use crate::lane_tail::Tailed;
use crate::standby_error::StandbyError;
use hyades::{FrameChunks, FrameSource};
use hyades_platform::sync::Unpoisoned;
use hyades_wal::{Lsn, Mirror, StreamReader};
use std::sync::Mutex;

/// The mirror as the source of rounds of the newest incarnation in the files.
#[derive(Debug)]
pub(super) struct MirrorFrames(pub Mutex<Mirror>);

impl FrameSource for MirrorFrames {
    fn frames(&self, stream: usize, from: Lsn, to: Lsn) -> Result<FrameChunks, hyades_wal::Error> {
        let mut reader = self.0.lock().unpoisoned().reader(stream, from, to)?;
        Ok(Box::new(std::iter::from_fn(move || reader.next_chunk().transpose())))
    }
}

/// Files as the source of the last round of an incarnation before the newest.
pub(super) struct EarlierFrames {
    /// By stream, the readers of the incarnation.
    pub readers: Mutex<Vec<Option<StreamReader>>>,
}

impl FrameSource for EarlierFrames {
    fn frames(&self, stream: usize, from: Lsn, to: Lsn) -> Result<FrameChunks, hyades_wal::Error> {
        let reader = self.readers.lock().unpoisoned()[stream].take();
        let mut reader = reader.expect("a round reads each stream once");
        reader.skip_to(from);
        debug_assert!(from == to || reader.start() == from, "the log was truncated above {from}");
        Ok(Box::new(std::iter::from_fn(move || reader.next_chunk().transpose())))
    }
}

/// Takes what was found in a lane into the files.
pub(super) fn append(
    frames: &MirrorFrames,
    places: &mut [FilePlaces],
    lane: usize,
    found: Tailed,
) -> Result<(), StandbyError> {
    if let Tailed::Frames { start, frames: bytes, seen } = found {
        let mut mirror = frames.0.lock().unpoisoned();
        mirror.append(lane, start, &bytes)?;
        let number = mirror.incarnation().unwrap_or(0);
        if let Some(places) = places.get_mut(lane) {
            places.received(LanePlace::behind(number, &seen));
        }
        mirror.note_seen(lane, seen);
    }
    Ok(())
}
