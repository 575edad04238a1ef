//! Ordered replay by stream prefixes (a vector's component means: all of a stream up to the
//! position must be resolved; Taurus, section 3.3, with algorithms 3 and 4 replaced).
//!
//! Each stream (`lane` in the code) has a watermark: everything below the watermark is replayed,
//! dead, or not a record. A thread takes a stream and runs its records in order. A record whose
//! vector the watermarks do not cover yet is *parked* in the stream's window. While a record waits
//! there, up to a few records behind it are parked as well, runnable or not, as work for threads
//! whose own stream is blocked. Any thread takes from any window the first record that lacks
//! nothing. And while some thread finds no work in any stream, runners park a few records that the
//! runners could run themselves, and continue behind these: one stream can hold most of a log's
//! work for a while, or all of the work, if the log had a single stream, or only one writer of the
//! log had a processor.
//!
//! Windows are small on purpose. Vectors name prefixes of streams, so a waiting record holds up all
//! records that depend on anything behind it, and far ahead of it hardly any record could run. In a
//! simulation on the vectors of a log of TPC-C's Payment and New-Order, two threads could use 81
//! percent of their time in strict stream order, 96 with windows of four or eight records, and 97
//! with unbounded ones.
//!
//! Invariant: a watermark never passes an unresolved record. A record is live iff the ends of all
//! streams cover its vector; if the watermarks cover the vector, the record is live. A record that
//! needs a position beyond the end of a stream is dead, and resolved.
//!
//! Progress: among the unresolved records, consider the record with the earliest frame reservation.
//! All dependencies of the record, and everything before it in its stream, were reserved earlier,
//! hence are resolved: the record can run. So neither a bound on parked records nor running streams
//! strictly in order can block.

mod lane;
mod watermarks;
mod window;

use super::cursor::{LookAhead, StreamCursor};
use super::decode::{Decoded, Decoder, RecordShape};
use super::floors::Floors;
use super::ordered::{self, OrderedReplay};
use super::read_ahead::LaneReader;
use super::replay::ReplayContext;
use super::runner::RecordRunner;
use super::stream_order::furthest_behind_first;
use crate::error::Error;
use crate::logging::record::RecordHead;
use crate::storage::Stamp;
use hyades_platform::broken;
use hyades_platform::reclaim::Guard;
use hyades_platform::sync::{Padded, Unpoisoned};
use hyades_wal::{Chunk, Lsn, ReaderEnd, StreamId};
use lane::ReplayStream;
use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use watermarks::{Seen, Watermarks};

/// Records that a thread runs in a stream before checking other streams.
const QUANTUM: usize = 64;

/// Records after which a stream's runner publishes its position. Other threads read the position
/// rarely, since each thread caches the positions, see [`Seen`]: a cache line written and read with
/// every record would cost more than short records do. A waiter registers the awaited position, and
/// is notified at once.
const PUBLISH_EVERY: usize = 8;

/// A stream is read no further while this many of its records wait. With more than half of this
/// number waiting, the runner runs parked records rather than read on.
const LOOKAHEAD: usize = 8;

/// A runnable record is parked for idle threads only if fewer records than this wait.
const OFFERED: usize = LOOKAHEAD / 2;

/// Memory kept for the body of each parked record, in bytes.
const MOST_KEPT: usize = 1 << 14;

struct Wavefront<'r, S: Stamp> {
    replay: &'r ReplayContext<S>,
    /// Whether one thread goes on alone where that is faster.
    falls_back: bool,
    lanes: Vec<ReplayStream>,
    watermarks: Watermarks<BufferedRecord>,
    lookahead: usize,
    sleepers: Arc<Sleepers>,
    /// Number of threads that found no work and have not run a stream since: a hint, Relaxed.
    idle_threads: Padded<AtomicUsize>,
    /// Where rows have several versions.
    floors: Option<Floors>,
}

/// The kept content of a parked record.
#[derive(Default)]
struct BufferedRecord {
    head: RecordHead,
    body: Vec<u8>,
}

impl BufferedRecord {
    fn keep(&mut self, head: RecordHead, body: Cow<'_, [u8]>) {
        self.head = head;
        match body {
            Cow::Owned(body) => self.body = body,
            Cow::Borrowed(body) => {
                if self.body.capacity() > MOST_KEPT {
                    self.body = Vec::new();
                }
                self.body.clear();
                self.body.extend_from_slice(body);
            }
        }
    }
}

/// The state of one thread.
struct ThreadState {
    number: usize,
    runner: RecordRunner,
    /// The watermarks last seen by the thread.
    seen: Seen,
    /// The parked record that the thread runs.
    parked: BufferedRecord,
    /// [`Watermarks::event_count`] before the last unsuccessful round.
    events_at_last_idle: u64,
    /// Whether the thread is counted in [`Wavefront::idle_threads`].
    is_idle: bool,
}

impl ThreadState {
    fn new(number: usize, lanes: usize, tables: usize) -> ThreadState {
        ThreadState {
            number,
            runner: RecordRunner::new(tables),
            seen: Seen::new(lanes),
            parked: BufferedRecord::default(),
            events_at_last_idle: u64::MAX,
            is_idle: false,
        }
    }
}

/// The threads that sleep because they found no work.
#[derive(Default)]
struct Sleepers {
    count: AtomicUsize,
    condvar: Condvar,
    lock: Mutex<()>,
}

impl Sleepers {
    fn wake(&self) {
        if self.count.load(Ordering::SeqCst) > 0 {
            self.condvar.notify_all();
        }
    }

    fn sleep(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        let lock = self.lock.lock().unpoisoned();
        // The timeout turns a missed notification into a delay instead of a hang.
        drop(self.condvar.wait_timeout(lock, Duration::from_micros(200)));
        self.count.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Replays one incarnation. Returns the ends of its streams.
pub(crate) fn replay<S: Stamp>(
    replay: &ReplayContext<S>,
    readers: Vec<LaneReader>,
    shape: RecordShape,
    (threads, falls_back): (usize, bool),
) -> Result<Vec<ReaderEnd>, Error> {
    let sleepers = Arc::<Sleepers>::default();
    let waiters = Arc::clone(&sleepers);
    let starts = readers.iter().map(LaneReader::start);
    // One thread gains nothing from looking ahead: a single thread runs every stream in order.
    let lookahead = if threads == 1 || !shape.has_vectors() { 0 } else { LOOKAHEAD };
    let watermarks = Watermarks::new(starts, Box::new(move || waiters.wake()));
    let lanes: Vec<ReplayStream> =
        readers.into_iter().map(|reader| ReplayStream::new(reader, shape)).collect();
    let idle_threads = Padded(AtomicUsize::new(0));
    let floors = shape.versions.then(|| Floors::begin(replay, lanes.len()));
    let front = Wavefront {
        replay,
        falls_back,
        lanes,
        watermarks,
        lookahead,
        sleepers,
        idle_threads,
        floors,
    };
    ordered::run(&front, threads);
    if let Some(floors) = &front.floors {
        floors.end(replay);
    }
    if replay.has_failed() {
        return Ok(Vec::new());
    }
    Ok(front
        .lanes
        .into_iter()
        .filter_map(|lane| lane.cursor.into_inner().unpoisoned().reader.end())
        .collect())
}

impl<S: Stamp> OrderedReplay<S> for Wavefront<'_, S> {
    type Thread = ThreadState;

    const SPINS: u32 = 1000;

    fn context(&self) -> &ReplayContext<S> {
        self.replay
    }

    fn thread(&self, number: usize) -> ThreadState {
        let tables = self.replay.engine.tables.len();
        let mut thread = ThreadState::new(number, self.lanes.len(), tables);
        thread.runner.by_timestamp = self.floors.is_some();
        thread.runner.in_order = self.floors.is_none();
        thread.runner.serve_as(self.replay);
        thread
    }

    fn runner(thread: &mut ThreadState) -> &mut RecordRunner {
        &mut thread.runner
    }

    /// Runs a stretch of the stream furthest behind among the streams without a runner, or a parked
    /// record.
    fn step(&self, thread: &mut ThreadState, thorough: bool) -> Result<bool, Error> {
        let Some(floors) = &self.floors else { return self.run_some(thread, thorough) };
        let ran = floors.while_running(|| self.run_some(thread, thorough))?;
        if ran {
            let marks = &self.watermarks;
            floors.raise(self.replay, |at| (!marks.is_complete(at)).then(|| marks.resolved(at)));
        }
        Ok(ran)
    }

    fn unresolved(&self) -> Option<(StreamId, Lsn)> {
        let at = (0..self.lanes.len()).find(|&at| !self.watermarks.is_complete(at))?;
        Some((self.lanes[at].stream, self.watermarks.resolved(at)))
    }

    fn falls_back(&self) -> bool {
        self.falls_back
    }

    fn resolved(&self) -> u64 {
        (0..self.lanes.len()).map(|at| self.watermarks.resolved(at)).sum()
    }

    /// Counts the thread in [`Wavefront::idle_threads`], or no longer.
    fn note_idle(&self, thread: &mut ThreadState, idle: bool) {
        if thread.is_idle != idle {
            thread.is_idle = idle;
            let one = if idle { 1 } else { usize::MAX };
            self.idle_threads.fetch_add(one, Ordering::Relaxed);
        }
    }

    fn pause(idle_rounds: u32) {
        // In the last few rounds before sleeping, the thread yields its processor.
        if idle_rounds < Self::SPINS - 8 {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }

    fn sleep(&self) {
        self.sleepers.sleep();
    }

    fn ended(&self) {
        self.sleepers.wake();
    }
}

impl<S: Stamp> Wavefront<'_, S> {
    /// See [`OrderedReplay::step`].
    fn run_some(&self, thread: &mut ThreadState, thorough: bool) -> Result<bool, Error> {
        let events = self.watermarks.event_count();
        if events == thread.events_at_last_idle && !thorough {
            return Ok(false);
        }
        let progress = |at: usize| {
            let has_work = self.watermarks.waiting(at) > 0 || !self.watermarks.is_finished(at);
            let lane = &self.lanes[at];
            // Streams run by another thread come last: their windows may have parked records.
            has_work.then(|| (lane.is_busy(), lane.progress()))
        };
        for (_, at) in furthest_behind_first(self.lanes.len(), thread.number, progress) {
            if self.run_parked(at, 1, thread)? {
                return Ok(true);
            }
            if let Some(mut cursor) = self.lanes[at].try_hold()
                && self.run_lane(at, &mut cursor, thread)?
            {
                drop(cursor);
                self.note_idle(thread, false);
                self.watermarks.runner_left(at);
                return Ok(true);
            }
        }
        thread.events_at_last_idle = events;
        Ok(false)
    }

    /// Runs up to a quantum of a stream's records. Returns false if the stream could not advance.
    fn run_lane(
        &self,
        at: usize,
        cursor: &mut StreamCursor,
        thread: &mut ThreadState,
    ) -> Result<bool, Error> {
        let lane = &self.lanes[at];
        if self.watermarks.is_finished(at) {
            return Ok(false);
        }
        if let LookAhead::End(end) = cursor.look_ahead()? {
            self.watermarks.end_lane(at, end);
            self.sleepers.wake();
            return Ok(true);
        }
        let chunk = cursor.chunk.as_ref().expect("there is more of it");
        let guard = hyades_platform::reclaim::pin();
        let began = cursor.at;
        let (mut unpublished, mut progress) = (0, lane.progress());
        for frame in chunk.frames_from(cursor.at).take(QUANTUM) {
            // Without lookahead the stream's own order suffices, and nothing is parked.
            if self.lookahead > 0 && !self.run_waiting(at, thread)? {
                break;
            }
            debug_assert_eq!(frame.start, cursor.at, "a stream is replayed without gaps");
            if let Some(decoded) = cursor.decoder.decode(&frame)? {
                let continued = decoded.head.continued;
                progress = (decoded.head.tid.epoch().0, cursor.decoder.prefix_bytes());
                if let (Some(floors), Some(floor)) = (&self.floors, decoded.head.floor) {
                    floors.add(at, frame.start, floor);
                }
                let from = (&cursor.decoder, chunk);
                if !self.run_or_park(at, from, frame.start, decoded, thread, &guard)? {
                    // The frame will be decoded again.
                    break;
                }
                cursor.decoder.forget_parts(continued);
            }
            thread.runner.bytes += frame.end - frame.start;
            cursor.at = frame.end;
            // With nothing parked, the stream is resolved up to its runner, published or not.
            if self.watermarks.has_none_parked(at) {
                thread.seen.resolved[at] = cursor.at;
            }
            unpublished += 1;
            if unpublished % PUBLISH_EVERY == 0 || self.watermarks.is_wanted(at, cursor.at) {
                self.watermarks.advance_to(at, cursor.at);
            }
        }
        lane.set_progress(progress);
        self.watermarks.advance_to(at, cursor.at);
        drop(guard);
        Ok(cursor.at != began)
    }

    /// Runs the record that begins at `start`, where the stream's runner is, skips the record if
    /// dead, or else parks the record. Returns false if the window has no room.
    #[inline]
    fn run_or_park(
        &self,
        at: usize,
        (decoder, chunk): (&Decoder, &Chunk),
        start: Lsn,
        decoded: Decoded<'_>,
        thread: &mut ThreadState,
        guard: &Guard,
    ) -> Result<bool, Error> {
        let lane = &self.lanes[at];
        let (order, validity) = (&decoder.order, &decoder.validity);
        let Decoded { head, body, .. } = decoded;
        let stopped = broken!(StopAtFirstDead) && lane.stopped.load(Ordering::Relaxed);
        let waiting = self.watermarks.waiting(at);
        let offers = self.lookahead > 0 && self.idle_threads.load(Ordering::Relaxed) > 0;
        let is_offered = offers && waiting < OFFERED && self.watermarks.has_room(at);
        let in_turn = !stopped && !is_offered && (waiting == 0 || offers);
        if in_turn && thread.seen.may_run(&self.watermarks, order, validity) {
            thread.runner.prefetch(self.replay, (lane.stream, decoder), chunk, start, guard);
            thread.runner.run(self.replay, &head, &body, (lane.stream, start))?;
            return Ok(true);
        }
        if stopped || self.watermarks.is_dead(validity) {
            thread.runner.skip_dead(self.replay, &head);
            lane.stopped.store(broken!(StopAtFirstDead), Ordering::Relaxed);
            return Ok(true);
        }
        self.watermarks.advance_to(at, start);
        let keep = |slot: &mut BufferedRecord| slot.keep(head, body);
        let vectors = (&order[..], &validity[..]);
        if self.lookahead == 0 || !self.watermarks.park(at, start, vectors, keep) {
            return Ok(false);
        }
        if is_offered {
            self.sleepers.wake();
        }
        Ok(true)
    }

    /// While many of a stream's records wait, runs parked records of this stream or of other
    /// streams. Returns false if too many parked records are left to read on.
    #[inline]
    fn run_waiting(&self, at: usize, thread: &mut ThreadState) -> Result<bool, Error> {
        let enough = self.lookahead / 2;
        while self.watermarks.waiting(at) > enough {
            let ran = self.run_parked(at, enough, thread)? || self.run_elsewhere(at, thread)?;
            if !ran {
                break;
            }
        }
        Ok(self.watermarks.waiting(at) < self.lookahead)
    }

    /// Runs a parked record of another stream. Returns false if there are no such records.
    fn run_elsewhere(&self, at: usize, thread: &mut ThreadState) -> Result<bool, Error> {
        for other in (0..self.lanes.len()).filter(|&other| other != at) {
            if self.run_parked(other, 1, thread)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Runs up to `most` of a stream's parked records without missing positions. Returns false if
    /// there is no such record.
    fn run_parked(&self, at: usize, most: usize, thread: &mut ThreadState) -> Result<bool, Error> {
        let ThreadState { runner, seen, parked, .. } = thread;
        if !self.watermarks.may_take(at, seen) {
            return Ok(false);
        }
        let Some(mut taken) = self.watermarks.take(at, seen, parked) else { return Ok(false) };
        for left in (0..most).rev() {
            if taken.dead {
                runner.skip_dead(self.replay, &parked.head);
            } else {
                let place = (self.lanes[at].stream, taken.start);
                runner.run(self.replay, &parked.head, &parked.body, place)?;
            }
            if left == 0 {
                self.watermarks.finish(taken);
                break;
            }
            let Some(next) = self.watermarks.finish_and_take(taken, seen, parked) else { break };
            taken = next;
        }
        Ok(true)
    }
}
