//! Range scans over the primary key and secondary indexes.

use super::access::{Index, Table};
use super::running::{Rec, Running, Tables};
use super::walk::{WalkStep, Walked};
use crate::concurrency::ConcurrencyControl;
use crate::concurrency::state::TxnState;
use crate::error::Abort;
use crate::logging::LoggingProtocol;
use crate::storage::Stamp;
use crate::storage::kept::KeysInOrder;
use crate::storage::key::KeyBytes;
use crate::storage::range::Range;
use crate::storage::row::Row;
use crate::storage::schema::{Columns, MAX_KEY_BYTES};
use crate::storage::table::TableData;
use crate::storage::wanted::{ahead, fetch_rows};
use bumpalo::collections::Vec as ArenaVec;
use hyades_platform::phase::{self, Phase};
use std::ops::{Bound, ControlFlow};

/// The lowest key of a range, and the lowest key above the range; `None` where unbounded.
type KeyRange = (Option<KeyBytes>, Option<KeyBytes>);

/// Encodes the bounds of a range. `None` if no key can be in the range. Compiled for every stamp,
/// not for every concurrency control.
fn encode_range<S: Stamp>(
    data: &TableData<S>,
    index: Option<usize>,
    range: &Range<'_>,
    exceeds_key_size: fn(Abort) -> Result<(), Abort>,
) -> Result<Option<KeyRange>, Abort> {
    let bound = |values, after| {
        let bound = data.encode_bound(index, values, after)?;
        match &bound {
            Some(key) if key.len() > MAX_KEY_BYTES => {
                let index = index.map(|at| at as u16);
                let abort = Abort::KeyTooLarge { table: data.layout.table, index };
                exceeds_key_size(abort).map(|()| bound)
            }
            _ => Ok(bound),
        }
    };
    let lower = match range.lower {
        Bound::Unbounded => None,
        Bound::Included(key) => bound(key, false)?,
        Bound::Excluded(key) => match bound(key, true)? {
            None => return Ok(None),
            lower => lower,
        },
    };
    let upper = match range.upper {
        Bound::Unbounded => None,
        Bound::Included(key) => bound(key, true)?,
        Bound::Excluded(key) => bound(key, false)?,
    };
    let is_empty = lower.as_ref().zip(upper.as_ref()).is_some_and(|(l, u)| l >= u);
    Ok((range.limit > 0 && !is_empty).then_some((lower, upper)))
}

fn in_order((lower, upper): &KeyRange, descending: bool) -> KeysInOrder<'_> {
    KeysInOrder {
        lower: lower.as_deref().map_or(Bound::Unbounded, Bound::Included),
        upper: upper.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
        descending,
    }
}

impl<'s, C: ConcurrencyControl<P>, P: LoggingProtocol> Running<'s, C, P> {
    /// Adds the columns for checking an index entry against its row; the check takes a copy from
    /// the row's first byte on.
    fn with_entry_columns(data: &Tables<C, P>, index: usize, columns: Columns) -> Columns {
        let both = columns.and(data.secondaries[index].columns());
        if both.0 & data.layout.variable_set == 0 {
            return Columns::ALL;
        }
        // With a column of the key the copy is a whole row.
        both.and(Columns(data.record_layout().left_out))
    }

    /// Reads the rows of a step of a walk, and adds them to the read set. Records under keys with
    /// another prefix are not read.
    pub(super) fn walk_rows(
        &self,
        state: &mut TxnState<'s, C, P>,
        table: Table,
        step: &WalkStep<'_>,
    ) -> Result<Walked<'s>, Abort> {
        if state.call.may_be_repeated || state.call.stated_slots.is_some() {
            return Err(Abort::NotInCall);
        }
        let data = self.table(table)?;
        let prefix = match step.prefix {
            [] => KeyBytes::new(),
            values => data.encode_bound(None, values, false)?.unwrap_or(KeyBytes::new()),
        };
        let all = Range {
            lower: Bound::Unbounded,
            upper: Bound::Unbounded,
            descending: false,
            limit: usize::MAX,
        };
        self.enter_range(state, data, None, &all)?;
        let (mut rows, mut left, mut failed) = (ArenaVec::new_in(state.arena), step.steps, None);
        let guard = state.guard;
        let next = data.walk_hashed(step.cursor, &mut left, guard, |record| {
            if failed.is_some() || !record.key().starts_with(&prefix) {
                return ControlFlow::Continue(());
            }
            match self.read(state, data, record, step.columns) {
                Ok(row) => rows.extend(row),
                Err(abort) => failed = Some(abort),
            }
            match failed.is_some() || rows.len() >= step.limit {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        match failed {
            Some(abort) => Err(abort),
            None => Ok(Walked { rows: rows.into_bump_slice(), next, steps: step.steps - left }),
        }
    }

    /// Reads the rows of a range, and adds the gaps between them to the read set.
    pub(super) fn scan_rows(
        &self,
        state: &mut TxnState<'s, C, P>,
        table: Table,
        index: Option<Index>,
        range: &Range<'_>,
        columns: Columns,
    ) -> Result<&'s [Row<'s>], Abort> {
        self.seek_places(state);
        let data = self.table(table)?;
        let index = index.map(|index| index.0 as usize);
        if index.is_some_and(|at| at >= data.secondaries.len()) {
            return Err(Abort::UnknownHandle);
        }
        let Some(bounds) = encode_range(data, index, range, C::exceeds_key_size)? else {
            return Ok(&[][..]);
        };
        self.enter_range(state, data, index, range)?;
        let keys = in_order(&bounds, range.descending);
        let columns = index.map_or(columns, |at| Self::with_entry_columns(data, at, columns));
        let kept = || self.scan_snapshot(state, data, index, (keys, range.limit), columns);
        if let Some(rows) = C::beside_indexes(kept) {
            return rows;
        }
        loop {
            let how = (keys, range.limit, columns);
            if let Some(rows) = self.scan_present(state, data, index, how)? {
                return Ok(rows);
            }
        }
    }

    /// Reads the rows of a range as they are now. The last tuple: the range, the maximum number of
    /// rows, and the columns. `None` if a gap has changed during the scan.
    fn scan_present(
        &self,
        state: &mut TxnState<'s, C, P>,
        data: &'s Tables<C, P>,
        index: Option<usize>,
        (keys, limit, columns): (KeysInOrder<'_>, usize, Columns),
    ) -> Result<Option<&'s [Row<'s>]>, Abort> {
        let (mut rows, mut failed) = (ArenaVec::new_in(state.arena), None);
        let mut visit = |state: &mut TxnState<'s, C, P>, record: &'s Rec<C, P>, entry: &[u8]| {
            let row = match self.read(state, data, record, columns) {
                Ok(Some(row)) => row,
                Ok(None) => return ControlFlow::Continue(()),
                Err(abort) => {
                    failed = Some(abort);
                    return ControlFlow::Break(());
                }
            };
            if let Some(at) = index {
                // A stale entry does not match its row, and is skipped.
                if data.secondary_key(at, row.bytes, record.key())[..] != *entry {
                    return ControlFlow::Continue(());
                }
            }
            rows.push(row);
            match rows.len() == limit {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let mut settled = true;
        let measured = phase::enter(Phase::Index);
        match index {
            Some(at) => {
                let how = (keys.descending, limit, columns);
                let bounds = (keys.lower, keys.upper);
                settled = self.visit_index(state, data, at, bounds, how, &mut visit);
            }
            None => {
                let (lower, upper, guard) = (keys.lower, keys.upper, state.guard);
                data.scan(lower, upper, keys.descending, guard, &mut |gap, records| {
                    settled = self.saw_gap(state, gap);
                    if !settled {
                        return ControlFlow::Break(());
                    }
                    fetch_rows(data, columns, ahead(records, limit).iter().copied());
                    for record in records {
                        visit(state, record, &[])?;
                    }
                    ControlFlow::Continue(())
                })?;
            }
        }
        drop(measured);
        match failed {
            Some(abort) => Err(abort),
            None => Ok(settled.then(|| rows.into_bump_slice())),
        }
    }
}
