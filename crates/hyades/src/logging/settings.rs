//! Settings of the log.

use hyades_platform::device::Device;
#[cfg(feature = "replication")]
use hyades_platform::epoch::EpochNumber;
#[cfg(feature = "replication")]
use hyades_wal::Remote;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The default length of an epoch while the database is busy.
pub(crate) const EPOCH: Duration = Duration::from_millis(10);

/// The settings of the log.
///
/// ```
/// let builder = hyades::Database::builder().log_settings(|log| log.buffer_bytes = 1 << 20);
/// # drop(builder);
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct LogSettings {
    /// Directories of the streams, used in turn. [`Builder::open`](crate::Builder::open) puts its
    /// own directory before them; the first directory holds the manifest as well.
    pub dirs: Vec<PathBuf>,
    /// The number of log streams, 1 to 64. Default: 4.
    pub streams: usize,
    /// If set, the number of streams of a new database is chosen by measurement, from
    /// `probe_streams` to `streams`: as many files are written and synced concurrently, then twice
    /// as many and so on, for 0.2 s each. The database gets the fewest streams with 4,000 syncs per
    /// second or 80 % of the best rate, and keeps their number, except that with `streams` 1 there
    /// is always a single stream. Default: not set.
    pub probe_streams: Option<usize>,
    /// The device of the directories; files of the operating system if not set (the default).
    pub device: Option<Arc<dyn Device>>,
    /// The buffer of each stream in bytes, a power of two from 4 KiB to 1 GiB. Default: 8 MiB.
    pub buffer_bytes: usize,
    /// The largest segment file in bytes: a multiple of 4,096, from 64 KiB to 1 TiB. Segments of a
    /// stream begin with 4 MiB and double up to the limit. Default: 64 MiB.
    pub segment_bytes: u64,
    /// The time between flushes, at most an hour. If not set (the default), a stream is flushed as
    /// soon as a transaction waits for the stream; without a waiting transaction, a busy stream at
    /// most every 500 us, or every 2 ms once a batch is 1 KiB or more.
    pub flush_interval: Option<Duration>,
    /// Under `taurus` and `taurus-2016`: about the most bytes of memory for the vectors of recently
    /// used rows. Well before the limit, vectors are dropped as soon as they are durable. Where a
    /// stalled stream prevents the drop, rows share a vector, and transactions that touch these
    /// rows wait for each other's streams. From 1 byte to 1 TiB. Default: 512 MiB.
    pub hot_rows_bytes: u64,
    /// The length of an epoch while the database is busy, 100 us to an hour. If not set (the
    /// default), 10 ms, or 40 ms where the protocol acknowledges by epochs: an acknowledgement then
    /// takes about an epoch. Epochs are cuts for checkpoints.
    pub epoch: Option<Duration>,
    /// A directory of its own, best on another device, for the parts of the log that checkpoints
    /// make superfluous: with an archive, a backup can be restored to any later moment
    /// ([`Restore::continued`](crate::Restore::continued)). The archive grows as the log does until
    /// [`prune_archive`](crate::wal::prune_archive). While the archive cannot be written,
    /// checkpoints fail and the log grows. Not for replicated logs. Default: none.
    pub archive: Option<PathBuf>,
    /// A replicated log, see [`Builder::remote`](crate::Builder::remote).
    #[cfg(feature = "replication")]
    pub(crate) remote: Option<Arc<dyn Remote>>,
    /// The limit of epochs, see [`Builder::epoch_limit`](crate::Builder::epoch_limit).
    #[cfg(feature = "replication")]
    pub(crate) epoch_limit: Option<EpochNumber>,
    /// Settings for experiments (feature `research`).
    #[cfg(feature = "research")]
    pub research: ResearchSettings,
    #[cfg(not(feature = "research"))]
    pub(crate) research: ResearchSettings,
}

impl Default for LogSettings {
    fn default() -> Self {
        LogSettings {
            dirs: Vec::new(),
            streams: 4,
            probe_streams: None,
            device: None,
            buffer_bytes: 8 << 20,
            segment_bytes: 64 << 20,
            flush_interval: None,
            hot_rows_bytes: 512 << 20,
            epoch: None,
            archive: None,
            #[cfg(feature = "replication")]
            remote: None,
            #[cfg(feature = "replication")]
            epoch_limit: None,
            research: ResearchSettings::default(),
        }
    }
}

/// Settings of the log for experiments only; public with the feature `research`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ResearchSettings {
    /// With a flush interval: flushes early once a buffer holds this many bytes.
    pub flush_fill_bytes: Option<usize>,
    /// With a flush interval: flushes early once this many records are collected, parts of records
    /// and frames of rows included (group commit by count).
    pub flush_fill_count: Option<u64>,
    /// Each session keeps to a single stream, so that the sessions are spread evenly, like the
    /// papers' workers; otherwise a session moves on to the stream in which a record would be
    /// durable first. The sessions of a slow or stuck device wait.
    pub fixed_streams: bool,
    /// Each session writes and syncs its own records at commit, after the release of its locks, as
    /// the workers of NVM-D do; otherwise each stream has a thread for writing and syncing.
    /// Sessions keep to their streams. With as many streams as sessions each session has its own
    /// file. Wakers of tickets then run on the threads of sessions, and must not commit anything
    /// themselves.
    pub flushed_by_sessions: bool,
    /// The unit of writing in bytes: a power of two, 64 to 65,536, at most a sixteenth of a
    /// segment. Less than a device's block is for memory alone.
    pub block_bytes: usize,
    /// The bytes of log from one vector anchor to the next, 1 byte to 1 TiB. Few anchors make
    /// records longer, by the dependencies of rows touched since the last anchor. Many anchors make
    /// replay wait, as a record is replayed after everything covered by its anchor.
    pub anchor_interval_bytes: u64,
    /// The paper's delta (section 4.1): rows keep their own vectors until the vectors are this many
    /// bytes below the durable positions, averaged over all streams, so that a stalled stream holds
    /// nothing up. At most 1 TiB. Well before [`LogSettings::hot_rows_bytes`] are used, vectors are
    /// dropped whatever the delta.
    pub delta_bytes: u64,
    /// Under physiological logging: before-images are logged, and recovery undoes incomplete
    /// transactions. Without before-images recovery buffers the changes of a transaction until the
    /// commit has been read.
    pub undo: bool,
    /// Under physiological logging: of the changes of a transaction only this many bytes are
    /// written, at least 1, to measure the cost of the bytes of a log. The log cannot be recovered,
    /// and is refused when opened again.
    pub cut_changes: Option<usize>,
    /// Data records hold the whole updated rows of a transaction, as in the papers, instead of the
    /// changed columns. Both kinds of log are recovered under either setting.
    pub whole_rows: bool,
    /// Under `taurus-2016`: records list no predecessors that they have read from; the record's
    /// vector stands for them. Both kinds of log are recovered under either setting.
    pub compresses_lists: bool,
    /// Runs the log without threads: see `hyades_wal::LogOptions::stepped`. For simulation.
    #[doc(hidden)]
    pub stepped: bool,
}

impl Default for ResearchSettings {
    fn default() -> Self {
        ResearchSettings {
            flush_fill_bytes: None,
            flush_fill_count: None,
            fixed_streams: false,
            flushed_by_sessions: false,
            block_bytes: 4096,
            anchor_interval_bytes: 128 << 10,
            delta_bytes: 0,
            undo: true,
            cut_changes: None,
            whole_rows: false,
            compresses_lists: false,
            stepped: false,
        }
    }
}
