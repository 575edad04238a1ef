//! How a database on object storage behaves.

use slatedb::Settings;
use std::path::PathBuf;
use std::time::Duration;

/// The bytes of a memory table that is written as an object.
const TABLE_BYTES: usize = 16 << 20;
/// The bytes of memory tables, full and not written yet, at which writes wait.
const UNWRITTEN_BYTES: usize = 64 << 20;
/// The tables not compacted yet at which writes wait.
const MOST_TABLES: usize = 32;
/// How often SlateDB looks for tables to compact.
const COMPACTION_POLL: Duration = Duration::from_secs(1);

/// How a [`SlateData`](crate::SlateData) behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SlateOptions {
    /// The bytes kept in memory: half for blocks, half for indexes and filters, which take about
    /// a fortieth of the data with values of 100 bytes. Default: 64 MiB.
    pub cache_bytes: usize,
    /// How long a read or the opening waits for the object storage, which is tried again and again
    /// meanwhile, before an error. The transaction fails then, and the database goes on. Default:
    /// 30 s.
    pub read_patience: Duration,
    /// The same for writes and checkpoints, whose errors stop the database. While they wait,
    /// transactions go on until the budget of memory is used up. Default: an hour.
    pub patience: Duration,
    /// SlateDB's own settings. The data component sets `wal_enabled`, `flush_interval` and
    /// `default_ttl_millis`, and raises `manifest_update_timeout` to `patience`. Defaults that
    /// differ from SlateDB's: memory tables of 16 MiB, and writes that wait at 64 MiB not written
    /// yet, which are beside `cache_bytes`; and writes that wait at 32 tables not compacted yet,
    /// with a look for tables to compact each second, since each checkpoint makes a table.
    pub settings: Settings,
}

/// Settings with a pause between two looks for tables to compact.
fn compacting_each(pause: Duration, mut settings: Settings) -> Settings {
    if let Some(compactor) = &mut settings.compactor_options {
        compactor.poll_interval = pause;
        compactor.commit_compacted_interval = compactor.commit_compacted_interval.min(pause);
        if let Some(worker) = &mut compactor.worker {
            worker.compactions_poll_interval = pause;
        }
    }
    settings
}

impl Default for SlateOptions {
    fn default() -> Self {
        let settings = Settings {
            l0_sst_size_bytes: TABLE_BYTES,
            max_unflushed_bytes: UNWRITTEN_BYTES,
            l0_max_ssts: MOST_TABLES,
            l0_max_ssts_per_key: MOST_TABLES,
            ..Settings::default()
        };
        let settings = compacting_each(COMPACTION_POLL, settings);
        Self {
            cache_bytes: 64 << 20,
            read_patience: Duration::from_secs(30),
            patience: Duration::from_secs(3600),
            settings,
        }
    }
}

impl SlateOptions {
    /// Sets [`cache_bytes`](Self::cache_bytes).
    #[must_use]
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// Sets [`read_patience`](Self::read_patience).
    #[must_use]
    pub fn read_patience(mut self, patience: Duration) -> Self {
        self.read_patience = patience;
        self
    }

    /// Sets [`patience`](Self::patience).
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Keeps pieces of objects that were read in files below `dir`, up to `bytes`: a read of the
    /// disk instead of a round trip.
    #[must_use]
    pub fn disk_cache(mut self, dir: PathBuf, bytes: usize) -> Self {
        self.settings.object_store_cache_options.root_folder = Some(dir);
        self.settings.object_store_cache_options.max_cache_size_bytes = Some(bytes);
        self
    }

    /// Sets how often SlateDB looks for tables to compact. Default: each second.
    #[must_use]
    pub fn compaction_poll(mut self, pause: Duration) -> Self {
        self.settings = compacting_each(pause, self.settings);
        self
    }

    /// The settings of SlateDB under this crate's rules.
    pub(crate) fn checked_settings(&self) -> Settings {
        let mut settings = self.settings.clone();
        // The log of the transaction component has every operation.
        settings.wal_enabled = false;
        settings.flush_interval = None;
        settings.default_ttl_millis = None;
        settings.manifest_update_timeout = settings.manifest_update_timeout.max(self.patience);
        settings
    }
}
