//! The order point of a stream: assigns byte ranges to writers, and finds up to where all are
//! filled.
//!
//! Taurus (VLDB 2020, section 4.1), with the order of the loads, left open by the paper.
//!
//! A writer owns a slot. It stores `allocated` = an earlier value of `log_lsn`, adds the length of
//! its frame to `log_lsn` (the old value is the frame's position), copies the frame, and stores
//! `filled` = the frame's end. The flusher loads `log_lsn` *first*, then the slots, each
//! `allocated` before `filled`. A slot with `filled <= allocated` has an unfilled reservation:
//! nothing at or above its `allocated` may be flushed.
//!
//! Why the cut is right. Let a writer hold [s, e) with s below the `log_lsn` loaded by the flusher.
//! The load read the writer's addition, or a later addition of the same release sequence, so the
//! store of `allocated` = a before it (a <= s) happened before the flusher's loads of the slot.
//! - The flusher reads a. If the flusher then reads `filled` > a, the frame is filled (`filled`
//!   exceeds a only by e or by later ends), and the Acquire load makes the frame's bytes visible.
//!   Otherwise the cut is at most a <= s.
//! - The flusher reads a later `allocated`. The store (Release) follows the filling of [s, e), so
//!   the bytes are visible. The later reservation is judged in the same way.
//!
//! Loading `log_lsn` last would be wrong: a reservation made in between would be below the cut, but
//! its slot was loaded too early.
//!
//! Why a writer waiting for room gets room. `allocated` may be far below the reservation: further
//! writers may reserve the whole buffer between the load and the addition. The writer's frame would
//! then hold back the flushes needed for its own room, for ever. (The paper's algorithm 1 does not
//! cover a full buffer.) So a waiting writer first [raises `allocated`](Order::raise_allocated) to
//! its place. Of all unfilled reservations take the lowest, [s, e): `allocated` of waiting
//! reservations is at or above s, the rest are filled soon, so the cut reaches s, and e - s is no
//! more than the buffer.

use hyades_platform::sync::{AtomicU64, AtomicUsize, Ordering, Padded};

/// The `allocated` of a slot without effect on the cut: never used, or its reservation failed.
const NEVER: u64 = u64::MAX;

#[derive(Debug)]
struct Slot {
    /// Written by the slot's owner before a reservation, read by the flusher.
    allocated: AtomicU64,
    /// Written by the slot's owner after copying a frame, read by the flusher.
    filled: AtomicU64,
}

/// The order point of a stream.
#[derive(Debug)]
pub(crate) struct Order {
    /// The end of the last reservation. Increased by writers and the flusher, read by all threads.
    log_lsn: Padded<AtomicU64>,
    slots: Box<[Padded<Slot>]>,
    /// One above the highest used slot; slots from here on were never used. Raised before a slot's
    /// first reservation; the reservation's addition to `log_lsn` releases the new value.
    used: AtomicUsize,
    /// Places are reserved by compare-and-swap.
    by_exchange: bool,
}

impl Order {
    /// The order point of an empty stream continued at `start`, with `slots` slots.
    pub(crate) fn new(start: u64, slots: usize) -> Self {
        let slot = |_| Padded(Slot { allocated: AtomicU64::new(NEVER), filled: AtomicU64::new(0) });
        Self {
            log_lsn: Padded(AtomicU64::new(start)),
            slots: (0..slots).map(slot).collect(),
            used: AtomicUsize::new(0),
            by_exchange: false,
        }
    }

    /// The same, where places are reserved by compare-and-swap if so chosen.
    pub(crate) fn reserving_by_exchange(self, by_exchange: bool) -> Self {
        Self { by_exchange, ..self }
    }

    /// Makes a slot visible to the flusher. Call this once per owner, before the first reservation.
    pub(crate) fn register(&self, slot: usize) {
        debug_assert!(slot < self.slots.len(), "slot {slot} of {}", self.slots.len());
        self.used.fetch_max(slot + 1, Ordering::AcqRel);
    }

    /// The end of the last reservation. SeqCst because of a flusher about to sleep: see `wake` in
    /// `stream.rs`.
    #[inline]
    pub(crate) fn log_lsn(&self) -> u64 {
        self.log_lsn.load(Ordering::SeqCst)
    }

    /// Reserves the next `length` bytes; returns the start. The caller owns the slot.
    #[inline]
    pub(crate) fn reserve(&self, slot: usize, length: u64) -> u64 {
        debug_assert!(length > 0, "a frame has no length");
        debug_assert!(
            slot < self.used.load(Ordering::Relaxed),
            "the flusher does not read slot {slot}"
        );
        let slot = &self.slots[slot];
        // Relaxed: every earlier value is a lower bound on the position reserved below.
        let seen = self.log_lsn.load(Ordering::Relaxed);
        slot.allocated.store(seen, Ordering::Release);
        #[cfg(all(test, not(loom)))]
        tests::interrupt();
        // AcqRel for the argument in the module comment; SeqCst for the sleeping flusher.
        let start = match self.by_exchange {
            false => self.log_lsn.fetch_add(length, Ordering::SeqCst),
            true => self.exchange(seen, length),
        };
        debug_assert!(seen <= start, "`allocated` is {seen}, above the reservation at {start}");
        start
    }

    /// Raises `allocated` to the start of the slot's unfilled reservation: before waiting for room.
    /// Release, like the replaced store: both follow the same fillings.
    #[cold]
    pub(crate) fn raise_allocated(&self, slot: usize, start: u64) {
        let slot = &self.slots[slot];
        debug_assert!(
            slot.allocated.load(Ordering::Relaxed) <= start
                && slot.filled.load(Ordering::Relaxed) <= start,
            "the slot has no unfilled reservation at {start}"
        );
        slot.allocated.store(start, Ordering::Release);
    }

    /// Adds a length to `log_lsn` by compare-and-swap; returns the old value. SeqCst, as for the
    /// replaced addition.
    fn exchange(&self, seen: u64, length: u64) -> u64 {
        let mut expected = seen;
        loop {
            let end = expected + length;
            match self.log_lsn.compare_exchange_weak(
                expected,
                end,
                Ordering::SeqCst,
                Ordering::Relaxed,
            ) {
                Ok(start) => return start,
                Err(now) => expected = now,
            }
        }
    }

    /// Reserves the next `length` bytes if the end is at or below `limit`. For the flusher: the
    /// flusher must never wait for room freed only by itself.
    pub(crate) fn try_reserve(&self, slot: usize, length: u64, limit: u64) -> Option<u64> {
        let slot = &self.slots[slot];
        let mut seen = self.log_lsn.load(Ordering::Relaxed);
        slot.allocated.store(seen, Ordering::Release);
        let place = loop {
            if seen + length > limit {
                break None;
            }
            match self.log_lsn.compare_exchange_weak(
                seen,
                seen + length,
                Ordering::SeqCst,
                Ordering::Relaxed,
            ) {
                Ok(start) => break Some(start),
                Err(now) => seen = now,
            }
        };
        if place.is_none() {
            slot.allocated.store(NEVER, Ordering::Release);
        }
        place
    }

    /// States that the slot's reservation is filled up to its `end`. Release: publishes the bytes.
    #[inline]
    pub(crate) fn publish(&self, slot: usize, end: u64) {
        let slot = &self.slots[slot];
        debug_assert!(
            slot.allocated.load(Ordering::Relaxed) < end,
            "the flusher would take the frame that ends at {end} for unfilled"
        );
        debug_assert!(
            slot.filled.load(Ordering::Relaxed) < end,
            "the frame that ends at {end} is published twice, or after a later one of its slot"
        );
        debug_assert!(end <= self.log_lsn.load(Ordering::Relaxed), "{end} was never reserved");
        slot.filled.store(end, Ordering::Release);
    }

    /// The position up to which every byte is filled and visible; always the end of a frame. At
    /// least `flushed`; the caller knows `flushed` to be such a position.
    pub(crate) fn cut(&self, flushed: u64) -> u64 {
        let log_lsn = self.log_lsn.load(Ordering::SeqCst);
        debug_assert!(flushed <= log_lsn, "flushed up to {flushed}, reserved up to {log_lsn} only");
        let mut cut = log_lsn;
        let used = self.used.load(Ordering::Acquire);
        for slot in &self.slots[..used] {
            let allocated = slot.allocated.load(Ordering::Acquire);
            let filled = slot.filled.load(Ordering::Acquire);
            if filled <= allocated {
                cut = cut.min(allocated);
            }
        }
        let cut = cut.max(flushed);
        debug_assert!((flushed..=log_lsn).contains(&cut), "{flushed} <= {cut} <= {log_lsn}");
        cut
    }
}

#[cfg(all(test, not(loom)))]
pub(crate) mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::sync::Arc;

    thread_local! {
        static INTERRUPTION: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    }

    /// Runs the [interruption](interrupt_by) of the thread's next reservation, if any.
    pub(super) fn interrupt() {
        let interruption = INTERRUPTION.take();
        interruption.into_iter().for_each(|run| run());
    }

    /// Has `run` happen between the load and the addition of the thread's next reservation.
    pub(crate) fn interrupt_by(run: impl FnOnce() + 'static) {
        INTERRUPTION.set(Some(Box::new(run)));
    }

    #[test]
    fn a_reservation_that_waits_for_room_holds_back_nothing_before_it() {
        let order = Arc::new(Order::new(0, 2));
        order.register(0);
        order.register(1);
        let others = Arc::clone(&order);
        interrupt_by(move || {
            assert_eq!(others.reserve(1, 60), 0);
            others.publish(1, 60);
            assert_eq!(others.reserve(1, 60), 60);
        });
        assert_eq!(order.reserve(0, 10), 120);
        assert_eq!(order.cut(0), 0);
        order.raise_allocated(0, 120);
        assert_eq!(order.cut(0), 60);
        order.publish(1, 120);
        assert_eq!(order.cut(60), 120);
        order.publish(0, 130);
        assert_eq!(order.cut(120), 130);
    }

    #[test]
    fn nothing_unfilled_is_below_the_cut() {
        for by_exchange in [false, true] {
            let order = Order::new(0, 3).reserving_by_exchange(by_exchange);
            order.register(0);
            order.register(1);
            assert_eq!(order.cut(0), 0);
            let a = order.reserve(0, 10);
            let b = order.reserve(1, 20);
            assert_eq!((a, b, order.cut(0)), (0, 10, 0));
            order.publish(1, 30);
            assert_eq!(order.cut(0), 0);
            order.publish(0, 10);
            assert_eq!(order.cut(0), 30);
            let c = order.reserve(0, 5);
            assert_eq!((c, order.cut(30)), (30, 30));
            assert_eq!(order.try_reserve(1, 5, 39), None);
            order.publish(0, 35);
            assert_eq!(order.cut(30), 35);
            assert_eq!(order.try_reserve(1, 5, 40), Some(35));
            assert_eq!(order.cut(30), 35);
        }
    }

    #[test]
    fn threads_never_reserve_the_same_place() {
        for by_exchange in [false, true] {
            let order = Order::new(7, 4).reserving_by_exchange(by_exchange);
            let reserve = |slot: usize| {
                order.register(slot);
                let mut places = Vec::new();
                for length in 1..2000 {
                    let at = order.reserve(slot, length);
                    order.publish(slot, at + length);
                    places.push((at, at + length));
                }
                places
            };
            let mut places: Vec<_> = std::thread::scope(|scope| {
                let reserve = &reserve;
                let threads = [0, 1, 2, 3].map(|slot| scope.spawn(move || reserve(slot)));
                threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
            });
            places.sort_unstable();
            assert_eq!(places[0].0, 7);
            assert!(places.windows(2).all(|two| two[0].1 == two[1].0), "{by_exchange}");
            assert_eq!(order.cut(7), places.last().unwrap().1);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    /// Two writers and a flusher: in every schedule each byte below a cut is filled, and loom finds
    /// no race between its writer and the flusher.
    #[test]
    fn everything_below_the_cut_is_visible() {
        let mut model = loom::model::Builder::new();
        // Three preemptions find the mistake of loading `log_lsn` last, and take seconds.
        model.preemption_bound = Some(3);
        model.check(|| {
            let shared = Arc::new((Order::new(0, 2), [0, 0, 0].map(|n: u8| UnsafeCell::new(n))));
            let writer = |slot: usize, frames: usize| {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || {
                    let (order, bytes) = &*shared;
                    order.register(slot);
                    for _ in 0..frames {
                        let at = order.reserve(slot, 1);
                        // SAFETY: no other thread accesses the byte: each position is reserved
                        // once, and the flusher reads only below a cut, which stays at or below
                        // an unpublished reservation.
                        bytes[at as usize].with_mut(|b| unsafe { *b = 1 });
                        order.publish(slot, at + 1);
                    }
                })
            };
            let threads = [writer(0, 2), writer(1, 1)];
            let (order, bytes) = &*shared;
            let mut flushed = 0;
            for _ in 0..2 {
                let cut = order.cut(flushed);
                for byte in &bytes[flushed as usize..cut as usize] {
                    // SAFETY: no thread writes the byte: every byte below a cut is published, and
                    // written before the publication. Loom checks this.
                    assert_eq!(byte.with(|b| unsafe { *b }), 1);
                }
                flushed = cut;
            }
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(order.cut(flushed), 3);
        });
    }

    /// Two self-flushing writers, with a buffer of two bytes: in every schedule each writer gets
    /// room. (A schedule without an end has too many steps for loom.)
    #[test]
    fn a_writer_that_waits_gets_room() {
        const BUFFER: u64 = 2;
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let shared = Arc::new((Order::new(0, 2), AtomicU64::new(0)));
            let write = |(order, flushed): &(Order, AtomicU64), slot: usize, frames: usize| {
                order.register(slot);
                for _ in 0..frames {
                    let at = order.reserve(slot, 1);
                    let has_room = || at + 1 <= flushed.load(Ordering::Acquire) + BUFFER;
                    if !has_room() {
                        order.raise_allocated(slot, at);
                    }
                    while !has_room() {
                        let cut = order.cut(flushed.load(Ordering::Acquire));
                        flushed.fetch_max(cut, Ordering::AcqRel);
                        loom::thread::yield_now();
                    }
                    order.publish(slot, at + 1);
                }
            };
            let other = Arc::clone(&shared);
            let thread = loom::thread::spawn(move || write(&other, 1, 2));
            write(&shared, 0, 1);
            thread.join().unwrap();
            let (order, flushed) = &*shared;
            assert_eq!(order.cut(flushed.load(Ordering::Acquire)), 3);
        });
    }
}
