//! Access to rows: [`Access`] is the interface that a running transaction, a replayed command and a
//! bulk load share; [`Transaction`] is its convenient form.

use super::key::Key;
use super::scan::Scan;
use super::walk::{WalkStep, Walked};
use crate::error::Abort;
use crate::storage::origin::Origin;
use crate::storage::partition::Partitions;
use crate::storage::range::Range;
use crate::storage::row::Row;
use crate::storage::schema::{Columns, Set};
use crate::storage::value::Value;
use std::fmt;

/// The handle of a table, as returned by [`Builder::table`](crate::Builder::table). The handle is
/// for the database that this builder opens: every other database refuses it with
/// [`Abort::ForeignHandle`].
///
/// One word, the number below the origin, to be passed in one register.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Table(u64);

impl Table {
    /// Returns the `n`-th table declared to the builder, counted from 0. Such a handle belongs to
    /// no builder: any database takes it as its own `n`-th table. It is not equal to the handle
    /// that the builder returns.
    pub const fn nth(n: u32) -> Table {
        Table::declared(n, Origin::BY_HAND)
    }

    pub(crate) const fn declared(number: u32, origin: Origin) -> Table {
        Table((origin.number() as u64) << 32 | number as u64)
    }

    #[inline(always)]
    pub(crate) const fn number(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    pub(crate) const fn origin(self) -> Origin {
        Origin::numbered((self.0 >> 32) as u32)
    }

    /// Returns the error of an operation on a table that is not in the database.
    #[cold]
    pub(crate) fn refused(self) -> Abort {
        match self.origin() {
            Origin::BY_HAND => Abort::UnknownHandle,
            _ => Abort::ForeignHandle { table: self.number() },
        }
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Table").field(&self.number()).finish()
    }
}

/// A secondary index of a table: its position among the indexes declared in the schema. An `Index`
/// belongs to no builder and no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Index(pub u16);

/// A point in a transaction to roll back to. Valid in a single attempt only: neither in another
/// transaction, of this or another database, nor in another attempt of the same closure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint(pub(crate) u64);

/// The operations of a transaction. Object-safe: the same procedure code serves the running
/// database, command replay and bulk load.
///
/// Every operation may return [`Abort::Conflict`]: return the error to the caller with `?`, and the
/// engine runs the transaction again.
pub trait Access {
    /// Reads a row by primary key, or by row id if the table has no primary key.
    fn get<'a>(
        &'a self,
        table: Table,
        key: &[Value<'_>],
        columns: Columns,
    ) -> Result<Option<Row<'a>>, Abort>;
    /// Announces that some columns of a row will be read or written soon. A hint: affects only
    /// speed.
    fn prefetch(&self, table: Table, key: &[Value<'_>], columns: Columns) {
        let _ = (table, key, columns);
    }
    /// Announces a scan of this range soon, or insertions where the scan would begin. A hint:
    /// affects only speed.
    fn prefetch_range(&self, table: Table, index: Option<Index>, range: &Range<'_>) {
        let _ = (table, index, range);
    }
    /// Returns the version of a row as committed, see [`Transaction::version`].
    fn version(&self, table: Table, key: &[Value<'_>]) -> Result<Option<u64>, Abort> {
        // An access that keeps no versions.
        let _ = (table, key);
        Err(Abort::ReadOnly)
    }
    /// Inserts a row, one value per column. Returns its hidden row id, 0 in tables with a primary
    /// key.
    fn insert(&self, table: Table, row: &[Value<'_>]) -> Result<u64, Abort>;
    /// Changes some columns of a row; returns false if there is no such row.
    fn update(&self, table: Table, key: &[Value<'_>], sets: &[Set<'_>]) -> Result<bool, Abort>;
    /// Inserts a row or replaces the row with the same primary key; returns true if a row was
    /// replaced.
    fn upsert(&self, table: Table, row: &[Value<'_>]) -> Result<bool, Abort>;
    /// Inserts a row or replaces the row with the same primary key, without reporting which.
    fn overwrite(&self, table: Table, row: &[Value<'_>]) -> Result<(), Abort> {
        self.upsert(table, row).map(drop)
    }
    /// Deletes a row; returns false if there is no such row.
    fn delete(&self, table: Table, key: &[Value<'_>]) -> Result<bool, Abort>;
    /// Reads the rows in a range of the primary key (`None`) or of a secondary index, in key order.
    fn scan<'a>(
        &'a self,
        table: Table,
        index: Option<Index>,
        range: &Range<'_>,
        columns: Columns,
    ) -> Result<&'a [Row<'a>], Abort>;
    /// Reads rows of a hash table from a cursor on, see [`Transaction::walk`].
    fn walk<'a>(&'a self, table: Table, step: &WalkStep<'_>) -> Result<Walked<'a>, Abort> {
        // An access without an index to walk.
        let _ = (table, step);
        Err(Abort::NotInCall)
    }
    /// Returns the sum over the rows of a prefix, see [`Transaction::sum`].
    fn sum(
        &self,
        table: Table,
        prefix: &[Value<'_>],
        before: Option<&[Value<'_>]>,
    ) -> Result<u64, Abort> {
        // An access without sums.
        let _ = (table, prefix, before);
        Err(Abort::UnknownHandle)
    }
    /// Returns the row with an element of a prefix, see [`Transaction::select`].
    fn select<'a>(
        &'a self,
        table: Table,
        prefix: &[Value<'_>],
        n: u64,
    ) -> Result<Option<(Row<'a>, u64)>, Abort> {
        // An access without sums.
        let _ = (table, prefix, n);
        Err(Abort::UnknownHandle)
    }
    /// States which partitions the transaction will access, see [`Transaction::hold`].
    fn hold(&self, partitions: Partitions) -> Result<(), Abort> {
        let _ = partitions;
        Ok(())
    }
    /// States the partitions that follow from a procedure's arguments, if of use.
    fn hold_stated(
        &self,
        partitions: &mut dyn FnMut() -> Result<Partitions, Abort>,
    ) -> Result<(), Abort> {
        let _ = partitions;
        Ok(())
    }
    /// Creates a savepoint to roll back to.
    fn savepoint(&self) -> Savepoint;
    /// Undoes every change since the savepoint.
    fn rollback_to(&self, savepoint: Savepoint) -> Result<(), Abort>;
    /// Returns the transaction's time in microseconds since 1970: one value for the whole
    /// transaction, the same at replay.
    fn now_us(&self) -> i64;
    /// Returns a random number from the transaction's own seed, the same at replay.
    fn random(&self) -> u64;
}

/// A transaction in progress.
///
/// A transaction sees its own changes. The returned rows are copies of the requested columns and
/// live as long as the transaction's borrow; several can be held at once. Until the commit, the
/// reads of a transaction may be inconsistent with each other; such an attempt ends in a conflict
/// and is run again.
#[derive(Clone, Copy)]
pub struct Transaction<'t>(pub(crate) &'t dyn Access);

impl<'t> Transaction<'t> {
    /// Wraps any [`Access`]; tests and tools use it to run procedures outside a database (feature
    /// `research`).
    #[cfg(feature = "research")]
    pub fn new(access: &'t dyn Access) -> Self {
        Transaction(access)
    }

    /// Reads a whole row by primary key, or by row id if the table has no primary key.
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

    /// Returns the version of a row, `None` if there is no row: each transaction that writes the
    /// row gives the row another version, even by writing equal values. The version is the
    /// committed row's, whatever this transaction itself has written, and a read like any other:
    /// the transaction commits only if the version still holds. If a later transaction finds the
    /// same version, the row was not written in between. In a snapshot: [`Abort::ReadOnly`].
    ///
    /// ```
    /// # use hyades::{Database, Schema, Type};
    /// # let dir = tempfile::tempdir()?;
    /// # let mut builder = Database::builder();
    /// # let seats = builder.table(
    /// #     Schema::new("seats").column("id", Type::I64).primary_key(&["id"]));
    /// # let db = builder.open(dir.path())?;
    /// let put = || db.transact(|tx| Ok(tx.overwrite(seats, &[1i64.into()])?));
    /// let version = || db.transact(|tx| Ok(tx.version(seats, 1i64)?));
    /// put()?;
    /// let first = version()?;
    /// put()?;
    /// assert_ne!(version()?, first);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn version(&self, table: Table, key: impl Key) -> Result<Option<u64>, Abort> {
        key.with(|key| self.0.version(table, key))
    }

    /// Announces that some columns of a row will be read or written soon. A hint: affects only
    /// speed. Lookups in a large hash table spend most of their time waiting for memory. A
    /// transaction that knows several keys announces them all, then reads, and waits once.
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
    /// #     Ok(())
    /// # })?;
    /// let total = db.transact(|tx| {
    ///     let ids = [1i64, 2, 3];
    ///     for id in ids {
    ///         tx.prefetch(accounts, id, BALANCE.only());
    ///     }
    ///     let mut total = 0;
    ///     for id in ids {
    ///         total += tx.get(accounts, id)?.map_or(0, |row| row.get(BALANCE));
    ///     }
    ///     Ok(total)
    /// })?;
    /// assert_eq!(total, 30);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn prefetch(&self, table: Table, key: impl Key, columns: Columns) {
        key.with(|key| self.0.prefetch(table, key, columns))
    }

    /// Inserts a row, one value per column in declaration order. Returns the hidden row id in
    /// tables without a primary key, 0 in others.
    ///
    /// # Errors
    /// [`Abort::DuplicateKey`] if the primary key or a unique index already has the key; the
    /// transaction may continue after this error.
    #[inline]
    pub fn insert(&self, table: Table, row: &[Value<'_>]) -> Result<u64, Abort> {
        self.0.insert(table, row)
    }

    /// Changes some columns of a row; returns false if there is no such row. Refuses columns of the
    /// primary key with [`Abort::KeyColumnChanged`].
    #[inline]
    pub fn update(&self, table: Table, key: impl Key, sets: &[Set<'_>]) -> Result<bool, Abort> {
        key.with(|key| self.0.update(table, key, sets))
    }

    /// Inserts a row or replaces the row with the same primary key; returns true if a row was
    /// replaced.
    #[inline]
    pub fn upsert(&self, table: Table, row: &[Value<'_>]) -> Result<bool, Abort> {
        self.0.upsert(table, row)
    }

    /// Inserts a row or replaces the row with the same primary key, without a read (a blind write).
    ///
    /// Two protocols of the crate `hyades-schemes` tell blind writes apart. Under `poplar` a
    /// transaction of `overwrite`s alone, into tables without secondary indexes, is acknowledged
    /// once its own record is durable. Under `taurus-2016` a transaction waits for the writers of
    /// the rows it has read, and not for earlier writers of the rows replaced by its `overwrite`s
    /// in such tables. Under both the transaction may survive a crash that loses earlier
    /// transactions, even the writers of the replaced rows. So the written values must not follow
    /// from anything that other transactions have read or returned before these are acknowledged:
    /// wait for their tickets first, or read again in this transaction. Under other protocols
    /// `overwrite` is an [`upsert`](Self::upsert).
    ///
    /// ```
    /// use hyades::{Abort, Column, Database, Schema, Type};
    /// # let dir = tempfile::tempdir()?;
    /// # let dir = dir.path();
    /// const CELSIUS: Column<f64> = Column::at(1);
    /// let mut builder = Database::builder().protocol(hyades_schemes::POPLAR);
    /// let latest = builder.table(
    ///     Schema::new("latest")
    ///         .column("sensor", Type::U32)
    ///         .column("celsius", Type::F64)
    ///         .primary_key(&["sensor"]),
    /// );
    /// let db = builder.open(dir)?;
    /// for celsius in [20.5, 21.0] {
    ///     db.transact(|tx| Ok(tx.overwrite(latest, &[7u32.into(), celsius.into()])?))?;
    /// }
    /// let now = db.transact(|tx| {
    ///     Ok(tx.get(latest, 7u32)?.map(|row| row.get(CELSIUS)))
    /// })?;
    /// assert_eq!(now, Some(21.0));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn overwrite(&self, table: Table, row: &[Value<'_>]) -> Result<(), Abort> {
        self.0.overwrite(table, row)
    }

    /// Deletes a row; returns false if there is no such row.
    #[inline]
    pub fn delete(&self, table: Table, key: impl Key) -> Result<bool, Abort> {
        key.with(|key| self.0.delete(table, key))
    }

    /// Starts a scan over the primary key. On a hash index [`Scan::rows`] returns
    /// [`Abort::UnknownHandle`].
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
    ///     Ok(())
    /// })?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn scan<'k>(&self, table: Table) -> Scan<'t, 'k> {
        Scan::new(self.0, table, None)
    }

    /// Starts a scan over a secondary index.
    pub fn scan_index<'k>(&self, table: Table, index: Index) -> Scan<'t, 'k> {
        Scan::new(self.0, table, Some(index))
    }

    /// Returns the sum of the column declared by [`Schema::sum`](crate::Schema::sum), over all rows
    /// whose key begins with `prefix`, or over the rows below the key `before`, perhaps a prefix of
    /// a key. From the second call on, under the concurrency controls `Silo` and `NoWait`, there is
    /// no scan: a transaction that has read a sum conflicts only with transactions that change one
    /// of the counts, or the set of rows. Sums wrap around at 2^64.
    ///
    /// # Errors
    /// [`Abort::UnknownHandle`] if the table declares no sum.
    ///
    /// ```
    /// use hyades::{Column, Database, Schema, Type};
    /// # let dir = tempfile::tempdir()?;
    /// # let dir = dir.path();
    /// let mut builder = Database::builder();
    /// let pages = builder.table(
    ///     Schema::new("pages")
    ///         .column("book", Type::U64)
    ///         .column("page", Type::U32)
    ///         .column("words", Type::U32)
    ///         .primary_key(&["book", "page"])
    ///         .sum("words", 1),
    /// );
    /// let db = builder.open(dir)?;
    /// db.transact(|tx| {
    ///     for page in 0..100u32 {
    ///         tx.insert(pages, &[7u64.into(), page.into(), 300u32.into()])?;
    ///     }
    ///     assert_eq!(tx.sum(pages, 7u64, None)?, 30_000);
    ///     assert_eq!(tx.sum(pages, 7u64, Some(&[7u64.into(), 10u32.into()]))?, 3_000);
    ///     // The page with word 3,100, and the number of words before the page.
    ///     let (page, before) = tx.select(pages, 7u64, 3_100)?.expect("there are more words");
    ///     assert_eq!((page.get(Column::<u32>::at(1)), before), (10, 3_000));
    ///     Ok(())
    /// })?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn sum(
        &self,
        table: Table,
        prefix: impl Key,
        before: Option<&[Value<'_>]>,
    ) -> Result<u64, Abort> {
        prefix.with(|prefix| self.0.sum(table, prefix, before))
    }

    /// Returns the row in which element `n` lies, counted from 0, if each row below `prefix` holds
    /// as many elements as the column of [`Transaction::sum`] says; and the sum of the rows before.
    /// The row is read like any row. `None` if there are no more than `n` elements.
    ///
    /// # Errors
    /// As [`Transaction::sum`].
    pub fn select(
        &self,
        table: Table,
        prefix: impl Key,
        n: u64,
    ) -> Result<Option<(Row<'t>, u64)>, Abort> {
        prefix.with(|prefix| self.0.select(table, prefix, n))
    }

    /// States which partitions the transaction will access. Where transactions take turns in
    /// partitions (`partitioned` in the crate `hyades-schemes`) the transaction waits until it
    /// holds all of them, if it holds none yet; otherwise the transaction takes the free ones, or
    /// runs again. [`Partitions::ALL`] are entered at the first write, since a read-only
    /// transaction is better off with a snapshot. The statement affects only speed: a transaction
    /// enters each partition on access by itself, and runs again if it could not wait for a
    /// partition. Other concurrency controls ignore the statement.
    #[inline]
    pub fn hold(&self, partitions: Partitions) -> Result<(), Abort> {
        self.0.hold(partitions)
    }

    /// Creates a savepoint to roll back to.
    pub fn savepoint(&self) -> Savepoint {
        self.0.savepoint()
    }

    /// Undoes every change since the savepoint. The reads stay in the read set. The savepoint
    /// remains valid; later savepoints are discarded.
    ///
    /// # Errors
    /// [`Abort::NoSuchSavepoint`] if the savepoint was discarded or is another transaction's.
    pub fn rollback_to(&self, savepoint: Savepoint) -> Result<(), Abort> {
        self.0.rollback_to(savepoint)
    }

    /// Returns the transaction's time in microseconds since 1970; the same at replay.
    pub fn now_us(&self) -> i64 {
        self.0.now_us()
    }

    /// Returns a random number from the transaction's seed; the same at replay.
    pub fn random(&self) -> u64 {
        self.0.random()
    }
}
