//! Waiting for durability: a [`Ticket`] for one transaction, a [`CommitQueue`] for many.
//!
//! **Answers by tickets alone.** Where the log has a lease ([`hyades_wal::AnswerLease`]), a
//! transaction without a record of its own is acknowledged only if the lease allows the answer,
//! asked after the read. The check is in the ticket, and no answer is without a ticket:
//!
//! - Closures, calls and open transactions, of sessions and of the pool, and attempts that never
//!   wait, commit or fail with a value: [`Tickets::issue`], after the end of the attempt
//!   (`database/{session,attempt,open}.rs`). A transaction that ran on a snapshot after conflicts
//!   ends there as well. [`Database::acknowledge`](crate::Database) waits for the ticket.
//! - Snapshots, reads and walks: `Session::ticket_of`. A walk shows rows to a closure before, as
//!   every transaction does; the call returns, or not, after the ticket.
//! - Posted calls, and calls at sites: the outcome has the ticket (`posted/reply.rs`).
//! - Errors without a ticket tell of no row: starvation, no room, misuse, a stopped log. The error
//!   of a closure or procedure, a duplicate key say, comes with the ticket.
//! - The panic of a closure is passed on as it is: the program's own.
//! - Digests, counts of rows, statistics, metrics: of the process, not of the database's contents
//!   for a client. Backups and checkpoints copy what is durable.
//! - A follower has no log, and no ticket waits: the state is as of an epoch, by design.
//!
//! The server replies by tickets, too (`session/conversation.rs`): in runs, jobs and scripts; a
//! reply that need not wait for the disk asks [`Ticket::may_answer`], and the reply of a blocking
//! command whose time is over has the ticket of a transaction that read nothing
//! ([`Session::ticket`](crate::Session::ticket)). INFO tells of the process.

use crate::erased::Answer;
use crate::error::Error;
use crate::logging::Needs;
use crate::retry::check_may_wait;
use crate::transaction_id::TransactionId;
use hyades_platform::callback;
use hyades_platform::epoch::EpochNumber;
use hyades_platform::sync::Unpoisoned;
use hyades_wal::{Awaited, Log, Lsn, Poisoned, StopKind};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// A pre-committed transaction: *acknowledged* once its own record, and every record it depends on,
/// is on disk.
///
/// Block with [`Ticket::wait`], await the ticket, or poll [`Ticket::is_acknowledged`]. Dropping a
/// ticket does not cancel the transaction: the transaction is in the log all the same.
///
/// The waker of an awaiting task is woken on a thread of the database. There the waker may hand the
/// task to another thread, but run no transaction, wait for no ticket and take no checkpoint: all
/// these end with [`Error::Misuse`](crate::Error::Misuse), since they would wait for the thread
/// they run on. A waker that panics is reported as an event and by a metric, and the database goes
/// on. A task has one waker parked at most; dropping a ticket withdraws the waker.
///
/// A ticket speaks for its own transaction. An earlier transaction of the same session, of which
/// the ticket's transaction has read nothing, may not be on disk yet; and a transaction that
/// changed nothing, and read nothing that is not on disk, is acknowledged at once. So keep each
/// ticket that matters, or push them into a [`CommitQueue`](crate::CommitQueue).
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
    awaited: Awaited,
    /// The transaction's epoch, and the stream and the end of its record.
    position: Option<(EpochNumber, usize, Lsn)>,
}

/// Returns the error for callers after the log has stopped. `only_read`: no record is missing, and
/// the callers may be sent to the new primary, if there is one.
fn stopped(poisoned: &Poisoned, only_read: bool) -> Error {
    match poisoned.kind {
        StopKind::Demoted { by } if only_read => Error::Demoted { by },
        _ => Error::OutcomeUnknown,
    }
}

/// References to the log move from a session's tickets to a [`CommitQueue`] and back in portions of
/// this size. Counted singly, each atomic operation would wait for the transaction's preceding
/// stores.
const HANDLE_BATCH: usize = 64;

/// Maximum number of portions of [`HANDLE_BATCH`] references kept for later tickets.
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

    /// Returns a portion given back before, or a new portion.
    fn take(&self, own: &Arc<Log>) -> Vec<Arc<Log>> {
        let kept = self.kept.lock().unpoisoned().pop();
        kept.unwrap_or_else(|| std::iter::repeat_n(own, HANDLE_BATCH).cloned().collect())
    }

    fn give_back(&self, spent: Vec<Arc<Log>>) {
        let mut kept = self.kept.lock().unpoisoned();
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
    /// Transactions that only read are acknowledged by a lease.
    leased: bool,
}

impl Tickets {
    pub fn new(handles: Option<Arc<LogHandles>>, once: bool) -> Self {
        let asynchronous = handles.as_ref().is_some_and(|handles| handles.asynchronous);
        let leased = handles.as_ref().is_some_and(|handles| handles.log.frontier().has_lease());
        let handles = handles.map(|handles| {
            let own = Arc::new(handles.log.clone());
            (handles, own)
        });
        Tickets { handles, spare: Vec::new(), once, asynchronous, leased }
    }

    #[inline]
    pub fn issue(&mut self, answer: &mut Answer) -> Ticket {
        let Answer { needs, position, .. } = answer;
        // A record that is not waited for proves nothing, either.
        let reads = self.leased && (position.is_none() || self.asynchronous);
        if self.asynchronous {
            *needs = Needs::default();
        }
        let log = match &self.handles {
            // Already acknowledged, and without an id.
            _ if needs.is_empty() && position.is_none() && !reads => None,
            Some((handles, own)) if !self.once => {
                if self.spare.is_empty() {
                    self.spare = handles.take(own);
                }
                self.spare.pop()
            }
            handles => handles.as_ref().map(|(_, own)| own.clone()),
        };
        let awaited = Awaited::new(std::mem::take(needs)).reading_if(reads);
        Ticket { log, awaited, position: *position }
    }
}

impl Ticket {
    /// Returns the transaction's id, for [`Until`](crate::Until) and `hyades recover --until`;
    /// `None` if the transaction wrote nothing, or without a log. A crash before the
    /// acknowledgement may leave the id without a transaction.
    pub fn transaction_id(&self) -> Option<TransactionId> {
        let (epoch, stream, lsn) = self.position?;
        let stream = self.log.as_ref()?.stream_id(stream).0;
        Some(TransactionId { epoch: epoch.0, stream, lsn })
    }

    /// The error if the log has stopped.
    fn stopped(&self, poisoned: &Poisoned) -> Error {
        stopped(poisoned, self.position.is_none())
    }

    /// Whether the transaction is acknowledged. Does not block.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] if the log failed before the acknowledgement; [`Error::Demoted`]
    /// if another process has become primary, and the transaction wrote nothing.
    pub fn is_acknowledged(&self) -> Result<bool, Error> {
        let reached = self.log.as_ref().map_or(Ok(true), |log| self.awaited.is_reached(log));
        reached.map_err(|poisoned| self.stopped(&poisoned))
    }

    /// Whether the acknowledgement depends on the log.
    pub(crate) fn needs_something(&self) -> bool {
        self.log.is_some() && (!self.awaited.needs().is_empty() || self.awaited.reads())
    }

    /// Whether an answer may be given now that does not wait for the acknowledgement: false while
    /// another process may be primary. For a server whose clients choose not to wait for the disk.
    #[doc(hidden)]
    pub fn may_answer(&self) -> bool {
        self.log.as_ref().is_none_or(|log| log.frontier().may_answer())
    }

    /// Blocks until the transaction is acknowledged.
    ///
    /// # Errors
    /// As for [`Ticket::is_acknowledged`]; [`Error::Misuse`] if the call would block in a waker.
    pub fn wait(self) -> Result<(), Error> {
        let Some(log) = &self.log else { return Ok(()) };
        if callback::is_on_database_thread() && !self.is_acknowledged()? {
            check_may_wait("a ticket was waited for")?;
        }
        self.awaited.wait(log).map_err(|poisoned| self.stopped(&poisoned))
    }
}

impl Future for Ticket {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { log, awaited, position } = &mut *self;
        let Some(log) = log else { return Poll::Ready(Ok(())) };
        awaited.poll(log, context).map_err(|poisoned| stopped(&poisoned, position.is_none()))
    }
}

/// A queue of transactions that wait for acknowledgement, each with an item to return on
/// acknowledgement.
///
/// A transaction is parked under one lane of the frontier that it still needs, by position, and
/// moves on when the position is reached. No transaction waits behind another.
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
    queue: hyades_wal::CommitQueue<T>,
    /// References of pushed tickets, see [`HANDLE_BATCH`].
    spent: Vec<Arc<Log>>,
}

impl<T> CommitQueue<T> {
    pub(crate) fn new(handles: Option<Arc<LogHandles>>) -> Self {
        let queue =
            hyades_wal::CommitQueue::new(handles.as_ref().map(|handles| handles.log.clone()));
        CommitQueue { handles, queue, spent: Vec::new() }
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
        match ticket.awaited.reads() {
            false => self.queue.push(ticket.awaited.needs_mut(), item),
            true => self.queue.push_reader(ticket.awaited.needs_mut(), item),
        }
    }

    /// The error if the log has stopped.
    fn stopped(&self, poisoned: &Poisoned) -> Error {
        stopped(poisoned, self.queue.only_reads())
    }

    /// Returns how many transactions wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no transaction waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the item of every transaction acknowledged by now, in any order, through
    /// `acknowledged`. Returns their number.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] if the log failed and some transactions can never be acknowledged;
    /// [`Error::Demoted`] if another process has become primary, and none of these has written.
    /// The items of acknowledged transactions have been returned before.
    pub fn drain(&mut self, acknowledged: impl FnMut(T)) -> Result<usize, Error> {
        self.queue.drain(acknowledged).map_err(|poisoned| self.stopped(&poisoned))
    }

    /// Blocks until [`CommitQueue::drain`] would make progress: until a position at which
    /// transactions are parked is reached, in any stream. A transaction that needs further lanes is
    /// then parked under one of them, so there may be nothing to return yet: wait in a loop.
    /// Returns at once if the queue is empty.
    ///
    /// # Errors
    /// As for [`CommitQueue::drain`], if the log failed and drain would find nothing;
    /// [`Error::Misuse`] in a waker.
    pub fn wait_for_one(&self) -> Result<(), Error> {
        check_may_wait("a commit queue was waited for")?;
        self.queue.wait_for_one().map_err(|poisoned| self.stopped(&poisoned))
    }

    /// Has `waker` woken once [`CommitQueue::drain`] would make progress, or the log fails; at once
    /// if already so. The streams that transactions wait for stop collecting work and write.
    ///
    /// For a thread that sleeps until any of several events: drain, arm, and sleep until woken. A
    /// waker may be woken early. A position for which the queue was armed already is not armed
    /// again; another waker takes the place of the last one. An empty queue wakes nothing, and
    /// dropping the queue withdraws every armed waker. The limits of a waker are listed at
    /// [`Ticket`].
    ///
    /// ```
    /// use hyades::{Database, Schema, Type};
    /// use std::{sync::Arc, task::{Wake, Waker}, thread::{self, Thread}};
    ///
    /// struct Unpark(Thread);
    /// impl Wake for Unpark {
    ///     fn wake(self: Arc<Self>) {
    ///         self.0.unpark();
    ///     }
    /// }
    /// # let dir = tempfile::tempdir()?;
    /// let mut builder = Database::builder();
    /// let names = builder.table(Schema::new("names").column("n", Type::Text).primary_key(&["n"]));
    /// let db = builder.open(dir.path())?;
    /// let (mut session, mut queue) = (db.session()?, db.commit_queue());
    /// let waker = Waker::from(Arc::new(Unpark(thread::current())));
    /// let (_, ticket) = session.submit(|tx| Ok(tx.insert(names, &["Ain".into()])?))?;
    /// queue.push(ticket, ());
    /// while queue.drain(drop)? == 0 {
    ///     queue.arm(&waker);
    ///     thread::park(); // until the waker is woken, or for another reason
    /// }
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn arm(&mut self, waker: &Waker) {
        self.queue.arm(waker);
    }
}
