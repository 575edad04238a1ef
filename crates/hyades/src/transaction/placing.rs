//! Encodes the row of a write, and finds the record to write, or inserts a record under a new key.

use super::access::Table;
use super::running::{Rec, Running, Tables};
use crate::concurrency::state::{RowIds, TxnState};
use crate::concurrency::{ConcurrencyControl, RecordLock};
use crate::error::Abort;
use crate::logging::LoggingProtocol;
use crate::logging::determinism::Drawn;
use crate::logging::write::Pending;
use crate::storage::descents::IndexPositions;
use crate::storage::gap::GapChange;
use crate::storage::key::KeyBytes;
use crate::storage::schema::MAX_ROW_BYTES;
use crate::storage::table::{Lookup, Placed};
use crate::storage::value::Value;
use hyades_platform::phase::{self, Phase};
use std::cell::RefCell;

impl<'s, C: ConcurrencyControl<P>, P: LoggingProtocol> Running<'s, C, P> {
    /// Returns the record under `key`; inserts a record with room for `row` if there is none. Where
    /// gaps are locked, [`Running::inserted`] unlocks the gap.
    pub(super) fn record_for(
        &self,
        state: &mut TxnState<'s, C, P>,
        data: &'s Tables<C, P>,
        key: &KeyBytes,
        (row, likely_new): (&[u8], bool),
    ) -> Result<Placed<'s, C::Row>, Abort> {
        let looks = C::GAP_LOCKS.is_some() || !likely_new;
        let mut found = looks.then(|| self.find(state, data, key));
        while C::GAP_LOCKS.is_some()
            && let Some(Lookup::Missing(gap)) = &found
            && !self.lock_to_enter(state, gap)?
        {
            found = Some(self.find(state, data, key));
        }
        Ok(match found {
            Some(Lookup::Found(record)) => Placed::Exists(record),
            _ => {
                let _measured = phase::enter(Phase::Index);
                let stamp = RefCell::new(&mut *state.stamp);
                let hooks = self.hooks(&stamp);
                let places = IndexPositions::of(&mut state.announced.places, state.arena);
                while places.any_under_way() {
                    places.advance_all(&self.engine.tables);
                }
                let finger = places.finger(data.primary_id(), state.guard);
                let room = data.bytes_in_record(row);
                data.place(key, room, C::INSERTED_WORD, C::Lock::INSERTED, &hooks, finger)
            }
        })
    }

    /// Registers a record inserted by the transaction under a new key.
    pub(super) fn inserted(
        &self,
        state: &mut TxnState<'s, C, P>,
        table: Table,
        record: &'s Rec<C, P>,
        change: GapChange<'s, C::Row>,
    ) -> &'s Rec<C, P> {
        C::entered_gap(self.engine, state, Ok(change), Some(record));
        // Replaces a record found under the key before, which has left the index since.
        state.last_found = Some((table.number(), record));
        state.index_changes.inserted.push((table.number(), record));
        C::inserted(state, table.number(), record);
        record
    }

    /// Prepares a write to the record under `key`; inserts a record with room for the row if there
    /// is none. Returns the record and whether its row exists.
    pub(super) fn claim(
        &self,
        state: &mut TxnState<'s, C, P>,
        table: Table,
        data: &'s Tables<C, P>,
        key: &KeyBytes,
        row: (&[u8], bool),
    ) -> Result<(&'s Rec<C, P>, bool), Abort> {
        match self.record_for(state, data, key, row)? {
            Placed::New(record, change) => Ok((self.inserted(state, table, record, change), false)),
            Placed::Exists(record) => {
                if let Some(at) = state.own_write(record) {
                    let there = !matches!(state.writes[at].pending, Pending::Delete);
                    return Ok((record, there));
                }
                Ok((record, self.intend(state, table, record)?))
            }
        }
    }

    /// Encodes a row into the arena and its key into the empty `key`. Returns the row and its
    /// hidden id.
    pub(super) fn encode(
        &self,
        state: &mut TxnState<'s, C, P>,
        data: &'s Tables<C, P>,
        row: &[Value<'_>],
        key: &mut KeyBytes,
    ) -> Result<(&'s [u8], u64), Abort> {
        data.layout.encode(row, &mut state.workspace.scratch)?;
        let bytes: &'s [u8] = state.arena.alloc_slice_copy(&state.workspace.scratch);
        if bytes.len() > MAX_ROW_BYTES {
            return Err(Abort::RowTooLarge { table: data.layout.table });
        }
        if !data.keyless {
            data.layout.primary_key(row, key);
            if !data.layout.packed_key {
                data.check_key(key).or_else(C::exceeds_key_size)?;
            }
            return Ok((bytes, 0));
        }
        let id = match &mut state.draws.row_ids {
            RowIds::Fresh(block) => self.engine.next_row_id(block),
            // A replayed command asking for more ids than recorded is reported as a divergence.
            RowIds::Recorded(ids) => *ids.next().ok_or(Abort::BadArguments)?,
            RowIds::Stated(block) => match block.take() {
                Some(id) => id,
                None if block.is_none() => {
                    state.lack(Drawn::ROW_IDS);
                    return Err(Abort::Conflict);
                }
                None => return state.refuse(Abort::TooManyRowIds).map(|()| unreachable!()),
            },
        };
        state.draws.row_ids_used.push(id);
        key.extend_from_slice(&id.to_be_bytes());
        Ok((bytes, id))
    }
}
