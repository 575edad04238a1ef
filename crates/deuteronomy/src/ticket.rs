//! Waiting for durability.

use crate::error::Error;
use hyades_wal::{Lane, Log, Needs, ParkedWaker, first_unmet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A committed transaction, which others see already: it is *acknowledged* once its own record, and
/// everything it depends on, is on disk.
///
/// Block with [`Ticket::wait`], await it, or poll [`Ticket::is_acknowledged`]. Dropping a ticket
/// does not cancel the transaction.
#[must_use = "until its ticket is acknowledged a transaction may be lost in a crash"]
#[derive(Debug)]
pub struct Ticket {
    /// None if there is nothing to wait for. By a reference of the session's own: that of the log
    /// is counted where all threads read it.
    log: Option<Arc<Log>>,
    needs: Needs,
    /// The waker of the task that awaits it.
    parked: ParkedWaker,
}

fn unmet(log: &Log, needs: &Needs) -> Option<(Lane, u64)> {
    first_unmet(|lane| log.frontier().at(lane), needs.iter())
}

impl Ticket {
    pub(crate) fn new(log: &Arc<Log>, needs: Needs) -> Self {
        let log = (!needs.is_empty()).then(|| Arc::clone(log));
        Self { log, needs, parked: ParkedWaker::default() }
    }

    /// Whether the transaction is acknowledged. Does not block.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] if the log failed before it was.
    pub fn is_acknowledged(&self) -> Result<bool, Error> {
        let Some(log) = &self.log else { return Ok(true) };
        if unmet(log, &self.needs).is_none() {
            return Ok(true);
        }
        // The failure is recorded after the last successful sync, so the frontier is read again.
        if log.poisoned().is_some() && unmet(log, &self.needs).is_some() {
            return Err(Error::OutcomeUnknown);
        }
        Ok(false)
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
                    // Woken when this stream has got there, to look for the next.
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
