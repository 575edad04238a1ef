//! Reading a stream: the valid prefix, and the statements of durable positions (`docs/format.md`,
//! section 8).

mod last_batch;
mod window;

pub use self::last_batch::StreamEnd;
use self::window::{Open, Window};
use crate::Lsn;
use crate::chunk::Chunk;
use crate::error::Error;
use crate::format::{self, BATCH_HEADER, BatchHeader};
use crate::frame::{self, FrameKind};
use crate::manifest::{Incarnation, Manifest};
use crate::segment::{Chain, Segment, start_of};
use crate::statement::{Statement, take_statements};
use crate::stream_id::StreamId;
use hyades_platform::broken;
use hyades_platform::device::Device;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

/// The size in bytes at which a chunk ends, with the batch in progress.
const CHUNK_BYTES: usize = 512 << 10;

/// The result of a finished reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReaderEnd {
    /// The incarnation read.
    pub incarnation: u32,
    /// The stream's dimension in the incarnation's vectors.
    pub dimension: usize,
    /// The stream read.
    pub stream: StreamId,
    /// The end of the valid prefix.
    pub valid_to: Lsn,
    /// The highest mark stated within the valid prefix.
    pub mark: u64,
    /// The highest durable statement found for each stream of the incarnation.
    pub statements: Vec<Statement>,
    /// The file and byte after the valid prefix, and the fault there.
    pub stopped_at: (PathBuf, u64, String),
    pub(crate) finished: bool,
    /// Whether the device failed to read the next bytes.
    pub(crate) unreadable: bool,
    /// Whether the reader was ended because the next records may depend on losses of another
    /// stream.
    pub(crate) cut_short: bool,
}

/// Reads one stream of one incarnation. Readers are independent, and may be used on different
/// threads.
#[derive(Debug)]
pub struct StreamReader {
    /// The incarnation.
    pub incarnation: u32,
    /// The stream's dimension in the incarnation's vectors.
    pub dimension: usize,
    /// The stream's id.
    pub stream: StreamId,
    /// The number of streams of the incarnation.
    pub dimensions: usize,
    device: Arc<dyn Device>,
    uuid: [u8; 16],
    seed: u32,
    start: Lsn,
    /// The end recorded in the manifest.
    end: Option<Lsn>,
    position: Lsn,
    /// Frames with an end at or below this LSN are validated and not returned.
    skip_to: Lsn,
    segments: Vec<Segment>,
    unstarted: Vec<Segment>,
    unbegun_block: u64,
    next_segment: usize,
    open: Option<Open>,
    window: Window,
    anchor: Vec<Lsn>,
    mark: u64,
    statements: Vec<Statement>,
    stopped_at: (PathBuf, u64, String),
    finished: bool,
    bytes_read: u64,
    /// Whether a read error ends the valid prefix, like damage.
    lenient: bool,
    unreadable: bool,
    cut_short: bool,
    /// Whether the bytes beyond the valid prefix are searched for a proof of a longer prefix.
    searches: bool,
    /// The usable end of each stream: nothing is returned behind an anchor with a higher statement.
    whole: Option<Vec<Lsn>>,
    /// Whether frames speak of the replicated log, and only headers of these files.
    mirrored: bool,
}

impl StreamReader {
    pub(crate) fn new(
        device: Arc<dyn Device>,
        manifest: &Manifest,
        incarnation: &Incarnation,
        dimension: usize,
        stream_dir: PathBuf,
        chain: &Chain,
    ) -> Self {
        let dim = &incarnation.dims[dimension];
        let kept_from = manifest.stream(dim.stream).map_or(0, |s| s.kept_from);
        let lowest = dim.start.max(kept_from);
        let start = dim.end.map_or(lowest, |end| lowest.min(end));
        let of_incarnation =
            |s: &&Segment| s.header.as_ref().is_some_and(|h| h.incarnation == incarnation.number);
        let spare = chain.spare.iter().filter(|_| dim.end.is_none());
        let segments: Vec<Segment> =
            chain.segments.iter().chain(spare).filter(of_incarnation).cloned().collect();
        let last_started = chain.last_started().map_or(0, |s| s.sequence);
        let unstarted = match dim.end {
            None => chain.segments.iter().filter(|s| s.sequence > last_started).cloned().collect(),
            Some(_) => Vec::new(),
        };
        let starts = incarnation.dims.iter().map(|d| d.start).collect();
        let mut reader = Self {
            incarnation: incarnation.number,
            dimension,
            stream: dim.stream,
            dimensions: incarnation.dims.len(),
            device,
            uuid: manifest.uuid(),
            seed: frame::seed(&manifest.uuid(), dim.stream, incarnation.number),
            start,
            end: dim.end,
            position: start,
            skip_to: start,
            segments,
            unstarted,
            unbegun_block: manifest.block_bytes as u64,
            next_segment: 0,
            open: None,
            window: Window::default(),
            anchor: starts,
            mark: dim.mark,
            statements: vec![Statement::default(); incarnation.dims.len()],
            stopped_at: (stream_dir, 0, "the stream has no segment here".into()),
            finished: start == dim.end.unwrap_or(Lsn::MAX),
            bytes_read: 0,
            lenient: false,
            unreadable: false,
            cut_short: false,
            searches: true,
            whole: None,
            mirrored: incarnation.is_mirrored() && !broken!(ForeignStatements),
        };
        for segment in reader.segments.iter().filter(|s| !s.spare) {
            let lsn = segment.header.as_ref().map_or(0, |h| h.start.max(h.durable));
            reader.statements[dimension].note(lsn, &segment.path, 48);
        }
        reader
    }

    /// Returns the start of the stream, or of its kept part, in the incarnation.
    pub fn start(&self) -> Lsn {
        self.start
    }

    /// Skips frames with an end at or below `lsn`, and segments with only such frames. The skipped
    /// part counts as read. Call this before the first chunk.
    pub fn skip_to(&mut self, lsn: Lsn) {
        debug_assert_eq!(self.bytes_read, 0, "frames below {lsn} may have been returned");
        if lsn <= self.start || self.finished {
            return;
        }
        let lsn = self.end.map_or(lsn, |end| lsn.min(end));
        self.skip_to = self.skip_to.max(lsn);
        self.start = lsn;
        self.position = lsn;
        self.finished = self.end == Some(lsn);
        let at = self.segments.iter().rposition(|s| start_of(s) <= lsn);
        self.next_segment = self.next_segment.max(at.unwrap_or(0));
    }

    /// Ends reading at `lsn`; the stream is known to be valid up to there. Call this before the
    /// first chunk.
    pub(crate) fn stop_at(&mut self, lsn: Lsn) {
        debug_assert_eq!(self.bytes_read, 0, "frames behind {lsn} may have been returned");
        self.end = Some(lsn);
        self.unstarted.clear();
        self.finished |= self.position >= lsn;
    }

    /// Returns the bytes of frames to return: if the end of the stream is unknown, the capacity of
    /// the files. Call this before the first chunk.
    pub fn bytes_total(&self) -> u64 {
        debug_assert_eq!(self.bytes_read, 0, "the total is asked for before chunks");
        let held = |last: &Segment| start_of(last).saturating_add(last.length);
        let files_end = self.segments.last().map_or(0, held);
        match self.finished {
            true => 0,
            false => self.end.unwrap_or(files_end).saturating_sub(self.start),
        }
    }

    /// Returns the end of the stream's known valid part. Never below [`Self::start`]: the skipped
    /// part counts as read, whether or not damaged.
    pub fn valid_to(&self) -> Lsn {
        self.position.max(self.start)
    }

    /// The highest mark stated in the known valid part of the stream: every frame of the stream
    /// with a number up to the mark is in the part.
    pub fn mark(&self) -> u64 {
        self.mark
    }

    /// The anchor in effect behind the last frame read.
    pub(crate) fn anchor(&self) -> &[Lsn] {
        &self.anchor
    }

    /// The reader's result, for [`Recovering::verdict`](crate::Recovering::verdict). The result's
    /// `valid_to` is below [`Self::start`] if the skipped part is damaged: the rest cannot be read
    /// then. Call this after the last chunk.
    pub fn end(&self) -> ReaderEnd {
        ReaderEnd {
            incarnation: self.incarnation,
            dimension: self.dimension,
            stream: self.stream,
            valid_to: self.position,
            mark: self.mark,
            statements: self.statements.clone(),
            stopped_at: self.stopped_at.clone(),
            finished: self.finished,
            unreadable: self.unreadable,
            cut_short: self.cut_short,
        }
    }

    /// Makes read errors end the valid prefix, like damage.
    pub(crate) fn treat_read_errors_as_end(&mut self) {
        self.lenient = true;
    }

    /// Ignores the manifest's mark, because some of the covered frames are lost.
    pub(crate) fn ignore_manifest_mark(&mut self) {
        self.mark = 0;
    }

    /// Ends the valid prefix behind an anchor with a statement beyond `whole`.
    pub(crate) fn limit_anchors(&mut self, whole: Vec<Lsn>) {
        debug_assert_eq!(
            whole.len(),
            self.dimensions,
            "an anchor states a position of each stream"
        );
        self.whole = Some(whole);
    }

    /// Returns the first stream for which the anchor in effect states more than is usable: the
    /// lane, the stated and the usable position.
    fn anchor_beyond_limit(&self) -> Option<(usize, Lsn, Lsn)> {
        let lanes = self.anchor.iter().zip(self.whole.as_ref()?).enumerate();
        let lanes = lanes.map(|(lane, (&stated, &whole))| (lane, stated, whole));
        lanes.into_iter().find(|&(_, stated, whole)| stated > whole)
    }

    /// Returns the next frames, all validated; None at the end of the valid prefix.
    ///
    /// # Errors
    /// The device could not be read. Damage is not an error here: damage ends the prefix, and is
    /// left to the verdict.
    pub fn next_chunk(&mut self) -> Result<Option<Chunk>, Error> {
        let mut chunk = Chunk { start: 0, bytes: Vec::new(), anchor: Vec::new() };
        while !self.finished && chunk.bytes.len() < CHUNK_BYTES {
            match self.read_some(&mut chunk) {
                Err(Error::Io { path, action, source })
                    if self.lenient && source.kind() != ErrorKind::PermissionDenied =>
                {
                    self.finished = true;
                    self.unreadable = true;
                    let offset = self.window.at;
                    self.stopped_at = (path, offset, format!("could not {action} it: {source}"));
                }
                result => result?,
            }
        }
        if chunk.bytes.is_empty() {
            return Ok(None);
        }
        debug_assert_eq!(chunk.end(), self.position, "a frame of the chunk was left out");
        Ok(Some(chunk))
    }

    fn read_some(&mut self, chunk: &mut Chunk) -> Result<(), Error> {
        match self.open.take() {
            None => self.open_next(),
            Some(open) if self.position >= open.limit => Ok(()),
            Some(mut open) => {
                let mut window = std::mem::take(&mut self.window);
                let read_on = self.read_batch(&mut open, &mut window, chunk);
                self.window = window;
                let read_on = read_on?;
                self.open = Some(open);
                if read_on { Ok(()) } else { self.finish() }
            }
        }
    }

    fn open_next(&mut self) -> Result<(), Error> {
        if self.end.is_some_and(|end| self.position >= end) {
            self.finished = true;
            return Ok(());
        }
        let Some(segment) = self.segments.get(self.next_segment) else {
            return self.finish();
        };
        let Some(header) = &segment.header else {
            return self.finish();
        };
        if self.window.at == 0 && self.bytes_read == 0 && header.start <= self.skip_to {
            // The first segment read may begin below the wanted position.
            self.position = header.start;
            self.anchor.clone_from(&header.anchor);
        }
        if header.start != self.position || header.anchor.len() != self.dimensions {
            let what = format!(
                "the segment begins at Lsn {} with {} lanes; Lsn {} and {} lanes were expected",
                header.start,
                header.anchor.len(),
                self.position,
                self.dimensions
            );
            self.stopped_at = (segment.path.clone(), 48, what);
            return self.finish();
        }
        self.open = self.opened(segment, self.next_segment + 1)?;
        self.window = Window::default();
        self.next_segment += 1;
        Ok(())
    }

    /// Notes the end of the valid prefix, at an offset of the file, and the reason. Returns
    /// `Ok(false)`.
    fn stop(&mut self, open: &Open, offset: u64, why: impl Into<String>) -> Result<bool, Error> {
        self.stopped_at = (open.path.clone(), offset, why.into());
        Ok(false)
    }

    /// Reads one batch into the chunk. False if the valid prefix ends here.
    fn read_batch(
        &mut self,
        open: &mut Open,
        window: &mut Window,
        chunk: &mut Chunk,
    ) -> Result<bool, Error> {
        let at = open.offset;
        debug_assert!(at >= open.block && at.is_multiple_of(open.block), "no batch begins at {at}");
        let (bytes, read) = window.get(open, at, BATCH_HEADER)?;
        self.bytes_read += read;
        let Some(batch) = BatchHeader::decode(bytes, &self.uuid, self.stream, self.incarnation)
        else {
            return self.stop(open, at, "there is no valid batch header");
        };
        if !open.spare {
            let lsn = batch.start.max(batch.durable);
            self.statements[self.dimension].note(lsn, &open.path, at);
        }
        if batch.start != self.position {
            let what = format!("a batch begins at Lsn {}, not {}", batch.start, self.position);
            return self.stop(open, at, what);
        }
        let first = at + BATCH_HEADER as u64;
        let (mut rest, read) = window.get(open, first, batch.length as usize)?;
        self.bytes_read += read;
        let mut place = first;
        let mut left = batch.length as usize;
        while left > 0 {
            let length = match self.read_frame(open, place, rest, chunk) {
                Ok(length) => length,
                Err(why) => return self.stop(open, place, why),
            };
            rest = &rest[length..];
            place += length as u64;
            left -= length;
            if self.position >= open.limit {
                return Ok(true);
            }
        }
        open.offset = place.next_multiple_of(open.block);
        if open.offset + BATCH_HEADER as u64 > open.length {
            // The segment is full. The next call looks for a next segment.
            self.stopped_at = (open.path.clone(), open.length, "the last segment ends".into());
            open.limit = self.position;
        }
        Ok(true)
    }

    /// Reads the frame at the start of `bytes`, from offset `place` of the file. Returns the
    /// frame's length; the error says why the valid prefix ends before the frame.
    fn read_frame(
        &mut self,
        open: &Open,
        place: u64,
        bytes: &[u8],
        chunk: &mut Chunk,
    ) -> Result<usize, String> {
        let frame = frame::check(bytes, self.position, self.seed)?;
        if frame.end > open.limit {
            return Err("the frame overlaps the next segment".into());
        }
        let length = (frame.end - frame.start) as usize;
        if frame.end > self.skip_to {
            if let Some((lane, stated, whole)) = self.anchor_beyond_limit() {
                self.cut_short = true;
                return Err(format!(
                    "what follows may rely on lane {lane} up to Lsn {stated}, which can be used up \
                     to Lsn {whole} only"
                ));
            }
            if chunk.bytes.is_empty() {
                chunk.start = frame.start;
                chunk.anchor.clone_from(&self.anchor);
            }
            chunk.bytes.extend(&bytes[..length]);
        }
        self.position = frame.end;
        if frame.kind == FrameKind::Heartbeat
            && let Some((mark, _)) = frame::read_heartbeat(frame.payload)
        {
            self.mark = self.mark.max(mark);
        }
        let file = (&open.path, place);
        let statements = if self.mirrored { &mut [][..] } else { &mut self.statements };
        take_statements(self.dimension, &frame, file, &mut self.anchor, statements);
        Ok(length)
    }

    /// Ends the valid prefix, and searches the bytes beyond for a proof of a longer prefix.
    fn finish(&mut self) -> Result<(), Error> {
        self.finished = true;
        if self.end.is_some() || !self.searches {
            return Ok(());
        }
        if let Some(open) = self.open.take() {
            let bad = if self.stopped_at.0 == open.path { self.stopped_at.1 } else { open.offset };
            let from = bad.max(open.offset + 1).next_multiple_of(open.block);
            self.search(&open, from)?;
        }
        for segment in std::mem::take(&mut self.unstarted) {
            let file =
                self.device.open_read(&segment.path).map_err(Error::io(&segment.path, "open"))?;
            let open = Open {
                path: segment.path,
                file,
                length: segment.length,
                block: self.unbegun_block,
                offset: 0,
                limit: 0,
                spare: false,
            };
            let from = format::header_bytes(self.unbegun_block as usize);
            self.search(&open, from as u64)?;
        }
        Ok(())
    }

    /// Notes the statements of all batch headers from offset `from` on.
    fn search(&mut self, open: &Open, from: u64) -> Result<(), Error> {
        let mut window = Window::default();
        let mut at = from;
        while at + BATCH_HEADER as u64 <= open.length {
            let (bytes, read) = window.get(open, at, BATCH_HEADER)?;
            self.bytes_read += read;
            if let Some(batch) =
                BatchHeader::decode(bytes, &self.uuid, self.stream, self.incarnation)
            {
                let lsn = batch.start.max(batch.durable);
                self.statements[self.dimension].note(lsn, &open.path, at);
            }
            at += open.block;
        }
        Ok(())
    }
}
