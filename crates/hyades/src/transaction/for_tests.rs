//! What an [`crate::Access`] outside the engine needs to make rows: test oracles use it. Not part
//! of the public interface.

use super::access::{Savepoint, Table};
use crate::error::Abort;
use crate::storage::layout::Layout;
use crate::storage::row::Row;
use crate::storage::schema::{Columns, PrimaryKind, Schema};
use crate::storage::value::Value;

/// The shape of a table's rows, and what its keys are made of.
pub struct TestTable {
    schema: Schema,
    layout: Layout,
}

impl TestTable {
    /// The shape of the `number`-th table.
    ///
    /// # Panics
    /// If the schema has a fault.
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

    /// A row over encoded bytes.
    pub fn row<'a>(&'a self, bytes: &'a [u8], row_id: u64) -> Row<'a> {
        Row { layout: &self.layout, bytes, base: 0, window_nulls: None, row_id }
    }

    /// How many columns the table has.
    pub fn columns(&self) -> usize {
        self.schema.columns.len()
    }

    /// Primary key columns; none means that rows have hidden row ids.
    pub fn key(&self) -> &[u16] {
        &self.schema.key
    }

    /// Whether the primary index can be scanned.
    pub fn is_ordered(&self) -> bool {
        self.schema.primary == PrimaryKind::Ordered
    }

    /// The secondary indexes: their columns, and whether they are unique.
    pub fn indexes(&self) -> impl Iterator<Item = (&[u16], bool)> {
        self.schema.indexes.iter().map(|index| (&index.columns[..], index.unique))
    }
}

/// The table's position among those declared.
pub fn table_number(table: Table) -> usize {
    table.0 as usize
}

/// A savepoint that stands for `n`.
pub fn savepoint(n: u32) -> Savepoint {
    Savepoint(u64::from(n))
}

/// What [`savepoint`] was given.
pub fn savepoint_number(savepoint: Savepoint) -> u32 {
    u32::try_from(savepoint.0).expect("it was made of a smaller number")
}

/// Whether the set has the column.
pub fn has_column(columns: Columns, column: u16) -> bool {
    columns.0 >> column & 1 == 1
}
