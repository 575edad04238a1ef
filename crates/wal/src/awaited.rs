//! The awaited positions of a transaction's ticket.

use crate::error::Poisoned;
use crate::lane::Lane;
use crate::log::Log;
use crate::needs::{Needs, first_unmet};
use crate::parked_waker::ParkedWaker;
use std::task::{Context, Poll};

/// The positions awaited by a transaction before acknowledgement, and the waker of the awaiting
/// task. The log is always the transaction's log.
#[derive(Debug, Default)]
pub struct Awaited {
    needs: Needs,
    parked: ParkedWaker,
}

impl Awaited {
    /// Not awaited by a task yet.
    pub fn new(needs: Needs) -> Self {
        Awaited { needs, parked: ParkedWaker::default() }
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

    /// Whether all is reached. Does not block.
    ///
    /// # Errors
    /// The log stopped before.
    pub fn is_reached(&self, log: &Log) -> Result<bool, Poisoned> {
        if self.unmet(log).is_none() {
            return Ok(true);
        }
        // The failure is recorded after the last successful sync, so the frontier is read again.
        if let Some(cause) = log.poisoned().filter(|_| self.unmet(log).is_some()) {
            return Err(cause);
        }
        // Streams state marks on demand.
        for (lane, number) in self.needs.iter() {
            log.request(lane, number);
        }
        Ok(false)
    }

    /// Blocks until all is reached.
    ///
    /// # Errors
    /// The log stopped before.
    pub fn wait(&self, log: &Log) -> Result<(), Poisoned> {
        while let Some((lane, number)) = self.unmet(log) {
            log.wait(lane, number)?;
        }
        Ok(())
    }

    /// Whether all is reached; if not, the task is woken when all may be reached.
    pub fn poll(&mut self, log: &Log, context: &mut Context<'_>) -> Poll<Result<(), Poisoned>> {
        match self.is_reached(log) {
            Ok(false) => match self.unmet(log) {
                // Woken when the slot has reached the number, to look for the next.
                Some((lane, number)) => {
                    self.parked.register(log, lane, number, context.waker());
                    Poll::Pending
                }
                None => Poll::Ready(Ok(())),
            },
            Ok(true) => Poll::Ready(Ok(())),
            Err(cause) => Poll::Ready(Err(cause)),
        }
    }
}
