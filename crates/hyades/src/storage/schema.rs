//! Schemas: the columns, keys and indexes of a table.

use super::value::{Assignable, ColumnType, Type, Value};
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::marker::PhantomData;

/// At most this many columns in a table: a set of columns is one machine word.
pub const MAX_COLUMNS: usize = 64;

/// The largest row in bytes.
pub const MAX_ROW_BYTES: usize = 16 << 20;

/// Maximum length of an encoded primary key in bytes, and of the encoded columns of a secondary
/// index (without the row's primary key, which comes after the columns). Fixed-width columns take
/// their width, text and bytes two bytes more than their length and one more for each zero byte,
/// and each nullable column of a secondary index one more.
pub const MAX_KEY_BYTES: usize = 4 << 20;

/// How the primary index is organised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum PrimaryKind {
    /// Point reads only, fastest.
    Hash,
    /// Point reads and range scans.
    Ordered,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ColumnSpec {
    pub name: String,
    pub kind: Type,
    pub nullable: bool,
    /// The value, as bytes in a row, for rows written without the column. Not stored: used only by
    /// the opening that adds the column.
    #[serde(skip)]
    pub default: Option<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IndexSpec {
    pub name: String,
    pub columns: Vec<u16>,
    pub unique: bool,
}

/// How the rows of a table are spread over partitions. Not stored: nothing on disk depends on
/// partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PartitionSpec {
    /// The table is in one partition.
    #[default]
    Whole,
    /// By the value of this column.
    By(u16),
    Replicated,
}

/// The declaration of a sum index. Not stored: nothing on disk depends on the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SumSpec {
    /// The column that is summed.
    pub column: u16,
    /// The number of key columns of a prefix.
    pub prefix: u16,
}

/// The description of a table: named, typed columns, a primary key of zero or more of them, and
/// secondary indexes.
///
/// ```
/// use hyades::{Schema, Type};
/// let accounts = Schema::new("accounts")
///     .column("id", Type::I64)
///     .column("owner", Type::Text)
///     .nullable("note", Type::Text)
///     .primary_key(&["id"])
///     .index("by_owner", &["owner"]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    pub(crate) name: String,
    pub(crate) columns: Vec<ColumnSpec>,
    pub(crate) key: Vec<u16>,
    pub(crate) primary: PrimaryKind,
    pub(crate) indexes: Vec<IndexSpec>,
    #[serde(skip)]
    pub(crate) partitions: PartitionSpec,
    /// See [`Schema::growing_rows`]. Not stored: nothing on disk depends on this field.
    #[serde(skip)]
    pub(crate) growing_rows: bool,
    /// See [`Schema::key_once`]. Not stored: nothing on disk depends on this field.
    #[serde(skip)]
    pub(crate) key_once: bool,
    /// See [`Schema::sum`].
    #[serde(skip)]
    pub(crate) sum: Option<SumSpec>,
    /// The first error in the description, reported when the table is declared.
    #[serde(skip)]
    pub(crate) fault: Option<String>,
}

impl Schema {
    /// Begins the description of the table `name`. Without a primary key its rows get a hidden row
    /// id, see [`crate::Transaction::insert`].
    pub fn new(name: &str) -> Self {
        Schema {
            name: name.to_string(),
            columns: Vec::new(),
            key: Vec::new(),
            primary: PrimaryKind::Ordered,
            indexes: Vec::new(),
            partitions: PartitionSpec::Whole,
            growing_rows: false,
            key_once: false,
            sum: None,
            fault: None,
        }
    }

    /// Adds a column that is never null. Columns are numbered in the order of their addition.
    pub fn column(self, name: &str, kind: Type) -> Self {
        self.add(name, kind, false, None)
    }

    /// Adds a column that may be null. If an existing table does not have the column, its rows get
    /// a null there when the database is opened.
    pub fn nullable(self, name: &str, kind: Type) -> Self {
        self.add(name, kind, true, None)
    }

    /// Adds a column that is never null. If an existing table does not have the column, its rows
    /// get `default` there when the database is opened. Afterwards the default has no effect: the
    /// default may be changed or left out, and an inserted row has a value for every column.
    ///
    /// ```
    /// # use hyades::{Database, Schema, Type, Value};
    /// # let dir = tempfile::tempdir()?;
    /// # let dir = dir.path();
    /// let schema = || Schema::new("words").column("w", Type::Text);
    /// let mut builder = Database::builder();
    /// let words = builder.table(schema().primary_key(&["w"]));
    /// let db = builder.open(dir)?;
    /// db.transact(|tx| Ok(tx.insert(words, &["old".into()])?))?;
    /// db.close()?;
    ///
    /// let mut builder = Database::builder();
    /// let with_uses = schema().column_with_default("uses", Type::U32, 1u32);
    /// let words = builder.table(with_uses.primary_key(&["w"]));
    /// let db = builder.open(dir)?;
    /// assert_eq!(db.recovery().schema_changes, [r#"added column "uses" to table "words""#]);
    /// db.transact(|tx| {
    ///     assert_eq!(tx.get(words, "old")?.unwrap().value(1), Value::U32(1));
    ///     Ok(())
    /// })?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn column_with_default<'v>(
        mut self,
        name: &str,
        kind: Type,
        default: impl Into<Value<'v>>,
    ) -> Self {
        let default = self.default_bytes(name, kind, default.into());
        self.add(name, kind, false, default)
    }

    /// Adds a nullable column, with a default as [`Schema::column_with_default`].
    pub fn nullable_with_default<'v>(
        mut self,
        name: &str,
        kind: Type,
        default: impl Into<Value<'v>>,
    ) -> Self {
        let default = match default.into() {
            Value::Null => None,
            default => self.default_bytes(name, kind, default),
        };
        self.add(name, kind, true, default)
    }

    fn default_bytes(&mut self, name: &str, kind: Type, default: Value<'_>) -> Option<Vec<u8>> {
        if !default.fits(kind) {
            self.fail(format!(
                "column {name:?} of table {:?} is {kind:?}, and its default is not: {default:?}",
                self.name
            ));
        }
        Some(default.with_bytes(<[u8]>::to_vec))
    }

    fn add(mut self, name: &str, kind: Type, nullable: bool, default: Option<Vec<u8>>) -> Self {
        if self.columns.iter().any(|c| c.name == name) {
            self.fail(format!("table {:?} declares column {name:?} twice", self.name));
        }
        if kind == Type::Fixed(0) {
            self.fail(format!("column {name:?} of table {:?} has no width", self.name));
        }
        if self.columns.len() == MAX_COLUMNS {
            self.fail(format!("table {:?} has more than {MAX_COLUMNS} columns", self.name));
        }
        self.columns.push(ColumnSpec { name: name.to_string(), kind, nullable, default });
        self
    }

    /// Sets the primary key's columns; none may be nullable. A key or index names a column once.
    pub fn primary_key(mut self, columns: &[&str]) -> Self {
        self.key = self.resolve(columns);
        if let Some(&c) = self.key.iter().find(|&&c| self.columns[c as usize].nullable) {
            let column = self.columns[c as usize].name.clone();
            self.fail(format!(
                "primary key column {column:?} of table {:?} is nullable",
                self.name
            ));
        }
        self.check_partition_column();
        self
    }

    /// Keeps the primary index as a hash table: point reads only, in exchange for speed.
    pub fn hash(mut self) -> Self {
        self.primary = PrimaryKind::Hash;
        self
    }

    /// Spreads the rows over partitions by the value of a column, where transactions take turns in
    /// partitions (`partitioned` in the crate `hyades-schemes`); otherwise ignored. The column
    /// belongs to the primary key, or to a table without a primary key, and is not nullable. A
    /// table neither partitioned nor [replicated](Schema::replicated) is in one partition as a
    /// whole.
    ///
    /// An access by primary key, an insertion, and a scan whose bounds fix the column touch one
    /// partition. Other scans touch all; so does a search for a key of a unique index without the
    /// column, and in a table without a primary key, where the column may change, everything but an
    /// insertion that no unique index prevents. Each opening may declare other partitions.
    pub fn partition_by(mut self, column: &str) -> Self {
        let Some(&at) = self.resolve(&[column]).first() else { return self };
        match self.partitions {
            PartitionSpec::Whole => {}
            PartitionSpec::By(_) => {
                self.fail(format!("table {:?} is partitioned twice", self.name));
            }
            PartitionSpec::Replicated => {
                self.fail(format!("table {:?} is replicated, and partitioned", self.name));
            }
        }
        if self.columns[at as usize].nullable {
            self.fail(format!("partition column {column:?} of table {:?} is nullable", self.name));
        }
        self.partitions = PartitionSpec::By(at);
        self.check_partition_column();
        self
    }

    /// A row keeps its partition for life if the partition column is part of its key. Rows without
    /// a key may move: they are reached only while all partitions are held. Checked at the later
    /// declaration of key and partition column.
    fn check_partition_column(&mut self) {
        let PartitionSpec::By(at) = self.partitions else { return };
        if !self.key.is_empty() && !self.key.contains(&at) {
            let column = self.columns[usize::from(at)].name.clone();
            self.fail(format!(
                "partition column {column:?} of table {:?} is not in its primary key",
                self.name
            ));
        }
    }

    /// Counts the rows to every partition, where transactions take turns in partitions
    /// (`partitioned` in the crate `hyades-schemes`): any transaction may read them beside the rows
    /// of its own partition, and a transaction that writes them holds all partitions. For tables
    /// that hardly ever change.
    pub fn replicated(mut self) -> Self {
        if let PartitionSpec::By(_) = self.partitions {
            self.fail(format!("table {:?} is partitioned, and replicated", self.name));
        }
        self.partitions = PartitionSpec::Replicated;
        self
    }

    /// Keeps rows above 256 bytes apart from their keys in memory from the start. A row that
    /// outgrows the place beside its key leaves this place unused for as long as the row exists; a
    /// read of a separate row waits for memory once more. For tables whose long rows mostly change
    /// their lengths. Nothing on disk depends on the setting: each opening may declare it or not.
    pub fn growing_rows(mut self) -> Self {
        self.growing_rows = true;
        self
    }

    /// Keeps the columns of the primary key in memory once, in the key of the row, and not in the
    /// row as well: for tables whose keys are long compared with their rows. A read of a key
    /// column, or of all columns, takes longer, as does a write of a whole row; a read of [other
    /// columns](crate::Transaction::get_columns) does not. Nothing on disk depends on the setting:
    /// each opening may declare it or not. No effect without a primary key.
    pub fn key_once(mut self) -> Self {
        self.key_once = true;
        self
    }

    /// Keeps sums of a column in memory, over the rows with the same first `prefix` columns of the
    /// primary key: [`Transaction::sum`](crate::Transaction::sum) and
    /// [`Transaction::select`](crate::Transaction::select) then take no scan. The column is an
    /// unsigned integer and not nullable, and not part of the key; the columns of the prefix have
    /// a fixed width; the table has an ordered primary key. Sums are built at their first use, and
    /// are never logged. Nothing on disk depends on the setting: each opening may declare a
    /// sum or not. Declare the sum after the primary key.
    pub fn sum(mut self, column: &str, prefix: usize) -> Self {
        let Some(&at) = self.resolve(&[column]).first() else { return self };
        let spec = &self.columns[usize::from(at)];
        let is_number = matches!(spec.kind, Type::U32 | Type::U64) && !spec.nullable;
        if !is_number || self.key.contains(&at) {
            self.fail(format!(
                "sum column {column:?} of table {:?} is no unsigned integer beside the key",
                self.name
            ));
        }
        let is_fixed = |&c: &u16| self.columns[usize::from(c)].kind.width().is_some();
        let fits = self.key.get(..prefix).is_some_and(|columns| columns.iter().all(is_fixed));
        if !fits || self.key.is_empty() || self.primary == PrimaryKind::Hash {
            self.fail(format!(
                "table {:?} has no sums over {prefix} columns of its key: the key is ordered, and \
                 the columns have a fixed width",
                self.name
            ));
        }
        self.sum = Some(SumSpec { column: at, prefix: prefix as u16 });
        self
    }

    /// Adds a secondary index over `columns`; several rows may share a key.
    pub fn index(self, name: &str, columns: &[&str]) -> Self {
        self.add_index(name, columns, false)
    }

    /// Adds a secondary index over `columns` without two rows of the same key. As in SQL, rows with
    /// a null in one of the columns never collide.
    pub fn unique(self, name: &str, columns: &[&str]) -> Self {
        self.add_index(name, columns, true)
    }

    fn add_index(mut self, name: &str, columns: &[&str], unique: bool) -> Self {
        if self.indexes.iter().any(|i| i.name == name) {
            self.fail(format!("table {:?} declares index {name:?} twice", self.name));
        }
        let columns = self.resolve(columns);
        if columns.is_empty() {
            self.fail(format!("index {name:?} of table {:?} has no columns", self.name));
        }
        self.indexes.push(IndexSpec { name: name.to_string(), columns, unique });
        self
    }

    fn resolve(&mut self, names: &[&str]) -> Vec<u16> {
        let mut out = Vec::new();
        for name in names {
            match self.columns.iter().position(|c| c.name == *name) {
                Some(at) if out.contains(&(at as u16)) => {
                    self.fail(format!(
                        "a key of table {:?} names column {name:?} twice",
                        self.name
                    ));
                }
                Some(at) => out.push(at as u16),
                None => self.fail(format!("table {:?} has no column {name:?}", self.name)),
            }
        }
        out
    }

    /// The position of the column `name`.
    pub(crate) fn position(&self, name: &str) -> Option<u16> {
        self.columns.iter().position(|column| column.name == name).map(|at| at as u16)
    }

    fn fail(&mut self, text: String) {
        self.fault.get_or_insert(text);
    }

    /// Checks a schema read from disk instead of built by these functions.
    pub(crate) fn check_stored(&self) -> Result<(), String> {
        let name = &self.name;
        let count = self.columns.len();
        if count > MAX_COLUMNS {
            return Err(format!("table {name:?} of {count} columns"));
        }
        if self.columns.iter().any(|column| column.kind == Type::Fixed(0)) {
            return Err(format!("a column without a width in table {name:?}"));
        }
        let mut names = HashSet::new();
        if let Some(twice) = self.columns.iter().find(|column| !names.insert(&column.name)) {
            return Err(format!("column {:?} of table {name:?} twice", twice.name));
        }
        if self.key.iter().any(|&at| self.columns.get(at as usize).is_none_or(|c| c.nullable)) {
            return Err(format!("a primary key that table {name:?} cannot have"));
        }
        let known = |at: &u16| usize::from(*at) < count;
        if self.indexes.iter().any(|i| i.columns.is_empty() || !i.columns.iter().all(known)) {
            return Err(format!("an index that table {name:?} cannot have"));
        }
        Ok(())
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A typed handle of the column `name`.
    ///
    /// # Errors
    /// If there is no such column, or the column cannot be read as `T`.
    pub fn typed<T: ColumnType + ?Sized>(&self, name: &str) -> Result<Column<T>, Error> {
        let at = self.position(name).ok_or_else(|| {
            Error::Misuse(format!("table {:?} has no column {name:?}", self.name))
        })?;
        let kind = self.columns[at as usize].kind;
        if !T::reads(kind) {
            return Err(Error::Misuse(format!(
                "column {name:?} of table {:?} is {kind:?} and cannot be read as {}",
                self.name,
                std::any::type_name::<T>()
            )));
        }
        Ok(Column::at(at))
    }
}

/// A typed handle of a column: its position and the Rust type for reading the column. A handle
/// belongs to no builder and no table.
pub struct Column<T: ?Sized> {
    pub(crate) index: u16,
    kind: PhantomData<fn() -> Box<T>>,
}

impl<T: ?Sized> Clone for Column<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: ?Sized> Copy for Column<T> {}

impl<T: ColumnType + ?Sized> Column<T> {
    /// The column at position `index`, counted from 0 in declaration order. Reading a row through a
    /// handle whose type does not match the column panics; [`Schema::typed`] checks the type.
    pub const fn at(index: u16) -> Self {
        Column { index, kind: PhantomData }
    }

    /// This column alone, as a set to read.
    pub const fn only(self) -> Columns {
        Columns(1 << self.index)
    }

    /// An assignment for [`crate::Transaction::update`]. A value of another type than the column's
    /// does not compile; an untyped literal takes the column's type.
    ///
    /// ```
    /// use hyades::{Column, Value};
    /// assert_eq!(Column::<i64>::at(1).set(3).value, Value::I64(3));
    /// assert_eq!(Column::<Option<i64>>::at(1).set(None).value, Value::Null);
    /// ```
    ///
    /// ```compile_fail
    /// # use hyades::Column;
    /// Column::<i64>::at(1).set(3i32);
    /// ```
    #[inline]
    pub fn set<'a>(self, value: impl Assignable<'a, T>) -> Set<'a> {
        Set { column: self.index, value: value.into() }
    }
}

impl Column<str> {
    /// This column read as its bytes, without a check for UTF-8: for text to be searched or copied.
    pub const fn as_bytes(self) -> Column<[u8]> {
        Column::at(self.index)
    }
}

/// A column and its new value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Set<'a> {
    /// The column's position.
    pub column: u16,
    /// The new value.
    pub value: Value<'a>,
}

/// A set of columns to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns(pub(crate) u64);

impl Columns {
    /// Every column.
    pub const ALL: Columns = Columns(u64::MAX);
    /// No column: only whether the row exists.
    pub const NONE: Columns = Columns(0);

    /// The columns at these positions.
    pub const fn of(positions: &[u16]) -> Columns {
        let mut set = 0;
        let mut i = 0;
        while i < positions.len() {
            set |= 1 << positions[i];
            i += 1;
        }
        Columns(set)
    }

    /// The union of both sets.
    pub const fn and(self, other: Columns) -> Columns {
        Columns(self.0 | other.0)
    }
}
