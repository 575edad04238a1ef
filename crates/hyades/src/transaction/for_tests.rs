//! Helpers to build rows for an [`crate::Access`] outside the engine, such as a test oracle. Not
//! part of the public API.

use super::access::{Savepoint, Table};
use crate::error::Abort;
use crate::storage::layout::Layout;
use crate::storage::row::Row;
use crate::storage::schema::{Columns, PrimaryKind, Schema};
use crate::storage::value::Value;

/// Layout of a table's rows, and the columns of its keys.
pub struct TestTable {
    schema: Schema,
    layout: Layout,
}

impl TestTable {
    /// Describes the `number`-th table.
    ///
    /// # Panics
    /// If the schema is invalid.
    pub fn new(schema: Schema, number: u32) -> TestTable {
        assert!(schema.fault.is_none(), "{:?}", schema.fault);
        TestTable { layout: Layout::new(&schema, number), schema }
    }

    /// Encodes a row.
    ///
    /// # Errors
    /// As an insert: wrong type, null value, row too large.
    pub fn encode(&self, row: &[Value<'_>]) -> Result<Vec<u8>, Abort> {
        let mut bytes = Vec::new();
        self.layout.encode(row, &mut bytes)?;
        Ok(bytes)
    }

    /// Checks one value as an update would.
    ///
    /// # Errors
    /// Wrong type, null value.
    pub fn check(&self, column: u16, value: &Value<'_>) -> Result<(), Abort> {
        self.layout.check(column, value)
    }

    /// Returns a row over encoded bytes.
    pub fn row<'a>(&'a self, bytes: &'a [u8], row_id: u64) -> Row<'a> {
        Row { layout: &self.layout, bytes, base: 0, window_nulls: None, row_id }
    }

    /// Returns the number of columns of the table.
    pub fn columns(&self) -> usize {
        self.schema.columns.len()
    }

    /// Returns the primary key columns; empty if rows have hidden row ids.
    pub fn key(&self) -> &[u16] {
        &self.schema.key
    }

    /// Whether the primary index can be scanned.
    pub fn is_ordered(&self) -> bool {
        self.schema.primary == PrimaryKind::Ordered
    }

    /// Returns the secondary indexes: their columns, and whether they are unique.
    pub fn indexes(&self) -> impl Iterator<Item = (&[u16], bool)> {
        self.schema.indexes.iter().map(|index| (&index.columns[..], index.unique))
    }
}

/// Returns the table's position among those declared.
pub fn table_number(table: Table) -> usize {
    table.number() as usize
}

/// Creates a savepoint with number `n`.
pub fn savepoint(n: u32) -> Savepoint {
    Savepoint(u64::from(n))
}

/// Returns the number of a savepoint made by [`savepoint`].
pub fn savepoint_number(savepoint: Savepoint) -> u32 {
    u32::try_from(savepoint.0).expect("it was made of a smaller number")
}

/// Whether the set contains the column.
pub fn has_column(columns: Columns, column: u16) -> bool {
    columns.0 >> column & 1 == 1
}
