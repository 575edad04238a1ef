//! Frames: the unit of a stream (`docs/format.md`, section 5).

use crate::Lsn;
use crate::checksum;
use crate::stream_id::StreamId;
use crate::varint;

/// The largest payload of a frame, in bytes.
pub const MAX_PAYLOAD: usize = 1 << 20;
/// The most bytes before a payload: checksum, length, kind.
pub(crate) const MAX_HEAD: usize = 4 + 3 + 1;
/// The most bytes of a payload passed in a word, see [`Payload::with_prefix`].
const MAX_LEAD: usize = 6;
/// Payloads shorter than this many bytes state the length in a single byte.
const SHORT: usize = 0x80;
const _: () = assert!(2 + MAX_LEAD <= size_of::<u64>(), "length, kind and lead are a word");
const _: () = assert!(MAX_PAYLOAD < 1 << 21, "a length takes three bytes");

/// The kind of a frame. The log itself writes and reads only the last three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// A whole record of the engine.
    Record = 1,
    /// A piece of a transaction over several frames.
    Part = 2,
    /// An abandoned reservation. A void keeps its length and counts as resolved.
    Void = 4,
    /// A durable vector, the base for compressing later vectors.
    Anchor = 5,
    /// States the stream's mark and its durable LSN.
    Heartbeat = 6,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Record,
            2 => Self::Part,
            4 => Self::Void,
            5 => Self::Anchor,
            6 => Self::Heartbeat,
            _ => return None,
        })
    }
}

/// A frame in a [`Chunk`](crate::Chunk).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The start of the frame.
    pub start: Lsn,
    /// The end of the frame: its Lsn.
    pub end: Lsn,
    /// The kind.
    pub kind: FrameKind,
    /// The content.
    pub payload: &'a [u8],
}

/// The length of a frame with a payload of `payload` bytes.
#[inline]
pub(crate) fn len(payload: usize) -> usize {
    4 + varint::len(payload as u64) + 1 + payload
}

/// The common checksum seed of all frames of a stream in an incarnation.
pub(crate) fn seed(uuid: &[u8; 16], stream: StreamId, incarnation: u32) -> u32 {
    checksum::append(0, [uuid, &stream.0.to_le_bytes(), &incarnation.to_le_bytes()])
}

/// The payload of a frame to be written.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    lead: u64,
    lead_len: usize,
    rest: &'a [u8],
}

impl<'a> Payload<'a> {
    /// The most bytes allowed behind the word, see [`Payload::with_prefix`].
    pub const MAX_REST: usize = SHORT - 1 - MAX_LEAD;

    /// A payload of the low `len` bytes of `lead`, lowest first, followed by `rest`. The first
    /// bytes of a short record are cheapest to assemble in a register, and then need not be copied
    /// together with `rest`.
    ///
    /// Panics if `len` is over six or `rest` is longer than [`MAX_REST`](Self::MAX_REST). The rest
    /// of `lead` must be zero.
    #[inline(always)]
    pub fn with_prefix(lead: u64, len: usize, rest: &'a [u8]) -> Self {
        assert!(len <= MAX_LEAD && rest.len() <= Self::MAX_REST, "it is not short");
        debug_assert!(lead >> (8 * len) == 0, "bytes beyond the first {len} would be written");
        Payload { lead, lead_len: len, rest }
    }

    /// The length in bytes.
    #[inline(always)]
    #[expect(clippy::len_without_is_empty, reason = "not needed")]
    pub fn len(&self) -> usize {
        self.lead_len + self.rest.len()
    }
}

impl<'a, T: AsRef<[u8]> + ?Sized> From<&'a T> for Payload<'a> {
    #[inline(always)]
    fn from(bytes: &'a T) -> Self {
        Payload { lead: 0, lead_len: 0, rest: bytes.as_ref() }
    }
}

/// Assembles the head of a frame. Returns the first four bytes (the checksum) and the bytes behind
/// them as little-endian words, the number of used bytes of the second word, and the rest of the
/// payload.
#[inline(always)]
pub(crate) fn head<'a>(
    seed: u32,
    start: Lsn,
    kind: FrameKind,
    payload: Payload<'a>,
) -> ((u32, u64), usize, &'a [u8]) {
    debug_assert!(payload.len() <= MAX_PAYLOAD, "a payload of {} bytes", payload.len());
    let (length, whole) = (payload.len() as u64, self::len(payload.len()));
    let Payload { lead, lead_len, rest } = payload;
    let (head, len) = if length < SHORT as u64 {
        (length | (kind as u64) << 8 | lead << 16, 2 + lead_len)
    } else {
        debug_assert_eq!(lead_len, 0, "it is short");
        let (length, bytes) = match length {
            0..0x4000 => (length & 0x7f | 0x80 | length >> 7 << 8, 2),
            _ => (length & 0x7f | 0x80 | (length >> 7 & 0x7f | 0x80) << 8 | length >> 14 << 16, 3),
        };
        (length | (kind as u64) << (8 * bytes), bytes + 1)
    };
    debug_assert_eq!(4 + len + rest.len(), whole, "the head is of another length than reserved");
    ((checksum::append_frame(seed, start, head, len, rest), head), len, rest)
}

#[inline]
fn sum(seed: u32, start: Lsn, head: &[u8], payload: &[u8]) -> u32 {
    checksum::append(seed, [&start.to_le_bytes(), head, payload])
}

/// Reads the length of a frame from its first bytes; None if no frame can begin so.
#[inline]
pub(crate) fn peek_len(bytes: &[u8]) -> Option<usize> {
    let (payload, used) = varint::get(bytes.get(4..)?)?;
    (payload <= MAX_PAYLOAD as u64).then(|| 4 + used + 1 + payload as usize)
}

/// Splits off the frame at the start of `bytes` without verifying the checksum.
#[inline]
pub(crate) fn split(bytes: &[u8], start: Lsn) -> Result<Frame<'_>, &'static str> {
    let length = peek_len(bytes).ok_or("the length of the frame is not valid")?;
    let bytes = bytes.get(..length).ok_or("the frame is longer than its batch")?;
    let (payload, used) = varint::get(&bytes[4..]).ok_or("the length of the frame is not valid")?;
    let kind = FrameKind::from_byte(bytes[4 + used]).ok_or("the frame is of no known kind")?;
    let payload = &bytes[length - payload as usize..];
    let end = start.checked_add(length as u64).ok_or("the frame ends beyond the last position")?;
    Ok(Frame { start, end, kind, payload })
}

/// Splits off the frame at the start of `bytes` and verifies the checksum.
#[inline]
pub(crate) fn check(bytes: &[u8], start: Lsn, seed: u32) -> Result<Frame<'_>, &'static str> {
    let frame = split(bytes, start)?;
    let head = (frame.end - start) as usize - frame.payload.len();
    let stored = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    if sum(seed, start, &bytes[4..head], frame.payload) != stored {
        return Err("the checksum of the frame does not match");
    }
    Ok(frame)
}

/// Corrects the checksum of a possible frame, for tests; returns the frame's length.
pub(crate) fn fix_checksum(bytes: &mut [u8], start: Lsn, seed: u32) -> Option<usize> {
    let length = peek_len(bytes)?;
    let (stored, rest) = bytes.get_mut(..length)?.split_first_chunk_mut::<4>()?;
    *stored = sum(seed, start, rest, &[]).to_le_bytes();
    Some(length)
}

/// Encodes the payload of an anchor with the vector `lanes`.
pub(crate) fn anchor_payload(out: &mut Vec<u8>, lanes: &[Lsn]) {
    out.clear();
    for lane in lanes {
        out.extend(lane.to_le_bytes());
    }
}

/// Decodes the vector in an anchor's payload; None if the number of components is not `out.len()`.
pub fn read_anchor(payload: &[u8], out: &mut [Lsn]) -> Option<()> {
    if payload.len() != out.len() * 8 {
        return None;
    }
    for (lane, bytes) in out.iter_mut().zip(payload.chunks_exact(8)) {
        *lane = u64::from_le_bytes(bytes.try_into().ok()?);
    }
    Some(())
}

/// Decodes a heartbeat: the mark and the stated durable LSN.
pub fn read_heartbeat(payload: &[u8]) -> Option<(u64, Lsn)> {
    let (mark, durable) = payload.split_at_checked(8)?;
    Some((u64::from_le_bytes(mark.try_into().ok()?), u64::from_le_bytes(durable.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put_together(start: Lsn, payload: Payload<'_>) -> Vec<u8> {
        let ((crc, word), len, rest) = head(7, start, FrameKind::Record, payload);
        [&crc.to_le_bytes(), &word.to_le_bytes()[..len], rest].concat()
    }

    fn built(start: Lsn, payload: &[u8]) -> Vec<u8> {
        put_together(start, payload.into())
    }

    #[test]
    fn a_frame_is_the_same_however_its_payload_is_given() {
        for length in 0..SHORT {
            let payload: Vec<u8> = (1..=length).map(|i| (i % 251) as u8).collect();
            for led in length.saturating_sub(Payload::MAX_REST)..=MAX_LEAD.min(length) {
                let mut word = [0; 8];
                word[..led].copy_from_slice(&payload[..led]);
                let lead = u64::from_le_bytes(word);
                let bytes = put_together(100, Payload::with_prefix(lead, led, &payload[led..]));
                assert_eq!(bytes, built(100, &payload), "{led} of {length}");
            }
        }
    }

    #[test]
    fn a_frame_is_valid_only_in_its_place() {
        for length in [0, 1, 127, 128, 1000, 16_383, 16_384, 100_000, MAX_PAYLOAD] {
            let payload = vec![0xa5; length];
            let bytes = built(100, &payload);
            assert_eq!(bytes.len(), len(length));
            let frame = check(&bytes, 100, 7).unwrap();
            assert_eq!((frame.end, frame.payload), (100 + bytes.len() as u64, &payload[..]));
            assert!(check(&bytes, 101, 7).is_err());
            assert!(check(&bytes, 100, 8).is_err());
            assert!(check(&bytes[..bytes.len() - 1], 100, 7).is_err());
        }
        assert!(check(&[0; 64], 0, 0).is_err());
        let longest = [0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
        assert_eq!(peek_len(&longest), None);
        assert!(check(&built(u64::MAX - 9, b"payload"), u64::MAX - 9, 7).is_err());
    }

    #[test]
    fn any_flipped_bit_is_seen() {
        let bytes = built(9, b"payload");
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(check(&flipped, 9, 7).is_err(), "bit {bit}");
        }
    }
}
