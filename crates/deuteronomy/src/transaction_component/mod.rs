//! The transaction component: all that is known of transactions.

mod buckets;
mod claims;
mod collecting;
mod commit;
pub(crate) mod continuations;
mod fetches;
pub(crate) mod place;
pub(crate) mod ranges;
pub(crate) mod record;
mod room;
pub(crate) mod scan;
pub(crate) mod timestamp;
pub(crate) mod transaction;
pub(crate) mod transaction_table;
pub(crate) mod version;
pub(crate) mod version_table;
pub(crate) mod work;
pub(crate) mod writes;

use crate::checkpoint::Checkpoints;
use crate::config::Options;
use crate::data_component::{DataComponent, Limits};
use crate::error::Error;
use crate::held_bytes::HeldBytes;
use crate::key::KeyHasher;
use crate::proxy::Proxy;
use continuations::Readers;
use fetches::Fetches;
use hyades_platform::sync::Padded;
use hyades_wal::{Log, Lsn};
use ranges::Ranges;
use room::Room;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use timestamp::Timestamps;
use transaction_table::TransactionTable;
use version_table::VersionTable;

/// What is noted of scans may take the budget divided by this.
const NOTES_SHARE: usize = 8;

/// What the sessions, the proxy and checkpoints share.
pub(crate) struct TransactionComponent {
    pub log: Log,
    pub timestamps: Timestamps,
    pub transactions: TransactionTable,
    pub versions: VersionTable,
    pub fetches: Fetches,
    pub readers: Readers,
    /// Apart from what all transactions read: each commit writes to it.
    pub proxy: Padded<Proxy>,
    pub room: Room,
    /// What waits for the data component, and is not in the version table any more.
    held: HeldBytes,
    pub data: Arc<dyn DataComponent>,
    /// Those of the data component.
    pub limits: Limits,
    pub options: Options,
    /// Where redo would begin in each stream of this incarnation.
    pub resume_at: Mutex<Vec<Lsn>>,
    pub checkpoints: Checkpoints,
    /// How many deleted keys scans have passed over at the data component since the last
    /// checkpoint. Relaxed: it orders nothing.
    pub passed: AtomicU64,
    /// The oldest active timestamp at which a sweep of the whole table has found next to nothing to
    /// drop. Relaxed: a session that misses it sweeps in vain once more.
    pinned_at: AtomicU64,
    /// Nanoseconds that transactions have spent on making room. Relaxed: it orders nothing.
    pub collecting_ns: AtomicU64,
}

impl TransactionComponent {
    pub fn new(log: Log, first_ts: u64, data: Arc<dyn DataComponent>, options: Options) -> Self {
        let ranges = options.ranges.then(|| Ranges::new(options.memory_bytes / NOTES_SHARE));
        let mut starts = vec![0; log.streams()];
        log.frontier().load_into(&mut starts);
        let held = HeldBytes::default();
        let hasher = match options.log.stepped {
            true => KeyHasher::FIXED,
            false => KeyHasher::random(),
        };
        Self {
            timestamps: Timestamps::new(first_ts, options.sessions),
            transactions: TransactionTable::new(options.transactions, starts.len()),
            versions: VersionTable::new(ranges, held.clone(), hasher),
            fetches: Fetches::new(),
            readers: Readers::default(),
            proxy: Padded(Proxy::new(&log, &options, held.clone())),
            room: Room::new(),
            log,
            limits: data.limits(),
            data,
            options,
            held,
            resume_at: Mutex::new(starts),
            checkpoints: Checkpoints::default(),
            passed: AtomicU64::new(0),
            pinned_at: AtomicU64::new(0),
            collecting_ns: AtomicU64::new(0),
        }
    }

    /// Applies what may be applied, on the calling thread; returns whether anything was.
    ///
    /// # Errors
    /// The data component failed, now or before. The log is stopped. [`Error::Stalled`].
    pub fn run_proxy(&self) -> Result<bool, Error> {
        // What waits is in memory, too.
        self.run_proxy_within(self.options.lag_bytes.min(self.options.memory_bytes / 2))
    }

    /// The same; what is younger than an active transaction waits only up to this many bytes.
    fn run_proxy_within(&self, lag_limit: usize) -> Result<bool, Error> {
        let limits = (lag_limit, self.options.store_patience);
        self.proxy.run(&self.log, &self.timestamps, &self.data, limits)
    }

    /// What the thread of the proxy does when there may be something to apply.
    ///
    /// # Errors
    /// The data component failed, now or before. The log is stopped.
    pub fn run_proxy_as_asked(&self) -> Result<(), Error> {
        let (asked, is_all) = self.proxy.begin_run();
        match is_all {
            true => self.run_proxy_within(0)?,
            false => self.run_proxy()?,
        };
        self.proxy.end_run(asked);
        Ok(())
    }

    /// Has applied what may be applied; with `is_all` whatever the horizon, until it is enough.
    /// Where there is a thread of the proxy, that applies, and this waits.
    ///
    /// # Errors
    /// The log has stopped. [`Error::Stalled`].
    fn apply(&self, is_all: bool, is_enough: impl Fn() -> bool) -> Result<(), Error> {
        if !self.options.log.stepped {
            let patience = self.options.store_patience;
            return self.proxy.ask(&self.log, is_all, patience, is_enough);
        }
        match is_all {
            true => self.run_proxy_within(0).map(drop),
            false => self.run_proxy().map(drop),
        }
    }
}
