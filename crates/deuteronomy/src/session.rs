//! Sessions, for running transactions in sequence.

use crate::config::UpdateLogging;
use crate::error::{Abort, Error};
use crate::ticket::Ticket;
use crate::transaction::Transaction;
use crate::transaction_component::TransactionComponent;
use crate::transaction_component::work::Work;
use hyades_wal::{Log, Needs, Writer};
use std::sync::Arc;
use std::time::Duration;

/// The bytes after which a session looks for a less loaded stream, or a quarter of a buffer. The
/// fewer streams are written at a time, the fewer batches have to be written and synced.
const STREAK_BYTES: usize = 256 << 10;

/// The number of attempts after which a transaction claims the keys that other transactions have
/// kept it from writing: a short transaction succeeds without claims, and holds none up.
const ATTEMPTS_UNTIL_CLAIM: u64 = 2;

/// A thread's access to a database: a session runs a single transaction at a time.
pub struct Session {
    component: Arc<TransactionComponent>,
    /// For the session's tickets.
    log: Arc<Log>,
    writer: Writer,
    /// The stream of the session's records, and the bytes written there, without the last record.
    stream: usize,
    streak_bytes: usize,
    work: Work,
    /// Behind the writer, and so dropped after the writer: there may be as few writers as places,
    /// and a session with a place gets a writer.
    _place: SessionPlace,
}

/// A session's place among the announcements, until the value is dropped.
struct SessionPlace {
    component: Arc<TransactionComponent>,
    at: usize,
}

impl Drop for SessionPlace {
    fn drop(&mut self) {
        self.component.timestamps.leave(self.at);
    }
}

impl Session {
    pub(crate) fn new(component: Arc<TransactionComponent>) -> Result<Self, Error> {
        let sessions = component.options.sessions;
        // First: there may be as few writers as sessions, and the error about sessions says more.
        let at = component.timestamps.enter().ok_or(Error::Sessions(sessions))?;
        let place = SessionPlace { component: Arc::clone(&component), at };
        let writer = component.log.writer()?;
        let (stream, work) = (writer.first_stream(), Work::new(at, component.log.streams()));
        let log = Arc::new(component.log.clone());
        Ok(Self { component, log, writer, stream, streak_bytes: 0, work, _place: place })
    }

    /// Returns the ticket of a transaction with `needs`.
    fn ticket(&self, needs: Needs) -> Ticket {
        Ticket::new(&self.log, needs)
    }

    /// Runs a transaction until the commit, and waits for the acknowledgement.
    ///
    /// The closure is run again after each [`Abort`], so should have no other effects. From the
    /// third run on the transaction has claimed the keys that younger transactions have kept it
    /// from writing: younger transactions wait for the claim, so a long transaction succeeds beside
    /// constant readers of its keys. If the closure returns an error of its own, the transaction is
    /// aborted, and the error returned once everything read by the closure is durable.
    ///
    /// # Errors
    /// The closure's error; [`Error::Aborted`] after [`attempts`](crate::Options::attempts)
    /// attempts; [`Error::OutcomeUnknown`] if the log failed.
    pub fn execute<R, E: From<Error>>(
        &mut self,
        body: impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let (result, ticket) = self.submit(body)?;
        ticket.wait()?;
        Ok(result)
    }

    /// As [`execute`](Self::execute), without the wait: other transactions see the transaction from
    /// now on, and the ticket says when the transaction is acknowledged.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn submit<R, E: From<Error>>(
        &mut self,
        mut body: impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<(R, Ticket), E> {
        self.work.claims.forget();
        for attempt in 1.. {
            let abort = match self.attempt(&mut body, attempt > ATTEMPTS_UNTIL_CLAIM)? {
                Ok(done) => return Ok(done),
                Err(abort) => abort,
            };
            if attempt >= self.component.options.attempts {
                return Err(Error::Aborted(abort).into());
            }
            self.back_off(attempt);
        }
        unreachable!("attempts are counted in 64 bits")
    }

    /// Runs a transaction once. The inner result is the outcome, or the cause of the abort.
    fn attempt<R, E: From<Error>>(
        &mut self,
        body: &mut impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
        claims: bool,
    ) -> Result<Result<(R, Ticket), Abort>, E> {
        let mut transaction = match self.begin() {
            Err(Error::Aborted(abort)) => return Ok(Err(abort)),
            begun => begun?,
        };
        if claims {
            match transaction.claim() {
                Err(Error::Aborted(abort)) => return Ok(Err(abort)),
                claimed => claimed?,
            }
        }
        let result = body(&mut transaction);
        if let Some(abort) = transaction.failed() {
            return Ok(Err(abort));
        }
        match result {
            Ok(result) => Ok(Ok((result, transaction.commit()?))),
            Err(error) => {
                transaction.abort().wait()?;
                Err(error)
            }
        }
    }

    /// Lets other transactions pass, the longer the more attempts were in vain.
    pub(crate) fn back_off(&self, attempts: u64) {
        if self.component.options.log.stepped {
        } else if attempts < 4 {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(20 * attempts.min(50)));
        }
    }

    /// Begins a transaction for a single run: the caller runs the transaction again after an
    /// [`Abort`] if wanted. A dropped transaction is aborted.
    ///
    /// Where the budget of memory is exhausted by uncommitted writes, `begin` answers
    /// [`Abort::Shed`] at once, without the retries of [`execute`](Self::execute) and
    /// [`snapshot`](Self::snapshot). Those two keep their thread until there is room; `begin` is
    /// for threads with several transactions in turn, as in asynchronous tasks, and the transaction
    /// due to leave room may be of the same thread: the thread would wait for itself. So let the
    /// other transactions go on before you try again.
    ///
    /// # Errors
    /// [`Abort::Shed`]; [`Error::Timestamps`]; the log has stopped.
    pub fn begin(&mut self) -> Result<Transaction<'_>, Error> {
        self.component.begin(&mut self.work)?;
        Ok(Transaction::new(self))
    }

    /// The parts for an operation.
    pub(crate) fn parts(&mut self) -> (&Arc<TransactionComponent>, &mut Work) {
        (&self.component, &mut self.work)
    }

    /// The hash of a key.
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.component.versions.hasher.hash(key)
    }

    /// The timestamp of the running transaction.
    pub(crate) fn timestamp(&self) -> u64 {
        self.work.ts()
    }

    /// The cause of an abort of the running transaction, if due.
    pub(crate) fn failed(&self) -> Option<Abort> {
        self.work.failed()
    }

    /// W1 to W6.
    pub(crate) fn put(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), Error> {
        self.component.put(&mut self.work, key, value)?;
        self.log_at_once(key)
    }

    /// W6, where writes are logged at once: logs the write of a key.
    fn log_at_once(&mut self, key: &[u8]) -> Result<(), Error> {
        if self.component.options.update_logging == UpdateLogging::AtCommit {
            return Ok(());
        }
        match self.work.stream() {
            None => self.make_room(),
            Some(own) => {
                self.writer.wait_for_room(own);
            }
        }
        self.component.log_write(&mut self.work, &mut self.writer, self.stream, key)
    }

    /// C0 to C7.
    pub(crate) fn commit(&mut self) -> Result<Ticket, Error> {
        match self.work.stream() {
            Some(own) => {
                self.writer.wait_for_room(own);
            }
            None if self.component.has_record(&self.work) => self.make_room(),
            None => {}
        }
        let needs = self.component.commit(&mut self.work, &mut self.writer, self.stream)?;
        Ok(self.ticket(needs))
    }

    /// A1 to A4.
    pub(crate) fn abort(&mut self) -> Ticket {
        let needs = self.component.abort(&mut self.work);
        self.ticket(needs)
    }

    /// The same, if a transaction or a snapshot is active.
    pub(crate) fn abort_active(&mut self) {
        if self.work.is_active() {
            drop(self.component.abort(&mut self.work));
        }
    }

    /// C0: waits for room in the stream, or goes to a stream with room.
    fn make_room(&mut self) {
        self.streak_bytes += self.work.last_logged();
        if self.streak_bytes >= STREAK_BYTES.min(self.log.buffer_bytes() / 4) {
            self.streak_bytes = 0;
            self.stream = self.writer.choose_stream(self.stream, true).stream;
        } else {
            self.writer.wait_for_room(self.stream);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Its `Transaction` was leaked.
        self.abort_active();
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
