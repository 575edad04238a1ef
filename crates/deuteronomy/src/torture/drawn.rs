//! The properties drawn from the seed of a tortured database: keys, lengths of values, options, and
//! failures of the disk.

use super::keys::LifeKeys;
use crate::{Options, ReaderRecords, UpdateLogging};
use hyades_platform::device::{SimulatedDevice, SimulatedFault};
use hyades_wal::LogOptions;
use std::path::PathBuf;
use std::sync::Arc;

/// Fewer than the entries of the transaction table, so the entries are used again and again.
pub(super) const SESSIONS: usize = 15;
/// The entries of the transaction table: as few as there may be.
const ENTRIES: usize = 16;
/// The most streams: a transaction's dependencies in streams above the sixth stand elsewhere.
pub(super) const MOST_STREAMS: usize = 9;
/// The bytes of values of several pages, and of values of many pages.
pub(super) const PAGES: usize = 5_000;
const MANY_PAGES: usize = 40_000;

/// The longest values that occur at times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LongestValues {
    /// A few hundred bytes.
    Short,
    Pages,
    ManyPages,
}

/// The common properties of all lives of a database.
pub(super) struct DrawnLives {
    pub keys: LifeKeys,
    longest: LongestValues,
    memory_bytes: usize,
    seed: u64,
    streams: usize,
    most_streams: usize,
    /// Whether each life has another number of streams.
    changes_streams: bool,
}

impl DrawnLives {
    /// Mostly small sizes: conflicts, evictions and full buffers are then frequent.
    pub fn draw(seed: u64, rng: &mut fastrand::Rng) -> Self {
        let keys = LifeKeys::draw(rng);
        let longest = match rng.u8(0..48) {
            0 => LongestValues::ManyPages,
            1..7 => LongestValues::Pages,
            _ => LongestValues::Short,
        };
        let budgets = match longest {
            LongestValues::Short => [4 << 10, 4 << 10, 4 << 10, 16 << 10],
            LongestValues::Pages => [16 << 10, 16 << 10, 64 << 10, 1 << 20],
            LongestValues::ManyPages => [128 << 10, 128 << 10, 512 << 10, 4 << 20],
        };
        let most_streams = if rng.u8(0..6) == 0 { MOST_STREAMS } else { 3 };
        Self {
            keys,
            longest,
            memory_bytes: budgets[rng.usize(0..budgets.len())],
            seed,
            streams: rng.usize(1..=most_streams),
            most_streams,
            changes_streams: rng.u8(0..3) == 0,
        }
    }

    /// Whether the lives take long snapshots. In some histories: each makes the log durable, and so
    /// leaves less for a crash to take back.
    pub fn takes_long_snapshots(&self) -> bool {
        self.seed.is_multiple_of(3)
    }

    /// The number of streams of the next life.
    pub fn draw_streams(&mut self, rng: &mut fastrand::Rng) -> usize {
        if self.changes_streams {
            self.streams = rng.usize(1..=self.most_streams);
        }
        self.streams
    }

    /// The length of a value: 0, or at least the length of its number.
    pub fn draw_value(&self, rng: &mut fastrand::Rng) -> usize {
        match (rng.u8(0..32), self.longest) {
            (0, _) => 0,
            (1..4, LongestValues::Pages) => PAGES,
            (1, LongestValues::ManyPages) => MANY_PAGES,
            (2..4, LongestValues::ManyPages) => PAGES,
            _ => 8 + rng.usize(0..300),
        }
    }

    /// The options of a life.
    pub fn options(&self, device: SimulatedDevice, streams: usize, lag_bytes: usize) -> Options {
        let mut log = LogOptions::new(vec![PathBuf::from("/log")], streams);
        (log.buffer_bytes, log.segment_bytes) = match self.longest {
            LongestValues::Short => (1 << 14, 1 << 16),
            LongestValues::Pages => (1 << 15, 1 << 17),
            LongestValues::ManyPages => (1 << 18, 1 << 20),
        };
        log.block_bytes = 1024;
        log.anchor_interval_bytes = 2048;
        log.max_writers = 2 * SESSIONS;
        log.device = Arc::new(device);
        log.stepped = true;
        let mut options = Options::new(log);
        options.memory_bytes = self.memory_bytes;
        options.sessions = SESSIONS;
        options.transactions = ENTRIES;
        options.lag_bytes = lag_bytes;
        self.log_as(&mut options);
        options
    }

    /// Sets the logging of the lives: in a single record or in parts, at once or with buffers
    /// possibly too small for transactions; the logging readers; and the number of pieces of
    /// batches.
    fn log_as(&self, options: &mut Options) {
        let threads = 1 + self.seed as usize % 3;
        options.proxy_threads = threads..=threads;
        match self.seed % 4 {
            1 => options.update_logging = UpdateLogging::AtOnce,
            2 => options.log.buffer_bytes /= 4,
            _ => {}
        }
        options.reader_records = match self.seed % 7 {
            3 => ReaderRecords::IfNeeded,
            5 => ReaderRecords::Always,
            _ => ReaderRecords::Never,
        };
    }
}

/// Whether the log's device of the next life may fail.
pub(super) fn arm(device: &SimulatedDevice, rng: &mut fastrand::Rng) -> bool {
    let after = rng.u64(0..120);
    let for_ever = rng.bool();
    let fault = match rng.u8(0..13) {
        0..3 => SimulatedFault::Stop(after),
        // In the opening.
        10..13 => SimulatedFault::Stop(after / 20),
        3 => SimulatedFault::Sync { after: after / 2, for_ever },
        4 => SimulatedFault::Write(after),
        5 => SimulatedFault::Full(rng.u64(0..400_000)),
        6 => SimulatedFault::Short,
        _ => return false,
    };
    device.arm(fault);
    // A short transfer has to be continued.
    fault != SimulatedFault::Short
}
