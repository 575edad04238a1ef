//! Entry points for tests of the decoders with arbitrary bytes. Not part of the public interface.

use crate::format::VERSION;
use crate::format::{BATCH_HEADER, BatchHeader, SegmentHeader};
use crate::frame;
use crate::manifest::{Manifest, Marker, seal_body, unseal};
use crate::stream_id::StreamId;
use crate::{compress, varint};
use std::path::Path;

/// Decodes bytes as all parts of a segment: headers, frames, numbers, vectors.
pub fn pieces(bytes: &[u8]) {
    if let Ok(header) = SegmentHeader::decode(bytes) {
        let again = SegmentHeader::decode(&header.encode());
        assert_eq!(again.as_ref(), Ok(&header), "a header reads back");
    }
    let _ = BatchHeader::decode(bytes, &[0; 16], StreamId(0), 1);
    let mut rest = bytes;
    let mut at = u64::from(bytes.first().copied().unwrap_or(0)) << 56;
    while let Ok(frame) = frame::split(rest, at) {
        let _ = frame::check(rest, at, 7);
        let _ = frame::read_anchor(frame.payload, &mut [0; 4]);
        let _ = frame::read_heartbeat(frame.payload);
        rest = &rest[(frame.end - frame.start) as usize..];
        at = frame.end;
    }
    if let Some((number, used)) = varint::get(bytes) {
        let mut out = Vec::new();
        varint::put(&mut out, number);
        assert_eq!(out, bytes[..used], "a number has one spelling");
    }
    for lanes in [1, 4, 64] {
        let (mut out, anchor) = (vec![0; lanes], vec![9; lanes]);
        if let Ok(used) = compress::decode(bytes, &anchor, &mut out) {
            assert!(used <= bytes.len());
        }
    }
}

/// Decodes bytes as the file of a manifest and of a marker, and as the body of either between valid
/// first and last lines.
pub fn manifest(bytes: &[u8]) {
    let path = Path::new("MANIFEST");
    let sealed = String::from_utf8_lossy(bytes);
    let sealed = seal_body(&sealed, VERSION);
    for text in [bytes, sealed.as_bytes()] {
        let _ = unseal::<Marker>(path, text);
        if let Ok(manifest) = unseal::<Manifest>(path, text)
            && manifest.check(path).is_ok()
        {
            let _ = (manifest.uuid(), manifest.newest().is_some());
        }
    }
}

/// Corrects the checksums of a segment, wherever the bytes have the shape of headers and frames, so
/// the protected bytes are decoded.
pub fn fix_segment_checksums(
    bytes: &mut [u8],
    uuid: &[u8; 16],
    stream: StreamId,
    incarnation: u32,
) {
    SegmentHeader::fix_checksum(bytes);
    let seed = frame::seed(uuid, stream, incarnation);
    let mut at = 1024;
    while let Some(block) = bytes.get_mut(at..).filter(|block| block.len() >= BATCH_HEADER) {
        at += 1024;
        let Some((start, length)) = BatchHeader::fix_checksum(block, uuid) else { continue };
        let mut place = BATCH_HEADER;
        let mut position = start;
        while place < BATCH_HEADER + length as usize {
            let Some(frame) = frame::fix_checksum(&mut block[place..], position, seed) else {
                break;
            };
            place += frame;
            position = position.wrapping_add(frame as u64);
        }
    }
}
