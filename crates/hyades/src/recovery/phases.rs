//! The basic parallel recovery of Taurus 2016 (section 4.4.1), in its three phases, for comparison
//! with the merged recovery ([`super::dataflow`]).
//!
//! 1. All threads read the whole log into memory: the recovery dependency graph, with the edges
//!    listed by the records.
//! 2. All threads look for unrecoverable records: records that have read from a lost record, or
//!    from an unrecoverable one, until a pass finds no more.
//! 3. All threads replay the rest, each record after the records that it has overwritten. If
//!    commands are in the log, a record also follows the records that it has read from, and the
//!    records covered by its vector. In a log of only data records a record follows its vector if
//!    it lists no overwritten record: the vector may stand for a list that did not fit the frame.
//!
//! A record is recoverable under the same rule as in the merged recovery: its vector is below the
//! ends of the streams, and all records listed as read from are recoverable. The paper merges the
//! phases to save the log's memory.

use super::cursor::{LookAhead, StreamCursor};
use super::dataflow::{self, RecordSource};
use super::decode::RecordShape;
use super::graph::Graph;
use super::read_ahead::LaneReader;
use super::replay::ReplayContext;
use super::threads;
use crate::error::Error;
use crate::logging::admits;
use crate::logging::predecessors::{self, Predecessor};
use crate::logging::record::RecordHead;
use crate::storage::Stamp;
use hyades_platform::sync::Unpoisoned;
use hyades_wal::{FrameKind, Lane, Lsn, ReaderEnd, StreamId};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A record in memory.
pub(super) struct LoadedRecord {
    pub head: RecordHead,
    pub body: Vec<u8>,
    pub list: Box<[Predecessor]>,
    pub vector: Box<[Lsn]>,
    /// Whether the record is unrecoverable. Set and read in the second phase, by any thread:
    /// Relaxed, since a pass that misses the flag is followed by another pass.
    pub dead: AtomicBool,
}

/// The content of a frame, as needed by replay.
pub(super) enum LoadedContent {
    Record(Box<LoadedRecord>),
    Anchor(Vec<Lsn>),
    /// Nothing to replay: the record is in a checkpoint, or was abandoned.
    Skipped,
}

/// A frame in memory.
pub(super) struct LoadedFrame {
    pub start: Lsn,
    pub end: Lsn,
    pub content: LoadedContent,
}

/// A stream in memory, from which replay takes its frames.
pub(super) struct LoadedStream {
    pub reader: LaneReader,
    frames: std::vec::IntoIter<LoadedFrame>,
    /// The end of the stream.
    pub end: Lsn,
}

impl LoadedStream {
    /// The end of the next frame.
    pub fn next_end(&self) -> Option<Lsn> {
        self.frames.as_slice().first().map(|frame| frame.end)
    }

    /// The next frame, once.
    pub fn next(&mut self) -> Option<LoadedFrame> {
        self.frames.next()
    }
}

/// The frames of a stream.
struct LoadedFrames {
    frames: Vec<LoadedFrame>,
    end: Lsn,
}

impl LoadedFrames {
    fn records(&self) -> impl Iterator<Item = (Lsn, &LoadedRecord)> {
        self.frames.iter().filter_map(|frame| match &frame.content {
            LoadedContent::Record(record) => Some((frame.end, &**record)),
            LoadedContent::Anchor(_) | LoadedContent::Skipped => None,
        })
    }

    /// Returns the record that ends at `end`; `None` if there is no record to replay.
    fn record(&self, end: Lsn) -> Option<&LoadedRecord> {
        let first = self.frames.partition_point(|frame| frame.end < end);
        // An anchor in effect at a chunk's start is there, too.
        let mut there = self.frames[first..].iter().take_while(|frame| frame.end == end);
        there.find_map(|frame| match &frame.content {
            LoadedContent::Record(record) => Some(&**record),
            LoadedContent::Anchor(_) | LoadedContent::Skipped => None,
        })
    }
}

/// Replays an incarnation of records with lists of predecessors. `whole`: streams that end below a
/// position stated by an anchor will be rejected. Returns the ends of the streams.
pub(crate) fn replay<S: Stamp>(
    replay: &ReplayContext<S>,
    readers: Vec<LaneReader>,
    shape: RecordShape,
    whole: bool,
    threads: usize,
) -> Result<Vec<ReaderEnd>, Error> {
    let starts: Vec<Lsn> = readers.iter().map(LaneReader::start).collect();
    let names: Vec<StreamId> = readers.iter().map(|reader| reader.stream).collect();
    let (readers, streams): (Vec<_>, Vec<_>) =
        load(replay, readers, (shape, whole), threads).into_iter().unzip();
    if replay.has_failed() {
        return Ok(Vec::new());
    }
    while find_unrecoverable(replay, &streams, threads) {}
    let mut sources = Vec::new();
    for ((name, reader), mut stream) in names.into_iter().zip(readers).zip(streams) {
        if shape.data_only {
            // Images depend on no reads, and the recoverable records are known.
            keep_overwritten(&mut stream);
        }
        let LoadedFrames { frames, end } = stream;
        let loaded = LoadedStream { reader, frames: frames.into_iter(), end };
        sources.push((name, RecordSource::Memory(Box::new(loaded))));
    }
    dataflow::replay_from(
        replay,
        sources,
        Graph::new(starts, true, threads),
        (shape, whole),
        threads,
    )
}

/// Keeps only the edges to overwritten records, or the vector in their place.
fn keep_overwritten(stream: &mut LoadedFrames) {
    for frame in &mut stream.frames {
        if let LoadedContent::Record(record) = &mut frame.content {
            let overwritten = record.list.iter().copied().filter(|listed| listed.overwritten);
            record.list = overwritten.collect();
            if !record.list.is_empty() {
                record.vector.fill(0);
            }
        }
    }
}

/// Phase 1.
fn load<S: Stamp>(
    replay: &ReplayContext<S>,
    readers: Vec<LaneReader>,
    (shape, whole): (RecordShape, bool),
    threads: usize,
) -> Vec<(LaneReader, LoadedFrames)> {
    let readers: Vec<Mutex<Option<LaneReader>>> =
        readers.into_iter().map(|reader| Mutex::new(Some(reader))).collect();
    let loaded: Vec<Mutex<Option<(LaneReader, LoadedFrames)>>> =
        readers.iter().map(|_| Mutex::new(None)).collect();
    let turn = AtomicUsize::new(0);
    let work = |_| {
        loop {
            let at = turn.fetch_add(1, Ordering::Relaxed);
            let Some(reader) = readers.get(at) else { return Ok(()) };
            let reader = reader.lock().unpoisoned().take();
            let reader = reader.expect("each reader has one turn");
            let stream = load_stream(replay, reader, shape, whole)?;
            *loaded[at].lock().unpoisoned() = stream;
        }
    };
    threads::run_on(replay, threads, work, |_| ());
    let stream = |loaded: Mutex<Option<_>>| loaded.into_inner().unpoisoned();
    loaded.into_iter().filter_map(stream).collect()
}

/// Reads a stream to its end; `None` if the replay has failed meanwhile.
fn load_stream<S: Stamp>(
    replay: &ReplayContext<S>,
    reader: LaneReader,
    shape: RecordShape,
    whole: bool,
) -> Result<Option<(LaneReader, LoadedFrames)>, Error> {
    let mut cursor = StreamCursor::new(reader, shape);
    let mut frames = Vec::new();
    let mut bytes = 0;
    let end = loop {
        if replay.has_failed() {
            return Ok(None);
        }
        match cursor.look_ahead()? {
            LookAhead::End(end) => break end,
            LookAhead::NewChunk | LookAhead::More => {}
        }
        let chunk = cursor.chunk.as_ref().expect("there is more of it");
        let anchor = LoadedContent::Anchor(chunk.anchor().to_vec());
        let start = chunk.start();
        frames.push(LoadedFrame { start, end: start, content: anchor });
        for frame in chunk.frames() {
            let (start, end) = (frame.start, frame.end);
            if let Some(decoded) = cursor.decoder.decode(&frame)? {
                if shape.data_only && whole {
                    // Everything covered by the anchor was durable, so there is nothing to wait
                    // for.
                    cursor.decoder.forget_what_is_anchored();
                }
                let continued = decoded.head.continued;
                let record = LoadedRecord {
                    head: decoded.head,
                    body: decoded.body.into_owned(),
                    list: cursor.decoder.predecessors.as_slice().into(),
                    vector: cursor.decoder.validity.as_slice().into(),
                    dead: AtomicBool::new(false),
                };
                cursor.decoder.forget_parts(continued);
                let content = LoadedContent::Record(Box::new(record));
                frames.push(LoadedFrame { start, end, content });
            } else if frame.kind == FrameKind::Anchor {
                let content = LoadedContent::Anchor(cursor.decoder.anchor().to_vec());
                frames.push(LoadedFrame { start, end, content });
            } else if matches!(frame.kind, FrameKind::Record | FrameKind::Void) {
                frames.push(LoadedFrame { start, end, content: LoadedContent::Skipped });
            }
            bytes += end - start;
        }
        cursor.at = chunk.end();
    };
    replay.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
    Ok(Some((cursor.reader, LoadedFrames { frames, end })))
}

/// Runs a pass of phase 2. Returns whether the pass has found an unrecoverable record.
fn find_unrecoverable<S: Stamp>(
    replay: &ReplayContext<S>,
    streams: &[LoadedFrames],
    threads: usize,
) -> bool {
    let found = AtomicBool::new(false);
    let turn = AtomicUsize::new(0);
    let is_lost = |listed: &Predecessor| {
        let stream = &streams[predecessors::lane(listed.id)];
        let end = predecessors::end(listed.id);
        // A record that is not replayed is in the checkpoint.
        let is_dead = |record: &LoadedRecord| record.dead.load(Ordering::Relaxed);
        end > stream.end || stream.record(end).is_some_and(is_dead)
    };
    let is_dead = |record: &LoadedRecord| {
        let end = |lane: Lane| streams[lane.index()].end;
        !admits(end, Lane::each(&record.vector))
            || record.list.iter().any(|listed| !listed.overwritten && is_lost(listed))
    };
    let work = |_| {
        while let Some(stream) = streams.get(turn.fetch_add(1, Ordering::Relaxed)) {
            for (_, record) in stream.records() {
                if !record.dead.load(Ordering::Relaxed) && is_dead(record) {
                    record.dead.store(true, Ordering::Relaxed);
                    found.store(true, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    };
    threads::run_on(replay, threads, work, |_| ());
    found.into_inner()
}
