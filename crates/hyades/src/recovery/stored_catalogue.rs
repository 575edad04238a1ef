//! The catalogue in the form stored in the manifest: docs/format.md, "Catalogue".

use crate::error::Error;
use crate::storage::hash_index::HashSecret;
use crate::storage::schema::Schema;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// The newest version of the catalogue that this program reads. Catalogues of the first version
/// state no version.
const VERSION: u32 = 2;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredCatalogue {
    pub tables: Vec<StoredTable>,
    pub procedures: Vec<StoredProcedure>,
    /// The secret of the hashes of keys. A program without knowledge of the secret ignores it, and
    /// loses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_secret: Option<HashSecret>,
    /// The number of the next new table.
    #[serde(skip)]
    pub next_table: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredTable {
    pub id: u32,
    pub schema: Schema,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredProcedure {
    pub id: u32,
    pub name: String,
    pub version: u32,
}

/// The common fields of all versions of the catalogue.
#[derive(Deserialize)]
struct Versioned {
    version: Option<u32>,
}

/// The second version: the next number does not follow from the tables. The fields differ from the
/// fields of the first version, so programs for only the first version refuse the second.
#[derive(Serialize, Deserialize)]
struct SecondVersion {
    version: u32,
    next_table: u32,
    contents: StoredCatalogue,
}

impl StoredCatalogue {
    /// Decodes a catalogue; the catalogue of a new log is empty.
    pub fn read(bytes: &[u8]) -> Result<StoredCatalogue, Error> {
        if bytes.is_empty() {
            return Ok(StoredCatalogue::default());
        }
        StoredCatalogue::decode(bytes).map_err(|why| {
            Error::Mismatch(format!(
                "the catalogue in the log's manifest cannot be read ({why}): it was written by \
                 another version of Hyades"
            ))
        })
    }

    fn decode(bytes: &[u8]) -> Result<StoredCatalogue, String> {
        let malformed = |error: serde_json::Error| error.to_string();
        let Versioned { version } = serde_json::from_slice(bytes).map_err(malformed)?;
        let stored = match version {
            None => {
                let mut first: StoredCatalogue =
                    serde_json::from_slice(bytes).map_err(malformed)?;
                first.check()?;
                first.next_table = first.above_all_tables();
                first
            }
            Some(VERSION) => {
                let second: SecondVersion = serde_json::from_slice(bytes).map_err(malformed)?;
                second.contents.check()?;
                StoredCatalogue { next_table: second.next_table, ..second.contents }
            }
            Some(other) => {
                return Err(format!(
                    "it has format version {other}, and this program reads up to version {VERSION}"
                ));
            }
        };
        match stored.next_table {
            u32::MAX => Err("a number for which there is no next".to_string()),
            next if next < stored.above_all_tables() => {
                Err(format!("its next table has number {next}, which is taken"))
            }
            _ => Ok(stored),
        }
    }

    /// Encodes the catalogue for the manifest, in the lowest version able to hold the catalogue.
    pub fn to_bytes(&self) -> Vec<u8> {
        let bytes = if self.next_table == self.above_all_tables() {
            serde_json::to_vec(self)
        } else {
            let (version, next_table) = (VERSION, self.next_table);
            serde_json::to_vec(&SecondVersion { version, next_table, contents: self.clone() })
        };
        bytes.expect("a catalogue is plain data")
    }

    fn above_all_tables(&self) -> u32 {
        self.tables.iter().map(|table| table.id + 1).max().unwrap_or(0)
    }

    /// Checks the invariants required by the rest of the code.
    fn check(&self) -> Result<(), String> {
        let (mut ids, mut names) = (HashSet::new(), HashSet::new());
        for table in &self.tables {
            table.schema.check_stored()?;
            if !ids.insert(table.id) || !names.insert(&table.schema.name) {
                return Err(format!("table {:?}, number {}, twice", table.schema.name, table.id));
            }
        }
        let mut ids = HashSet::new();
        if let Some(twice) = self.procedures.iter().find(|p| !ids.insert(p.id)) {
            return Err(format!("two procedures of number {}", twice.id));
        }
        let ids = self.tables.iter().map(|t| t.id).chain(self.procedures.iter().map(|p| p.id));
        match ids.max() {
            Some(u32::MAX) => Err("a number for which there is no next".to_string()),
            _ => Ok(()),
        }
    }

    /// Adds a table under a new number. Returns the number.
    ///
    /// # Errors
    /// All numbers have been used.
    pub fn add_table(&mut self, schema: &Schema) -> Result<u32, Error> {
        let id = self.next_table;
        if id >= u32::MAX - 1 {
            return Err(Error::Mismatch(format!(
                "there is no number left for table {:?}: copy the rows to a new database",
                schema.name
            )));
        }
        self.tables.push(StoredTable { id, schema: schema.clone() });
        self.next_table = id + 1;
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(name: &str) -> Schema {
        Schema::new(name).column("k", crate::storage::value::Type::I64).primary_key(&["k"])
    }

    #[test]
    fn only_a_catalogue_with_lost_numbers_is_of_the_second_version() {
        let mut stored = StoredCatalogue::default();
        for name in ["a", "b", "c"] {
            stored.add_table(&schema(name)).unwrap();
        }
        for (dropped, second) in [(0, false), (1, true)] {
            // The first of the tables, then the last of the remaining tables.
            stored.tables.remove(dropped);
            let bytes = stored.to_bytes();
            assert_eq!(bytes.starts_with(b"{\"version\":2"), second);
            assert_eq!(StoredCatalogue::read(&bytes).unwrap(), stored);
        }
        // The fields read by a program for only the first version.
        #[derive(Debug, Deserialize)]
        #[expect(dead_code, reason = "only its fields' names matter")]
        struct FirstVersion {
            tables: Vec<StoredTable>,
            procedures: Vec<StoredProcedure>,
        }
        let error = serde_json::from_slice::<FirstVersion>(&stored.to_bytes()).unwrap_err();
        assert!(error.to_string().contains("missing field `tables`"), "{error}");
        assert_eq!(stored.add_table(&schema("d")).unwrap(), 3, "a number is not used again");
    }

    /// A program without secrets reads the catalogue, and a program with secrets reads its own.
    #[test]
    fn a_secret_is_kept_and_its_absence_is_allowed() {
        let mut stored = StoredCatalogue::default();
        stored.add_table(&schema("a")).unwrap();
        let without = stored.to_bytes();
        assert!(!String::from_utf8_lossy(&without).contains("secret"));
        assert_eq!(StoredCatalogue::read(&without).unwrap().hash_secret, None);
        stored.hash_secret = Some(HashSecret::from([1, u64::MAX, 3]));
        let mut with = StoredCatalogue::read(&stored.to_bytes()).unwrap();
        assert_eq!(with, stored);
        with.tables.clear();
        assert!(with.to_bytes().starts_with(b"{\"version\":2"));
        assert_eq!(StoredCatalogue::read(&with.to_bytes()).unwrap(), with);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let full = SecondVersion {
            version: VERSION,
            next_table: u32::MAX,
            contents: StoredCatalogue::default(),
        };
        let full = serde_json::to_vec(&full).unwrap();
        let mut taken = StoredCatalogue::default();
        taken.add_table(&schema("a")).unwrap();
        let taken = SecondVersion { version: VERSION, next_table: 0, contents: taken };
        let taken = serde_json::to_vec(&taken).unwrap();
        for (bytes, part) in [
            (&br#"{"version":3,"contents":{}}"#[..], "version 3"),
            (&full, "no next"),
            (&taken, "is taken"),
        ] {
            let error = StoredCatalogue::read(bytes).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
