//! What can be set about the log.

use hyades_platform::device::Device;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Epochs are this long while the database is busy, unless it is told otherwise.
pub(crate) const EPOCH: Duration = Duration::from_millis(10);

/// Everything that can be set about the log.
#[derive(Clone)]
pub struct LogSettings {
    /// Directories of the streams, used in turn. The first also holds the manifest.
    pub dirs: Vec<PathBuf>,
    /// How many log streams, 1 to 64.
    pub streams: usize,
    /// What the directories are on; ordinary files if not set.
    pub device: Option<Arc<dyn Device>>,
    /// The buffer of each stream in bytes, a power of two from 4 KiB to 1 GiB.
    pub buffer_bytes: usize,
    /// The largest segment file in bytes: a multiple of 4,096, from 64 KiB to 1 TiB.
    pub segment_bytes: u64,
    /// Waits this long between flushes. If not set, flushes as soon as a transaction waits; while none
    /// does, a busy stream at most every 500 us, or every 2 ms once that is 1 KiB or more. At most
    /// an hour.
    pub flush_interval: Option<Duration>,
    /// Flushes at once when a buffer holds this much, whatever the interval.
    pub flush_fill_bytes: Option<usize>,
    /// A vector anchor after this many bytes of the log. Few anchors make records longer, by what
    /// rows touched since the last one depend on; many make replay wait, for a record comes after
    /// all that its anchor covers. 1 byte to 1 TiB.
    pub anchor_interval_bytes: u64,
    /// The paper's delta (section 4.1): rows keep their own vectors until these lie this many bytes
    /// below what is durable, in every stream, on average: one that stands still holds nothing up.
    /// At most 1 TiB.
    pub delta_bytes: u64,
    /// Under Taurus, of either year: at most about so many bytes of memory are for the vectors of
    /// rows that were touched lately. Well before that the vectors of rows are dropped at once
    /// when they are durable, whatever `anchor_interval_bytes` and `delta_bytes` say. Where a
    /// stream stands still and that does not help, rows share one vector, and transactions that
    /// touch these wait for one another's streams.
    pub hot_rows_bytes: u64,
    /// How long an epoch is while the database is busy; the protocol's own choice if not set.
    /// Epochs are cuts for checkpoints, and where a protocol acknowledges by epochs it takes about
    /// as long. 100 us to an hour.
    pub epoch: Option<Duration>,
    /// Under physiological logging: before-images are logged, and recovery undoes what was lost
    /// half-way. Without them it keeps the changes of a transaction aside until it has seen that it
    /// committed.
    pub undo: bool,
    /// Data records hold the whole rows that a transaction updated, as the papers' do, instead of
    /// the columns that it changed. Either kind of log is recovered whatever is set here.
    pub whole_rows: bool,
    /// The log has no threads: see `hyades_wal::LogOptions::stepped`. For simulation.
    #[doc(hidden)]
    pub stepped: bool,
}

impl Default for LogSettings {
    fn default() -> Self {
        LogSettings {
            dirs: Vec::new(),
            streams: 4,
            device: None,
            buffer_bytes: 8 << 20,
            segment_bytes: 64 << 20,
            flush_interval: None,
            flush_fill_bytes: None,
            anchor_interval_bytes: 128 << 10,
            delta_bytes: 0,
            hot_rows_bytes: 512 << 20,
            epoch: None,
            undo: true,
            whole_rows: false,
            stepped: false,
        }
    }
}
