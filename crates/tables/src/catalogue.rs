//! The catalogue: the names, numbers and schemas in a database, under one key.
//!
//! | key in the keyspace [`CATALOGUE`] | value |
//! |---|---|
//! | `c` | the catalogue, as JSON |
//! | `g`, a number (4 bytes, big-endian) | the generation of a table (8 bytes, little-endian) |
//! | `f`, a number (4 bytes, big-endian) | the last primary key entered into an unfilled index |
//!
//! The generation is raised with each change of the table's declaration.

use crate::bytes::Bytes;
use crate::error::Error;
use crate::prefix::{CATALOGUE, FIRST, Prefix};
use crate::view::Reads;
use hyades::Schema;
use hyades::row_codec::{ColumnDefaults, RowCodec};
use hyades_deuteronomy::{ScanOrder, Transaction};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::ops::Bound;

/// The format of the catalogue, and of all keys and values of the library.
pub(crate) const FORMAT: u64 = 1;

/// Everything declared in a database.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Catalogue {
    format: u64,
    /// The next number to be given. No number is given twice.
    next: u32,
    pub keyspaces: Vec<StoredKeyspace>,
    pub tables: Vec<StoredTable>,
    /// The numbers of dropped indexes with entries left to remove.
    pub dropped: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredKeyspace {
    pub name: String,
    pub number: u32,
    /// Whether values of any size are taken.
    pub is_any_size: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredTable {
    pub name: String,
    pub number: u32,
    pub generation: u64,
    /// The schemas of rows, the current one last. A row names its schema by the position here.
    pub versions: Vec<Schema>,
    /// The values of rows older than their column.
    pub defaults: ColumnDefaults,
    pub indexes: Vec<StoredIndex>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredIndex {
    pub name: String,
    pub number: u32,
    pub unique: bool,
    /// The names of the columns.
    pub columns: Vec<String>,
    pub is_filled: bool,
}

/// The common field of all formats.
#[derive(Deserialize)]
struct AnyFormat {
    format: u64,
}

fn catalogue_key() -> Vec<u8> {
    Prefix::new(CATALOGUE).key(b"c")
}

fn numbered_key(kind: u8, number: u32) -> Vec<u8> {
    Prefix::new(CATALOGUE).key(&[&[kind], &number.to_be_bytes()[..]].concat())
}

/// The key of a table's generation.
pub(crate) fn generation_key(table: u32) -> Vec<u8> {
    numbered_key(b'g', table)
}

/// The key of an index's progress in being filled.
pub(crate) fn progress_key(index: u32) -> Vec<u8> {
    numbered_key(b'f', index)
}

impl Catalogue {
    fn empty() -> Self {
        let (keyspaces, tables, dropped) = (Vec::new(), Vec::new(), Vec::new());
        Self { format: FORMAT, next: FIRST, keyspaces, tables, dropped }
    }

    /// Reads the catalogue; empty in an empty database.
    ///
    /// # Errors
    /// [`Error::Mismatch`]: the database has keys without a catalogue. [`Error::Format`];
    /// [`Error::Corrupt`].
    pub fn read(view: &mut impl Reads) -> Result<Self, Error> {
        if let Some(bytes) = view.read_value(&catalogue_key())? {
            return Self::decode(&bytes);
        }
        let all = (Bound::Unbounded, Bound::Unbounded);
        match view.read_rows(all, ScanOrder::Ascending, 1)?.first() {
            None => Ok(Self::empty()),
            Some((key, _)) => Err(Error::Mismatch(format!(
                "the database has keys, such as {:02x?}, and no catalogue of tables: it was \
                 written without this library. Tables need a database of their own",
                &key[..key.len().min(16)]
            ))),
        }
    }

    fn decode(bytes: &Bytes) -> Result<Self, Error> {
        let unreadable = |error: serde_json::Error| {
            Error::Corrupt(format!("the catalogue of tables cannot be read: {error}"))
        };
        let AnyFormat { format } = serde_json::from_slice(bytes).map_err(unreadable)?;
        if format != FORMAT {
            return Err(Error::Format(format, FORMAT));
        }
        let catalogue: Self = serde_json::from_slice(bytes).map_err(unreadable)?;
        match catalogue.fault() {
            None => Ok(catalogue),
            Some(fault) => Err(Error::Corrupt(format!("the catalogue of tables has {fault}"))),
        }
    }

    /// The first violation of an invariant that the rest relies on.
    fn fault(&self) -> Option<String> {
        let indexes = self.tables.iter().flat_map(|table| &table.indexes).map(|i| i.number);
        let numbers = self.keyspaces.iter().map(|keyspace| keyspace.number);
        let numbers = numbers.chain(self.tables.iter().map(|table| table.number));
        let mut seen = HashSet::new();
        for number in numbers.chain(indexes).chain(self.dropped.iter().copied()) {
            if !(FIRST..self.next).contains(&number) || !seen.insert(number) {
                return Some(format!("the number {number} twice, or out of its range"));
            }
        }
        let has_no_schema = |table: &&StoredTable| {
            let faulty = |schema: &Schema| RowCodec::new(schema.clone()).is_err();
            table.versions.is_empty() || table.versions.iter().any(faulty)
        };
        let table = self.tables.iter().find(has_no_schema)?;
        Some(format!("table {:?} without a schema", table.name))
    }

    /// Writes the catalogue.
    ///
    /// # Errors
    /// The errors of writes.
    pub fn write(&self, tx: &mut Transaction<'_>) -> Result<(), Error> {
        let bytes = serde_json::to_vec(self).expect("a catalogue is plain data");
        Ok(tx.put(&catalogue_key(), &bytes)?)
    }

    /// A number for something new.
    ///
    /// # Errors
    /// [`Error::Declaration`]: all are used up.
    pub fn take_number(&mut self) -> Result<u32, Error> {
        let number = self.next;
        self.next = number.checked_add(1).ok_or_else(|| {
            Error::Declaration("the numbers of keyspaces and indexes are used up".into())
        })?;
        Ok(number)
    }

    /// The table with a name.
    pub fn table(&self, name: &str) -> Option<&StoredTable> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// The index with a number.
    pub fn index_mut(&mut self, number: u32) -> Option<&mut StoredIndex> {
        let mut indexes = self.tables.iter_mut().flat_map(|table| &mut table.indexes);
        indexes.find(|index| index.number == number)
    }
}

impl StoredTable {
    /// Raises the generation, so that handles of earlier openings notice the change.
    ///
    /// # Errors
    /// The errors of writes.
    pub fn raise_generation(&mut self, tx: &mut Transaction<'_>) -> Result<(), Error> {
        self.generation += 1;
        Ok(tx.put(&generation_key(self.number), &self.generation.to_le_bytes())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyades::Type;

    fn sample() -> Catalogue {
        let schema = Schema::new("t").column("a", Type::I64).primary_key(&["a"]);
        let table = StoredTable {
            name: "t".into(),
            number: 2,
            generation: 1,
            versions: vec![schema],
            defaults: ColumnDefaults::new(),
            indexes: Vec::new(),
        };
        Catalogue { next: 3, tables: vec![table], ..Catalogue::empty() }
    }

    fn decoded(json: &str) -> Result<Catalogue, Error> {
        Catalogue::decode(&Bytes::owned(json.as_bytes().to_vec()))
    }

    #[test]
    fn a_catalogue_comes_back() {
        let json = serde_json::to_string(&sample()).unwrap();
        assert_eq!(decoded(&json).unwrap(), sample());
    }

    #[test]
    fn an_unknown_format_is_refused_whatever_its_fields() {
        let error = decoded(r#"{"format":7,"new":true}"#).unwrap_err();
        assert!(matches!(error, Error::Format(7, FORMAT)));
        let text = error.to_string();
        assert!(text.contains("format 7") && text.contains("up to 1"), "{text}");
    }

    #[test]
    fn damage_is_named() {
        let json = serde_json::to_string(&sample()).unwrap();
        let twice = json.replace(r#""dropped":[]"#, r#""dropped":[2]"#);
        let beyond = json.replace(r#""next":3"#, r#""next":2"#);
        let bare = {
            let mut catalogue = sample();
            catalogue.tables[0].versions.clear();
            serde_json::to_string(&catalogue).unwrap()
        };
        let keyed = json.replace(r#""key":[0]"#, r#""key":[9]"#);
        assert_ne!(keyed, json);
        for (damaged, part) in [
            (&twice[..], "number 2"),
            (&beyond, "number 2"),
            (&bare, "\"t\""),
            (&keyed, "\"t\""),
            ("{", "read"),
        ] {
            let error = decoded(damaged).unwrap_err();
            assert!(matches!(&error, Error::Corrupt(text) if text.contains(part)), "{error}");
        }
    }
}
