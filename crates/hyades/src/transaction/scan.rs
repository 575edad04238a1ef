//! Scans as programs write them: bounds, order, limit and columns.

use super::access::{Access, Index, Table};
use crate::error::Abort;
use crate::storage::range::Range;
use crate::storage::row::Row;
use crate::storage::schema::Columns;
use crate::storage::value::Value;
use std::ops::Bound;

/// A scan to be configured; [`Scan::rows`] runs it. Bounds are prefixes of the index's columns.
pub struct Scan<'t, 'k> {
    access: &'t dyn Access,
    table: Table,
    index: Option<Index>,
    lower: Bound<&'k [Value<'k>]>,
    upper: Bound<&'k [Value<'k>]>,
    descending: bool,
    limit: usize,
    columns: Columns,
}

impl<'t, 'k> Scan<'t, 'k> {
    pub(crate) fn new(access: &'t dyn Access, table: Table, index: Option<Index>) -> Self {
        Scan {
            access,
            table,
            index,
            lower: Bound::Unbounded,
            upper: Bound::Unbounded,
            descending: false,
            limit: usize::MAX,
            columns: Columns::ALL,
        }
    }

    /// Restricts the scan to keys that start with these values.
    pub fn prefix(mut self, key: &'k [Value<'k>]) -> Self {
        self.lower = Bound::Included(key);
        self.upper = Bound::Included(key);
        self
    }

    /// Keys at or above these values.
    pub fn from(mut self, key: &'k [Value<'k>]) -> Self {
        self.lower = Bound::Included(key);
        self
    }

    /// Keys above every key that starts with these values.
    pub fn after(mut self, key: &'k [Value<'k>]) -> Self {
        self.lower = Bound::Excluded(key);
        self
    }

    /// Keys up to and including the keys that start with these values.
    pub fn to(mut self, key: &'k [Value<'k>]) -> Self {
        self.upper = Bound::Included(key);
        self
    }

    /// Keys below these values.
    pub fn before(mut self, key: &'k [Value<'k>]) -> Self {
        self.upper = Bound::Excluded(key);
        self
    }

    /// In descending order of keys.
    pub fn descending(mut self) -> Self {
        self.descending = true;
        self
    }

    /// At most `n` rows.
    pub fn limit(mut self, n: usize) -> Self {
        self.limit = n;
        self
    }

    /// Reads only these columns.
    pub fn columns(mut self, columns: Columns) -> Self {
        self.columns = columns;
        self
    }

    /// Runs the scan and returns its rows in order. The range is protected against phantoms until
    /// the transaction commits.
    pub fn rows(self) -> Result<&'t [Row<'t>], Abort> {
        self.access.scan(self.table, self.index, &self.range(), self.columns)
    }

    /// Announces that the scan will run soon, or that rows will be inserted where the scan would
    /// begin, without running the scan. A hint: affects only speed. The index is descended level by
    /// level while the transaction does other work, and the memory accesses of several announced
    /// descents overlap.
    ///
    /// ```
    /// # use hyades::{Abort, Column, Database, Schema, Type};
    /// # let dir = tempfile::tempdir()?;
    /// # let dir = dir.path();
    /// # const NEXT: Column<i64> = Column::at(1);
    /// # let mut builder = Database::builder();
    /// # let queues = builder.table(
    /// #     Schema::new("queues").column("id", Type::I64).column("next", Type::I64)
    /// #         .primary_key(&["id"]).hash());
    /// # let messages = builder.table(
    /// #     Schema::new("messages").column("queue", Type::I64).column("n", Type::I64)
    /// #         .primary_key(&["queue", "n"]));
    /// # let db = builder.open(dir)?;
    /// # let queue = 7i64;
    /// # db.transact(|tx| Ok(tx.insert(queues, &[queue.into(), 1i64.into()])?))?;
    /// db.transact(|tx| {
    ///     // The new message comes behind the last one of its queue.
    ///     tx.scan(messages).prefix(&[queue.into()]).descending().prefetch();
    ///     let n = tx.get(queues, queue)?.map_or(0, |row| row.get(NEXT));
    ///     tx.update(queues, queue, &[NEXT.set(n + 1)])?;
    ///     tx.insert(messages, &[queue.into(), n.into()])?;
    ///     Ok(())
    /// })?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn prefetch(self) {
        self.access.prefetch_range(self.table, self.index, &self.range());
    }

    fn range(&self) -> Range<'k> {
        Range {
            lower: self.lower,
            upper: self.upper,
            descending: self.descending,
            limit: self.limit,
        }
    }
}
