//! Frames beyond the proven end of a stream, copied to a segment of their own.

use crate::Lsn;
use crate::chunk::Chunk;
use crate::error::Error;
use crate::format::{self, BatchHeader, SegmentHeader};
use crate::frame::MAX_PAYLOAD;
use crate::open::{Recovering, parallel_if_reads_block};
use crate::segment::{Chain, segment_path};
use crate::stream_id::StreamId;
use crate::verdict::Verdict;
use hyades_platform::broken;
use hyades_platform::device::Device;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::path::Path;

/// The most bytes of frames in a batch of the copied tail.
const TAIL_BATCH: usize = 2 * MAX_PAYLOAD;

/// The frames of a stream beyond its proven end, encoded for the next segment.
#[derive(Default)]
pub(crate) struct Tail {
    pub(crate) start: Lsn,
    /// The anchor in effect at the start.
    pub(crate) anchor: Vec<Lsn>,
    pub(crate) end: Lsn,
    /// The batches.
    pub(crate) body: Vec<u8>,
}

impl Recovering {
    /// Copies the frames of the newest incarnation beyond its proven ends to new segments, and
    /// records the ends. Returns the streams with a new segment, each with the segment's (sequence,
    /// start).
    pub(super) fn keep_tails(
        &mut self,
        verdict: &Verdict,
    ) -> Result<BTreeMap<StreamId, (u64, Lsn)>, Error> {
        let mut tails = BTreeMap::new();
        let (Some(newest), Some(end)) = (self.manifest.incarnations.last(), verdict.ends().last())
        else {
            return Ok(tails);
        };
        let number = newest.number;
        let mut dims = newest.dims.clone();
        let mut copied = Vec::new();
        for (dimension, dim) in dims.iter_mut().enumerate() {
            let (valid_to, proven) = (end.ends[dimension], end.proven[dimension]);
            if dim.end.is_some() {
                continue;
            }
            if valid_to > proven.max(dim.start) && !broken!(TrustTail) {
                copied.push((dimension, dim.stream, proven, valid_to));
            }
            dim.end = Some(valid_to);
            dim.mark = end.marks[dimension];
        }
        let copy = |(dimension, stream, from, to)| {
            (stream, self.copy_tail(number, dimension, stream, from, to))
        };
        for (stream, start) in parallel_if_reads_block(&*self.options.device, copied, copy) {
            tails.insert(stream, start?);
        }
        if let Some(newest) = self.manifest.incarnations.last_mut() {
            newest.dims = dims;
        }
        Ok(tails)
    }

    /// Copies the frames of a stream between `from`, its proven end, and `to` to a separate
    /// segment. Returns the segment's sequence number and start.
    fn copy_tail(
        &self,
        incarnation: u32,
        dimension: usize,
        stream: StreamId,
        from: Lsn,
        to: Lsn,
    ) -> Result<(u64, Lsn), Error> {
        debug_assert!(from < to, "stream {stream} has nothing behind {from} that is to be copied");
        let dir = self.dir_of(stream)?;
        let mut reader = self.tail_reader(dimension, from, to);
        let mut tail = Tail { start: from, anchor: Vec::new(), end: from, body: Vec::new() };
        while let Some(chunk) = reader.next_chunk()? {
            self.encode_tail(&mut tail, &chunk, incarnation, stream)
                .map_err(|why| Error::corrupt(&dir, 0, why))?;
        }
        if tail.end != to {
            let message = format!(
                "the tail changed while it was read: it ended at Lsn {to}, now {}",
                tail.end
            );
            return Err(Error::corrupt(&dir, 0, message));
        }
        let last = self.chains.get(&stream).and_then(Chain::last_started).map_or(0, |s| s.sequence);
        let header = SegmentHeader {
            block_bytes: self.options.block_bytes as u32,
            uuid: self.manifest.uuid(),
            stream,
            incarnation,
            sequence: last + 1,
            start: tail.start,
            durable: to,
            anchor: tail.anchor,
        };
        self.write_tail(&dir, &header, &tail.body)?;
        Ok((header.sequence, header.start))
    }

    /// Appends a chunk to a tail, as batches.
    pub(crate) fn encode_tail(
        &self,
        tail: &mut Tail,
        chunk: &Chunk,
        incarnation: u32,
        stream: StreamId,
    ) -> Result<(), &'static str> {
        if tail.body.is_empty() {
            tail.start = chunk.start();
            tail.anchor = chunk.anchor().to_vec();
        }
        tail.end = chunk.start();
        let mut rest = &chunk.bytes[..];
        while !rest.is_empty() {
            let length = format::whole_frames(|at| format::length_in(rest, at), TAIL_BATCH);
            if length == 0 {
                return Err("a frame of the tail is too long");
            }
            let (frames, behind) = rest.split_at(length);
            let header = BatchHeader {
                stream,
                incarnation,
                start: tail.end,
                durable: tail.end,
                length: length as u32,
            };
            let uuid = self.manifest.uuid();
            let block = self.options.block_bytes;
            format::append_batch(&mut tail.body, frames, &header, &uuid, block);
            tail.end += length as u64;
            rest = behind;
        }
        Ok(())
    }

    /// Writes the segment of a tail. The segment is renamed only when whole and durable: under its
    /// final name the segment replaces the original.
    fn write_tail(&self, dir: &Path, header: &SegmentHeader, body: &[u8]) -> Result<(), Error> {
        let path = segment_path(dir, header.sequence);
        let mut temporary = path.with_extension("tmp");
        let spare = self.chains.get(&header.stream).and_then(|chain| chain.spare.as_ref());
        if spare.is_some_and(|spare| spare.path == temporary) {
            // The spare may be the source of the copy.
            temporary = path.with_extension("again.tmp");
        }
        write_segment(&*self.options.device, (&temporary, &path), header, body)
    }
}

/// Writes a whole segment, under a temporary name until durable.
pub(crate) fn write_segment(
    device: &dyn Device,
    (temporary, path): (&Path, &Path),
    header: &SegmentHeader,
    body: &[u8],
) -> Result<(), Error> {
    let header = header.encode();
    let length = (header.len() + body.len()) as u64;
    let file = device.create(temporary, length).map_err(Error::io(temporary, "create"))?;
    file.write_at(&[IoSlice::new(&header), IoSlice::new(body)], 0)
        .map_err(Error::io(temporary, "write to"))?;
    file.sync_data().map_err(Error::io(temporary, "sync"))?;
    device.rename(temporary, path).map_err(Error::io(path, "rename a whole segment to"))?;
    let dir = path.parent().unwrap_or(Path::new("."));
    device.sync_dir(dir).map_err(Error::io(dir, "sync the directory"))
}
