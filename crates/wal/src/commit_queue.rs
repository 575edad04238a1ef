//! Transactions waiting for acknowledgement, each with an item.

use crate::Lsn;
use crate::error::Poisoned;
use crate::lane::Lane;
use crate::log::Log;
use crate::needs::{Needs, is_met};
use crate::parked_waker::ParkedWaker;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::task::Waker;

/// A transaction waiting for position `lsn`, then for the entries of `needs`, then for the lease
/// if it only reads.
struct ParkedTicket<T> {
    lsn: Lsn,
    needs: Needs,
    reads: bool,
    item: T,
}

impl<T> PartialEq for ParkedTicket<T> {
    fn eq(&self, other: &Self) -> bool {
        self.lsn == other.lsn
    }
}
impl<T> Eq for ParkedTicket<T> {}
impl<T> PartialOrd for ParkedTicket<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for ParkedTicket<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap returns its greatest element first; the lowest position is wanted.
        other.lsn.cmp(&self.lsn)
    }
}

/// Transactions parked under one lane of the frontier.
struct WaitQueue<T> {
    /// Transactions with no further needs, the lease included, by ascending position: nearly all,
    /// since a session's own records arrive in ascending order.
    last: VecDeque<(Lsn, T)>,
    /// The highest position ever in `last`.
    highest: Lsn,
    /// The rest, nearly all with further needs, arrived by ascending position: mostly under the
    /// stream of their own record.
    first: VecDeque<ParkedTicket<T>>,
    /// The rest, arrived in another order.
    others: BinaryHeap<ParkedTicket<T>>,
    /// The waker, and the position last armed, see [`CommitQueue::arm`].
    armed: ParkedWaker,
}

impl<T> WaitQueue<T> {
    fn new() -> Self {
        WaitQueue {
            armed: ParkedWaker::default(),
            last: VecDeque::new(),
            highest: 0,
            first: VecDeque::new(),
            others: BinaryHeap::new(),
        }
    }

    #[inline(always)]
    fn park(&mut self, lsn: Lsn, needs: &mut Needs, reads: bool, item: T) {
        if needs.is_empty() && lsn >= self.highest && !reads {
            self.highest = lsn;
            self.last.push_back((lsn, item));
        } else {
            let parked = ParkedTicket { lsn, needs: std::mem::take(needs), reads, item };
            if self.first.back().is_none_or(|back| back.lsn <= lsn) {
                self.first.push_back(parked);
            } else {
                self.others.push(parked);
            }
        }
    }

    /// Removes a transaction of `first` or `others`, if any, with a reached position.
    fn pop(&mut self, reached: Lsn) -> Option<ParkedTicket<T>> {
        let is_past = |parked: &mut ParkedTicket<T>| is_met(reached, parked.lsn);
        if let Some(parked) = self.first.pop_front_if(is_past) {
            return Some(parked);
        }
        self.others
            .peek()
            .is_some_and(|parked| is_met(reached, parked.lsn))
            .then(|| self.others.pop())?
    }

    /// Returns the lowest awaited position.
    fn lowest(&self) -> Option<Lsn> {
        let (last, first, others) = (self.last.front(), self.first.front(), self.others.peek());
        let others = first.into_iter().chain(others).map(|parked| parked.lsn);
        last.map(|last| last.0).into_iter().chain(others).min()
    }
}

/// A queue of transactions waiting for acknowledgement, each with an item to return when
/// acknowledged.
///
/// A transaction is parked under one still needed lane of the frontier, by position, and moves on
/// when the position is reached. No transaction waits behind another. Transactions that have only
/// read and need nothing more are held until the [lease](crate::AnswerLease) of the log allows
/// their answers, if there is one.
pub struct CommitQueue<T> {
    /// None if nothing is ever waited for.
    log: Option<Log>,
    lanes: Vec<WaitQueue<T>>,
    /// Items of transactions with nothing to wait for.
    free: Vec<T>,
    /// Items of transactions that wait for the lease alone.
    held: Vec<T>,
    /// The waker, if armed for `held`.
    armed_to_answer: ParkedWaker,
    len: usize,
    /// How many of these transactions only read, and wait for the lease in the end.
    readers: usize,
}

impl<T> CommitQueue<T> {
    /// Makes an empty queue for transactions of a log; without a log, for transactions with nothing
    /// to wait for.
    pub fn new(log: Option<Log>) -> Self {
        let lanes = log.as_ref().map_or(0, Log::lanes);
        let lanes = (0..lanes).map(|_| WaitQueue::new()).collect();
        CommitQueue {
            log,
            lanes,
            free: Vec::new(),
            held: Vec::new(),
            armed_to_answer: ParkedWaker::default(),
            len: 0,
            readers: 0,
        }
    }

    /// Whether the queue is for transactions of `log`.
    #[inline]
    pub fn is_for(&self, log: &Log) -> bool {
        self.log.as_ref().is_some_and(|own| own.is(log))
    }

    /// Adds a transaction with its needs; leaves `needs` empty. The transaction has a record of its
    /// own among the needs, or the log has no lease.
    #[inline]
    pub fn push(&mut self, needs: &mut Needs, item: T) {
        self.len += 1;
        if let Some(item) = self.park(needs, false, item) {
            self.free.push(item);
        }
    }

    /// As [`push`](Self::push), for a transaction that has no record of its own among the needs,
    /// where the log has a lease: the lease is checked when the queue is drained.
    #[inline]
    pub fn push_reader(&mut self, needs: &mut Needs, item: T) {
        self.len += 1;
        self.readers += 1;
        if let Some(item) = self.park(needs, true, item) {
            self.held.push(item);
        }
    }

    /// Parks the item under a still needed lane; returns the item if no lane is needed.
    #[inline(always)]
    fn park(&mut self, needs: &mut Needs, reads: bool, item: T) -> Option<T> {
        if let Some(log) = &self.log {
            while let Some((lane, lsn)) = needs.pop() {
                if !is_met(log.frontier().at(lane), lsn) {
                    self.lanes[lane.index()].park(lsn, needs, reads, item);
                    return None;
                }
            }
        }
        Some(item)
    }

    /// How many transactions wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no transaction waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether all that wait have only read, and would have waited for the lease in the end.
    pub fn only_reads(&self) -> bool {
        debug_assert!(self.readers <= self.len, "readers wait, too");
        self.readers == self.len
    }

    /// Whether the transactions that wait for the lease alone may be answered now.
    fn may_answer(&self) -> bool {
        self.log.as_ref().is_none_or(|log| log.frontier().may_answer())
    }

    /// Returns the item of every transaction acknowledged by now, in any order, through
    /// `acknowledged`. Returns the number of items.
    ///
    /// # Errors
    /// The log stopped, and some transactions can never be acknowledged. The items of acknowledged
    /// transactions have been returned before.
    pub fn drain(&mut self, mut acknowledged: impl FnMut(T)) -> Result<usize, Poisoned> {
        let poisoned = self.log.as_ref().and_then(Log::poisoned);
        let mut done = self.free.len();
        self.free.drain(..).for_each(&mut acknowledged);
        for lane in Lane::first(self.lanes.len()) {
            let at = lane.index();
            let reached = self.log.as_ref().expect("there are lanes").frontier().at(lane);
            let last = &mut self.lanes[at].last;
            while let Some((_, item)) = last.pop_front_if(|(lsn, _)| is_met(reached, *lsn)) {
                acknowledged(item);
                done += 1;
            }
            while let Some(mut parked) = self.lanes[at].pop(reached) {
                match self.park(&mut parked.needs, parked.reads, parked.item) {
                    Some(item) if parked.reads => self.held.push(item),
                    Some(item) => {
                        acknowledged(item);
                        done += 1;
                    }
                    None => {}
                }
            }
            if let (Some(lsn), Some(log)) = (self.lanes[at].lowest(), &self.log) {
                log.request(lane, lsn);
            }
        }
        // One look at the clock for all, after their reads.
        if !self.held.is_empty() && self.may_answer() {
            done += self.held.len();
            self.readers -= self.held.len();
            self.held.drain(..).for_each(&mut acknowledged);
        }
        self.len -= done;
        match poisoned {
            Some(cause) if self.len > 0 => Err(cause),
            _ => Ok(done),
        }
    }

    /// Blocks until [`CommitQueue::drain`] would make progress: until a position with parked
    /// transactions is reached, in any stream, or the lease allows an answer. A transaction with
    /// further needs is then parked under the next lane, so there may be nothing to return yet:
    /// wait in a loop. Returns at once if the queue is empty.
    ///
    /// # Errors
    /// The log stopped, and drain would find nothing.
    pub fn wait_for_one(&self) -> Result<(), Poisoned> {
        let answers = !self.held.is_empty();
        if !self.free.is_empty() || answers && self.may_answer() {
            return Ok(());
        }
        let Some(log) = &self.log else { return Ok(()) };
        let lanes = Lane::first(self.lanes.len()).zip(&self.lanes);
        let lowest = lanes.map(|(lane, queue)| Some((lane, queue.lowest()?)));
        // Waits for all lanes: the lane with most waiting transactions may be stalled.
        let wanted: SmallVec<[(Lane, u64); 16]> = lowest.flatten().collect();
        log.wait_any_or_to_answer(&wanted, answers)
    }

    /// Has `waker` woken once [`CommitQueue::drain`] would make progress, the lease of held answers
    /// is extended, or the log stops; at once if drain would make progress now. The awaited streams
    /// stop collecting work and write.
    ///
    /// A waker may be woken early. A position already armed is not armed again; a new waker
    /// replaces the last waker. An empty queue wakes nothing, and armed wakers are withdrawn when
    /// the queue is dropped.
    pub fn arm(&mut self, waker: &Waker) {
        let answers = !self.held.is_empty();
        if !self.free.is_empty() || answers && self.may_answer() {
            waker.wake_by_ref();
        }
        let Some(log) = &self.log else { return };
        if answers {
            // Woken by each extension of the lease, and by nothing when the lease runs out: a queue
            // that is drained, and armed again, does not spin.
            self.armed_to_answer.register_to_answer(log, waker);
        } else {
            self.armed_to_answer.withdraw();
        }
        for (lane, queue) in Lane::first(self.lanes.len()).zip(&mut self.lanes) {
            let Some(lowest) = queue.lowest() else { continue };
            // A waker parked at a position not yet reached is still parked there. If the position
            // is below `lowest`, the waker is woken early, and the queue is armed again.
            if queue.armed.parked_for(waker).is_none_or(|armed| armed > lowest) {
                queue.armed.register(log, lane, lowest, waker);
            }
        }
    }
}
