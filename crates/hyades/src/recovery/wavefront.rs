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

mod lane;

use super::Replay;
use super::cursor::{Ahead, Cursor};
use super::decode::{Decoded, Shape};
use super::hands::Hands;
use super::read_ahead::LaneReader;
use super::seats::{Seats, in_a_circle};
use super::threads;
use crate::error::Error;
use crate::logging::record::Tid;
use hyades_platform::mutation::{self, Mutation};
use hyades_wal::{Lsn, ReaderEnd};
use lane::{Lane, Parked, Seen, Waiter};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
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
    let ended = |seat: usize| {
        front.seats.leave(seat);
        front.ring();
    };
    threads::run_on(replay, threads, |seat| front.work(seat), ended);
    if replay.has_failed() {
        return Ok(Vec::new());
    }
    Ok(front
        .lanes
        .into_iter()
        .filter_map(|lane| lane.cursor.into_inner().expect("no holder panics").reader.end())
        .collect())
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
        let mut order: smallvec::SmallVec<[((u64, u64), usize); 16]> = (0..n)
            .map(|at| (seat + at) % n)
            .filter(|&at| !self.lanes[at].finished.load(Ordering::Relaxed))
            .map(|at| (self.lanes[at].come_to(), at))
            .collect();
        order.sort_by_key(|(come_to, _)| *come_to);
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
        if let Ahead::End(end) = cursor.look_ahead()? {
            self.end_lane(at, end);
            return Ok(true);
        }
        let chunk = cursor.chunk.as_ref().expect("there is more of it");
        let guard = crossbeam_epoch::pin();
        let began = cursor.at;
        let mut unsaid = 0;
        let mut stopped = lane.stopped.load(Ordering::Relaxed);
        for frame in chunk.frames_from(cursor.at).take(QUANTUM) {
            // Without looking ahead the lane's own order suffices, and nothing is parked.
            if lane.waiting.load(Ordering::Relaxed) > self.lookahead {
                break;
            }
            if let Some(decoded) = cursor.decoder.decode(&frame)? {
                let (order, validity) = (&cursor.decoder.order, &cursor.decoder.validity);
                let continued = decoded.head.continued;
                if !stopped
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
                } else if stopped || self.is_dead(validity) {
                    hands.dead += 1;
                    stopped = mutation::is(Mutation::StopAtFirstDead);
                    lane.stopped.store(stopped, Ordering::Relaxed);
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
        lane.builds_on.store(cursor.decoder.builds_on(), Ordering::Relaxed);
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
