//! Finds the record that a write goes to, or inserts one under a new key.

use super::access::Table;
use super::running::{Rec, Running, Tables};
use crate::concurrency::ConcurrencyControl;
use crate::concurrency::state::TxnState;
use crate::error::Abort;
use crate::logging::LoggingProtocol;
use crate::logging::write::Pending;
use crate::storage::descents::IndexPositions;
use crate::storage::gap::GapChange;
use crate::storage::key::KeyBytes;
use crate::storage::table::{Lookup, Placed};
use std::cell::RefCell;

impl<'s, C: ConcurrencyControl<P>, P: LoggingProtocol> Running<'s, C, P> {
    /// Returns the record under `key`; inserts one with room for a row if there is none.
    pub(super) fn record_for(
        &self,
        state: &mut TxnState<'s, P>,
        data: &'s Tables<P>,
        key: &KeyBytes,
        (row_bytes, likely_new): (usize, bool),
    ) -> Placed<'s, P::RowStamp> {
        let found = if likely_new { None } else { Some(self.find(state, data, key)) };
        match found {
            Some(Lookup::Found(record)) => Placed::Exists(record),
            _ => {
                let stamp = RefCell::new(&mut *state.stamp);
                let hooks = self.hooks(&stamp);
                let places = IndexPositions::of(&mut state.places, state.arena);
                while places.any_under_way() {
                    places.advance_all(&self.engine.tables);
                }
                let finger = places.finger(data.primary_id(), state.guard);
                data.place(key, row_bytes, C::INSERTED_WORD, C::INSERTED_LOCK, &hooks, finger)
            }
        }
    }

    /// Registers a record that the transaction has inserted under a new key.
    pub(super) fn inserted(
        &self,
        state: &mut TxnState<'s, P>,
        table: Table,
        record: &'s Rec<P>,
        change: GapChange<'s, P::RowStamp>,
    ) -> &'s Rec<P> {
        self.entered_gap(state, change, Some(record));
        state.inserted.push((table.number(), record));
        C::inserted(state, table.number(), record);
        record
    }

    /// Prepares a write to the record under `key`; inserts one with room for a row if there is
    /// none. Returns the record and whether its row exists.
    pub(super) fn claim(
        &self,
        state: &mut TxnState<'s, P>,
        table: Table,
        data: &'s Tables<P>,
        key: &KeyBytes,
        room: (usize, bool),
    ) -> Result<(&'s Rec<P>, bool), Abort> {
        match self.record_for(state, data, key, room) {
            Placed::New(record, change) => Ok((self.inserted(state, table, record, change), false)),
            Placed::Exists(record) => {
                if let Some(at) = state.own_write(record) {
                    let there = !matches!(state.writes[at].pending, Pending::Delete);
                    return Ok((record, there));
                }
                Ok((record, C::intend(self.engine, state, table.number(), record)?))
            }
        }
    }
}
