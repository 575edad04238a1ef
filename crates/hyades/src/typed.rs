//! Typed tables: a struct describes a table, and its values are the rows.

mod scan;

pub use scan::{Rows, TypedScan};

use crate::error::Abort;
use crate::storage::field::KeyFields;
use crate::storage::partition::is_same_in_keys;
use crate::storage::row::Row;
use crate::storage::schema::{Columns, Schema, Set};
use crate::storage::value::Value;
use crate::transaction::access::{Index, Table, Transaction};
use std::fmt;
use std::marker::PhantomData;

/// A struct whose values are the rows of a table. Implemented with `#[derive(Table)]`.
///
/// Each field is a column, see [`Field`](crate::Field) for the types. The attributes:
///
/// | attribute | on | meaning |
/// |---|---|---|
/// | `#[key]` | fields | the primary key, of these fields in their order |
/// | `#[index]`, `#[unique]` | a field | a secondary index of this field; no two rows share a key |
/// | `#[default_value(expr)]` | a field | the value for existing rows if the field is new |
/// | `#[table(name = "..")]` | the struct | the table's name; else the struct's, in snake case |
/// | `#[table(hash)]` | the struct | a hash table: point reads only, faster |
/// | `#[table(key(a, b))]` | the struct | the primary key, in this order |
/// | `#[table(index(by_ab(a, b)))]` | the struct | an index of several fields; also `unique` |
///
/// The derived struct has a constant for each column (`Account::BALANCE`, a
/// [`Column`](crate::Column)) and for each index (`Account::BY_OWNER`, a [`TypedIndex`]). A struct
/// without a key has hidden row ids. Fields may borrow (`&'a str`): then rows read borrow from the
/// transaction.
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
/// A struct that describes an existing table may have gained fields: an `Option`, `None` in
/// existing rows, or a field with a default. Fields are matched by name, so a new field may have
/// any place, see [`Builder::table`](crate::Builder::table).
///
/// ```
/// use hyades::{Schema, Table, TableRow, Type};
/// #[derive(Table)]
/// struct Account {
///     #[key]
///     id: i64,
///     #[default_value(100)]
///     limit: i64,
///     #[default_value("EUR")]
///     currency: String,
///     note: Option<String>,
/// }
/// let schema = Schema::new("account")
///     .column("id", Type::I64)
///     .column_with_default("limit", Type::I64, 100i64)
///     .column_with_default("currency", Type::Text, "EUR")
///     .nullable("note", Type::Text)
///     .primary_key(&["id"]);
/// assert_eq!(Account::schema(), schema);
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
///
/// ```compile_fail
/// #[derive(hyades::Table)]
/// struct Price {
///     #[key]
///     id: i64,
///     #[default_value("ten")]
///     cents: i64,
/// }
/// ```
pub trait TableRow {
    /// A row read by a transaction: the struct, with the transaction's lifetime if it borrows.
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
///     let balance = accounts.require(tx, 1)?.balance;
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
    /// Returns the typed form of a table declared with this row type's schema, or with a schema of
    /// the same columns and indexes. Reading the rows of another table panics.
    ///
    /// ```
    /// # use hyades::{Database, Table, TableRow, TypedTable};
    /// # let dir = tempfile::tempdir()?;
    /// #[derive(Table)]
    /// struct Reading {
    ///     #[key]
    ///     sensor: u32,
    ///     celsius: f64,
    /// }
    /// let only_points = true;
    /// let mut builder = Database::builder();
    /// let schema = Reading::schema();
    /// let table = builder.table(if only_points { schema.hash() } else { schema });
    /// let readings: TypedTable<Reading> = TypedTable::of(table);
    /// # let _ = readings;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub const fn of(table: Table) -> Self {
        TypedTable { table, row: PhantomData }
    }

    /// The same table without its row type, for the operations of [`Transaction`].
    pub const fn untyped(self) -> Table {
        self.table
    }

    /// Reads the row with this primary key; a missing row is an error.
    ///
    /// # Errors
    /// [`Abort::NotFound`] if there is no such row; the transaction may continue after this error.
    #[inline]
    pub fn require<'t>(
        self,
        tx: &Transaction<'t>,
        key: PrimaryKey<'_, R>,
    ) -> Result<R::Read<'t>, Abort> {
        self.get(tx, key)?.ok_or(Abort::NotFound { table: self.table.number() })
    }

    /// Reads the row with this primary key, if there is one.
    #[inline]
    pub fn get<'t>(
        self,
        tx: &Transaction<'t>,
        key: PrimaryKey<'_, R>,
    ) -> Result<Option<R::Read<'t>>, Abort> {
        Ok(self.get_columns(tx, key, Columns::ALL)?.as_ref().map(R::read))
    }

    /// Reads some columns of the row with this primary key; a missing row is an error. Nothing else
    /// of the row is copied or decoded; [`Row::get`] reads the columns.
    ///
    /// # Errors
    /// [`Abort::NotFound`] if there is no such row; the transaction may continue after this error.
    ///
    /// ```
    /// # use hyades::{Database, Table};
    /// # let dir = tempfile::tempdir()?;
    /// #[derive(Table)]
    /// struct Customer {
    ///     #[key]
    ///     id: i64,
    ///     balance: i64,
    ///     history: String,
    /// }
    /// # let mut builder = Database::builder();
    /// # let customers = builder.table_of::<Customer>();
    /// # let db = builder.open(dir.path())?;
    /// db.transact(|tx| {
    ///     let history = "much text".repeat(100);
    ///     customers.insert(tx, &Customer { id: 1, balance: 10, history })?;
    ///     let row = customers.require_columns(tx, 1, Customer::BALANCE.only())?;
    ///     let balance = row.get(Customer::BALANCE) + 5;
    ///     customers.update(tx, 1, &[Customer::BALANCE.set(balance)])?;
    ///     Ok(())
    /// })?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn require_columns<'t>(
        self,
        tx: &Transaction<'t>,
        key: PrimaryKey<'_, R>,
        columns: Columns,
    ) -> Result<Row<'t>, Abort> {
        self.get_columns(tx, key, columns)?.ok_or(Abort::NotFound { table: self.table.number() })
    }

    /// Reads some columns of the row with this primary key, if there is one.
    #[inline]
    pub fn get_columns<'t>(
        self,
        tx: &Transaction<'t>,
        key: PrimaryKey<'_, R>,
        columns: Columns,
    ) -> Result<Option<Row<'t>>, Abort> {
        R::Key::with(key, |key| tx.0.get(self.table, key, columns))
    }

    /// Announces that some columns of a row will be read or written soon, see
    /// [`Transaction::prefetch`].
    #[inline]
    pub fn prefetch(self, tx: &Transaction<'_>, key: PrimaryKey<'_, R>, columns: Columns) {
        R::Key::with(key, |key| tx.0.prefetch(self.table, key, columns));
    }

    /// Inserts a row. Returns the hidden row id in a table without a primary key, else 0.
    ///
    /// # Errors
    /// [`Abort::DuplicateKey`] if the primary key or a unique index has the key already; the
    /// transaction may continue after this error.
    #[inline]
    pub fn insert(self, tx: &Transaction<'_>, row: &R) -> Result<u64, Abort> {
        row.with_values(|values| tx.insert(self.table, values))
    }

    /// Inserts a row or replaces the row with the same primary key; returns true if a row was
    /// replaced.
    #[inline]
    pub fn upsert(self, tx: &Transaction<'_>, row: &R) -> Result<bool, Abort> {
        row.with_values(|values| tx.upsert(self.table, values))
    }

    /// Inserts a row or replaces the row with the same primary key, without a read; see
    /// [`Transaction::overwrite`].
    #[inline]
    pub fn overwrite(self, tx: &Transaction<'_>, row: &R) -> Result<(), Abort> {
        row.with_values(|values| tx.overwrite(self.table, values))
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
        R::Key::with(key, |key| tx.0.update(self.table, key, sets))
    }

    /// Reads a row, has `change` change the row, and writes the changed fields. Returns false,
    /// without calling `change`, if there is no such row.
    pub fn modify(
        self,
        tx: &Transaction<'_>,
        key: PrimaryKey<'_, R>,
        change: impl FnOnce(&mut R),
    ) -> Result<bool, Abort>
    where
        R: for<'t> TableRow<Read<'t> = R>,
    {
        R::Key::with(key, |key| {
            let Some(old) = tx.get(self.table, key)? else { return Ok(false) };
            let mut new = R::read(&old);
            change(&mut new);
            new.with_values(|values| {
                let changed: Vec<Set<'_>> = (0..)
                    .zip(values)
                    .map(|(column, value)| Set { column, value: *value })
                    .filter(|set| !is_same_in_keys(&old.value(set.column), &set.value))
                    .collect();
                if changed.is_empty() { Ok(true) } else { tx.update(self.table, key, &changed) }
            })
        })
    }

    /// Deletes a row; returns false if there is no such row.
    #[inline]
    pub fn delete(self, tx: &Transaction<'_>, key: PrimaryKey<'_, R>) -> Result<bool, Abort> {
        R::Key::with(key, |key| tx.0.delete(self.table, key))
    }

    /// Starts a scan over the primary key, or over the row ids of a struct without a key. Not for
    /// hash tables, see [`Transaction::scan`].
    #[inline]
    pub fn scan<'t, 'k>(self, tx: &Transaction<'t>) -> TypedScan<'t, 'k, R, R::Key> {
        TypedScan::new(*tx, self.table, None)
    }

    /// Starts a scan over a secondary index of the table.
    #[inline]
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
    types: PhantomData<fn() -> (R, K)>,
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
        TypedIndex { index: Index(n), types: PhantomData }
    }

    /// The same index without its types.
    pub const fn untyped(self) -> Index {
        self.index
    }
}
