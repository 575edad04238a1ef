//! Reading streams ahead of replay.
//!
//! Replay has a thread for each processor, and there may be more devices than these. Where a thread that
//! reads has to wait for its device, each stream is read by a thread of its own, which does little else;
//! so all devices work at once, however few processors there are.

use crate::error::Error;
use hyades_wal::{Chunk, Lsn, ReaderEnd, StreamReader};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Chunks that are read before replay asks for them.
const AHEAD: usize = 4;

/// One stream as replay reads it.
pub(crate) struct LaneReader {
    /// The stream's id.
    pub stream: u32,
    start: Lsn,
    source: ChunkSource,
}

enum ChunkSource {
    /// Read by whoever asks.
    Here(Box<StreamReader>),
    /// Read by a thread.
    ReadAhead(ReadAhead),
}

struct ReadAhead {
    /// None only while this is dropped.
    chunks: Option<Receiver<Result<ReadChunk, Error>>>,
    /// As `chunks`.
    thread: Option<JoinHandle<()>>,
    mark: u64,
    valid_to: Lsn,
    end: Option<ReaderEnd>,
}

/// What a thread has read.
struct ReadChunk {
    /// None at the end.
    chunk: Option<Chunk>,
    mark: u64,
    valid_to: Lsn,
    end: Option<ReaderEnd>,
}

impl LaneReader {
    /// Reads the stream ahead, or when it is asked for.
    pub fn new(reader: StreamReader, ahead: bool) -> LaneReader {
        let (stream, start) = (reader.stream, reader.start());
        if !ahead {
            return LaneReader { stream, start, source: ChunkSource::Here(Box::new(reader)) };
        }
        let (mark, valid_to) = (reader.mark(), reader.valid_to());
        let (sender, receiver) = sync_channel(AHEAD);
        let thread = std::thread::spawn(move || read(reader, &sender));
        let (chunks, thread) = (Some(receiver), Some(thread));
        let source =
            ChunkSource::ReadAhead(ReadAhead { chunks, thread, mark, valid_to, end: None });
        LaneReader { stream, start, source }
    }

    /// Where the stream begins.
    pub fn start(&self) -> Lsn {
        self.start
    }

    /// The next chunk; none at the end of what is valid.
    pub fn next_chunk(&mut self) -> Result<Option<Chunk>, Error> {
        match &mut self.source {
            ChunkSource::Here(reader) => Ok(reader.next_chunk()?),
            ChunkSource::ReadAhead(ahead) => ahead.next_chunk(),
        }
    }

    /// As far as the chunks that were handed out tell: the mark that the stream has stated.
    pub fn mark(&self) -> u64 {
        match &self.source {
            ChunkSource::Here(reader) => reader.mark(),
            ChunkSource::ReadAhead(ahead) => ahead.mark,
        }
    }

    /// As far as the chunks that were handed out tell: how far the stream is valid.
    pub fn valid_to(&self) -> Lsn {
        match &self.source {
            ChunkSource::Here(reader) => reader.valid_to(),
            ChunkSource::ReadAhead(ahead) => ahead.valid_to,
        }
    }

    /// What was found. None if it was not read to its end.
    pub fn end(&self) -> Option<ReaderEnd> {
        match &self.source {
            ChunkSource::Here(reader) => Some(reader.end()),
            ChunkSource::ReadAhead(ahead) => ahead.end.clone(),
        }
    }
}

impl ReadAhead {
    fn next_chunk(&mut self) -> Result<Option<Chunk>, Error> {
        if self.end.is_some() {
            return Ok(None);
        }
        let chunks = self.chunks.as_ref().expect("it is there until this is dropped");
        // After an error, which somebody was told, there is nothing more.
        let nothing = |_| Error::Recovery("a log stream could not be read to its end".into());
        let read = chunks.recv().map_err(nothing)??;
        (self.mark, self.valid_to, self.end) = (read.mark, read.valid_to, read.end);
        Ok(read.chunk)
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        // The thread finds nobody to give its next chunk to, and ends.
        self.chunks = None;
        if let Some(thread) = self.thread.take() {
            // Its panic was met by whoever asked for a chunk.
            let _ = thread.join();
        }
    }
}

/// Reads a stream to its end, or until nobody wants more.
fn read(mut reader: StreamReader, to: &SyncSender<Result<ReadChunk, Error>>) {
    loop {
        let read = reader.next_chunk().map(|chunk| {
            let end = chunk.is_none().then(|| reader.end());
            ReadChunk { chunk, mark: reader.mark(), valid_to: reader.valid_to(), end }
        });
        let goes_on = matches!(&read, Ok(read) if read.end.is_none());
        if to.send(read.map_err(Error::from)).is_err() || !goes_on {
            return;
        }
    }
}
