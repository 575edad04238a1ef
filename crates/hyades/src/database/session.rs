//! The public session: transactions of one thread at a time.

use super::{DatabaseInner, Snapshot};
use crate::engine::snapshots::SnapshotState;
use crate::erased::{Answer, AnySession, KEPT_BYTES, Verdict};
use crate::error::{Abort, Error};
use crate::logging::Needs;
use crate::logging::record::RecordKind;
use crate::retry::OnThisThread;
use crate::storage::row::Row;
use crate::storage::schema::Columns;
use crate::storage::table::WalkPosition;
use crate::ticket::{Ticket, Tickets};
use crate::transaction::access::{Table, Transaction};
use crate::transaction::procedure::{ProcedureId, decode_result, encode_arguments};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Runs transactions for one thread at a time; see [`Database::session`](crate::Database::session).
/// Use one session for each thread. A database has 256 at most.
pub struct Session {
    pub(super) inner: Option<Box<dyn AnySession>>,
    pub(super) tickets: Tickets,
    pub(super) shared: Arc<DatabaseInner>,
    arguments: Vec<u8>,
    result: Vec<u8>,
    pub(super) answer: Answer,
    loan: Loan,
}

pub(super) fn some(inner: &mut Option<Box<dyn AnySession>>) -> &mut dyn AnySession {
    inner.as_deref_mut().expect("it is taken only when the session is dropped")
}

/// A snapshot that is closed when its only reader has ended, even by a panic.
struct OpenWhileRead<'d> {
    state: Arc<SnapshotState>,
    shared: &'d DatabaseInner,
}

impl Drop for OpenWhileRead<'_> {
    fn drop(&mut self) {
        self.shared.engine.close_snapshot(&self.state);
    }
}

/// The origin of a session, and its destination on drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loan {
    /// The session is the caller's own.
    None,
    /// Lent by the pool for a transaction.
    Transaction,
    /// Lent by the pool to a reader of a snapshot, perhaps for long.
    Reader,
}

impl Session {
    pub(super) fn new(inner: Box<dyn AnySession>, shared: Arc<DatabaseInner>, loan: Loan) -> Self {
        let order = (shared.keeps_order && loan == Loan::None).then(Needs::default);
        Session {
            inner: Some(inner),
            tickets: Tickets::new(shared.references.clone(), loan != Loan::None),
            shared,
            arguments: Vec::new(),
            result: Vec::new(),
            answer: Answer { order, ..Answer::default() },
            loan,
        }
    }

    /// Runs a closure like [`Database::transact`](crate::Database::transact), but does not wait:
    /// the result is pre-committed, and the ticket reports when it is acknowledged.
    ///
    /// A crash may lose a pre-committed transaction although a later transaction, which read
    /// nothing of the lost one, was acknowledged and survives: the log tracks the reads and writes
    /// of transactions, not the program's use of a result. So wait for the ticket before a result
    /// decides the writes of another transaction, or read the result again in the other
    /// transaction. This applies to every protocol whose streams are independent of each other
    /// (docs/protocols/levels.md), not to a single stream; and not to a session that keeps an order
    /// ([`Builder::session_order`], [`Session::in_order`]): a crash leaves a prefix of its
    /// transactions.
    ///
    /// [`Builder::session_order`]: crate::Builder::session_order
    ///
    /// # Errors
    /// As for [`Database::transact`](crate::Database::transact), but the ticket of a committed
    /// transaction reports [`Error::OutcomeUnknown`]. An error of the closure is returned once
    /// everything it was based on is on disk.
    pub fn submit<T>(
        &mut self,
        body: impl FnMut(&Transaction<'_>) -> Result<T, Error>,
    ) -> Result<(T, Ticket), Error> {
        let (result, ticket) = self.try_submit(body)?;
        match result {
            Ok(value) => Ok((value, ticket)),
            Err(error) => {
                ticket.wait()?;
                Err(error)
            }
        }
    }

    /// Like [`Session::submit`], with an error of any type: the inner result is the closure's, and
    /// the ticket is given in either case. An error, too, counts only once acknowledged: the data
    /// it was based on may be lost in a crash before.
    pub fn try_submit<T, E: From<Abort>>(
        &mut self,
        mut body: impl FnMut(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<(Result<T, E>, Ticket), Error> {
        let mut result = None;
        let Session { inner, answer, .. } = self;
        let mut body = |tx: &Transaction<'_>| {
            let value = body(tx);
            let verdict = if value.is_ok() { Verdict::Commit } else { Verdict::Abandon };
            result = Some(value);
            verdict
        };
        some(inner).run(None, &mut body, answer)?;
        Ok((result.expect("the body ran"), self.tickets.issue(answer)))
    }

    /// Calls a procedure without waiting, see [`Session::submit`]. [`Session::result`] decodes its
    /// result.
    ///
    /// ```
    /// use hyades::{Abort, Column, Database, Schema, Transaction, Type};
    /// # let dir = tempfile::tempdir()?;
    /// # let dir = dir.path();
    /// let mut builder = Database::builder();
    /// let schema = Schema::new("stock").column("item", Type::I64).column("count", Type::I64);
    /// let stock = builder.table(schema.primary_key(&["item"]));
    /// let add = builder.procedure("add", 1, move |tx: &Transaction<'_>, (item, n): (i64, i64)| {
    ///     let count = tx.get(stock, item)?.map_or(0, |row| row.get(Column::<i64>::at(1))) + n;
    ///     if count < 0 {
    ///         return Err(Abort::User(count));
    ///     }
    ///     tx.upsert(stock, &[item.into(), count.into()])?;
    ///     Ok(count)
    /// });
    /// let db = builder.open(dir)?;
    /// let mut session = db.session()?;
    /// let (outcome, ticket) = session.call(add, &(7i64, 5i64))?;
    /// assert_eq!(outcome, Ok(()));
    /// assert_eq!(session.result::<i64>()?, 5);
    /// ticket.wait()?; // only now it is on disk
    /// let (outcome, ticket) = session.call(add, &(7i64, -9i64))?;
    /// assert_eq!(outcome, Err(Abort::User(-4)));
    /// ticket.wait()?; // what the refusal was based on is on disk as well
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Misuse`] if the arguments cannot be encoded or the procedure is not this
    /// database's; otherwise as for [`Session::submit`].
    #[inline]
    pub fn call<A: Serialize + ?Sized>(
        &mut self,
        procedure: ProcedureId,
        arguments: &A,
    ) -> Result<(Result<(), Abort>, Ticket), Error> {
        self.call_as(procedure, arguments, None)
    }

    /// Like [`Session::call`], with this kind of record (feature `research`).
    ///
    /// # Errors
    /// [`Error::Misuse`] if the log was opened for data records only and `record` is another kind;
    /// otherwise as for [`Session::call`].
    #[cfg(feature = "research")]
    pub fn call_recorded<A: Serialize + ?Sized>(
        &mut self,
        procedure: ProcedureId,
        arguments: &A,
        record: RecordKind,
    ) -> Result<(Result<(), Abort>, Ticket), Error> {
        if self.shared.data_only && record != RecordKind::Data {
            return Err(Error::Misuse(
                "the log was opened for data records only: open it with \
                 Builder::record(RecordKind::Adaptive) or register a procedure as a command to \
                 mix them"
                    .to_string(),
            ));
        }
        self.call_as(procedure, arguments, Some(record))
    }

    fn call_as<A: Serialize + ?Sized>(
        &mut self,
        procedure: ProcedureId,
        arguments: &A,
        record: Option<RecordKind>,
    ) -> Result<(Result<(), Abort>, Ticket), Error> {
        let Session { inner, shared, arguments: bytes, result: value, answer, .. } = self;
        bytes.clear();
        encode_arguments(arguments, bytes)?;
        let (called, log_id, kind) = shared.procedures.get(procedure)?;
        // Inside a transaction the call must not wait for a site: the site may wait for the
        // transaction.
        if shared.posted.hands_over() && !OnThisThread::runs_any() {
            value.clear();
            let called = (procedure, record);
            let (outcome, ticket) =
                shared.posted.call_at_sites(called, bytes, &mut answer.order)?;
            let outcome = outcome.map(|result| *value = result);
            return Ok((outcome, ticket));
        }
        let kind = record.unwrap_or(kind);
        let logs_first = shared.logs_first;
        let Some(call) = called.call(log_id, bytes, logs_first) else {
            return Ok((Err(Abort::BadArguments), self.tickets.issue(&mut Answer::default())));
        };
        let mut outcome = Ok(());
        let mut body = |tx: &Transaction<'_>| {
            value.clear();
            outcome = called.run(tx, bytes, value);
            if outcome.is_ok() { Verdict::Commit } else { Verdict::Abandon }
        };
        some(inner).run(Some((call, kind)), &mut body, answer)?;
        if logs_first {
            called.learn(answer.draws);
            outcome = answer.refused.take().map_or(outcome, Err);
        }
        Ok((outcome, self.tickets.issue(answer)))
    }

    /// Reads a snapshot of the present, like [`Database::snapshot`](crate::Database::snapshot), but
    /// does not wait: the ticket reports when all data of the snapshot is on disk.
    ///
    /// # Errors
    /// As for [`Database::snapshot`](crate::Database::snapshot).
    pub fn snapshot<T>(
        &mut self,
        body: impl FnOnce(&Transaction<'_>) -> Result<T, Error>,
    ) -> Result<(T, Ticket), Error> {
        let shared = self.shared.clone();
        let open = OpenWhileRead { state: shared.engine.open_snapshot()?, shared: &shared };
        let (result, ticket) = self.read_as_of(&open.state, body)?;
        drop(open);
        match result {
            Ok(value) => Ok((value, ticket)),
            Err(error) => {
                ticket.wait()?;
                Err(error)
            }
        }
    }

    /// Reads an open snapshot, like [`Snapshot::try_read`], but does not wait: the ticket, given in
    /// any case, reports when all data of the snapshot is on disk.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the snapshot is another database's; otherwise as for
    /// [`Snapshot::try_read`].
    pub fn read<T, E: From<Abort>>(
        &mut self,
        snapshot: &Snapshot,
        body: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<(Result<T, E>, Ticket), Error> {
        if !snapshot.is_of(&self.shared) {
            return Err(Error::Misuse("the snapshot is another database's".to_string()));
        }
        self.read_as_of(snapshot.state()?, body)
    }

    /// Runs a body as of a snapshot, once.
    pub(super) fn read_as_of<T, E: From<Abort>>(
        &mut self,
        snapshot: &SnapshotState,
        body: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<(Result<T, E>, Ticket), Error> {
        let (mut body, mut result) = (Some(body), None);
        let mut body = |tx: &Transaction<'_>| {
            let body = body.take().expect("a snapshot is read once");
            result = Some(body(tx));
            Verdict::Commit
        };
        some(&mut self.inner).read_snapshot(snapshot, &mut body)?;
        let ticket = self.ticket_of(snapshot);
        Ok((result.expect("the body ran"), ticket))
    }

    /// The ticket of a reader of a snapshot.
    pub(super) fn ticket_of(&mut self, snapshot: &SnapshotState) -> Ticket {
        (self.answer.needs, self.answer.position) = (snapshot.needs(), None);
        self.answer.keep_order();
        self.tickets.issue(&mut self.answer)
    }

    /// Returns the ticket of a transaction that did nothing, for an answer that is given without a
    /// transaction: acknowledged as soon as the database may answer. At once, unless another
    /// process may have become primary of a replicated database.
    #[doc(hidden)]
    pub fn ticket(&mut self) -> Ticket {
        self.tickets.issue(&mut Answer::default())
    }

    /// Visits the next rows of a walk over a table, as of a snapshot.
    pub(super) fn walk(
        &mut self,
        snapshot: &SnapshotState,
        source: (Table, Columns),
        at: &mut WalkPosition,
        visit: &mut dyn FnMut(&Row<'_>),
    ) -> Result<(), Error> {
        some(&mut self.inner).walk_snapshot(snapshot, source, at, visit)
    }

    /// Decodes the result of the last procedure call.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the result is not an `R`.
    pub fn result<R: DeserializeOwned>(&self) -> Result<R, Error> {
        decode_result(&self.result)
    }

    /// Whether [`Session::free_unused`] may find something to free. Costs next to nothing.
    pub fn has_unused(&self) -> bool {
        let inner = self.inner.as_deref();
        self.has_large_room() || inner.is_some_and(AnySession::has_unused)
    }

    /// Frees memory that ended transactions have left, for a session that may be idle for long:
    /// deleted rows, of this session and of ended sessions, and the room of the session's largest
    /// transaction. A session that goes on running transactions frees deleted rows by itself.
    ///
    /// A deleted row can be freed a moment later, after its epoch (10 ms), and once no snapshot
    /// needs the row. So call this function every few milliseconds while [`Session::has_unused`],
    /// and less often while the calls return false: there was nothing to free. A call takes a few
    /// milliseconds at most. A large [`Session::result`] is gone afterwards.
    pub fn free_unused(&mut self) -> bool {
        let is_large = self.has_large_room();
        if self.arguments.capacity() > KEPT_BYTES {
            self.arguments = Vec::new();
        }
        if self.result.capacity() > KEPT_BYTES {
            self.result = Vec::new();
        }
        some(&mut self.inner).free_unused() || is_large
    }

    /// Whether the last call has needed much room for arguments, or for its result.
    fn has_large_room(&self) -> bool {
        self.arguments.capacity() > KEPT_BYTES || self.result.capacity() > KEPT_BYTES
    }

    /// Returns how many attempts of this session ended in a conflict.
    pub fn conflicts(&self) -> u64 {
        self.inner.as_ref().map_or(0, |inner| inner.conflicts())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(mut inner) = self.inner.take() else { return };
        let waits = self.loan == Loan::Transaction;
        if self.loan != Loan::None && !self.shared.closed.load(Ordering::Acquire) {
            inner.hand_over_garbage();
            return self.shared.pool.give_back(Some(inner), waits);
        }
        drop(inner);
        if self.loan != Loan::None {
            self.shared.pool.give_back(None, waits);
        }
    }
}
