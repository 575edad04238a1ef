//! Admission to the queues of partitions, where there are more sessions than processors.
//!
//! A turn handed to a sleeping thread waits until the thread runs, and so do all transactions
//! behind in the queue. So while there are more sessions than processors, no more transactions
//! stand in queues than there are processors (at least two); further transactions wait outside. A
//! thread whose transaction has left is admitted again at once, because the thread is already
//! running. (As in Dice and Kogan, "Avoiding Scalability Collapse by Restricting Concurrency",
//! Euro-Par 2019.) A transaction that has slept for a while behind a long transaction leaves its
//! place.
//!
//! No session waits outside for long: one place in [`PASSES`] goes to the session with the longest
//! wait, and a session is admitted in any case after [`LONGEST_WAIT`]. The latter also ends the
//! wait of a transaction within the body of another transaction, which keeps its place meanwhile.
//!
//! Invariant: `inside` is the number of admitted seats that have not left. If `inside` is 0, no
//! session waits outside, except sessions about to be admitted or to look again.

use hyades_platform::clock;
use hyades_platform::event::Event;
use hyades_platform::sync::{AtomicU32, AtomicU64, Ordering, Padded, Unpoisoned, yield_now};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

/// One of this number of places goes to the session with the longest wait.
const PASSES: u64 = 64;

/// The wait after which a session is admitted in any case.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// The wait of a session outside: whether the session was admitted, and the event of the admission.
pub(super) struct OutsidePlace {
    /// 1 once another session has handed its place on. SeqCst, because of the sleeper.
    is_admitted: AtomicU32,
    moved: Event,
}

impl OutsidePlace {
    pub fn new() -> Self {
        OutsidePlace { is_admitted: AtomicU32::new(0), moved: Event::new() }
    }

    pub fn admit(&self) {
        self.is_admitted.store(1, Ordering::SeqCst);
        self.moved.notify_ordered();
    }
}

/// See the module.
pub(super) struct TurnAdmission {
    /// The most transactions that stand in queues at a time.
    most: u64,
    inside: Padded<AtomicU64>,
    /// Places that were left so far. Relaxed: a counter.
    left: AtomicU64,
    /// The number of sessions outside. Written under the lock (SeqCst), read by leaving sessions:
    /// of a session leaving the last place and a session beginning to wait, one sees the other.
    waiting: AtomicU64,
    outside: Mutex<VecDeque<u32>>,
}

impl TurnAdmission {
    /// With as many places as there are processors, at least 2. Under loom no place is missing.
    pub fn by_processors() -> Self {
        let processors = std::thread::available_parallelism().map_or(2, |n| n.get() as u64);
        TurnAdmission::new(if cfg!(loom) { u64::MAX } else { processors.max(2) })
    }

    fn new(most: u64) -> Self {
        TurnAdmission {
            most,
            inside: Padded(AtomicU64::new(0)),
            left: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            outside: Mutex::default(),
        }
    }

    /// The most transactions that stand in queues at a time.
    pub fn most(&self) -> u64 {
        self.most
    }

    fn try_admit(&self) -> bool {
        let add = |inside: u64| (inside < self.most).then_some(inside + 1);
        self.inside.fetch_update(Ordering::SeqCst, Ordering::Relaxed, add).is_ok()
    }

    /// Waits until there is a place for the session with this seat, and takes it.
    pub fn enter(&self, number: u32, place: &OutsidePlace, nap: Duration) {
        if !self.try_admit() {
            self.wait_outside(number, place, nap);
        }
    }

    #[cold]
    fn wait_outside(&self, number: u32, place: &OutsidePlace, nap: Duration) {
        let began_ns = clock::monotonic_ns();
        place.is_admitted.store(0, Ordering::SeqCst);
        self.change_outside(|outside| outside.push_back(number));
        loop {
            let moved = place.moved.listen();
            if place.is_admitted.load(Ordering::SeqCst) != 0 {
                return;
            }
            let waited_ns = clock::monotonic_ns() - began_ns;
            let is_late = Duration::from_nanos(waited_ns) >= LONGEST_WAIT;
            if is_late || self.try_admit() {
                let was_outside = self.change_outside(|outside| {
                    let at = outside.iter().position(|waiting| *waiting == number);
                    at.map(|at| outside.remove(at)).is_some()
                });
                if was_outside && is_late {
                    self.inside.fetch_add(1, Ordering::SeqCst);
                }
                if !was_outside {
                    // Another session is handing a place to this session. The flag is awaited here,
                    // and not during the next wait.
                    while place.is_admitted.load(Ordering::SeqCst) == 0 {
                        yield_now();
                    }
                    if !is_late {
                        self.inside.fetch_sub(1, Ordering::SeqCst);
                    }
                }
                return;
            }
            moved.wait(Some(nap));
        }
    }

    fn change_outside<R>(&self, change: impl FnOnce(&mut VecDeque<u32>) -> R) -> R {
        let mut outside = self.outside.lock().unpoisoned();
        let changed = change(&mut outside);
        self.waiting.store(outside.len() as u64, Ordering::SeqCst);
        changed
    }

    /// Leaves a place. Returns the seat of the session to which the place is handed on, if any; the
    /// caller has to admit the session.
    #[must_use]
    pub fn leave(&self) -> Option<u32> {
        let passes_on = self.left.fetch_add(1, Ordering::Relaxed) % PASSES == PASSES - 1;
        if passes_on && let Some(next) = self.next_outside() {
            return Some(next);
        }
        let is_last = self.inside.fetch_sub(1, Ordering::SeqCst) == 1;
        let next = if is_last { self.next_outside() } else { None };
        if next.is_some() {
            self.inside.fetch_add(1, Ordering::SeqCst);
        }
        next
    }

    /// Removes and returns the session with the longest wait.
    fn next_outside(&self) -> Option<u32> {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return None;
        }
        self.change_outside(VecDeque::pop_front)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64 as Counter, Ordering::Relaxed};

    const NAP: Duration = Duration::from_millis(10);

    #[test]
    fn as_many_are_inside_as_may_be_and_each_gets_its_turn() {
        let (admission, inside, most) = (TurnAdmission::new(2), Counter::new(0), Counter::new(0));
        let places: Vec<OutsidePlace> = (0..16).map(|_| OutsidePlace::new()).collect();
        std::thread::scope(|scope| {
            for number in 0..16 {
                let (admission, places, inside, most) = (&admission, &places, &inside, &most);
                scope.spawn(move || {
                    for _ in 0..2_000 {
                        admission.enter(number, &places[number as usize], NAP);
                        most.fetch_max(inside.fetch_add(1, Relaxed) + 1, Relaxed);
                        inside.fetch_sub(1, Relaxed);
                        if let Some(next) = admission.leave() {
                            places[next as usize].admit();
                        }
                    }
                });
            }
        });
        assert_eq!(admission.inside.load(Ordering::SeqCst), 0);
        assert_eq!(admission.waiting.load(Ordering::SeqCst), 0);
        // More sessions only after a very long wait.
        assert!(most.into_inner() < 16);
    }

    #[test]
    fn one_within_another_is_admitted_in_the_end() {
        let admission = TurnAdmission::new(1);
        let places = [OutsidePlace::new(), OutsidePlace::new()];
        admission.enter(0, &places[0], NAP);
        admission.enter(1, &places[1], NAP);
        assert_eq!((admission.leave(), admission.leave()), (None, None));
        assert_eq!(admission.inside.load(Ordering::SeqCst), 0);
    }
}
