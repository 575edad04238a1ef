//! Turns: which transaction works on a partition, and which are next.
//!
//! Each partition has a queue of transactions, and the first one works on it. A transaction enters
//! the queues of its partitions in ascending order, by exchanging the tail. If it finds a
//! predecessor in a queue, it goes on only once that one is *placed*, or has left this queue. It is
//! placed once it stands in all of its own queues, and whatever it found ahead was placed: the last
//! queue included, or one behind it could overtake its predecessor elsewhere. So of two
//! transactions that meet in several queues, with others between them or not, the same one is ahead
//! in each, and no circle of transactions waits. Entering waits for no transaction to run: only for
//! others to enter. (The order of entry is that of behaviour-oriented concurrency; the queues are
//! those of MCS locks, Mellor-Crummey and Scott, TOCS 1991.)
//!
//! A transaction that finds out later that it needs more partitions takes those that are free, and
//! waits for none: it stands in its queues already, so what is behind it may be ahead elsewhere.
//!
//! A session has a *seat*: its place in each queue. Seats are named by numbers, and are never freed
//! before the queues are.

#[cfg(all(test, loom))]
mod loom_tests;

use crate::error::Error;
use hyades_platform::event::Event;
use hyades_platform::mutation::{self, Mutation};
use hyades_platform::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, Padded, yield_now};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// Seats are allocated in blocks. Few under loom, which keeps a history of every atomic.
const BLOCK: usize = if cfg!(loom) { 4 } else { 16 };
const MOST_BLOCKS: usize = 1 << 10;

/// How often a waiting transaction looks before it yields, and before it sleeps.
const SPINS: u32 = if cfg!(loom) { 0 } else { 256 };
const YIELDS: u32 = if cfg!(loom) { 0 } else { 4 };

/// A sleeper looks after this time whether the queues have stopped.
const NAP: Duration = Duration::from_millis(10);

/// A session's place in the queue of one partition.
struct QueuePlace {
    /// The number of the seat behind it, or 0. Written by that seat's session (Release), read by
    /// this one's when it leaves.
    next: AtomicU32,
    /// 1 if it is first. Written by the session ahead when it leaves: Release, so that what this
    /// one sees of the partition is what that one has left. SeqCst, because of the sleeper.
    is_first: AtomicU32,
}

struct Seat {
    /// The partitions in whose queues it is first. Relaxed: used by its session only.
    held: AtomicU64,
    /// Those that its transaction was found to need, for its next attempt. Relaxed, the same.
    wanted: AtomicU64,
    /// Those in which it has written, for a broken rule. Relaxed, the same.
    written: AtomicU64,
    /// 1 if it is placed, see the module. Reset before it enters the first one, whose tail it
    /// exchanges (Release), so no session that finds this seat there sees a value from before.
    is_placed: AtomicU32,
    /// It is first in another queue.
    moved: Event,
    places: Box<[QueuePlace]>,
}

type SeatBlock = Box<[Padded<Seat>]>;

#[derive(Default)]
struct SeatNumbers {
    used: u32,
    free: Vec<u32>,
}

/// The queues of all partitions. See the module.
pub(crate) struct TurnQueues {
    /// The number of the last seat in each queue, or 0. Exchanged by all (AcqRel): a seat that
    /// enters sees what was written before the last one entered, or left.
    tails: Box<[Padded<AtomicU32>]>,
    seats: Box<[OnceLock<SeatBlock>]>,
    numbers: Mutex<SeatNumbers>,
    /// A commit or a sweep has panicked: some partitions are half changed, and their turns never
    /// end. (A log that fails by itself stops no turns: those that hold partitions go on to release
    /// them.) Set once, read by all that wait; Relaxed, as it only ends their waiting.
    stopped: AtomicBool,
    /// Whether transactions wait at all. Not where one thread runs several sessions at once.
    waits: bool,
}

fn partitions_of(set: u64) -> impl Iterator<Item = usize> {
    let next = |set: &u64| Some(set & (set - 1)).filter(|rest| *rest != 0);
    std::iter::successors(Some(set).filter(|set| *set != 0), next)
        .map(|set| set.trailing_zeros() as usize)
}

impl TurnQueues {
    pub fn new(partitions: usize, waits: bool) -> Self {
        assert!(partitions <= u64::BITS as usize, "a set of partitions is a word");
        TurnQueues {
            tails: (0..partitions).map(|_| Padded(AtomicU32::new(0))).collect(),
            // None where the concurrency control takes no turns.
            seats: (0..MOST_BLOCKS.min(partitions * MOST_BLOCKS))
                .map(|_| OnceLock::new())
                .collect(),
            numbers: Mutex::default(),
            stopped: AtomicBool::new(false),
            waits,
        }
    }

    /// Adds the seat of a session. Its number is not 0.
    pub fn add(&self) -> Result<u32, Error> {
        let mut numbers = self.numbers.lock().expect("no holder panics");
        if let Some(number) = numbers.free.pop() {
            return Ok(number);
        }
        let number = numbers.used + 1;
        let most = BLOCK * MOST_BLOCKS;
        if number as usize > most {
            let fault = format!("{most} sessions are open, the most there can be: close some");
            return Err(Error::Misuse(fault));
        }
        let place = |_| QueuePlace { next: AtomicU32::new(0), is_first: AtomicU32::new(0) };
        let seat = || Seat {
            held: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            written: AtomicU64::new(0),
            is_placed: AtomicU32::new(0),
            moved: Event::new(),
            places: (0..self.tails.len()).map(place).collect(),
        };
        self.seats[(number as usize - 1) / BLOCK]
            .get_or_init(|| (0..BLOCK).map(|_| Padded(seat())).collect());
        numbers.used = number;
        Ok(number)
    }

    /// Gives the seat of a session back. If the queues have stopped it may still stand in some: it
    /// is not used again.
    pub fn remove(&self, number: u32) {
        self.seat(number).wanted.store(0, Ordering::Relaxed);
        if !self.has_stopped() && self.held(number) == 0 {
            self.numbers.lock().expect("no holder panics").free.push(number);
        }
    }

    #[inline]
    fn seat(&self, number: u32) -> &Seat {
        let at = number as usize - 1;
        let block = self.seats[at / BLOCK].get().expect("a number is used once it has its seat");
        &block[at % BLOCK]
    }

    /// The partitions that the session's transaction holds.
    #[inline]
    pub fn held(&self, number: u32) -> u64 {
        self.seat(number).held.load(Ordering::Relaxed)
    }

    /// Those that it was found to need.
    #[inline]
    pub fn wanted(&self, number: u32) -> u64 {
        self.seat(number).wanted.load(Ordering::Relaxed)
    }

    /// Sets which partitions the session's next attempt begins with.
    #[inline]
    pub fn want(&self, number: u32, set: u64) {
        self.seat(number).wanted.store(set, Ordering::Relaxed);
    }

    /// The partitions noted as written by the session's transaction.
    pub fn written(&self, number: u32) -> u64 {
        self.seat(number).written.load(Ordering::Relaxed)
    }

    /// Notes partitions as written, for a broken rule.
    pub fn note_written(&self, number: u32, set: u64) {
        self.seat(number).written.fetch_or(set, Ordering::Relaxed);
    }

    /// Ends all waiting.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Enters the queues of all partitions in `set`, while it stands in none, and waits until it is
    /// first in each. False if it would wait for ever: then it holds none of them, or the queues
    /// have stopped.
    #[inline]
    pub fn enter(&self, number: u32, set: u64) -> bool {
        debug_assert_eq!(self.held(number), 0, "more are only tried");
        debug_assert!(set >> (self.tails.len() - 1) <= 1, "these partitions exist");
        if !self.waits {
            return self.try_enter(number, set) || self.leave(number);
        }
        if self.has_stopped() {
            return false;
        }
        let seat = self.seat(number);
        seat.is_placed.store(0, Ordering::Relaxed);
        let mut rest = set;
        while rest != 0 {
            let at = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let place = &seat.places[at];
            place.next.store(0, Ordering::Relaxed);
            place.is_first.store(0, Ordering::Relaxed);
            let before = self.tails[at].swap(number, Ordering::AcqRel);
            if before == 0 {
                place.is_first.store(1, Ordering::Relaxed);
            } else {
                self.follow(place, (at, number), before);
            }
            if mutation::is(Mutation::OvertakeInQueues) {
                // Makes it likely that another one enters in between.
                yield_now();
            }
        }
        // Release: what goes on because of it enters other queues behind this seat.
        seat.is_placed.store(1, Ordering::Release);
        if !partitions_of(set).all(|at| self.wait_until_first(seat, at)) {
            return false;
        }
        seat.held.store(set, Ordering::Relaxed);
        true
    }

    /// Places the seat behind another one, and waits until that one is placed, or has left this
    /// queue.
    #[cold]
    fn follow(&self, place: &QueuePlace, (at, number): (usize, u32), before: u32) {
        let ahead = self.seat(before);
        ahead.places[at].next.store(number, Ordering::Release);
        if mutation::is(Mutation::OvertakeInQueues) {
            return;
        }
        // If it has left, it may stand in queues again, for its next transaction.
        while ahead.is_placed.load(Ordering::Acquire) == 0
            && place.is_first.load(Ordering::Acquire) == 0
        {
            yield_now();
        }
    }

    #[inline]
    fn wait_until_first(&self, seat: &Seat, at: usize) -> bool {
        seat.places[at].is_first.load(Ordering::Acquire) != 0 || self.sleep_until_first(seat, at)
    }

    #[cold]
    fn sleep_until_first(&self, seat: &Seat, at: usize) -> bool {
        let is_first = || seat.places[at].is_first.load(Ordering::SeqCst) != 0;
        for look in 0..SPINS + YIELDS {
            if is_first() {
                return true;
            }
            if look < SPINS { std::hint::spin_loop() } else { yield_now() }
        }
        loop {
            let moved = seat.moved.listen();
            if is_first() {
                return true;
            }
            if self.has_stopped() {
                return false;
            }
            if cfg!(loom) {
                // The event has schedules of its own: here it would add to those of the queues.
                yield_now();
            } else {
                moved.wait(Some(NAP));
            }
        }
    }

    /// Takes the partitions in `set` that it does not hold yet, whose queues are empty.
    /// False if it has not got all of them, or the queues have stopped; it keeps what it holds.
    #[cold]
    pub fn try_enter(&self, number: u32, set: u64) -> bool {
        if self.has_stopped() {
            // Its seat may still stand in a queue in which it has waited.
            return false;
        }
        let seat = self.seat(number);
        if seat.held.load(Ordering::Relaxed) == 0 {
            // It enters no queue that it would have to wait in.
            seat.is_placed.store(1, Ordering::Relaxed);
        }
        partitions_of(set & !self.held(number)).all(|at| {
            let place = &seat.places[at];
            place.next.store(0, Ordering::Relaxed);
            place.is_first.store(1, Ordering::Relaxed);
            let (free, failed) = (Ordering::AcqRel, Ordering::Relaxed);
            let is_free = self.tails[at].compare_exchange(0, number, free, failed).is_ok();
            if is_free {
                seat.held.store(self.held(number) | 1 << at, Ordering::Relaxed);
            }
            is_free
        })
    }

    /// Leaves all queues. Returns false, for those that have not got what they wanted.
    #[inline]
    pub fn leave(&self, number: u32) -> bool {
        let seat = self.seat(number);
        if mutation::is(Mutation::StampWrittenOnly) {
            seat.written.store(0, Ordering::Relaxed);
        }
        let mut rest = seat.held.load(Ordering::Relaxed);
        seat.held.store(0, Ordering::Relaxed);
        while rest != 0 {
            self.hand_on(seat, number, rest.trailing_zeros() as usize);
            rest &= rest - 1;
        }
        false
    }

    #[inline]
    fn hand_on(&self, seat: &Seat, number: u32, at: usize) {
        let place = &seat.places[at];
        let mut next = place.next.load(Ordering::Acquire);
        if next == 0 {
            // Release: the next one to enter sees what this one has written.
            let (left, failed) = (Ordering::Release, Ordering::Relaxed);
            if self.tails[at].compare_exchange(number, 0, left, failed).is_ok() {
                return;
            }
            // Another one has exchanged the tail, and is about to say so.
            while next == 0 {
                yield_now();
                next = place.next.load(Ordering::Acquire);
            }
        }
        let behind = self.seat(next);
        behind.places[at].is_first.store(1, Ordering::SeqCst);
        behind.moved.notify_ordered();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Barrier;

    const PARTITIONS: usize = 5;

    /// Threads with random sets of partitions: in each partition one at a time, and all get their
    /// turn.
    #[test]
    fn one_at_a_time_and_everyone_in_the_end() {
        let queues = TurnQueues::new(PARTITIONS, true);
        let counts: Vec<Padded<AtomicU64>> = (0..PARTITIONS).map(|_| Padded::default()).collect();
        let start = Barrier::new(4);
        let entered: Vec<u64> = std::thread::scope(|scope| {
            let thread = |at: u64| {
                let (queues, counts, start) = (&queues, &counts, &start);
                move || {
                    let (seat, mut rng) = (queues.add().unwrap(), fastrand::Rng::with_seed(at));
                    let mut entered = 0;
                    start.wait();
                    for _ in 0..1500 {
                        let set = rng.u64(1..1 << PARTITIONS) & rng.u64(1..1 << PARTITIONS);
                        assert!(queues.enter(seat, set));
                        let _ = queues.try_enter(seat, rng.u64(0..1 << PARTITIONS));
                        for at in partitions_of(queues.held(seat)) {
                            // Not an addition: another one at the same time would be lost.
                            let count = counts[at].load(Ordering::Relaxed);
                            counts[at].store(count + 1, Ordering::Relaxed);
                            entered += 1;
                        }
                        queues.leave(seat);
                    }
                    queues.remove(seat);
                    entered
                }
            };
            let threads: Vec<_> = (0..4).map(|at| scope.spawn(thread(at))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let counted: u64 = counts.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        assert_eq!(counted, entered.iter().sum::<u64>());
    }

    #[test]
    fn what_is_held_is_not_waited_for_where_no_one_waits() {
        let queues = TurnQueues::new(3, false);
        let (one, other) = (queues.add().unwrap(), queues.add().unwrap());
        assert!(queues.enter(one, 0b011));
        assert!(!queues.enter(other, 0b110));
        assert_eq!(queues.held(other), 0);
        assert!(queues.enter(other, 0b100));
        assert!(!queues.try_enter(one, 0b111));
        queues.leave(other);
        assert!(queues.try_enter(one, 0b111));
        assert_eq!(queues.held(one), 0b111);
        queues.leave(one);
        assert!(queues.enter(other, 0b111));
    }

    #[test]
    fn waiting_ends_when_the_queues_stop() {
        let queues = TurnQueues::new(1, true);
        let (one, other) = (queues.add().unwrap(), queues.add().unwrap());
        assert!(queues.enter(one, 1));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| queues.enter(other, 1));
            std::thread::sleep(Duration::from_millis(5));
            queues.stop();
            assert!(!waiting.join().unwrap());
        });
        assert!(!queues.enter(other, 1));
        assert!(!queues.try_enter(other, 1));
    }
}
