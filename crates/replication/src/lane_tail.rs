//! Reading a lane from a place on: the frames of an incarnation, by the reader rule.

use crate::lane_place::LanePlace;
use crate::message::{LaneReader, Message, MessageBody, Sealed, Taken};
use crate::service::{LogService, Place, Reply, Request};
use crate::short_lane::ShortLane;
use hyades_platform::broken;
use hyades_wal::{Dimension, Lsn, RemoteEnded, Seen};
use std::sync::Arc;

/// What a read has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tailed {
    /// Frames that follow those found before, and the message with which the reading may go on.
    Frames {
        /// The position of the first frame.
        start: Lsn,
        /// Whole frames.
        frames: Vec<u8>,
        /// The message.
        seen: Seen,
    },
    /// The incarnation has ended here, by the seal of a later incarnation.
    Ended {
        /// The later incarnation.
        by: u32,
    },
}

/// Reads the lane of a stream.
#[derive(Clone, Debug)]
pub struct LaneTail {
    lane: usize,
    database: [u8; 16],
    incarnation: u32,
    dimension: Dimension,
    behind: Place,
    /// `None` before the seal of the incarnation.
    reader: Option<LaneReader>,
    /// By lane, the highest position that the messages read state as stored.
    stored: Vec<Lsn>,
    /// The seals read, in order: of each incarnation above all before, the first.
    seals: Vec<(u32, Sealed)>,
    short: ShortLane,
}

impl LaneTail {
    /// Reads an incarnation from a place of it on. `None`: from the beginning of the lane, where
    /// the incarnation's seal is looked for.
    pub fn new(
        (lane, dimension): (usize, Dimension),
        (database, incarnation): ([u8; 16], u32),
        from: Option<&LanePlace>,
    ) -> LaneTail {
        debug_assert!(from.is_none_or(|from| from.incarnation == incarnation), "{from:?}");
        let reader = from.map(|from| {
            let mut reader = LaneReader::new(incarnation, from.end, from.chain);
            reader.index = from.next;
            reader
        });
        let behind = from.map_or(Place::START, |from| Place(from.place));
        let (stored, seals, short) = (Vec::new(), Vec::new(), ShortLane::default());
        LaneTail { lane, database, incarnation, dimension, behind, reader, stored, seals, short }
    }

    /// By lane, the highest position that the messages read state as stored; empty before the
    /// first message.
    pub fn stored(&self) -> &[Lsn] {
        &self.stored
    }

    /// The place up to which the lane was read.
    pub(crate) fn behind(&self) -> Place {
        self.behind
    }

    /// The highest incarnation that has sealed the lane as far as the lane was read, with its first
    /// seal.
    pub fn sealed(&self) -> Option<(u32, Sealed)> {
        self.seals.last().copied()
    }

    /// The end of the incarnation, once a later seal was read.
    pub fn ended_at(&self) -> Option<Lsn> {
        self.reader.as_ref().filter(|reader| reader.is_over()).map(|reader| reader.end)
    }

    /// The position behind the frames found.
    pub fn end(&self) -> Lsn {
        self.reader.as_ref().map_or(self.dimension.start, |reader| reader.end)
    }

    /// Reads what is behind. Empty if there is nothing new, or no answer.
    ///
    /// # Errors
    /// The lane is not the lane that was written.
    pub fn read(&mut self, service: &dyn LogService) -> Result<Vec<Tailed>, RemoteEnded> {
        match service.ask(Request::Read { lane: self.lane, behind: self.behind }) {
            Reply::Messages(messages) => {
                self.short.clear();
                self.take(messages)
            }
            Reply::Short(end) => {
                self.short.note_end((self.lane, end), self.behind)?;
                Ok(Vec::new())
            }
            Reply::Gone(what) => Err(RemoteEnded::Different(what)),
            _ => Ok(Vec::new()),
        }
    }

    fn take(&mut self, messages: Vec<(Place, Arc<Vec<u8>>)>) -> Result<Vec<Tailed>, RemoteEnded> {
        let mut found = Vec::new();
        for (place, bytes) in messages {
            let (lane, behind) = (self.lane, self.behind);
            let different = |what: String| {
                RemoteEnded::Different(format!("lane {lane}, place {}: {what}", place.0))
            };
            // Messages may have been removed from the beginning of the lane alone.
            let may_begin_here = behind == Place::START && self.reader.is_none();
            if place.0 != behind.0 + 1 && !may_begin_here && !broken!(SkipHole) {
                return Err(different(format!(
                    "the messages behind place {} are missing",
                    behind.0
                )));
            }
            let (message, chain) =
                Message::decode(&bytes).map_err(|malformed| different(malformed.to_string()))?;
            if (message.database, message.stream as usize) != (self.database, lane) {
                return Err(different("the message is of another database or lane".into()));
            }
            self.behind = place;
            self.note(&message, Sealed { place, chain });
            let Some(reader) = &mut self.reader else {
                self.look_for_seal(&message, chain).map_err(different)?;
                continue;
            };
            let index = reader.index;
            match reader.take(message, chain) {
                Taken::Frames(frames) => {
                    let stream = self.dimension.stream;
                    let (place, end) = (place.0, reader.end);
                    let start = end - frames.len() as u64;
                    let seen = Seen { stream, place, index, chain, end };
                    found.push(Tailed::Frames { start, frames, seen });
                }
                Taken::Repeated | Taken::Late => {}
                Taken::Ended { by } => found.push(Tailed::Ended { by }),
                Taken::Hole(what) => return Err(different(what)),
            }
        }
        Ok(found)
    }

    /// Notes what a message states.
    fn note(&mut self, message: &Message, sealed: Sealed) {
        self.stored.resize(self.stored.len().max(message.stored.len()), 0);
        for (known, stated) in self.stored.iter_mut().zip(&message.stored) {
            *known = (*known).max(*stated);
        }
        let highest = self.seals.last().map_or(self.incarnation, |(highest, _)| *highest);
        if matches!(message.body, MessageBody::Seal(_)) && message.incarnation > highest {
            self.seals.push((message.incarnation, sealed));
        }
    }

    /// Begins to read at the seal of the incarnation.
    fn look_for_seal(&mut self, message: &Message, chain: u32) -> Result<(), String> {
        let own = self.incarnation;
        if message.incarnation > own {
            return Err(format!(
                "incarnation {} begins here, and incarnation {own} was never sealed",
                message.incarnation
            ));
        }
        if message.incarnation == own {
            if !matches!(message.body, MessageBody::Seal(_)) {
                return Err(format!("frames of incarnation {own} before its seal"));
            }
            self.reader = Some(LaneReader::new(own, self.dimension.start, chain));
        }
        Ok(())
    }
}
