//! Where a stream is being read: its reader, its decoder, and the chunk at hand.

use super::decode::{Decoder, RecordShape};
use super::read_ahead::LaneReader;
use crate::error::Error;
use hyades_wal::{Chunk, Lsn};

pub(crate) struct StreamCursor {
    pub reader: LaneReader,
    pub decoder: Decoder,
    /// Frames up to `at` of it have been taken.
    pub chunk: Option<Chunk>,
    pub at: Lsn,
}

/// What lies behind a cursor's place.
pub(crate) enum LookAhead {
    /// More of the chunk at hand.
    More,
    /// A chunk that has just been read.
    NewChunk,
    /// Nothing: the stream is valid up to here.
    End(Lsn),
}

impl StreamCursor {
    pub fn new(reader: LaneReader, shape: RecordShape) -> StreamCursor {
        let (decoder, at) = (Decoder::new(shape, reader.stream), reader.start());
        StreamCursor { reader, decoder, chunk: None, at }
    }

    /// Sees to it that there are frames at hand, if there are any left.
    #[inline]
    pub fn look_ahead(&mut self) -> Result<LookAhead, Error> {
        if self.chunk.as_ref().is_some_and(|chunk| chunk.end() != self.at) {
            return Ok(LookAhead::More);
        }
        let Some(chunk) = self.reader.next_chunk()? else {
            return Ok(LookAhead::End(self.reader.valid_to()));
        };
        self.decoder.enter(&chunk);
        self.at = chunk.start();
        self.chunk = Some(chunk);
        Ok(LookAhead::NewChunk)
    }
}
