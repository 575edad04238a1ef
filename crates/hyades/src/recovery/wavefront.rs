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
mod watermarks;

use super::Replay;
use super::cursor::{Ahead, Cursor};
use super::decode::Shape;
use super::hands::Hands;
use super::read_ahead::LaneReader;
use super::seats::{Seats, in_a_circle};
use super::threads;
use crate::error::Error;
use crate::logging::record::{Head, Tid};
use hyades_platform::mutation::{self, Mutation};
use hyades_wal::ReaderEnd;
use lane::{Lane, Seen};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use watermarks::{Parked, Watermarks};

/// Records a thread runs in a lane before it looks at others.
const QUANTUM: usize = 64;

/// Records after which a lane's runner says how far it has come. Others look at that rarely: they
/// remember what they saw, see [`Seen`], and a line of memory that one writes and another reads
/// with every record would cost more than the records.
const SAY_EVERY: usize = 8;

/// Looks at all lanes before records are parked, at least and at most. Where records are short, what one waits for
/// is there after a few looks; where they are long, the looks are lost, and to park is cheap beside them.
/// Which it is, each thread learns from how its waits end.
const PATIENCE: std::ops::RangeInclusive<u32> = 2..=16;

/// So many looks in vain before a thread sleeps; it has looked with parking allowed by then.
const SPINS: u32 = 71;

/// A lane reads no further while so many of its records are parked.
const LOOKAHEAD: usize = 512;

struct Front<'r, S: Default + Send + Sync + 'static> {
    replay: &'r Replay<S>,
    lanes: Vec<Lane>,
    marks: Watermarks<Held>,
    lookahead: usize,
    bell: Arc<Bell>,
    seats: Seats,
}

/// What is kept of a record that waits.
struct Held {
    head: Head,
    body: Vec<u8>,
}

/// Wakes those who found nothing to do.
#[derive(Default)]
struct Bell {
    sleepers: AtomicUsize,
    condvar: Condvar,
    lock: Mutex<()>,
}

impl Bell {
    fn ring(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.condvar.notify_all();
        }
    }

    fn sleep(&self) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let lock = self.lock.lock().expect("no holder panics");
        // The time-out makes a missed bell a delay and not a hang.
        drop(self.condvar.wait_timeout(lock, Duration::from_micros(200)));
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Replays one incarnation. Returns where its streams end.
pub(crate) fn replay<S: Default + Send + Sync + 'static>(
    replay: &Replay<S>,
    readers: Vec<LaneReader>,
    shape: Shape,
    threads: usize,
) -> Result<Vec<ReaderEnd>, Error> {
    let bell = Arc::<Bell>::default();
    let ring = Arc::clone(&bell);
    let starts = readers.iter().map(LaneReader::start);
    let marks = Watermarks::new(starts, Box::new(move || ring.ring()));
    let lanes: Vec<Lane> = readers.into_iter().map(|reader| Lane::new(reader, shape)).collect();
    // One thread gains nothing from looking ahead: it runs every lane in order.
    let lookahead = if threads == 1 || !shape.has_vectors() { 0 } else { LOOKAHEAD };
    let front = Front { replay, lanes, marks, lookahead, bell, seats: Seats::new(threads) };
    let ended = |seat: usize| {
        front.seats.leave(seat);
        front.bell.ring();
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
        let (mut idle, mut patience) = (0, *PATIENCE.end());
        while !self.replay.has_failed() {
            // Only who has looked for long asks whether there is anything left to wait for.
            let still = (idle > SPINS).then(|| self.seats.all_others_rest(seat)).flatten();
            if let Some(record) = self.marks.next_ready() {
                idle = 0;
                self.finish_parked(&record, &mut hands)?;
                continue;
            }
            // A record that is not yet covered mostly waits for one that another thread is running now, or
            // that is the next of a lane nobody is running: looking again is cheaper than parking it.
            let may_park = self.lookahead > 0 && idle >= patience;
            if self.run_some_lane(seat, may_park, &mut hands, &mut seen)? {
                patience = match idle {
                    0 => patience,
                    _ if may_park => (patience - 1).max(*PATIENCE.start()),
                    _ => (patience + 1).min(*PATIENCE.end()),
                };
                idle = 0;
                continue;
            }
            hands.report(self.replay);
            let unresolved = (0..self.lanes.len()).find(|&at| !self.marks.is_complete(at));
            let Some(at) = unresolved else { break };
            if still.is_some_and(|then| self.seats.still(&then)) {
                return Err(in_a_circle(self.lanes[at].stream, self.marks.resolved(at)));
            }
            idle += 1;
            hands.waited();
            self.rest(seat, idle);
        }
        hands.report(self.replay);
        hands.applier.finish(self.replay);
        self.bell.ring();
        Ok(())
    }

    fn rest(&self, seat: usize, idle: u32) {
        if idle < 64 {
            std::hint::spin_loop();
        } else if idle <= SPINS {
            std::thread::yield_now();
        } else {
            self.seats.rest(seat, || self.bell.sleep());
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
            .filter(|&at| !self.marks.is_finished(at))
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
        if self.marks.is_finished(at) {
            return Ok(false);
        }
        if let Ahead::End(end) = cursor.look_ahead()? {
            self.marks.end_lane(at, end);
            self.bell.ring();
            return Ok(true);
        }
        let chunk = cursor.chunk.as_ref().expect("there is more of it");
        let guard = crossbeam_epoch::pin();
        let began = cursor.at;
        let mut unsaid = 0;
        let mut stopped = lane.stopped.load(Ordering::Relaxed);
        for frame in chunk.frames_from(cursor.at).take(QUANTUM) {
            // Without looking ahead the lane's own order suffices, and nothing is parked.
            if self.marks.waiting(at) > self.lookahead {
                break;
            }
            if let Some(decoded) = cursor.decoder.decode(&frame)? {
                let (order, validity) = (&cursor.decoder.order, &cursor.decoder.validity);
                let continued = decoded.head.continued;
                if !stopped
                    && seen.is_ordered(&self.marks, order)
                    && seen.is_covered(&self.marks, validity)
                {
                    let from = (lane.stream, &cursor.decoder);
                    hands.look_ahead(self.replay, from, chunk, frame.start, &guard);
                    let place = (lane.stream, frame.start);
                    hands.run(self.replay, &decoded.head, &decoded.body, place)?;
                    lane.epoch.store(Tid(decoded.head.tid).epoch(), Ordering::Relaxed);
                } else if stopped || self.marks.is_dead(validity) {
                    hands.dead += 1;
                    stopped = mutation::is(Mutation::StopAtFirstDead);
                    lane.stopped.store(stopped, Ordering::Relaxed);
                } else if !may_park {
                    // The frame will be decoded again.
                    break;
                } else {
                    self.marks.passed(at, frame.start);
                    let held = Held { head: decoded.head, body: decoded.body.into_owned() };
                    self.marks.park(at, frame.start, held, order, validity);
                }
                cursor.decoder.forget_parts(continued);
            }
            hands.bytes += frame.end - frame.start;
            cursor.at = frame.end;
            // With nothing parked, the lane is resolved up to where its runner is, said or not.
            if self.marks.waiting(at) == 0 {
                seen.resolved[at] = cursor.at;
            }
            unsaid += 1;
            if unsaid % SAY_EVERY == 0 {
                self.marks.passed(at, cursor.at);
            }
        }
        lane.builds_on.store(cursor.decoder.builds_on(), Ordering::Relaxed);
        self.marks.passed(at, cursor.at);
        drop(guard);
        Ok(cursor.at != began)
    }

    /// Runs a parked record that lacks nothing any more.
    fn finish_parked(&self, record: &Parked<Held>, hands: &mut Hands) -> Result<(), Error> {
        if record.is_dead() {
            hands.dead += 1;
        } else {
            let Held { head, body } = &record.what;
            let place = (self.lanes[record.lane].stream, record.start);
            hands.run(self.replay, head, body, place)?;
        }
        self.marks.finish(record);
        Ok(())
    }
}
