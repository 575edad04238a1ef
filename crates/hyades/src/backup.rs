//! Backups of a running or a closed database.

use crate::error::Error;
use crate::inspect;
use crate::origin;
use hyades_platform::device::{Device, FileDevice};
use hyades_platform::{clock, event};
use hyades_wal::{Copied, Log, LogOptions, Unfinished};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Result of [`crate::Database::backup`] or of [`backup`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct BackupReport {
    /// Number of files copied.
    pub files: u64,
    /// Total size of the files, in bytes.
    pub bytes: u64,
    /// Duration in seconds, reading the copy back included.
    pub seconds: f64,
}

/// Backs up a running database; see [`crate::Database::backup`].
pub(crate) fn running(log: &Log, dir: &Path) -> Result<BackupReport, Error> {
    let device = log.device();
    // A log in memory is backed up to files, since a backup must survive the process.
    let device = if device.durable() { Arc::clone(device) } else { FileDevice::shared() };
    make(device, dir, |to| Ok(log.backup(to)?))
}

/// Copies a database that is not open, whether it was closed or crashed, to the new directory
/// `dir`. `dirs` are all directories of the database; none of them is changed. The copy is read
/// back and checked, and holds everything recovered by opening the original.
///
/// # Errors
/// The database is in use, damaged or absent, or another crate's; `dir` is not empty; a file cannot
/// be copied. An incomplete copy cannot be opened.
pub fn backup(dirs: &[PathBuf], dir: impl AsRef<Path>) -> Result<BackupReport, Error> {
    closed(FileDevice::shared(), dirs, dir.as_ref())
}

pub(crate) fn closed(
    device: Arc<dyn Device>,
    dirs: &[PathBuf],
    dir: &Path,
) -> Result<BackupReport, Error> {
    let mut options = LogOptions::new(dirs.to_vec(), 1);
    options.device = Arc::clone(&device);
    let from = hyades_wal::open_read(options)?;
    if from.is_fresh() {
        return Err(Error::Misuse(
            "the directories hold no database: give those that it has".into(),
        ));
    }
    origin::check(from.manifest())?;
    let mut ends = Vec::new();
    for mut reader in from.readers() {
        while reader.next_chunk()?.is_some() {}
        ends.push(reader.end());
    }
    let verdict = from.verdict(&ends)?;
    make(device, dir, |to| Ok(from.backup(&verdict, to)?))
}

fn make(
    device: Arc<dyn Device>,
    dir: &Path,
    copy: impl FnOnce(&Unfinished) -> Result<Copied, Error>,
) -> Result<BackupReport, Error> {
    let began = clock::monotonic_ns();
    let to = Unfinished::begin(device, dir)?;
    let copied = copy(&to)?;
    // The log has already read back its part of the copy.
    inspect::verify_checkpoint(&to.open(LogOptions::new(Vec::new(), 1))?)?;
    to.finish()?;
    let seconds = (clock::monotonic_ns() - began) as f64 / 1e9;
    let Copied { files, bytes, .. } = copied;
    event!(INFO, "backup taken", files = files, bytes = bytes, seconds = seconds);
    Ok(BackupReport { files, bytes, seconds })
}
