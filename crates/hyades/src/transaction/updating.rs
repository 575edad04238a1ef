//! The operation that changes some columns of a row.

use super::access::Table;
use super::running::Running;
use crate::concurrency::ConcurrencyControl;
use crate::concurrency::state::TxnState;
use crate::error::Abort;
use crate::logging::LoggingProtocol;
use crate::logging::write::{Pending, merge_deltas};
use crate::storage::key::KeyBytes;
use crate::storage::row::{apply_delta, check_len, encode_delta};
use crate::storage::schema::Set;
use crate::storage::value::Value;

impl<'s, C: ConcurrencyControl<P>, P: LoggingProtocol> Running<'s, C, P> {
    pub(super) fn update_row(
        &self,
        state: &mut TxnState<'s, C, P>,
        table: Table,
        key: &[Value<'_>],
        sets: &[Set<'_>],
    ) -> Result<bool, Abort> {
        let data = self.table(table)?;
        let mut sought = KeyBytes::new();
        Self::encode_key(data, key, &mut sought)?;
        self.enter_key(state, data, key, true)?;
        let mut scratch = std::mem::take(&mut state.workspace.scratch);
        scratch.clear();
        let encoded = encode_delta(&data.layout, sets, &mut scratch);
        let delta: &'s [u8] = state.arena.alloc_slice_copy(&scratch);
        state.workspace.scratch = scratch;
        let changed = encoded?;
        let Some(record) = self.find_or_miss(state, data, &sought) else { return Ok(false) };
        let own = state.own_write(record);
        if own.is_none() && !self.intend(state, table, record)? {
            return Ok(false);
        }
        if changed & data.indexed != 0 {
            let Some(old) = self.read_whole(state, data, record)? else { return Ok(false) };
            let mut new = old.to_vec();
            apply_delta(&data.layout, &mut new, delta)?;
            self.index(state, (table, data), record, Some(old), Some(&new), changed)?;
        } else if changed & data.layout.variable_set != 0 {
            let Some(old) = self.read_whole(state, data, record)? else { return Ok(false) };
            check_len(&data.layout, old, delta)?;
        }
        let arena = state.arena;
        let changed_row = |row: &[u8]| {
            let mut row = row.to_vec();
            apply_delta(&data.layout, &mut row, delta)?;
            Ok::<_, Abort>(Pending::Put(arena.alloc_slice_copy(&row)))
        };
        let pending = match own.map(|at| state.writes[at].pending) {
            None if self.engine.whole_rows => match self.read_whole(state, data, record)? {
                Some(old) => changed_row(old)?,
                None => return Ok(false),
            },
            None => Pending::Delta(changed, delta),
            Some(Pending::Delete) => return Ok(false),
            Some(Pending::Delta(before, first)) => Pending::Delta(
                before | changed,
                merge_deltas(&data.layout, first, delta, changed, arena),
            ),
            Some(Pending::Put(row)) => changed_row(row)?,
        };
        state.push_write(table.number(), record, pending);
        Ok(true)
    }
}
