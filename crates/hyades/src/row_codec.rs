//! Rows and keys as bytes, for tables outside of the engine: the crate `hyades-tables`. Not part of
//! the public API.
//!
//! The encodings are the storage's own: rows by `Layout`, keys by `key`, rows of an earlier schema
//! by `Conversion`; and the accepted changes of a schema are by the opening's comparison.

use crate::error::{Abort, Error};
use crate::recovery::schema_change::compare;
use crate::storage::conversion::Conversion;
use crate::storage::key::{self, KeyBytes};
use crate::storage::layout::Layout;
use crate::storage::row::{Row, apply_delta, check_len, encode_delta};
use crate::storage::schema::{Schema, Set};
use crate::storage::value::Value;
use std::collections::BTreeMap;

pub use crate::storage::row::{push_varint, take_varint};

/// The values of existing rows in columns added later, by the name of the column: bytes as in a
/// row. A nullable column without an entry is null there.
pub type ColumnDefaults = BTreeMap<String, Vec<u8>>;

/// The rows and the keys of a schema.
pub struct RowCodec {
    schema: Schema,
    layout: Layout,
}

/// A secondary index of a schema.
pub struct IndexColumns<'s> {
    /// The name of the index.
    pub name: &'s str,
    /// Whether two rows may not share a key.
    pub unique: bool,
    /// The positions of the columns.
    pub columns: &'s [u16],
}

impl RowCodec {
    /// The codec of a schema: a declared one, or one read from disk.
    ///
    /// # Errors
    /// The schema has a fault.
    pub fn new(schema: Schema) -> Result<RowCodec, Error> {
        if let Some(fault) = &schema.fault {
            return Err(Error::Misuse(fault.clone()));
        }
        schema.check_stored().map_err(Error::Mismatch)?;
        let layout = Layout::new(&schema, 0);
        Ok(RowCodec { schema, layout })
    }

    /// The schema.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The positions of the primary key's columns; empty without a primary key.
    pub fn key_columns(&self) -> &[u16] {
        &self.schema.key
    }

    /// The name of a column.
    pub fn column_name(&self, column: u16) -> Option<&str> {
        self.schema.columns.get(usize::from(column)).map(|column| &*column.name)
    }

    /// The secondary indexes, in the order of their declaration.
    pub fn indexes(&self) -> impl Iterator<Item = IndexColumns<'_>> {
        self.schema.indexes.iter().map(|index| IndexColumns {
            name: &index.name,
            unique: index.unique,
            columns: &index.columns,
        })
    }

    /// The declared defaults of columns.
    pub fn defaults(&self) -> ColumnDefaults {
        let columns = self.schema.columns.iter();
        columns.filter_map(|c| Some((c.name.clone(), c.default.clone()?))).collect()
    }

    /// Encodes a row, one value per column, into `out` (cleared first).
    ///
    /// # Errors
    /// A value does not fit its column; the row is longer than
    /// [`MAX_ROW_BYTES`](crate::MAX_ROW_BYTES).
    pub fn encode(&self, values: &[Value<'_>], out: &mut Vec<u8>) -> Result<(), Abort> {
        self.layout.encode(values, out)
    }

    /// The row with these bytes; `None` if the bytes are no row of the schema.
    pub fn row<'a>(&'a self, bytes: &'a [u8]) -> Option<Row<'a>> {
        let row = Row { layout: &self.layout, bytes, base: 0, window_nulls: None, row_id: 0 };
        self.layout.is_valid(bytes).then_some(row)
    }

    /// Sets columns of a valid row. After an error the row is as before.
    ///
    /// # Errors
    /// A value does not fit its column; a column is in the primary key; the row becomes too long.
    pub fn set(&self, row: &mut Vec<u8>, sets: &[Set<'_>]) -> Result<(), Abort> {
        let mut delta = Vec::new();
        encode_delta(&self.layout, sets, &mut delta)?;
        check_len(&self.layout, row, &delta)?;
        apply_delta(&self.layout, row, &delta)
    }

    /// The primary key of a valid row.
    pub fn primary_key(&self, row: &[u8]) -> Vec<u8> {
        let mut key = KeyBytes::new();
        self.layout.primary_key_of(row, &mut key);
        key.to_vec()
    }

    /// Appends the key of the first of these columns with the given values: a whole key or a
    /// prefix. In keys of an index, nullable columns have a marker.
    ///
    /// # Errors
    /// A value does not fit its column, or there are more values than columns.
    pub fn push_key(
        &self,
        columns: &[u16],
        values: &[Value<'_>],
        out: &mut Vec<u8>,
    ) -> Result<(), Abort> {
        let wrong = |at: usize| Abort::WrongType { table: 0, column: at as u16 };
        if values.len() > columns.len() {
            return Err(wrong(columns.len()));
        }
        let mut key = KeyBytes::new();
        for (at, (&column, value)) in columns.iter().zip(values).enumerate() {
            let column = &self.layout.columns[usize::from(column)];
            if !key::push(&mut key, column.kind, column.nullable, value) {
                return Err(wrong(at));
            }
        }
        out.extend_from_slice(&key);
        Ok(())
    }

    /// Appends the key of a valid row in an index over these columns, without the row's primary
    /// key. Returns whether a column is null.
    pub fn push_index_key(&self, columns: &[u16], row: &[u8], out: &mut Vec<u8>) -> bool {
        let (mut key, mut has_null) = (KeyBytes::new(), false);
        for &at in columns {
            let column = &self.layout.columns[usize::from(at)];
            let value = self.layout.value(row, at);
            has_null |= matches!(value, Value::Null);
            let fits = key::push(&mut key, column.kind, column.nullable, &value);
            debug_assert!(fits, "a value of a row fits its column");
        }
        out.extend_from_slice(&key);
        has_null
    }
}

/// Turns rows of an earlier schema of a table into rows of a later one.
pub struct RowConversion {
    from: Layout,
    conversion: Conversion,
}

impl RowConversion {
    /// The conversion from an earlier schema. Columns missing there get the values of `defaults`.
    ///
    /// # Errors
    /// The schemas do not follow each other, or a column has no value for existing rows.
    pub fn new(
        from: &Schema,
        to: &RowCodec,
        defaults: &ColumnDefaults,
    ) -> Result<RowConversion, Error> {
        from.check_stored().map_err(Error::Mismatch)?;
        let mut schema = to.schema.clone();
        for column in &mut schema.columns {
            column.default = defaults.get(&column.name).cloned();
        }
        compare(from, &schema)?;
        let conversion = Conversion::new(from, &schema);
        Ok(RowConversion { from: Layout::new(from, 0), conversion })
    }

    /// Converts a row into `out` (cleared first). Returns false if the bytes are no row of the
    /// earlier schema, or the row becomes too long.
    pub fn convert(&self, to: &RowCodec, row: &[u8], out: &mut Vec<u8>) -> bool {
        self.from.is_valid(row) && self.conversion.row(&self.from, &to.layout, row, out)
    }
}

/// The accepted differences between a stored schema and a declared one.
pub struct SchemaChange {
    /// The changes in words.
    pub words: Vec<String>,
    /// Whether rows have another layout.
    pub has_new_layout: bool,
}

/// Compares a declared schema with the stored one, by the rules of an opening of the engine.
///
/// # Errors
/// [`Error::Mismatch`]: a difference not accepted; names the table and the column.
pub fn schema_change(stored: &Schema, declared: &Schema) -> Result<SchemaChange, Error> {
    let change = compare(stored, declared)?;
    Ok(SchemaChange { words: change.words, has_new_layout: change.layout })
}

/// The smallest bytes above all bytes that start with `prefix`; `None` if there are none.
pub fn successor_of_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut key = KeyBytes::from_slice(prefix);
    key::successor_of_prefix(&mut key).then(|| key.to_vec())
}
