//! Opening: declarations, and handles.

use crate::catalogue::{Catalogue, StoredTable};
use crate::declaring::{Declared, DeclaredKeyspace, declare};
use crate::error::Error;
use crate::keyspace::Keyspace;
use crate::large::Sizes;
use crate::maintenance::{fill_indexes, remove_dropped};
use crate::rows::TableRows;
use crate::table::TypedTable;
use hyades::row_codec::RowCodec;
use hyades::{Schema, TableRow};
use hyades_deuteronomy::Database;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Declares keyspaces and tables, then opens them. Made by [`Tables::builder`].
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is declared before `open`"]
pub struct Builder {
    keyspaces: Vec<DeclaredKeyspace>,
    tables: Vec<Schema>,
    piece_bytes: Option<usize>,
}

impl Builder {
    /// Declares a keyspace of values of any size.
    pub fn keyspace(mut self, name: &str) -> Self {
        self.keyspaces.push(DeclaredKeyspace { name: name.into(), is_any_size: true });
        self
    }

    /// Declares a keyspace of values up to the [size of a piece](Self::piece_bytes). Writes read
    /// nothing, so they need no read of the data component.
    pub fn small_keyspace(mut self, name: &str) -> Self {
        self.keyspaces.push(DeclaredKeyspace { name: name.into(), is_any_size: false });
        self
    }

    /// Declares a table whose rows are values of `R`, a struct with `#[derive(hyades::Table)]` and
    /// a primary key.
    pub fn table_of<R: TableRow>(mut self) -> Self {
        self.tables.push(R::schema());
        self
    }

    /// The longest value in bytes beside its key; a longer one is spread over pieces of this size.
    /// Each opening may choose another size. Default: 256 KiB, or half of what a frame of the log
    /// takes, if less.
    pub fn piece_bytes(mut self, bytes: usize) -> Self {
        self.piece_bytes = Some(bytes);
        self
    }

    /// Opens the declared keyspaces and tables. Missing ones are created. Others in the database
    /// are left alone. Several openings of a database may be made at a time. The database needs
    /// [`Options::ranges`](hyades_deuteronomy::Options::ranges), set by default.
    ///
    /// A table may be declared with further columns, nullable or with a default, which rows get
    /// when they are read; and with other indexes. A new index is filled, and the entries of a
    /// dropped one are removed, before `open` returns: a transaction for each up to 1,024 rows.
    /// After a crash meanwhile, or an error, the next opening goes on. Handles of earlier openings
    /// end with [`Error::Changed`] at their next write to a changed table.
    ///
    /// # Errors
    /// [`Error::Declaration`]: a name twice, a table without a primary key, pieces of a wrong size.
    /// [`Error::Mismatch`] and [`Error::Schema`]: the database has the name with other properties.
    /// [`Error::Unique`]: rows share a key of a new unique index. [`Error::Format`];
    /// [`Error::Corrupt`]; [`Error::Changed`]: another opening changed a table meanwhile;
    /// [`Error::Database`].
    pub fn open(self, database: &Database) -> Result<Tables, Error> {
        let sizes = Sizes::new(database, self.piece_bytes)?;
        let codecs = self.codecs()?;
        let mut session = database.session()?;
        let declared = session.execute(|tx| declare(tx, &self.keyspaces, &codecs))?;
        let Declared { catalogue, changes } = declared;
        let tables = open_tables(&catalogue, codecs, sizes)?;
        for table in tables.values() {
            fill_indexes(database, &mut session, table)?;
        }
        remove_dropped(database, &mut session, &catalogue.dropped)?;
        let keyspaces = self.keyspaces.iter().filter_map(|declared| {
            let stored = catalogue.keyspaces.iter().find(|stored| stored.name == declared.name)?;
            let keyspace = Keyspace::new(&stored.name, stored.number, stored.is_any_size, sizes);
            Some((stored.name.clone(), keyspace))
        });
        Ok(Tables { keyspaces: keyspaces.collect(), tables, changes })
    }

    /// The declared tables.
    fn codecs(&self) -> Result<Vec<RowCodec>, Error> {
        fn wrong<T>(message: String) -> Result<T, Error> {
            Err(Error::Declaration(message))
        }
        for (at, keyspace) in self.keyspaces.iter().enumerate() {
            if self.keyspaces[..at].iter().any(|earlier| earlier.name == keyspace.name) {
                return wrong(format!("keyspace {:?} is declared twice", keyspace.name));
            }
        }
        for (at, table) in self.tables.iter().enumerate() {
            if self.tables[..at].iter().any(|earlier| earlier.name() == table.name()) {
                return wrong(format!("table {:?} is declared twice", table.name()));
            }
        }
        let codec = |schema: &Schema| {
            let codec = RowCodec::new(schema.clone())?;
            match codec.key_columns().is_empty() {
                false => Ok(codec),
                true => wrong(format!(
                    "table {:?} has no primary key: mark fields with #[key]",
                    schema.name()
                )),
            }
        };
        self.tables.iter().map(codec).collect()
    }
}

fn open_tables(
    catalogue: &Catalogue,
    codecs: Vec<RowCodec>,
    sizes: Sizes,
) -> Result<BTreeMap<String, Arc<TableRows>>, Error> {
    let mut tables = BTreeMap::new();
    for codec in codecs {
        let name = codec.schema().name();
        let stored: &StoredTable = catalogue.table(name).expect("the table was declared");
        let keyspace = Keyspace::new(name, stored.number, true, sizes);
        let rows = TableRows::new(keyspace, codec.schema().clone(), stored)?;
        tables.insert(stored.name.clone(), Arc::new(rows));
    }
    Ok(tables)
}

/// The opened keyspaces and tables of a database. The handles need neither this value nor the
/// builder any more.
pub struct Tables {
    keyspaces: BTreeMap<String, Keyspace>,
    tables: BTreeMap<String, Arc<TableRows>>,
    changes: Vec<String>,
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (keyspaces, tables) = (self.keyspaces.keys(), self.tables.keys());
        let keyspaces: Vec<_> = keyspaces.collect();
        let tables: Vec<_> = tables.collect();
        f.debug_struct("Tables").field("keyspaces", &keyspaces).field("tables", &tables).finish()
    }
}

impl Tables {
    /// Begins the declarations.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A declared keyspace.
    ///
    /// # Errors
    /// [`Error::Declaration`]: the keyspace was not declared to this opening.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace, Error> {
        self.keyspaces.get(name).cloned().ok_or_else(|| {
            Error::Declaration(format!("keyspace {name:?} was not declared: see Builder::keyspace"))
        })
    }

    /// A declared table.
    ///
    /// # Errors
    /// [`Error::Declaration`]: the table was not declared to this opening, or by another struct.
    pub fn table_of<R: TableRow>(&self) -> Result<TypedTable<R>, Error> {
        let schema = R::schema();
        match self.tables.get(schema.name()) {
            Some(rows) if *rows.codec.schema() == schema => Ok(TypedTable::new(Arc::clone(rows))),
            Some(_) => Err(Error::Declaration(format!(
                "table {:?} was declared by another struct",
                schema.name()
            ))),
            None => Err(Error::Declaration(format!(
                "table {:?} was not declared: see Builder::table_of",
                schema.name()
            ))),
        }
    }

    /// The changes made by the opening, in words: `created table "account"`.
    pub fn changes(&self) -> &[String] {
        &self.changes
    }

    pub(crate) fn all_rows(&self) -> impl Iterator<Item = &TableRows> {
        self.tables.values().map(|rows| &**rows)
    }
}
