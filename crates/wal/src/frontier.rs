//! The frontier: the durable positions and watermarks of all streams, and the waiters for them.
//!
//! A frontier of N streams has 2N + 1 *slots* (`lane` in the code), numbers that only grow. Slots 0
//! to N - 1 are the streams' durable positions. Slots N to 2N - 1 are *watermarks* (`mark` in the
//! code): a stream's watermark m says that every frame of it with a number up to m is before a
//! durable statement of m. Which numbers frames have, if any, is up to the engine. Slot 2N is the
//! *common watermark*, the lowest watermark of all streams: all frames with numbers up to it are
//! durable.

use crate::Lsn;
use crate::error::Poisoned;
use crate::lsn_vector;
use hyades_platform::event::Event;
use hyades_platform::sync::{AtomicBool, AtomicU64, Mutex, Ordering, Padded, checker_fence};
use hyades_platform::watermark::Watermark;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::task::Waker;

/// Whether the log has stopped, and why. Set once.
#[derive(Debug, Default)]
pub(crate) struct Poison {
    /// Written once, by the thread that poisons the log, after `cause`. SeqCst: waiters read it
    /// after they announced themselves.
    set: AtomicBool,
    cause: OnceLock<Arc<str>>,
}

impl Poison {
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::SeqCst)
    }

    pub(crate) fn get(&self) -> Option<Poisoned> {
        if !self.is_set() {
            return None;
        }
        let cause = self.cause.get();
        debug_assert!(cause.is_some(), "the log has stopped without a cause");
        cause.map(|cause| Poisoned { cause: Arc::clone(cause) })
    }

    /// Poisons the log; the first cause stays.
    fn set(&self, cause: &str) {
        let _ = self.cause.set(cause.into());
        self.set.store(true, Ordering::SeqCst);
    }
}

#[derive(Debug)]
struct FrontierSlot {
    /// Raised by the stream's flusher after a sync (the common watermark by the flusher that raised
    /// a watermark); read by all threads.
    durable: Watermark,
    /// The lowest position for which a waker is parked, `u64::MAX` if none. Written under the lock;
    /// read by the flusher without it.
    lowest: AtomicU64,
    parked: Mutex<Parked>,
    /// The event on which the flusher naps while work collects; notified by waiters.
    wake_early: Event,
    /// Whether a waiter arrived since the flusher last checked. Set by waiters, cleared by the
    /// flusher; SeqCst against `wake_early`.
    wanted: AtomicBool,
}

#[derive(Debug, Default)]
struct Parked {
    by_lsn: BTreeMap<(Lsn, u64), Waker>,
    next: u64,
}

/// The durable vector, against which the rule `admits` is evaluated while the log is written.
#[derive(Debug)]
pub struct Frontier {
    /// Positions, watermarks, the common watermark; see the module comment.
    lanes: Box<[Padded<FrontierSlot>]>,
    streams: usize,
    poison: Poison,
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
        // No number of this incarnation has been stated yet.
        let marks = std::iter::repeat_n(0, streams + 1);
        let lanes = starts.iter().copied().chain(marks).map(lane).collect();
        Self { lanes, streams, poison: Poison::default() }
    }

    /// The slot of a stream's watermark.
    pub fn mark_lane(&self, stream: usize) -> usize {
        debug_assert!(stream < self.streams, "stream {stream} of {}", self.streams);
        self.streams + stream
    }

    /// The slot of the common watermark.
    pub fn common_lane(&self) -> usize {
        2 * self.streams
    }

    /// The value of a slot.
    #[inline]
    pub fn at(&self, lane: usize) -> u64 {
        self.lanes[lane].durable.get()
    }

    /// The LSN up to which a stream is durable: always the end of a frame.
    #[inline]
    pub fn durable(&self, stream: usize) -> Lsn {
        self.lanes[stream].durable.get()
    }

    /// The watermark of the stream's last durable heartbeat; 0 before the first.
    #[inline]
    pub fn mark(&self, stream: usize) -> u64 {
        self.at(self.mark_lane(stream))
    }

    /// Copies the slots, one by one and not atomically: each slot only grows, and every rule over a
    /// frontier is monotone, so an older value can only make it answer "not yet".
    #[inline]
    pub fn load_into(&self, out: &mut [Lsn]) {
        debug_assert!(out.len() <= self.lanes.len(), "there is no slot {}", self.lanes.len());
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

    /// Whether the log has stopped. What is durable stays durable.
    pub(crate) fn poisoned(&self) -> Option<Poisoned> {
        self.poison.get()
    }

    /// Blocks until a slot has reached `lsn`. Slots other than the streams' positions must have
    /// been requested: see [`Log::wait`](crate::Log::wait).
    ///
    /// # Errors
    /// The log stopped before.
    pub fn wait(&self, lane: usize, lsn: Lsn) -> Result<(), Poisoned> {
        let durable = &self.lanes[lane].durable;
        if durable.get() >= lsn {
            return Ok(());
        }
        self.wake_early(lane);
        if durable.wait_at_least(lsn, || self.poison.is_set()) {
            return Ok(());
        }
        match self.poison.get() {
            // The sync may have returned between the two checks: then it is durable anyway.
            Some(poisoned) if durable.get() < lsn => Err(poisoned),
            _ => Ok(()),
        }
    }

    /// Parks a waker until the stream is durable up to `lsn`, or the log stops. The waker may be
    /// woken early, and is woken at once if there is nothing to wait for: check again when it is.
    /// For other slots see [`Log::register`](crate::Log::register).
    pub(crate) fn register(&self, at: usize, lsn: Lsn, waker: Waker) {
        self.wake_early(at);
        self.park(at, lsn, waker);
    }

    /// As [`register`](Self::register), without hurrying the flusher. Returns the waker's number,
    /// by which it can be [withdrawn](Self::withdraw).
    pub(crate) fn park(&self, at: usize, lsn: Lsn, waker: Waker) -> u64 {
        let lane = &self.lanes[at];
        let number = {
            let mut parked = lane.parked.lock().unwrap_or_else(|e| e.into_inner());
            let number = parked.next;
            parked.next += 1;
            parked.by_lsn.insert((lsn, number), waker);
            // Announce, then check (Dekker with `raise` and `stop`, which use the opposite order).
            lane.lowest.fetch_min(lsn, Ordering::SeqCst);
            number
        };
        checker_fence();
        if lane.durable.get_ordered() >= lsn {
            self.wake_up_to(at, lane.durable.get());
        } else if self.poison.is_set() {
            self.wake_up_to(at, u64::MAX);
        }
        number
    }

    /// Withdraws a parked waker, if it has not been woken.
    pub(crate) fn withdraw(&self, at: usize, lsn: Lsn, number: u64) {
        let lane = &self.lanes[at];
        let mut parked = lane.parked.lock().unwrap_or_else(|e| e.into_inner());
        debug_assert!(number < parked.next, "waker {number} was never parked");
        if parked.by_lsn.remove(&(lsn, number)).is_some() {
            debug_assert!(
                lane.lowest.load(Ordering::SeqCst) <= lsn,
                "a flusher would not have found the waker parked at {lsn}"
            );
            // Under the lock, like every change of `lowest`: no parked waker is below it.
            let lowest = parked.by_lsn.first_key_value().map_or(u64::MAX, |((lsn, _), _)| *lsn);
            lane.lowest.store(lowest, Ordering::SeqCst);
        }
    }

    /// Makes the stream's flusher stop collecting work, because a thread waits for the stream.
    /// Watermark slots have no flusher of their own.
    pub(crate) fn wake_early(&self, stream: usize) {
        if stream < self.streams {
            self.lanes[stream].wanted.store(true, Ordering::SeqCst);
            self.lanes[stream].wake_early.notify();
        }
    }

    /// Whether a waiter arrived since the last call. For the stream's flusher.
    pub(crate) fn take_wanted(&self, stream: usize) -> bool {
        debug_assert!(stream < self.streams, "slot {stream} has no flusher");
        self.lanes[stream].wanted.swap(false, Ordering::SeqCst)
    }

    /// The event on which the flusher naps.
    pub(crate) fn nap_event(&self, stream: usize) -> &Event {
        &self.lanes[stream].wake_early
    }

    /// The number of wakers parked at a slot.
    #[cfg(test)]
    pub(crate) fn parked(&self, stream: usize) -> usize {
        self.lanes[stream].parked.lock().unwrap_or_else(|e| e.into_inner()).by_lsn.len()
    }

    /// Raises the stream's durable position and, if its flusher has stated one durably, its
    /// watermark. Only the stream's flusher calls this.
    pub(crate) fn raise(&self, stream: usize, lsn: Lsn, mark: Option<u64>) {
        debug_assert!(self.durable(stream) <= lsn, "what is durable above {lsn} would not be so");
        self.raise_lane(stream, lsn);
        if let Some(mark) = mark {
            // After the position: a thread that sees the watermark sees that its frame is durable.
            self.raise_lane(self.mark_lane(stream), mark);
            // If two flushers raise their watermarks concurrently, the later one in the SeqCst
            // order sees both.
            let marks = &self.lanes[self.streams..2 * self.streams];
            let common = marks.iter().map(|lane| lane.durable.get_ordered()).min().unwrap_or(0);
            if common > self.at(self.common_lane()) {
                self.raise_lane(self.common_lane(), common);
            }
            debug_assert!(
                self.at(self.common_lane()) <= self.mark(stream),
                "the common watermark is above that of stream {stream}"
            );
        }
    }

    fn raise_lane(&self, at: usize, to: u64) {
        let lane = &self.lanes[at];
        lane.durable.raise(to);
        debug_assert!(to <= lane.durable.get(), "slot {at} was not raised to {to}, or has fallen");
        if lane.lowest.load(Ordering::SeqCst) <= to {
            self.wake_up_to(at, to);
        }
    }

    /// Sleeps until `durable` reaches `lsn` or the log stops; whether it was reached.
    pub(crate) fn reached(&self, stream: usize, lsn: Lsn) -> bool {
        self.lanes[stream].durable.wait_at_least(lsn, || self.poison.is_set())
    }

    /// Stops the log for good and wakes all waiters.
    pub(crate) fn stop(&self, cause: &str) {
        self.poison.set(cause);
        for (stream, lane) in self.lanes.iter().enumerate() {
            lane.durable.poke();
            self.wake_up_to(stream, u64::MAX);
        }
    }

    #[cold]
    fn wake_up_to(&self, stream: usize, lsn: Lsn) {
        let lane = &self.lanes[stream];
        let woken = {
            let mut parked = lane.parked.lock().unwrap_or_else(|e| e.into_inner());
            let rest = match lsn.checked_add(1) {
                Some(next) => parked.by_lsn.split_off(&(next, 0)),
                None => BTreeMap::new(),
            };
            let lowest = rest.first_key_value().map_or(u64::MAX, |((lsn, _), _)| *lsn);
            debug_assert!(lsn < lowest || lsn == u64::MAX, "a waker for {lowest} stays parked");
            lane.lowest.store(lowest, Ordering::SeqCst);
            std::mem::replace(&mut parked.by_lsn, rest)
        };
        // Outside the lock: a waker may register again at once.
        for waker in woken.into_values() {
            waker.wake();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
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
        frontier.register(0, 10, waker());
        assert_eq!(woken(), 1);
        for lsn in [15, 12, 12, 30] {
            frontier.register(0, lsn, waker());
        }
        frontier.raise(0, 11, None);
        assert_eq!((woken(), frontier.parked(0)), (1, 4));
        frontier.raise(0, 15, Some(9));
        assert_eq!((woken(), frontier.parked(0), frontier.mark(0)), (4, 1, 9));
        assert_eq!((frontier.at(2), frontier.at(3), frontier.at(4)), (9, 0, 0));
        frontier.raise(1, 20, Some(7));
        assert_eq!((frontier.at(1), frontier.at(3), frontier.at(4)), (20, 7, 7));
        frontier.stop("test");
        assert_eq!((woken(), frontier.parked(0)), (5, 0));
        frontier.register(1, 99, waker());
        assert_eq!(woken(), 6);
        assert!(frontier.wait(0, 15).is_ok());
        assert_eq!(&*frontier.wait(0, 16).unwrap_err().cause, "test");
        assert!(frontier.covers(&[15, 20]) && !frontier.covers(&[15, 21]));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::order::Order;
    use hyades_platform::sync;
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
                frontier.register(0, 5, Waker::from(Arc::clone(&flag)));
                thread.join().unwrap();
                assert!(flag.0.load(Ordering::SeqCst), "it sleeps for ever");
                assert_eq!(frontier.parked(0), 0);
            });
        }
    }

    /// A transaction that needs two streams parks at one after the other, as a ticket and a commit
    /// queue do. It is woken each time, and is admitted once both are durable and not before.
    #[test]
    fn a_transaction_moves_from_stream_to_stream() {
        bounded().check(|| {
            let shared =
                sync::Arc::new((Frontier::new(&[0, 0]), [0, 1].map(|_| AtomicU64::new(0))));
            let flusher = |stream: usize| {
                let shared = sync::Arc::clone(&shared);
                loom::thread::spawn(move || {
                    // Relaxed: the frontier has to make it visible.
                    shared.1[stream].store(1, Ordering::Relaxed);
                    shared.0.raise(stream, 1, None);
                })
            };
            let flushers = [flusher(0), flusher(1)];
            let frontier = &shared.0;
            while let Some(stream) = [0, 1].into_iter().find(|&s| frontier.durable(s) < 1) {
                let flag = Arc::new(Flag(AtomicBool::new(false)));
                frontier.register(stream, 1, Waker::from(Arc::clone(&flag)));
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

    /// The path of a record: reserved, filled, announced to a flusher that may sleep, flushed,
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
                    assert!(shared.frontier.wait(0, at + 1).is_ok());
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
