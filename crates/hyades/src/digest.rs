//! Digest of a database's logical content, to compare two states.

use crate::storage::Stamp;
use crate::storage::hash_index::hash_key;
use crate::storage::record::word;
use crate::storage::table::TableData;
use crate::storage::usage::{TableStats, Usage, of_row};
use hyades_index::Keyed;
use hyades_platform::reclaim;
use std::sync::atomic::Ordering;

/// Returns the sum of the hashes of every row and of every secondary index entry that matches its
/// row. Tables are identified by their numbers in the log. The order of rows does not matter.
pub(crate) fn digest<S: Stamp>(tables: &[TableData<S>]) -> u64 {
    let mut sum = 0u64;
    let mut bytes = Vec::new();
    for table in tables {
        table.for_each_in_steps(|record| {
            if record.word.load(Ordering::Acquire) & word::ABSENT == 0 {
                bytes.clear();
                bytes.extend_from_slice(&table.log_id.to_le_bytes());
                bytes.extend_from_slice(record.key());
                table.read_row(record, &mut bytes);
                sum = sum.wrapping_add(hash_key(&bytes));
            }
        });
        for at in 0..table.secondaries.len() {
            table.for_each_matching_entry(at, &reclaim::pin(), |entry, _| {
                bytes.clear();
                bytes.extend_from_slice(&table.log_id.to_le_bytes());
                bytes.extend_from_slice(&(at as u32 + 1).to_le_bytes());
                bytes.extend_from_slice(entry.key());
                sum = sum.wrapping_add(hash_key(&bytes));
            });
        }
    }
    sum
}

/// Counts the rows of all tables.
pub(crate) fn rows<S: Stamp>(tables: &[TableData<S>]) -> u64 {
    usage(tables).iter().map(|usage| usage.rows as u64).sum()
}

/// Counts the rows of each table, and their bytes.
pub(crate) fn usage<S: Stamp>(tables: &[TableData<S>]) -> Vec<Usage> {
    let count = |table: &TableData<S>| {
        let mut sum = Usage::default();
        table.for_each_in_steps(|record| {
            if record.word.load(Ordering::Acquire) & word::ABSENT == 0 {
                sum += of_row(record);
            }
        });
        sum
    };
    tables.iter().map(count).collect()
}

/// Returns the contents of the tables, with the tables' names. While transactions run a deletion
/// may be counted before the insertion of its row: a negative sum counts as 0.
pub(crate) fn described<S: Stamp>(tables: &[TableData<S>], sums: &[Usage]) -> Vec<TableStats> {
    let each = tables.iter().zip(sums).map(|(table, sum)| TableStats {
        name: table.layout.name.clone(),
        rows: sum.rows.max(0) as u64,
        bytes: sum.bytes.max(0) as u64,
    });
    each.collect()
}
