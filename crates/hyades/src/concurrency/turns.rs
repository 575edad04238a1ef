//! Turns: the order in which transactions work on a partition.
//!
//! Each partition has a queue of transactions, and the first in the queue works on the partition. A
//! transaction enters the queues of its partitions in ascending order, by exchanging the tail.
//! After finding a predecessor in a queue, the transaction goes on only once the predecessor is
//! *placed*, or has left the queue. A transaction is placed once it stands in all of its queues and
//! each predecessor found there was placed: the last queue included, or a successor could overtake
//! the predecessor in another queue. So of two transactions meeting in several queues, with further
//! transactions between them or not, the same transaction is ahead in each queue, and no circle of
//! transactions waits. Entering waits for no transaction to run: only for other transactions to
//! enter. (The order of entry is the order of behaviour-oriented concurrency; the queues are MCS
//! locks, Mellor-Crummey and Scott, TOCS 1991.)
//!
//! A transaction that needs more partitions later takes free partitions only, and waits for none:
//! the transaction stands in queues already, so a successor there may be ahead in another queue.
//!
//! A session has a *seat*: a place in each queue. Numbers name the seats. Seats are never freed
//! before the queues.
//!
//! No thread waits with the seat of a *posted* call. The seat counts the missing conditions: the
//! queues in which the seat is not first, and the release by the poster. The thread that lowers the
//! count to zero announces the call as ready to run. So threads get only calls that may run, and
//! wait for no turn.

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

/// The number of spins of a waiting transaction before it sleeps: about the time of a few short
/// transactions. The transaction never yields: with other programs on the processor, the thread
/// would get the processor back some milliseconds later, and all seats behind would wait as long.
const SPINS: u32 = if cfg!(loom) { 0 } else { 2_000 };
/// The number of spins of a thread waiting for another thread's next step, before it yields.
const STEP_SPINS: u32 = if cfg!(loom) { 0 } else { 200 };

/// A sleeper looks after this time whether the queues have stopped.
const NAP: Duration = Duration::from_millis(10);

/// A session's place in the queue of one partition.
struct QueuePlace {
    /// The number of the seat behind, or 0. Written by the session of the seat behind (Release),
    /// read by this seat's session on leaving.
    next: AtomicU32,
    /// 1 if the seat is first. Written by the session ahead on leaving: Release, so that this
    /// session sees the partition as left by the session ahead. SeqCst, because of the sleeper.
    is_first: AtomicU32,
}

struct Seat {
    /// The partitions in whose queues the seat is first. Relaxed: used by the seat's session only.
    held: AtomicU64,
    /// The partitions known to be needed by the transaction's next attempt. Relaxed, the same.
    wanted: AtomicU64,
    /// The partitions with writes of the transaction, for a broken rule. Relaxed, the same.
    written: AtomicU64,
    /// 1 if the seat is placed, see the module. Reset before the seat exchanges the tail of the
    /// first queue (Release), so no session that finds this seat there sees an earlier value.
    is_placed: AtomicU32,
    /// The missing conditions of a posted call's seat; 0 for the seat of a session. Set before the
    /// seat enters the first queue, and lowered as each condition is met (AcqRel): the step to zero
    /// has seen the effects of all other steps.
    lacking: AtomicU32,
    /// 1 if the seat has a place of [`TurnAdmission`]. Relaxed: used by the seat's session only.
    has_place: AtomicU32,
    outside: OutsidePlace,
    /// Notified when the seat is first in a further queue.
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
    /// The number of the last seat in the queue, or 0. Exchanged by all seats (AcqRel): an entering
    /// seat sees the writes from before the last seat entered, or left.
    tail: AtomicU32,
    /// On the same cache line, fetched by every entering seat anyway.
    left: L,
}

/// The queues of all partitions, each with the state left by its holders. See the module.
pub struct TurnQueues<L> {
    queues: Box<[Padded<PartitionQueue<L>>]>,
    seats: Box<[OnceLock<SeatBlock>]>,
    numbers: Mutex<SeatNumbers>,
    admission: TurnAdmission,
    /// Whether sessions outnumber places. Relaxed: a transaction with an old value is admitted.
    is_crowded: AtomicBool,
    /// A commit or a sweep has panicked: some partitions are half changed, and their turns never
    /// end. (A failure of the log alone stops no turns: the holders of partitions go on to release
    /// them.) Set once, read by all waiting threads; Relaxed, because the flag only ends waits.
    stopped: AtomicBool,
    /// Whether transactions wait at all. Not where one thread runs several sessions at once.
    waits: bool,
    /// Whether waiting threads sleep. In most schedules of loom the threads poll instead: the
    /// schedules of the event would multiply the schedules of the queues.
    #[cfg(loom)]
    sleeps: bool,
    /// Called for each posted call that may run; and with 0 when waiting has ended. Set once,
    /// before any call is posted.
    ready: OnceLock<Box<TurnListener>>,
}

/// Called with the seat of a posted call that may run.
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

    /// The state that the holders of a partition leave for the next holder.
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

    /// Sets the listener for posted calls that may run.
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

    /// Gives the seat of a session back. After the queues have stopped, the seat may still stand in
    /// some queues, and is not used again.
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

    /// The partitions that the session's transaction was found to need.
    #[inline]
    pub fn wanted(&self, number: u32) -> u64 {
        self.seat(number).wanted.load(Ordering::Relaxed)
    }

    /// Sets the partitions with which the session's next attempt begins.
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

    /// Enters the queues of all partitions in `set`, while the seat stands in none, and waits until
    /// the seat is first in each. False if the wait would never end: then the seat holds none of
    /// the partitions, or the queues have stopped.
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

    /// Enters the queues of all partitions in `set`, while the seat stands in none. Waits only for
    /// other seats to enter.
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
                // Makes an entry of another seat in between likely.
                yield_now();
            }
        }
        // Release: a seat going on because of the flag enters other queues behind this seat.
        seat.is_placed.store(1, Ordering::Release);
    }

    /// Waits until the seat, having [lined up](Self::line_up), is first in all of its queues. False
    /// if the queues have stopped.
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

    /// Lets a posted call that has lined up run when its turn has come.
    pub fn let_run(&self, number: u32) {
        self.lack_one_less(self.seat(number), number);
        if self.has_stopped() {
            // The listener, at the end of waiting, may not have known of this call.
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
        // Relaxed: 0 unless a posted call has the seat; else set before the seat lined up.
        if seat.lacking.load(Ordering::Relaxed) != 0
            && seat.lacking.fetch_sub(1, Ordering::AcqRel) == 1
        {
            self.tell_ready(number);
        }
    }

    /// Places the seat behind seat `before`, and waits until seat `before` is placed, or has left
    /// this queue.
    #[cold]
    fn follow(&self, place: &QueuePlace, (at, number): (usize, u32), before: u32) {
        let ahead = self.seat(before);
        ahead.places[at].next.store(number, Ordering::Release);
        if broken!(OvertakeInQueues) {
            return;
        }
        // A seat that has left may stand in queues again, for the next transaction.
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
            // Behind a long transaction: transactions of other partitions go on meanwhile.
            has_slept.then(|| self.leave_place(seat));
            moved.wait(Some(NAP));
            has_slept = true;
        }
    }

    /// Leaves the admission place of the session's transaction, if there is any.
    #[inline]
    fn leave_place(&self, seat: &Seat) {
        if seat.has_place.load(Ordering::Relaxed) != 0 {
            seat.has_place.store(0, Ordering::Relaxed);
            let next = self.admission.leave().map(|next| self.seat(next));
            next.inspect(|next| next.outside.admit());
        }
    }

    /// Takes the partitions in `set` that the seat does not hold yet, up to the first whose queue
    /// is not empty. False if partitions are missing, or the queues have stopped; the seat keeps
    /// its partitions.
    #[cold]
    pub fn try_enter(&self, number: u32, set: u64) -> bool {
        if self.has_stopped() {
            // The seat may still stand in a queue in which the session has waited.
            return false;
        }
        let seat = self.seat(number);
        if seat.held.load(Ordering::Relaxed) == 0 {
            // The seat enters no queue with a wait.
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

    /// Leaves all queues. Returns false, for callers without the wanted partitions.
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
            // Release: the next seat to enter sees the writes of this session.
            let (left, failed) = (Ordering::Release, Ordering::Relaxed);
            if self.queues[at].tail.compare_exchange(number, 0, left, failed).is_ok() {
                return;
            }
            // Another seat has exchanged the tail, and is about to set `next`.
            wait_for_step(|| {
                next = place.next.load(Ordering::Acquire);
                next != 0
            });
        }
        let behind = self.seat(next);
        // Loaded before the call may run, and its seat may be another call's: the seat of a posted
        // call stays until no condition is missing. Relaxed: set before the seat lined up here.
        let is_posted = behind.lacking.load(Ordering::Relaxed) != 0;
        behind.places[at].is_first.store(1, Ordering::SeqCst);
        if is_posted {
            self.lack_one_less(behind, next);
        } else if self.sleeps() {
            behind.moved.notify_ordered();
        }
    }
}

/// Waits for an imminent step of another thread.
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
