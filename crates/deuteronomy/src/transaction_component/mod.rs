//! The transaction component: all that is known of transactions.

mod buckets;
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

use crate::config::Options;
use crate::data_component::{DataComponent, Limits};
use crate::error::{Abort, Error};
use crate::proxy::Proxy;
use continuations::Readers;
use fetches::Fetches;
use hyades_platform::clock;
use hyades_platform::sync::Padded;
use hyades_wal::{Log, Lsn};
use ranges::Ranges;
use room::Room;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use timestamp::Timestamps;
use transaction_table::TransactionTable;
use version_table::{Sweep, VersionTable};
use work::Work;

/// The most buckets that a transaction sweeps for each time that it asks for room in a version
/// table that is nearly full.
const SWEEP_SOFT: usize = 16;
/// How often a session asks for that before it sweeps, for all these times at once: to find the
/// oldest active transaction, the announcements of all sessions are looked at. Fewer, if that would
/// be more than the whole table.
const ASKED_AT_ONCE: u32 = 16;
/// How often a transaction sweeps the table before it is shed: what is unread, then what no active
/// transaction needs, at last what some may need.
const ROUNDS_HARD: [Sweep; 8] = {
    let mut rounds = [Sweep::Unneeded; 8];
    (rounds[0], rounds[6], rounds[7]) = (Sweep::Unread, Sweep::PastActive, Sweep::PastActive);
    rounds
};
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
    pub data: Arc<dyn DataComponent>,
    /// Those of the data component.
    pub limits: Limits,
    pub options: Options,
    /// Where redo would begin in each stream of this incarnation.
    pub resume_at: Mutex<Vec<Lsn>>,
    /// Nanoseconds that transactions have spent on making room. Relaxed: it orders nothing.
    pub collecting_ns: AtomicU64,
}

impl TransactionComponent {
    pub fn new(log: Log, first_ts: u64, data: Arc<dyn DataComponent>, options: Options) -> Self {
        let ranges = options.ranges.then(|| Ranges::new(options.memory_bytes / NOTES_SHARE));
        let mut starts = vec![0; log.streams()];
        log.frontier().load_into(&mut starts);
        Self {
            timestamps: Timestamps::new(first_ts, options.sessions),
            transactions: TransactionTable::new(options.transactions, starts.len()),
            versions: VersionTable::new(ranges),
            fetches: Fetches::new(),
            readers: Readers::default(),
            proxy: Padded(Proxy::new(&log, &options)),
            room: Room::new(),
            log,
            limits: data.limits(),
            data,
            options,
            resume_at: Mutex::new(starts),
            collecting_ns: AtomicU64::new(0),
        }
    }

    /// Keeps the version table within its budget. Called where a transaction begins, and before it
    /// puts something into the table; no latch is held.
    ///
    /// A transaction that is open for long keeps the versions above it. It does not keep others out
    /// for that: where the budget is exhausted they go, and it ends with [`Abort::SnapshotTooOld`]
    /// if it reads one of their keys. What is not durable yet is waited for. Only what is not
    /// committed can exhaust the budget beyond that: then the youngest transaction is aborted that
    /// has written (see [`room`]).
    ///
    /// # Errors
    /// [`Abort::Shed`]: this is the youngest, or it has waited for too long.
    pub fn make_room(&self, work: &mut Work) -> Result<(), Error> {
        let (bytes, budget) = (self.versions.bytes(), self.options.memory_bytes);
        if bytes <= budget / 4 * 3 {
            return Ok(());
        }
        if self.room.is_for_older(work) {
            return self.wait_for_room(work);
        }
        // However much the sessions put into the table between two sweeps, the upper limit holds:
        // close to it each one collects.
        let asked = work.ask_for_room();
        let at_once = ASKED_AT_ONCE.min((self.versions.buckets() / SWEEP_SOFT) as u32);
        if bytes <= budget / 8 * 7 && asked < at_once {
            return Ok(());
        }
        work.has_room();
        let began = clock::monotonic_ns();
        let collected = self.collect(SWEEP_SOFT * asked as usize);
        self.collecting_ns.fetch_add(clock::monotonic_ns() - began, Ordering::Relaxed);
        match collected {
            Err(Error::Aborted(Abort::Shed)) => self.wait_for_room(work),
            collected => collected,
        }
    }

    /// Drops versions, as many as it takes. Of those that need not go yet, up to some in this many
    /// buckets.
    fn collect(&self, sweep_soft: usize) -> Result<(), Error> {
        let budget = self.options.memory_bytes;
        let (soft, hard) = (budget / 4 * 3, budget / 8 * 7);
        self.versions.sweep(sweep_soft, soft, self.timestamps.oldest_active(), Sweep::Unread);
        for what in ROUNDS_HARD {
            if self.versions.bytes() <= budget {
                return Ok(());
            }
            self.sweep_all(hard, what)?;
        }
        // What is committed and not durable yet will be: that is worth a wait, as a transaction
        // that is shed would find the same when it is run again. Where one thread does all work,
        // that thread decides when the log is flushed.
        if self.versions.bytes() > budget && !self.options.log.stepped {
            self.log.flush().map_err(hyades_wal::Error::from)?;
            self.sweep_all(hard, Sweep::PastActive)?;
        }
        match self.versions.bytes() <= budget {
            true => Ok(()),
            false => Err(Abort::Shed.into()),
        }
    }

    /// Applies what may be applied, as only what the data component holds can leave the table; and
    /// sweeps the table until no more than `enough` bytes are left.
    fn sweep_all(&self, enough: usize, what: Sweep) -> Result<(), Error> {
        match what {
            Sweep::PastActive => self.run_proxy_within(0)?,
            Sweep::Unread | Sweep::Unneeded => self.run_proxy()?,
        };
        let (all, oldest_active) = (self.versions.buckets(), self.timestamps.oldest_active());
        self.versions.sweep(all, enough, oldest_active, what);
        Ok(())
    }

    /// Applies what may be applied; returns whether anything was.
    ///
    /// # Errors
    /// The data component failed, now or before. The log is stopped.
    pub fn run_proxy(&self) -> Result<bool, Error> {
        // What waits is in memory, too.
        self.run_proxy_within(self.options.lag_bytes.min(self.options.memory_bytes / 2))
    }

    /// The same; what is younger than an active transaction waits only up to this many bytes.
    fn run_proxy_within(&self, lag_limit: usize) -> Result<bool, Error> {
        self.proxy.run(&self.log, &self.timestamps, &self.data, lag_limit)
    }
}
