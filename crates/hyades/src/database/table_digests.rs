//! Digests of the tables of a snapshot, to compare two copies of a database.

use super::Snapshot;
use crate::error::Error;
use crate::storage::hash_index::hash_key;
use crate::storage::row::Row;
use crate::storage::schema::Columns;
use crate::transaction::access::Table;

/// What a table holds, in few words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDigest {
    /// The name of the table.
    pub table: String,
    /// The number of rows.
    pub rows: u64,
    /// The sum of the hashes of the rows, so the order of rows does not matter. Two tables with
    /// other rows have other digests, up to chance: a digest is not proof against an adversary.
    pub digest: u64,
}

fn hash_of(row: &Row<'_>, bytes: &mut Vec<u8>) -> u64 {
    bytes.clear();
    bytes.extend_from_slice(&row.row_id().to_le_bytes());
    for column in 0..row.layout.columns.len() {
        match row.column_bytes(column as u16) {
            Some(value) => {
                bytes.extend_from_slice(&(value.len() as u64 + 1).to_le_bytes());
                bytes.extend_from_slice(value);
            }
            None => bytes.extend_from_slice(&0u64.to_le_bytes()),
        }
    }
    hash_key(bytes)
}

impl Snapshot {
    /// Reads every row of every table, in the order of the tables' declarations. Returns once all
    /// data of the snapshot is on disk.
    ///
    /// # Errors
    /// As for [`Database::snapshot`](crate::Database::snapshot).
    #[doc(hidden)]
    pub fn table_digests(&self) -> Result<Vec<TableDigest>, Error> {
        let (mut digests, mut bytes) = (Vec::new(), Vec::new());
        for (at, table) in self.tables().into_iter().enumerate() {
            let mut digest = 0u64;
            let rows = self.for_each(Table::nth(at as u32), Columns::ALL, |row| {
                digest = digest.wrapping_add(hash_of(row, &mut bytes));
            })?;
            digests.push(TableDigest { table: table.name, rows, digest });
        }
        Ok(digests)
    }
}
