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
//!
//! No thread waits with the seat of a *posted* call. It counts what it lacks: the queues in which
//! it is not first, and the word of what has posted it. What takes the count to zero says that the
//! call may run. So only calls that may run are handed to threads, which wait for no turn.

mod admission;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::error::Error;
use crate::storage::partition::members;
use admission::{OutsidePlace, TurnAdmission};
use hyades_platform::broken;
use hyades_platform::event::Event;
use hyades_platform::sync::Unpoisoned;
use hyades_platform::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, Padded, yield_now};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// Seats are allocated in blocks. Few under loom, which keeps a history of every atomic.
const BLOCK: usize = if cfg!(loom) { 4 } else { 16 };
const MOST_BLOCKS: usize = 1 << 10;

/// How often a waiting transaction looks before it sleeps: for as long as a few short transactions
/// take. It never yields: where other programs want the processor it would get it back some
/// milliseconds later, and whatever lines up behind it would wait for that.
const SPINS: u32 = if cfg!(loom) { 0 } else { 2_000 };
/// How often a thread looks whether another one has done its next step, before it yields.
const STEP_SPINS: u32 = if cfg!(loom) { 0 } else { 200 };

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
    /// What the seat of a posted call lacks; 0 for that of a session. Set before it enters the
    /// first queue, and lowered by what makes it first (AcqRel): the one that takes it to zero has
    /// seen what all others have done.
    lacking: AtomicU32,
    /// 1 if it has a place of [`TurnAdmission`]. Relaxed: used by its session only.
    has_place: AtomicU32,
    outside: OutsidePlace,
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

/// The queue of one partition.
struct PartitionQueue<L> {
    /// The number of the last seat in it, or 0. Exchanged by all (AcqRel): a seat that enters sees
    /// what was written before the last one entered, or left.
    tail: AtomicU32,
    /// On the same cache line, which whatever enters fetches anyway.
    left: L,
}

/// The queues of all partitions, each with what its holders leave for the next one. See the module.
pub(crate) struct TurnQueues<L> {
    queues: Box<[Padded<PartitionQueue<L>>]>,
    seats: Box<[OnceLock<SeatBlock>]>,
    numbers: Mutex<SeatNumbers>,
    admission: TurnAdmission,
    /// Whether there are more sessions than places. Relaxed: a transaction that does not know yet
    /// is admitted.
    is_crowded: AtomicBool,
    /// A commit or a sweep has panicked: some partitions are half changed, and their turns never
    /// end. (A log that fails by itself stops no turns: those that hold partitions go on to release
    /// them.) Set once, read by all that wait; Relaxed, as it only ends their waiting.
    stopped: AtomicBool,
    /// Whether transactions wait at all. Not where one thread runs several sessions at once.
    waits: bool,
    /// Whether those that wait sleep. In most schedules that loom checks they look again and again:
    /// the event has schedules of its own, which would multiply those of the queues.
    #[cfg(loom)]
    sleeps: bool,
    /// Told of each posted call that may run; and of 0 when waiting has ended. Set once, before any
    /// call is posted.
    ready: OnceLock<Box<TurnListener>>,
}

/// Told the seat of a posted call that may run.
pub(crate) type TurnListener = dyn Fn(u32) + Send + Sync;

impl<L: Default> TurnQueues<L> {
    pub fn new(partitions: usize, waits: bool) -> Self {
        assert!(partitions <= u64::BITS as usize, "a set of partitions is a word");
        let queue = || PartitionQueue { tail: AtomicU32::new(0), left: L::default() };
        TurnQueues {
            queues: (0..partitions).map(|_| Padded(queue())).collect(),
            seats: (0..MOST_BLOCKS).map(|_| OnceLock::new()).collect(),
            numbers: Mutex::default(),
            admission: TurnAdmission::by_processors(),
            is_crowded: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            waits,
            #[cfg(loom)]
            sleeps: false,
            ready: OnceLock::new(),
        }
    }
}

impl<L> TurnQueues<L> {
    /// The number of partitions.
    #[inline]
    pub fn partitions(&self) -> usize {
        self.queues.len()
    }

    /// What the holders of a partition leave for the next one.
    #[inline]
    pub fn left(&self, at: usize) -> &L {
        &self.queues[at].left
    }

    #[inline(always)]
    fn sleeps(&self) -> bool {
        #[cfg(loom)]
        return self.sleeps;
        #[cfg(not(loom))]
        true
    }

    /// Sets what is told of posted calls that may run.
    pub fn on_ready(&self, ready: Box<TurnListener>) {
        let is_first = self.ready.set(ready).is_ok();
        debug_assert!(is_first, "it is set once");
    }

    fn tell_ready(&self, number: u32) {
        if let Some(ready) = self.ready.get() {
            ready(number);
        }
    }

    /// Adds the seat of a session. Its number is not 0.
    pub fn add(&self) -> Result<u32, Error> {
        let mut numbers = self.numbers.lock().unpoisoned();
        if let Some(number) = numbers.free.pop() {
            self.note_sessions(&numbers);
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
            lacking: AtomicU32::new(0),
            has_place: AtomicU32::new(0),
            outside: OutsidePlace::new(),
            moved: Event::new(),
            places: (0..self.queues.len()).map(place).collect(),
        };
        self.seats[(number as usize - 1) / BLOCK]
            .get_or_init(|| (0..BLOCK).map(|_| Padded(seat())).collect());
        numbers.used = number;
        self.note_sessions(&numbers);
        Ok(number)
    }

    fn note_sessions(&self, numbers: &SeatNumbers) {
        let sessions = u64::from(numbers.used) - numbers.free.len() as u64;
        self.is_crowded.store(sessions > self.admission.most(), Ordering::Relaxed);
    }

    /// Gives the seat of a session back. If the queues have stopped it may still stand in some: it
    /// is not used again.
    pub fn remove(&self, number: u32) {
        self.seat(number).wanted.store(0, Ordering::Relaxed);
        if !self.has_stopped() && self.held(number) == 0 {
            let mut numbers = self.numbers.lock().unpoisoned();
            numbers.free.push(number);
            self.note_sessions(&numbers);
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
        self.tell_ready(0);
    }

    pub fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Whether transactions wait for their turns.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Enters the queues of all partitions in `set`, while it stands in none, and waits until it is
    /// first in each. False if it would wait for ever: then it holds none of them, or the queues
    /// have stopped.
    #[inline]
    pub fn enter(&self, number: u32, set: u64) -> bool {
        if !self.waits {
            return self.try_enter(number, set) || self.leave(number);
        }
        if self.has_stopped() {
            return false;
        }
        if self.is_crowded.load(Ordering::Relaxed) {
            let seat = self.seat(number);
            self.admission.enter(number, &seat.outside, NAP);
            seat.has_place.store(1, Ordering::Relaxed);
        }
        self.line_up(number, set);
        self.await_turn(number, set)
    }

    /// Enters the queues of all partitions in `set`, while it stands in none. Waits for others to
    /// enter only.
    #[inline]
    pub fn line_up(&self, number: u32, set: u64) {
        debug_assert_eq!(self.held(number), 0, "more are only tried");
        debug_assert!(set >> (self.queues.len() - 1) <= 1, "these partitions exist");
        let seat = self.seat(number);
        seat.is_placed.store(0, Ordering::Relaxed);
        let mut rest = set;
        while rest != 0 {
            let at = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let place = &seat.places[at];
            place.next.store(0, Ordering::Relaxed);
            place.is_first.store(0, Ordering::Relaxed);
            let before = self.queues[at].tail.swap(number, Ordering::AcqRel);
            if before == 0 {
                place.is_first.store(1, Ordering::Relaxed);
                self.lack_one_less(seat, number);
            } else {
                self.follow(place, (at, number), before);
            }
            if broken!(OvertakeInQueues) {
                // Makes it likely that another one enters in between.
                yield_now();
            }
        }
        // Release: what goes on because of it enters other queues behind this seat.
        seat.is_placed.store(1, Ordering::Release);
    }

    /// Waits until the seat, which has [lined up](Self::line_up), is first in all of its queues.
    /// False if the queues have stopped.
    #[inline]
    pub fn await_turn(&self, number: u32, set: u64) -> bool {
        let seat = self.seat(number);
        if !members(set).all(|at| self.wait_until_first(seat, at)) {
            return false;
        }
        seat.held.store(set, Ordering::Relaxed);
        true
    }

    /// Lines up the seat of a posted call, which may run once it is first in all of its queues and
    /// [`TurnQueues::let_run`] was called.
    pub fn line_up_posted(&self, number: u32, set: u64) {
        self.seat(number).lacking.store(set.count_ones() + 1, Ordering::Relaxed);
        self.line_up(number, set);
    }

    /// A posted call that has lined up may run when its turn has come.
    pub fn let_run(&self, number: u32) {
        self.lack_one_less(self.seat(number), number);
        if self.has_stopped() {
            // Whatever was told of that may not have known of this call.
            self.tell_ready(0);
        }
    }

    /// Takes the turn of a posted call that may run.
    pub fn take_turn(&self, number: u32, set: u64) {
        let is_first = |at: usize| self.seat(number).places[at].is_first.load(Ordering::Acquire);
        debug_assert!(members(set).all(|at| is_first(at) != 0), "it is its turn");
        self.seat(number).held.store(set, Ordering::Relaxed);
    }

    #[inline]
    fn lack_one_less(&self, seat: &Seat, number: u32) {
        // Relaxed: 0 unless it is the seat of a posted call; that was set before it lined up.
        if seat.lacking.load(Ordering::Relaxed) != 0
            && seat.lacking.fetch_sub(1, Ordering::AcqRel) == 1
        {
            self.tell_ready(number);
        }
    }

    /// Places the seat behind another one, and waits until that one is placed, or has left this
    /// queue.
    #[cold]
    fn follow(&self, place: &QueuePlace, (at, number): (usize, u32), before: u32) {
        let ahead = self.seat(before);
        ahead.places[at].next.store(number, Ordering::Release);
        if broken!(OvertakeInQueues) {
            return;
        }
        // If it has left, it may stand in queues again, for its next transaction.
        wait_for_step(|| {
            ahead.is_placed.load(Ordering::Acquire) != 0
                || place.is_first.load(Ordering::Acquire) != 0
        });
    }

    #[inline]
    fn wait_until_first(&self, seat: &Seat, at: usize) -> bool {
        seat.places[at].is_first.load(Ordering::Acquire) != 0 || self.sleep_until_first(seat, at)
    }

    #[cold]
    fn sleep_until_first(&self, seat: &Seat, at: usize) -> bool {
        let is_first = || seat.places[at].is_first.load(Ordering::SeqCst) != 0;
        for _ in 0..SPINS {
            if is_first() {
                return true;
            }
            std::hint::spin_loop();
        }
        while !self.sleeps() && !is_first() {
            yield_now();
        }
        let mut has_slept = false;
        loop {
            let moved = seat.moved.listen();
            if is_first() {
                return true;
            }
            if self.has_stopped() {
                return false;
            }
            // Behind a long transaction: those of other partitions go on meanwhile.
            has_slept.then(|| self.leave_place(seat));
            moved.wait(Some(NAP));
            has_slept = true;
        }
    }

    /// Leaves the place that the session's transaction was admitted to, if it has one.
    #[inline]
    fn leave_place(&self, seat: &Seat) {
        if seat.has_place.load(Ordering::Relaxed) != 0 {
            seat.has_place.store(0, Ordering::Relaxed);
            let next = self.admission.leave().map(|next| self.seat(next));
            next.inspect(|next| next.outside.admit());
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
        members(set & !self.held(number)).all(|at| {
            let place = &seat.places[at];
            place.next.store(0, Ordering::Relaxed);
            place.is_first.store(1, Ordering::Relaxed);
            let (free, failed) = (Ordering::AcqRel, Ordering::Relaxed);
            let is_free = self.queues[at].tail.compare_exchange(0, number, free, failed).is_ok();
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
        if broken!(StampWrittenOnly) {
            seat.written.store(0, Ordering::Relaxed);
        }
        let mut rest = seat.held.load(Ordering::Relaxed);
        seat.held.store(0, Ordering::Relaxed);
        while rest != 0 {
            self.hand_on(seat, number, rest.trailing_zeros() as usize);
            rest &= rest - 1;
        }
        self.leave_place(seat);
        false
    }

    #[inline]
    fn hand_on(&self, seat: &Seat, number: u32, at: usize) {
        let place = &seat.places[at];
        let mut next = place.next.load(Ordering::Acquire);
        if next == 0 {
            // Release: the next one to enter sees what this one has written.
            let (left, failed) = (Ordering::Release, Ordering::Relaxed);
            if self.queues[at].tail.compare_exchange(number, 0, left, failed).is_ok() {
                return;
            }
            // Another one has exchanged the tail, and is about to say so.
            wait_for_step(|| {
                next = place.next.load(Ordering::Acquire);
                next != 0
            });
        }
        let behind = self.seat(next);
        // Before it may run, and its seat may be another call's: that of a posted one stays until
        // it lacks nothing. Relaxed: it was set before it lined up here.
        let is_posted = behind.lacking.load(Ordering::Relaxed) != 0;
        behind.places[at].is_first.store(1, Ordering::SeqCst);
        if is_posted {
            self.lack_one_less(behind, next);
        } else if self.sleeps() {
            behind.moved.notify_ordered();
        }
    }
}

/// Waits for a step that another thread is about to do.
fn wait_for_step(mut is_done: impl FnMut() -> bool) {
    let mut looks = 0;
    while !is_done() {
        if looks < STEP_SPINS {
            std::hint::spin_loop()
        } else {
            yield_now()
        }
        looks += 1;
    }
}
