//! Transactions of a thread that must not wait.

use super::Session;
use super::session::some;
use crate::erased::{AttemptEnd, Verdict};
use crate::error::{Abort, Error};
use crate::ticket::Ticket;
use crate::transaction::access::Transaction;

/// How [`Session::attempt`] has ended.
#[derive(Debug)]
pub enum Attempt<T, E> {
    /// The closure has returned a value, and the transaction is pre-committed.
    Committed(T, Ticket),
    /// The closure has returned an error, and its changes were rolled back. The ticket reports when
    /// everything that the error was based on is on disk.
    Abandoned(E, Ticket),
    /// The attempt met a conflict, or another transaction that has starved runs alone: try again
    /// later.
    Conflict,
    /// Nothing was run: the log, or a checkpoint, has no room. Try again once a transaction that is
    /// waiting has been acknowledged.
    NoRoom,
}

impl Session {
    /// Runs a closure as a transaction, at most once, for a thread that has other work meanwhile:
    /// it neither retries nor waits for a device. (If several threads fill the log at the same
    /// moment, or the transaction is larger than the room that is left, it may wait for a sync.)
    ///
    /// ```
    /// use hyades::{Abort, Attempt, Database, Schema, Type};
    /// # let dir = tempfile::tempdir()?;
    /// let mut builder = Database::builder();
    /// let names = builder.table(Schema::new("names").column("n", Type::Text).primary_key(&["n"]));
    /// let db = builder.open(dir.path())?;
    /// let (mut session, mut queue) = (db.session()?, db.commit_queue());
    /// match session.attempt(|tx| tx.insert(names, &["Ain".into()]))? {
    ///     Attempt::Committed(_, ticket) => queue.push(ticket, "inserted"),
    ///     Attempt::Abandoned(Abort::DuplicateKey { .. }, ticket) => queue.push(ticket, "known"),
    ///     Attempt::Abandoned(abort, _) => return Err(abort.into()),
    ///     Attempt::Conflict | Attempt::NoRoom => println!("later"),
    /// }
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Poisoned`] if the log has failed; [`Error::Misuse`] inside another transaction of
    /// this database.
    pub fn attempt<T, E: From<Abort>>(
        &mut self,
        mut body: impl FnMut(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<Attempt<T, E>, Error> {
        let mut result = None;
        let Session { inner, answer, .. } = self;
        let mut body = |tx: &Transaction<'_>| {
            let value = body(tx);
            let verdict = if value.is_ok() { Verdict::Commit } else { Verdict::Abandon };
            result = Some(value);
            verdict
        };
        match some(inner).run_once(&mut body, answer)? {
            AttemptEnd::Conflict => return Ok(Attempt::Conflict),
            AttemptEnd::NoRoom => return Ok(Attempt::NoRoom),
            AttemptEnd::Done => {}
        }
        let ticket = self.tickets.issue(&mut self.answer);
        Ok(match result.expect("the body ran") {
            Ok(value) => Attempt::Committed(value, ticket),
            Err(error) => Attempt::Abandoned(error, ticket),
        })
    }

    /// Ends a turn of an event loop: the transactions of the next turn are logged to the stream
    /// that is free first, while the session's stream is being written. A thread that waits for
    /// each transaction, or keeps many in flight, gains nothing by the call.
    pub fn turn(&mut self) {
        some(&mut self.inner).leave_busy_stream();
    }
}
