//! Replay from pools (Taurus, section 3.3, algorithms 3 and 4), for comparison with the wavefront.
//!
//! Each stream has a *pool*: records that were decoded and not yet replayed, split into queues. A
//! worker searches the pools, back and forth, for a record whose vector RLV covers, takes it out,
//! replays it, and then raises its stream's component of RLV. A worker that finds none decodes a
//! batch of some stream: it is that stream's log manager meanwhile.
//!
//! Departures from the printed algorithms; docs/protocols.md has the reasons:
//!
//! - E1: each record is judged alone. One that needs more than a stream has is dead; its stream
//!   continues.
//! - E2: anchors, padding, parts and dead records count: RLV reaches the end of every stream.
//! - E3: a record is live once RLV covers it, and dead only once the end of a stream is known.
//! - E5: RLV is the lowest start over the heads of the pool *and everything in flight*, since a
//!   record that was taken out is not replayed yet.
//! - E6: the pool's maxLSN is read before the pool is searched, and raised after a record was put
//!   in.
//!
//! Progress: of all unresolved records, consider the one whose frame was reserved first. All that
//! it follows, and all before it in its stream, is resolved; so it is in flight, or at the head of
//! its queue and covered, or still to be decoded by a log manager whose pool is empty. So pools may
//! be bounded.

use super::cursor::{LookAhead, StreamCursor};
use super::decode::RecordShape;
use super::ordered::{self, OrderedReplay};
use super::read_ahead::LaneReader;
use super::replay::ReplayContext;
use super::runner::RecordRunner;
use super::stream_order::furthest_behind_first;
use crate::error::Error;
use crate::logging::admits;
use crate::logging::record::RecordHead;
use crate::storage::Stamp;
use hyades_wal::{Lane, Lsn, ReaderEnd, StreamId};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Queues of a pool; records are put into them in turn (section 3.3, "we partition each pool").
const QUEUES: usize = 4;

/// Maximum number of records in a pool.
const POOL_RECORDS: usize = 2048;

/// Records of a queue, from its head, that a worker checks before it goes to the next queue.
const WINDOW: usize = 32;

/// Frames that a log manager decodes before it is a worker again.
const BATCH: usize = 64;

/// A decoded record that waits to be replayed.
struct PooledRecord {
    start: Lsn,
    validity: Box<[Lsn]>,
    /// `None` for a command, which is ordered by its validity.
    order: Option<Box<[Lsn]>>,
    head: RecordHead,
    body: Vec<u8>,
}

/// A partition of a pool, in stream order.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<PooledRecord>,
    /// The starts of records taken out and not yet replayed.
    in_flight: Vec<Lsn>,
}

impl Queue {
    /// A record in flight has been replayed, or is dead.
    fn land(&mut self, start: Lsn) {
        let at = self.in_flight.iter().position(|other| *other == start);
        self.in_flight.swap_remove(at.expect("a record is in flight until it was replayed"));
    }
}

struct PoolSource {
    cursor: StreamCursor,
    /// The queue that gets the next record.
    turn: usize,
}

#[repr(align(128))]
struct RecordPool {
    stream: StreamId,
    source: Mutex<PoolSource>,
    queues: [Mutex<Queue>; QUEUES],
    /// Number of waiting records. Incremented by the log manager before a record is visible,
    /// decremented by the worker that takes it. Relaxed: it only bounds the pool.
    len: AtomicUsize,
    /// Everything that starts below this was put in, or needs no replay. Raised by the holder of
    /// `source` (Release, after the record is in its queue), read by workers (Acquire, before they
    /// search the queues: E6).
    max_lsn: AtomicU64,
    /// This stream's component of RLV: everything below is resolved. Raised by workers after they
    /// replayed (Release), read by all to check what is covered (Acquire: what was installed is
    /// visible).
    resolved: AtomicU64,
    /// Where the stream ends, once that is known; `u64::MAX` before. Written by the holder of
    /// `source`, read by all.
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
}

/// Replays one incarnation whose records have vectors. Returns where its streams end.
pub(crate) fn replay<S: Stamp>(
    replay: &ReplayContext<S>,
    readers: Vec<LaneReader>,
    shape: RecordShape,
    threads: usize,
) -> Result<Vec<ReaderEnd>, Error> {
    let pools = readers.into_iter().map(|reader| RecordPool::new(reader, shape)).collect();
    let pools = Pools { replay, pools };
    ordered::run(&pools, threads);
    if replay.has_failed() {
        return Ok(Vec::new());
    }
    let source = |pool: RecordPool| pool.source.into_inner().expect("no holder panics");
    Ok(pools.pools.into_iter().filter_map(|pool| source(pool).cursor.reader.end()).collect())
}

impl RecordPool {
    fn new(reader: LaneReader, shape: RecordShape) -> RecordPool {
        let start = reader.start();
        RecordPool {
            stream: reader.stream,
            queues: Default::default(),
            len: AtomicUsize::new(0),
            max_lsn: AtomicU64::new(start),
            resolved: AtomicU64::new(start),
            end: AtomicU64::new(u64::MAX),
            finished: AtomicBool::new(false),
            source: Mutex::new(PoolSource { cursor: StreamCursor::new(reader, shape), turn: 0 }),
        }
    }

    fn queue(&self, at: usize) -> std::sync::MutexGuard<'_, Queue> {
        self.queues[at].lock().expect("no holder panics")
    }

    /// Algorithm 4, lines 4 to 7, for a pool of several queues. Every record that starts below
    /// maxLSN as loaded here was put in before. When its queue is checked it is there, in flight or
    /// resolved, and it moves from one to the next under the queue's lock. So the queues need not
    /// be locked all at once.
    fn raise(&self) {
        let mut lowest = self.max_lsn.load(Ordering::Acquire);
        for at in 0..QUEUES {
            let queue = self.queue(at);
            let head = queue.waiting.front().map(|record| record.start);
            for start in head.iter().chain(&queue.in_flight) {
                lowest = lowest.min(*start);
            }
        }
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
}

impl<S: Stamp> OrderedReplay<S> for Pools<'_, S> {
    type Thread = SweepState;

    const SPINS: u32 = 32;

    fn context(&self) -> &ReplayContext<S> {
        self.replay
    }

    fn thread(&self, number: usize) -> SweepState {
        SweepState { number, runner: RecordRunner::new(), upwards: number.is_multiple_of(2) }
    }

    fn runner(thread: &mut SweepState) -> &mut RecordRunner {
        &mut thread.runner
    }

    fn step(&self, thread: &mut SweepState, _: bool) -> Result<bool, Error> {
        let SweepState { number, runner, upwards } = thread;
        let found = self.sweep(*number, *upwards, runner)?;
        // The next sweep goes the other way: it begins where this one has just replayed.
        *upwards = !*upwards;
        Ok(found || self.decode_some(*number, runner)?)
    }

    fn unresolved(&self) -> Option<(StreamId, Lsn)> {
        let pool = self.pools.iter().find(|pool| !pool.is_complete())?;
        Some((pool.stream, pool.resolved.load(Ordering::Acquire)))
    }
}

impl<S: Stamp> Pools<'_, S> {
    /// Scans all queues of all pools once, in one direction, and replays what is ready. Returns
    /// false if nothing was.
    fn sweep(
        &self,
        number: usize,
        upwards: bool,
        runner: &mut RecordRunner,
    ) -> Result<bool, Error> {
        let all = self.pools.len() * QUEUES;
        let mut found = false;
        for step in 0..all {
            let step = if upwards { step } else { all - 1 - step };
            let (pool, queue) = ((number + step / QUEUES) % self.pools.len(), step % QUEUES);
            let pool = &self.pools[pool];
            let mut replayed = 0;
            while replayed < BATCH && !self.replay.has_failed() {
                let Some(record) = self.fetch_next(pool, queue) else { break };
                let place = (pool.stream, record.start);
                match record.eligibility {
                    Eligibility::Dead => runner.dead += 1,
                    _ => runner.run(self.replay, &record.head, &record.body, place)?,
                }
                pool.queue(queue).land(record.start);
                pool.raise();
                replayed += 1;
            }
            found |= replayed > 0;
        }
        Ok(found)
    }

    /// FetchNext: takes out a record that RLV covers, or that is dead. It becomes in flight under
    /// the same lock.
    fn fetch_next(&self, pool: &RecordPool, queue: usize) -> Option<RunningRecord> {
        let mut of = pool.queue(queue);
        let window = of.waiting.iter().take(WINDOW).enumerate();
        let judged = window.map(|(at, record)| (at, self.eligibility(record)));
        let (at, eligibility) = { judged }.find(|(_, e)| !matches!(e, Eligibility::NotYet))?;
        let PooledRecord { start, head, body, .. } = of.waiting.remove(at).expect("it is there");
        debug_assert!(!of.in_flight.contains(&start), "a record is taken out once");
        debug_assert!(
            start >= pool.resolved.load(Ordering::Relaxed),
            "RLV does not pass a record that waits"
        );
        of.in_flight.push(start);
        pool.len.fetch_sub(1, Ordering::Relaxed);
        Some(RunningRecord { start, head, body, eligibility })
    }

    fn eligibility(&self, record: &PooledRecord) -> Eligibility {
        let resolved = |lane: Lane| self.pools[lane.index()].resolved.load(Ordering::Acquire);
        let end = |lane: Lane| self.pools[lane.index()].end.load(Ordering::Acquire);
        let validity = || Lane::each(&record.validity);
        if !admits(resolved, validity()) {
            let dead = validity().any(|(lane, lsn)| lsn > end(lane));
            return if dead { Eligibility::Dead } else { Eligibility::NotYet };
        }
        // `order` may name a position beyond the end of a stream; then reaching the end suffices.
        let comes_first = |(lane, lsn): (Lane, Lsn)| {
            let resolved = resolved(lane);
            lsn <= resolved || resolved == end(lane)
        };
        let order = record.order.as_deref().unwrap_or_default();
        let ready = Lane::each(order).all(comes_first);
        if ready { Eligibility::Ready } else { Eligibility::NotYet }
    }

    /// Decodes a batch of the free stream with the emptiest pool. Returns false if there is none.
    fn decode_some(&self, number: usize, runner: &mut RecordRunner) -> Result<bool, Error> {
        let len = |at: usize| {
            let pool = &self.pools[at];
            let finished = pool.finished.load(Ordering::Relaxed);
            (!finished).then(|| pool.len.load(Ordering::Relaxed))
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
            self.decode(pool, &mut source, runner)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Algorithm 3: decodes a batch of frames into the pool.
    fn decode(
        &self,
        pool: &RecordPool,
        source: &mut PoolSource,
        runner: &mut RecordRunner,
    ) -> Result<(), Error> {
        let PoolSource { cursor, turn } = source;
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
            if let Some(decoded) = cursor.decoder.decode(&frame)? {
                let data = !decoded.head.command;
                let continued = decoded.head.continued;
                let record = PooledRecord {
                    start: frame.start,
                    validity: cursor.decoder.validity.as_slice().into(),
                    order: data.then(|| cursor.decoder.order.as_slice().into()),
                    head: decoded.head,
                    body: decoded.body.into_owned(),
                };
                cursor.decoder.forget_parts(continued);
                pool.len.fetch_add(1, Ordering::Relaxed);
                pool.queue(*turn).waiting.push_back(record);
                *turn = (*turn + 1) % QUEUES;
            }
            runner.bytes += frame.end - frame.start;
            cursor.at = frame.end;
            // Line 3, after line 2: a thread that sees this sees the record in its queue.
            pool.max_lsn.fetch_max(frame.end, Ordering::Release);
        }
        pool.raise();
        Ok(())
    }
}

/// A record in flight.
struct RunningRecord {
    start: Lsn,
    head: RecordHead,
    body: Vec<u8>,
    eligibility: Eligibility,
}
