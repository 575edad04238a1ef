//! The public open transaction, which begins and ends by calls.

use super::Session;
use super::session::some;
use crate::erased::{Answer, AnyOpenTransaction, Verdict};
use crate::error::Error;
use crate::ticket::{Ticket, Tickets};
use crate::transaction::access::Transaction;

/// A transaction begun by [`Session::begin`]. A drop rolls the transaction back.
#[must_use = "a transaction that is dropped is rolled back"]
pub struct OpenTransaction<'s> {
    inner: Box<dyn AnyOpenTransaction + 's>,
    answer: &'s mut Answer,
    tickets: &'s mut Tickets,
}

impl Session {
    /// Begins a transaction that is ended by a call, for a program that cannot put the whole
    /// transaction into a closure: a front end that keeps a transaction open between the messages
    /// of a client.
    ///
    /// Unlike a closure the transaction does not run again after a conflict:
    /// [`OpenTransaction::commit`] returns [`Abort::Conflict`](crate::Abort::Conflict), and the
    /// program begins anew. Until the commit, the reads of the transaction may be inconsistent with
    /// each other. The calling thread can begin no other transaction of the database meanwhile. An
    /// open transaction keeps in memory what others remove
    /// ([`Builder::removed_limit`](crate::Builder::removed_limit)), and holds locks under
    /// [`Concurrency::NoWait`](crate::Concurrency::NoWait): end it soon.
    ///
    /// ```
    /// use hyades::{Abort, Database, Error, Schema, Type};
    /// # let dir = tempfile::tempdir()?;
    /// let mut builder = Database::builder();
    /// let names = builder.table(Schema::new("names").column("n", Type::Text).primary_key(&["n"]));
    /// let db = builder.open(dir.path())?;
    /// let mut session = db.session()?;
    /// let ticket = loop {
    ///     let open = session.begin()?;
    ///     if open.tx().get(names, "Ain")?.is_none() {
    ///         open.tx().insert(names, &["Ain".into()])?;
    ///     }
    ///     match open.commit() {
    ///         Err(Error::Aborted(Abort::Conflict)) => continue,
    ///         ended => break ended?,
    ///     }
    /// };
    /// ticket.wait()?; // only now it is on disk
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Misuse`] inside another transaction of this database; [`Error::Poisoned`] if the
    /// log has failed; [`Error::Aborted`] with a conflict if a transaction that takes turns did not
    /// get its turn.
    pub fn begin(&mut self) -> Result<OpenTransaction<'_>, Error> {
        let Session { inner, answer, tickets, .. } = self;
        Ok(OpenTransaction { inner: some(inner).begin()?, answer, tickets })
    }
}

impl OpenTransaction<'_> {
    /// The transaction's operations. What they return lives as long as the borrow. After
    /// [`Abort::Conflict`](crate::Abort::Conflict) the transaction cannot be committed.
    pub fn tx(&self) -> Transaction<'_> {
        Transaction(self.inner.access())
    }

    /// Commits the transaction: it is pre-committed, and the ticket reports when it is
    /// acknowledged.
    ///
    /// # Errors
    /// [`Error::Aborted`]: the transaction was rolled back. With a conflict: begin anew.
    pub fn commit(self) -> Result<Ticket, Error> {
        self.end(Verdict::Commit)
    }

    /// Rolls the transaction back. The ticket reports when all that the transaction has read is on
    /// disk. Where no result of the reads is used, a drop will do.
    ///
    /// # Errors
    /// [`Error::Aborted`] with a conflict: the reads of the transaction are not a state of the
    /// database.
    pub fn roll_back(self) -> Result<Ticket, Error> {
        self.end(Verdict::Abandon)
    }

    fn end(self, verdict: Verdict) -> Result<Ticket, Error> {
        let OpenTransaction { inner, answer, tickets } = self;
        inner.end(verdict, answer)?;
        Ok(tickets.issue(answer))
    }
}
