//! One way to rows: [`Access`] is what a running transaction, a replayed command and a bulk load
//! have in common, and [`Transaction`] is its comfortable face.

use crate::error::Abort;
use crate::storage::range::Range;
use crate::storage::row::Row;
use crate::storage::schema::{Columns, Set};
use crate::storage::value::Value;
use std::ops::Bound;

/// A table of an open database, as declared to the builder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Table(pub(crate) u32);

impl Table {
    /// The `n`-th table declared to the builder, counted from 0.
    pub const fn nth(n: u32) -> Table {
        Table(n)
    }
}

/// A secondary index of a table: its position among the indexes declared in the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Index(pub u16);

/// A place in one transaction to roll back to: no other transaction, another attempt of the same closure
/// included, takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint(pub(crate) u64);

/// What a stored procedure may do. Object-safe, so that one procedure serves the running database,
/// command replay and bulk load, and cannot behave differently there.
///
/// Every operation may return [`Abort::Conflict`]; the caller passes it on with `?` and the engine
/// runs the transaction again.
pub trait Access {
    /// Reads a row by primary key, or by row id where the table has none.
    fn get<'a>(
        &'a self,
        table: Table,
        key: &[Value<'_>],
        columns: Columns,
    ) -> Result<Option<Row<'a>>, Abort>;
    /// Says that some columns of a row will be read or written soon. A hint, without effect on anything
    /// but speed.
    fn prefetch(&self, table: Table, key: &[Value<'_>], columns: Columns) {
        let _ = (table, key, columns);
    }
    /// Says that a scan of this range will begin soon, or that rows will be put where it would. A hint, without
    /// effect on anything but speed.
    fn prefetch_range(&self, table: Table, index: Option<Index>, range: &Range<'_>) {
        let _ = (table, index, range);
    }
    /// Inserts a row given as one value per column and returns its hidden row id (0 in tables with a
    /// primary key).
    fn insert(&self, table: Table, row: &[Value<'_>]) -> Result<u64, Abort>;
    /// Changes some columns of a row; false if there is no such row.
    fn update(&self, table: Table, key: &[Value<'_>], sets: &[Set<'_>]) -> Result<bool, Abort>;
    /// Inserts a row or replaces the one with its primary key; true if it replaced one.
    fn upsert(&self, table: Table, row: &[Value<'_>]) -> Result<bool, Abort>;
    /// Inserts a row or replaces the one with its primary key, without saying which.
    fn put(&self, table: Table, row: &[Value<'_>]) -> Result<(), Abort> {
        self.upsert(table, row).map(drop)
    }
    /// Deletes a row; false if there is no such row.
    fn delete(&self, table: Table, key: &[Value<'_>]) -> Result<bool, Abort>;
    /// Reads the rows of a key range of the primary key (`None`) or a secondary index, in key order.
    fn scan<'a>(
        &'a self,
        table: Table,
        index: Option<Index>,
        range: &Range<'_>,
        columns: Columns,
    ) -> Result<&'a [Row<'a>], Abort>;
    /// Marks a place to roll back to.
    fn savepoint(&self) -> Savepoint;
    /// Takes back every change since the savepoint.
    fn rollback_to(&self, savepoint: Savepoint) -> Result<(), Abort>;
    /// The transaction's time in microseconds since 1970: one value for the whole transaction, the
    /// same at replay.
    fn now_us(&self) -> i64;
    /// A random number from the transaction's own seed, the same at replay.
    fn random(&self) -> u64;
}

/// A transaction in progress: the typed, comfortable form of [`Access`].
///
/// Rows that it returns are copies of the columns asked for and live as long as the transaction's
/// borrow; several can be held at once.
#[derive(Clone, Copy)]
pub struct Transaction<'t>(pub(crate) &'t dyn Access);

impl<'t> Transaction<'t> {
    /// Wraps any access; tests and tools use it to run procedures outside a database.
    pub fn over(access: &'t dyn Access) -> Self {
        Transaction(access)
    }

    /// Reads a whole row by primary key (or row id, where the table has no primary key).
    #[inline]
    pub fn get(&self, table: Table, key: impl Key) -> Result<Option<Row<'t>>, Abort> {
        key.with(|key| self.0.get(table, key, Columns::ALL))
    }

    /// Reads some columns of a row.
    #[inline]
    pub fn get_columns(
        &self,
        table: Table,
        key: impl Key,
        columns: Columns,
    ) -> Result<Option<Row<'t>>, Abort> {
        key.with(|key| self.0.get(table, key, columns))
    }

    /// Says that some columns of a row will be read or written soon: a hint, without effect on anything
    /// but speed. In a large hash table most of the time of a lookup goes into waiting for memory;
    /// a transaction that knows several keys announces them all, then reads, and waits once.
    ///
    /// ```
    /// # use hyades::{Abort, Column, Columns, Database, Schema, Type};
    /// # let dir = tempfile::tempdir()?;
    /// # let dir = dir.path();
    /// const BALANCE: Column<i64> = Column::at(1);
    /// # let mut builder = Database::builder();
    /// # let accounts = builder.table(
    /// #     Schema::new("accounts").column("id", Type::I64).column("balance", Type::I64)
    /// #         .primary_key(&["id"]).hash());
    /// # let db = builder.open(dir)?;
    /// # db.transact(|tx| {
    /// #     for id in 1..=3i64 { tx.insert(accounts, &[id.into(), 10i64.into()])?; }
    /// #     Ok::<_, Abort>(())
    /// # })??;
    /// let total = db.transact(|tx| {
    ///     let ids = [1i64, 2, 3];
    ///     for id in ids {
    ///         tx.prefetch(accounts, id, BALANCE.only());
    ///     }
    ///     let mut total = 0;
    ///     for id in ids {
    ///         total += tx.get(accounts, id)?.map_or(0, |row| row.get(BALANCE));
    ///     }
    ///     Ok::<_, Abort>(total)
    /// })??;
    /// assert_eq!(total, 30);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn prefetch(&self, table: Table, key: impl Key, columns: Columns) {
        key.with(|key| self.0.prefetch(table, key, columns))
    }

    /// Inserts a row, one value per column in declaration order. Returns the hidden row id in tables
    /// without a primary key, 0 in others.
    ///
    /// # Errors
    /// [`Abort::DuplicateKey`] if the primary key or a unique index has the key already; the
    /// transaction may go on after it.
    #[inline]
    pub fn insert(&self, table: Table, row: &[Value<'_>]) -> Result<u64, Abort> {
        self.0.insert(table, row)
    }

    /// Changes some columns of a row; false if there is no such row.
    #[inline]
    pub fn update(&self, table: Table, key: impl Key, sets: &[Set<'_>]) -> Result<bool, Abort> {
        key.with(|key| self.0.update(table, key, sets))
    }

    /// Inserts a row or replaces the one with its primary key; true if it replaced one.
    #[inline]
    pub fn upsert(&self, table: Table, row: &[Value<'_>]) -> Result<bool, Abort> {
        self.0.upsert(table, row)
    }

    /// Inserts a row or replaces the one with its primary key, without saying which.
    ///
    /// It learns nothing of what was there. Under [`Protocol::Poplar`](crate::Protocol::Poplar) a transaction that
    /// does nothing but put rows, into tables without secondary indexes, is acknowledged once its own
    /// record is durable, and outlives a crash even if earlier transactions do not, whose rows it
    /// replaced or not. What it puts down must therefore not follow from what other transactions
    /// have read or reported before these are acknowledged: wait for their tickets first, or read again
    /// in this transaction. Under other protocols it is an [`upsert`](Self::upsert).
    ///
    /// ```
    /// use hyades::{Abort, Column, Database, Protocol, Schema, Type};
    /// # let dir = tempfile::tempdir()?;
    /// # let dir = dir.path();
    /// const CELSIUS: Column<f64> = Column::at(1);
    /// let mut builder = Database::builder().protocol(Protocol::Poplar);
    /// let latest = builder.table(
    ///     Schema::new("latest")
    ///         .column("sensor", Type::U32)
    ///         .column("celsius", Type::F64)
    ///         .primary_key(&["sensor"]),
    /// );
    /// let db = builder.open(dir)?;
    /// for celsius in [20.5, 21.0] {
    ///     db.transact(|tx| tx.put(latest, &[7u32.into(), celsius.into()]))??;
    /// }
    /// let now = db.transact(|tx| Ok::<_, Abort>(tx.get(latest, 7u32)?.map(|row| row.get(CELSIUS))))??;
    /// assert_eq!(now, Some(21.0));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn put(&self, table: Table, row: &[Value<'_>]) -> Result<(), Abort> {
        self.0.put(table, row)
    }

    /// Deletes a row; false if there is no such row.
    #[inline]
    pub fn delete(&self, table: Table, key: impl Key) -> Result<bool, Abort> {
        key.with(|key| self.0.delete(table, key))
    }

    /// Begins a scan over the primary key.
    ///
    /// ```
    /// use hyades::{Abort, Column, Database, Schema, Type};
    /// # let dir = tempfile::tempdir()?;
    /// # let dir = dir.path();
    /// const QUANTITY: Column<i32> = Column::at(2);
    /// let mut builder = Database::builder();
    /// let lines = builder.table(
    ///     Schema::new("order_lines")
    ///         .column("order", Type::I64)
    ///         .column("line", Type::I32)
    ///         .column("quantity", Type::I32)
    ///         .primary_key(&["order", "line"]),
    /// );
    /// let db = builder.open(dir)?;
    /// db.transact(|tx| {
    ///     for (order, line, quantity) in [(1i64, 1, 10), (1, 2, 20), (2, 1, 30)] {
    ///         tx.insert(lines, &[order.into(), line.into(), quantity.into()])?;
    ///     }
    ///     // Bounds are prefixes of the key: all lines of order 1.
    ///     let order = [1i64.into()];
    ///     let rows = tx.scan(lines).prefix(&order).rows()?;
    ///     assert_eq!(rows.iter().map(|row| row.get(QUANTITY)).sum::<i32>(), 30);
    ///     // The last line of all, reading one column.
    ///     let last = tx.scan(lines).descending().limit(1).columns(QUANTITY.only()).rows()?;
    ///     assert_eq!(last[0].get(QUANTITY), 30);
    ///     Ok::<_, Abort>(())
    /// })??;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn scan<'k>(&self, table: Table) -> Scan<'t, 'k> {
        Scan::new(self.0, table, None)
    }

    /// Begins a scan over a secondary index.
    pub fn scan_index<'k>(&self, table: Table, index: Index) -> Scan<'t, 'k> {
        Scan::new(self.0, table, Some(index))
    }

    /// Marks a place to roll back to.
    pub fn savepoint(&self) -> Savepoint {
        self.0.savepoint()
    }

    /// Takes back every change made since the savepoint. What was read stays read. The savepoint stays; later ones
    /// are gone.
    ///
    /// # Errors
    /// [`Abort::NoSuchSavepoint`] if it is gone, or another transaction's.
    pub fn rollback_to(&self, savepoint: Savepoint) -> Result<(), Abort> {
        self.0.rollback_to(savepoint)
    }

    /// The transaction's time in microseconds since 1970; the same at replay.
    pub fn now_us(&self) -> i64 {
        self.0.now_us()
    }

    /// A random number from the transaction's seed; the same at replay.
    pub fn random(&self) -> u64 {
        self.0.random()
    }
}

/// A scan being described; [`Scan::rows`] runs it. Bounds are prefixes of the index's columns.
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
    fn new(access: &'t dyn Access, table: Table, index: Option<Index>) -> Self {
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

    /// Only keys that start with these values.
    pub fn prefix(mut self, key: &'k [Value<'k>]) -> Self {
        self.lower = Bound::Included(key);
        self.upper = Bound::Included(key);
        self
    }

    /// Keys from here on, this one included.
    pub fn from(mut self, key: &'k [Value<'k>]) -> Self {
        self.lower = Bound::Included(key);
        self
    }

    /// Keys above every key that starts with these values.
    pub fn after(mut self, key: &'k [Value<'k>]) -> Self {
        self.lower = Bound::Excluded(key);
        self
    }

    /// Keys up to and including those that start with these values.
    pub fn to(mut self, key: &'k [Value<'k>]) -> Self {
        self.upper = Bound::Included(key);
        self
    }

    /// Keys below these values.
    pub fn before(mut self, key: &'k [Value<'k>]) -> Self {
        self.upper = Bound::Excluded(key);
        self
    }

    /// From the upper end downwards.
    pub fn descending(mut self) -> Self {
        self.descending = true;
        self
    }

    /// At most `n` rows.
    pub fn limit(mut self, n: usize) -> Self {
        self.limit = n;
        self
    }

    /// Only these columns.
    pub fn columns(mut self, columns: Columns) -> Self {
        self.columns = columns;
        self
    }

    /// Runs the scan.
    pub fn rows(self) -> Result<&'t [Row<'t>], Abort> {
        self.access.scan(self.table, self.index, &self.range(), self.columns)
    }

    /// Does not run the scan, but says that it will be run soon, or that rows will be inserted where it
    /// would begin: a hint, without effect on anything but speed. The way down the index is looked for level by level,
    /// while the transaction does something else. Of several ways that are announced together, each waits for memory
    /// while the others do.
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
    /// # db.transact(|tx| tx.insert(queues, &[queue.into(), 1i64.into()]))??;
    /// db.transact(|tx| {
    ///     // The new message comes behind the last one of its queue.
    ///     tx.scan(messages).prefix(&[queue.into()]).descending().prefetch();
    ///     let n = tx.get(queues, queue)?.map_or(0, |row| row.get(NEXT));
    ///     tx.update(queues, queue, &[NEXT.set(n + 1)])?;
    ///     tx.insert(messages, &[queue.into(), n.into()])?;
    ///     Ok::<_, Abort>(())
    /// })??;
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

/// Anything that can stand for a key: one value, a tuple of up to five, or a slice of [`Value`]s.
pub trait Key {
    /// Calls `with` on the key's values.
    fn with<R>(self, with: impl FnOnce(&[Value<'_>]) -> R) -> R;
}

macro_rules! key_scalar {
    ($($rust:ty),*) => {$(
        impl Key for $rust {
            #[inline]
            fn with<R>(self, with: impl FnOnce(&[Value<'_>]) -> R) -> R { with(&[self.into()]) }
        }
    )*};
}
key_scalar!(bool, i32, u32, i64, u64, f64, &str, &[u8]);

impl Key for &[Value<'_>] {
    #[inline]
    fn with<R>(self, with: impl FnOnce(&[Value<'_>]) -> R) -> R {
        with(self)
    }
}

macro_rules! key_tuple {
    ($($name:ident $at:tt),*) => {
        impl<'v, $($name: Into<Value<'v>>),*> Key for ($($name,)*) {
            #[inline]
            fn with<R>(self, with: impl FnOnce(&[Value<'_>]) -> R) -> R {
                with(&[$(self.$at.into()),*])
            }
        }
    };
}
key_tuple!(A 0);
key_tuple!(A 0, B 1);
key_tuple!(A 0, B 1, C 2);
key_tuple!(A 0, B 1, C 2, D 3);
key_tuple!(A 0, B 1, C 2, D 3, E 4);
