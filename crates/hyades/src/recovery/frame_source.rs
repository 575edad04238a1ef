//! Frames that a follower has received, as replay reads them.

use crate::error::Error;
use hyades_wal::{Chunk, Lsn, StreamId};

/// Frames of one stream in their order, see [`FrameSource::frames`].
pub type FrameChunks = Box<dyn Iterator<Item = Result<Chunk, hyades_wal::Error>> + Send>;

/// Where a follower finds the frames of the followed log: its copy of the streams.
pub trait FrameSource: Send + Sync {
    /// Returns the frames of a stream from `from` to `to`: validated, in chunks of any size,
    /// without gaps. `stream` is the stream's number in the incarnation's vectors. The source has
    /// all frames up to `to`, and both positions are between frames.
    ///
    /// # Errors
    /// The frames could not be read.
    fn frames(&self, stream: usize, from: Lsn, to: Lsn) -> Result<FrameChunks, hyades_wal::Error>;
}

/// Reads a part of one stream from a source.
pub(super) struct SliceReader {
    chunks: FrameChunks,
    stream: StreamId,
    /// The number of streams.
    streams: usize,
    at: Lsn,
    to: Lsn,
}

impl SliceReader {
    /// `lane`: the stream's number in vectors, and the number of streams.
    pub fn new(
        source: &dyn FrameSource,
        stream: StreamId,
        (lane, streams): (usize, usize),
        (at, to): (Lsn, Lsn),
    ) -> Result<SliceReader, Error> {
        debug_assert!(at <= to, "a part of a stream ends behind its beginning");
        let chunks: FrameChunks = match at == to {
            true => Box::new(std::iter::empty()),
            false => source.frames(lane, at, to)?,
        };
        Ok(SliceReader { chunks, stream, streams, at, to })
    }

    /// The position up to which frames were returned.
    pub fn valid_to(&self) -> Lsn {
        self.at
    }

    /// Returns the next frames; `None` at the end of the part.
    pub fn next_chunk(&mut self) -> Result<Option<Chunk>, Error> {
        let SliceReader { stream, streams, at, to, .. } = *self;
        if at == to {
            return Ok(None);
        }
        let Some(chunk) = self.chunks.next().transpose()? else {
            return Err(self.refused("no more frames were given".to_string()));
        };
        let (start, end, lanes) = (chunk.start(), chunk.end(), chunk.anchor().len());
        if start != at || end <= at || end > to || lanes != streams {
            return Err(self.refused(format!(
                "frames of log stream {stream} from {start} to {end} with {lanes} lanes were given"
            )));
        }
        self.at = end;
        Ok(Some(chunk))
    }

    #[cold]
    fn refused(&self, what: String) -> Error {
        let SliceReader { stream, streams, at, to, .. } = self;
        Error::Recovery(format!(
            "frames of log stream {stream} from Lsn {at} to {to}, with {streams} lanes, were asked \
             for, and {what}: the copy of the log is incomplete, or of another database"
        ))
    }
}
