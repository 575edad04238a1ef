//! The transaction component: all that is known of transactions.

pub(crate) mod place;
pub(crate) mod ranges;
pub(crate) mod record;
mod scan;
pub(crate) mod timestamp;
pub(crate) mod transaction;
pub(crate) mod transaction_table;
pub(crate) mod version_table;

use crate::config::Options;
use crate::data_component::DataComponent;
use crate::error::{Abort, Error};
use crate::proxy::Proxy;
use hyades_wal::{Log, Lsn};
use ranges::Ranges;
use std::sync::{Arc, Mutex};
use timestamp::Timestamps;
use transaction_table::TransactionTable;
use version_table::VersionTable;

/// The buckets that a transaction sweeps when the version table is nearly full.
const SWEEP_SOFT: usize = 16;
/// How often a transaction sweeps the table before it is shed.
const ROUNDS_HARD: usize = 8;
/// The bytes of the budget for which there is a bucket.
const BYTES_PER_BUCKET: usize = 256;
/// What is noted of scans may take the budget divided by this.
const NOTES_SHARE: usize = 8;

/// What the sessions, the proxy and checkpoints share.
pub(crate) struct TransactionComponent {
    pub log: Log,
    pub timestamps: Timestamps,
    pub transactions: TransactionTable,
    pub versions: VersionTable,
    pub proxy: Proxy,
    pub data: Arc<dyn DataComponent>,
    pub options: Options,
    /// Where redo would begin in each stream of this incarnation.
    pub resume_at: Mutex<Vec<Lsn>>,
}

impl TransactionComponent {
    pub fn new(log: Log, first_ts: u64, data: Arc<dyn DataComponent>, options: Options) -> Self {
        let buckets = (options.memory_bytes / BYTES_PER_BUCKET).next_power_of_two() / 2;
        let ranges = options.ranges.then(|| Ranges::new(options.memory_bytes / NOTES_SHARE));
        let mut starts = vec![0; log.streams()];
        log.frontier().load_into(&mut starts);
        Self {
            timestamps: Timestamps::new(first_ts, options.sessions),
            transactions: TransactionTable::new(options.transactions, starts.len()),
            versions: VersionTable::new(buckets.clamp(16, 1 << 24), ranges),
            proxy: Proxy::new(&log),
            log,
            data,
            options,
            resume_at: Mutex::new(starts),
        }
    }

    /// Keeps the version table within its budget. Called where a transaction begins, and before it
    /// puts something into the table; no latch is held.
    ///
    /// # Errors
    /// It could not be: [`Abort::Shed`].
    pub fn make_room(&self) -> Result<(), Error> {
        let budget = self.options.memory_bytes;
        if self.versions.bytes() <= budget / 4 * 3 {
            return Ok(());
        }
        self.versions.sweep(SWEEP_SOFT, self.timestamps.oldest_active());
        for _ in 0..ROUNDS_HARD {
            if self.versions.bytes() <= budget {
                return Ok(());
            }
            // Only what the data component holds can leave the table.
            self.run_proxy()?;
            self.versions.sweep(self.versions.buckets(), self.timestamps.oldest_active());
        }
        match self.versions.bytes() <= budget {
            true => Ok(()),
            false => Err(Abort::Shed.into()),
        }
    }

    /// Applies what may be applied; returns whether anything was.
    ///
    /// # Errors
    /// The data component failed, now or before. The log is stopped.
    pub fn run_proxy(&self) -> Result<bool, Error> {
        // What waits is in memory, too.
        let lag_limit = self.options.lag_bytes.min(self.options.memory_bytes / 2);
        self.proxy.run(&self.log, &self.timestamps, &*self.data, lag_limit)
    }
}
