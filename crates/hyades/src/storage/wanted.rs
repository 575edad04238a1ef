//! Rows that will be wanted soon: once announced they come from memory while something else is
//! done.

use super::prefetch::prefetch;
use super::record::Record;
use super::schema::Columns;
use super::table::TableData;
use super::window::{CopyWindow, window};
use crossbeam_epoch::Guard;

/// A row that was announced: its bucket is on its way to the cache.
pub(crate) struct Wanted {
    table: u32,
    key_len: u32,
    hash: u64,
    /// The bytes of the row that will be read: offset and length.
    window: (usize, usize),
    /// Where its record seems to be, once the bucket has been looked at.
    record: *const (),
}

/// So much of a row's variable-length values is fetched ahead.
const MOST_TAIL: usize = 128;

/// Where keys have no length of their own.
const USUAL_KEY: usize = 16;

/// Which bytes of a row will be read for these columns, without a look at it: offset and length.
fn likely<S: Default + Send + Sync + 'static>(
    table: &TableData<S>,
    columns: Columns,
) -> (usize, usize) {
    match window(table, columns) {
        CopyWindow::Fixed(offset, len) => (offset, len),
        CopyWindow::Prefix(_) | CopyWindow::Whole => (0, table.layout.fixed_bytes + MOST_TAIL),
    }
}

/// So many rows of a scan are fetched ahead.
const AHEAD: usize = 16;

/// Those of a leaf's rows, or entries, that a scan which wants at most `limit` of them fetches
/// ahead.
pub(crate) fn ahead<T>(there: &[T], limit: usize) -> &[T] {
    &there[..there.len().min(limit).min(AHEAD)]
}

/// Starts loading rows that a scan will read; see [`Wanted::fetch_all`].
pub(crate) fn fetch_rows<'r, S: Default + Send + Sync + 'static>(
    table: &TableData<S>,
    columns: Columns,
    rows: impl Iterator<Item = &'r Record<S>> + Clone,
) {
    let window = likely(table, columns);
    rows.clone().for_each(|record| prefetch(record));
    for record in rows {
        // What a long or short key makes of it is a line more or less.
        Record::prefetch_row(record, table.key_bytes.unwrap_or(USUAL_KEY), window);
    }
}

impl Wanted {
    /// Starts loading what a lookup of the key reads first; `None` where that is not known
    /// beforehand.
    #[inline]
    pub fn announce<S: Default + Send + Sync + 'static>(
        table: &TableData<S>,
        key: &[u8],
        columns: Columns,
        guard: &Guard,
    ) -> Option<Wanted> {
        let hash = table.prefetch_bucket(key, guard)?;
        let window = likely(table, columns);
        let (table, key_len) = (table.layout.table, key.len() as u32);
        Some(Wanted { table, key_len, hash, window, record: std::ptr::null() })
    }

    /// Starts loading the records themselves: their buckets have come meanwhile.
    ///
    /// The first access to a record mostly misses the TLB as well, and a prefetch does not retire
    /// before its page was found. So these stand close together: many pages are looked for at a
    /// time.
    pub fn fetch_all<S: Default + Send + Sync + 'static>(
        wanted: &mut [Wanted],
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
