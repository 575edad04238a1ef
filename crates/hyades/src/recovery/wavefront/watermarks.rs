//! The lanes' watermarks and the records that wait at them. Nothing is replayed here, so that the schedule
//! checker can run all of it.

use crate::recovery::ready::Ready;
use hyades_platform::mutation::{self, Mutation};
use hyades_platform::sync::{
    Arc, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering, Padded, checker_fence,
};
use hyades_wal::Lsn;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A record that waits, or is to be run; `T` is what is run.
pub(super) struct Parked<T> {
    pub lane: usize,
    pub start: Lsn,
    pub what: T,
    /// Watermarks still lacked, plus one while they are being counted.
    unmet: AtomicU32,
    dead: AtomicBool,
    done: AtomicBool,
}

impl<T> Parked<T> {
    /// Whether it needs what no stream has.
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }
}

/// A record, at a watermark that it lacks.
struct Waiter<T> {
    position: Lsn,
    /// What the record needs to be live: beyond the stream's end it is dead. Where it only has to follow
    /// something, the end is as good as any place beyond.
    validity: Lsn,
    record: Arc<Parked<T>>,
}

impl<T> PartialEq for Waiter<T> {
    fn eq(&self, other: &Self) -> bool {
        self.position == other.position
    }
}
impl<T> Eq for Waiter<T> {}
impl<T> PartialOrd for Waiter<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Waiter<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.position.cmp(&other.position)
    }
}

/// How far a lane is, what waits in it, and who waits at it.
struct Watermark<T> {
    /// Everything below is resolved. Raised by the lane's runner while nothing is parked, else under
    /// `parked`; read by all. Release and Acquire: what was installed before is seen.
    resolved: AtomicU64,
    /// Everything before this was run or parked. Written by the runner (SeqCst, against `waiting`).
    scanned: AtomicU64,
    /// Records parked and not yet taken off `parked`.
    waiting: AtomicUsize,
    parked: Mutex<VecDeque<Arc<Parked<T>>>>,
    waiters: Mutex<BinaryHeap<Reverse<Waiter<T>>>>,
    /// The lowest position in `waiters`, to pass by quickly. Written under `waiters` (SeqCst, against
    /// `resolved`).
    lowest_waiter: AtomicU64,
    /// The stream was read to its end, which is `end`.
    finished: AtomicBool,
    end: AtomicU64,
}

/// See the module. The lanes' runners say how far they are, and park what cannot run yet; what then can comes
/// out of `next_ready`.
pub(super) struct Watermarks<T> {
    lanes: Box<[Padded<Watermark<T>>]>,
    ready: Ready<Parked<T>>,
    /// Called when a record has become ready.
    ring: Box<dyn Fn() + Send + Sync>,
}

impl<T> Watermarks<T> {
    /// Lanes that begin at these positions.
    pub fn new(starts: impl Iterator<Item = Lsn>, ring: Box<dyn Fn() + Send + Sync>) -> Self {
        let watermark = |start| {
            Padded(Watermark {
                resolved: AtomicU64::new(start),
                scanned: AtomicU64::new(start),
                waiting: AtomicUsize::new(0),
                parked: Mutex::new(VecDeque::new()),
                waiters: Mutex::new(BinaryHeap::new()),
                lowest_waiter: AtomicU64::new(u64::MAX),
                finished: AtomicBool::new(false),
                end: AtomicU64::new(u64::MAX),
            })
        };
        Watermarks { lanes: starts.map(watermark).collect(), ready: Ready::new(), ring }
    }

    /// Everything in the lane below this is resolved.
    #[inline]
    pub fn resolved(&self, at: usize) -> Lsn {
        self.lanes[at].resolved.load(Ordering::Acquire)
    }

    /// Where the lane's stream ends; `u64::MAX` while that is not known.
    #[inline]
    pub fn end(&self, at: usize) -> Lsn {
        self.lanes[at].end.load(Ordering::Acquire)
    }

    /// Whether the lane's stream was read to its end.
    #[inline]
    pub fn is_finished(&self, at: usize) -> bool {
        self.lanes[at].finished.load(Ordering::Acquire)
    }

    /// Whether all of the lane is resolved.
    pub fn is_complete(&self, at: usize) -> bool {
        self.is_finished(at) && self.resolved(at) == self.end(at)
    }

    /// How many of the lane's records wait.
    #[inline]
    pub fn waiting(&self, at: usize) -> usize {
        self.lanes[at].waiting.load(Ordering::SeqCst)
    }

    /// Whether the vector reaches beyond the end of a stream.
    pub fn is_dead(&self, validity: &[Lsn]) -> bool {
        validity.iter().enumerate().any(|(at, lsn)| *lsn > self.end(at))
    }

    /// A record that waited and lacks nothing any more. Who takes it runs it, and then calls `finish`.
    pub fn next_ready(&self) -> Option<Arc<Parked<T>>> {
        self.ready.take()
    }

    /// The lane's runner has come to `end`.
    pub fn passed(&self, at: usize, end: Lsn) {
        let lane = &self.lanes[at];
        // SeqCst on both: either this sees that nothing is parked, or whoever takes the last record off
        // sees how far the runner has come.
        lane.scanned.store(end, Ordering::SeqCst);
        checker_fence();
        let passes = mutation::is(Mutation::PassParked);
        if lane.waiting.load(Ordering::SeqCst) == 0 || passes {
            self.raise(at, end);
        }
    }

    /// Raises a lane's watermark and releases the waiters that it has passed.
    fn raise(&self, at: usize, to: Lsn) {
        let lane = &self.lanes[at];
        lane.resolved.fetch_max(to, Ordering::SeqCst);
        checker_fence();
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
    fn meet(&self, record: &Arc<Parked<T>>) {
        if record.unmet.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.ready.push(record.clone());
            (self.ring)();
        }
    }

    /// Parks a record of a lane, at `start`, until the watermarks have come to these positions. Called by the
    /// lane's runner, which has passed all before it.
    pub fn park(&self, at: usize, start: Lsn, what: T, order: &[Lsn], validity: &[Lsn]) {
        let record = Arc::new(Parked {
            lane: at,
            start,
            what,
            unmet: AtomicU32::new(1),
            dead: AtomicBool::new(false),
            done: AtomicBool::new(false),
        });
        {
            let mut parked = self.lanes[at].parked.lock().expect("no holder panics");
            parked.push_back(record.clone());
            self.lanes[at].waiting.fetch_add(1, Ordering::SeqCst);
        }
        for dimension in 0..self.lanes.len() {
            self.wait_for(&record, dimension, order[dimension], validity[dimension]);
        }
        self.meet(&record);
    }

    /// Counts a lane's watermark as lacking, unless it has reached the position.
    fn wait_for(&self, record: &Arc<Parked<T>>, dimension: usize, order: Lsn, validity: Lsn) {
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
        checker_fence();
        // The watermark may have been raised before the waiter was seen.
        let resolved = lane.resolved.load(Ordering::SeqCst);
        if resolved >= position {
            self.raise(dimension, resolved);
        }
    }

    /// The lane's stream was read to its end: who waits for more is dead, or waits for the end.
    pub fn end_lane(&self, at: usize, end: Lsn) {
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
        checker_fence();
        self.raise(at, lane.resolved.load(Ordering::SeqCst));
    }

    /// A record from `next_ready` was run, or is dead: its lane's watermark moves.
    pub fn finish(&self, record: &Parked<T>) {
        let lane = &self.lanes[record.lane];
        let to = {
            let mut parked = lane.parked.lock().expect("no holder panics");
            record.done.store(true, Ordering::Release);
            while parked.front().is_some_and(|first| first.done.load(Ordering::Acquire)) {
                parked.pop_front();
                lane.waiting.fetch_sub(1, Ordering::SeqCst);
            }
            checker_fence();
            match parked.front() {
                Some(first) => first.start,
                None => lane.scanned.load(Ordering::SeqCst),
            }
        };
        self.raise(record.lane, to);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;

    /// Runs every record that is ready; each must find installed what it comes after.
    fn serve(marks: &Watermarks<u64>, installed: &[AtomicU64]) -> (u64, u64) {
        let (mut run, mut dead) = (0, 0);
        while let Some(record) = marks.next_ready() {
            if record.is_dead() {
                dead += 1;
            } else {
                // Relaxed: it is the watermarks that must make it visible.
                for (at, one) in installed.iter().enumerate() {
                    let needed = record.what >> at & 1 == 1;
                    assert!(!needed || one.load(Ordering::Relaxed) == 1, "it runs too early");
                }
                run += 1;
            }
            marks.finish(&record);
        }
        (run, dead)
    }

    fn model(check: impl Fn() + Send + Sync + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(check);
    }

    fn marks(lanes: usize) -> Arc<Watermarks<u64>> {
        Arc::new(Watermarks::new((0..lanes).map(|_| 0), Box::new(|| ())))
    }

    /// Two lanes are run while a record of a third is parked that comes after both: it becomes ready once, when
    /// both are there, and its lane is resolved when it was run, however far its runner had come.
    #[test]
    fn a_parked_record_is_run_once_and_after_what_it_needs() {
        model(|| {
            let marks = marks(3);
            let installed = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
            let runner = |at: usize| {
                let (marks, installed) = (Arc::clone(&marks), Arc::clone(&installed));
                thread::spawn(move || {
                    installed[at].store(1, Ordering::Relaxed);
                    marks.passed(at, 10);
                })
            };
            let runners = [runner(0), runner(1)];
            marks.park(2, 0, 0b11, &[0; 3], &[10, 10, 0]);
            marks.passed(2, 10);
            let mut run = serve(&marks, &*installed).0;
            runners.into_iter().for_each(|runner| runner.join().unwrap());
            run += serve(&marks, &*installed).0;
            assert_eq!(run, 1);
            assert_eq!(marks.waiting(2), 0);
            assert_eq!(marks.resolved(2), 10);
        });
    }

    /// One thread runs what is ready while the lane's runner goes on: between them the watermark comes to
    /// where the runner is.
    #[test]
    fn a_watermark_follows_its_runner_past_what_was_parked() {
        model(|| {
            let marks = marks(2);
            let installed = Arc::new([AtomicU64::new(1)]);
            marks.park(1, 0, 1, &[0; 2], &[10, 0]);
            marks.passed(0, 10);
            let other = {
                let (marks, installed) = (Arc::clone(&marks), Arc::clone(&installed));
                thread::spawn(move || serve(&marks, &*installed).0)
            };
            marks.passed(1, 10);
            marks.end_lane(1, 20);
            assert_eq!(other.join().unwrap(), 1);
            assert!(marks.is_complete(1), "it stands at {}", marks.resolved(1));
        });
    }

    /// A lane ends while records are parked that need more of it, and that only come after more of it: the
    /// first is dead, the second is run.
    #[test]
    fn who_waits_for_more_than_there_is_is_dead_and_who_only_follows_is_not() {
        model(|| {
            let marks = marks(2);
            let installed = Arc::new([AtomicU64::new(0)]);
            let runner = {
                let (marks, installed) = (Arc::clone(&marks), Arc::clone(&installed));
                thread::spawn(move || {
                    installed[0].store(1, Ordering::Relaxed);
                    marks.end_lane(0, 10);
                })
            };
            marks.park(1, 0, 1, &[0; 2], &[20, 0]);
            marks.park(1, 5, 1, &[20, 0], &[0; 2]);
            marks.end_lane(1, 10);
            let first = serve(&marks, &*installed);
            runner.join().unwrap();
            let rest = serve(&marks, &*installed);
            assert_eq!((first.0 + rest.0, first.1 + rest.1), (1, 1));
            assert!(marks.is_complete(0) && marks.is_complete(1));
        });
    }
}
