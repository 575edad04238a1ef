//! State that the transactions of a database share.

pub(crate) mod active;
pub(crate) mod cut;
pub(crate) mod partitions;
pub(crate) mod snapshots;
pub(crate) mod turns;

use crate::logging::settings::EPOCH;
use crate::logging::{LoggingProtocol, Needs};
use crate::storage::table::TableData;
use cut::Cut;
use hyades_platform::clock;
use hyades_platform::epoch::Epoch;
use hyades_wal::{Lane, Log};
use partitions::PartitionStamps;
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

pub(crate) struct Engine<P: LoggingProtocol> {
    pub tables: Arc<Vec<TableData<P::RowStamp>>>,
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
    /// Transactions read a snapshot and need not be serializable.
    pub snapshot_isolation: bool,
    /// Commands are replayed on several versions of rows, as of the timestamps that they read.
    pub replays_versions: bool,
    /// Commands are replayed on one version of each row, in the order of their records.
    pub orders_commands: bool,
    /// The partitions, where the transactions of each run one after the other.
    pub partitions: PartitionStamps<P::RowStamp>,
    /// How often two-phase locking looks again for a lock before it aborts.
    pub patience: u32,
    /// Source of the seeds of transactions.
    seed: AtomicU64,
}

impl<P: LoggingProtocol> Engine<P> {
    pub fn new(
        tables: Arc<Vec<TableData<P::RowStamp>>>,
        protocol: P,
        epoch: Arc<Epoch>,
        row_ids: Arc<AtomicU64>,
    ) -> Self {
        let seed = AtomicU64::new(hyades_platform::random::Random::from_entropy().next_u64());
        Engine {
            tables,
            protocol,
            epoch,
            row_ids,
            cut: Cut::default(),
            snapshots: Snapshots::default(),
            epoch_interval: EPOCH,
            whole_rows: false,
            snapshot_isolation: false,
            replays_versions: false,
            orders_commands: false,
            partitions: PartitionStamps::new(0, true),
            patience: 0,
            seed,
        }
    }

    /// Opens a snapshot. Its readers are acknowledged like a reader of all that was committed by
    /// now.
    pub fn open_snapshot(&self, log: Option<&Log>) -> Arc<SnapshotState> {
        self.snapshots.open(&self.epoch, self.cut.active(), || {
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

    pub fn wall_clock_us(&self) -> i64 {
        clock::wall_us() as i64
    }

    pub fn fresh_seed(&self) -> u64 {
        // Relaxed: the seeds only have to differ.
        self.seed.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed)
    }
}
