//! State that the transactions of a database share.

pub(crate) mod cut;

use crate::logging::LoggingProtocol;
use crate::logging::settings::EPOCH;
use crate::storage::table::TableData;
use cut::Cut;
use hyades_platform::clock;
use hyades_platform::epoch::Epoch;
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
    /// How long an epoch is while the database is busy.
    pub epoch_interval: Duration,
    /// Updates are installed and logged as whole rows instead of changed columns.
    pub whole_rows: bool,
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
            epoch_interval: EPOCH,
            whole_rows: false,
            seed,
        }
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
