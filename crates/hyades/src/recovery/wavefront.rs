//! Ordered replay on prefix events (design: a vector's lane means that all of a stream up to there is
//! resolved; Taurus, section 3.3, with algorithms 3 and 4 replaced).
//!
//! Each stream is a *lane* with a watermark: everything below it is replayed, dead, or no record at
//! all. A thread takes a lane and runs its records in order. A record whose vector is not yet
//! covered by the watermarks is *parked*: it waits, by position, at each watermark that it lacks, and
//! counts those; the lane goes on behind it. Whoever raises a watermark releases the waiters it has
//! passed, and a record that lacks nothing any more goes to a queue that all threads serve first.
//!
//! Invariant: a watermark never passes a record that is not resolved. A record is live iff its vector
//! is covered by the ends of all streams; one that is covered by watermarks is. A record that waits
//! for a place beyond the end of a stream is dead, and resolved.
//!
//! Progress: among the unresolved records take the one whose frame was reserved first. Everything it
//! depends on, and everything before it in its lane, was reserved earlier, hence is resolved: it can
//! run. So neither a bound on parked records nor running lanes strictly in order can block.

use super::Replay;
use super::decode::{Decoded, Decoder, Shape};
use super::hands::Hands;
use super::read_ahead::LaneReader;
use super::seats::{Seats, in_a_circle};
use crate::error::Error;
use crate::logging::admits;
use crate::logging::record::{Head, Tid};
use hyades_platform::mutation::{self, Mutation};
use hyades_wal::{Chunk, Lsn, ReaderEnd};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Records a thread runs in a lane before it looks at others.
const QUANTUM: usize = 32;

/// Records after which a lane's runner says how far it has come. Others look at that rarely: they
/// remember what they saw, see [`Seen`], and a line of memory that one writes and another reads
/// with every record would cost more than the records.
const SAY_EVERY: usize = 8;

/// So many looks at all lanes before records are parked.
const PATIENCE: u32 = 16;

/// So many looks in vain before a thread sleeps; it has looked with parking allowed by then.
const SPINS: u32 = 71;

/// A lane reads no further while so many of its records are parked.
const LOOKAHEAD: usize = 512;

struct Parked {
    lane: usize,
    start: Lsn,
    head: Head,
    body: Vec<u8>,
    /// Watermarks still lacked, plus one while they are being counted.
    unmet: AtomicU32,
    dead: AtomicBool,
    done: AtomicBool,
}

/// What a thread last saw of the lanes' watermarks. These only rise, so what was covered stays so.
struct Seen {
    resolved: Vec<Lsn>,
}

impl Seen {
    /// Whether the watermark of a lane has come to `lsn`.
    #[inline]
    fn has(&mut self, lanes: &[Lane], at: usize, lsn: Lsn) -> bool {
        if lsn > self.resolved[at] {
            self.resolved[at] = lanes[at].resolved.load(Ordering::Acquire);
        }
        lsn <= self.resolved[at]
    }

    /// Whether all that must come first has; what would stand beyond the end of a stream never will.
    fn is_ordered(&mut self, lanes: &[Lane], order: &[Lsn]) -> bool {
        order.iter().enumerate().all(|(at, lsn)| {
            self.has(lanes, at, *lsn) || self.resolved[at] == lanes[at].end.load(Ordering::Acquire)
        })
    }

    fn is_covered(&mut self, lanes: &[Lane], validity: &[Lsn]) -> bool {
        // First what is not yet known to be covered is looked at again, then the one rule is asked.
        for (at, lsn) in validity.iter().enumerate() {
            self.has(lanes, at, *lsn);
        }
        admits(|at| self.resolved[at], validity.iter().copied().enumerate())
    }
}

struct Waiter {
    position: Lsn,
    /// What the record needs to be live: beyond the stream's end it is dead. Where it only has to follow
    /// something, the end is as good as any place beyond.
    validity: Lsn,
    record: Arc<Parked>,
}

impl PartialEq for Waiter {
    fn eq(&self, other: &Self) -> bool {
        self.position == other.position
    }
}
impl Eq for Waiter {}
impl PartialOrd for Waiter {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Waiter {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.position.cmp(&other.position)
    }
}

struct Cursor {
    reader: LaneReader,
    decoder: Decoder,
    chunk: Option<Chunk>,
    at: Lsn,
    /// Only under a mutation: a dead record ended the lane.
    stopped: bool,
}

#[repr(align(128))]
struct Lane {
    stream: u32,
    cursor: Mutex<Cursor>,
    /// The watermark. Raised by the lane's runner while nothing is parked, else under `parked`; read
    /// by all. Release and Acquire: what was installed before is seen.
    resolved: AtomicU64,
    /// Everything before this was run or parked. Written by the runner (SeqCst, against `waiting`).
    scanned: AtomicU64,
    /// Records parked and not yet taken off `parked`.
    waiting: AtomicUsize,
    parked: Mutex<VecDeque<Arc<Parked>>>,
    waiters: Mutex<BinaryHeap<Reverse<Waiter>>>,
    /// The lowest position in `waiters`, to pass by quickly. Written under `waiters` (SeqCst, against
    /// `resolved`).
    lowest_waiter: AtomicU64,
    /// The stream was read to its end, which is `end`.
    finished: AtomicBool,
    end: AtomicU64,
    /// The epoch that the lane has come to: lanes are run evenly.
    epoch: AtomicU64,
}

struct Front<'r, S: Default + Send + Sync + 'static> {
    replay: &'r Replay<S>,
    lanes: Vec<Lane>,
    lookahead: usize,
    ready: Mutex<VecDeque<Arc<Parked>>>,
    ready_len: AtomicUsize,
    sleepers: AtomicUsize,
    bell: Condvar,
    bell_lock: Mutex<()>,
    seats: Seats,
}

/// Replays one incarnation. Returns where its streams end.
pub(crate) fn replay<S: Default + Send + Sync + 'static>(
    replay: &Replay<S>,
    readers: Vec<LaneReader>,
    shape: Shape,
    threads: usize,
) -> Result<Vec<ReaderEnd>, Error> {
    let lanes: Vec<Lane> = readers.into_iter().map(|reader| Lane::new(reader, shape)).collect();
    // One thread gains nothing from looking ahead: it runs every lane in order.
    let lookahead = if threads == 1 || !shape.has_vectors() { 0 } else { LOOKAHEAD };
    let front = Front {
        replay,
        lanes,
        lookahead,
        ready: Mutex::default(),
        ready_len: AtomicUsize::new(0),
        sleepers: AtomicUsize::new(0),
        bell: Condvar::new(),
        bell_lock: Mutex::new(()),
        seats: Seats::new(threads),
    };
    std::thread::scope(|scope| {
        let work = |seat: usize| {
            if let Err(error) = front.work(seat) {
                replay.fail(error);
            }
            front.seats.leave(seat);
            front.ring();
        };
        (1..threads).for_each(|seat| drop(scope.spawn(move || work(seat))));
        work(0);
    });
    Ok(front
        .lanes
        .into_iter()
        .filter_map(|lane| lane.cursor.into_inner().expect("no holder panics").reader.end())
        .collect())
}

impl Lane {
    fn new(reader: LaneReader, shape: Shape) -> Lane {
        let start = reader.start();
        Lane {
            stream: reader.stream,
            resolved: AtomicU64::new(start),
            scanned: AtomicU64::new(start),
            waiting: AtomicUsize::new(0),
            parked: Mutex::default(),
            waiters: Mutex::default(),
            lowest_waiter: AtomicU64::new(u64::MAX),
            finished: AtomicBool::new(false),
            end: AtomicU64::new(u64::MAX),
            epoch: AtomicU64::new(0),
            cursor: Mutex::new(Cursor {
                decoder: Decoder::new(shape, reader.stream),
                reader,
                chunk: None,
                at: start,
                stopped: false,
            }),
        }
    }

    fn is_complete(&self) -> bool {
        self.finished.load(Ordering::Acquire)
            && self.resolved.load(Ordering::Acquire) == self.end.load(Ordering::Acquire)
    }
}

impl<S: Default + Send + Sync + 'static> Front<'_, S> {
    fn work(&self, seat: usize) -> Result<(), Error> {
        let mut hands = Hands::new();
        let mut seen = Seen { resolved: vec![0; self.lanes.len()] };
        let mut idle = 0;
        while !self.replay.has_failed() {
            // Only who has looked for long asks whether there is anything left to wait for.
            let still = (idle > SPINS).then(|| self.seats.all_others_rest(seat)).flatten();
            if let Some(record) = self.next_ready() {
                idle = 0;
                self.finish_parked(&record, &mut hands)?;
                continue;
            }
            // A record that is not yet covered mostly waits for one that another thread is running now, or
            // that is the next of a lane nobody is running: looking again is cheaper than parking it.
            let may_park = self.lookahead > 0 && idle >= PATIENCE;
            if self.run_some_lane(seat, may_park, &mut hands, &mut seen)? {
                idle = 0;
                continue;
            }
            hands.report(self.replay);
            let Some(lane) = self.lanes.iter().find(|lane| !lane.is_complete()) else { break };
            if still.is_some_and(|then| self.seats.still(&then)) {
                return Err(in_a_circle(lane.stream, lane.resolved.load(Ordering::Acquire)));
            }
            idle += 1;
            self.rest(seat, idle);
        }
        hands.report(self.replay);
        hands.applier.finish(self.replay);
        self.ring();
        Ok(())
    }

    fn next_ready(&self) -> Option<Arc<Parked>> {
        if self.ready_len.load(Ordering::Acquire) == 0 {
            return None;
        }
        let record = self.ready.lock().expect("no holder panics").pop_front()?;
        self.ready_len.fetch_sub(1, Ordering::AcqRel);
        Some(record)
    }

    fn rest(&self, seat: usize, idle: u32) {
        if idle < 64 {
            std::hint::spin_loop();
        } else if idle <= SPINS {
            std::thread::yield_now();
        } else {
            self.seats.rest(seat, || {
                self.sleepers.fetch_add(1, Ordering::SeqCst);
                let lock = self.bell_lock.lock().expect("no holder panics");
                // The time-out makes a missed bell a delay and not a hang.
                drop(self.bell.wait_timeout(lock, Duration::from_micros(200)));
                self.sleepers.fetch_sub(1, Ordering::SeqCst);
            });
        }
    }

    fn ring(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.bell.notify_all();
        }
    }

    /// Runs a stretch of the lane that is furthest behind and free. False if no lane could go on.
    fn run_some_lane(
        &self,
        seat: usize,
        may_park: bool,
        hands: &mut Hands,
        seen: &mut Seen,
    ) -> Result<bool, Error> {
        let n = self.lanes.len();
        let mut order: smallvec::SmallVec<[(u64, usize); 16]> = (0..n)
            .map(|at| (seat + at) % n)
            .filter(|&at| !self.lanes[at].finished.load(Ordering::Relaxed))
            .map(|at| (self.lanes[at].epoch.load(Ordering::Relaxed), at))
            .collect();
        order.sort_by_key(|(epoch, _)| *epoch);
        for (_, at) in order {
            let Ok(mut cursor) = self.lanes[at].cursor.try_lock() else { continue };
            if self.run_lane(at, &mut cursor, may_park, hands, seen)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Runs up to a quantum of records of a lane. False if it could not move.
    fn run_lane(
        &self,
        at: usize,
        cursor: &mut Cursor,
        may_park: bool,
        hands: &mut Hands,
        seen: &mut Seen,
    ) -> Result<bool, Error> {
        let lane = &self.lanes[at];
        if lane.finished.load(Ordering::Relaxed) {
            return Ok(false);
        }
        if cursor.chunk.as_ref().is_none_or(|chunk| chunk.end() == cursor.at) {
            match cursor.reader.next_chunk()? {
                Some(chunk) => {
                    cursor.decoder.enter(&chunk);
                    cursor.at = chunk.start();
                    cursor.chunk = Some(chunk);
                }
                None => {
                    self.end_lane(at, cursor.reader.valid_to());
                    return Ok(true);
                }
            }
        }
        let chunk = cursor.chunk.as_ref().expect("it was just read");
        let guard = crossbeam_epoch::pin();
        let began = cursor.at;
        let mut unsaid = 0;
        for frame in chunk.frames_from(cursor.at).take(QUANTUM) {
            // Without looking ahead the lane's own order suffices, and nothing is parked.
            if lane.waiting.load(Ordering::Relaxed) > self.lookahead {
                break;
            }
            if let Some(decoded) = cursor.decoder.decode(&frame)? {
                let (order, validity) = (&cursor.decoder.order, &cursor.decoder.validity);
                let continued = decoded.head.continued;
                if !cursor.stopped
                    && seen.is_ordered(&self.lanes, order)
                    && seen.is_covered(&self.lanes, validity)
                {
                    hands.run(
                        self.replay,
                        &decoded.head,
                        &decoded.body,
                        (lane.stream, frame.start),
                    )?;
                    lane.epoch.store(Tid(decoded.head.tid).epoch(), Ordering::Relaxed);
                } else if cursor.stopped || self.is_dead(validity) {
                    hands.dead += 1;
                    cursor.stopped = mutation::is(Mutation::StopAtFirstDead);
                } else if !may_park {
                    // The frame will be decoded again.
                    break;
                } else {
                    self.passed(at, frame.start);
                    self.park(at, frame.start, decoded, order, validity);
                }
                cursor.decoder.forget_parts(continued);
            }
            hands.bytes += frame.end - frame.start;
            cursor.at = frame.end;
            // With nothing parked, the lane is resolved up to where its runner is, said or not.
            if lane.waiting.load(Ordering::SeqCst) == 0 {
                seen.resolved[at] = cursor.at;
            }
            unsaid += 1;
            if unsaid % SAY_EVERY == 0 {
                self.passed(at, cursor.at);
            }
        }
        self.passed(at, cursor.at);
        drop(guard);
        Ok(cursor.at != began)
    }

    /// Whether the vector reaches beyond the end of a stream.
    fn is_dead(&self, validity: &[Lsn]) -> bool {
        let beyond = |(lsn, lane): (&Lsn, &Lane)| *lsn > lane.end.load(Ordering::Acquire);
        validity.iter().zip(&self.lanes).any(beyond)
    }

    /// The lane's runner has come to `end`.
    fn passed(&self, at: usize, end: Lsn) {
        let lane = &self.lanes[at];
        // SeqCst on both: either this sees that nothing is parked, or whoever takes the last record off
        // sees how far the runner has come.
        lane.scanned.store(end, Ordering::SeqCst);
        let passes = mutation::is(Mutation::PassParked);
        if lane.waiting.load(Ordering::SeqCst) == 0 || passes {
            self.raise(at, end);
        }
    }

    /// Raises a lane's watermark and releases the waiters that it has passed.
    fn raise(&self, at: usize, to: Lsn) {
        let lane = &self.lanes[at];
        lane.resolved.fetch_max(to, Ordering::SeqCst);
        if lane.lowest_waiter.load(Ordering::SeqCst) > to {
            return;
        }
        let mut released = Vec::new();
        {
            let mut waiters = lane.waiters.lock().expect("no holder panics");
            while waiters.peek().is_some_and(|w| w.0.position <= to) {
                released.push(waiters.pop().expect("it was there").0.record);
            }
            let lowest = waiters.peek().map_or(u64::MAX, |w| w.0.position);
            lane.lowest_waiter.store(lowest, Ordering::SeqCst);
        }
        released.iter().for_each(|record| self.meet(record));
    }

    /// One thing that the record lacked is there.
    fn meet(&self, record: &Arc<Parked>) {
        if record.unmet.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.ready.lock().expect("no holder panics").push_back(record.clone());
            self.ready_len.fetch_add(1, Ordering::AcqRel);
            self.ring();
        }
    }

    fn park(&self, at: usize, start: Lsn, decoded: Decoded<'_>, order: &[Lsn], validity: &[Lsn]) {
        let lane = &self.lanes[at];
        let record = Arc::new(Parked {
            lane: at,
            start,
            head: decoded.head,
            body: decoded.body.into_owned(),
            unmet: AtomicU32::new(1),
            dead: AtomicBool::new(false),
            done: AtomicBool::new(false),
        });
        {
            let mut parked = lane.parked.lock().expect("no holder panics");
            parked.push_back(record.clone());
            lane.waiting.fetch_add(1, Ordering::SeqCst);
        }
        for dimension in 0..self.lanes.len() {
            self.wait_for(&record, dimension, order[dimension], validity[dimension]);
        }
        self.meet(&record);
    }

    /// Counts a lane's watermark as lacking, unless it has reached the position.
    fn wait_for(&self, record: &Arc<Parked>, dimension: usize, order: Lsn, validity: Lsn) {
        let mut position = order.max(validity);
        let lane = &self.lanes[dimension];
        if lane.resolved.load(Ordering::Acquire) >= position {
            return;
        }
        let mut waiters = lane.waiters.lock().expect("no holder panics");
        let end = lane.end.load(Ordering::SeqCst);
        if validity > end {
            record.dead.store(true, Ordering::Release);
            return;
        }
        position = position.min(end);
        record.unmet.fetch_add(1, Ordering::AcqRel);
        waiters.push(Reverse(Waiter { position, validity, record: record.clone() }));
        let lowest = waiters.peek().map_or(u64::MAX, |w| w.0.position);
        lane.lowest_waiter.store(lowest, Ordering::SeqCst);
        drop(waiters);
        // The watermark may have been raised before the waiter was seen.
        let resolved = lane.resolved.load(Ordering::SeqCst);
        if resolved >= position {
            self.raise(dimension, resolved);
        }
    }

    /// The lane's stream was read to its end: who waits for more is dead, or waits for the end.
    fn end_lane(&self, at: usize, end: Lsn) {
        let lane = &self.lanes[at];
        let mut dead = Vec::new();
        {
            let mut waiters = lane.waiters.lock().expect("no holder panics");
            lane.end.store(end, Ordering::SeqCst);
            let (beyond, mut kept): (Vec<_>, Vec<_>) =
                waiters.drain().partition(|w| w.0.position > end);
            for mut waiter in beyond {
                if waiter.0.validity > end {
                    waiter.0.record.dead.store(true, Ordering::Release);
                    dead.push(waiter.0.record);
                } else {
                    waiter.0.position = end;
                    kept.push(waiter);
                }
            }
            *waiters = kept.into();
            let lowest = waiters.peek().map_or(u64::MAX, |w| w.0.position);
            lane.lowest_waiter.store(lowest, Ordering::SeqCst);
        }
        lane.finished.store(true, Ordering::Release);
        dead.iter().for_each(|record| self.meet(record));
        self.passed(at, end);
        self.raise(at, lane.resolved.load(Ordering::SeqCst));
        self.ring();
    }

    /// Runs a parked record that lacks nothing any more, and moves its lane's watermark.
    fn finish_parked(&self, record: &Arc<Parked>, hands: &mut Hands) -> Result<(), Error> {
        let lane = &self.lanes[record.lane];
        if record.dead.load(Ordering::Acquire) {
            hands.dead += 1;
        } else {
            hands.run(self.replay, &record.head, &record.body, (lane.stream, record.start))?;
        }
        let to = {
            let mut parked = lane.parked.lock().expect("no holder panics");
            record.done.store(true, Ordering::Release);
            while parked.front().is_some_and(|first| first.done.load(Ordering::Acquire)) {
                parked.pop_front();
                lane.waiting.fetch_sub(1, Ordering::SeqCst);
            }
            match parked.front() {
                Some(first) => first.start,
                None => lane.scanned.load(Ordering::SeqCst),
            }
        };
        self.raise(record.lane, to);
        Ok(())
    }
}
