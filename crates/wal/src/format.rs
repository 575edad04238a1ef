//! Segment and batch headers (`docs/format.md`, sections 3 and 4).

use crate::Lsn;
use crate::frame;
use crate::lsn_vector::MAX_LANES;
use crate::stream_id::StreamId;

/// The version of the format written and read by the program.
pub(crate) const VERSION: u32 = 1;
const SEGMENT_MAGIC: &[u8; 8] = b"HYADESEG";
const BATCH_MAGIC: &[u8; 4] = b"HYB1";
const SEGMENT_FIXED: usize = 72;
/// The length of the longest segment header, in bytes.
pub(crate) const SEGMENT_HEADER_MAX: usize = SEGMENT_FIXED + 8 * MAX_LANES + 4;
/// The length of every batch header, in bytes.
pub(crate) const BATCH_HEADER: usize = 40;

/// The smallest block, in bytes: a cache line.
pub(crate) const LEAST_BLOCK: usize = 64;
/// The largest block, in bytes.
pub(crate) const LARGEST_BLOCK: usize = 65536;

/// The bytes ahead of a segment's first batch: its first block, or 1,024 bytes if a block is
/// shorter.
pub(crate) const fn header_bytes(block_bytes: usize) -> usize {
    if block_bytes < 1024 { 1024 } else { block_bytes }
}

const _: () = assert!(SEGMENT_HEADER_MAX <= header_bytes(LEAST_BLOCK), "a header fits there");
const _: () = assert!(header_bytes(LEAST_BLOCK).is_multiple_of(LEAST_BLOCK), "in whole blocks");

/// The header at the beginning of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) block_bytes: u32,
    pub(crate) uuid: [u8; 16],
    pub(crate) stream: StreamId,
    pub(crate) incarnation: u32,
    pub(crate) sequence: u64,
    pub(crate) start: Lsn,
    pub(crate) durable: Lsn,
    pub(crate) anchor: Vec<Lsn>,
}

/// Why a block is not a segment header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotAHeader {
    /// Not a segment header of this format, or damaged: the segment has not begun.
    Invalid,
    /// A valid header of another format version.
    Version(u32),
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

impl SegmentHeader {
    /// Encodes the header with the padding zeros, [`header_bytes`] in all.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let lanes = self.anchor.len();
        debug_assert!(
            (1..=MAX_LANES).contains(&lanes),
            "a header with {lanes} lanes cannot be read back"
        );
        let bytes = header_bytes(self.block_bytes as usize);
        let mut out = Vec::with_capacity(bytes);
        out.extend(SEGMENT_MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend(self.block_bytes.to_le_bytes());
        out.extend(self.uuid);
        out.extend(self.stream.0.to_le_bytes());
        out.extend(self.incarnation.to_le_bytes());
        out.extend(self.sequence.to_le_bytes());
        out.extend(self.start.to_le_bytes());
        out.extend(self.durable.to_le_bytes());
        out.extend((self.anchor.len() as u32).to_le_bytes());
        out.extend([0; 4]);
        for lane in &self.anchor {
            out.extend(lane.to_le_bytes());
        }
        let crc = crc32c::crc32c(&out);
        out.extend(crc.to_le_bytes());
        debug_assert!(out.len() <= bytes, "the header is longer than its place");
        out.resize(bytes, 0);
        out
    }

    /// Corrects the checksum of a possible header; for tests.
    pub(crate) fn fix_checksum(bytes: &mut [u8]) {
        if bytes.len() < SEGMENT_FIXED {
            return;
        }
        let length = SEGMENT_FIXED + 8 * (u32_at(bytes, 64) as usize).min(MAX_LANES);
        if let Some((covered, rest)) = bytes.split_at_mut_checked(length)
            && let Some(place) = rest.first_chunk_mut::<4>()
        {
            *place = crc32c::crc32c(covered).to_le_bytes();
        }
    }

    /// Decodes the header at the beginning of a segment.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, NotAHeader> {
        if bytes.len() < SEGMENT_FIXED || &bytes[..8] != SEGMENT_MAGIC {
            return Err(NotAHeader::Invalid);
        }
        let lanes = u32_at(bytes, 64) as usize;
        let length = SEGMENT_FIXED + 8 * lanes.min(MAX_LANES + 1);
        if lanes == 0 || lanes > MAX_LANES || bytes.len() < length + 4 {
            return Err(NotAHeader::Invalid);
        }
        if crc32c::crc32c(&bytes[..length]) != u32_at(bytes, length) {
            return Err(NotAHeader::Invalid);
        }
        let version = u32_at(bytes, 8);
        if version != VERSION {
            return Err(NotAHeader::Version(version));
        }
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&bytes[16..32]);
        let header = Self {
            block_bytes: u32_at(bytes, 12),
            uuid,
            stream: StreamId(u32_at(bytes, 32)),
            incarnation: u32_at(bytes, 36),
            sequence: u64_at(bytes, 40),
            start: u64_at(bytes, 48),
            durable: u64_at(bytes, 56),
            anchor: (0..lanes).map(|i| u64_at(bytes, SEGMENT_FIXED + 8 * i)).collect(),
        };
        let block = header.block_bytes as usize;
        if !block.is_power_of_two() || !(LEAST_BLOCK..=LARGEST_BLOCK).contains(&block) {
            return Err(NotAHeader::Invalid);
        }
        Ok(header)
    }
}

/// The header before the frames of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub(crate) stream: StreamId,
    pub(crate) incarnation: u32,
    pub(crate) start: Lsn,
    pub(crate) durable: Lsn,
    pub(crate) length: u32,
}

impl BatchHeader {
    pub(crate) fn encode(&self, uuid: &[u8; 16]) -> [u8; BATCH_HEADER] {
        let mut out = [0; BATCH_HEADER];
        out[..4].copy_from_slice(BATCH_MAGIC);
        out[8..12].copy_from_slice(&self.stream.0.to_le_bytes());
        out[12..16].copy_from_slice(&self.incarnation.to_le_bytes());
        out[16..24].copy_from_slice(&self.start.to_le_bytes());
        out[24..32].copy_from_slice(&self.durable.to_le_bytes());
        out[32..36].copy_from_slice(&self.length.to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(uuid), &out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Corrects the checksum of a possible header; for tests. Returns the start LSN of the batch's
    /// frames, and the length of the frames in bytes.
    pub(crate) fn fix_checksum(bytes: &mut [u8], uuid: &[u8; 16]) -> Option<(Lsn, u32)> {
        let bytes = bytes.get_mut(..BATCH_HEADER)?;
        if &bytes[..4] != BATCH_MAGIC {
            return None;
        }
        let crc = crc32c::crc32c_append(crc32c::crc32c(uuid), &bytes[8..]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        Some((u64_at(bytes, 16), u32_at(bytes, 32)))
    }

    /// Decodes the header at the start of `bytes`, if the header belongs to the stream and
    /// incarnation.
    pub(crate) fn decode(
        bytes: &[u8],
        uuid: &[u8; 16],
        stream: StreamId,
        incarnation: u32,
    ) -> Option<Self> {
        let bytes = bytes.get(..BATCH_HEADER)?;
        if &bytes[..4] != BATCH_MAGIC {
            return None;
        }
        let crc = crc32c::crc32c_append(crc32c::crc32c(uuid), &bytes[8..]);
        let header = Self {
            stream: StreamId(u32_at(bytes, 8)),
            incarnation: u32_at(bytes, 12),
            start: u64_at(bytes, 16),
            durable: u64_at(bytes, 24),
            length: u32_at(bytes, 32),
        };
        let ours = header.stream == stream && header.incarnation == incarnation;
        (u32_at(bytes, 4) == crc && ours).then_some(header)
    }
}

/// Appends a batch, padded to whole blocks. For the recovered tail, off the hot path.
pub(crate) fn append_batch(
    out: &mut Vec<u8>,
    frames: &[u8],
    header: &BatchHeader,
    uuid: &[u8; 16],
    block_bytes: usize,
) {
    debug_assert_eq!(frames.len(), header.length as usize, "a batch states another length");
    debug_assert!(out.len().is_multiple_of(block_bytes), "a batch begins within a block");
    out.extend(header.encode(uuid));
    out.extend(frames);
    out.resize(out.len().next_multiple_of(block_bytes), 0);
}

/// Returns the total length of the leading frames within `limit` bytes. `length_at` returns the
/// length of the frame at an offset. Checksums are not verified.
pub(crate) fn whole_frames(
    mut length_at: impl FnMut(usize) -> Option<usize>,
    limit: usize,
) -> usize {
    let mut end = 0;
    while let Some(length) = length_at(end) {
        if end + length > limit {
            break;
        }
        end += length;
    }
    end
}

/// The length of the frame at offset `at` of contiguous bytes, for [`whole_frames`].
pub(crate) fn length_in(bytes: &[u8], at: usize) -> Option<usize> {
    frame::peek_len(bytes.get(at..)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SegmentHeader {
        SegmentHeader {
            block_bytes: 1024,
            uuid: [3; 16],
            stream: StreamId(5),
            incarnation: 2,
            sequence: 9,
            start: 1 << 40,
            durable: (1 << 40) + 1,
            anchor: (0..64).collect(),
        }
    }

    #[test]
    fn a_header_of_any_block_size_comes_back_in_whole_blocks() {
        for block_bytes in (4..=18).map(|bits| 1u32 << bits) {
            let header = SegmentHeader { block_bytes, ..header() };
            let bytes = header.encode();
            assert_eq!(bytes.len(), (block_bytes as usize).max(1024));
            let is_allowed = (LEAST_BLOCK..=LARGEST_BLOCK).contains(&(block_bytes as usize));
            let expected = if is_allowed { Ok(header) } else { Err(NotAHeader::Invalid) };
            assert_eq!(SegmentHeader::decode(&bytes), expected);
        }
    }

    #[test]
    fn headers_come_back_and_any_flipped_bit_is_seen() {
        let block = header().encode();
        assert_eq!(block.len(), 1024);
        assert_eq!(SegmentHeader::decode(&block), Ok(header()));
        for bit in 0..SEGMENT_HEADER_MAX * 8 {
            let mut flipped = block.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&flipped), Err(NotAHeader::Invalid), "bit {bit}");
        }
        let stream = StreamId(5);
        let batch = BatchHeader { stream, incarnation: 2, start: 10, durable: 10, length: 99 };
        let bytes = batch.encode(&[3; 16]);
        assert_eq!(BatchHeader::decode(&bytes, &[3; 16], stream, 2), Some(batch));
        assert_eq!(BatchHeader::decode(&bytes, &[4; 16], stream, 2), None);
        assert_eq!(BatchHeader::decode(&bytes, &[3; 16], stream, 3), None);
        for bit in 0..BATCH_HEADER * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(BatchHeader::decode(&flipped, &[3; 16], stream, 2), None, "bit {bit}");
        }
    }
}
