//! The read position in a stream: its reader, its decoder and the current chunk.

use super::decode::{Decoder, RecordShape};
use super::read_ahead::LaneReader;
use crate::error::Error;
use hyades_wal::{Chunk, Lsn};

pub(crate) struct StreamCursor {
    pub reader: LaneReader,
    pub decoder: Decoder,
    /// The current chunk. The frames up to `at` have been taken.
    pub chunk: Option<Chunk>,
    pub at: Lsn,
}

/// The content behind the cursor's position.
pub(crate) enum LookAhead {
    /// More frames of the current chunk.
    More,
    /// A chunk just read.
    NewChunk,
    /// Nothing: the stream is valid up to here.
    End(Lsn),
}

impl StreamCursor {
    pub fn new(reader: LaneReader, shape: RecordShape) -> StreamCursor {
        let (decoder, at) = (Decoder::new(shape, reader.stream), reader.start());
        StreamCursor { reader, decoder, chunk: None, at }
    }

    /// Reads the next chunk if no frames of the current chunk are left.
    #[inline]
    pub fn look_ahead(&mut self) -> Result<LookAhead, Error> {
        if self.chunk.as_ref().is_some_and(|chunk| chunk.end() != self.at) {
            return Ok(LookAhead::More);
        }
        let Some(chunk) = self.reader.next_chunk()? else {
            return Ok(LookAhead::End(self.reader.valid_to()));
        };
        let is_first = self.chunk.is_none();
        debug_assert!(is_first || chunk.start() == self.at, "the chunks of a stream have no gaps");
        self.decoder.enter(&chunk);
        self.at = chunk.start();
        self.chunk = Some(chunk);
        Ok(LookAhead::NewChunk)
    }
}
