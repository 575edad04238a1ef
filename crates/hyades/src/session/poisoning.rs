//! Stops the log and all waiting after a panic that leaves rows locked or partitions held.

use crate::concurrency::Commits;
use crate::erased::{Answer, Verdict};
use crate::error::Abort;
use crate::logging::LoggingProtocol;
use crate::logging::Needs;
use crate::tally::Tally;
use hyades_wal::Log;
use std::any::Any;
use std::panic::resume_unwind;

/// Ends the waiting of transactions for each other.
type Stop<C> = fn(&C);

/// A commit or sweep in progress. A panic leaves rows locked and possibly half installed, and
/// partitions held. The drop then stops the log, and waiting, so that transactions that meet the
/// rows or partitions fail instead of retrying or waiting for ever.
pub(super) struct PoisonOnPanic<'e, C> {
    log: Option<&'e Log>,
    /// Until disarmed: the control to stop beside the log, and how.
    waits: Option<(&'e C, Stop<C>)>,
}

impl<'e, C> PoisonOnPanic<'e, C> {
    #[inline(always)]
    pub fn arm<P: LoggingProtocol>(control: &'e C, log: Option<&'e Log>) -> Self
    where
        C: Commits<P>,
    {
        PoisonOnPanic { log, waits: Some((control, C::stop)) }
    }

    #[inline(always)]
    pub fn disarm(mut self) {
        self.waits = None;
    }
}

impl<C> Drop for PoisonOnPanic<'_, C> {
    fn drop(&mut self) {
        let Some((control, stop)) = self.waits else { return };
        // The log first: transactions that do not wait any more then find out why.
        if let Some(log) = self.log {
            log.stop("a commit panicked, and left rows locked that nobody can unlock");
        }
        stop(control);
    }
}

/// Returns the verdict of a body, and its panic. A body that panicked may have read inconsistent
/// rows, and then runs again: only a panic after valid reads is passed on to the caller.
#[inline(always)]
pub(super) fn without_panic(
    verdict: Result<Verdict, Box<dyn Any + Send>>,
) -> (Verdict, Option<Box<dyn Any + Send>>) {
    match verdict {
        Ok(verdict) => (verdict, None),
        Err(panic) => (Verdict::Abandon, Some(panic)),
    }
}

/// Passes the panic of a body on to the caller of its transaction.
#[cold]
pub(super) fn pass_on(
    panic: Box<dyn Any + Send>,
    answer: &mut Answer,
    tally: &Tally,
    garbage: usize,
) -> Result<(), Abort> {
    tally.panic();
    // There is no ticket to receive the needs.
    answer.needs = Needs::default();
    tally.set_garbage(garbage);
    resume_unwind(panic)
}
