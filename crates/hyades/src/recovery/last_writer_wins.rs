//! Replay of a log without commands: all threads apply chunks of all streams, in any order. Row
//! versions decide, and no record waits: where the streams end is known before, so every record is
//! known as live or dead when it is read.
//!
//! The stream with the oldest next chunk goes first. Then the base version of a delta is mostly
//! there.

use super::apply::{Applier, count};
use super::decode::{Decoder, RecordShape};
use super::parts::{self, Parts};
use super::prefetching::Prefetcher;
use super::read_ahead::LaneReader;
use super::replay::ReplayContext;
use super::stream_order::furthest_behind_first;
use super::threads;
use super::tombstones::{OpenChunk, ReplayedChunks};
use crate::error::Error;
use crate::logging::record::RecordHead;
use crate::logging::row_frame::{RowFrames, RowHeads};
use crate::logging::{StampFormat, admits};
use crate::storage::Stamp;
use crate::storage::tid::Tid;
use hyades_platform::broken;
use hyades_platform::event::{Event, Listener};
use hyades_platform::sync::Unpoisoned;
use hyades_wal::{Chunk, FrameKind, Lane, LaneKind, Lsn, ReaderEnd, StreamEnd, StreamId};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard};

struct SharedStream {
    stream: StreamId,
    stamp: StampFormat,
    reader: Mutex<StreamSource>,
    /// Whether all chunks were handed out.
    finished: AtomicBool,
    /// The epoch of the next chunk; a hint for choosing a stream.
    next_epoch: AtomicU64,
    progress: Arc<ReplayedChunks>,
}

struct StreamSource {
    reader: LaneReader,
    /// The next chunk, not yet handed out.
    ahead: Option<Chunk>,
    /// Parts of records not reached yet.
    parts: Parts,
}

impl SharedStream {
    /// Reads the next chunk.
    fn refill(&self, source: &mut StreamSource) -> Result<(), Error> {
        if source.ahead.is_none() {
            source.ahead = source.reader.next_chunk()?;
        }
        let next = source.ahead.as_ref();
        let next = next.map_or(Tid::ABOVE_ALL, |chunk| first_version(chunk, self.stamp));
        self.next_epoch.store(next.epoch().0, Ordering::Relaxed);
        self.progress.set_next(next);
        self.finished.store(source.ahead.is_none(), Ordering::Release);
        Ok(())
    }
}

/// The version of the chunk's first transaction; [`Tid::NONE`] without a transaction.
fn first_version(chunk: &Chunk, stamp: StampFormat) -> Tid {
    let mut records = chunk.frames().filter(|frame| frame.kind == FrameKind::Record);
    let head = records.next().and_then(|frame| stamp.head(&mut &frame.payload[..]));
    head.map_or(Tid::NONE, |head| head.tid)
}

/// Replays one incarnation, whose streams end at `stream_ends`. Returns what the readers found.
pub(crate) fn replay<S: Stamp>(
    replay: &ReplayContext<S>,
    readers: Vec<LaneReader>,
    stream_ends: &[StreamEnd],
    shape: RecordShape,
    threads: usize,
) -> Result<Vec<ReaderEnd>, Error> {
    debug_assert_eq!(readers.len(), stream_ends.len(), "each stream has an end");
    let lanes: Vec<SharedStream> = readers
        .into_iter()
        .map(|reader| SharedStream {
            stream: reader.stream,
            stamp: shape.stamp,
            finished: AtomicBool::new(false),
            next_epoch: AtomicU64::new(0),
            progress: Arc::default(),
            reader: Mutex::new(StreamSource { reader, ahead: None, parts: Parts::new() }),
        })
        .collect();
    let turn = AtomicUsize::new(0);
    let freed = Event::new();
    let work = |_| {
        fill(&lanes, &turn)?;
        work(replay, &SharedStreams { lanes: &lanes, freed: &freed }, stream_ends, shape)
    };
    threads::run_on(replay, threads, work, |_| freed.notify());
    if replay.has_failed() {
        return Ok(Vec::new());
    }
    let mut applier = Applier::of(replay);
    let guard = hyades_platform::reclaim::pin();
    let mut ends = Vec::new();
    for lane in lanes {
        let source = lane.reader.into_inner().unpoisoned();
        parts::undo(replay, shape, source.parts, &mut applier, &guard)?;
        ends.extend(source.reader.end());
    }
    applier.finish(replay);
    Ok(ends)
}

/// Whether a record is live: the ends of the streams reach all that the record needs.
fn is_live(ends: &[StreamEnd], validity: &[Lsn]) -> bool {
    let frontier = |at: Lane| match at.kind(ends.len()) {
        LaneKind::Position(stream) => ends[stream].valid_to,
        LaneKind::Mark(stream) => ends[stream].mark,
        LaneKind::Common => ends.iter().map(|end| end.mark).min().unwrap_or(0),
    };
    admits(frontier, Lane::each(validity).filter(|(_, needed)| *needed > 0))
}

/// Counts live transactions of a stream.
fn count_applied<S: Stamp>(replay: &ReplayContext<S>, stream: StreamId, records: u64) {
    replay.counts.records.fetch_add(records, Ordering::Relaxed);
    replay.progress.applied(stream, records);
}

fn work<S: Stamp>(
    replay: &ReplayContext<S>,
    all: &SharedStreams<'_>,
    stream_ends: &[StreamEnd],
    shape: RecordShape,
) -> Result<(), Error> {
    let lanes = all.lanes;
    let mut applier = Applier::of(replay);
    let mut prefetcher = Prefetcher::default();
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
            let as_newest = broken!(DeadByNewestEnd) && shape.ended;
            if !is_live(stream_ends, &decoder.validity) && !as_newest {
                // A dead record has used its epoch nevertheless.
                count(replay, &decoded.head);
                replay.note_dead(&decoded.head);
                let counts = u64::from(decoded.counts());
                replay.counts.dead.fetch_add(counts, Ordering::Relaxed);
                continue;
            }
            let from = (lane.stream, &decoder);
            prefetcher.ensure_prefetched(replay, from, &chunk, frame.start, &guard);
            count(replay, &decoded.head);
            applier.apply(replay, &decoded.head, &decoded.body, &guard)?;
            records += u64::from(decoded.counts());
        }
        drop(open);
        if let Some(order) = shape.order_of_versions() {
            let streams = lanes.iter().map(|lane| &*lane.progress);
            applier.tombstones.remove_settled(replay, (order, true), streams, &mut guard);
        }
        count_applied(replay, lane.stream, records);
        replay.counts.bytes.fetch_add(chunk.end() - chunk.start(), Ordering::Relaxed);
    }
    applier.finish(replay);
    Ok(())
}

/// Reads the first chunk of every stream, before the oldest one is chosen.
fn fill(lanes: &[SharedStream], turn: &AtomicUsize) -> Result<(), Error> {
    loop {
        let Some(lane) = lanes.get(turn.fetch_add(1, Ordering::Relaxed)) else { return Ok(()) };
        lane.refill(&mut lane.reader.lock().unpoisoned())?;
    }
}

/// The streams, shared by the threads.
struct SharedStreams<'l> {
    lanes: &'l [SharedStream],
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
type HandedOut<'l> = (&'l SharedStream, Chunk, Parts, Arc<OpenChunk>);

/// Takes the oldest next chunk of the free streams, with the parts needed by its records, and reads
/// ahead behind the chunk. `None` if no chunk is left, or the replay has failed.
fn next_chunk<'l, S: Stamp>(
    replay: &ReplayContext<S>,
    all: &SharedStreams<'l>,
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
            let Some(chunk) = source.ahead.take() else { continue };
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
