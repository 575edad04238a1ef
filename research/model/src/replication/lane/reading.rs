//! The rule by which every reader of a lane decides what counts.

use super::{Kind, LaneRule, Message};

/// What a reader has found in a lane, up to some place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Reading {
    /// The messages of data that count, each with the number of messages before.
    pub(super) taken: Vec<(u8, Message)>,
    /// The incarnation reached: all lower ones have ended.
    pub(super) reached: u8,
    /// Whether the reader has stopped at a hole, or at data without a seal.
    pub(super) is_stopped: bool,
}

impl Reading {
    /// Reads messages from the beginning of a lane.
    pub(super) fn new(rule: LaneRule, log: &[Message]) -> Reading {
        let taken = Vec::with_capacity(log.len());
        let mut reading = Reading { taken, reached: 0, is_stopped: false };
        let mut next = 0;
        for (place, message) in (0..).zip(log) {
            let index = match message.kind {
                Kind::Lost => continue,
                Kind::Seal if message.incarnation > reading.reached => {
                    (reading.reached, next) = (message.incarnation, 0);
                    continue;
                }
                Kind::Seal => continue,
                Kind::Data { index, .. } => index,
            };
            let has_ended = message.incarnation < reading.reached;
            let is_repetition = index < next;
            if has_ended && rule != LaneRule::TakesEnded
                || !has_ended && is_repetition && rule != LaneRule::TakesRepetitions
            {
                continue;
            }
            let is_hole = !has_ended && index > next && rule != LaneRule::SkipsHoles;
            if message.incarnation > reading.reached || is_hole {
                reading.is_stopped = true;
                break;
            }
            if !has_ended {
                next = index + 1;
            }
            reading.taken.push((place, *message));
        }
        reading
    }

    /// Whether the incarnation has ended for this reader.
    pub(super) fn has_ended(&self, incarnation: u8) -> bool {
        incarnation < self.reached
    }

    fn data(&self, incarnation: u8) -> impl Iterator<Item = (u8, u8)> {
        self.taken.iter().filter_map(move |(_, message)| match message.kind {
            Kind::Data { index, batch } if message.incarnation == incarnation => {
                Some((index, batch))
            }
            _ => None,
        })
    }

    /// The batches taken of an incarnation.
    pub(super) fn batches(&self, incarnation: u8) -> impl Iterator<Item = u8> {
        self.data(incarnation).map(|(_, batch)| batch)
    }

    /// The indices taken of an incarnation.
    pub(super) fn indices(&self, incarnation: u8) -> impl Iterator<Item = u8> {
        self.data(incarnation).map(|(index, _)| index)
    }
}
