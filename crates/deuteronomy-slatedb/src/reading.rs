//! Reads of the database as it is, and of a snapshot.

use crate::failure::damaged;
use crate::item::{data_key, data_range, read_data_key, read_item};
use crate::waiting::Threads;
use hyades_deuteronomy::{Error, Found, KeyRange, Operation, ScanOrder};
use slatedb::config::{ReadOptions, ScanOptions};
use slatedb::{DbReadOps, IterationOrder};
use std::ops::ControlFlow;
use std::time::Duration;

/// The bytes asked of the object storage at a time by a scan.
const READ_AHEAD: usize = 256 << 10;

/// A reader of the database, or of a snapshot.
pub(crate) struct Reads<'r, R> {
    pub from: &'r R,
    pub threads: &'r Threads,
    pub patience: Duration,
    /// Whether scanned blocks stay in memory.
    pub keeps_scanned: bool,
}

impl<R: DbReadOps + Sync> Reads<'_, R> {
    /// The value of a key of SlateDB.
    ///
    /// # Errors
    /// The object storage does not answer, or SlateDB fails.
    pub fn stored(&self, key: &[u8]) -> Result<Option<bytes::Bytes>, Error> {
        let options = ReadOptions::default();
        self.threads.wait("reading", self.patience, self.from.get_with_options(key, &options))
    }

    /// The newest operation on a key.
    ///
    /// # Errors
    /// As [`stored`](Self::stored), or the item is damaged.
    pub fn get(&self, key: &[u8]) -> Result<Found, Error> {
        let Some(item) = self.stored(&data_key(key))? else { return Ok(Found::default()) };
        let (ts, value) = read_item(&item).ok_or_else(|| damaged("an item"))?;
        Ok(Found { ts, value: value.map(<[u8]>::to_vec) })
    }

    /// Hands the newest operation on each key of a range to `each`.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn scan(
        &self,
        range: KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let order = match order {
            ScanOrder::Ascending => IterationOrder::Ascending,
            ScanOrder::Descending => IterationOrder::Descending,
        };
        let options = ScanOptions::default()
            .with_order(order)
            .with_read_ahead_bytes(READ_AHEAD)
            .with_cache_blocks(self.keeps_scanned);
        let begins = self.from.scan_with_options(data_range(range), &options);
        let mut entries = self.threads.wait("beginning a scan", self.patience, begins)?;
        loop {
            let next = self.threads.wait("scanning", self.patience, entries.next())?;
            let Some(entry) = next else { return Ok(()) };
            let key = read_data_key(&entry.key).ok_or_else(|| damaged("a key"))?;
            let (ts, value) = read_item(&entry.value).ok_or_else(|| damaged("an item"))?;
            if each(Operation { key, ts, value }).is_break() {
                return Ok(());
            }
        }
    }
}
