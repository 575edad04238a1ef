//! Periodic checks, while a transaction runs, of whether its reads are still current. They end
//! bodies that would run for long, or for ever, on inconsistent rows.

use super::running::Running;
use crate::concurrency::ConcurrencyControl;
use crate::concurrency::state::{CHECK_INTERVAL, TxnState};
use crate::error::Abort;
use crate::logging::LoggingProtocol;
use std::panic::resume_unwind;

/// Number of operations after a conflict after which the body is stopped.
const MOST_IGNORED: u32 = 10_000;

impl<'s, C: ConcurrencyControl<P>, P: LoggingProtocol> Running<'s, C, P> {
    #[cold]
    pub(super) fn conflicts(state: &mut TxnState<'s, P>) {
        // Makes the next operation call `check`.
        state.meet_conflict();
    }

    /// Runs once in a while, so that a body does not run for ever on inconsistent rows.
    ///
    /// # Errors
    /// [`Abort::Conflict`] if there is a conflict.
    #[cold]
    pub(super) fn check(&self, state: &mut TxnState<'s, P>) -> Result<(), Abort> {
        if state.conflict {
            state.ignored += 1;
            if state.ignored >= MOST_IGNORED {
                // The body ignores conflicts. It is unwound like a panic, and the transaction runs
                // again.
                resume_unwind(Box::new(Abort::Conflict));
            }
            return Err(Abort::Conflict);
        }
        if !C::is_current(state) {
            Self::conflicts(state);
            return Err(Abort::Conflict);
        }
        // The interval grows with the read set: a check costs about one comparison per operation.
        let seen = state.reads.len().max(state.gaps.len()).min(u32::MAX as usize / 4) as u32;
        state.operations = 0;
        state.check_at = seen.max(CHECK_INTERVAL);
        Ok(())
    }
}
