//! Backups of a running database: the log, and the data as of a moment.

use crate::copying::{check_is_empty, copy_operations};
use crate::data_component::{DataComponent, ScanOrder};
use crate::database::Database;
use crate::error::Error;
use hyades_platform::device::FileDevice;
use hyades_platform::event;
use hyades_wal::Unfinished;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The counts of [`Database::backup`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backup {
    /// The timestamp of the data: the data copied have all transactions up to the timestamp, and
    /// the log copied has the later transactions. A restore goes back to the timestamp at most.
    pub timestamp: u64,
    /// The keys with values copied.
    pub keys: u64,
    /// The bytes of keys and values copied.
    pub data_bytes: u64,
    /// The bytes of files of the log copied.
    pub log_bytes: u64,
    /// The duration, reading the copies back included.
    pub duration: Duration,
}

impl Database {
    /// Backs up the running database: copies the log to the new directory `dir`, and all data to
    /// the empty data component `data`, of whatever kind. Both are read back and checked, and open
    /// together as a database with every transaction acknowledged before the call.
    ///
    /// Transactions go on. Checkpoints wait while the log is copied: the log has at most a few
    /// times [`redo_bytes`](crate::Options::redo_bytes). The data are read from a [long
    /// snapshot](Self::long_snapshot). An interrupted backup does not open.
    ///
    /// ```
    /// # #[cfg(feature = "redb")] {
    /// use hyades_deuteronomy::{Database, LogOptions, Options, RedbData};
    /// use std::sync::Arc;
    ///
    /// # let temporary = tempfile::tempdir()?;
    /// # let dir = temporary.path();
    /// let open = |log: &str, data: &str| {
    ///     let data = RedbData::open(&dir.join(data), 1 << 20)?;
    ///     Database::open(Options::new(LogOptions::new(vec![dir.join(log)], 2)), Arc::new(data))
    /// };
    /// let database = open("log", "data.redb")?;
    /// database.session()?.execute(|tx| tx.put(b"a", b"1"))?;
    /// let copy = RedbData::open(&dir.join("copy.redb"), 1 << 20)?;
    /// let backup = database.backup(dir.join("copy"), &copy)?;
    /// assert_eq!(backup.keys, 1);
    /// drop(copy);
    /// // Later, perhaps on another machine.
    /// let restored = open("copy", "copy.redb")?;
    /// let value = restored.session()?.execute(|tx| tx.get(b"a"))?;
    /// assert_eq!(value.as_deref(), Some(&b"1"[..]));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `dir` or `data` is not empty; [`Error::NoSnapshots`]; the errors of a long snapshot; a copy
    /// could not be made, or differs. The database is not affected.
    pub fn backup(&self, dir: impl AsRef<Path>, data: &dyn DataComponent) -> Result<Backup, Error> {
        let (began, component) = (Instant::now(), self.component());
        check_is_empty(data)?;
        let device = component.log.device();
        // A log in memory is copied to files, since a backup must survive the process.
        let device = if device.durable() { Arc::clone(device) } else { FileDevice::shared() };
        let to = Unfinished::begin(device, dir.as_ref())?;
        let (snapshot, point, copied) = {
            // From the resume point on, the log is not truncated before it is copied.
            let _no_checkpoint = component.hold_checkpoints()?;
            let (snapshot, point) = component.cut()?;
            (snapshot, point, component.log.backup(&to)?)
        };
        let from = snapshot.data();
        let rows = copy_operations(|all, each| from.scan(all, ScanOrder::Ascending, each), data)?;
        // Last: a part of the data without a resume point opens with no log.
        data.checkpoint(&point)?;
        to.finish()?;
        event!(INFO, "backup taken", keys = rows.keys, log_bytes = copied.bytes);
        Ok(Backup {
            timestamp: snapshot.timestamp(),
            keys: rows.keys,
            data_bytes: rows.bytes,
            log_bytes: copied.bytes,
            duration: began.elapsed(),
        })
    }
}
