//! Prefetching of rows: loading into the cache while the caller does other work.

use super::record::Record;
use super::schema::Columns;
use super::table::TableData;
use super::window::{CopyWindow, window};
use crate::storage::Stamp;
use hyades_platform::prefetch::prefetch;
use hyades_platform::reclaim::Guard;

/// A row being prefetched, beginning with its hash bucket.
pub(crate) struct PrefetchedRow {
    table: u32,
    key_len: u32,
    hash: u64,
    /// The bytes of the row to be read: offset and length.
    window: (usize, usize),
    /// The probable address of the row's record, once the bucket was read; else null.
    record: *const (),
}

/// Number of prefetched bytes of a row's variable-length values.
const MAX_TAIL_BYTES: usize = 128;

/// Assumed key length in bytes, where keys have no fixed length.
const ASSUMED_KEY_BYTES: usize = 16;

/// The bytes of a row (offset and length) touched by a read of these columns, as a guess.
fn guess_window<S: Stamp>(table: &TableData<S>, columns: Columns) -> (usize, usize) {
    match window(table, columns) {
        CopyWindow::Fixed(offset, len) => (offset, len),
        CopyWindow::Prefix(_) | CopyWindow::Whole => {
            (0, table.record_layout().fixed_bytes + MAX_TAIL_BYTES)
        }
    }
}

/// Maximum number of rows prefetched by a scan at a time.
const AHEAD: usize = 16;

/// The rows or entries of a leaf that a scan of at most `limit` rows prefetches.
pub(crate) fn ahead<T>(there: &[T], limit: usize) -> &[T] {
    &there[..there.len().min(limit).min(AHEAD)]
}

/// Prefetches rows to be read by a scan; see [`PrefetchedRow::prefetch_records`].
pub(crate) fn fetch_rows<'r, S: Stamp>(
    table: &TableData<S>,
    columns: Columns,
    rows: impl Iterator<Item = &'r Record<S>> + Clone,
) {
    let window = guess_window(table, columns);
    rows.clone().for_each(|record| prefetch(record));
    for record in rows {
        // Another key length makes a difference of about a cache line.
        Record::prefetch_row(record, table.key_bytes.unwrap_or(ASSUMED_KEY_BYTES), window);
    }
}

impl PrefetchedRow {
    /// Prefetches the bucket read first by a lookup of the key; `None` without a hash index.
    #[inline]
    pub fn prefetch<S: Stamp>(
        table: &TableData<S>,
        key: &[u8],
        columns: Columns,
        guard: &Guard,
    ) -> Option<PrefetchedRow> {
        let hash = table.prefetch_bucket(key, guard)?;
        let window = guess_window(table, columns);
        let (table, key_len) = (table.layout.table, key.len() as u32);
        Some(PrefetchedRow { table, key_len, hash, window, record: std::ptr::null() })
    }

    /// Prefetches the records themselves, after their buckets have arrived in the cache.
    ///
    /// The first access to a record mostly misses the TLB as well, and a prefetch does not retire
    /// before its page walk is over. So prefetches are issued one after the other: page walks
    /// overlap.
    pub fn prefetch_records<S: Stamp>(
        wanted: &mut [PrefetchedRow],
        tables: &[TableData<S>],
        guard: &Guard,
    ) {
        for one in wanted.iter_mut() {
            one.record = tables[one.table as usize].candidate(one.hash, guard).cast();
        }
        for one in wanted.iter() {
            prefetch(one.record);
        }
        for one in wanted.iter().filter(|one| !one.record.is_null()) {
            let record = one.record.cast::<Record<S>>();
            Record::prefetch_row(record, one.key_len as usize, one.window);
        }
    }
}
