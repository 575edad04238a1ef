//! The watermarks of all streams (`lane` in the code), and the parked records. Nothing is replayed
//! here, so that loom can explore all of it.

use super::window::{MissingPosition, WINDOW, Window, WindowSlot};
use crate::logging::admits;
use hyades_platform::broken;
use hyades_platform::sync::{
    AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, Padded, Unpoisoned, checker_fence,
};
use hyades_wal::{Lane, Lsn};

/// Whether a parked record can be run.
enum RecordState {
    Runnable,
    /// It needs a position that a stream does not have.
    Dead,
    Lacks(MissingPosition),
}

/// A parked record that a thread has taken. The thread runs it unless it is dead, and then calls
/// `finish`.
#[derive(Clone, Copy)]
pub(super) struct TakenRecord {
    pub lane: usize,
    pub start: Lsn,
    pub dead: bool,
    number: u64,
}

/// The watermark of a stream, and its parked records.
struct Watermark<T> {
    /// Everything below is resolved. Raised by the stream's runner while nothing is parked, else
    /// from the first record in the window; read by all. Release and Acquire: what was installed
    /// before is visible.
    resolved: AtomicU64,
    /// The lowest position that a waiter registered since it was last reached, or `u64::MAX`: a
    /// hint.
    wanted: AtomicU64,
    /// Everything before this was run or parked. Written by the runner (SeqCst, against `parked`).
    scanned: AtomicU64,
    /// Number of records in the window. Changed under its lock.
    parked: AtomicUsize,
    /// Counts events that may let a thread proceed but that no watermark shows: a record was parked
    /// or taken, the runner left, the stream ended.
    events: AtomicU64,
    window: Mutex<Window<T>>,
    /// For each slot of the window the first position that its record was found to lack, packed by
    /// [`MissingPosition::pack`], or [`MissingPosition::NONE`] if it need not be checked. Changed
    /// under the window's lock; a hint without it.
    first_missing: Padded<[AtomicU64; WINDOW]>,
    /// Number of parked records that no thread has taken: a hint.
    waiting: Padded<AtomicUsize>,
    /// Whether the stream was read to its end, which is `end`.
    finished: AtomicBool,
    end: AtomicU64,
}

/// The watermarks as a thread last saw them. They only rise, so what was covered stays covered.
pub(super) struct Seen {
    pub resolved: Vec<Lsn>,
}

impl Seen {
    pub fn new(lanes: usize) -> Seen {
        Seen { resolved: vec![0; lanes] }
    }

    /// Whether the watermark of a stream has reached `lsn`.
    #[inline]
    fn has<T>(&mut self, watermarks: &Watermarks<T>, at: usize, lsn: Lsn) -> bool {
        if lsn > self.resolved[at] {
            self.resolved[at] = watermarks.resolved(at);
        }
        lsn <= self.resolved[at]
    }

    /// Whether everything that must come first is resolved. A position beyond the end of a stream
    /// counts as reached at the end.
    fn is_ordered<T>(&mut self, watermarks: &Watermarks<T>, order: &[Lsn]) -> bool {
        let mut lanes = order.iter().enumerate();
        lanes.all(|(at, lsn)| {
            self.has(watermarks, at, *lsn) || self.resolved[at] == watermarks.end(at)
        })
    }

    fn is_covered<T>(&mut self, watermarks: &Watermarks<T>, validity: &[Lsn]) -> bool {
        // Refreshes what is not yet known to be covered, then applies the one rule.
        for (at, lsn) in validity.iter().enumerate() {
            self.has(watermarks, at, *lsn);
        }
        admits(|lane| self.resolved[lane.index()], Lane::each(validity))
    }

    /// Whether a record may be run: it is live, and all that it must follow is resolved.
    #[inline]
    pub fn may_run<T>(
        &mut self,
        watermarks: &Watermarks<T>,
        order: &[Lsn],
        validity: &[Lsn],
    ) -> bool {
        self.is_ordered(watermarks, order) && self.is_covered(watermarks, validity)
    }
}

/// The watermarks of all streams; see the module. The streams' runners publish their positions and
/// park records that cannot run yet; any thread may take these when they can.
pub(super) struct Watermarks<T> {
    lanes: Box<[Padded<Watermark<T>>]>,
    /// Wakes the waiters when a watermark has reached a registered position.
    wake: Box<dyn Fn() + Send + Sync>,
}

impl<T> Watermarks<T> {
    /// Everything in the stream below this is resolved.
    #[inline]
    pub fn resolved(&self, at: usize) -> Lsn {
        self.lanes[at].resolved.load(Ordering::Acquire)
    }

    /// Where the stream ends; `u64::MAX` while that is not known.
    #[inline]
    pub fn end(&self, at: usize) -> Lsn {
        self.lanes[at].end.load(Ordering::Acquire)
    }

    /// Whether the stream was read to its end.
    #[inline]
    pub fn is_finished(&self, at: usize) -> bool {
        self.lanes[at].finished.load(Ordering::Acquire)
    }

    /// Whether all of the stream is resolved.
    pub fn is_complete(&self, at: usize) -> bool {
        self.is_finished(at) && self.resolved(at) == self.end(at)
    }

    /// Whether no record is parked, so that all below the runner's position is resolved.
    #[inline]
    pub fn has_none_parked(&self, at: usize) -> bool {
        self.lanes[at].parked.load(Ordering::SeqCst) == 0
    }

    /// Whether there is room in the stream's window. Called by the stream's runner, which alone
    /// fills it.
    #[inline]
    pub fn has_room(&self, at: usize) -> bool {
        self.lanes[at].parked.load(Ordering::SeqCst) < WINDOW
    }

    /// How many parked records of the stream no thread has taken.
    #[inline]
    pub fn waiting(&self, at: usize) -> usize {
        self.lanes[at].waiting.load(Ordering::Relaxed)
    }

    /// A number that rises whenever something has happened that may let a record run.
    pub fn event_count(&self) -> u64 {
        let of_lane = |lane: &Padded<Watermark<T>>| {
            lane.resolved.load(Ordering::Acquire).wrapping_add(lane.events.load(Ordering::Acquire))
        };
        self.lanes.iter().map(of_lane).fold(0, u64::wrapping_add)
    }

    /// The stream's runner has left it, perhaps with more records that can run.
    pub fn runner_left(&self, at: usize) {
        self.lanes[at].events.fetch_add(1, Ordering::Release);
    }

    /// Whether the vector reaches beyond the end of a stream.
    pub fn is_dead(&self, validity: &[Lsn]) -> bool {
        validity.iter().enumerate().any(|(at, lsn)| *lsn > self.end(at))
    }

    /// Whether a position is still missing. If so, registers it: the waiter is then notified at
    /// once.
    fn is_missing(&self, seen: &mut Seen, position: MissingPosition) -> bool {
        let MissingPosition { lane: at, lsn } = position;
        // Beyond the end of a stream there is nothing to wait for.
        let is_missing = !seen.has(self, at, lsn) && lsn <= self.end(at);
        let wanted = &self.lanes[at].wanted;
        if is_missing && wanted.load(Ordering::Relaxed) > lsn {
            wanted.fetch_min(lsn, Ordering::Relaxed);
        }
        is_missing
    }

    /// The first position that the record lacks, or the default if there is none.
    fn first_missing(&self, seen: &mut Seen, order: &[Lsn], validity: &[Lsn]) -> MissingPosition {
        let needs = order.iter().zip(validity).map(|(order, validity)| *order.max(validity));
        let mut needs = needs
            .enumerate()
            .map(|(lane, lsn)| MissingPosition { lane, lsn: lsn.min(self.end(lane)) });
        needs.find(|position| self.is_missing(seen, *position)).unwrap_or_default()
    }

    /// The state of a parked record that was last found to lack `missing`.
    fn record_state(
        &self,
        seen: &mut Seen,
        missing: MissingPosition,
        record: &WindowSlot<T>,
    ) -> RecordState {
        if self.is_missing(seen, missing) {
            return RecordState::Lacks(missing);
        }
        if seen.may_run(self, &record.order, &record.validity) {
            return RecordState::Runnable;
        }
        if self.is_dead(&record.validity) {
            return RecordState::Dead;
        }
        RecordState::Lacks(self.first_missing(seen, &record.order, &record.validity))
    }

    /// Whether a waiter has registered a position up to `to`.
    #[inline]
    pub fn is_wanted(&self, at: usize, to: Lsn) -> bool {
        self.lanes[at].wanted.load(Ordering::Relaxed) <= to
    }

    /// Publishes that the stream's runner has reached `to`.
    pub fn advance_to(&self, at: usize, to: Lsn) {
        let lane = &self.lanes[at];
        debug_assert!(lane.scanned.load(Ordering::Relaxed) <= to, "a runner never goes back");
        // SeqCst on both sides: either this thread sees that nothing is parked, or the thread that
        // removes the last record sees how far the runner is.
        lane.scanned.store(to, Ordering::SeqCst);
        checker_fence();
        let passes = broken!(SkipParkedRecord);
        if lane.parked.load(Ordering::SeqCst) == 0 || passes {
            self.raise(at, to);
        }
    }

    /// Raises a stream's watermark, and notifies the waiters.
    fn raise(&self, at: usize, to: Lsn) {
        let lane = &self.lanes[at];
        debug_assert!(
            to <= lane.scanned.load(Ordering::Relaxed),
            "nothing is resolved that the stream's runner has not reached"
        );
        lane.resolved.fetch_max(to, Ordering::SeqCst);
        let wanted = lane.wanted.load(Ordering::Relaxed);
        if wanted <= to {
            // Threads that wait for a higher position register it again.
            let none = u64::MAX;
            _ = lane.wanted.compare_exchange(wanted, none, Ordering::Relaxed, Ordering::Relaxed);
            (self.wake)();
        }
    }

    /// The stream was read to its end: records that need more are dead, and records that only
    /// follow more follow the end.
    pub fn end_lane(&self, at: usize, end: Lsn) {
        let lane = &self.lanes[at];
        debug_assert!(!self.is_finished(at), "a stream ends once");
        debug_assert!(self.resolved(at) <= end, "nothing is replayed beyond a stream's end");
        lane.end.store(end, Ordering::SeqCst);
        lane.finished.store(true, Ordering::Release);
        lane.events.fetch_add(1, Ordering::Release);
        self.advance_to(at, end);
    }
}

impl<T: Default> Watermarks<T> {
    /// Streams that begin at these positions.
    pub fn new(starts: impl Iterator<Item = Lsn>, wake: Box<dyn Fn() + Send + Sync>) -> Self {
        let watermark = |start| {
            Padded(Watermark {
                resolved: AtomicU64::new(start),
                wanted: AtomicU64::new(u64::MAX),
                scanned: AtomicU64::new(start),
                parked: AtomicUsize::new(0),
                events: AtomicU64::new(0),
                window: Mutex::new(Window::new()),
                first_missing: Padded(std::array::from_fn(|_| {
                    AtomicU64::new(MissingPosition::NONE)
                })),
                waiting: Padded(AtomicUsize::new(0)),
                finished: AtomicBool::new(false),
                end: AtomicU64::new(u64::MAX),
            })
        };
        Watermarks { lanes: starts.map(watermark).collect(), wake }
    }

    /// Parks a record of a stream, at `start`, until the watermarks reach these positions. `keep`
    /// stores in its slot what is to be run. Returns false if there is no room. Called by the
    /// stream's runner.
    pub fn park(
        &self,
        at: usize,
        start: Lsn,
        (order, validity): (&[Lsn], &[Lsn]),
        keep: impl FnOnce(&mut T),
    ) -> bool {
        let lane = &self.lanes[at];
        debug_assert_eq!(
            lane.scanned.load(Ordering::Relaxed),
            start,
            "a record is parked where the stream's runner is"
        );
        debug_assert!(
            order.len() == self.lanes.len() && validity.len() == self.lanes.len(),
            "a vector has a component for each stream"
        );
        let mut window = lane.window.lock().unpoisoned();
        let Some((number, record)) = window.push() else { return false };
        (record.start, record.done) = (start, false);
        record.order.clear();
        record.order.extend_from_slice(order);
        record.validity.clear();
        record.validity.extend_from_slice(validity);
        keep(&mut record.what);
        // The first thread that checks it determines what it lacks.
        lane.first_missing[Window::<T>::slot(number)]
            .store(MissingPosition::default().pack(), Ordering::Relaxed);
        lane.parked.fetch_add(1, Ordering::SeqCst);
        lane.waiting.fetch_add(1, Ordering::Relaxed);
        lane.events.fetch_add(1, Ordering::Release);
        true
    }

    /// Whether there is a parked record that can perhaps be taken.
    pub fn may_take(&self, at: usize, seen: &mut Seen) -> bool {
        let lane = &self.lanes[at];
        lane.waiting.load(Ordering::Relaxed) > 0
            && lane.first_missing.iter().any(|missing| {
                let missing = missing.load(Ordering::Relaxed);
                missing != MissingPosition::NONE
                    && !self.is_missing(seen, MissingPosition::unpack(missing))
            })
    }

    /// Takes the first of a stream's parked records that lacks nothing any more, or is dead. Swaps
    /// what is to be run into `what`, whose previous content is reused.
    pub fn take(&self, at: usize, seen: &mut Seen, what: &mut T) -> Option<TakenRecord> {
        let mut window = self.lanes[at].window.lock().unpoisoned();
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
            let first_missing = &lane.first_missing[Window::<T>::slot(number)];
            let missing = match first_missing.load(Ordering::Relaxed) {
                MissingPosition::NONE => continue,
                missing => MissingPosition::unpack(missing),
            };
            let record = window.record(number);
            let dead = match self.record_state(seen, missing, record) {
                RecordState::Runnable => false,
                RecordState::Dead => true,
                RecordState::Lacks(missing) => {
                    first_missing.store(missing.pack(), Ordering::Relaxed);
                    continue;
                }
            };
            std::mem::swap(&mut record.what, what);
            first_missing.store(MissingPosition::NONE, Ordering::Relaxed);
            debug_assert!(!record.done, "a record is taken once");
            let waiting = lane.waiting.fetch_sub(1, Ordering::Relaxed);
            debug_assert_ne!(waiting, 0, "a stream counts the records that wait in it");
            lane.events.fetch_add(1, Ordering::Release);
            return Some(TakenRecord { lane: at, start: record.start, dead, number });
        }
        None
    }

    /// A taken record has been run, or is dead: raises its stream's watermark.
    pub fn finish(&self, taken: TakenRecord) {
        let mut window = self.lanes[taken.lane].window.lock().unpoisoned();
        let to = self.finish_in(&mut window, taken);
        drop(window);
        self.raise(taken.lane, to);
    }

    /// Does the same as `finish`, and takes the next record of the same stream.
    pub fn finish_and_take(
        &self,
        taken: TakenRecord,
        seen: &mut Seen,
        what: &mut T,
    ) -> Option<TakenRecord> {
        let mut window = self.lanes[taken.lane].window.lock().unpoisoned();
        let to = self.finish_in(&mut window, taken);
        // The next record may have waited for just this one.
        self.raise(taken.lane, to);
        self.take_from(&mut window, taken.lane, seen, what)
    }

    /// Resolves the record in its window. Returns the new watermark.
    fn finish_in(&self, window: &mut Window<T>, taken: TakenRecord) -> Lsn {
        let lane = &self.lanes[taken.lane];
        let record = window.record(taken.number);
        debug_assert_eq!(record.start, taken.start, "the slot is still that of the taken record");
        let was_done = std::mem::replace(&mut record.done, true);
        debug_assert!(!was_done, "a record is finished once");
        let (resolved, first) = window.settle();
        let parked = lane.parked.fetch_sub(resolved, Ordering::SeqCst);
        debug_assert!(parked >= resolved, "a stream counts its parked records");
        checker_fence();
        first.unwrap_or_else(|| lane.scanned.load(Ordering::SeqCst))
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
