//! Reads of a snapshot where rows may have left the indexes: first in the index, then among the
//! rows kept beside the index. See [`crate::storage::kept`].

use super::access::Table;
use super::running::{Rec, Running, Tables};
use crate::concurrency::ConcurrencyControl;
use crate::concurrency::state::TxnState;
use crate::error::Abort;
use crate::logging::LoggingProtocol;
use crate::storage::gathered::GatheredRows;
use crate::storage::kept::KeysInOrder;
use crate::storage::row::Row;
use crate::storage::schema::Columns;
use crate::storage::table::WalkPosition;
use crate::storage::wanted::{ahead, fetch_rows};
use bumpalo::collections::Vec as ArenaVec;
use std::ops::ControlFlow;

impl<'s, C: ConcurrencyControl<P>, P: LoggingProtocol> Running<'s, C, P> {
    /// Reads the row of the first record with a row as of the snapshot. All records have one key,
    /// so at most one row is there.
    fn read_one_of(
        &self,
        state: &mut TxnState<'s, C, P>,
        data: &'s Tables<C, P>,
        records: &[&'s Rec<C, P>],
        columns: Columns,
    ) -> Result<Option<Row<'s>>, Abort> {
        for record in records {
            let row = self.read(state, data, record, columns)?;
            if row.is_some() {
                return Ok(row);
            }
        }
        Ok(None)
    }

    /// Reads a row that has left the index, under a key without a row in the index.
    pub(super) fn read_kept(
        &self,
        state: &mut TxnState<'s, C, P>,
        data: &'s Tables<C, P>,
        key: &[u8],
        columns: Columns,
    ) -> Result<Option<Row<'s>>, Abort> {
        let mut found = Ok(None);
        data.visit_kept(key, state.guard, |record| {
            found = self.read(state, data, record, columns);
            match found {
                Ok(None) => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        });
        found
    }

    /// Visits the next rows of a walk over all rows of a table.
    pub fn walk(
        &mut self,
        table: Table,
        columns: Columns,
        at: &mut WalkPosition,
        gathered: &mut GatheredRows,
    ) -> Result<(), Abort> {
        let data = self.table(table)?;
        self.guarded(|state| {
            let (mut read, guard) = (Ok(()), state.guard);
            data.walk_as_of(at, guard, |records| {
                match self.read_one_of(state, data, records, columns) {
                    Ok(row) => {
                        row.iter().for_each(|row| gathered.push(row));
                        match gathered.is_full() {
                            true => ControlFlow::Break(()),
                            false => ControlFlow::Continue(()),
                        }
                    }
                    Err(abort) => {
                        read = Err(abort);
                        ControlFlow::Break(())
                    }
                }
            });
            read
        })
    }

    /// Reads the rows of a range of keys of the primary index, or of a secondary index, up to a
    /// number of rows.
    pub(super) fn scan_snapshot(
        &self,
        state: &mut TxnState<'s, C, P>,
        data: &'s Tables<C, P>,
        index: Option<usize>,
        (keys, limit): (KeysInOrder<'_>, usize),
        columns: Columns,
    ) -> Result<&'s [Row<'s>], Abort> {
        let (mut rows, mut failed, guard) = (ArenaVec::new_in(state.arena), None, state.guard);
        let mut visit = |records: &[&'s Rec<C, P>],
                         is_true: &dyn Fn(&Row<'s>, &Rec<C, P>) -> bool| {
            for record in records {
                match self.read(state, data, record, columns) {
                    Ok(Some(row)) if is_true(&row, record) => {
                        rows.push(row);
                        break;
                    }
                    Ok(_) => {}
                    Err(abort) => {
                        failed = Some(abort);
                        return ControlFlow::Break(());
                    }
                }
            }
            if rows.len() == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        match index {
            None => {
                let fetch = |records: &[&'s Rec<C, P>]| {
                    fetch_rows(data, columns, ahead(records, limit).iter().copied())
                };
                data.scan_as_of(keys, guard, &fetch, &mut |records| visit(records, &|_, _| true))?;
            }
            Some(at) => {
                let fetch =
                    |entries: &[&'s _]| Self::fetch_entries(data, columns, ahead(entries, limit));
                data.scan_index_as_of(at, keys, guard, &fetch, &mut |entry, records| {
                    // An entry of another version of the row does not match the row.
                    let is_true = |row: &Row<'s>, record: &Rec<C, P>| {
                        data.secondary_key(at, row.bytes, record.key())[..] == *entry
                    };
                    visit(records, &is_true)
                });
            }
        }
        match failed {
            Some(abort) => Err(abort),
            None => Ok(rows.into_bump_slice()),
        }
    }
}
