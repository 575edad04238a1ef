//! Typed tables: the rows are values of a struct.

use crate::error::Error;
use crate::rows::TableRows;
use crate::table_scan::TypedScan;
use crate::view::View;
use hyades::{KeyFields, Set, TableRow, TypedIndex};
use hyades_deuteronomy::Transaction;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// The primary key of a row type.
pub(crate) type PrimaryKey<'k, R> = <<R as TableRow>::Key as KeyFields>::Key<'k>;

/// A table whose rows are values of `R`, a struct with `#[derive(hyades::Table)]` and a primary
/// key. Returned by [`Tables::table_of`](crate::Tables::table_of).
///
/// The secondary indexes of the struct are written in the same transaction, so they equal the table
/// at any moment. A row takes up to 16 MiB; one above the
/// [size of a piece](crate::Builder::piece_bytes) is spread over pieces.
///
/// A struct that borrows (`&'a str`) is read by the methods with a closure.
///
/// ```
/// # use hyades_deuteronomy::{Database, LogOptions, MemoryData, Options};
/// # let dir = tempfile::tempdir()?;
/// # let options = Options::new(LogOptions::new(vec![dir.path().to_owned()], 1));
/// # let database = Database::open(options, std::sync::Arc::new(MemoryData::new()))?;
/// # let mut session = database.session()?;
/// use hyades::Table;
/// use hyades_tables::{Error, Tables};
///
/// #[derive(Table, Debug, PartialEq)]
/// struct Account {
///     #[key]
///     id: i64,
///     #[index]
///     owner: String,
///     #[unique]
///     mail: Option<String>,
///     balance: i64,
/// }
///
/// let tables = Tables::builder().table_of::<Account>().open(&database)?;
/// let accounts = tables.table_of::<Account>()?;
/// session.execute(|tx| {
///     for (id, owner, mail) in [(1, "Ada", Some("ada@example.org")), (2, "Ada", None)] {
///         let mail = mail.map(str::to_owned);
///         accounts.insert(tx, &Account { id, owner: owner.into(), mail, balance: 100 })?;
///     }
///     Ok::<_, Error>(())
/// })?;
/// let balances = session.execute(|tx| {
///     accounts.modify(tx, 1, |account| account.balance -= 30)?;
///     accounts.update(tx, 2, &[Account::BALANCE.set(130)])?;
///     let of_ada = accounts.index(tx, Account::BY_OWNER).equal("Ada").rows()?;
///     of_ada.map(|account| Ok(account?.balance)).collect::<Result<Vec<_>, Error>>()
/// })?;
/// assert_eq!(balances, [70, 130]);
///
/// let mail = Some("ada@example.org".into());
/// let taken = Account { id: 3, owner: "Eve".into(), mail, balance: 0 };
/// let refused = session.execute(|tx| accounts.insert(tx, &taken)).unwrap_err();
/// assert!(matches!(refused, Error::Unique { index, .. } if index == "by_mail"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TypedTable<R> {
    rows: Arc<TableRows>,
    row: PhantomData<fn() -> R>,
}

impl<R> Clone for TypedTable<R> {
    fn clone(&self) -> Self {
        Self { rows: Arc::clone(&self.rows), row: PhantomData }
    }
}

impl<R> fmt::Debug for TypedTable<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedTable").field(&self.rows.name()).finish()
    }
}

impl<R: TableRow> TypedTable<R> {
    pub(crate) fn new(rows: Arc<TableRows>) -> Self {
        Self { rows, row: PhantomData }
    }

    /// The name of the table.
    pub fn name(&self) -> &str {
        self.rows.name()
    }

    fn key(&self, key: PrimaryKey<'_, R>) -> Result<Vec<u8>, Error> {
        R::Key::with(key, |values| self.rows.primary_key(values))
    }

    /// Reads the row with a primary key, if there is one, and hands the row to a closure.
    ///
    /// # Errors
    /// [`Error::Database`]; [`Error::Changed`]; [`Error::Corrupt`].
    pub fn read<V: View, T>(
        &self,
        view: &mut V,
        key: PrimaryKey<'_, R>,
        with: impl FnOnce(R::Read<'_>) -> T,
    ) -> Result<Option<T>, Error> {
        let Some(found) = self.rows.find(view, &self.key(key)?)? else { return Ok(None) };
        let row = self.rows.codec.row(&found.row).expect("a row found is valid");
        Ok(Some(with(R::read(&row))))
    }

    /// Reads the row with a primary key, if there is one.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn get<V: View>(&self, view: &mut V, key: PrimaryKey<'_, R>) -> Result<Option<R>, Error>
    where
        R: for<'t> TableRow<Read<'t> = R>,
    {
        self.read(view, key, |row| row)
    }

    /// Reads the row with a primary key.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Error::NotFound`].
    pub fn require<V: View>(&self, view: &mut V, key: PrimaryKey<'_, R>) -> Result<R, Error>
    where
        R: for<'t> TableRow<Read<'t> = R>,
    {
        self.get(view, key)?.ok_or_else(|| Error::NotFound(self.name().to_owned()))
    }

    /// Writes a row. Returns whether there was a row with the primary key, or the error of `check`.
    fn write(
        &self,
        tx: &mut Transaction<'_>,
        row: &R,
        check: impl FnOnce(bool) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        self.rows.check_generation(tx)?;
        let new = row.with_values(|values| self.rows.encode(values))?;
        let primary = self.rows.codec.primary_key(&new);
        let old = self.rows.find(tx, &primary)?;
        let existed = old.is_some();
        check(existed)?;
        self.rows.replace(tx, &primary, old, Some(&new))?;
        Ok(existed)
    }

    /// Inserts a row.
    ///
    /// # Errors
    /// [`Error::Exists`]; [`Error::Unique`]; [`Error::Row`]; [`Error::ValueTooLarge`]; as
    /// [`read`](Self::read).
    pub fn insert(&self, tx: &mut Transaction<'_>, row: &R) -> Result<(), Error> {
        let exists = || Err(Error::Exists(self.name().to_owned()));
        self.write(tx, row, |existed| if existed { exists() } else { Ok(()) }).map(drop)
    }

    /// Inserts a row, or replaces the row with the same primary key. Returns whether a row was
    /// replaced.
    ///
    /// # Errors
    /// As [`insert`](Self::insert), without [`Error::Exists`].
    pub fn upsert(&self, tx: &mut Transaction<'_>, row: &R) -> Result<bool, Error> {
        self.write(tx, row, |_| Ok(()))
    }

    /// Sets fields of a row, named by the struct's column constants. Returns false if there is no
    /// such row.
    ///
    /// # Errors
    /// As [`upsert`](Self::upsert).
    pub fn update(
        &self,
        tx: &mut Transaction<'_>,
        key: PrimaryKey<'_, R>,
        sets: &[Set<'_>],
    ) -> Result<bool, Error> {
        self.rows.check_generation(tx)?;
        let primary = self.key(key)?;
        let Some(old) = self.rows.find(tx, &primary)? else { return Ok(false) };
        let mut new = old.row.to_vec();
        self.rows.codec.set(&mut new, sets).map_err(|abort| self.rows.misfit(abort))?;
        self.rows.replace(tx, &primary, Some(old), Some(&new))?;
        Ok(true)
    }

    /// Reads a row, has `change` change the row, and writes it. Returns false, without calling
    /// `change`, if there is no such row.
    ///
    /// # Errors
    /// As [`upsert`](Self::upsert); [`Error::Row`] if the primary key was changed.
    pub fn modify(
        &self,
        tx: &mut Transaction<'_>,
        key: PrimaryKey<'_, R>,
        change: impl FnOnce(&mut R),
    ) -> Result<bool, Error>
    where
        R: for<'t> TableRow<Read<'t> = R>,
    {
        self.rows.check_generation(tx)?;
        let primary = self.key(key)?;
        let Some(old) = self.rows.find(tx, &primary)? else { return Ok(false) };
        let mut row = R::read(&self.rows.codec.row(&old.row).expect("a row found is valid"));
        change(&mut row);
        let new = row.with_values(|values| self.rows.encode(values))?;
        if self.rows.codec.primary_key(&new) != primary {
            let column = self.rows.codec.key_columns()[0];
            return Err(self.rows.misfit(hyades::Abort::KeyColumnChanged { table: 0, column }));
        }
        self.rows.replace(tx, &primary, Some(old), Some(&new))?;
        Ok(true)
    }

    /// Deletes a row. Returns false if there is no such row.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn delete(&self, tx: &mut Transaction<'_>, key: PrimaryKey<'_, R>) -> Result<bool, Error> {
        self.rows.check_generation(tx)?;
        let primary = self.key(key)?;
        let Some(old) = self.rows.find(tx, &primary)? else { return Ok(false) };
        self.rows.replace(tx, &primary, Some(old), None)?;
        Ok(true)
    }

    /// A scan over the primary key, at first over all rows.
    pub fn scan<'v, 'k, V: View>(&self, view: &'v mut V) -> TypedScan<'v, 'k, V, R, R::Key> {
        TypedScan::new(Arc::clone(&self.rows), view, None)
    }

    /// A scan over a secondary index, a constant of the struct; at first over all rows.
    pub fn index<'v, 'k, V: View, K: KeyFields>(
        &self,
        view: &'v mut V,
        index: TypedIndex<R, K>,
    ) -> TypedScan<'v, 'k, V, R, K> {
        TypedScan::new(Arc::clone(&self.rows), view, Some(usize::from(index.untyped().0)))
    }
}
