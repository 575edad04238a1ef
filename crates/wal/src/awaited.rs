//! The awaited positions of a transaction's ticket.

use crate::error::Poisoned;
use crate::lane::Lane;
use crate::log::Log;
use crate::needs::{Needs, first_unmet};
use crate::parked_waker::ParkedWaker;
use std::task::{Context, Poll};

/// The positions awaited by a transaction before acknowledgement, and the waker of the awaiting
/// task. The log is always the transaction's log.
///
/// Where the log has a [lease](crate::AnswerLease), a transaction that has only read also waits
/// until the lease allows the answer.
#[derive(Debug, Default)]
pub struct Awaited {
    needs: Needs,
    /// Whether the lease is needed, too.
    reads: bool,
    parked: ParkedWaker,
}

impl Awaited {
    /// Not awaited by a task yet. The transaction has a record of its own among the needs, or the
    /// log has no lease.
    pub fn new(needs: Needs) -> Self {
        Awaited { needs, reads: false, parked: ParkedWaker::default() }
    }

    /// The same, for a transaction that has no record of its own among the needs if `reads`.
    pub fn reading_if(self, reads: bool) -> Self {
        Awaited { reads, ..self }
    }

    /// Whether the acknowledgement needs the lease.
    #[inline]
    pub fn reads(&self) -> bool {
        self.reads
    }

    /// The awaited positions, reached or not.
    #[inline]
    pub fn needs(&self) -> &Needs {
        &self.needs
    }

    /// The same, for a [`CommitQueue`](crate::CommitQueue).
    #[inline]
    pub fn needs_mut(&mut self) -> &mut Needs {
        &mut self.needs
    }

    /// The first position still missing.
    fn unmet(&self, log: &Log) -> Option<(Lane, u64)> {
        first_unmet(|lane| log.frontier().at(lane), self.needs.iter())
    }

    /// Whether the lease is valid, or not needed. Called once all positions are reached.
    #[inline]
    fn may_answer(&self, log: &Log) -> bool {
        !self.reads || log.frontier().may_answer()
    }

    /// Whether all is reached, and may be answered.
    fn is_met(&self, log: &Log) -> bool {
        self.unmet(log).is_none() && self.may_answer(log)
    }

    /// Whether all is reached, and may be answered. Does not block.
    ///
    /// # Errors
    /// The log stopped before.
    pub fn is_reached(&self, log: &Log) -> Result<bool, Poisoned> {
        if self.is_met(log) {
            return Ok(true);
        }
        // The failure is recorded after the last successful sync, so the frontier is read again.
        if let Some(cause) = log.poisoned().filter(|_| !self.is_met(log)) {
            return Err(cause);
        }
        // Streams state marks on demand.
        for (lane, number) in self.needs.iter() {
            log.request(lane, number);
        }
        Ok(false)
    }

    /// Blocks until all is reached, and may be answered.
    ///
    /// # Errors
    /// The log stopped before.
    pub fn wait(&self, log: &Log) -> Result<(), Poisoned> {
        while let Some((lane, number)) = self.unmet(log) {
            log.wait(lane, number)?;
        }
        match self.may_answer(log) {
            true => Ok(()),
            false => log.frontier().wait_any_or_to_answer(&[], true),
        }
    }

    /// Whether all is reached, and may be answered; if not, the task is woken when that may be so.
    pub fn poll(&mut self, log: &Log, context: &mut Context<'_>) -> Poll<Result<(), Poisoned>> {
        match self.is_reached(log) {
            Ok(false) => match self.unmet(log) {
                // Woken when the slot has reached the number, to look for the next.
                Some((lane, number)) => {
                    self.parked.register(log, lane, number, context.waker());
                    Poll::Pending
                }
                None if self.may_answer(log) => Poll::Ready(Ok(())),
                // Woken by each extension of the lease, and when the log stops.
                None => {
                    self.parked.register_to_answer(log, context.waker());
                    Poll::Pending
                }
            },
            Ok(true) => Poll::Ready(Ok(())),
            Err(cause) => Poll::Ready(Err(cause)),
        }
    }
}
