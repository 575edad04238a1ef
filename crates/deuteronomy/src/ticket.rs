//! Waiting for durability: a [`Ticket`] for a single transaction, a [`CommitQueue`] for many.

use crate::error::Error;
use hyades_wal::{Awaited, Log, Needs, Poisoned};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A committed transaction, already visible to other transactions: *acknowledged* once its own
/// record, and all dependencies, are on disk.
///
/// Block with [`Ticket::wait`], await the ticket, or poll [`Ticket::is_acknowledged`]. Dropping a
/// ticket does not cancel the transaction.
#[must_use = "until its ticket is acknowledged a transaction may be lost in a crash"]
#[derive(Debug)]
pub struct Ticket {
    /// None if there is nothing to wait for. By a separate reference of the session: the log's own
    /// count lies where all threads read the log.
    log: Option<Arc<Log>>,
    awaited: Awaited,
}

/// The error for callers where the log has stopped.
fn unknown(_: Poisoned) -> Error {
    Error::OutcomeUnknown
}

impl Ticket {
    pub(crate) fn new(log: &Arc<Log>, needs: Needs) -> Self {
        let log = (!needs.is_empty()).then(|| Arc::clone(log));
        Self { log, awaited: Awaited::new(needs) }
    }

    /// Whether the transaction is acknowledged. Does not block.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] if the log failed before the acknowledgement.
    pub fn is_acknowledged(&self) -> Result<bool, Error> {
        self.log.as_ref().map_or(Ok(true), |log| self.awaited.is_reached(log)).map_err(unknown)
    }

    /// Blocks until the transaction is acknowledged.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] if the log failed before the acknowledgement.
    pub fn wait(self) -> Result<(), Error> {
        self.log.as_ref().map_or(Ok(()), |log| self.awaited.wait(log)).map_err(unknown)
    }
}

impl Future for Ticket {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { log, awaited } = &mut *self;
        match log {
            Some(log) => awaited.poll(log, context).map_err(unknown),
            None => Poll::Ready(Ok(())),
        }
    }
}

/// A queue of transactions waiting for acknowledgement, each with an item to return when
/// acknowledged. No transaction waits behind another.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// use hyades_deuteronomy::{Database, LogOptions, MemoryData, Options};
/// use std::sync::Arc;
///
/// let options = Options::new(LogOptions::new(vec![dir.path().to_owned()], 2));
/// let database = Database::open(options, Arc::new(MemoryData::new()))?;
/// let (mut session, mut queue) = (database.session()?, database.commit_queue());
/// for n in 0..100u8 {
///     let (_, ticket) = session.submit(|tx| tx.put(&[n], b"there"))?;
///     queue.push(ticket, n);
/// }
/// let mut acknowledged = Vec::new();
/// while !queue.is_empty() {
///     queue.wait_for_one()?;
///     queue.drain(|n| acknowledged.push(n))?; // whatever is acknowledged by now, in any order
/// }
/// assert_eq!(acknowledged.len(), 100);
/// # Ok(()) }
/// ```
pub struct CommitQueue<T>(hyades_wal::CommitQueue<T>);

impl<T> CommitQueue<T> {
    pub(crate) fn new(log: &Log) -> Self {
        Self(hyades_wal::CommitQueue::new(Some(log.clone())))
    }

    /// Adds a transaction.
    ///
    /// # Panics
    /// If the ticket belongs to another database.
    pub fn push(&mut self, mut ticket: Ticket, item: T) {
        let is_own = ticket.log.as_ref().is_none_or(|log| self.0.is_for(log));
        assert!(is_own, "a ticket goes to a queue of its own database");
        self.0.push(ticket.awaited.needs_mut(), item);
    }

    /// How many transactions wait.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no transaction waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the item of every transaction acknowledged by now, in any order, through
    /// `acknowledged`. Returns the number of items.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] if the log failed and some transactions can never be acknowledged.
    /// The items of acknowledged transactions have been returned before.
    pub fn drain(&mut self, acknowledged: impl FnMut(T)) -> Result<usize, Error> {
        self.0.drain(acknowledged).map_err(unknown)
    }

    /// Blocks until [`CommitQueue::drain`] would make progress; there may be nothing to return yet:
    /// wait in a loop. Returns at once if the queue is empty.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] if the log failed and drain would find nothing.
    pub fn wait_for_one(&self) -> Result<(), Error> {
        self.0.wait_for_one().map_err(unknown)
    }

    /// Has `waker` woken once [`CommitQueue::drain`] would make progress, or the log fails; at once
    /// if drain would make progress now. A queue is always armed with the same waker; the waker may
    /// be woken early.
    pub fn arm(&mut self, waker: &Waker) {
        self.0.arm(waker);
    }
}
