//! Waiting for durability: a [`Ticket`] for one transaction, a [`CommitQueue`] for many.

mod arming;

use crate::erased::Answer;
use crate::error::Error;
use crate::logging::{Needs, first_unmet, is_met};
use crate::transaction_id::TransactionId;
use hyades_platform::epoch::EpochNumber;
use hyades_wal::{Lane, Log, Lsn, ParkedWaker};
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

/// A pre-committed transaction: it is *acknowledged* once its own record, and everything it depends
/// on, is on disk.
///
/// Block with [`Ticket::wait`], await it, or poll [`Ticket::is_acknowledged`]. Dropping a ticket
/// does not cancel the transaction, which is in the log all the same.
///
/// ```
/// use hyades::{Database, Schema, Type};
/// # let dir = tempfile::tempdir()?;
/// # let dir = dir.path();
/// let mut builder = Database::builder();
/// let schema = Schema::new("names").column("name", Type::Text).primary_key(&["name"]);
/// let names = builder.table(schema);
/// let db = builder.open(dir)?;
/// let mut session = db.session()?;
/// let (_, ticket) = session.submit(|tx| Ok(tx.insert(names, &["Aldebaran".into()])?))?;
/// // Others see it from now on.
/// while !ticket.is_acknowledged()? {
///     std::thread::yield_now(); // something better to do
/// }
/// // Or block with `ticket.wait()?`, or `ticket.await?`.
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[must_use = "until its ticket is acknowledged a transaction may be lost in a crash"]
#[derive(Debug)]
pub struct Ticket {
    log: Option<Arc<Log>>,
    needs: Needs,
    /// The transaction's epoch, and the stream and the end of its record.
    position: Option<(EpochNumber, usize, Lsn)>,
    /// The waker of the task that awaits it.
    parked: ParkedWaker,
}

/// The first position that the transaction still lacks.
fn unmet(log: &Log, needs: &Needs) -> Option<(Lane, u64)> {
    first_unmet(|lane| log.frontier().at(lane), needs.iter())
}

fn reached(log: &Log, needs: &Needs) -> bool {
    unmet(log, needs).is_none()
}

/// References to the log move from a session's tickets to a [`CommitQueue`] and back in portions of
/// this size. Counted one at a time, each atomic operation would wait for the transaction's
/// preceding stores.
const HANDLE_BATCH: usize = 64;

/// Maximum number of portions of [`HANDLE_BATCH`] references that are kept for later tickets.
const MAX_BATCHES: usize = 256;

/// The log as a database's tickets refer to it, and unused references.
pub(crate) struct LogHandles {
    log: Log,
    kept: Mutex<Vec<Vec<Arc<Log>>>>,
    /// Transactions are acknowledged before they are on disk.
    asynchronous: bool,
}

impl LogHandles {
    pub fn new(log: Log, asynchronous: bool) -> Self {
        LogHandles { log, kept: Mutex::default(), asynchronous }
    }

    /// Returns a portion that was given back, or a new one.
    fn take(&self, own: &Arc<Log>) -> Vec<Arc<Log>> {
        let kept = self.kept.lock().expect("no holder panics").pop();
        kept.unwrap_or_else(|| std::iter::repeat_n(own, HANDLE_BATCH).cloned().collect())
    }

    fn give_back(&self, spent: Vec<Arc<Log>>) {
        let mut kept = self.kept.lock().expect("no holder panics");
        if kept.len() < MAX_BATCHES {
            kept.push(spent);
        }
    }
}

/// Issues the tickets of a session.
pub(crate) struct Tickets {
    /// With an `Arc` of the session's own: its reference count stays in the cache of the session's
    /// core.
    handles: Option<(Arc<LogHandles>, Arc<Log>)>,
    /// References for the next tickets.
    spare: Vec<Arc<Log>>,
    /// The session runs a single transaction.
    once: bool,
    asynchronous: bool,
}

impl Tickets {
    pub fn new(handles: Option<Arc<LogHandles>>, once: bool) -> Self {
        let asynchronous = handles.as_ref().is_some_and(|handles| handles.asynchronous);
        let handles = handles.map(|handles| {
            let own = Arc::new(handles.log.clone());
            (handles, own)
        });
        Tickets { handles, spare: Vec::new(), once, asynchronous }
    }

    #[inline]
    pub fn issue(&mut self, answer: &mut Answer) -> Ticket {
        let Answer { needs, position, .. } = answer;
        if self.asynchronous {
            *needs = Needs::default();
        }
        let log = match &self.handles {
            // Already acknowledged, and without an id.
            _ if needs.is_empty() && position.is_none() => None,
            Some((handles, own)) if !self.once => {
                if self.spare.is_empty() {
                    self.spare = handles.take(own);
                }
                self.spare.pop()
            }
            handles => handles.as_ref().map(|(_, own)| own.clone()),
        };
        let parked = ParkedWaker::default();
        Ticket { log, needs: std::mem::take(needs), position: *position, parked }
    }
}

impl Ticket {
    /// Returns the transaction's id, for [`Until`](crate::Until) and `hyades recover --until`;
    /// `None` if it wrote nothing, or without a log. A crash before the acknowledgement may leave
    /// the id without a transaction.
    pub fn transaction_id(&self) -> Option<TransactionId> {
        let (epoch, stream, lsn) = self.position?;
        let stream = self.log.as_ref()?.stream_id(stream).0;
        Some(TransactionId { epoch: epoch.0, stream, lsn })
    }

    /// Whether the transaction is acknowledged. Does not block.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] if the log failed before it was.
    pub fn is_acknowledged(&self) -> Result<bool, Error> {
        let Some(log) = &self.log else { return Ok(true) };
        if reached(log, &self.needs) {
            return Ok(true);
        }
        // The failure is recorded after the last successful sync, so the frontier is read again.
        if log.poisoned().is_some() && !reached(log, &self.needs) {
            return Err(Error::OutcomeUnknown);
        }
        // Streams state their marks on demand.
        for (lane, number) in self.needs.iter() {
            log.request(lane, number);
        }
        Ok(false)
    }

    /// Whether its acknowledgement depends on the log.
    pub(crate) fn needs_something(&self) -> bool {
        self.log.is_some() && !self.needs.is_empty()
    }

    /// Blocks until the transaction is acknowledged.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] if the log failed before it was.
    pub fn wait(self) -> Result<(), Error> {
        if let Some(log) = &self.log {
            while let Some((lane, lsn)) = unmet(log, &self.needs) {
                log.wait(lane, lsn).map_err(|_| Error::OutcomeUnknown)?;
            }
        }
        Ok(())
    }
}

impl Future for Ticket {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.is_acknowledged() {
            Ok(false) => {
                let Self { log, needs, parked, .. } = &mut *self;
                let log = log.as_ref().expect("without a log it is acknowledged");
                match unmet(log, needs) {
                    // Woken when this slot has got there, to look for the next.
                    Some((lane, lsn)) => parked.register(log, lane, lsn, context.waker()),
                    None => context.waker().wake_by_ref(),
                }
                Poll::Pending
            }
            Ok(true) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

/// A transaction that waits for this position, and then for what `needs` holds.
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
    /// Those that need nothing else, by ascending position: nearly all, since a session's own
    /// records arrive in this order.
    last: VecDeque<(Lsn, T)>,
    /// The highest position that was ever in `last`.
    highest: Lsn,
    /// Those that need further lanes and arrived by ascending position: mostly under the stream of
    /// their own record.
    first: VecDeque<ParkedTicket<T>>,
    /// Those that need further lanes and arrived in another order.
    others: BinaryHeap<ParkedTicket<T>>,
    /// The position that the waker was last armed for, see [`CommitQueue::arm`].
    armed: Lsn,
}

impl<T> WaitQueue<T> {
    fn new() -> Self {
        WaitQueue {
            armed: 0,
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

    /// Removes a transaction that needs further lanes and whose position here is reached.
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

    /// Returns the lowest position that a transaction waits for.
    fn lowest(&self) -> Option<Lsn> {
        let (last, first, others) = (self.last.front(), self.first.front(), self.others.peek());
        let others = first.into_iter().chain(others).map(|parked| parked.lsn);
        last.map(|last| last.0).into_iter().chain(others).min()
    }
}

/// A queue of transactions that wait for acknowledgement, each with an item to return when it is
/// acknowledged.
///
/// A transaction is parked under one lane of the frontier that it still needs, by position, and
/// moves on when that is reached. None waits behind another.
///
/// ```
/// use hyades::{Database, Schema, Type};
/// # let dir = tempfile::tempdir()?;
/// # let dir = dir.path();
/// let mut builder = Database::builder();
/// let numbers = builder.table(Schema::new("numbers").column("n", Type::I64).primary_key(&["n"]));
/// let db = builder.open(dir)?;
/// let (mut session, mut queue) = (db.session()?, db.commit_queue());
/// let mut sum = 0;
/// for n in 1..=100i64 {
///     let (_, ticket) = session.submit(|tx| Ok(tx.insert(numbers, &[n.into()])?))?;
///     queue.push(ticket, n);
///     queue.drain(|n| sum += n)?; // whatever is acknowledged by now, in any order
/// }
/// while !queue.is_empty() {
///     queue.wait_for_one()?;
///     queue.drain(|n| sum += n)?;
/// }
/// assert_eq!(sum, 5050);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct CommitQueue<T> {
    handles: Option<Arc<LogHandles>>,
    lanes: Vec<WaitQueue<T>>,
    /// Items of transactions that wait for nothing.
    free: Vec<T>,
    /// References of tickets that were pushed, see [`HANDLE_BATCH`].
    spent: Vec<Arc<Log>>,
    len: usize,
}

impl<T> CommitQueue<T> {
    pub(crate) fn new(handles: Option<Arc<LogHandles>>) -> Self {
        let lanes = handles.as_ref().map_or(0, |handles| handles.log.lanes());
        let lanes = (0..lanes).map(|_| WaitQueue::new()).collect();
        CommitQueue { handles, lanes, free: Vec::new(), spent: Vec::new(), len: 0 }
    }

    fn log(&self) -> Option<&Log> {
        self.handles.as_ref().map(|handles| &handles.log)
    }

    /// Adds a transaction.
    ///
    /// # Panics
    /// If the ticket belongs to another database.
    pub fn push(&mut self, mut ticket: Ticket, item: T) {
        if let Some(log) = ticket.log.take() {
            let own = self.handles.as_ref().filter(|own| own.log.is(&log));
            let own = own.expect("a ticket goes to a queue of its own database");
            self.spent.push(log);
            if self.spent.len() >= HANDLE_BATCH {
                let room = Vec::with_capacity(HANDLE_BATCH);
                own.give_back(std::mem::replace(&mut self.spent, room));
            }
        }
        self.len += 1;
        if let Some(item) = self.park(&mut ticket.needs, item) {
            self.free.push(item);
        }
    }

    /// Parks the item under a lane that it still needs; returns it if it needs none.
    #[inline(always)]
    fn park(&mut self, needs: &mut Needs, item: T) -> Option<T> {
        if let Some(handles) = &self.handles {
            while let Some((lane, lsn)) = needs.pop() {
                if !is_met(handles.log.frontier().at(lane), lsn) {
                    self.lanes[lane.index()].park(lsn, needs, item);
                    return None;
                }
            }
        }
        Some(item)
    }

    /// Returns how many transactions wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no transaction waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the item of every transaction acknowledged by now, in any order, through
    /// `acknowledged`. Returns their number.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] if the log failed and some transactions can never be acknowledged.
    /// The items of acknowledged ones have been returned before.
    pub fn drain(&mut self, mut acknowledged: impl FnMut(T)) -> Result<usize, Error> {
        let poisoned = self.log().is_some_and(|log| log.poisoned().is_some());
        let mut done = self.free.len();
        self.free.drain(..).for_each(&mut acknowledged);
        for lane in Lane::first(self.lanes.len()) {
            let at = lane.index();
            let reached = self.log().expect("there are lanes").frontier().at(lane);
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
            if let (Some(lsn), Some(log)) = (self.lanes[at].lowest(), self.log()) {
                log.request(lane, lsn);
            }
        }
        self.len -= done;
        if poisoned && self.len > 0 {
            return Err(Error::OutcomeUnknown);
        }
        Ok(done)
    }

    /// Blocks until [`CommitQueue::drain`] would make progress: until a position at which
    /// transactions are parked is reached, in any stream. A transaction that needs further lanes is
    /// then parked under one of those, so there may be nothing to return yet: wait in a loop.
    /// Returns at once if the queue is empty.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] if the log failed and drain would find nothing.
    pub fn wait_for_one(&self) -> Result<(), Error> {
        if !self.free.is_empty() {
            return Ok(());
        }
        let Some(log) = self.log() else { return Ok(()) };
        let lanes = Lane::first(self.lanes.len()).zip(&self.lanes);
        let lowest = lanes.map(|(lane, queue)| Some((lane, queue.lowest()?)));
        // Waits for all lanes: the one that most transactions wait for may be stalled.
        let wanted: SmallVec<[(Lane, u64); 16]> = lowest.flatten().collect();
        log.wait_any(&wanted).map_err(|_| Error::OutcomeUnknown)
    }
}
