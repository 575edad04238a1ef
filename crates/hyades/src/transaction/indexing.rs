//! Index maintenance of a transaction: keys inserted into gaps, entries of changed rows,
//! uniqueness.

use super::access::Table;
use super::running::{Rec, Running, Tables};
use crate::concurrency::state::{Link, Stale, TxnState};
use crate::concurrency::{ConcurrencyControl, inherit};
use crate::error::Abort;
use crate::logging::LoggingProtocol;
use crate::storage::descents::IndexPositions;
use crate::storage::gap::{Gap, StampHooks};
use crate::storage::key::successor_of_prefix;
use crate::storage::schema::{Columns, MAX_KEY_BYTES};
use crate::storage::secondary::IndexEntry;
use crate::storage::wanted::{ahead, fetch_rows};
use hyades_index::Keyed;
use hyades_platform::phase::{self, Phase};
use std::cell::RefCell;
use std::ops::{Bound, ControlFlow};

/// Callback of a scan for each row, with the key of the index entry of the row.
pub(super) type VisitRow<'v, 's, C, P> =
    dyn FnMut(&mut TxnState<'s, C, P>, &'s Rec<C, P>, &[u8]) -> ControlFlow<()> + 'v;

impl<'s, C: ConcurrencyControl<P>, P: LoggingProtocol> Running<'s, C, P> {
    pub(super) fn hooks<'h>(
        &'h self,
        stamp: &'h RefCell<&'h mut P::TxnStamp>,
    ) -> StampHooks<impl Fn(&C::Row, &C::Row) + 'h, C::Row> {
        let join = move |to: &C::Row, from: &C::Row| {
            inherit::<C, P>(&self.engine.protocol, to, from, *stamp.borrow_mut())
        };
        StampHooks(join, C::GAP_LOCKS)
    }

    /// Links the row `new`, to be written to `record`, into the secondary indexes with columns in
    /// `changed`, and records the entries of the row `old` as stale.
    pub(super) fn index(
        &self,
        state: &mut TxnState<'s, C, P>,
        (table, data): (Table, &'s Tables<C, P>),
        record: &'s Rec<C, P>,
        old: Option<&[u8]>,
        new: Option<&[u8]>,
        changed: u64,
    ) -> Result<(), Abort> {
        let _measured = phase::enter(Phase::Index);
        for (at, secondary) in data.secondaries.iter().enumerate() {
            if secondary.column_set & changed == 0 {
                continue;
            }
            let old_key = old.map(|row| data.secondary_key(at, row, record.key()));
            let new_key = new.map(|row| data.secondary_key(at, row, record.key()));
            if old_key == new_key {
                continue;
            }
            if let (Some(row), Some(key)) = (new, &new_key) {
                if key.len() - record.key().len() > MAX_KEY_BYTES {
                    let index = Some(at as u16);
                    C::exceeds_key_size(Abort::KeyTooLarge { table: table.number(), index })?;
                }
                if secondary.unique {
                    self.enter_unique(state, data, at)?;
                    self.check_unique(state, table, data, at, row, record)?;
                }
                while C::GAP_LOCKS.is_some() {
                    let gap = Gap::Leaf(secondary.tree.get(key, state.guard).1);
                    if self.lock_to_enter(state, &gap)? {
                        break;
                    }
                }
                let (entry, change) = {
                    let stamp = RefCell::new(&mut *state.stamp);
                    let places = IndexPositions::of(&mut state.announced.places, state.arena);
                    let finger = places.finger(secondary.tree.id(), state.guard);
                    data.link(at, key, record, &self.hooks(&stamp), finger)?
                };
                let fresh = change.is_ok();
                state.index_changes.links.push(Link {
                    table: table.number(),
                    index: at as u16,
                    entry,
                    fresh,
                });
                // An entry may have been left by another attempt.
                C::entered_gap(self.engine, state, change, None);
            }
            if let Some(key) = old_key {
                let key = state.arena.alloc_slice_copy(&key);
                state.index_changes.stale.push(Stale {
                    table: table.number(),
                    index: at as u16,
                    key,
                });
            }
        }
        Ok(())
    }

    /// Checks that no other row has the unique key. The check reads the entries with this key and
    /// the gap around them.
    pub(super) fn check_unique(
        &self,
        state: &mut TxnState<'s, C, P>,
        table: Table,
        data: &'s Tables<C, P>,
        index: usize,
        row: &[u8],
        record: &'s Rec<C, P>,
    ) -> Result<(), Abort> {
        let (prefix, null) = data.secondary_prefix(index, row);
        if null {
            return Ok(());
        }
        C::checks_uniqueness(state);
        let mut upper = prefix.clone();
        let bounded = successor_of_prefix(&mut upper);
        let bounds = (
            Bound::Included(&prefix[..]),
            if bounded { Bound::Excluded(&upper[..]) } else { Bound::Unbounded },
        );
        let mut taken = Ok(());
        let how = (false, usize::MAX, Columns::ALL);
        let mut visit = |state: &mut TxnState<'s, C, P>, other: &'s Rec<C, P>, _: &[u8]| {
            if std::ptr::eq(other, record) {
                return ControlFlow::Continue(());
            }
            match self.read_whole(state, data, other) {
                Ok(Some(row)) if data.secondary_prefix(index, row).0 == prefix => {
                    let index = Some(index as u16);
                    taken = Err(Abort::DuplicateKey { table: table.number(), index });
                    ControlFlow::Break(())
                }
                Ok(_) => ControlFlow::Continue(()),
                Err(abort) => {
                    taken = Err(abort);
                    ControlFlow::Break(())
                }
            }
        };
        while !self.visit_index(state, data, index, bounds, how, &mut visit) {}
        taken
    }

    /// Prefetches entries and their rows, scattered in memory: their cache misses overlap.
    #[inline]
    pub(super) fn fetch_entries(
        data: &Tables<C, P>,
        columns: Columns,
        entries: &[&IndexEntry<C::Row>],
    ) {
        entries.iter().for_each(|entry| entry.prefetch());
        fetch_rows(data, columns, entries.iter().map(|entry| entry.record()));
    }

    /// Visits the rows of the secondary index entries in a range, and adds the gaps to the read
    /// set. The last tuple: whether to go downwards, the maximum number of rows, and the wanted
    /// columns. False if a gap has changed during the visit: the transaction visits again.
    #[must_use]
    pub(super) fn visit_index(
        &self,
        state: &mut TxnState<'s, C, P>,
        data: &'s Tables<C, P>,
        index: usize,
        (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
        (descending, limit, columns): (bool, usize, Columns),
        visit: &mut VisitRow<'_, 's, C, P>,
    ) -> bool {
        let mut settled = true;
        let guard = state.guard;
        let tree = &data.secondaries[index].tree;
        tree.scan(lower, upper, descending, guard, &mut |leaf, entries| {
            settled = self.saw_gap(state, Gap::Leaf(leaf));
            if !settled {
                return ControlFlow::Break(());
            }
            Self::fetch_entries(data, columns, ahead(entries, limit));
            for entry in entries {
                visit(state, entry.record(), entry.key())?;
            }
            ControlFlow::Continue(())
        });
        settled
    }
}
