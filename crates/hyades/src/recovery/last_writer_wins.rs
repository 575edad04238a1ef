//! Replay of a log without commands: all threads apply chunks of all streams, in any order. Row
//! versions decide, so a record waits only until it is known to be live.
//!
//! To know liveness early, every stream is read ahead of the applied records, and the stream with
//! the oldest next chunk goes first. Then a record's dependencies have mostly been validated, and
//! the base version of a delta is mostly there.

use super::apply::{Applier, count};
use super::decode::{Decoder, RecordShape};
use super::parts::{self, Parts};
use super::prefetching::Prefetcher;
use super::read_ahead::LaneReader;
use super::replay::ReplayContext;
use super::stream_order::furthest_behind_first;
use super::threads;
use super::tombstones::{OpenChunk, ReplayedChunks};
use super::undecided::Undecided;
use crate::error::Error;
use crate::logging::record::RecordHead;
use crate::logging::row_frame::{RowFrames, RowHeads};
use crate::logging::{StampFormat, admits};
use crate::storage::Stamp;
use crate::storage::tid::Tid;
use hyades_platform::broken;
use hyades_platform::event::{Event, Listener};
use hyades_platform::sync::Unpoisoned;
use hyades_wal::{Chunk, FrameKind, Lane, LaneKind, Lsn, ReaderEnd, StreamId};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard};

struct ValidatedStream {
    stream: StreamId,
    stamp: StampFormat,
    reader: Mutex<StreamSource>,
    /// The position up to which the stream is known to be valid. Written by the holder of `reader`
    /// (Release), read by all threads to judge records: the bytes below are valid.
    valid: AtomicU64,
    /// The stream's watermark (`mark` in the code) within the valid range. Ordering as for `valid`.
    mark: AtomicU64,
    /// Whether all chunks were handed out.
    finished: AtomicBool,
    /// The epoch of the next chunk; a hint for choosing a stream.
    next_epoch: AtomicU64,
    progress: Arc<ReplayedChunks>,
}

struct StreamSource {
    reader: LaneReader,
    /// Chunks read, found valid, and not yet handed out.
    ahead: VecDeque<Chunk>,
    /// Parts of records not reached yet.
    parts: Parts,
}

/// Number of chunks read ahead of each stream.
const AHEAD: usize = 2;

impl ValidatedStream {
    /// Reads ahead and publishes the valid position of the stream.
    fn refill(&self, source: &mut StreamSource) -> Result<(), Error> {
        while source.ahead.len() < AHEAD {
            let next = source.reader.next_chunk()?;
            self.mark.store(source.reader.mark(), Ordering::Release);
            let Some(chunk) = next else {
                self.valid.store(source.reader.valid_to(), Ordering::Release);
                break;
            };
            let valid = self.valid.load(Ordering::Relaxed);
            debug_assert!(chunk.end() > valid, "a chunk extends what is valid");
            self.valid.store(chunk.end(), Ordering::Release);
            source.ahead.push_back(chunk);
        }
        let next = source.ahead.front();
        let next = next.map_or(Tid::ABOVE_ALL, |chunk| first_version(chunk, self.stamp));
        self.next_epoch.store(next.epoch().0, Ordering::Relaxed);
        self.progress.set_next(next);
        self.finished.store(source.ahead.is_empty(), Ordering::Release);
        Ok(())
    }
}

/// The version of the chunk's first transaction; [`Tid::NONE`] without a transaction.
fn first_version(chunk: &Chunk, stamp: StampFormat) -> Tid {
    let mut records = chunk.frames().filter(|frame| frame.kind == FrameKind::Record);
    let head = records.next().and_then(|frame| stamp.head(&mut &frame.payload[..]));
    head.map_or(Tid::NONE, |head| head.tid)
}

/// A record not judged yet.
struct Unjudged {
    stream: StreamId,
    validity: Vec<Lsn>,
    head: RecordHead,
    body: Vec<u8>,
    counts: bool,
    /// Keeps the record's chunk open until the record is dropped.
    _chunk: Arc<OpenChunk>,
}

/// Replays one incarnation. Returns the ends of its streams.
pub(crate) fn replay<S: Stamp>(
    replay: &ReplayContext<S>,
    readers: Vec<LaneReader>,
    shape: RecordShape,
    threads: usize,
) -> Result<Vec<ReaderEnd>, Error> {
    let lanes: Vec<ValidatedStream> = readers
        .into_iter()
        .map(|reader| ValidatedStream {
            stream: reader.stream,
            stamp: shape.stamp,
            valid: AtomicU64::new(reader.valid_to()),
            mark: AtomicU64::new(reader.mark()),
            finished: AtomicBool::new(false),
            next_epoch: AtomicU64::new(0),
            progress: Arc::default(),
            reader: Mutex::new(StreamSource {
                reader,
                ahead: VecDeque::new(),
                parts: Parts::new(),
            }),
        })
        .collect();
    let undecided = Mutex::new(Vec::new());
    let turn = AtomicUsize::new(0);
    let freed = Event::new();
    let work = |_| {
        fill(&lanes, &turn)?;
        work(replay, &ValidatedStreams { lanes: &lanes, freed: &freed }, shape, &undecided)
    };
    threads::run_on(replay, threads, work, |_| freed.notify());
    if replay.has_failed() {
        return Ok(Vec::new());
    }
    // The ends are known now: records not admitted by the ends are dead.
    let mut applier = Applier::of(replay);
    let guard = hyades_platform::reclaim::pin();
    for record in undecided.into_inner().unpoisoned() {
        let as_newest = broken!(DeadByNewestEnd) && shape.ended;
        if is_live(&lanes, &record.validity) || as_newest {
            count(replay, &record.head);
            applier.apply(replay, &record.head, &record.body, &guard)?;
            count_applied(replay, record.stream, u64::from(record.counts));
        } else {
            // A dead record has used its epoch nevertheless.
            count(replay, &record.head);
            replay.note_dead(&record.head);
            replay.counts.dead.fetch_add(u64::from(record.counts), Ordering::Relaxed);
        }
    }
    let mut ends = Vec::new();
    for lane in lanes {
        let source = lane.reader.into_inner().unpoisoned();
        parts::undo(replay, shape, source.parts, &mut applier, &guard)?;
        ends.extend(source.reader.end());
    }
    applier.finish(replay);
    Ok(ends)
}

/// Returns the value of a slot of the frontier, as far as streams were validated.
fn frontier(lanes: &[ValidatedStream], at: Lane) -> u64 {
    let mark = |lane: &ValidatedStream| lane.mark.load(Ordering::Acquire);
    match at.kind(lanes.len()) {
        LaneKind::Position(stream) => lanes[stream].valid.load(Ordering::Acquire),
        LaneKind::Mark(stream) => mark(&lanes[stream]),
        LaneKind::Common => lanes.iter().map(mark).min().unwrap_or(0),
    }
}

/// Returns the first need of a record not admitted by the frontier; `None` if the record is live.
fn missing(lanes: &[ValidatedStream], validity: &[Lsn]) -> Option<(Lane, u64)> {
    let mut needs = Lane::each(validity).filter(|(_, needed)| *needed > 0);
    needs.find(|&need| !admits(|at| frontier(lanes, at), [need]))
}

fn is_live(lanes: &[ValidatedStream], validity: &[Lsn]) -> bool {
    missing(lanes, validity).is_none()
}

/// Counts live transactions of a stream.
fn count_applied<S: Stamp>(replay: &ReplayContext<S>, stream: StreamId, records: u64) {
    replay.counts.records.fetch_add(records, Ordering::Relaxed);
    replay.progress.applied(stream, records);
}

fn work<S: Stamp>(
    replay: &ReplayContext<S>,
    all: &ValidatedStreams<'_>,
    shape: RecordShape,
    undecided: &Mutex<Vec<Unjudged>>,
) -> Result<(), Error> {
    let lanes = all.lanes;
    let mut applier = Applier::of(replay);
    let mut prefetcher = Prefetcher::default();
    let mut later: Undecided<Unjudged> = Undecided::new(Lane::count(lanes.len()));
    while !replay.has_failed() {
        let Some((lane, chunk, parts, open)) = next_chunk(replay, all, shape.row_form())? else {
            break;
        };
        let mut decoder = Decoder::new(shape, lane.stream);
        decoder.enter_with_parts(&chunk, parts);
        let mut records = 0;
        let mut guard = hyades_platform::reclaim::pin();
        for frame in chunk.frames() {
            if frame.kind == FrameKind::Part {
                // `next_chunk` gathered the part. The part is redone at once if an undo is possible
                // later.
                if shape.rows == RowFrames::Both {
                    parts::redo(replay, shape, &frame, &mut applier, &guard)
                        .ok_or_else(|| decoder.broken(&frame, "its row"))?;
                }
                continue;
            }
            let Some(decoded) = decoder.decode(&frame)? else { continue };
            open.saw(decoded.head.tid);
            if let Some(first_missing) = missing(lanes, &decoder.validity) {
                let unjudged = Unjudged {
                    stream: lane.stream,
                    validity: decoder.validity.clone(),
                    counts: decoded.counts(),
                    head: decoded.head,
                    body: decoded.body.into_owned(),
                    _chunk: Arc::clone(&open),
                };
                later.park(first_missing, unjudged);
                continue;
            }
            let from = (lane.stream, &decoder);
            prefetcher.ensure_prefetched(replay, from, &chunk, frame.start, &guard);
            count(replay, &decoded.head);
            applier.apply(replay, &decoded.head, &decoded.body, &guard)?;
            records += u64::from(decoded.counts());
        }
        let first_missing = |record: &Unjudged| missing(lanes, &record.validity);
        while let Some(record) = later.decided(|at| frontier(lanes, at), first_missing) {
            count(replay, &record.head);
            applier.apply(replay, &record.head, &record.body, &guard)?;
            count_applied(replay, record.stream, u64::from(record.counts));
        }
        drop(open);
        if let Some(order) = shape.order_of_versions() {
            let streams = lanes.iter().map(|lane| &*lane.progress);
            let waits = later.is_empty();
            applier.tombstones.remove_settled(replay, (order, waits), streams, &mut guard);
        }
        count_applied(replay, lane.stream, records);
        replay.counts.bytes.fetch_add(chunk.end() - chunk.start(), Ordering::Relaxed);
    }
    applier.finish(replay);
    undecided.lock().unpoisoned().extend(later.into_rest());
    Ok(())
}

/// Reads ahead in every stream, before any record is judged.
fn fill(lanes: &[ValidatedStream], turn: &AtomicUsize) -> Result<(), Error> {
    loop {
        let Some(lane) = lanes.get(turn.fetch_add(1, Ordering::Relaxed)) else { return Ok(()) };
        lane.refill(&mut lane.reader.lock().unpoisoned())?;
    }
}

/// The streams, shared by the threads.
struct ValidatedStreams<'l> {
    lanes: &'l [ValidatedStream],
    /// Wakes threads that sleep while all remaining streams are being read.
    freed: &'l Event,
}

/// A stream being read by this thread.
struct StreamLease<'l> {
    /// `None` only during drop.
    source: Option<MutexGuard<'l, StreamSource>>,
    freed: &'l Event,
}

impl Drop for StreamLease<'_> {
    /// Whenever a thread releases a stream, threads that found the stream taken check again.
    fn drop(&mut self) {
        drop(self.source.take());
        self.freed.notify();
    }
}

/// A chunk of a stream, the parts needed by its records, and the sign that the chunk is being
/// replayed.
type HandedOut<'l> = (&'l ValidatedStream, Chunk, Parts, Arc<OpenChunk>);

/// Takes the oldest next chunk of the free streams, with the parts needed by its records, and reads
/// ahead behind the chunk. `None` if no chunk is left, or the replay has failed.
fn next_chunk<'l, S: Stamp>(
    replay: &ReplayContext<S>,
    all: &ValidatedStreams<'l>,
    form: (RowFrames, RowHeads),
) -> Result<Option<HandedOut<'l>>, Error> {
    let mut listener: Option<Listener<'_>> = None;
    while !replay.has_failed() {
        let next_epoch = |at: usize| {
            let lane = &all.lanes[at];
            let finished = lane.finished.load(Ordering::Acquire);
            (!finished).then(|| lane.next_epoch.load(Ordering::Relaxed))
        };
        let mut order = furthest_behind_first(all.lanes.len(), 0, next_epoch).peekable();
        if order.peek().is_none() {
            break;
        }
        for (_, at) in order {
            let lane = &all.lanes[at];
            let Ok(source) = lane.reader.try_lock() else { continue };
            let mut taken = StreamLease { source: Some(source), freed: all.freed };
            let source = taken.source.as_deref_mut().expect("until it is dropped");
            lane.refill(source)?;
            let Some(chunk) = source.ahead.pop_front() else { continue };
            let open = lane.progress.hand_out();
            lane.refill(source)?;
            let parts = gather_parts(&chunk, form, &mut source.parts);
            return Ok(Some((lane, chunk, parts, open)));
        }
        // Register, then check once more. A thread that releases a stream, or fails, does the
        // reverse: first the change of the state, then the notification. The fences make this
        // Dekker's pattern, since `try_lock` is not a SeqCst operation.
        match listener.take() {
            Some(listener) => listener.wait(None),
            None => {
                listener = Some(all.freed.listen());
                fence(Ordering::SeqCst);
            }
        }
    }
    Ok(None)
}

/// Adds the chunk's Part frames to the frames of the stream, and takes out the bodies completed by
/// the chunk's records.
fn gather_parts(chunk: &Chunk, form: (RowFrames, RowHeads), pending: &mut Parts) -> Parts {
    let mut complete = Parts::new();
    for frame in chunk.frames() {
        match frame.kind {
            FrameKind::Part => {
                // A malformed part is reported by the code that uses it.
                let _ = parts::add(pending, form, &frame);
            }
            FrameKind::Record if !pending.is_empty() => {
                let continued =
                    RecordHead::decode(&mut &frame.payload[..]).and_then(|h| h.continued);
                if let Some((first, mut group)) =
                    continued.and_then(|first| pending.remove_entry(&first))
                {
                    if form.0 == RowFrames::Both && group.is_redone() {
                        group.body.clear();
                    }
                    complete.insert(first, group);
                }
            }
            _ => {}
        }
    }
    complete
}
