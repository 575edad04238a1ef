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

/// A transaction waiting for position `lsn`, then for the entries of `needs`.
struct ParkedTicket<T> {
    lsn: Lsn,
    needs: Needs,
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
    /// Transactions with no further needs, by ascending position: nearly all, since a session's own
    /// records arrive in ascending order.
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
    fn park(&mut self, lsn: Lsn, needs: &mut Needs, item: T) {
        if needs.is_empty() && lsn >= self.highest {
            self.highest = lsn;
            self.last.push_back((lsn, item));
        } else {
            let parked = ParkedTicket { lsn, needs: std::mem::take(needs), item };
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
/// when the position is reached. No transaction waits behind another.
pub struct CommitQueue<T> {
    /// None if nothing is ever waited for.
    log: Option<Log>,
    lanes: Vec<WaitQueue<T>>,
    /// Items of transactions with nothing to wait for.
    free: Vec<T>,
    len: usize,
}

impl<T> CommitQueue<T> {
    /// Makes an empty queue for transactions of a log; without a log, for transactions with nothing
    /// to wait for.
    pub fn new(log: Option<Log>) -> Self {
        let lanes = log.as_ref().map_or(0, Log::lanes);
        let lanes = (0..lanes).map(|_| WaitQueue::new()).collect();
        CommitQueue { log, lanes, free: Vec::new(), len: 0 }
    }

    /// Whether the queue is for transactions of `log`.
    #[inline]
    pub fn is_for(&self, log: &Log) -> bool {
        self.log.as_ref().is_some_and(|own| own.is(log))
    }

    /// Adds a transaction with its needs; leaves `needs` empty.
    #[inline]
    pub fn push(&mut self, needs: &mut Needs, item: T) {
        self.len += 1;
        if let Some(item) = self.park(needs, item) {
            self.free.push(item);
        }
    }

    /// Parks the item under a still needed lane; returns the item if no lane is needed.
    #[inline(always)]
    fn park(&mut self, needs: &mut Needs, item: T) -> Option<T> {
        if let Some(log) = &self.log {
            while let Some((lane, lsn)) = needs.pop() {
                if !is_met(log.frontier().at(lane), lsn) {
                    self.lanes[lane.index()].park(lsn, needs, item);
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
                if let Some(item) = self.park(&mut parked.needs, parked.item) {
                    acknowledged(item);
                    done += 1;
                }
            }
            if let (Some(lsn), Some(log)) = (self.lanes[at].lowest(), &self.log) {
                log.request(lane, lsn);
            }
        }
        self.len -= done;
        match poisoned {
            Some(cause) if self.len > 0 => Err(cause),
            _ => Ok(done),
        }
    }

    /// Blocks until [`CommitQueue::drain`] would make progress: until a position with parked
    /// transactions is reached, in any stream. A transaction with further needs is then parked
    /// under the next lane, so there may be nothing to return yet: wait in a loop. Returns at once
    /// if the queue is empty.
    ///
    /// # Errors
    /// The log stopped, and drain would find nothing.
    pub fn wait_for_one(&self) -> Result<(), Poisoned> {
        if !self.free.is_empty() {
            return Ok(());
        }
        let Some(log) = &self.log else { return Ok(()) };
        let lanes = Lane::first(self.lanes.len()).zip(&self.lanes);
        let lowest = lanes.map(|(lane, queue)| Some((lane, queue.lowest()?)));
        // Waits for all lanes: the lane with most waiting transactions may be stalled.
        let wanted: SmallVec<[(Lane, u64); 16]> = lowest.flatten().collect();
        log.wait_any(&wanted)
    }

    /// Has `waker` woken once [`CommitQueue::drain`] would make progress, or the log stops; at once
    /// if drain would make progress now. The awaited streams stop collecting work and write.
    ///
    /// A waker may be woken early. A position already armed is not armed again; a new waker
    /// replaces the last waker. An empty queue wakes nothing, and armed wakers are withdrawn when
    /// the queue is dropped.
    pub fn arm(&mut self, waker: &Waker) {
        if !self.free.is_empty() {
            waker.wake_by_ref();
        }
        let Some(log) = &self.log else { return };
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
