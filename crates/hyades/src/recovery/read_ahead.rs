//! Reads streams ahead of replay.
//!
//! Replay has one thread per processor, and there may be more devices than processors. If reads
//! have to wait for the device, each stream is read by its own thread with little processor time;
//! so all devices work at once, with any number of processors.

#[cfg(feature = "replication")]
use super::frame_source::{FrameSource, SliceReader};
use super::progress::{ReadCounter, RecoveryProgress};
use super::report::StreamRead;
use crate::error::Error;
use hyades_platform::clock;
use hyades_wal::{Chunk, Lsn, ReaderEnd, StreamId, StreamReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Number of chunks read before replay requests them.
const AHEAD: usize = 4;

/// A stream, as read by replay.
pub(crate) struct LaneReader {
    /// The stream's id.
    pub stream: StreamId,
    start: Lsn,
    source: ChunkSource,
    counter: ReadCounter,
    times: Arc<ReadTimes>,
}

/// The bytes read of a stream, and the time taken. Added to by the reading thread and by the
/// threads requesting chunks, and read after the replay of the stream: Relaxed, since the bytes
/// read were handed over before.
#[derive(Default)]
pub(crate) struct ReadTimes {
    bytes: AtomicU64,
    read_ns: AtomicU64,
    wait_ns: AtomicU64,
}

impl ReadTimes {
    /// Returns the totals, as the totals of `stream`.
    pub fn of(&self, stream: StreamId) -> StreamRead {
        let seconds = |ns: &AtomicU64| ns.load(Ordering::Relaxed) as f64 / 1e9;
        StreamRead {
            stream: stream.0,
            bytes: self.bytes.load(Ordering::Relaxed),
            read_seconds: seconds(&self.read_ns),
            wait_seconds: seconds(&self.wait_ns),
        }
    }
}

/// Calls `work`, and adds its duration to `ns`.
fn timed<T>(ns: &AtomicU64, work: impl FnOnce() -> T) -> T {
    let began = clock::monotonic_ns();
    let result = work();
    ns.fetch_add(clock::monotonic_ns() - began, Ordering::Relaxed);
    result
}

enum ChunkSource {
    /// Read on demand by the calling thread.
    Here(Box<StreamReader>),
    /// Read by a separate thread.
    ReadAhead(ReadAhead),
    /// A part of a followed log.
    #[cfg(feature = "replication")]
    Slice(SliceReader),
}

struct ReadAhead {
    /// `None` only during drop.
    chunks: Option<Receiver<Result<ReadChunk, Error>>>,
    /// `None` only during drop.
    thread: Option<JoinHandle<()>>,
    valid_to: Lsn,
    end: Option<ReaderEnd>,
}

/// The result of one read.
struct ReadChunk {
    /// `None` at the end.
    chunk: Option<Chunk>,
    valid_to: Lsn,
    end: Option<ReaderEnd>,
}

impl LaneReader {
    /// Reads the stream ahead in a separate thread, or on demand.
    pub fn new(reader: StreamReader, ahead: bool, progress: &RecoveryProgress) -> LaneReader {
        let (stream, start) = (reader.stream, reader.start());
        let (counter, times) = (progress.count_reads(&reader), Arc::<ReadTimes>::default());
        if !ahead {
            let source = ChunkSource::Here(Box::new(reader));
            return LaneReader { stream, start, source, counter, times };
        }
        let valid_to = reader.valid_to();
        let (sender, receiver) = sync_channel(AHEAD);
        let reading = Arc::clone(&times);
        let thread = std::thread::spawn(move || read(reader, &sender, &reading));
        let (chunks, thread) = (Some(receiver), Some(thread));
        let source = ChunkSource::ReadAhead(ReadAhead { chunks, thread, valid_to, end: None });
        LaneReader { stream, start, source, counter, times }
    }

    /// Reads a part of a stream from a follower's copy. `lane`: the stream's number in vectors, and
    /// the number of streams.
    #[cfg(feature = "replication")]
    pub fn of_slice(
        source: &dyn FrameSource,
        stream: StreamId,
        lane: (usize, usize),
        part: (Lsn, Lsn),
    ) -> Result<LaneReader, Error> {
        let source = ChunkSource::Slice(SliceReader::new(source, stream, lane, part)?);
        let counter = ReadCounter::uncounted(part);
        Ok(LaneReader { stream, start: part.0, source, counter, times: Arc::default() })
    }

    /// Returns the start of the stream.
    pub fn start(&self) -> Lsn {
        self.start
    }

    /// Returns the next chunk; `None` at the end of the valid bytes.
    pub fn next_chunk(&mut self) -> Result<Option<Chunk>, Error> {
        let source = &mut self.source;
        let chunk = timed(&self.times.wait_ns, || match source {
            ChunkSource::Here(reader) => {
                timed(&self.times.read_ns, || reader.next_chunk()).map_err(Error::from)
            }
            ChunkSource::ReadAhead(ahead) => ahead.next_chunk(),
            #[cfg(feature = "replication")]
            ChunkSource::Slice(slice) => slice.next_chunk(),
        })?;
        match &chunk {
            Some(chunk) => {
                self.times.bytes.fetch_add(chunk.end() - chunk.start(), Ordering::Relaxed);
                self.counter.read_to(chunk.end());
            }
            None => self.counter.ended(),
        }
        Ok(chunk)
    }

    /// Returns the totals of the reads so far, also for use after the reader is consumed.
    pub fn times(&self) -> Arc<ReadTimes> {
        Arc::clone(&self.times)
    }

    /// Returns the position up to which the stream is known to be valid, as of the last chunk
    /// returned.
    pub fn valid_to(&self) -> Lsn {
        match &self.source {
            ChunkSource::Here(reader) => reader.valid_to(),
            ChunkSource::ReadAhead(ahead) => ahead.valid_to,
            #[cfg(feature = "replication")]
            ChunkSource::Slice(slice) => slice.valid_to(),
        }
    }

    /// Returns the position and kind of the stream's end. `None` if a read-ahead stream was not
    /// read to its end, and for a part of a stream.
    pub fn end(&self) -> Option<ReaderEnd> {
        match &self.source {
            ChunkSource::Here(reader) => Some(reader.end()),
            ChunkSource::ReadAhead(ahead) => ahead.end.clone(),
            #[cfg(feature = "replication")]
            ChunkSource::Slice(_) => None,
        }
    }
}

impl ReadAhead {
    fn next_chunk(&mut self) -> Result<Option<Chunk>, Error> {
        if self.end.is_some() {
            return Ok(None);
        }
        let chunks = self.chunks.as_ref().expect("it is there until this is dropped");
        // After an error, returned to the caller, nothing more arrives.
        let nothing = |_| Error::Recovery("a log stream could not be read to its end".into());
        let read = chunks.recv().map_err(nothing)??;
        debug_assert!(read.valid_to >= self.valid_to, "what is valid stays valid");
        (self.valid_to, self.end) = (read.valid_to, read.end);
        Ok(read.chunk)
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        // The thread's next send fails and ends the thread.
        self.chunks = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported to the caller of `next_chunk` as an error.
            let _ = thread.join();
        }
    }
}

/// Reads a stream to its end, or until the receiver is dropped.
fn read(mut reader: StreamReader, to: &SyncSender<Result<ReadChunk, Error>>, times: &ReadTimes) {
    loop {
        let read = timed(&times.read_ns, || reader.next_chunk()).map(|chunk| {
            let end = chunk.is_none().then(|| reader.end());
            ReadChunk { chunk, valid_to: reader.valid_to(), end }
        });
        let goes_on = matches!(&read, Ok(read) if read.end.is_none());
        if to.send(read.map_err(Error::from)).is_err() || !goes_on {
            return;
        }
    }
}
