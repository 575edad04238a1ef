//! Gaps that a transaction sees, where it misses a key, and gaps that it enters with a new key.

use super::running::{Rec, Running, Tables};
use crate::concurrency::ConcurrencyControl;
use crate::concurrency::state::TxnState;
use crate::error::Abort;
use crate::logging::LoggingProtocol;
use crate::storage::gap::Gap;
use crate::storage::key::KeyBytes;
use crate::storage::table::Lookup;
use hyades_platform::phase::{self, Phase};

impl<'s, C: ConcurrencyControl<P>, P: LoggingProtocol> Running<'s, C, P> {
    /// Adds a gap to the read set: the transaction saw a missing key. False if the gap has changed
    /// meanwhile: the transaction looks again.
    #[must_use]
    pub(super) fn saw_gap(&self, state: &mut TxnState<'s, C, P>, gap: Gap<'s, C::Row>) -> bool {
        let _measured = phase::enter(Phase::Control);
        match self.control.lock_gap(state, &gap, false) {
            Ok(true) => {}
            Ok(false) => return false,
            Err(_) => {
                Self::conflicts(state);
                return true;
            }
        }
        if self.control.saw_gap(self.engine, state, gap).is_err() {
            Self::conflicts(state);
        }
        true
    }

    /// Looks up a primary key; adds the gap to the read set if the key is missing.
    #[inline]
    pub(super) fn find_or_miss(
        &self,
        state: &mut TxnState<'s, C, P>,
        data: &'s Tables<C, P>,
        key: &KeyBytes,
    ) -> Option<&'s Rec<C, P>> {
        loop {
            match self.find(state, data, key) {
                Lookup::Found(record) => return Some(record),
                Lookup::Missing(gap) => {
                    if self.saw_gap(state, gap) {
                        return None;
                    }
                }
            }
        }
    }

    /// Locks a gap that a new key is about to enter. False if the gap has changed meanwhile: the
    /// transaction looks again.
    pub(super) fn lock_to_enter(
        &self,
        state: &mut TxnState<'s, C, P>,
        gap: &Gap<'s, C::Row>,
    ) -> Result<bool, Abort> {
        let _measured = phase::enter(Phase::Control);
        self.control.lock_gap(state, gap, true)
    }
}
