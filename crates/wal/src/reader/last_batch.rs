//! The end of a stream, found before the stream is read.
//!
//! *Rule.* The header of a batch states that everything before the batch is durable, and so does
//! the header of a segment. So the frames of a batch that another batch follows are whole, or the
//! log is damaged, which reading the stream finds ([`crate::verdict`]). Only the last batch may be
//! torn: only its frames are checked here, and of all other batches of the last segment only the
//! headers are read. Headers of a spare state nothing: a spare is read as a whole.
//!
//! The stream's mark is that of the last heartbeat before the end, as marks grow along a stream.
//! Flushers state a mark with nearly every batch in which marks have grown, so few batches before
//! the last one have to be read for the heartbeat.
//!
//! (Poplar, section 5: RSNe is computed from the latest log files, which are short, while other
//! files are replayed.)

use super::window::{Open, Window};
use super::{StreamReader, start_of};
use crate::Lsn;
use crate::error::Error;
use crate::format::{self, BATCH_HEADER, BatchHeader};
use crate::frame::{self, FrameKind};
use crate::segment::Segment;
use hyades_platform::broken;

/// The bytes read for one batch header, and for the headers close behind.
const HEADERS_BYTES: usize = 16 << 10;

/// Where a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamEnd {
    /// The end of the valid prefix.
    pub valid_to: Lsn,
    /// The highest mark stated within the valid prefix. In an incarnation without marks the value
    /// has no meaning.
    pub mark: u64,
}

/// A batch of a segment.
#[derive(Clone, Copy)]
struct BatchPlace {
    /// The header's offset in the file.
    offset: u64,
    start: Lsn,
    length: u32,
}

impl StreamReader {
    /// Finds the end of the stream without reading the stream, see the module. `has_marks`: whether
    /// the stream's mark is looked for.
    ///
    /// # Errors
    /// The device could not be read. If the log is damaged, the result may be wrong.
    pub(crate) fn find_end(mut self, has_marks: bool) -> Result<StreamEnd, Error> {
        let first = self.segments.iter().rposition(|s| start_of(s) <= self.start).unwrap_or(0);
        // Of a stream that ends where reading begins, nothing is read, no mark either.
        let (recorded, is_read) = (self.mark, !self.finished);
        if self.end.is_none() {
            self.read_last_batch()?;
        }
        let valid_to = self.end.unwrap_or_else(|| self.valid_to());
        // Where the manifest records an end, the recorded mark may be an earlier one.
        if has_marks && is_read && self.mark == recorded {
            for at in (first..self.segments.len()).rev() {
                if let Some(mark) = self.last_mark(at)? {
                    self.mark = self.mark.max(mark);
                    break;
                }
            }
        }
        Ok(StreamEnd { valid_to, mark: self.mark })
    }

    /// Reads the frames of the last batch, and of a spare behind, up to the end of the valid
    /// prefix.
    fn read_last_batch(&mut self) -> Result<(), Error> {
        if let Some(last) = self.segments.iter().rfind(|s| !s.spare) {
            self.skip_to(start_of(last));
        }
        self.searches = false;
        self.open_next()?;
        if let Some(mut open) = self.open.take_if(|open| !open.spare) {
            if let Some(batch) = self.batches(&open, self.position)?.last() {
                (open.offset, self.position) = (batch.offset, batch.start);
                if broken!(TornBatchIsWhole) {
                    open.limit = batch.start + u64::from(batch.length);
                    self.position = open.limit;
                }
            }
            self.open = Some(open);
            self.window = Window::of(HEADERS_BYTES);
        }
        while self.next_chunk()?.is_some() {}
        Ok(())
    }

    /// Returns the batches of a segment in their order, from the first batch on, which begins at
    /// `position`. Only headers are read.
    fn batches(&self, open: &Open, position: Lsn) -> Result<Vec<BatchPlace>, Error> {
        let mut window = Window::of(HEADERS_BYTES);
        let (mut batches, mut offset, mut start) = (Vec::new(), open.offset, position);
        while start < open.limit && offset + BATCH_HEADER as u64 <= open.length {
            let (bytes, _) = window.get(open, offset, BATCH_HEADER)?;
            let header = BatchHeader::decode(bytes, &self.uuid, self.stream, self.incarnation);
            let Some(header) = header.filter(|header| header.start == start) else { break };
            let length = header.length;
            batches.push(BatchPlace { offset, start, length });
            let end = offset + BATCH_HEADER as u64 + u64::from(length);
            (offset, start) = (end.next_multiple_of(open.block), start + u64::from(length));
        }
        Ok(batches)
    }

    /// Returns the last mark stated in a segment; `None` if no mark is stated in the segment before
    /// the end of the stream.
    fn last_mark(&self, at: usize) -> Result<Option<u64>, Error> {
        let Some(segment) = self.segments.get(at) else { return Ok(None) };
        let Some(open) = self.opened(segment, at + 1)? else { return Ok(None) };
        // Going back, a longer read would be of no use.
        let mut window = Window::of(0);
        for batch in self.batches(&open, start_of(segment))?.into_iter().rev() {
            let first = batch.offset + BATCH_HEADER as u64;
            let (mut rest, _) = window.get(&open, first, batch.length as usize)?;
            let (mut mark, mut position) = (None, batch.start);
            while let Ok(frame) = frame::check(rest, position, self.seed) {
                if frame.end > open.limit {
                    break;
                }
                if frame.kind == FrameKind::Heartbeat {
                    mark =
                        frame::read_heartbeat(frame.payload).map_or(mark, |(mark, _)| Some(mark));
                }
                rest = &rest[(frame.end - frame.start) as usize..];
                position = frame.end;
            }
            if mark.is_some() {
                return Ok(mark);
            }
        }
        Ok(None)
    }

    /// Opens a segment, which ends where the segment of number `next` begins. `None` if the segment
    /// has not begun.
    pub(super) fn opened(&self, segment: &Segment, next: usize) -> Result<Option<Open>, Error> {
        let Some(header) = &segment.header else { return Ok(None) };
        let limit = self.segments.get(next).map_or(Lsn::MAX, start_of);
        let file =
            self.device.open_read(&segment.path).map_err(Error::io(&segment.path, "open"))?;
        Ok(Some(Open {
            path: segment.path.clone(),
            file,
            length: segment.length,
            block: u64::from(header.block_bytes),
            offset: format::header_bytes(header.block_bytes as usize) as u64,
            limit: limit.min(self.end.unwrap_or(Lsn::MAX)),
            spare: segment.spare,
        }))
    }
}
