//! The frontier: the durable positions and marks of all streams, and the waiters for them.
//!
//! A frontier of N streams has 2N + 1 *lanes*, numbers that only grow, each named by a [`Lane`].
//! Lanes 0 to N - 1 are the streams' durable positions. Lanes N to 2N - 1 are *marks*: a stream's
//! mark m says that every frame of the stream with a number up to m is before a durable statement
//! of m. The engine chooses the numbers of frames, if any. Lane 2N is the *common mark*, the lowest
//! mark of all streams: all frames with numbers up to the common mark are durable.

mod answering;

use crate::Lsn;
use crate::error::{Error, Poisoned, StopKind};
use crate::lane::{Lane, LaneKind};
use crate::lease::AnswerLease;
use crate::lsn_vector;
use crate::poison::Poison;
use crate::remote::Remote;
use crate::wakers::Wakers;
use hyades_platform::callback::OnDatabaseThread;
use hyades_platform::event;
use hyades_platform::event::Event;
use hyades_platform::sync::{AtomicBool, AtomicU64, Mutex, Ordering, Padded, checker_fence};
use hyades_platform::watermark::Watermark;
use std::sync::Arc;
use std::task::Waker;

#[derive(Debug)]
struct FrontierSlot {
    /// Raised by the stream's flusher after a sync (the common mark by the flusher that raised a
    /// mark); read by all threads.
    durable: Watermark,
    /// The lowest position with a parked waker, `u64::MAX` if none. Written under the lock; read by
    /// the flusher without it.
    lowest: AtomicU64,
    parked: Mutex<Wakers>,
    /// The event on which the flusher naps while work collects; notified by waiters.
    wake_early: Event,
    /// Whether a waiter arrived since the flusher last checked. Set by waiters, cleared by the
    /// flusher; SeqCst against `wake_early`.
    wanted: AtomicBool,
}

impl FrontierSlot {
    /// Wakes all wakers parked for `number` or less. Returns how many have panicked.
    #[cold]
    fn wake_up_to(&self, number: u64) -> u64 {
        let woken = {
            let mut parked = self.parked.lock().unwrap_or_else(|e| e.into_inner());
            let woken = parked.take_up_to(number);
            let lowest = parked.lowest();
            debug_assert!(number < lowest || number == u64::MAX, "a waker for {lowest} is left");
            self.lowest.store(lowest, Ordering::SeqCst);
            woken
        };
        // Outside the lock: a waker may register again at once.
        woken.wake()
    }
}

/// The durable vector, against which the rule `admits` is evaluated while the log is written.
#[derive(Debug)]
pub struct Frontier {
    /// Positions, marks, the common mark; see the module comment.
    lanes: Box<[Padded<FrontierSlot>]>,
    streams: usize,
    poison: Poison,
    /// Ended when the log stops: flushers may be waiting for the remote.
    remote: Option<Arc<dyn Remote>>,
    /// The lease by which transactions that only read are acknowledged, if the remote has one.
    lease: Option<Arc<AnswerLease>>,
    /// The number of panicked wakers. Written by the waking threads, read for metrics: Relaxed.
    panicked: AtomicU64,
}

impl Frontier {
    pub(crate) fn new(starts: &[Lsn]) -> Self {
        let streams = starts.len();
        debug_assert!(
            (1..=lsn_vector::MAX_LANES).contains(&streams),
            "a frontier of {streams} streams"
        );
        let lane = |start: Lsn| {
            Padded(FrontierSlot {
                durable: Watermark::new(start),
                lowest: AtomicU64::new(u64::MAX),
                parked: Mutex::default(),
                wake_early: Event::new(),
                wanted: AtomicBool::new(false),
            })
        };
        // No number of the incarnation has been stated yet.
        let marks = std::iter::repeat_n(0, streams + 1);
        let lanes = starts.iter().copied().chain(marks).map(lane).collect();
        let (poison, panicked) = (Poison::default(), AtomicU64::new(0));
        Self { lanes, streams, poison, remote: None, lease: None, panicked }
    }

    /// Takes the lease of the remote, if any, and ends the remote when the log stops.
    pub(crate) fn with_remote(mut self, remote: Option<Arc<dyn Remote>>) -> Self {
        self.lease = remote.as_ref().and_then(|remote| remote.lease());
        self.remote = remote;
        self
    }

    /// The lane of a stream's mark.
    pub fn mark_lane(&self, stream: usize) -> Lane {
        Lane::mark(stream, self.streams)
    }

    /// The lane of the common mark.
    pub fn common_lane(&self) -> Lane {
        Lane::common(self.streams)
    }

    #[inline]
    fn slot(&self, lane: Lane) -> &FrontierSlot {
        &self.lanes[lane.index()]
    }

    /// The value of a lane.
    #[inline]
    pub fn at(&self, lane: Lane) -> u64 {
        self.slot(lane).durable.get()
    }

    /// The LSN up to which a stream is durable: always the end of a frame.
    #[inline]
    pub fn durable(&self, stream: usize) -> Lsn {
        self.lanes[stream].durable.get()
    }

    /// The mark of the stream's last durable heartbeat; 0 before the first.
    #[inline]
    pub fn mark(&self, stream: usize) -> u64 {
        self.at(self.mark_lane(stream))
    }

    /// Copies the lanes, one by one and not atomically: each lane only grows, and every rule over a
    /// frontier is monotone, so an older value can only give the answer "not yet".
    #[inline]
    pub fn load_into(&self, out: &mut [Lsn]) {
        debug_assert!(out.len() <= self.lanes.len(), "there is no lane {}", self.lanes.len());
        for (lane, out) in self.lanes.iter().zip(out) {
            *out = lane.durable.get();
        }
    }

    /// Whether every component of `lv` is durable.
    #[inline]
    pub(crate) fn covers(&self, lv: &[Lsn]) -> bool {
        debug_assert_eq!(lv.len(), self.streams, "a vector of another number of streams");
        self.lanes.iter().zip(lv).all(|(lane, &lsn)| lane.durable.get() >= lsn)
    }

    /// Whether the log has stopped. Durable records stay durable.
    pub(crate) fn poisoned(&self) -> Option<Poisoned> {
        self.poison.get()
    }

    /// Blocks until a lane has reached `number`. Lanes other than the streams' positions must have
    /// been requested: see [`Log::wait`](crate::Log::wait).
    ///
    /// # Errors
    /// The log stopped before.
    pub fn wait(&self, lane: Lane, number: u64) -> Result<(), Poisoned> {
        let durable = &self.slot(lane).durable;
        if durable.get() >= number {
            return Ok(());
        }
        self.hurry(lane);
        if durable.wait_at_least(number, || self.poison.is_set()) {
            return Ok(());
        }
        match self.poison.get() {
            // The sync may have returned between the two checks: then the number is durable anyway.
            Some(poisoned) if durable.get() < number => Err(poisoned),
            _ => Ok(()),
        }
    }

    /// Parks a waker until a lane has reached `number`, or the log stops. The waker may be woken
    /// early, and is woken at once if there is nothing to wait for: check again after waking. Lanes
    /// other than the streams' positions: see [`Log::register`](crate::Log::register). Returns the
    /// waker's key, for [withdrawing](Self::withdraw) the waker.
    pub(crate) fn register(&self, lane: Lane, number: u64, waker: Waker) -> u64 {
        self.hurry(lane);
        self.park(lane, number, waker)
    }

    /// As [`register`](Self::register), without hurrying the flusher.
    pub(crate) fn park(&self, lane: Lane, number: u64, waker: Waker) -> u64 {
        let slot = self.slot(lane);
        let key = {
            let mut parked = slot.parked.lock().unwrap_or_else(|e| e.into_inner());
            let key = parked.park(number, waker);
            // Announce, then check (Dekker with `raise` and `stop`, in the opposite order there).
            slot.lowest.fetch_min(number, Ordering::SeqCst);
            key
        };
        checker_fence();
        if slot.durable.get_ordered() >= number {
            self.wake_up_to(slot, slot.durable.get());
        } else if self.poison.is_set() {
            self.wake_up_to(slot, u64::MAX);
        }
        key
    }

    /// Wakes all wakers parked at a lane for `number` or less.
    #[cold]
    fn wake_up_to(&self, slot: &FrontierSlot, number: u64) {
        let panicked = slot.wake_up_to(number);
        if panicked > 0 {
            self.panicked.fetch_add(panicked, Ordering::Relaxed);
        }
    }

    /// How many wakers are parked now, and how many have panicked so far.
    pub fn wakers(&self) -> (usize, u64) {
        let parked = |slot: &Padded<FrontierSlot>| {
            slot.parked.lock().unwrap_or_else(|e| e.into_inner()).len()
        };
        let (leased, panicked) = self.lease.as_ref().map_or((0, 0), |lease| lease.wakers());
        let parked = self.lanes.iter().map(parked).sum::<usize>() + leased;
        (parked, self.panicked.load(Ordering::Relaxed) + panicked)
    }

    /// Withdraws a parked waker, if not woken yet.
    pub(crate) fn withdraw(&self, lane: Lane, number: u64, key: u64) {
        let slot = self.slot(lane);
        // Dropped after the lock is released.
        let withdrawn;
        let mut parked = slot.parked.lock().unwrap_or_else(|e| e.into_inner());
        withdrawn = parked.withdraw(number, key);
        if withdrawn.is_some() {
            debug_assert!(
                slot.lowest.load(Ordering::SeqCst) <= number,
                "a flusher would not have found the waker parked at {number}"
            );
            // Under the lock, like every change of `lowest`: no parked waker is below `lowest`.
            slot.lowest.store(parked.lowest(), Ordering::SeqCst);
        }
    }

    /// [Wakes](Self::wake_early) the flusher of a position. Lanes of marks have no separate
    /// flusher.
    fn hurry(&self, lane: Lane) {
        if let LaneKind::Position(stream) = lane.kind(self.streams) {
            self.wake_early(stream);
        }
    }

    /// Makes the stream's flusher stop collecting work, because a thread waits for the stream.
    pub(crate) fn wake_early(&self, stream: usize) {
        debug_assert!(stream < self.streams, "stream {stream} of {}", self.streams);
        self.lanes[stream].wanted.store(true, Ordering::SeqCst);
        self.lanes[stream].wake_early.notify();
    }

    /// Whether a waiter arrived since the last call. For the stream's flusher.
    pub(crate) fn take_wanted(&self, stream: usize) -> bool {
        debug_assert!(stream < self.streams, "stream {stream} of {}", self.streams);
        self.lanes[stream].wanted.swap(false, Ordering::SeqCst)
    }

    /// The event on which the flusher naps.
    pub(crate) fn nap_event(&self, stream: usize) -> &Event {
        &self.lanes[stream].wake_early
    }

    /// The number of wakers parked at a lane.
    #[cfg(test)]
    pub(crate) fn parked(&self, lane: Lane) -> usize {
        self.slot(lane).parked.lock().unwrap_or_else(|e| e.into_inner()).len()
    }

    /// Raises the stream's durable position and, after a durable statement of a mark, the stream's
    /// mark. Called only by the stream's flusher.
    pub(crate) fn raise(&self, stream: usize, lsn: Lsn, mark: Option<u64>) {
        debug_assert!(self.durable(stream) <= lsn, "what is durable above {lsn} would not be so");
        self.raise_lane(Lane::position(stream), lsn);
        if let Some(mark) = mark {
            // After the position: a thread that sees the mark sees the mark's frame as durable.
            self.raise_lane(self.mark_lane(stream), mark);
            // If two flushers raise marks concurrently, the later in the SeqCst order sees both.
            let marks = &self.lanes[self.streams..2 * self.streams];
            let common = marks.iter().map(|lane| lane.durable.get_ordered()).min().unwrap_or(0);
            if common > self.at(self.common_lane()) {
                self.raise_lane(self.common_lane(), common);
            }
            debug_assert!(
                self.at(self.common_lane()) <= self.mark(stream),
                "the common mark is above that of stream {stream}"
            );
        }
    }

    fn raise_lane(&self, lane: Lane, to: u64) {
        let slot = self.slot(lane);
        slot.durable.raise(to);
        debug_assert!(to <= slot.durable.get(), "{lane:?} was not raised to {to}, or has fallen");
        if slot.lowest.load(Ordering::SeqCst) <= to {
            // A waker waiting for the log would wait for the current thread.
            let _mark = OnDatabaseThread::begin();
            self.wake_up_to(slot, to);
        }
    }

    /// Sleeps until `durable` reaches `lsn` or the log stops; returns whether `lsn` was reached.
    pub(crate) fn reached(&self, stream: usize, lsn: Lsn) -> bool {
        self.lanes[stream].durable.wait_at_least(lsn, || self.poison.is_set())
    }

    /// Stops the log because of a failure.
    pub(crate) fn fail(&self, cause: &str) {
        self.stop_as(StopKind::Failed, cause);
    }

    /// Stops the log because of an error, which may say that another process is primary.
    pub(crate) fn fail_by(&self, error: &Error) {
        self.stop_as(error.stop_kind(), &error.to_string());
    }

    /// Stops the log because its owner ends it.
    pub(crate) fn stop(&self, cause: &str) {
        self.stop_as(StopKind::Closed, cause);
    }

    /// Stops the log for good and wakes all waiters; the first cause stays. Where another process
    /// is primary, no answer is given from now on, whatever the first cause was.
    pub(crate) fn stop_as(&self, kind: StopKind, cause: &str) {
        if let StopKind::Demoted { by } = kind {
            self.lease.iter().for_each(|lease| lease.end());
            if !self.poison.is_set() {
                event!(WARN, "the log was taken over", by = by);
            }
        } else if kind == StopKind::Failed && !self.poison.is_set() {
            event!(ERROR, "the log stopped", cause = cause);
        }
        self.poison.set(kind, cause);
        if let Some(remote) = &self.remote {
            remote.end();
        }
        for slot in &self.lanes {
            slot.durable.poke();
            self.wake_up_to(slot, u64::MAX);
        }
        self.lease.iter().for_each(|lease| lease.wake());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn wakers_wake_when_their_position_is_passed_and_not_before() {
        let frontier = Frontier::new(&[10, 20]);
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let woken = || count.0.load(Ordering::SeqCst);
        let waker = || Waker::from(Arc::clone(&count));
        let [first, second] = [0, 1].map(Lane::position);
        let marks = || [0, 1].map(|stream| frontier.at(frontier.mark_lane(stream)));
        frontier.register(first, 10, waker());
        assert_eq!(woken(), 1);
        for lsn in [15, 12, 12, 30] {
            frontier.register(first, lsn, waker());
        }
        frontier.raise(0, 11, None);
        assert_eq!((woken(), frontier.parked(first)), (1, 4));
        frontier.raise(0, 15, Some(9));
        assert_eq!((woken(), frontier.parked(first), frontier.mark(0)), (4, 1, 9));
        assert_eq!((marks(), frontier.at(frontier.common_lane())), ([9, 0], 0));
        frontier.raise(1, 20, Some(7));
        assert_eq!((frontier.at(second), marks()), (20, [9, 7]));
        assert_eq!(frontier.at(frontier.common_lane()), 7);
        frontier.stop("test");
        assert_eq!((woken(), frontier.parked(first)), (5, 0));
        frontier.register(second, 99, waker());
        assert_eq!(woken(), 6);
        assert!(frontier.wait(first, 15).is_ok());
        assert_eq!(&*frontier.wait(first, 16).unwrap_err().cause, "test");
        assert!(frontier.covers(&[15, 20]) && !frontier.covers(&[15, 21]));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::order::Order;
    use hyades_platform::sync;
    use std::sync::Arc;
    use std::task::Wake;

    struct Flag(AtomicBool);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    fn bounded() -> loom::model::Builder {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model
    }

    /// A parked waker is woken by the raising thread, whichever is first, and when the log stops.
    #[test]
    fn a_parked_waker_is_never_forgotten() {
        for stops in [false, true] {
            bounded().check(move || {
                let frontier = sync::Arc::new(Frontier::new(&[0]));
                let flag = Arc::new(Flag(AtomicBool::new(false)));
                let other = sync::Arc::clone(&frontier);
                let thread = loom::thread::spawn(move || {
                    if stops { other.stop("a test") } else { other.raise(0, 5, None) }
                });
                frontier.register(Lane::position(0), 5, Waker::from(Arc::clone(&flag)));
                thread.join().unwrap();
                assert!(flag.0.load(Ordering::SeqCst), "it sleeps for ever");
                assert_eq!(frontier.parked(Lane::position(0)), 0);
            });
        }
    }

    /// A transaction with a need of two streams parks at each in turn, like a ticket and a commit
    /// queue. The transaction is woken each time, and is admitted once both are durable and not
    /// before.
    #[test]
    fn a_transaction_moves_from_stream_to_stream() {
        bounded().check(|| {
            let shared =
                sync::Arc::new((Frontier::new(&[0, 0]), [0, 1].map(|_| AtomicU64::new(0))));
            let flusher = |stream: usize| {
                let shared = sync::Arc::clone(&shared);
                loom::thread::spawn(move || {
                    // Relaxed: the frontier has to make the store visible.
                    shared.1[stream].store(1, Ordering::Relaxed);
                    shared.0.raise(stream, 1, None);
                })
            };
            let flushers = [flusher(0), flusher(1)];
            let frontier = &shared.0;
            while let Some(stream) = [0, 1].into_iter().find(|&s| frontier.durable(s) < 1) {
                let flag = Arc::new(Flag(AtomicBool::new(false)));
                let waker = Waker::from(Arc::clone(&flag));
                frontier.register(Lane::position(stream), 1, waker);
                while !flag.0.load(Ordering::SeqCst) {
                    sync::yield_now();
                }
            }
            for written in &shared.1 {
                assert_eq!(written.load(Ordering::Relaxed), 1);
            }
            flushers.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    /// The path of a record: reserved, filled, announced to a possibly sleeping flusher, flushed,
    /// acknowledged. Neither thread misses a wake-up, and the bytes are visible.
    #[test]
    fn a_writer_and_a_sleeping_flusher_never_miss_each_other() {
        bounded().check(|| {
            struct Shared {
                order: Order,
                byte: AtomicU64,
                wake: Event,
                frontier: Frontier,
            }
            let shared = sync::Arc::new(Shared {
                order: Order::new(0, 1),
                byte: AtomicU64::new(0),
                wake: Event::new(),
                frontier: Frontier::new(&[0]),
            });
            let writer = {
                let shared = sync::Arc::clone(&shared);
                loom::thread::spawn(move || {
                    shared.order.register(0);
                    let at = shared.order.reserve(0, 1);
                    shared.byte.store(1, Ordering::Relaxed);
                    shared.order.publish(0, at + 1);
                    shared.wake.notify_ordered();
                    assert!(shared.frontier.wait(Lane::position(0), at + 1).is_ok());
                })
            };
            loop {
                let cut = shared.order.cut(0);
                if cut == 1 {
                    assert_eq!(shared.byte.load(Ordering::Relaxed), 1);
                    shared.frontier.raise(0, cut, None);
                    break;
                }
                if shared.order.log_lsn() != 0 {
                    sync::yield_now();
                    continue;
                }
                let listener = shared.wake.listen();
                if shared.order.log_lsn() == 0 {
                    listener.wait(None);
                }
            }
            writer.join().unwrap();
        });
    }
}
