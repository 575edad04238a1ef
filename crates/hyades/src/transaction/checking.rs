//! Checks whether earlier reads are still current: periodic checks while a transaction runs end
//! bodies that would run for long, or for ever, on inconsistent rows; versions let a later
//! transaction check.

use super::access::Table;
use super::running::Running;
use crate::concurrency::state::{CHECK_INTERVAL, TxnState};
use crate::concurrency::{ConcurrencyControl, VisibleRow};
use crate::error::Abort;
use crate::logging::LoggingProtocol;
use crate::storage::key::KeyBytes;
use crate::storage::record::word;
use crate::storage::value::Value;
use std::panic::resume_unwind;
use std::sync::atomic::Ordering;

/// Number of operations after a conflict after which the body is stopped.
const MOST_IGNORED: u32 = 10_000;

impl<'s, C: ConcurrencyControl<P>, P: LoggingProtocol> Running<'s, C, P> {
    #[cold]
    pub(super) fn conflicts(state: &mut TxnState<'s, C, P>) {
        // Makes the next operation call `check`.
        state.meet_conflict();
    }

    /// Runs once in a while: a body must not run for ever on inconsistent rows.
    ///
    /// # Errors
    /// [`Abort::Conflict`] if there is a conflict.
    #[cold]
    pub(super) fn check(&self, state: &mut TxnState<'s, C, P>) -> Result<(), Abort> {
        if state.conflict {
            state.checks.ignored += 1;
            if state.checks.ignored >= MOST_IGNORED {
                // The body ignores conflicts. The body is unwound like a panic, and the transaction
                // runs again.
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
        state.checks.operations = 0;
        state.checks.check_at = seen.max(CHECK_INTERVAL);
        Ok(())
    }

    /// The version of a row as committed; `None` if there is no row.
    ///
    /// The version is the version of the adjacent read in the read set: it was the same before the
    /// read and after it, and no version comes twice. So the validation of the read is the
    /// validation of the version.
    pub(super) fn committed_version(
        &self,
        state: &mut TxnState<'s, C, P>,
        table: Table,
        key: &[Value<'_>],
    ) -> Result<Option<u64>, Abort> {
        C::in_present(state, |state| self.present_version(state, table, key))
    }

    fn present_version(
        &self,
        state: &mut TxnState<'s, C, P>,
        table: Table,
        key: &[Value<'_>],
    ) -> Result<Option<u64>, Abort> {
        let data = self.table(table)?;
        let mut sought = KeyBytes::new();
        Self::encode_key(data, key, &mut sought)?;
        self.enter_key(state, data, key, false)?;
        let Some(record) = self.find_or_miss(state, data, &sought) else { return Ok(None) };
        let tid = || word::tid(record.word.load(Ordering::Acquire));
        let before = tid();
        let read = self.control.read(self.engine, state, table.number(), record, || ())?;
        match read {
            VisibleRow::Absent => Ok(None),
            VisibleRow::There(()) if tid() == before => Ok(Some(before.bits())),
            // The row was overwritten meanwhile, or is read as of before the overwrite.
            VisibleRow::There(()) | VisibleRow::Older(_) => Err(Abort::Conflict),
        }
    }
}
