//! Replay along lists of predecessors (Taurus 2016, algorithm 3): threads read streams into the
//! recovery dependency graph ([`super::graph`]) and replay the records that the graph releases.
//!
//! In a log of only data records the graph only decides which records are live: images are applied
//! by row version, in any order, and the names of overwritten records are not needed
//! ([`super::phases`] follows them, as the report does). If commands are in the log, a record is
//! replayed after all records named in its list and all records covered by the anchor in effect
//! (`taurus_2016.rs` of the schemes omits the names of the covered records). Nothing orders a
//! writer after the readers of the overwritten versions: at replay, commands see the same versions
//! as in their original runs ([`crate::logging::versions`]).
//!
//! Progress: of the unsettled records, consider the record with the earliest frame reservation. All
//! predecessors of the record, and all records before it in its stream, were reserved earlier: each
//! has settled, or was lost, and the stream of a lost record has been read to the end, or can be.
//! (A stream's reader stops while many of its records wait. Of the streams with lost records, the
//! stream with the earliest loss has no record waiting for a lost record, so the reader of the
//! stream reaches the end; then the next stream.)

use super::cursor::{LookAhead, StreamCursor};
use super::decode::RecordShape;
use super::graph::{Admission, Graph, GraphThread};
use super::ordered::{self, OrderedReplay};
use super::phases::{LoadedContent, LoadedStream};
use super::read_ahead::LaneReader;
use super::replay::ReplayContext;
use super::runner::RecordRunner;
use super::stream_order::furthest_behind_first;
use super::tombstones::{OpenChunk, Order, ReplayedChunks};
use super::version_collector::VersionCollector;
use crate::error::Error;
use crate::logging::predecessors::{self, Id, Predecessor};
use crate::logging::record::RecordHead;
use crate::logging::versions::View;
use crate::storage::Stamp;
use crate::storage::tid::Tid;
use hyades_platform::broken;
use hyades_platform::sync::Unpoisoned;
use hyades_wal::{FrameKind, Lsn, ReaderEnd, StreamId};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The state of one thread.
pub(super) struct FlowThread {
    number: usize,
    runner: RecordRunner,
    graph: GraphThread,
}

/// Records that a thread reads from a stream before checking other streams.
const QUANTUM: usize = 32;

/// A stream is read no further while its waiting records exceed this number, or this many bytes.
const LOOKAHEAD: usize = 512;
const LOOKAHEAD_BYTES: usize = 8 << 20;

/// A waiting record.
pub(super) struct PendingRecord {
    start: Lsn,
    head: RecordHead,
    body: Vec<u8>,
    view: View,
    /// Keeps the chunk of the record open until the record is dropped.
    open: Option<Arc<OpenChunk>>,
}

/// A record that was read.
struct ReadRecord<'a> {
    /// The stream, by its place.
    at: usize,
    start: Lsn,
    end: Lsn,
    head: &'a RecordHead,
    body: &'a [u8],
    /// The chunk of the record, if tombstones wait for chunks.
    open: Option<&'a Arc<OpenChunk>>,
}

/// The source of a stream's records.
pub(super) enum RecordSource {
    /// The log, read during the replay.
    Log(Box<StreamCursor>),
    /// Memory: all records were read, and the dead records are known.
    Memory(Box<LoadedStream>),
}

struct DataflowStream {
    stream: StreamId,
    source: Mutex<RecordSource>,
    /// Whether the stream was read to its end. Written by the cursor's holder (Release), read by
    /// all threads.
    finished: AtomicBool,
    /// The epoch of the last record read; a hint for choosing a stream.
    epoch: AtomicU64,
    /// Bytes of the waiting records. Relaxed: only a hint for when to stop.
    waiting_bytes: AtomicUsize,
    /// The applied and the dead records of the stream: tombstones wait for them.
    progress: Arc<ReplayedChunks>,
}

struct Flow<'r, S: Stamp> {
    replay: &'r ReplayContext<S>,
    shape: RecordShape,
    /// Whether everything covered by an anchor is present.
    whole: bool,
    /// Whether a record settles before it is replayed, because the graph only decides liveness.
    settles_first: bool,
    lanes: Vec<DataflowStream>,
    graph: Graph<PendingRecord>,
    version_collector: VersionCollector,
    /// The order that shows when a tombstone may be removed, if data records are replayed in any
    /// order.
    order: Option<Order>,
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
    let graph = Graph::new(readers.iter().map(LaneReader::start), !shape.data_only, threads);
    let source = |reader: LaneReader| {
        (reader.stream, RecordSource::Log(Box::new(StreamCursor::new(reader, shape))))
    };
    let sources = readers.into_iter().map(source).collect();
    replay_from(replay, sources, graph, (shape, whole), threads)
}

/// Replays records from these sources, by stream, in the order of the graph.
pub(super) fn replay_from<S: Stamp>(
    replay: &ReplayContext<S>,
    sources: Vec<(StreamId, RecordSource)>,
    graph: Graph<PendingRecord>,
    (shape, whole): (RecordShape, bool),
    threads: usize,
) -> Result<Vec<ReaderEnd>, Error> {
    let lanes = sources.into_iter().map(DataflowStream::new).collect();
    let version_collector = VersionCollector::new(shape.lanes, threads);
    let settles_first = !graph.is_ordered();
    let order = shape.order_of_versions().filter(|_| settles_first);
    let flow = Flow { replay, shape, whole, settles_first, lanes, graph, version_collector, order };
    ordered::run(&flow, threads);
    if replay.has_failed() {
        return Ok(Vec::new());
    }
    VersionCollector::clear(replay);
    let reader = |lane: DataflowStream| match lane.source.into_inner().unpoisoned() {
        RecordSource::Log(cursor) => cursor.reader,
        RecordSource::Memory(loaded) => loaded.reader,
    };
    Ok(flow.lanes.into_iter().filter_map(|lane| reader(lane).end()).collect())
}

impl DataflowStream {
    fn new((stream, source): (StreamId, RecordSource)) -> DataflowStream {
        DataflowStream {
            stream,
            source: Mutex::new(source),
            finished: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            waiting_bytes: AtomicUsize::new(0),
            progress: Arc::default(),
        }
    }
}

#[cold]
fn misnamed(stream: StreamId, near: Lsn) -> Error {
    Error::Recovery(format!(
        "a record names a predecessor that ends near position {near} of stream {stream}, where no \
         record ends: the log was written by a faulty program"
    ))
}

impl<S: Stamp> OrderedReplay<S> for Flow<'_, S> {
    type Thread = FlowThread;

    const SPINS: u32 = 1000;

    fn context(&self) -> &ReplayContext<S> {
        self.replay
    }

    fn thread(&self, number: usize) -> FlowThread {
        let runner = RecordRunner::new(self.replay.engine.tables.len());
        FlowThread { number, runner, graph: self.graph.thread(number) }
    }

    fn runner(thread: &mut FlowThread) -> &mut RecordRunner {
        &mut thread.runner
    }

    fn step(&self, thread: &mut FlowThread, _: bool) -> Result<bool, Error> {
        if !self.shape.data_only {
            self.version_collector.collect(self.replay, &self.graph);
            thread.runner.seen_epoch = self.version_collector.seen_epoch();
        }
        let found = {
            let _replaying = self.version_collector.replaying(thread.number);
            self.replay_ready(thread)? || self.read_some(thread)?
        };
        if let Some((at, near)) = self.graph.misnamed() {
            return Err(misnamed(self.lanes[at].stream, near));
        }
        if let Some(order) = self.order {
            let streams = self.lanes.iter().map(|lane| &*lane.progress);
            thread.runner.remove_settled_tombstones(self.replay, order, streams);
        }
        Ok(found)
    }

    fn pause(idle_rounds: u32) {
        // A thread without work leaves its processor to the others now and then.
        if idle_rounds.is_multiple_of(16) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }

    fn unresolved(&self) -> Option<(StreamId, Lsn)> {
        let mut lanes = self.lanes.iter().enumerate();
        let (at, lane) = lanes.find(|(at, lane)| {
            !lane.finished.load(Ordering::Acquire) || self.graph.waiting(*at) > 0
        })?;
        Some((lane.stream, self.graph.settled(at)))
    }
}

impl<S: Stamp> Flow<'_, S> {
    /// Lines 5 to 17: handles the records that had to wait and need not wait any more, up to a
    /// quantum. Returns false if there is none.
    fn replay_ready(&self, thread: &mut FlowThread) -> Result<bool, Error> {
        for done in 0..QUANTUM {
            let Some(released) = self.graph.next_ready(&mut thread.graph) else {
                return Ok(done > 0);
            };
            let id = released.id;
            // The chunk is open until the record is applied.
            let PendingRecord { start, head, body, view, open: _open } = released.record;
            let lane = &self.lanes[predecessors::lane(id)];
            lane.waiting_bytes.fetch_sub(body.len(), Ordering::Relaxed);
            if released.dead {
                thread.runner.skip_dead(self.replay, &head);
                self.graph.settle(id, false, &mut thread.graph);
            } else {
                thread.runner.view = view;
                self.replay_live(id, &head, &body, start, thread)?;
            }
        }
        Ok(true)
    }

    /// Replays a live record. The record settles before or after its replay, see [`super::graph`].
    fn replay_live(
        &self,
        id: Id,
        head: &RecordHead,
        body: &[u8],
        start: Lsn,
        thread: &mut FlowThread,
    ) -> Result<(), Error> {
        let place = (self.lanes[predecessors::lane(id)].stream, start);
        if self.settles_first {
            self.graph.settle(id, true, &mut thread.graph);
            return thread.runner.run(self.replay, head, body, place);
        }
        thread.runner.run(self.replay, head, body, place)?;
        self.graph.settle(id, true, &mut thread.graph);
        Ok(())
    }

    /// Lines 1 to 4, for the free stream furthest behind. Returns false if no stream could be read.
    fn read_some(&self, thread: &mut FlowThread) -> Result<bool, Error> {
        let epoch = |at: usize| {
            let lane = &self.lanes[at];
            let finished = lane.finished.load(Ordering::Relaxed);
            (!finished).then(|| lane.epoch.load(Ordering::Relaxed))
        };
        for (_, at) in furthest_behind_first(self.lanes.len(), thread.number, epoch) {
            if self.is_ahead(at) {
                continue;
            }
            let Ok(mut source) = self.lanes[at].source.try_lock() else { continue };
            if self.lanes[at].finished.load(Ordering::Relaxed) {
                continue;
            }
            let has_read = match &mut *source {
                RecordSource::Log(cursor) => self.read(at, cursor, thread)?,
                RecordSource::Memory(loaded) => self.take_loaded(at, loaded, thread)?,
            };
            // A stream without room waits for records of streams that come later in this order.
            if has_read {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether many records of a stream wait.
    fn is_ahead(&self, at: usize) -> bool {
        self.graph.waiting(at) > LOOKAHEAD
            || self.lanes[at].waiting_bytes.load(Ordering::Relaxed) > LOOKAHEAD_BYTES
    }

    /// Reads records of a stream, up to a quantum. Returns false if the graph has no room.
    fn read(
        &self,
        at: usize,
        cursor: &mut StreamCursor,
        thread: &mut FlowThread,
    ) -> Result<bool, Error> {
        let ahead = cursor.look_ahead()?;
        if let LookAhead::End(end) = ahead {
            self.end(at, end, thread);
            return Ok(true);
        }
        let chunk = cursor.chunk.as_ref().expect("there is more of it");
        if let LookAhead::NewChunk = ahead {
            self.version_collector.anchor(at, chunk.start(), chunk.anchor());
        }
        let first = chunk.frames_from(cursor.at).next();
        if first.is_some_and(|frame| !self.graph.has_room(at, frame.end)) {
            return Ok(false);
        }
        let open = self.order.map(|_| self.lanes[at].progress.hand_out());
        let prefetches = self.graph.is_ordered() && self.graph.waiting(at) == 0;
        let guard = hyades_platform::reclaim::pin();
        for frame in chunk.frames_from(cursor.at).take(QUANTUM) {
            if !self.graph.has_room(at, frame.end) {
                break;
            }
            if let Some(decoded) = cursor.decoder.decode(&frame)? {
                if self.shape.data_only && self.whole {
                    // Everything covered by the anchor was durable, so there is nothing to wait
                    // for.
                    cursor.decoder.forget_what_is_anchored();
                }
                if self.settles_first && !broken!(NeedOverwritten) {
                    cursor.decoder.predecessors.retain(|listed| !listed.overwritten);
                }
                let (list, vector) = (&cursor.decoder.predecessors, &cursor.decoder.validity);
                let continued = decoded.head.continued;
                let (start, end) = (frame.start, frame.end);
                let (head, body) = (&decoded.head, &decoded.body[..]);
                if prefetches {
                    let from = (self.lanes[at].stream, &cursor.decoder);
                    thread.runner.prefetch(self.replay, from, chunk, start, &guard);
                }
                let record = ReadRecord { at, start, end, head, body, open: open.as_ref() };
                self.arrive(record, (list, vector), thread)?;
                cursor.decoder.forget_parts(continued);
            } else if frame.kind == FrameKind::Anchor {
                self.version_collector.anchor(at, frame.end, cursor.decoder.anchor());
            } else if matches!(frame.kind, FrameKind::Record | FrameKind::Void) {
                self.graph.skip(at, frame.end, &mut thread.graph);
            }
            thread.runner.bytes += frame.end - frame.start;
            cursor.at = frame.end;
            // After every record, since other records may wait for this record.
            self.graph.pass(at, cursor.at, &mut thread.graph);
            if self.is_ahead(at) {
                break;
            }
        }
        Ok(true)
    }

    /// A stream was read to its end.
    fn end(&self, at: usize, end: Lsn, thread: &mut FlowThread) {
        self.graph.end(at, end, &mut thread.graph);
        self.version_collector.end(at, end);
        self.lanes[at].progress.set_next(Tid::ABOVE_ALL);
        self.lanes[at].finished.store(true, Ordering::Release);
    }

    /// Handles a record that was read, with its list and its vector: the record is replayed, or
    /// waits.
    fn arrive(
        &self,
        ReadRecord { at, start, end, head, body, open }: ReadRecord<'_>,
        (list, vector): (&[Predecessor], &[Lsn]),
        thread: &mut FlowThread,
    ) -> Result<(), Error> {
        let id = predecessors::id(at, end);
        let view = |view: &mut View| {
            if !self.shape.data_only {
                view.set(id, list, vector);
            }
        };
        let record = || {
            let (head, body, open) = (head.clone(), body.to_vec(), open.cloned());
            self.lanes[at].waiting_bytes.fetch_add(body.len(), Ordering::Relaxed);
            let mut waiting = PendingRecord { start, head, body, view: View::default(), open };
            view(&mut waiting.view);
            waiting
        };
        if let Some(open) = open {
            open.saw(head.tid);
        }
        // Only the reader of the stream writes the epoch.
        let epoch = &self.lanes[at].epoch;
        if head.tid.epoch().0 > epoch.load(Ordering::Relaxed) {
            epoch.store(head.tid.epoch().0, Ordering::Relaxed);
            if !self.shape.data_only && !self.shape.draws_at_begin {
                self.version_collector.read(at, start, head.tid.epoch());
            }
        }
        match self.graph.arrive((at, end), list, vector, record, &mut thread.graph) {
            Admission::Waits => Ok(()),
            Admission::Dead => {
                thread.runner.skip_dead(self.replay, head);
                self.graph.settle(id, false, &mut thread.graph);
                Ok(())
            }
            Admission::Ready => {
                view(&mut thread.runner.view);
                self.replay_live(id, head, body, start, thread)
            }
        }
    }

    /// Handles records that were read before. Returns false if the graph has no room.
    fn take_loaded(
        &self,
        at: usize,
        loaded: &mut LoadedStream,
        thread: &mut FlowThread,
    ) -> Result<bool, Error> {
        for taken in 0..QUANTUM {
            if loaded.next_end().is_some_and(|end| !self.graph.has_room(at, end)) {
                return Ok(taken > 0);
            }
            let Some(next) = loaded.next() else {
                // Everything behind the last record counts as passed.
                self.end(at, loaded.end, thread);
                return Ok(true);
            };
            match next.content {
                LoadedContent::Anchor(anchor) => {
                    self.version_collector.anchor(at, next.end, &anchor);
                }
                LoadedContent::Skipped => self.graph.skip(at, next.end, &mut thread.graph),
                LoadedContent::Record(record) if record.dead.load(Ordering::Relaxed) => {
                    thread.runner.skip_dead(self.replay, &record.head);
                    let id = predecessors::id(at, next.end);
                    self.graph.settle(id, false, &mut thread.graph);
                }
                LoadedContent::Record(record) => {
                    let needs = (&record.list[..], &record.vector[..]);
                    let (start, end) = (next.start, next.end);
                    let (head, body) = (&record.head, &record.body[..]);
                    let record = ReadRecord { at, start, end, head, body, open: None };
                    self.arrive(record, needs, thread)?;
                }
            }
            self.graph.pass(at, next.end, &mut thread.graph);
        }
        Ok(true)
    }
}
