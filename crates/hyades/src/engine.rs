//! State shared by the transactions of a database.

pub(crate) mod active;
#[cfg(feature = "replication")]
pub(crate) mod closed_epochs;
pub(crate) mod cut;
pub(crate) mod snapshots;

use crate::error::Error;
use crate::logging::outcomes::UnstatedOutcomes;
use crate::logging::settings::EPOCH;
use crate::logging::{LoggingProtocol, Needs};
use crate::storage::Stamp;
use crate::storage::table::TableData;
use cut::Cut;
use hyades_platform::clock;
use hyades_platform::epoch::Epoch;
use hyades_wal::{Lane, Log};
use snapshots::{SnapshotState, Snapshots};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of row ids that a session reserves at a time.
const ROW_ID_BLOCK: u64 = 1024;

/// The row ids reserved by a session.
#[derive(Debug, Default)]
pub(crate) struct RowIdBlock {
    next: u64,
    end: u64,
}

/// Number of row ids in the block stated by the record of a call that was logged before its run.
const STATED_ROW_IDS: u64 = 1 << 16;

impl RowIdBlock {
    /// The ids for a call whose record states this number.
    pub fn stated(number: Option<u64>) -> RowIdBlock {
        let first = number.map_or(0, |number| number.wrapping_mul(STATED_ROW_IDS));
        RowIdBlock { next: first, end: number.map_or(0, |_| first.wrapping_add(STATED_ROW_IDS)) }
    }

    /// Whether the block never had any ids.
    pub fn is_none(&self) -> bool {
        self.end == 0
    }

    pub fn take(&mut self) -> Option<u64> {
        let id = self.next;
        (id != self.end).then(|| {
            self.next += 1;
            id
        })
    }

    /// The highest id of the block with this number.
    pub fn last_of(number: u64) -> u64 {
        number.saturating_mul(STATED_ROW_IDS).saturating_add(STATED_ROW_IDS - 1)
    }
}

/// `S`: the metadata of rows and gaps.
pub struct Engine<P: LoggingProtocol, S: Stamp = <P as LoggingProtocol>::RowStamp> {
    pub tables: Arc<Vec<TableData<S>>>,
    pub protocol: P,
    pub epoch: Arc<Epoch>,
    /// The next hidden row id that no session has reserved. Advanced by sessions, raised by
    /// recovery.
    pub row_ids: Arc<AtomicU64>,
    /// Coordinates commits with checkpoints.
    pub cut: Cut,
    /// Coordinates commits with readers of earlier states.
    pub snapshots: Snapshots,
    /// How long an epoch is while the database is busy.
    pub epoch_interval: Duration,
    /// Updates are installed and logged as whole rows instead of changed columns.
    pub whole_rows: bool,
    /// Outcomes of calls that were logged before their run, until records state the outcomes.
    pub outcomes: UnstatedOutcomes,
    /// Whether a table has a sum index.
    pub has_sums: bool,
    /// Source of the seeds of transactions.
    seed: AtomicU64,
}

impl<P: LoggingProtocol, S: Stamp> Engine<P, S> {
    pub fn new(
        tables: Arc<Vec<TableData<S>>>,
        protocol: P,
        epoch: Arc<Epoch>,
        row_ids: Arc<AtomicU64>,
    ) -> Self {
        let seed = AtomicU64::new(hyades_platform::random::Random::from_entropy().next_u64());
        let has_sums = tables.iter().any(|table| table.sums.is_some());
        Engine {
            has_sums,
            tables,
            protocol,
            epoch,
            row_ids,
            cut: Cut::default(),
            snapshots: Snapshots::default(),
            epoch_interval: EPOCH,
            whole_rows: false,
            outcomes: UnstatedOutcomes::default(),
            seed,
        }
    }

    /// Opens a snapshot. The readers are acknowledged like a reader of all commits by now. Waits at
    /// the limit of epochs, until the limit is raised.
    ///
    /// # Errors
    /// As of the log, if the log stops meanwhile.
    pub fn open_snapshot(&self, log: Option<&Log>) -> Result<Arc<SnapshotState>, Error> {
        let stopped = || log.is_some_and(|log| log.poisoned().is_some());
        self.open_snapshot_unless(log, stopped).ok_or_else(|| {
            let poisoned = log.and_then(Log::poisoned);
            poisoned.expect("the wait for an epoch ended for a reason").into()
        })
    }

    /// As [`Engine::open_snapshot`], for a caller that does without a snapshot at the limit of
    /// epochs.
    pub fn try_open_snapshot(&self, log: Option<&Log>) -> Option<Arc<SnapshotState>> {
        self.open_snapshot_unless(log, || true)
    }

    fn open_snapshot_unless(
        &self,
        log: Option<&Log>,
        stopped: impl Fn() -> bool,
    ) -> Option<Arc<SnapshotState>> {
        self.snapshots.open((&self.epoch, self.cut.active()), stopped, || {
            let mut needs = Needs::default();
            if let Some(log) = log {
                let streams = 0..log.streams();
                streams.for_each(|at| needs.push((Lane::position(at), log.next_lsn(at))));
                needs.push((log.frontier().common_lane(), log.highest_number()));
            }
            needs
        })
    }

    pub fn next_row_id(&self, block: &mut RowIdBlock) -> u64 {
        if block.next == block.end {
            // Relaxed: the ids only have to differ.
            block.next = self.row_ids.fetch_add(ROW_ID_BLOCK, Ordering::Relaxed);
            block.end = block.next + ROW_ID_BLOCK;
        }
        block.next += 1;
        block.next - 1
    }

    /// The number of a block of row ids for the record of a call that has not run.
    pub fn next_stated_row_ids(&self) -> u64 {
        let block = |next: u64| next.next_multiple_of(STATED_ROW_IDS);
        let reserved = |next: u64| Some(block(next) + STATED_ROW_IDS);
        // Relaxed: the ids only have to differ.
        let before = self.row_ids.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserved);
        block(before.expect("there are always more")) / STATED_ROW_IDS
    }

    /// Ends an epoch that is too old, before a transaction draws its timestamp. `was_idle`: the
    /// stream of the session had no backlog.
    #[inline(always)]
    pub fn end_old_epoch(&self, was_idle: bool) {
        // Under a low load no other thread advances the epoch, and a database can be restored only
        // to the end of an epoch.
        if was_idle {
            self.epoch.advance_if_older_than(self.epoch_interval);
        }
    }

    pub fn wall_clock_us(&self) -> i64 {
        clock::wall_us() as i64
    }

    pub fn fresh_seed(&self) -> u64 {
        // Relaxed: the seeds only have to differ.
        self.seed.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed)
    }
}
