//! Replay from pools (Taurus, section 3.3, algorithms 3 and 4), for comparison with the wavefront.
//!
//! Each stream has a *pool*: records decoded and not yet replayed ([`ring`], without locks). A
//! worker searches the pools, back and forth, for a record whose vector RLV covers, takes the
//! record out and replays it. A worker without such a record decodes a batch of some stream, and is
//! the stream's log manager meanwhile. As in the paper:
//!
//! - A pool has several queues: workers begin the search at different queues, interleaved between
//!   workers, so few workers meet at a record.
//! - Each worker has a copy of RLV, and reads the component of another stream only when its copy
//!   does not suffice.
//! - Raising RLV is delegated: only the worker completing the first record of a pool raises RLV,
//!   over all records completed behind it by other workers.
//!
//! In a log of only data records a record waits for RLV as well, as in the algorithms; row versions
//! would need no wait.
//!
//! Departures from the printed algorithms; docs/protocols/taurus.md has the reasons:
//!
//! - E1: each record is judged alone. A record that needs a position beyond the end of a stream is
//!   dead; the record's own stream continues.
//! - E2: anchors, padding, parts and dead records count: RLV reaches the end of every stream.
//! - E3: a record is live once RLV covers it, and dead only once the end of a stream is known.
//! - E5: RLV is the lowest start of all records in the pool *or in flight*, since a record taken
//!   out is not replayed yet.
//! - E6: the pool's maxLSN is read before its first record, and raised after a record was put in.
//!
//! Progress: of all unresolved records, consider the record with the earliest frame reservation.
//! All predecessors of the record, and all records before it in its stream, are resolved; so the
//! record is in flight, or the first of its pool and covered, or still to be decoded by a log
//! manager with an empty pool. So pools may be bounded.

mod ring;

use super::cursor::{LookAhead, StreamCursor};
use super::decode::RecordShape;
use super::floors::Floors;
use super::ordered::{self, OrderedReplay};
use super::read_ahead::LaneReader;
use super::replay::ReplayContext;
use super::runner::RecordRunner;
use super::stream_order::furthest_behind_first;
use crate::error::Error;
use crate::logging::is_met;
use crate::logging::record::RecordHead;
use crate::storage::Stamp;
use hyades_platform::sync::Unpoisoned;
use hyades_wal::{Lane, Lsn, ReaderEnd, StreamId};
use ring::RecordRing;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Queues of a pool; records are put into the queues in turn (section 3.3, "we partition each
/// pool").
const QUEUES: u64 = 4;

/// Records in a pool, at most.
const POOL_RECORDS: usize = 1024;

/// Records of a queue, from its first, that a worker checks before going to the next queue.
const WINDOW: u64 = 32;

/// Frames decoded by a log manager before becoming a worker again.
const BATCH: usize = 64;

/// The kept content of a record waiting for its replay.
struct PooledRecord {
    head: RecordHead,
    body: Vec<u8>,
}

#[repr(align(128))]
struct RecordPool {
    stream: StreamId,
    source: Mutex<StreamCursor>,
    /// Records that wait or run. A record's words are its validity vector, then the vector of its
    /// further required predecessors. The holder of `source` puts records in.
    records: RecordRing<PooledRecord>,
    /// Every record that starts below this was put in, or needs no replay. Raised by the holder of
    /// `source` (Release, after the record was put in), read by workers (Acquire, before the search
    /// for the first record: E6).
    max_lsn: AtomicU64,
    /// This stream's component of RLV: everything below is resolved. Raised by workers after a
    /// replay (Release), read by all threads to check coverage (Acquire: installed changes are
    /// visible).
    resolved: AtomicU64,
    /// The end of the stream, once known; `u64::MAX` before. Written by the holder of `source`,
    /// read by all threads.
    end: AtomicU64,
    finished: AtomicBool,
}

/// Whether a record's vectors allow it to be replayed now.
enum Eligibility {
    Ready,
    Dead,
    NotYet,
}

struct Pools<'r, S: Stamp> {
    replay: &'r ReplayContext<S>,
    pools: Vec<RecordPool>,
    /// Whether the log has data records alone.
    data_only: bool,
    /// Where rows have several versions.
    floors: Option<Floors>,
}

/// Replays one incarnation whose records have vectors. Returns the ends of its streams.
pub(crate) fn replay<S: Stamp>(
    replay: &ReplayContext<S>,
    readers: Vec<LaneReader>,
    shape: RecordShape,
    threads: usize,
) -> Result<Vec<ReaderEnd>, Error> {
    let floors = shape.versions.then(|| Floors::begin(replay, readers.len()));
    let pools = readers.into_iter().map(|reader| RecordPool::new(reader, shape)).collect();
    let pools = Pools { replay, pools, data_only: shape.data_only, floors };
    ordered::run(&pools, threads);
    if let Some(floors) = &pools.floors {
        floors.end(replay);
    }
    if replay.has_failed() {
        return Ok(Vec::new());
    }
    let source = |pool: RecordPool| pool.source.into_inner().unpoisoned();
    Ok(pools.pools.into_iter().filter_map(|pool| source(pool).reader.end()).collect())
}

impl RecordPool {
    fn new(reader: LaneReader, shape: RecordShape) -> RecordPool {
        let start = reader.start();
        RecordPool {
            stream: reader.stream,
            records: RecordRing::new(POOL_RECORDS, 2 * shape.lanes),
            max_lsn: AtomicU64::new(start),
            resolved: AtomicU64::new(start),
            end: AtomicU64::new(u64::MAX),
            finished: AtomicBool::new(false),
            source: Mutex::new(StreamCursor::new(reader, shape)),
        }
    }

    /// Algorithm 4, lines 4 to 7. Every record that starts below the maxLSN loaded here was put in
    /// before.
    fn raise(&self) {
        let max = self.max_lsn.load(Ordering::Acquire);
        let lowest = self.records.lowest().map_or(max, |start| start.min(max));
        self.resolved.fetch_max(lowest, Ordering::AcqRel);
    }

    fn is_complete(&self) -> bool {
        self.finished.load(Ordering::Acquire)
            && self.resolved.load(Ordering::Acquire) == self.end.load(Ordering::Acquire)
    }
}

struct SweepState {
    number: usize,
    runner: RecordRunner,
    /// The direction of the next sweep.
    upwards: bool,
    /// RLV as last read by the worker.
    seen: Vec<Lsn>,
    /// The words of the record being checked.
    words: Vec<Lsn>,
}

impl<S: Stamp> OrderedReplay<S> for Pools<'_, S> {
    type Thread = SweepState;

    const SPINS: u32 = 32;

    fn context(&self) -> &ReplayContext<S> {
        self.replay
    }

    fn thread(&self, number: usize) -> SweepState {
        let lanes = self.pools.len();
        let mut runner = RecordRunner::new(self.replay.engine.tables.len());
        runner.by_timestamp = self.floors.is_some();
        SweepState {
            number,
            runner,
            upwards: number.is_multiple_of(2),
            seen: vec![0; lanes],
            words: vec![0; 2 * lanes],
        }
    }

    fn runner(thread: &mut SweepState) -> &mut RecordRunner {
        &mut thread.runner
    }

    fn step(&self, thread: &mut SweepState, _: bool) -> Result<bool, Error> {
        let Some(floors) = &self.floors else { return self.replay_some(thread) };
        let found = floors.while_running(|| self.replay_some(thread))?;
        if found {
            let resolved = |pool: &RecordPool| pool.resolved.load(Ordering::Acquire);
            let pool = |at: usize| Some(&self.pools[at]).filter(|pool| !pool.is_complete());
            floors.raise(self.replay, |at| pool(at).map(resolved));
        }
        Ok(found)
    }

    fn unresolved(&self) -> Option<(StreamId, Lsn)> {
        let pool = self.pools.iter().find(|pool| !pool.is_complete())?;
        Some((pool.stream, pool.resolved.load(Ordering::Acquire)))
    }
}

impl<S: Stamp> Pools<'_, S> {
    /// See [`OrderedReplay::step`].
    fn replay_some(&self, thread: &mut SweepState) -> Result<bool, Error> {
        let found = self.sweep(thread)?;
        // The next sweep goes the other way, and begins where this sweep has just replayed.
        thread.upwards = !thread.upwards;
        Ok(found || self.decode_some(thread.number, &mut thread.runner)?)
    }

    /// Scans all queues of all pools once, in one direction, and replays the ready records. Returns
    /// false if no record was ready.
    fn sweep(&self, worker: &mut SweepState) -> Result<bool, Error> {
        let all = self.pools.len() * QUEUES as usize;
        let mut found = false;
        for step in 0..all {
            let step = if worker.upwards { step } else { all - 1 - step };
            let (pool, queue) = (step / QUEUES as usize, step as u64 % QUEUES);
            let pool = &self.pools[(worker.number + pool) % self.pools.len()];
            // Different workers begin at different queues.
            let queue = (queue + worker.number as u64) % QUEUES;
            let mut replayed = 0;
            while replayed < BATCH && !self.replay.has_failed() {
                let Some((number, eligibility)) = self.find(pool, queue, worker) else { break };
                // Another worker may have been faster.
                let Some((start, record)) = pool.records.take(number) else { continue };
                debug_assert!(
                    start >= pool.resolved.load(Ordering::Relaxed),
                    "RLV does not pass a record that waits"
                );
                let PooledRecord { head, body } = record;
                match eligibility {
                    Eligibility::Dead => worker.runner.skip_dead(self.replay, &head),
                    _ => worker.runner.run(self.replay, &head, &body, (pool.stream, start))?,
                }
                if pool.records.finish(number) {
                    pool.raise();
                }
                replayed += 1;
            }
            found |= replayed > 0;
        }
        Ok(found)
    }

    /// FetchNext: finds a covered or dead record of a queue.
    fn find(
        &self,
        pool: &RecordPool,
        queue: u64,
        worker: &mut SweepState,
    ) -> Option<(u64, Eligibility)> {
        let SweepState { seen, words, .. } = worker;
        let numbers = pool.records.numbers();
        let first = numbers.start + (queue + QUEUES - numbers.start % QUEUES) % QUEUES;
        let window = (first..numbers.end).step_by(QUEUES as usize).take(WINDOW as usize);
        for number in window {
            if pool.records.look(number, words) {
                match self.eligibility(words, seen) {
                    Eligibility::NotYet => {}
                    decided => return Some((number, decided)),
                }
            }
        }
        None
    }

    /// Whether the copy of RLV covers this position of a stream; if not, reads RLV anew.
    fn covers(&self, seen: &mut [Lsn], (lane, lsn): (Lane, Lsn)) -> bool {
        let at = lane.index();
        if !is_met(seen[at], lsn) {
            seen[at] = self.pools[at].resolved.load(Ordering::Acquire);
        }
        is_met(seen[at], lsn)
    }

    fn eligibility(&self, words: &[Lsn], seen: &mut [Lsn]) -> Eligibility {
        let end = |lane: Lane| self.pools[lane.index()].end.load(Ordering::Acquire);
        let (validity, order) = words.split_at(self.pools.len());
        if !Lane::each(validity).all(|need| self.covers(seen, need)) {
            let dead = Lane::each(validity).any(|(lane, lsn)| lsn > end(lane));
            return if dead { Eligibility::Dead } else { Eligibility::NotYet };
        }
        // `order` may name a position beyond the end of a stream; then the end suffices.
        let ready = Lane::each(order)
            .all(|(lane, lsn)| self.covers(seen, (lane, lsn)) || seen[lane.index()] == end(lane));
        if ready { Eligibility::Ready } else { Eligibility::NotYet }
    }

    /// Decodes a batch of the free stream with the emptiest pool. Returns false if no stream could
    /// be read.
    fn decode_some(&self, number: usize, runner: &mut RecordRunner) -> Result<bool, Error> {
        let len = |at: usize| {
            let pool = &self.pools[at];
            let finished = pool.finished.load(Ordering::Relaxed);
            (!finished).then(|| pool.records.len())
        };
        for (len, at) in furthest_behind_first(self.pools.len(), number, len) {
            if len >= POOL_RECORDS {
                break;
            }
            let pool = &self.pools[at];
            let Ok(mut source) = pool.source.try_lock() else { continue };
            if pool.finished.load(Ordering::Relaxed) {
                continue;
            }
            self.decode(at, &mut source, runner)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Algorithm 3: decodes a batch of frames into the pool.
    fn decode(
        &self,
        at: usize,
        cursor: &mut StreamCursor,
        runner: &mut RecordRunner,
    ) -> Result<(), Error> {
        let pool = &self.pools[at];
        if let LookAhead::End(end) = cursor.look_ahead()? {
            let read = pool.max_lsn.load(Ordering::Relaxed);
            debug_assert!(end >= read, "a stream ends behind all that was read of it");
            // RLV reaches ELV, whatever the last frames were (E2).
            pool.end.store(end, Ordering::Release);
            pool.max_lsn.fetch_max(end, Ordering::Release);
            pool.finished.store(true, Ordering::Release);
            pool.raise();
            return Ok(());
        }
        let chunk = cursor.chunk.as_ref().expect("there is more of it");
        for frame in chunk.frames_from(cursor.at).take(BATCH) {
            if !pool.records.has_room() {
                break;
            }
            if let Some(decoded) = cursor.decoder.decode(&frame)? {
                let continued = decoded.head.continued;
                if let (Some(floors), Some(floor)) = (&self.floors, decoded.head.floor) {
                    floors.add(at, frame.start, floor);
                }
                // A command is ordered by its validity, and so is every record in a log of only
                // data records.
                let is_ordered_apart = !decoded.head.command && !self.data_only;
                let order = cursor.decoder.order.iter().map(|lsn| match is_ordered_apart {
                    true => *lsn,
                    false => 0,
                });
                let words = cursor.decoder.validity.iter().copied().chain(order);
                let record = PooledRecord { head: decoded.head, body: decoded.body.into_owned() };
                pool.records.put(frame.start, words, record);
                cursor.decoder.forget_parts(continued);
            }
            runner.bytes += frame.end - frame.start;
            cursor.at = frame.end;
            // Line 3, after line 2: a thread that sees the new value sees the record in its queue.
            pool.max_lsn.fetch_max(frame.end, Ordering::Release);
        }
        pool.raise();
        Ok(())
    }
}
