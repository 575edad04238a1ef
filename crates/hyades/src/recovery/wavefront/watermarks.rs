//! The lanes' watermarks, and the records parked between them and the lanes' runners. Nothing is replayed here,
//! so that the schedule checker can run all of it.

use super::window::{Lack, WINDOW, Window, WindowSlot};
use crate::logging::admits;
use hyades_platform::mutation::{self, Mutation};
use hyades_platform::sync::{
    AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, Padded, checker_fence,
};
use hyades_wal::Lsn;

/// How a record stands.
enum RecordState {
    Runnable,
    /// It needs what no stream has.
    Dead,
    Lacks(Lack),
}

/// A parked record that a thread has taken: it runs it unless it is dead, and then calls `finish`.
#[derive(Clone, Copy)]
pub(super) struct TakenRecord {
    pub lane: usize,
    pub start: Lsn,
    pub dead: bool,
    number: u64,
}

/// How far a lane is, and what waits in it.
struct Watermark<T> {
    /// Everything below is resolved. Raised by the lane's runner while nothing is parked, else from what is
    /// first in the window; read by all. Release and Acquire: what was installed before is seen.
    resolved: AtomicU64,
    /// The lowest position that somebody was seen to wait for since it was last reached, or none: a hint.
    wanted: AtomicU64,
    /// Everything before this was run or parked. Written by the runner (SeqCst, against `parked`).
    scanned: AtomicU64,
    /// Records in the window. Changed under it.
    parked: AtomicUsize,
    /// Counts what may let somebody go on but no watermark tells: parked, taken, left, the end.
    events: AtomicU64,
    window: Mutex<Window<T>>,
    /// For each slot of the window what its record was last found lacking, [`Lack::pack`]ed, or none if nobody
    /// need look at it. Changed under the window; a hint to who has not got it.
    lacking: Padded<[AtomicU64; WINDOW]>,
    /// How many parked records nobody has taken: a hint.
    waiting: Padded<AtomicUsize>,
    /// The stream was read to its end, which is `end`.
    finished: AtomicBool,
    end: AtomicU64,
}

/// What a thread last saw of the lanes' watermarks. These only rise, so what was covered stays so.
pub(super) struct Seen {
    pub resolved: Vec<Lsn>,
}

impl Seen {
    pub fn new(lanes: usize) -> Seen {
        Seen { resolved: vec![0; lanes] }
    }

    /// Whether the watermark of a lane has come to `lsn`.
    #[inline]
    fn has<T>(&mut self, marks: &Watermarks<T>, at: usize, lsn: Lsn) -> bool {
        if lsn > self.resolved[at] {
            self.resolved[at] = marks.resolved(at);
        }
        lsn <= self.resolved[at]
    }

    /// Whether all that must come first has; what would stand beyond the end of a stream never will.
    fn is_ordered<T>(&mut self, marks: &Watermarks<T>, order: &[Lsn]) -> bool {
        let mut lanes = order.iter().enumerate();
        lanes.all(|(at, lsn)| self.has(marks, at, *lsn) || self.resolved[at] == marks.end(at))
    }

    fn is_covered<T>(&mut self, marks: &Watermarks<T>, validity: &[Lsn]) -> bool {
        // First what is not yet known to be covered is looked at again, then the one rule is asked.
        for (at, lsn) in validity.iter().enumerate() {
            self.has(marks, at, *lsn);
        }
        admits(|at| self.resolved[at], validity.iter().copied().enumerate())
    }

    /// Whether a record may be run: all that it must follow has been.
    #[inline]
    pub fn may_run<T>(&mut self, marks: &Watermarks<T>, order: &[Lsn], validity: &[Lsn]) -> bool {
        self.is_ordered(marks, order) && self.is_covered(marks, validity)
    }
}

/// See the module. The lanes' runners say how far they are, and park what cannot run yet; any thread may take it
/// when it can.
pub(super) struct Watermarks<T> {
    lanes: Box<[Padded<Watermark<T>>]>,
    /// Called when a watermark has come to where somebody waits.
    ring: Box<dyn Fn() + Send + Sync>,
}

impl<T> Watermarks<T> {
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

    /// Whether all below the runner's place is resolved.
    #[inline]
    pub fn has_none_parked(&self, at: usize) -> bool {
        self.lanes[at].parked.load(Ordering::SeqCst) == 0
    }

    /// Whether there is room in the lane's window. Asked by the lane's runner, who alone fills it.
    #[inline]
    pub fn has_room(&self, at: usize) -> bool {
        self.lanes[at].parked.load(Ordering::SeqCst) < WINDOW
    }

    /// How many parked records of the lane nobody has taken.
    #[inline]
    pub fn waiting(&self, at: usize) -> usize {
        self.lanes[at].waiting.load(Ordering::Relaxed)
    }

    /// A number that rises whenever something has happened that may let a record go on.
    pub fn moved(&self) -> u64 {
        let moved = |lane: &Padded<Watermark<T>>| {
            lane.resolved.load(Ordering::Acquire).wrapping_add(lane.events.load(Ordering::Acquire))
        };
        self.lanes.iter().map(moved).fold(0, u64::wrapping_add)
    }

    /// The lane's runner has left it, perhaps with more that could be run.
    pub fn left(&self, at: usize) {
        self.lanes[at].events.fetch_add(1, Ordering::Release);
    }

    /// Whether the vector reaches beyond the end of a stream.
    pub fn is_dead(&self, validity: &[Lsn]) -> bool {
        validity.iter().enumerate().any(|(at, lsn)| *lsn > self.end(at))
    }

    /// Whether something is lacking still; then whoever brings it is asked to say so at once.
    fn is_lacking(&self, seen: &mut Seen, lack: Lack) -> bool {
        let Lack { lane: at, lsn } = lack;
        // Beyond the end of a stream there is nothing to wait for.
        let lacking = !seen.has(self, at, lsn) && lsn <= self.end(at);
        let wanted = &self.lanes[at].wanted;
        if lacking && wanted.load(Ordering::Relaxed) > lsn {
            wanted.fetch_min(lsn, Ordering::Relaxed);
        }
        lacking
    }

    /// One thing that the record lacks.
    fn lack(&self, seen: &mut Seen, order: &[Lsn], validity: &[Lsn]) -> Lack {
        let needs = order.iter().zip(validity).map(|(order, validity)| *order.max(validity));
        let mut lacks =
            needs.enumerate().map(|(lane, lsn)| Lack { lane, lsn: lsn.min(self.end(lane)) });
        lacks.find(|lack| self.is_lacking(seen, *lack)).unwrap_or_default()
    }

    fn standing(&self, seen: &mut Seen, lacks: Lack, record: &WindowSlot<T>) -> RecordState {
        if self.is_lacking(seen, lacks) {
            return RecordState::Lacks(lacks);
        }
        if seen.may_run(self, &record.order, &record.validity) {
            return RecordState::Runnable;
        }
        if self.is_dead(&record.validity) {
            return RecordState::Dead;
        }
        RecordState::Lacks(self.lack(seen, &record.order, &record.validity))
    }

    /// Whether somebody was seen to wait for a place before `to`.
    #[inline]
    pub fn is_wanted(&self, at: usize, to: Lsn) -> bool {
        self.lanes[at].wanted.load(Ordering::Relaxed) <= to
    }

    /// The lane's runner has come to `end`.
    pub fn passed(&self, at: usize, end: Lsn) {
        let lane = &self.lanes[at];
        // SeqCst on both: either this sees that nothing is parked, or whoever takes the last record off
        // sees how far the runner has come.
        lane.scanned.store(end, Ordering::SeqCst);
        checker_fence();
        let passes = mutation::is(Mutation::PassParked);
        if lane.parked.load(Ordering::SeqCst) == 0 || passes {
            self.raise(at, end);
        }
    }

    /// Raises a lane's watermark, and tells those who wait for it.
    fn raise(&self, at: usize, to: Lsn) {
        let lane = &self.lanes[at];
        lane.resolved.fetch_max(to, Ordering::SeqCst);
        let wanted = lane.wanted.load(Ordering::Relaxed);
        if wanted <= to {
            // Whoever waits for more says so again.
            let none = u64::MAX;
            _ = lane.wanted.compare_exchange(wanted, none, Ordering::Relaxed, Ordering::Relaxed);
            (self.ring)();
        }
    }

    /// The lane's stream was read to its end: who needs more is dead, and who only follows more follows the end.
    pub fn end_lane(&self, at: usize, end: Lsn) {
        let lane = &self.lanes[at];
        lane.end.store(end, Ordering::SeqCst);
        lane.finished.store(true, Ordering::Release);
        lane.events.fetch_add(1, Ordering::Release);
        self.passed(at, end);
    }
}

impl<T: Default> Watermarks<T> {
    /// Lanes that begin at these positions.
    pub fn new(starts: impl Iterator<Item = Lsn>, ring: Box<dyn Fn() + Send + Sync>) -> Self {
        let watermark = |start| {
            Padded(Watermark {
                resolved: AtomicU64::new(start),
                wanted: AtomicU64::new(u64::MAX),
                scanned: AtomicU64::new(start),
                parked: AtomicUsize::new(0),
                events: AtomicU64::new(0),
                window: Mutex::new(Window::new()),
                lacking: Padded(std::array::from_fn(|_| AtomicU64::new(Lack::NONE))),
                waiting: Padded(AtomicUsize::new(0)),
                finished: AtomicBool::new(false),
                end: AtomicU64::new(u64::MAX),
            })
        };
        Watermarks { lanes: starts.map(watermark).collect(), ring }
    }

    /// Parks a record of a lane, at `start`, until the watermarks have come to these positions: `keep` puts into
    /// its place what is to be run. False if there is no room. Called by the lane's runner.
    pub fn park(
        &self,
        at: usize,
        start: Lsn,
        (order, validity): (&[Lsn], &[Lsn]),
        keep: impl FnOnce(&mut T),
    ) -> bool {
        let lane = &self.lanes[at];
        let mut window = lane.window.lock().expect("no holder panics");
        let Some((number, record)) = window.push() else { return false };
        (record.start, record.done) = (start, false);
        record.order.clear();
        record.order.extend_from_slice(order);
        record.validity.clear();
        record.validity.extend_from_slice(validity);
        keep(&mut record.what);
        // What it lacks is found out by who looks at it first.
        lane.lacking[Window::<T>::slot(number)].store(Lack::default().pack(), Ordering::Relaxed);
        lane.parked.fetch_add(1, Ordering::SeqCst);
        lane.waiting.fetch_add(1, Ordering::Relaxed);
        lane.events.fetch_add(1, Ordering::Release);
        true
    }

    /// Whether there is a parked record that may be taken.
    pub fn may_take(&self, at: usize, seen: &mut Seen) -> bool {
        let lane = &self.lanes[at];
        lane.waiting.load(Ordering::Relaxed) > 0
            && lane.lacking.iter().any(|lack| {
                let lack = lack.load(Ordering::Relaxed);
                lack != Lack::NONE && !self.is_lacking(seen, Lack::unpack(lack))
            })
    }

    /// Takes the first of a lane's parked records that lacks nothing any more, or is dead. What is to be run comes
    /// into `what`, and what was in there is used again.
    pub fn take(&self, at: usize, seen: &mut Seen, what: &mut T) -> Option<TakenRecord> {
        let mut window = self.lanes[at].window.lock().expect("no holder panics");
        self.take_from(&mut window, at, seen, what)
    }

    fn take_from(
        &self,
        window: &mut Window<T>,
        at: usize,
        seen: &mut Seen,
        what: &mut T,
    ) -> Option<TakenRecord> {
        let lane = &self.lanes[at];
        for number in window.first..window.next {
            let lacking = &lane.lacking[Window::<T>::slot(number)];
            let lacks = match lacking.load(Ordering::Relaxed) {
                Lack::NONE => continue,
                lacks => Lack::unpack(lacks),
            };
            let record = window.record(number);
            let dead = match self.standing(seen, lacks, record) {
                RecordState::Runnable => false,
                RecordState::Dead => true,
                RecordState::Lacks(lacks) => {
                    lacking.store(lacks.pack(), Ordering::Relaxed);
                    continue;
                }
            };
            std::mem::swap(&mut record.what, what);
            lacking.store(Lack::NONE, Ordering::Relaxed);
            lane.waiting.fetch_sub(1, Ordering::Relaxed);
            lane.events.fetch_add(1, Ordering::Release);
            return Some(TakenRecord { lane: at, start: record.start, dead, number });
        }
        None
    }

    /// A record that was taken has been run, or is dead: its lane's watermark moves.
    pub fn finish(&self, taken: TakenRecord) {
        let mut window = self.lanes[taken.lane].window.lock().expect("no holder panics");
        let to = self.finish_in(&mut window, taken);
        drop(window);
        self.raise(taken.lane, to);
    }

    /// Does as `finish`, and takes the next of the same lane.
    pub fn finish_and_take(
        &self,
        taken: TakenRecord,
        seen: &mut Seen,
        what: &mut T,
    ) -> Option<TakenRecord> {
        let mut window = self.lanes[taken.lane].window.lock().expect("no holder panics");
        let to = self.finish_in(&mut window, taken);
        // What comes next may have waited for just this.
        self.raise(taken.lane, to);
        self.take_from(&mut window, taken.lane, seen, what)
    }

    /// Where the watermark is now.
    fn finish_in(&self, window: &mut Window<T>, taken: TakenRecord) -> Lsn {
        let lane = &self.lanes[taken.lane];
        window.record(taken.number).done = true;
        let (resolved, first) = window.settle();
        lane.parked.fetch_sub(resolved, Ordering::SeqCst);
        checker_fence();
        first.unwrap_or_else(|| lane.scanned.load(Ordering::SeqCst))
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
