//! The directories of a command's log: given, or temporary.

use crate::failure::Failure;
use crate::words;
use hyades_platform::device::{Device, FileDevice, MemoryDevice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

words! {
    /// The kind of storage below the log.
    DeviceKind("device") {
        /// Files, with fsync.
        File = "file",
        /// Shared memory; not durable.
        Memory = "memory",
    }
}

impl DeviceKind {
    /// Opens the device.
    pub fn open(self) -> Arc<dyn Device> {
        match self {
            DeviceKind::File => FileDevice::shared(),
            DeviceKind::Memory => MemoryDevice::shared(),
        }
    }
}

/// Directories for a log. A drop removes temporary directories.
pub struct Place {
    /// The directories.
    pub dirs: Vec<PathBuf>,
    /// Removes the directories when dropped.
    temporary: Option<TempDir>,
}

impl Place {
    /// The given directories, which must be empty or absent; `devices` temporary directories if
    /// none is given.
    ///
    /// # Errors
    /// A directory is not empty, or a temporary directory could not be created.
    pub fn new(given: &[PathBuf], device: DeviceKind, devices: usize) -> Result<Place, Failure> {
        if given.is_empty() {
            let root = match device {
                DeviceKind::File => std::env::temp_dir(),
                DeviceKind::Memory => PathBuf::from(MemoryDevice::ROOT),
            };
            let mut place = Place::temporary(&root)?;
            let first = place.dirs[0].clone();
            let name = |n: usize| first.with_file_name(format!("log{n}"));
            place.dirs.extend((1..devices).map(name));
            return Ok(place);
        }
        for dir in given {
            if !is_empty(dir)? {
                return Err(Failure::Usage(format!(
                    "{} is not empty: give a --log-dir that is empty or does not exist",
                    dir.display()
                )));
            }
        }
        Ok(Place { dirs: given.to_vec(), temporary: None })
    }

    /// A temporary directory under `root`.
    ///
    /// # Errors
    /// The directory could not be created.
    pub fn temporary(root: &Path) -> Result<Place, Failure> {
        let made = tempfile::Builder::new().prefix("hyades-").tempdir_in(root);
        let what = format!("cannot create a temporary directory in {}", root.display());
        let temporary = made.map_err(Failure::doing(what))?;
        Ok(Place { dirs: vec![temporary.path().join("log")], temporary: Some(temporary) })
    }

    /// Whether the log is removed at the end.
    pub fn is_temporary(&self) -> bool {
        self.temporary.is_some()
    }
}

fn is_empty(dir: &Path) -> Result<bool, Failure> {
    match std::fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(Failure::Usage(format!(
            "{} cannot be used as a log directory ({error}): give one that can be written to",
            dir.display()
        ))),
    }
}

/// The total size in bytes of all files below a directory.
pub fn size_of(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => size_of(&entry.path()),
            _ => entry.metadata().map_or(0, |m| m.len()),
        })
        .sum()
}
