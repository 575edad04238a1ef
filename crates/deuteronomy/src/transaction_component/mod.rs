//! The transaction component: all transaction processing.

mod buckets;
mod claims;
mod collecting;
mod commit;
pub(crate) mod continuations;
pub(crate) mod counts;
mod fetches;
mod groups;
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
use counts::Counts;
use fetches::Fetches;
use hyades_platform::sync::Padded;
use hyades_wal::{Log, Lsn};
use ranges::Ranges;
use room::Room;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
use timestamp::Timestamps;
use transaction_table::TransactionTable;
use version_table::VersionTable;

/// The timestamps, for each session, between two looks for the oldest active timestamp.
const TIMESTAMPS_PER_LOOK: u64 = 4;
/// The workers of a part of the index of keys: the parts of an index for more workers are locked
/// apart.
const WORKERS_PER_PART: usize = 4;
/// The parts of the index where a single thread does all work: the threads of the machine must not
/// change a simulation.
const STEPPED_PARTS: usize = 3;
/// Notes of scans may take the budget divided by this number.
const NOTES_SHARE: usize = 8;

/// The shared state of the sessions, the proxy and checkpoints.
pub(crate) struct TransactionComponent {
    pub log: Log,
    pub timestamps: Timestamps,
    pub transactions: TransactionTable,
    pub versions: VersionTable,
    pub fetches: Fetches,
    pub readers: Readers,
    /// Apart from the fields read by all transactions: each commit writes to the proxy.
    pub proxy: Padded<Proxy>,
    pub room: Room,
    pub counts: Counts,
    /// The number of open long snapshots.
    pub open_snapshots: Arc<AtomicUsize>,
    /// The bytes waiting for the data component, and no longer in the version table.
    held: HeldBytes,
    pub data: Arc<dyn DataComponent>,
    /// The limits of the data component.
    pub limits: Limits,
    pub options: Options,
    /// The start of redo in each stream of the incarnation.
    pub resume_at: Mutex<Vec<Lsn>>,
    pub checkpoints: Checkpoints,
    /// The number of deleted keys passed over by scans at the data component since the last
    /// checkpoint. Relaxed: the count orders nothing.
    pub passed: AtomicU64,
    /// The oldest active timestamp at which a sweep of the whole table has found next to nothing to
    /// drop. Relaxed: a session sweeps in vain once more after a miss of the value.
    pinned_at: AtomicU64,
    /// The nanoseconds spent by transactions on making room. Relaxed: the sum orders nothing.
    pub collecting_ns: AtomicU64,
}

impl TransactionComponent {
    pub fn new(log: Log, first_ts: u64, data: Arc<dyn DataComponent>, options: Options) -> Self {
        let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
        let (per_look, parts) = match options.log.stepped {
            true => (0, STEPPED_PARTS),
            false => (TIMESTAMPS_PER_LOOK, workers.div_ceil(WORKERS_PER_PART)),
        };
        let note_bytes = options.memory_bytes / NOTES_SHARE;
        let ranges = options.ranges.then(|| Ranges::new(note_bytes, parts));
        let mut starts = vec![0; log.streams()];
        log.frontier().load_into(&mut starts);
        let held = HeldBytes::default();
        let hasher = match options.log.stepped {
            true => KeyHasher::FIXED,
            false => KeyHasher::random(),
        };
        Self {
            timestamps: Timestamps::new(first_ts, options.sessions, per_look),
            transactions: TransactionTable::new(options.transactions, starts.len()),
            versions: VersionTable::new(ranges, held.clone(), hasher),
            fetches: Fetches::new(),
            readers: Readers::default(),
            proxy: Padded(Proxy::new(&log, &options, held.clone(), first_ts)),
            room: Room::new(),
            counts: Counts::new(options.sessions),
            open_snapshots: Arc::default(),
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

    /// Applies all applicable records, on the calling thread; returns whether anything was.
    ///
    /// # Errors
    /// The data component failed, now or before. The log is stopped. [`Error::Stalled`].
    pub fn run_proxy(&self) -> Result<bool, Error> {
        // Waiting records are in memory, too.
        self.run_proxy_within(self.options.lag_bytes.min(self.options.memory_bytes / 2))
    }

    /// The same; records younger than an active transaction wait only up to `lag_limit` bytes.
    fn run_proxy_within(&self, lag_limit: usize) -> Result<bool, Error> {
        let limits = (lag_limit, self.options.store_patience);
        self.proxy.run(&self.log, &self.timestamps, &self.data, limits)
    }

    /// Runs the proxy on its thread, when there may be something to apply.
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

    /// Has all applicable records applied; with `is_all` whatever the horizon, until `is_enough`.
    /// If there is a thread of the proxy, the proxy's thread applies, and the caller waits.
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
