//! The sizes of the tables of a database.

use super::Database;
use crate::storage::usage::TableStats;

impl Database {
    /// Returns the number of rows and bytes of each table, in the order of the tables'
    /// declarations. No row is visited: sessions count their writes. A transaction counts once
    /// committed, before it is durable. While transactions run, numbers of different tables may be
    /// of different moments.
    ///
    /// ```
    /// # use hyades::{Database, Schema, Type};
    /// # let dir = tempfile::tempdir()?;
    /// # let mut builder = Database::builder();
    /// # let schema = Schema::new("words").column("w", Type::Text).primary_key(&["w"]);
    /// # let words = builder.table(schema);
    /// # let db = builder.open(dir.path())?;
    /// db.transact(|tx| Ok(tx.insert(words, &["counted".into()])?))?;
    /// let tables = db.tables();
    /// assert_eq!((tables[0].name.as_str(), tables[0].rows), ("words", 1));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn tables(&self) -> Vec<TableStats> {
        self.shared.engine.tables()
    }

    /// Returns the same as [`Database::tables`], counted by visiting every row: for tests. Only
    /// meaningful while no transaction runs.
    #[cfg(feature = "research")]
    #[doc(hidden)]
    pub fn recount(&self) -> Vec<TableStats> {
        self.shared.engine.recount()
    }
}
