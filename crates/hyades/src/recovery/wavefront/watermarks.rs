//! The watermarks of all streams (`lane` in the code), and the parked records. Nothing is replayed
//! here, so loom can explore the whole module.

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
    /// The record needs a position beyond the end of a stream.
    Dead,
    Lacks(MissingPosition),
}

/// A parked record taken by a thread. The thread runs the record unless it is dead, and then calls
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
    /// from the first record in the window; read by all threads. Release and Acquire: everything
    /// installed before is visible.
    resolved: AtomicU64,
    /// The lowest position registered by a waiter since a registered position was last reached, or
    /// `u64::MAX`: a hint.
    wanted: AtomicU64,
    /// Everything before this position was run or parked. Written by the runner (SeqCst, against
    /// `parked`).
    scanned: AtomicU64,
    /// Number of records in the window. Changed under its lock.
    parked: AtomicUsize,
    /// Counts events that may let a thread proceed without a change of any watermark: a record was
    /// parked or taken, the runner left, the stream ended.
    events: AtomicU64,
    window: Mutex<Window<T>>,
    /// For each slot of the window the first missing position found for its record, packed by
    /// [`MissingPosition::pack`], or [`MissingPosition::NONE`] if the slot need not be checked.
    /// Changed under the window's lock; a hint without it.
    first_missing: Padded<[AtomicU64; WINDOW]>,
    /// Number of parked records not taken by a thread: a hint.
    waiting: Padded<AtomicUsize>,
    /// Whether the stream was read to its end, `end`.
    finished: AtomicBool,
    end: AtomicU64,
}

/// The watermarks last seen by a thread. Watermarks only rise, so covered positions stay covered.
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

    /// Whether all required predecessors are resolved. A position beyond the end of a stream counts
    /// as reached at the end.
    fn is_ordered<T>(&mut self, watermarks: &Watermarks<T>, order: &[Lsn]) -> bool {
        let mut lanes = order.iter().enumerate();
        lanes.all(|(at, lsn)| {
            self.has(watermarks, at, *lsn) || self.resolved[at] == watermarks.end(at)
        })
    }

    fn is_covered<T>(&mut self, watermarks: &Watermarks<T>, validity: &[Lsn]) -> bool {
        // Refreshes components not yet known to be covered, then applies the general rule.
        for (at, lsn) in validity.iter().enumerate() {
            self.has(watermarks, at, *lsn);
        }
        admits(|lane| self.resolved[lane.index()], Lane::each(validity))
    }

    /// Whether a record may be run: the record is live, and all its required predecessors are
    /// resolved.
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
/// park blocked records; any thread may take a parked record once the record can run.
pub(super) struct Watermarks<T> {
    lanes: Box<[Padded<Watermark<T>>]>,
    /// Wakes the waiters when a watermark has reached a registered position.
    wake: Box<dyn Fn() + Send + Sync>,
}

impl<T> Watermarks<T> {
    /// The watermark: everything in the stream below is resolved.
    #[inline]
    pub fn resolved(&self, at: usize) -> Lsn {
        self.lanes[at].resolved.load(Ordering::Acquire)
    }

    /// The end of the stream; `u64::MAX` while unknown.
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

    /// Whether no record is parked, so everything below the runner's position is resolved.
    #[inline]
    pub fn has_none_parked(&self, at: usize) -> bool {
        self.lanes[at].parked.load(Ordering::SeqCst) == 0
    }

    /// Whether there is room in the stream's window. Called by the stream's runner, the only filler
    /// of the window.
    #[inline]
    pub fn has_room(&self, at: usize) -> bool {
        self.lanes[at].parked.load(Ordering::SeqCst) < WINDOW
    }

    /// Number of parked records of the stream not taken by a thread.
    #[inline]
    pub fn waiting(&self, at: usize) -> usize {
        self.lanes[at].waiting.load(Ordering::Relaxed)
    }

    /// A number that rises with every event that may let a record run.
    pub fn event_count(&self) -> u64 {
        let of_lane = |lane: &Padded<Watermark<T>>| {
            lane.resolved.load(Ordering::Acquire).wrapping_add(lane.events.load(Ordering::Acquire))
        };
        self.lanes.iter().map(of_lane).fold(0, u64::wrapping_add)
    }

    /// The stream's runner has left the stream, perhaps with more runnable records.
    pub fn runner_left(&self, at: usize) {
        self.lanes[at].events.fetch_add(1, Ordering::Release);
    }

    /// Whether the vector reaches beyond the end of a stream.
    pub fn is_dead(&self, validity: &[Lsn]) -> bool {
        validity.iter().enumerate().any(|(at, lsn)| *lsn > self.end(at))
    }

    /// Whether a position is still missing. If so, registers the position: the waiter is then
    /// notified at once.
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

    /// The first missing position of the record, or the default if no position is missing.
    fn first_missing(&self, seen: &mut Seen, order: &[Lsn], validity: &[Lsn]) -> MissingPosition {
        let needs = order.iter().zip(validity).map(|(order, validity)| *order.max(validity));
        let mut needs = needs
            .enumerate()
            .map(|(lane, lsn)| MissingPosition { lane, lsn: lsn.min(self.end(lane)) });
        needs.find(|position| self.is_missing(seen, *position)).unwrap_or_default()
    }

    /// The state of a parked record whose last missing position was `missing`.
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

    /// Publishes the position `to`, reached by the stream's runner.
    pub fn advance_to(&self, at: usize, to: Lsn) {
        let lane = &self.lanes[at];
        debug_assert!(lane.scanned.load(Ordering::Relaxed) <= to, "a runner never goes back");
        // SeqCst on both sides: either this thread sees that nothing is parked, or the thread
        // removing the last record sees the runner's position.
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
            // Threads that wait for a higher position register the position again.
            let none = u64::MAX;
            _ = lane.wanted.compare_exchange(wanted, none, Ordering::Relaxed, Ordering::Relaxed);
            (self.wake)();
        }
    }

    /// The stream was read to its end: records that need a later position are dead, and records
    /// only ordered after a later position follow the end.
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
    /// The watermarks of streams with these starts.
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
    /// stores the record's content in the slot. Returns false if there is no room. Called by the
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
        // The first thread to check the record determines its missing position.
        lane.first_missing[Window::<T>::slot(number)]
            .store(MissingPosition::default().pack(), Ordering::Relaxed);
        lane.parked.fetch_add(1, Ordering::SeqCst);
        lane.waiting.fetch_add(1, Ordering::Relaxed);
        lane.events.fetch_add(1, Ordering::Release);
        true
    }

    /// Whether there is a parked record that a thread can perhaps take.
    pub fn may_take(&self, at: usize, seen: &mut Seen) -> bool {
        let lane = &self.lanes[at];
        lane.waiting.load(Ordering::Relaxed) > 0
            && lane.first_missing.iter().any(|missing| {
                let missing = missing.load(Ordering::Relaxed);
                missing != MissingPosition::NONE
                    && !self.is_missing(seen, MissingPosition::unpack(missing))
            })
    }

    /// Takes the first parked record of a stream that lacks nothing any more, or is dead. Swaps the
    /// record's content into `what`, and reuses the previous content of `what`.
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
        // The next record may have waited for just the finished record.
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
