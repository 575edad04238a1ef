//! Sessions, which run transactions one after the other.

use crate::config::UpdateLogging;
use crate::error::{Abort, Error};
use crate::ticket::Ticket;
use crate::transaction::Transaction;
use crate::transaction_component::TransactionComponent;
use crate::transaction_component::work::Work;
use hyades_wal::{Log, Needs, Writer};
use std::sync::Arc;
use std::time::Duration;

/// A session looks for a less loaded stream after this many bytes, or a quarter of a buffer. The
/// fewer streams are written at a time, the fewer batches have to be written and synced.
const STREAK_BYTES: usize = 256 << 10;

/// After this many attempts a transaction claims the keys that others have kept it from writing:
/// one that takes no time comes through without that, and holds none up.
const ATTEMPTS_UNTIL_CLAIM: u64 = 2;

/// A thread's access to a database: it runs one transaction at a time.
pub struct Session {
    component: Arc<TransactionComponent>,
    /// For its tickets.
    log: Arc<Log>,
    writer: Writer,
    /// The stream of its records, and the bytes that it has written there, without the last record.
    stream: usize,
    streak_bytes: usize,
    work: Work,
    /// Behind the writer, and so dropped after it: there may be as few writers as places, and one
    /// that gets a place gets a writer.
    _place: SessionPlace,
}

/// A session's place among the announcements, until this is dropped.
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
        // First: there may be as few writers as sessions, and the error of these says more.
        let at = component.timestamps.enter().ok_or(Error::Sessions(sessions))?;
        let place = SessionPlace { component: Arc::clone(&component), at };
        let writer = component.log.writer()?;
        let (stream, work) = (writer.first_stream(), Work::new(at, component.log.streams()));
        let log = Arc::new(component.log.clone());
        Ok(Self { component, log, writer, stream, streak_bytes: 0, work, _place: place })
    }

    /// The ticket of a transaction that waits for this.
    fn ticket(&self, needs: Needs) -> Ticket {
        Ticket::new(&self.log, needs)
    }

    /// Runs a transaction until it commits, and waits until it is acknowledged.
    ///
    /// The closure is run again after each [`Abort`], so it should have no other effects. From the
    /// third time on it has claimed the keys that younger transactions have kept it from writing:
    /// these wait for it, so one that takes long comes through beside others that read its keys all
    /// the time. If it
    /// returns an error of its own, the transaction is aborted, and the error returned once
    /// everything that the closure has read is durable.
    ///
    /// # Errors
    /// What the closure returned; [`Error::Aborted`] after [`attempts`](crate::Options::attempts)
    /// attempts; [`Error::OutcomeUnknown`] if the log failed.
    pub fn execute<R, E: From<Error>>(
        &mut self,
        body: impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let (result, ticket) = self.submit(body)?;
        ticket.wait()?;
        Ok(result)
    }

    /// As [`execute`](Self::execute), without the wait: others see the transaction from now on, and
    /// the ticket says when it is acknowledged.
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

    /// Runs a transaction once. The inner result is its outcome, or why it was aborted.
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

    /// Lets others pass, the longer the more attempts were in vain.
    pub(crate) fn back_off(&self, attempts: u64) {
        if self.component.options.log.stepped {
        } else if attempts < 4 {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(20 * attempts.min(50)));
        }
    }

    /// Begins a transaction that is run once: a caller that wants to run it again after an
    /// [`Abort`] does so itself. Dropped, it is aborted.
    ///
    /// Where the budget of memory is exhausted by what is not committed, it answers
    /// [`Abort::Shed`] at once, and does not try again as [`execute`](Self::execute) and
    /// [`snapshot`](Self::snapshot) do. These keep their thread until there is room; this is for
    /// threads that run several transactions in turn, as asynchronous tasks do, and the one that
    /// is to leave room may be of the same thread: it would wait for itself. So let the others go
    /// on before you try again.
    ///
    /// # Errors
    /// [`Abort::Shed`]; [`Error::Timestamps`]; the log has stopped.
    pub fn begin(&mut self) -> Result<Transaction<'_>, Error> {
        self.component.begin(&mut self.work)?;
        Ok(Transaction::new(self))
    }

    /// What an operation works with.
    pub(crate) fn parts(&mut self) -> (&Arc<TransactionComponent>, &mut Work) {
        (&self.component, &mut self.work)
    }

    /// The hash of a key.
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.component.versions.hasher.hash(key)
    }

    /// The timestamp of what runs.
    pub(crate) fn timestamp(&self) -> u64 {
        self.work.ts()
    }

    /// Why what runs has to abort, if it has.
    pub(crate) fn failed(&self) -> Option<Abort> {
        self.work.failed()
    }

    /// W1 to W6.
    pub(crate) fn put(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), Error> {
        self.component.put(&mut self.work, key, value)?;
        self.log_at_once(key)
    }

    /// W6, where writes are logged at once: logs that of a key.
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

    /// C0: waits for room in the stream, or goes to one that has room.
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
