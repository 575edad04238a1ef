//! [`Access`] for a transaction in progress, over any concurrency control and logging protocol.

use super::access::{Access, Index, Range, Savepoint, Table};
use super::state::{Link, Pending, RowIds, Stale, State, merge_deltas};
use crate::concurrency::ConcurrencyControl;
use crate::engine::Engine;
use crate::error::Abort;
use crate::logging::LoggingProtocol;
use crate::storage::key::KeyBytes;
use crate::storage::ordered_index::Keyed;
use crate::storage::record::Record;
use crate::storage::row::{Row, apply_delta, encode_delta};
use crate::storage::schema::{Columns, MAX_ROW_BYTES, Set};
use crate::storage::table::{self, Gap, GapChange, Inherit, Lookup, Placed};
use crate::storage::value::Value;
use bumpalo::collections::Vec as ArenaVec;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::{Bound, ControlFlow};

type Tables<P> = table::Table<<P as LoggingProtocol>::RowStamp>;
type Rec<P> = Record<<P as LoggingProtocol>::RowStamp>;

/// What a scan calls for each row, with the key of the entry that led to it.
type VisitRow<'v, 's, P> = dyn FnMut(&mut State<'s, P>, &'s Rec<P>, &[u8]) -> ControlFlow<()> + 'v;

pub(crate) struct Running<'s, C, P: LoggingProtocol> {
    engine: &'s Engine<P>,
    state: RefCell<State<'s, P>>,
    concurrency: PhantomData<C>,
}

impl<'s, C: ConcurrencyControl, P: LoggingProtocol> Running<'s, C, P> {
    pub fn new(engine: &'s Engine<P>, state: State<'s, P>) -> Self {
        Running { engine, state: RefCell::new(state), concurrency: PhantomData }
    }

    pub fn into_state(self) -> State<'s, P> {
        self.state.into_inner()
    }

    fn table(&self, table: Table) -> Result<&'s Tables<P>, Abort> {
        self.engine.tables.get(table.0 as usize).ok_or(Abort::UnknownHandle)
    }

    /// Remembers a conflict, so that the transaction runs again even if the caller goes on.
    fn guarded<T>(
        &self,
        run: impl FnOnce(&mut State<'s, P>) -> Result<T, Abort>,
    ) -> Result<T, Abort> {
        let state = &mut *self.state.borrow_mut();
        let result = run(state);
        match &result {
            Err(Abort::Conflict) => state.conflict = true,
            // A failed operation may have put a record or an entry in place that no write will fill.
            Err(_) => state.rolled_back = true,
            Ok(_) => {}
        }
        result
    }

    /// The transaction saw that a key is missing.
    fn saw_gap(&self, state: &mut State<'s, P>, gap: Gap<'s, P::RowStamp>) {
        self.engine.protocol.observe_read(gap.stamp(), state.stamp);
        state.gaps.push(gap);
    }

    /// Reads the columns of a row, as written by this transaction or as committed.
    #[inline]
    fn read(
        &self,
        state: &mut State<'s, P>,
        table: &'s Tables<P>,
        record: &'s Rec<P>,
        columns: Columns,
    ) -> Result<Option<Row<'s>>, Abort> {
        let row = |bytes, base| Row {
            layout: &table.layout,
            bytes,
            base,
            row_id: if table.keyless { row_id(record.key()) } else { 0 },
        };
        if let Some(at) = state.own_write(record) {
            return Ok(state.own_row(at, table)?.map(|bytes| row(bytes, 0)));
        }
        let arena = state.arena;
        let window = window(table, columns);
        let read = C::read(self.engine, state, record, || match window {
            Some((offset, len)) => record.read_window_into(offset, len, arena),
            None => (record.read_row_into(arena), 0),
        })?;
        Ok(read.map(|(bytes, base)| row(bytes, base)))
    }

    /// Reads a whole committed row that the transaction has protected or will validate.
    fn read_whole(
        &self,
        state: &mut State<'s, P>,
        table: &'s Tables<P>,
        record: &'s Rec<P>,
    ) -> Result<Option<&'s [u8]>, Abort> {
        Ok(self.read(state, table, record, Columns::ALL)?.map(|row| row.bytes))
    }

    fn hooks<'h>(
        &'h self,
        stamp: &'h RefCell<&'h mut P::TxnStamp>,
    ) -> Inherit<impl Fn(&P::RowStamp, &P::RowStamp) + 'h> {
        Inherit(move |to: &P::RowStamp, from: &P::RowStamp| {
            self.engine.protocol.inherit(to, from, *stamp.borrow_mut())
        })
    }

    /// A new key went into a gap: what the transaction saw of gaps is carried over, and the record
    /// remembers what the gap did.
    fn entered_gap(
        &self,
        state: &mut State<'s, P>,
        change: GapChange<'s, P::RowStamp>,
        record: Option<&'s Rec<P>>,
    ) {
        let protocol = &self.engine.protocol;
        if let Some(record) = record {
            protocol.inherit(&record.stamp, change.holder.stamp(), state.stamp);
        }
        protocol.observe_write(change.holder.stamp(), state.stamp);
        change.carry_over(&mut state.gaps);
    }

    /// The record under `key`, put there if there is none, intended for writing. Returns whether its
    /// row is there.
    fn claim(
        &self,
        state: &mut State<'s, P>,
        table: Table,
        data: &'s Tables<P>,
        key: &KeyBytes,
        row_bytes: usize,
    ) -> Result<(&'s Rec<P>, bool), Abort> {
        let found = match data.find(key, state.guard) {
            Lookup::Found(record) => Placed::Exists(record),
            Lookup::Missing(_) => {
                let stamp = RefCell::new(&mut *state.stamp);
                let hooks = self.hooks(&stamp);
                data.place(key, row_bytes, C::PLACED_WORD, C::PLACED_LOCK, &hooks, state.guard)
            }
        };
        match found {
            Placed::New(record, change) => {
                self.entered_gap(state, change, Some(record));
                state.placed.push((table.0, record));
                C::placed(state, record);
                Ok((record, false))
            }
            Placed::Exists(record) => {
                if let Some(at) = state.own_write(record) {
                    let there = !matches!(state.writes[at].pending, Pending::Delete);
                    return Ok((record, there));
                }
                Ok((record, C::intend(self.engine, state, record)?))
            }
        }
    }

    /// Links `row`, to be written to `record`, into the secondary indexes whose columns are in
    /// `changed`, and notes the entries of the row that was there before as stale.
    fn index(
        &self,
        state: &mut State<'s, P>,
        (table, data): (Table, &'s Tables<P>),
        record: &'s Rec<P>,
        old: Option<&[u8]>,
        new: Option<&[u8]>,
        changed: u64,
    ) -> Result<(), Abort> {
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
                if secondary.unique {
                    self.check_unique(state, table, data, at, row, record)?;
                }
                let (entry, change) = {
                    let stamp = RefCell::new(&mut *state.stamp);
                    data.link(at, key, record, &self.hooks(&stamp), state.guard)?
                };
                state.links.push(Link { table: table.0, index: at as u16, entry });
                match change {
                    Ok(change) => self.entered_gap(state, change, None),
                    // An entry left behind by another attempt: its gap was read all the same.
                    Err(gap) => self.engine.protocol.observe_write(gap.stamp(), state.stamp),
                }
            }
            if let Some(key) = old_key {
                let key = state.arena.alloc_slice_copy(&key);
                state.stale.push(Stale { table: table.0, index: at as u16, key });
            }
        }
        Ok(())
    }

    /// A uniqueness check is a read: of the entries with this key, and of the gap around them.
    fn check_unique(
        &self,
        state: &mut State<'s, P>,
        table: Table,
        data: &'s Tables<P>,
        index: usize,
        row: &[u8],
        record: &'s Rec<P>,
    ) -> Result<(), Abort> {
        let (prefix, null) = data.secondary_prefix(index, row);
        if null {
            return Ok(());
        }
        let mut upper = prefix.clone();
        let bounded = crate::storage::key::successor_of_prefix(&mut upper);
        let bounds = (
            Bound::Included(&prefix[..]),
            if bounded { Bound::Excluded(&upper[..]) } else { Bound::Unbounded },
        );
        let mut taken = Ok(());
        self.visit_index(state, data, index, bounds, false, &mut |state, other, _| {
            if std::ptr::eq(other, record) {
                return ControlFlow::Continue(());
            }
            match self.read_whole(state, data, other) {
                Ok(Some(row)) if data.secondary_prefix(index, row).0 == prefix => {
                    let index = Some(index as u16);
                    taken = Err(Abort::DuplicateKey { table: table.0, index });
                    ControlFlow::Break(())
                }
                Ok(_) => ControlFlow::Continue(()),
                Err(abort) => {
                    taken = Err(abort);
                    ControlFlow::Break(())
                }
            }
        });
        taken
    }

    /// Visits the rows of a secondary index's entries in a range, remembering the gaps.
    fn visit_index(
        &self,
        state: &mut State<'s, P>,
        data: &'s Tables<P>,
        index: usize,
        (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
        descending: bool,
        visit: &mut VisitRow<'_, 's, P>,
    ) {
        let guard = state.guard;
        let tree = &data.secondaries[index].tree;
        tree.scan(lower, upper, descending, guard, &mut |leaf, entries| {
            self.saw_gap(state, Gap::Leaf(leaf));
            for entry in entries {
                visit(state, entry.record(), entry.key())?;
            }
            ControlFlow::Continue(())
        });
    }

    fn update_row(
        &self,
        state: &mut State<'s, P>,
        table: Table,
        key: &[Value<'_>],
        sets: &[Set<'_>],
    ) -> Result<bool, Abort> {
        let data = self.table(table)?;
        let key = data.encode_key(key)?;
        let mut scratch = std::mem::take(state.scratch);
        scratch.clear();
        let encoded = encode_delta(&data.layout, sets, &mut scratch);
        let delta: &'s [u8] = state.arena.alloc_slice_copy(&scratch);
        *state.scratch = scratch;
        let changed = encoded?;
        let record = match data.find(&key, state.guard) {
            Lookup::Found(record) => record,
            Lookup::Missing(gap) => {
                self.saw_gap(state, gap);
                return Ok(false);
            }
        };
        let own = state.own_write(record);
        if own.is_none() && !C::intend(self.engine, state, record)? {
            return Ok(false);
        }
        if changed & data.indexed != 0 || changed & data.layout.variable_set != 0 {
            // The whole row is wanted: for index keys, and to know that it does not grow too long.
            let Some(old) = self.read_whole(state, data, record)? else { return Ok(false) };
            if !data.layout.is_valid(old) {
                return Err(Abort::Conflict);
            }
            let mut new = old.to_vec();
            apply_delta(&data.layout, &mut new, delta)?;
            self.index(state, (table, data), record, Some(old), Some(&new), changed)?;
        }
        let pending = match own.map(|at| state.writes[at].pending) {
            None => Pending::Delta(changed, delta),
            Some(Pending::Delete) => return Ok(false),
            Some(Pending::Delta(before, first)) => Pending::Delta(
                before | changed,
                merge_deltas(&data.layout, first, delta, changed, state.arena),
            ),
            Some(Pending::Put(row)) => {
                let mut row = row.to_vec();
                apply_delta(&data.layout, &mut row, delta)?;
                Pending::Put(state.arena.alloc_slice_copy(&row))
            }
        };
        state.push_write(table.0, record, pending);
        Ok(true)
    }

    /// Encodes a row and its key into the arena.
    fn encode(
        &self,
        state: &mut State<'s, P>,
        data: &'s Tables<P>,
        row: &[Value<'_>],
    ) -> Result<(&'s [u8], KeyBytes, u64), Abort> {
        data.layout.encode(row, state.scratch)?;
        let bytes: &'s [u8] = state.arena.alloc_slice_copy(state.scratch);
        if bytes.len() > MAX_ROW_BYTES {
            return Err(Abort::RowTooLarge { table: data.layout.table });
        }
        let mut key = KeyBytes::new();
        if !data.keyless {
            data.layout.primary_key(bytes, &mut key);
            return Ok((bytes, key, 0));
        }
        let id = match &mut state.row_ids {
            RowIds::Fresh(block) => self.engine.next_row_id(block),
            // A replayed command that asks for more ids than it did is caught as a divergence.
            RowIds::Recorded(ids) => *ids.next().ok_or(Abort::BadArguments)?,
        };
        state.row_ids_used.push(id);
        key.extend_from_slice(&id.to_be_bytes());
        Ok((bytes, key, id))
    }
}

/// The hidden row id that a key stands for.
fn row_id(key: &[u8]) -> u64 {
    u64::from_be_bytes(key.try_into().expect("a row id is eight bytes"))
}

/// The part of the row to copy for these columns, if not all of it is needed.
#[inline]
fn window<S: Default + Send + Sync + 'static>(
    table: &table::Table<S>,
    columns: Columns,
) -> Option<(usize, usize)> {
    let layout = &table.layout;
    if columns == Columns::ALL || layout.has_nulls || columns.0 & layout.variable_set != 0 {
        return None;
    }
    let (mut first, mut last) = (usize::MAX, 0);
    let mut left = columns.0;
    while left != 0 {
        let column = layout.columns.get(left.trailing_zeros() as usize)?;
        let at = column.offset as usize;
        first = first.min(at);
        last = last.max(at + column.kind.width()?);
        left &= left - 1;
    }
    Some(if first == usize::MAX { (0, 0) } else { (first, last - first) })
}

impl<'s, C: ConcurrencyControl, P: LoggingProtocol> Access for Running<'s, C, P> {
    #[inline]
    fn get<'a>(
        &'a self,
        table: Table,
        key: &[Value<'_>],
        columns: Columns,
    ) -> Result<Option<Row<'a>>, Abort> {
        self.guarded(|state| {
            let data = self.table(table)?;
            let key = data.encode_key(key)?;
            match data.find(&key, state.guard) {
                Lookup::Found(record) => self.read(state, data, record, columns),
                Lookup::Missing(gap) => {
                    self.saw_gap(state, gap);
                    Ok(None)
                }
            }
        })
    }

    fn insert(&self, table: Table, row: &[Value<'_>]) -> Result<u64, Abort> {
        self.guarded(|state| {
            let data = self.table(table)?;
            let (bytes, key, id) = self.encode(state, data, row)?;
            let (record, there) = self.claim(state, table, data, &key, bytes.len())?;
            if there {
                return Err(Abort::DuplicateKey { table: table.0, index: None });
            }
            self.index(state, (table, data), record, None, Some(bytes), u64::MAX)?;
            state.push_write(table.0, record, Pending::Put(bytes));
            Ok(id)
        })
    }

    fn update(&self, table: Table, key: &[Value<'_>], sets: &[Set<'_>]) -> Result<bool, Abort> {
        self.guarded(|state| self.update_row(state, table, key, sets))
    }

    fn upsert(&self, table: Table, row: &[Value<'_>]) -> Result<bool, Abort> {
        self.guarded(|state| {
            let data = self.table(table)?;
            let (bytes, key, _) = self.encode(state, data, row)?;
            let (record, there) = self.claim(state, table, data, &key, bytes.len())?;
            let old = if there && data.indexed != 0 {
                self.read_whole(state, data, record)?
            } else {
                None
            };
            self.index(state, (table, data), record, old, Some(bytes), u64::MAX)?;
            state.push_write(table.0, record, Pending::Put(bytes));
            Ok(there)
        })
    }

    fn delete(&self, table: Table, key: &[Value<'_>]) -> Result<bool, Abort> {
        self.guarded(|state| {
            let data = self.table(table)?;
            let key = data.encode_key(key)?;
            let record = match data.find(&key, state.guard) {
                Lookup::Found(record) => record,
                Lookup::Missing(gap) => {
                    self.saw_gap(state, gap);
                    return Ok(false);
                }
            };
            match state.own_write(record) {
                Some(at) if matches!(state.writes[at].pending, Pending::Delete) => {
                    return Ok(false);
                }
                Some(_) => {}
                None if !C::intend(self.engine, state, record)? => return Ok(false),
                None => {}
            }
            if data.indexed != 0
                && let Some(old) = self.read_whole(state, data, record)?
            {
                self.index(state, (table, data), record, Some(old), None, u64::MAX)?;
            }
            state.push_write(table.0, record, Pending::Delete);
            Ok(true)
        })
    }

    fn scan<'a>(
        &'a self,
        table: Table,
        index: Option<Index>,
        range: &Range<'_>,
        columns: Columns,
    ) -> Result<&'a [Row<'a>], Abort> {
        self.guarded(|state| {
            let data = self.table(table)?;
            let index = index.map(|index| index.0 as usize);
            if index.is_some_and(|at| at >= data.secondaries.len()) {
                return Err(Abort::UnknownHandle);
            }
            let bound = |values, after| data.encode_bound(index, values, after);
            let lower = match range.lower {
                Bound::Unbounded => None,
                Bound::Included(key) => bound(key, false)?,
                Bound::Excluded(key) => match bound(key, true)? {
                    None => return Ok(&[][..]),
                    lower => lower,
                },
            };
            let upper = match range.upper {
                Bound::Unbounded => None,
                Bound::Included(key) => bound(key, true)?,
                Bound::Excluded(key) => bound(key, false)?,
            };
            if range.limit == 0 || lower.as_ref().zip(upper.as_ref()).is_some_and(|(l, u)| l >= u) {
                return Ok(&[][..]);
            }
            let bounds = (
                lower.as_deref().map_or(Bound::Unbounded, Bound::Included),
                upper.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
            );
            let mut rows = ArenaVec::new_in(state.arena);
            let mut failed = None;
            let columns = if index.is_some() { Columns::ALL } else { columns };
            let mut visit = |state: &mut State<'s, P>, record: &'s Rec<P>, entry: &[u8]| {
                let row = match self.read(state, data, record, columns) {
                    Ok(Some(row)) => row,
                    Ok(None) => return ControlFlow::Continue(()),
                    Err(abort) => {
                        failed = Some(abort);
                        return ControlFlow::Break(());
                    }
                };
                if let Some(at) = index {
                    if !data.layout.is_valid(row.bytes) {
                        failed = Some(Abort::Conflict);
                        return ControlFlow::Break(());
                    }
                    // An entry may be stale: it counts only if it is the row's own.
                    if data.secondary_key(at, row.bytes, record.key())[..] != *entry {
                        return ControlFlow::Continue(());
                    }
                }
                rows.push(row);
                if rows.len() == range.limit {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            };
            match index {
                Some(at) => {
                    self.visit_index(state, data, at, bounds, range.descending, &mut visit);
                }
                None => {
                    let guard = state.guard;
                    data.scan(bounds.0, bounds.1, range.descending, guard, &mut |gap, records| {
                        self.saw_gap(state, gap);
                        for record in records {
                            visit(state, record, &[])?;
                        }
                        ControlFlow::Continue(())
                    })?;
                }
            }
            match failed {
                Some(abort) => Err(abort),
                None => Ok(rows.into_bump_slice()),
            }
        })
    }

    fn savepoint(&self) -> Savepoint {
        Savepoint(self.state.borrow().writes.len() as u32)
    }

    fn rollback_to(&self, savepoint: Savepoint) -> Result<(), Abort> {
        self.guarded(|state| {
            if savepoint.0 as usize > state.writes.len() {
                return Err(Abort::NoSuchSavepoint);
            }
            state.truncate_writes(savepoint.0 as usize);
            Ok(())
        })
    }

    fn now_us(&self) -> i64 {
        let state = &mut *self.state.borrow_mut();
        *state.determinism.time_us.get_or_insert_with(|| self.engine.wall_clock_us())
    }

    fn random(&self) -> u64 {
        let state = &mut *self.state.borrow_mut();
        let determinism = &mut state.determinism;
        let seed = *determinism.seed.get_or_insert_with(|| self.engine.fresh_seed());
        determinism.drawn += 1;
        split_mix(seed.wrapping_add(determinism.drawn.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }
}

/// Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014: the finaliser.
/// Its numbers are part of what command replay repeats, so it may never change.
fn split_mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
