//! Typed tables: a struct describes a table, and its values are the rows.

use crate::error::Abort;
use crate::storage::field::{KeyFields, KeyPrefix, KeyValues};
use crate::storage::range::Range;
use crate::storage::row::Row;
use crate::storage::schema::{Columns, Schema, Set};
use crate::storage::value::Value;
use crate::transaction::access::{Index, Table, Transaction};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

/// A struct whose values are the rows of a table. Implement it with `#[derive(Table)]`.
///
/// Each field is a column, see [`Field`](crate::Field) for their types. The attributes:
///
/// | attribute | on | meaning |
/// |---|---|---|
/// | `#[key]` | fields | the primary key, of these fields in their order |
/// | `#[index]`, `#[unique]` | a field | a secondary index of this field; no two rows share a key |
/// | `#[table(name = "..")]` | the struct | the table's name; else the struct's, in snake case |
/// | `#[table(hash)]` | the struct | a hash table: point reads only, faster |
/// | `#[table(key(a, b))]` | the struct | the primary key, in this order |
/// | `#[table(index(by_ab(a, b)))]` | the struct | an index of several fields; also `unique` |
///
/// The derived struct has a constant for each column (`Account::BALANCE`, a
/// [`Column`](crate::Column)) and for each index (`Account::BY_OWNER`, a [`TypedIndex`]). A struct
/// without a key has hidden row ids. Fields may borrow (`&'a str`): then rows that are read borrow
/// from the transaction.
///
/// ```
/// use hyades::{Schema, Table, TableRow, Type};
/// #[derive(Table)]
/// #[table(name = "sessions", index(by_user_and_start(user, start)))]
/// struct Session<'a> {
///     #[key]
///     token: [u8; 16],
///     user: i64,
///     start: i64,
///     agent: Option<&'a str>,
/// }
/// let schema = Schema::new("sessions")
///     .column("token", Type::Fixed(16))
///     .column("user", Type::I64)
///     .column("start", Type::I64)
///     .nullable("agent", Type::Text)
///     .primary_key(&["token"])
///     .index("by_user_and_start", &["user", "start"]);
/// assert_eq!(Session::schema(), schema);
/// ```
///
/// A field of another type does not compile, nor does a value of another type than the column's:
///
/// ```compile_fail
/// #[derive(hyades::Table)]
/// struct Price {
///     #[key]
///     id: i64,
///     cents: i128,
/// }
/// ```
///
/// ```compile_fail
/// #[derive(hyades::Table)]
/// struct Price {
///     #[key]
///     id: i64,
///     cents: i64,
/// }
/// Price::CENTS.set("ten");
/// ```
pub trait TableRow {
    /// A row that a transaction has read: the struct, with the transaction's lifetime if it
    /// borrows.
    type Read<'t>;
    /// The fields of the primary key.
    type Key: KeyFields;

    /// The table's description.
    fn schema() -> Schema;
    /// Reads a whole row.
    fn read<'t>(row: &Row<'t>) -> Self::Read<'t>;
    /// Calls `with` on the row's values, one per column.
    fn with_values<T>(&self, with: impl FnOnce(&[Value<'_>]) -> T) -> T;
}

/// The primary key of a row type.
type PrimaryKey<'k, R> = <<R as TableRow>::Key as KeyFields>::Key<'k>;

/// A table whose rows are values of `R`, as returned by
/// [`Builder::table_of`](crate::Builder::table_of).
///
/// ```
/// use hyades::{Database, Table};
/// # let dir = tempfile::tempdir()?;
/// # let dir = dir.path();
/// #[derive(Table, Debug, PartialEq)]
/// struct Account {
///     #[key]
///     id: i64,
///     #[index]
///     owner: String,
///     balance: i64,
/// }
///
/// let mut builder = Database::builder();
/// let accounts = builder.table_of::<Account>();
/// let db = builder.open(dir)?;
/// db.transact(|tx| {
///     accounts.insert(tx, &Account { id: 1, owner: "Ada".into(), balance: 100 })?;
///     accounts.insert(tx, &Account { id: 2, owner: "Ada".into(), balance: 5 })?;
///     let balance = accounts.get(tx, 1)?.balance;
///     accounts.update(tx, 1, &[Account::BALANCE.set(balance - 30)])?;
///     accounts.modify(tx, 2, |account| account.balance += 30)?;
///     let of_ada = accounts.index(tx, Account::BY_OWNER).equal("Ada").rows()?;
///     assert_eq!(of_ada.map(|account| account.balance).collect::<Vec<_>>(), [70, 35]);
///     let all = accounts.scan(tx).range(..2).rows()?;
///     assert_eq!(all.len(), 1);
///     Ok(())
/// })?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct TypedTable<R> {
    table: Table,
    row: PhantomData<fn() -> R>,
}

impl<R> Clone for TypedTable<R> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<R> Copy for TypedTable<R> {}

impl<R> fmt::Debug for TypedTable<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedTable").field(&self.table).finish()
    }
}

impl<R: TableRow> TypedTable<R> {
    pub(crate) fn new(table: Table) -> Self {
        TypedTable { table, row: PhantomData }
    }

    /// The same table without its row type, for the operations of [`Transaction`].
    pub fn untyped(self) -> Table {
        self.table
    }

    /// Reads the row with this primary key.
    ///
    /// # Errors
    /// [`Abort::NotFound`] if there is none; the transaction may continue after it.
    #[inline]
    pub fn get<'t>(
        self,
        tx: &Transaction<'t>,
        key: PrimaryKey<'_, R>,
    ) -> Result<R::Read<'t>, Abort> {
        self.find(tx, key)?.ok_or(Abort::NotFound { table: self.table.number() })
    }

    /// Reads the row with this primary key, if there is one.
    #[inline]
    pub fn find<'t>(
        self,
        tx: &Transaction<'t>,
        key: PrimaryKey<'_, R>,
    ) -> Result<Option<R::Read<'t>>, Abort> {
        Ok(tx.get(self.table, &R::Key::values(key)[..])?.as_ref().map(R::read))
    }

    /// Inserts a row. Returns its hidden row id in a table without a primary key, else 0.
    ///
    /// # Errors
    /// [`Abort::DuplicateKey`] if the primary key or a unique index has the key already; the
    /// transaction may continue after it.
    #[inline]
    pub fn insert(self, tx: &Transaction<'_>, row: &R) -> Result<u64, Abort> {
        row.with_values(|values| tx.insert(self.table, values))
    }

    /// Inserts a row or replaces the one with its primary key; returns true if it replaced one.
    #[inline]
    pub fn upsert(self, tx: &Transaction<'_>, row: &R) -> Result<bool, Abort> {
        row.with_values(|values| tx.upsert(self.table, values))
    }

    /// Inserts a row or replaces the one with its primary key, without reading it; see
    /// [`Transaction::put`].
    #[inline]
    pub fn put(self, tx: &Transaction<'_>, row: &R) -> Result<(), Abort> {
        row.with_values(|values| tx.put(self.table, values))
    }

    /// Sets some fields of a row, named by the struct's column constants; returns false if there is
    /// no such row.
    #[inline]
    pub fn update(
        self,
        tx: &Transaction<'_>,
        key: PrimaryKey<'_, R>,
        sets: &[Set<'_>],
    ) -> Result<bool, Abort> {
        tx.update(self.table, &R::Key::values(key)[..], sets)
    }

    /// Reads a row, has `change` change it, and writes the fields that are different then. Returns
    /// false, and does not call `change`, if there is no such row.
    pub fn modify(
        self,
        tx: &Transaction<'_>,
        key: PrimaryKey<'_, R>,
        change: impl FnOnce(&mut R),
    ) -> Result<bool, Abort>
    where
        R: for<'t> TableRow<Read<'t> = R>,
    {
        let key = R::Key::values(key);
        let Some(old) = tx.get(self.table, &key[..])? else { return Ok(false) };
        let mut new = R::read(&old);
        change(&mut new);
        new.with_values(|values| {
            let changed: Vec<Set<'_>> = (0..)
                .zip(values)
                .map(|(column, value)| Set { column, value: *value })
                .filter(|set| old.value(set.column) != set.value)
                .collect();
            if changed.is_empty() { Ok(true) } else { tx.update(self.table, &key[..], &changed) }
        })
    }

    /// Deletes a row; returns false if there is no such row.
    #[inline]
    pub fn delete(self, tx: &Transaction<'_>, key: PrimaryKey<'_, R>) -> Result<bool, Abort> {
        tx.delete(self.table, &R::Key::values(key)[..])
    }

    /// Starts a scan over the primary key. Not for hash tables, see [`Transaction::scan`].
    pub fn scan<'t, 'k>(self, tx: &Transaction<'t>) -> TypedScan<'t, 'k, R, R::Key> {
        TypedScan::new(*tx, self.table, None)
    }

    /// Starts a scan over a secondary index of the table.
    pub fn index<'t, 'k, K: KeyFields>(
        self,
        tx: &Transaction<'t>,
        index: TypedIndex<R, K>,
    ) -> TypedScan<'t, 'k, R, K> {
        TypedScan::new(*tx, self.table, Some(index.index))
    }
}

/// A secondary index of a table with rows `R`, over the fields `K`: a constant of the struct. The
/// index of another struct does not compile:
///
/// ```compile_fail
/// # use hyades::{Abort, Table, Transaction, TypedTable};
/// #[derive(Table)]
/// struct Order {
///     #[key]
///     id: i64,
///     #[index]
///     customer: i64,
/// }
/// #[derive(Table)]
/// struct Customer {
///     #[key]
///     id: i64,
/// }
/// fn of(tx: &Transaction<'_>, customers: TypedTable<Customer>) -> Result<usize, Abort> {
///     Ok(customers.index(tx, Order::BY_CUSTOMER).equal(1).rows()?.len())
/// }
/// ```
pub struct TypedIndex<R, K> {
    index: Index,
    of: PhantomData<fn() -> (R, K)>,
}

impl<R, K> Clone for TypedIndex<R, K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<R, K> Copy for TypedIndex<R, K> {}

impl<R, K> TypedIndex<R, K> {
    /// The `n`-th index of the struct's schema.
    #[doc(hidden)]
    pub const fn nth(n: u16) -> Self {
        TypedIndex { index: Index(n), of: PhantomData }
    }

    /// The same index without its types.
    pub const fn untyped(self) -> Index {
        self.index
    }
}

/// A scan to be configured; [`TypedScan::rows`] runs it.
pub struct TypedScan<'t, 'k, R, K> {
    tx: Transaction<'t>,
    table: Table,
    index: Option<Index>,
    lower: Bound<KeyValues<'k>>,
    upper: Bound<KeyValues<'k>>,
    descending: bool,
    limit: usize,
    of: PhantomData<fn() -> (R, K)>,
}

impl<'t, 'k, R: TableRow, K: KeyFields> TypedScan<'t, 'k, R, K> {
    fn new(tx: Transaction<'t>, table: Table, index: Option<Index>) -> Self {
        TypedScan {
            tx,
            table,
            index,
            lower: Bound::Unbounded,
            upper: Bound::Unbounded,
            descending: false,
            limit: usize::MAX,
            of: PhantomData,
        }
    }

    /// Only rows with exactly this key.
    pub fn equal(mut self, key: K::Key<'k>) -> Self {
        let key = K::values(key);
        (self.lower, self.upper) = (Bound::Included(key.clone()), Bound::Included(key));
        self
    }

    /// Only rows whose key starts with these fields.
    pub fn prefix(mut self, fields: impl KeyPrefix<'k>) -> Self {
        let fields = fields.values();
        (self.lower, self.upper) = (Bound::Included(fields.clone()), Bound::Included(fields));
        self
    }

    /// Only rows with a key in this range: `10..20`, `"a"..="b"`, `(1, 5)..`.
    pub fn range(mut self, range: impl RangeBounds<K::Key<'k>>) -> Self
    where
        K::Key<'k>: Clone,
    {
        let bound = |bound: Bound<&K::Key<'k>>| bound.map(|key| K::values(key.clone()));
        (self.lower, self.upper) = (bound(range.start_bound()), bound(range.end_bound()));
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

    /// Runs the scan and returns its rows in order. The range is protected against phantoms until
    /// the transaction commits.
    pub fn rows(self) -> Result<Rows<'t, R>, Abort> {
        let range = Range {
            lower: self.lower.as_ref().map(|key| &key[..]),
            upper: self.upper.as_ref().map(|key| &key[..]),
            descending: self.descending,
            limit: self.limit,
        };
        let rows = self.tx.0.scan(self.table, self.index, &range, Columns::ALL)?;
        Ok(Rows { rows: rows.iter(), of: PhantomData })
    }
}

/// The rows of a scan, as values of `R`.
pub struct Rows<'t, R> {
    rows: std::slice::Iter<'t, Row<'t>>,
    of: PhantomData<fn() -> R>,
}

impl<'t, R: TableRow> Iterator for Rows<'t, R> {
    type Item = R::Read<'t>;

    fn next(&mut self) -> Option<Self::Item> {
        self.rows.next().map(R::read)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rows.size_hint()
    }
}

impl<R: TableRow> DoubleEndedIterator for Rows<'_, R> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.rows.next_back().map(R::read)
    }
}

impl<R: TableRow> ExactSizeIterator for Rows<'_, R> {}
