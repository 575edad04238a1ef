//! A batch of a stream as a message of its lane; seals; and the reader rule.
//!
//! | bytes | field |
//! |---|---|
//! | 8 | magic, whose last two digits are the format |
//! | 16 | the database's uuid |
//! | 4, 4 | stream; kind: 1 data, 2 seal |
//! | 4, 8 | incarnation; index, from 0 in each lane and incarnation |
//! | 8, 4 | start, the position of the first frame; length of the body |
//! | 4, 8 n | number of lanes n; what the writer counts as stored, by lane |
//! | 4, 4 | chain of the message before; chain |
//! | length | frames of a data message, name of the writer's node of a seal |
//!
//! The chain is a CRC-32C over the chain before, the header without the chain, and the body: two
//! readers that were shown different messages differ from then on.

use crate::service::Place;
use hyades_platform::broken;
use hyades_wal::Lsn;
use std::fmt;

const MAGIC: [u8; 8] = *b"HYREPL01";
/// Bytes of the header without the stored positions.
const FIXED_BYTES: usize = 8 + 16 + 4 + 4 + 4 + 8 + 8 + 4 + 4 + 4 + 4;
const DATA: u32 = 1;
const SEAL: u32 = 2;

/// Returns the bytes of a header in a log of `lanes` lanes.
pub fn header_bytes(lanes: usize) -> usize {
    FIXED_BYTES + 8 * lanes
}

/// The body of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageBody {
    /// Whole frames.
    Data(Vec<u8>),
    /// The end of all earlier incarnations, by the node of this name.
    Seal(String),
}

/// A message of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The database's uuid.
    pub database: [u8; 16],
    /// The stream of the lane.
    pub stream: u32,
    /// The writer's incarnation.
    pub incarnation: u32,
    /// Counts the data messages of the lane and incarnation.
    pub index: u64,
    /// The position of the first frame.
    pub start: Lsn,
    /// The positions that the writer counts as stored, by lane.
    pub stored: Vec<Lsn>,
    /// The chain of the data message before in the lane and incarnation; of the incarnation's seal
    /// for the first one. 0 for a seal.
    pub previous: u32,
    /// See the module.
    pub body: MessageBody,
}

/// Why bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The offset in the message.
    pub offset: usize,
    /// What was found there.
    pub found: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the message is malformed at byte {}: {}", self.offset, self.found)
    }
}

impl std::error::Error for Malformed {}

/// Takes fields off a message.
pub(crate) struct Fields<'m> {
    bytes: &'m [u8],
    at: usize,
}

impl<'m> Fields<'m> {
    pub fn new(bytes: &'m [u8]) -> Self {
        Fields { bytes, at: 0 }
    }

    /// The offset of the next field.
    pub fn at(&self) -> usize {
        self.at
    }

    pub fn wrong(&self, offset: usize, found: String) -> Malformed {
        Malformed { offset, found }
    }

    pub fn take(&mut self, count: usize, what: &str) -> Result<&'m [u8], Malformed> {
        let rest = &self.bytes[self.at..];
        let taken = rest.get(..count).ok_or_else(|| Malformed {
            offset: self.at,
            found: format!("{} bytes where {what} takes {count}", rest.len()),
        })?;
        self.at += count;
        Ok(taken)
    }

    pub fn u32(&mut self, what: &str) -> Result<u32, Malformed> {
        let bytes = self.take(4, what)?;
        Ok(u32::from_le_bytes(bytes.try_into().expect("four bytes were taken")))
    }

    pub fn u64(&mut self, what: &str) -> Result<u64, Malformed> {
        let bytes = self.take(8, what)?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes were taken")))
    }
}

impl Message {
    /// Encodes the message. Returns the bytes and the chain.
    pub fn encode(&self) -> (Vec<u8>, u32) {
        let (kind, body) = match &self.body {
            MessageBody::Data(frames) => (DATA, &frames[..]),
            MessageBody::Seal(node) => (SEAL, node.as_bytes()),
        };
        let mut out = Vec::with_capacity(header_bytes(self.stored.len()) + body.len());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.database);
        for field in [self.stream, kind, self.incarnation] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&self.index.to_le_bytes());
        out.extend_from_slice(&self.start.to_le_bytes());
        out.extend_from_slice(&(body.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.stored.len() as u32).to_le_bytes());
        self.stored.iter().for_each(|lsn| out.extend_from_slice(&lsn.to_le_bytes()));
        out.extend_from_slice(&self.previous.to_le_bytes());
        let chain = crc32c::crc32c_append(crc32c::crc32c(&out), body);
        out.extend_from_slice(&chain.to_le_bytes());
        out.extend_from_slice(body);
        (out, chain)
    }

    /// Decodes a message. Returns its chain, too.
    ///
    /// # Errors
    /// The bytes are no message of this format, or damaged.
    pub fn decode(bytes: &[u8]) -> Result<(Message, u32), Malformed> {
        let wrong = |offset: usize, found: String| Malformed { offset, found };
        let mut fields = Fields::new(bytes);
        let magic = fields.take(8, "the magic")?;
        if magic != MAGIC {
            return Err(wrong(0, format!("{:?}", String::from_utf8_lossy(magic))));
        }
        let database = fields.take(16, "the uuid")?.try_into().expect("16 bytes were taken");
        let (stream, kind) = (fields.u32("the stream")?, fields.u32("the kind")?);
        let (incarnation, index) = (fields.u32("the incarnation")?, fields.u64("the index")?);
        let start = fields.u64("the start")?;
        let length = fields.u32("the length")? as usize;
        let lanes = fields.u32("the number of lanes")? as usize;
        if lanes > hyades_wal::MAX_LANES {
            return Err(wrong(fields.at - 4, format!("{lanes} lanes")));
        }
        let stored = (0..lanes).map(|_| fields.u64("a position")).collect::<Result<_, _>>()?;
        let previous = fields.u32("the chain before")?;
        let header = &bytes[..fields.at];
        let stated = fields.u32("the chain")?;
        let body = fields.take(length, "the body")?;
        if fields.at != bytes.len() {
            return Err(wrong(fields.at, format!("{} more bytes", bytes.len() - fields.at)));
        }
        let chain = crc32c::crc32c_append(crc32c::crc32c(header), body);
        if chain != stated {
            return Err(wrong(header.len(), format!("chain {stated:08x}, expected {chain:08x}")));
        }
        let body = match kind {
            DATA => MessageBody::Data(body.to_vec()),
            SEAL => MessageBody::Seal(String::from_utf8_lossy(body).into_owned()),
            other => return Err(wrong(28, format!("kind {other}"))),
        };
        let message =
            Message { database, stream, incarnation, index, start, stored, previous, body };
        Ok((message, chain))
    }
}

/// A lane that an incarnation has sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The place of the seal.
    pub place: Place,
    /// The chain of the seal, on which the chain of the incarnation's messages begins.
    pub chain: u32,
}

/// What a reader makes of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The frames that follow those taken before.
    Frames(Vec<u8>),
    /// A repetition of a message that was taken.
    Repeated,
    /// A message of an incarnation that has ended.
    Late,
    /// The incarnation has ended here, by the seal of a later one.
    Ended {
        /// The incarnation of the seal.
        by: u32,
    },
    /// The lane is not the lane that was written: nothing behind is taken.
    Hole(String),
}

/// A reader of a lane, from the beginning of an incarnation on. All readers of a lane take the same
/// messages: what a reader takes follows from the messages in their order alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneReader {
    /// The incarnation that is read.
    pub incarnation: u32,
    /// The index of the next message.
    pub index: u64,
    /// The position behind the frames taken.
    pub end: Lsn,
    /// The chain of the last message taken.
    pub chain: u32,
    /// Set by a seal, or by a hole.
    is_over: bool,
}

impl LaneReader {
    /// A reader of an incarnation that begins at `start`; `chain` is the chain of the incarnation's
    /// seal.
    pub fn new(incarnation: u32, start: Lsn, chain: u32) -> Self {
        LaneReader { incarnation, index: 0, end: start, chain, is_over: false }
    }

    /// Whether a seal, or a hole, has ended the incarnation for the reader.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Takes the next message of the lane, given with its own chain.
    pub fn take(&mut self, message: Message, chain: u32) -> Taken {
        let hole = |reader: &mut Self, what: String| {
            reader.is_over = true;
            Taken::Hole(what)
        };
        if self.is_over || message.incarnation < self.incarnation {
            return Taken::Late;
        }
        let frames = match message.body {
            MessageBody::Seal(_) if message.incarnation > self.incarnation => {
                self.is_over = true;
                return Taken::Ended { by: message.incarnation };
            }
            // The seal with which the incarnation itself began.
            MessageBody::Seal(_) => return Taken::Repeated,
            MessageBody::Data(_) if message.incarnation > self.incarnation => {
                let by = message.incarnation;
                return hole(self, format!("data of incarnation {by} without a seal"));
            }
            MessageBody::Data(frames) => frames,
        };
        if message.index < self.index {
            return Taken::Repeated;
        }
        let expected = (self.index, self.end, self.chain);
        let found = (message.index, message.start, message.previous);
        if broken!(SkipHole) && found.0 > expected.0 {
            (self.index, self.end) = (found.0, found.1);
        } else if found != expected {
            return hole(
                self,
                format!(
                    "message {} at position {} behind chain {:08x}, expected {} at {} behind \
                     {:08x}",
                    found.0, found.1, found.2, expected.0, expected.1, expected.2
                ),
            );
        }
        self.index += 1;
        self.end += frames.len() as u64;
        self.chain = chain;
        Taken::Frames(frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(incarnation: u32, index: u64, start: Lsn, previous: u32) -> (Message, u32) {
        let body = MessageBody::Data(vec![7; 10]);
        let (database, stored) = ([3; 16], vec![start, 9]);
        let message =
            Message { database, stream: 2, incarnation, index, start, stored, previous, body };
        let chain = message.encode().1;
        (message, chain)
    }

    fn seal(incarnation: u32) -> (Message, u32) {
        let (message, _) = data(incarnation, 0, 0, 0);
        let message = Message { body: MessageBody::Seal("n2".into()), ..message };
        let chain = message.encode().1;
        (message, chain)
    }

    #[test]
    fn messages_read_back_and_damage_is_found() {
        for (message, chain) in [data(4, 5, 600, 77), seal(6)] {
            let (bytes, _) = message.encode();
            assert_eq!(Message::decode(&bytes), Ok((message, chain)));
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x40;
                assert!(Message::decode(&damaged).is_err(), "byte {at}");
                assert!(Message::decode(&bytes[..at]).is_err(), "{at} bytes");
            }
            assert!(Message::decode(&[&bytes[..], &[0]].concat()).is_err());
        }
    }

    #[test]
    fn a_reader_takes_each_message_once_and_stops_at_a_seal_or_a_hole() {
        let mut reader = LaneReader::new(4, 600, 77);
        let (first, chain) = data(4, 0, 600, 77);
        let (second, end) = data(4, 1, 610, chain);
        assert_eq!(reader.take(seal(4).0, 0), Taken::Repeated);
        assert_eq!(reader.take(data(3, 0, 600, 77).0, 1), Taken::Late);
        assert_eq!(reader.take(first.clone(), chain), Taken::Frames(vec![7; 10]));
        assert_eq!(reader.take(first, chain), Taken::Repeated);
        let mut holes = reader.clone();
        assert!(matches!(holes.take(data(4, 2, 620, end).0, 0), Taken::Hole(_)));
        assert_eq!(holes.take(second.clone(), end), Taken::Late, "nothing behind a hole");
        assert_eq!(reader.take(second, end), Taken::Frames(vec![7; 10]));
        assert_eq!((reader.index, reader.end), (2, 620));
        assert_eq!(reader.take(seal(6).0, 0), Taken::Ended { by: 6 });
        let (late, _) = data(4, 2, 620, end);
        assert_eq!(reader.take(late, 0), Taken::Late, "the incarnation has ended");
    }
}
