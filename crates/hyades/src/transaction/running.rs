//! [`Access`] for a transaction in progress, over any concurrency control and logging protocol.

use super::access::{Access, Index, Savepoint, Table};
use super::walk::{WalkStep, Walked};
use crate::concurrency::state::TxnState;
use crate::concurrency::{ConcurrencyControl, VisibleRow};
use crate::engine::Engine;
use crate::error::Abort;
use crate::logging::LoggingProtocol;
use crate::logging::determinism::Drawn;
use crate::logging::write::Pending;
use crate::storage::descents::IndexPositions;
use crate::storage::key::{KeyBytes, same};
use crate::storage::layout::Layout;
use crate::storage::partition::Partitions;
use crate::storage::range::Range;
use crate::storage::record::Record;
use crate::storage::row::Row;
use crate::storage::row_access::RowPart;
use crate::storage::schema::{Columns, Set};
use crate::storage::table::{self, Lookup, Placed};
use crate::storage::value::Value;
use crate::storage::wanted::PrefetchedRow;
use crate::storage::window::window;
use hyades_platform::phase::{self, Phase};
use std::cell::RefCell;

pub(super) type Tables<C, P> = table::TableData<<C as ConcurrencyControl<P>>::Row>;
pub(super) type Rec<C, P> = Record<<C as ConcurrencyControl<P>>::Row>;

pub(crate) struct Running<'s, C: ConcurrencyControl<P>, P: LoggingProtocol> {
    pub(super) engine: &'s Engine<P, C::Row>,
    pub(super) control: &'s C,
    state: RefCell<TxnState<'s, C, P>>,
    /// The rows were prefetched before the transaction began.
    prefetched: bool,
}

impl<'s, C: ConcurrencyControl<P>, P: LoggingProtocol> Running<'s, C, P> {
    #[inline(always)]
    pub fn new(engine: &'s Engine<P, C::Row>, control: &'s C, state: TxnState<'s, C, P>) -> Self {
        Running { engine, control, state: RefCell::new(state), prefetched: false }
    }

    /// Sets whether the transaction's rows have been prefetched before it began.
    pub fn set_prefetched(&mut self, prefetched: bool) {
        self.prefetched = prefetched;
    }

    pub fn state(&mut self) -> &mut TxnState<'s, C, P> {
        self.state.get_mut()
    }

    pub(super) fn table(&self, table: Table) -> Result<&'s Tables<C, P>, Abort> {
        match self.engine.tables.get(table.number() as usize) {
            Some(data) if table.origin().fits(data.origin()) => Ok(data),
            _ => Err(table.refused()),
        }
    }

    /// Like [`Running::attempted`], for every operation except a blind write.
    #[inline(always)]
    pub(super) fn guarded<T>(
        &self,
        run: impl FnOnce(&mut TxnState<'s, C, P>) -> Result<T, Abort>,
    ) -> Result<T, Abort> {
        self.attempted(|state| {
            state.has_read = true;
            run(state)
        })
    }

    /// Runs an operation. Remembers a conflict: the transaction runs again even if the body goes
    /// on.
    #[inline(always)]
    fn attempted<T>(
        &self,
        run: impl FnOnce(&mut TxnState<'s, C, P>) -> Result<T, Abort>,
    ) -> Result<T, Abort> {
        let state = &mut *self.state.borrow_mut();
        state.checks.operations += 1;
        if state.checks.operations >= state.checks.check_at {
            self.check(state)?;
        }
        if state.guard.must_end() {
            return Err(Self::failed(state, Abort::RanTooLong));
        }
        let result = run(state);
        if C::has_ended(state) {
            return Err(Self::failed(state, Abort::SnapshotEnded));
        }
        result.map_err(|abort| Self::failed(state, abort))
    }

    #[cold]
    fn failed(state: &mut TxnState<'s, C, P>, abort: Abort) -> Abort {
        match abort {
            Abort::Conflict => Self::conflicts(state),
            // A failed operation may have inserted a record or an entry without a later write.
            _ => state.rolled_back = true,
        }
        abort
    }

    /// Like [`Running::attempted`], for every writing operation.
    #[inline(always)]
    fn written<T>(
        &self,
        run: impl FnOnce(&mut TxnState<'s, C, P>) -> Result<T, Abort>,
    ) -> Result<T, Abort> {
        self.attempted(|state| {
            state.is_writer = true;
            C::in_present(state, run)
        })
    }

    /// Encodes a primary key, or a row id, into the empty `out`.
    #[inline]
    pub(super) fn encode_key(
        data: &Tables<C, P>,
        key: &[Value<'_>],
        out: &mut KeyBytes,
    ) -> Result<(), Abort> {
        match data.encode_key(key, out) {
            // `out` holds the key all the same.
            Err(abort @ Abort::KeyTooLarge { .. }) => C::exceeds_key_size(abort),
            encoded => encoded,
        }
    }

    /// Looks up a primary key; first starts loading the announced rows.
    #[inline]
    pub(super) fn find(
        &self,
        state: &mut TxnState<'s, C, P>,
        data: &'s Tables<C, P>,
        key: &KeyBytes,
    ) -> Lookup<'s, C::Row> {
        if let Some((table, record)) = state.last_found
            && table == data.layout.table
            && same(record.key(), key)
        {
            return Lookup::Found(record);
        }
        let _measured = phase::enter(Phase::Index);
        if !state.announced.wanted.is_empty() {
            self.fetch_wanted(state);
        }
        self.seek_places(state);
        let found = data.find(key, state.guard);
        if let Lookup::Found(record) = found {
            state.last_found = Some((data.layout.table, record));
        }
        found
    }

    /// Advances the announced index descents.
    #[inline]
    pub(super) fn seek_places(&self, state: &mut TxnState<'s, C, P>) {
        if let Some(places) = &mut state.announced.places
            && places.any_under_way()
        {
            places.advance_all(&self.engine.tables);
        }
    }

    /// Starts loading the announced records: their hash buckets are in the cache by now.
    fn fetch_wanted(&self, state: &mut TxnState<'s, C, P>) {
        PrefetchedRow::prefetch_records(
            &mut state.announced.wanted,
            &self.engine.tables,
            state.guard,
        );
        state.announced.wanted.clear();
    }

    /// Prepares a write of a record. Returns whether its row exists.
    #[inline(always)]
    pub(super) fn intend(
        &self,
        state: &mut TxnState<'s, C, P>,
        table: Table,
        record: &'s Rec<C, P>,
    ) -> Result<bool, Abort> {
        let _measured = phase::enter(Phase::Control);
        self.control.intend(self.engine, state, table.number(), record)
    }

    /// Reads the columns of a row, as written by this transaction or as committed.
    #[inline(always)]
    pub(super) fn read(
        &self,
        state: &mut TxnState<'s, C, P>,
        table: &'s Tables<C, P>,
        record: &'s Rec<C, P>,
        columns: Columns,
    ) -> Result<Option<Row<'s>>, Abort> {
        if let Some(at) = C::own_write(state, record) {
            let own = state.own_row(at, table)?;
            let row = |bytes| Self::row(table, record, &table.layout, RowPart::first(bytes));
            return Ok(own.map(row));
        }
        self.read_committed(state, table, record, columns)
    }

    #[inline(always)]
    fn row(
        table: &'s Tables<C, P>,
        record: &'s Rec<C, P>,
        layout: &'s Layout,
        part: RowPart<'s>,
    ) -> Row<'s> {
        Row {
            layout,
            bytes: part.bytes,
            base: part.base,
            window_nulls: part.nulls,
            row_id: if table.keyless { row_id(record.key()) } else { 0 },
        }
    }

    /// Reads the columns of a row as committed, whatever this transaction has written.
    #[inline(always)]
    pub(super) fn read_committed(
        &self,
        state: &mut TxnState<'s, C, P>,
        table: &'s Tables<C, P>,
        record: &'s Rec<C, P>,
        columns: Columns,
    ) -> Result<Option<Row<'s>>, Abort> {
        let _measured = phase::enter(Phase::Control);
        let arena = state.arena;
        let (window, layout) = (window(table, columns), table.layout_read(columns));
        let read = self.control.read(self.engine, state, table.layout.table, record, || {
            table.read_part(record, columns, window, arena)
        })?;
        let part = match read {
            VisibleRow::There(part) => part,
            VisibleRow::Older(bytes) if table.needs_key(columns) => {
                RowPart::first(table.whole_row(record, bytes, arena))
            }
            VisibleRow::Older(bytes) => RowPart::first(bytes),
            VisibleRow::Absent => return Ok(None),
        };
        Ok(Some(Self::row(table, record, layout, part)))
    }

    /// Reads a whole row, in encoded form. The row is the transaction's own, locked, or added to
    /// the read set.
    pub(super) fn read_whole(
        &self,
        state: &mut TxnState<'s, C, P>,
        table: &'s Tables<C, P>,
        record: &'s Rec<C, P>,
    ) -> Result<Option<&'s [u8]>, Abort> {
        Ok(self.read(state, table, record, Columns::ALL)?.map(|row| row.bytes))
    }
}

/// Returns the hidden row id encoded in a key.
fn row_id(key: &[u8]) -> u64 {
    u64::from_be_bytes(key.try_into().expect("a row id is eight bytes"))
}

impl<'s, C: ConcurrencyControl<P>, P: LoggingProtocol> Access for Running<'s, C, P> {
    #[inline]
    fn get<'a>(
        &'a self,
        table: Table,
        key: &[Value<'_>],
        columns: Columns,
    ) -> Result<Option<Row<'a>>, Abort> {
        self.guarded(|state| {
            let data = self.table(table)?;
            let mut sought = KeyBytes::new();
            Self::encode_key(data, key, &mut sought)?;
            self.enter_key(state, data, key, false)?;
            let found = match self.find_or_miss(state, data, &sought) {
                Some(record) => self.read(state, data, record, columns)?,
                None => None,
            };
            match found {
                None => C::beside_indexes(|| self.read_kept(state, data, &sought, columns))
                    .unwrap_or(Ok(None)),
                row => Ok(row),
            }
        })
    }

    fn version(&self, table: Table, key: &[Value<'_>]) -> Result<Option<u64>, Abort> {
        self.guarded(|state| self.committed_version(state, table, key))
    }

    fn prefetch(&self, table: Table, key: &[Value<'_>], columns: Columns) {
        if self.prefetched {
            return;
        }
        let state = &mut *self.state.borrow_mut();
        // An invalid key is reported by the operation that uses it.
        let Ok(data) = self.table(table) else { return };
        let mut wanted = KeyBytes::new();
        if data.encode_key(key, &mut wanted).is_ok() {
            state.announced.wanted.extend(PrefetchedRow::prefetch(
                data,
                &wanted,
                columns,
                state.guard,
            ));
        }
    }

    fn prefetch_range(&self, table: Table, index: Option<Index>, range: &Range<'_>) {
        let state = &mut *self.state.borrow_mut();
        if let Ok(data) = self.table(table) {
            let index = index.map(|index| usize::from(index.0));
            IndexPositions::of(&mut state.announced.places, state.arena).begin(
                data,
                index,
                range,
                state.guard,
            );
        }
    }

    fn insert(&self, table: Table, row: &[Value<'_>]) -> Result<u64, Abort> {
        self.written(|state| {
            state.has_read = true;
            let data = self.table(table)?;
            let mut key = KeyBytes::new();
            let (bytes, id) = self.encode(state, data, row, &mut key)?;
            self.enter_row(state, data, row)?;
            let (record, there) = self.claim(state, table, data, &key, (bytes, true))?;
            if there {
                return Err(Abort::DuplicateKey { table: table.number(), index: None });
            }
            self.index(state, (table, data), record, None, Some(bytes), u64::MAX)?;
            state.push_write(table.number(), record, Pending::Put(bytes));
            Ok(id)
        })
    }

    fn update(&self, table: Table, key: &[Value<'_>], sets: &[Set<'_>]) -> Result<bool, Abort> {
        self.written(|state| {
            state.has_read = true;
            self.update_row(state, table, key, sets)
        })
    }

    fn upsert(&self, table: Table, row: &[Value<'_>]) -> Result<bool, Abort> {
        self.written(|state| {
            state.has_read = true;
            let data = self.table(table)?;
            let mut key = KeyBytes::new();
            let (bytes, _) = self.encode(state, data, row, &mut key)?;
            self.enter_row(state, data, row)?;
            let (record, there) = self.claim(state, table, data, &key, (bytes, false))?;
            let old = if there && data.indexed != 0 {
                self.read_whole(state, data, record)?
            } else {
                None
            };
            self.index(state, (table, data), record, old, Some(bytes), u64::MAX)?;
            state.push_write(table.number(), record, Pending::Put(bytes));
            Ok(there)
        })
    }

    fn overwrite(&self, table: Table, row: &[Value<'_>]) -> Result<(), Abort> {
        let data = self.table(table)?;
        if !data.secondaries.is_empty() {
            // The index entries of the replaced row become stale, so the replaced row has to be
            // read.
            return self.upsert(table, row).map(drop);
        }
        self.written(|state| {
            let mut key = KeyBytes::new();
            let (bytes, _) = self.encode(state, data, row, &mut key)?;
            self.enter_row(state, data, row)?;
            let record = match self.record_for(state, data, &key, (bytes, false))? {
                Placed::New(record, change) => self.inserted(state, table, record, change),
                Placed::Exists(record) => {
                    if state.own_write(record).is_none() {
                        let _measured = phase::enter(Phase::Control);
                        self.control.intend_blindly(self.engine, state, table.number(), record)?;
                    }
                    record
                }
            };
            state.push_write(table.number(), record, Pending::Put(bytes));
            Ok(())
        })
    }

    fn delete(&self, table: Table, key: &[Value<'_>]) -> Result<bool, Abort> {
        self.written(|state| {
            state.has_read = true;
            let data = self.table(table)?;
            let mut sought = KeyBytes::new();
            Self::encode_key(data, key, &mut sought)?;
            self.enter_key(state, data, key, true)?;
            let Some(record) = self.find_or_miss(state, data, &sought) else { return Ok(false) };
            match state.own_write(record) {
                Some(at) if matches!(state.writes[at].pending, Pending::Delete) => {
                    return Ok(false);
                }
                Some(_) => {}
                None if !self.intend(state, table, record)? => {
                    return Ok(false);
                }
                None => {}
            }
            if data.indexed != 0
                && let Some(old) = self.read_whole(state, data, record)?
            {
                self.index(state, (table, data), record, Some(old), None, u64::MAX)?;
            }
            state.push_write(table.number(), record, Pending::Delete);
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
        self.guarded(|state| self.scan_rows(state, table, index, range, columns))
    }

    fn walk<'a>(&'a self, table: Table, step: &WalkStep<'_>) -> Result<Walked<'a>, Abort> {
        self.guarded(|state| self.walk_rows(state, table, step))
    }

    fn sum(
        &self,
        table: Table,
        prefix: &[Value<'_>],
        before: Option<&[Value<'_>]>,
    ) -> Result<u64, Abort> {
        self.guarded(|state| self.sum_rows(state, table, prefix, before))
    }

    fn select<'a>(
        &'a self,
        table: Table,
        prefix: &[Value<'_>],
        n: u64,
    ) -> Result<Option<(Row<'a>, u64)>, Abort> {
        self.guarded(|state| self.select_row(state, table, prefix, n))
    }

    fn hold(&self, partitions: Partitions) -> Result<(), Abort> {
        self.attempted(|state| self.control.hold(state, partitions.0))
    }

    fn hold_stated(
        &self,
        partitions: &mut dyn FnMut() -> Result<Partitions, Abort>,
    ) -> Result<(), Abort> {
        self.attempted(|state| self.control.hold_stated(state, || partitions().map(|set| set.0)))
    }

    fn savepoint(&self) -> Savepoint {
        let state = &mut *self.state.borrow_mut();
        state.workspace.last_savepoint += 1;
        state.savepoints.push((state.workspace.last_savepoint, state.writes.len()));
        Savepoint(state.workspace.last_savepoint)
    }

    fn rollback_to(&self, savepoint: Savepoint) -> Result<(), Abort> {
        self.attempted(|state| {
            // Savepoint numbers ascend.
            let at = state.savepoints.binary_search_by_key(&savepoint.0, |(number, _)| *number);
            let at = at.map_err(|_| Abort::NoSuchSavepoint)?;
            state.savepoints.truncate(at + 1);
            state.truncate_writes(state.savepoints[at].1);
            Ok(())
        })
    }

    fn now_us(&self) -> i64 {
        let state = &mut *self.state.borrow_mut();
        if state.call.stated_slots.is_some() && state.draws.determinism.time_us.is_none() {
            state.lack(Drawn::TIME);
            return 0;
        }
        *state.draws.determinism.time_us.get_or_insert_with(|| self.engine.wall_clock_us())
    }

    fn random(&self) -> u64 {
        let state = &mut *self.state.borrow_mut();
        state.draws.determinism.random(|| self.engine.fresh_seed())
    }
}
