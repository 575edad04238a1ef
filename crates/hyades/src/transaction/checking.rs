//! Looks, while a transaction runs, whether what it has seen still holds, and ends bodies that go on for long on rows
//! that never were there together.

use super::running::Running;
use crate::concurrency::ConcurrencyControl;
use crate::concurrency::state::{CHECK_INTERVAL, TxnState};
use crate::error::Abort;
use crate::logging::LoggingProtocol;
use std::panic::resume_unwind;

/// A body that goes on after a conflict is ended after so many operations.
const MOST_IGNORED: u32 = 10_000;

impl<'s, C: ConcurrencyControl, P: LoggingProtocol> Running<'s, C, P> {
    #[cold]
    pub(super) fn conflicts(state: &mut TxnState<'s, P>) {
        state.conflict = true;
        // The next operation is told.
        state.check_at = 0;
    }

    /// Now and then: a body that goes on for long on rows that never were there together must not go on for ever.
    ///
    /// # Errors
    /// There is a conflict.
    #[cold]
    pub(super) fn check(&self, state: &mut TxnState<'s, P>) -> Result<(), Abort> {
        if state.conflict {
            state.ignored += 1;
            if state.ignored >= MOST_IGNORED {
                // The body does not pass conflicts on. It is left as by a panic, and the transaction runs again.
                resume_unwind(Box::new(Abort::Conflict));
            }
            return Err(Abort::Conflict);
        }
        if !C::is_current(state) {
            Self::conflicts(state);
            return Err(Abort::Conflict);
        }
        // Each operation pays for about one look at what was seen.
        let seen = state.reads.len().max(state.gaps.len()).min(u32::MAX as usize / 4) as u32;
        state.operations = 0;
        state.check_at = seen.max(CHECK_INTERVAL);
        Ok(())
    }
}
