//! The rows of a table with their index entries, as bytes.

use crate::bytes::Bytes;
use crate::catalogue::{StoredTable, generation_key};
use crate::error::Error;
use crate::index::{Index, primary_of};
use crate::keyspace::Keyspace;
use crate::large;
use crate::prefix::Prefix;
use crate::view::Reads;
use crate::writes::{Before, Writes};
use hyades::row_codec::{RowCodec, RowConversion, push_varint, take_varint};
use hyades::{Abort, Schema, Value};
use hyades_deuteronomy::Transaction;

/// A table as opened: under each primary key there is the position of a schema (a varint), and a
/// row of the schema.
pub(crate) struct TableRows {
    pub keyspace: Keyspace,
    pub codec: RowCodec,
    /// The conversions from earlier schemas, by position. The current position comes behind.
    former: Vec<RowConversion>,
    generation: u64,
    generation_key: Vec<u8>,
    /// In the order of the declaration.
    pub indexes: Vec<Index>,
}

/// A row as found.
pub(crate) struct FoundRow {
    /// What stands under the key.
    pub stored: Bytes,
    /// The row in the current schema.
    pub row: Bytes,
}

impl TableRows {
    /// The rows of a table in the catalogue, with the declared schema.
    ///
    /// # Errors
    /// [`Error::Schema`]; [`Error::Corrupt`].
    pub fn new(keyspace: Keyspace, declared: Schema, stored: &StoredTable) -> Result<Self, Error> {
        let codec = RowCodec::new(declared)?;
        let (_, former) = stored.versions.split_last().expect("a table has a schema");
        let former = former.iter().map(|from| RowConversion::new(from, &codec, &stored.defaults));
        let former = former.collect::<Result<_, _>>()?;
        let index = |declared: hyades::row_codec::IndexColumns<'_>| {
            let mut found = stored.indexes.iter();
            let found = found.find(|index| index.name == declared.name).ok_or_else(|| {
                Error::Corrupt(format!("the catalogue has no index {:?}", declared.name))
            })?;
            Ok(Index {
                name: found.name.clone(),
                number: found.number,
                prefix: Prefix::new(found.number),
                unique: found.unique,
                columns: declared.columns.to_vec(),
                is_filled: found.is_filled,
            })
        };
        let indexes = codec.indexes().map(index).collect::<Result<_, Error>>()?;
        Ok(Self {
            keyspace,
            former,
            generation: stored.generation,
            generation_key: generation_key(stored.number),
            indexes,
            codec,
        })
    }

    /// The name of the table.
    pub fn name(&self) -> &str {
        self.keyspace.name()
    }

    /// Checks that the declaration is still as at the opening.
    ///
    /// # Errors
    /// [`Error::Changed`].
    pub fn check_generation(&self, view: &mut impl Reads) -> Result<(), Error> {
        match view.read_value(&self.generation_key)? {
            Some(bytes) if *bytes == self.generation.to_le_bytes() => Ok(()),
            _ => Err(Error::Changed(self.name().to_owned())),
        }
    }

    /// The error for a row that does not fit.
    pub fn misfit(&self, abort: Abort) -> Error {
        let named = |column| format!("column {:?}", self.codec.column_name(column).unwrap_or("?"));
        let what = match abort {
            Abort::NullValue { column, .. } => format!("{} does not take nulls", named(column)),
            Abort::WrongType { column, .. } => {
                format!("the value of {} has another type", named(column))
            }
            Abort::KeyColumnChanged { column, .. } => {
                format!("{} is in the primary key: delete the row, insert another", named(column))
            }
            other => other.to_string(),
        };
        Error::Row(format!("a row does not fit table {:?}: {what}", self.name()))
    }

    /// The error for a second row of a key.
    pub fn not_unique(&self, index: &Index) -> Error {
        Error::Unique { table: self.name().to_owned(), index: index.name.clone() }
    }

    /// The error for a key that does not fit its columns.
    pub fn key_misfit(&self, _: Abort) -> Error {
        Error::Row(format!("a key of table {:?} does not fit the columns of the key", self.name()))
    }

    /// Encodes a row.
    ///
    /// # Errors
    /// [`Error::Row`].
    pub fn encode(&self, values: &[Value<'_>]) -> Result<Vec<u8>, Error> {
        let mut row = Vec::new();
        self.codec.encode(values, &mut row).map_err(|abort| self.misfit(abort))?;
        Ok(row)
    }

    /// The primary key of these values.
    ///
    /// # Errors
    /// [`Error::Row`].
    pub fn primary_key(&self, values: &[Value<'_>]) -> Result<Vec<u8>, Error> {
        let (columns, mut key) = (self.codec.key_columns(), Vec::new());
        let pushed = self.codec.push_key(columns, values, &mut key);
        pushed.map_err(|abort| self.key_misfit(abort))?;
        match values.len() == columns.len() {
            true => Ok(key),
            false => Err(self.key_misfit(Abort::UnknownHandle)),
        }
    }

    /// Reads what stands under a key as a row of the current schema.
    ///
    /// # Errors
    /// [`Error::Corrupt`]; [`Error::Changed`]; the errors of reads.
    pub fn decode(&self, view: &mut impl Reads, stored: Bytes) -> Result<Bytes, Error> {
        let value = large::load(view, stored)?;
        let mut rest = &value[..];
        let corrupt = || Error::Corrupt(format!("a row of table {:?} is damaged", self.name()));
        let version = take_varint(&mut rest).ok_or_else(corrupt)?;
        let (skipped, version) = (value.len() - rest.len(), usize::try_from(version));
        let version = version.map_err(|_| corrupt())?;
        if version > self.former.len() {
            return Err(Error::Changed(self.name().to_owned()));
        }
        if let Some(former) = self.former.get(version) {
            let mut row = Vec::new();
            return match former.convert(&self.codec, rest, &mut row) {
                true => Ok(Bytes::owned(row)),
                false => Err(corrupt()),
            };
        }
        match self.codec.row(rest) {
            Some(_) => Ok(value.skip(skipped)),
            None => Err(corrupt()),
        }
    }

    /// The row with a primary key.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn find(&self, view: &mut impl Reads, primary: &[u8]) -> Result<Option<FoundRow>, Error> {
        let Some(stored) = view.read_value(&self.keyspace.prefix().key(primary))? else {
            return Ok(None);
        };
        let row = self.decode(view, stored.clone())?;
        Ok(Some(FoundRow { stored, row }))
    }

    /// The key of the row of an index entry; None if the bytes are no entry.
    pub fn row_key(&self, key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        primary_of(key, value).map(|primary| self.keyspace.prefix().key(primary))
    }

    /// The row of an index entry.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn row_of_entry(
        &self,
        view: &mut impl Reads,
        key: &[u8],
        value: &[u8],
    ) -> Result<Bytes, Error> {
        let corrupt = || {
            Error::Corrupt(format!("an index of table {:?} has an entry without row", self.name()))
        };
        let primary = primary_of(key, value).ok_or_else(corrupt)?;
        Ok(self.find(view, primary)?.ok_or_else(corrupt)?.row)
    }

    /// Writes or deletes the row with a primary key, and the index entries with it. `old` is the
    /// row as found.
    ///
    /// # Errors
    /// [`Error::Unique`]; [`Error::ValueTooLarge`]; the errors of reads and writes.
    pub fn replace(
        &self,
        tx: &mut Transaction<'_>,
        primary: &[u8],
        old: Option<FoundRow>,
        new: Option<&[u8]>,
    ) -> Result<(), Error> {
        let (mut added, mut removed) = (Vec::new(), Vec::new());
        for index in &self.indexes {
            let entry = |row: &[u8]| index.entry(&self.codec, row, primary);
            let (old, new) = (old.as_ref().map(|old| entry(&old.row)), new.map(entry));
            if old != new {
                added.extend(new.map(|entry| (index, entry)));
                removed.extend(old);
            }
        }
        for (index, entry) in added.iter().filter(|(_, entry)| entry.excludes) {
            if tx.get(&entry.key)?.is_some() {
                return Err(self.not_unique(index));
            }
        }
        let key = self.keyspace.prefix().key(primary);
        Writes::run(tx, |writes| {
            for (_, entry) in added {
                writes.put(&entry.key, &entry.value, Before::Absent)?;
            }
            for entry in removed {
                let before = Before::Value(Bytes::owned(entry.value));
                writes.delete(&entry.key, before)?;
            }
            let before = old.map(|old| old.stored);
            match (new, before) {
                (Some(row), before) => self.keyspace.write(writes, &key, &self.value(row), before),
                (None, Some(before)) => large::remove(writes, &key, before),
                (None, None) => Ok(()),
            }
        })
    }

    /// What stands under the key of a row of the current schema.
    fn value(&self, row: &[u8]) -> Vec<u8> {
        let mut value = Vec::with_capacity(row.len() + 2);
        push_varint(&mut value, self.former.len() as u64);
        value.extend_from_slice(row);
        value
    }
}
