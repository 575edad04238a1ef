//! The target directory of a database copy: refused until finished (`docs/format.md`, section 11).

use crate::error::Error;
use crate::open::{Leniency, Recovering, open_as};
use crate::options::LogOptions;
use hyades_platform::device::Device;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const UNFINISHED: &str = "UNFINISHED";
const TEXT: &str = "A backup or a recovered database that is not finished.\n\
                    If no process is writing it now, remove this directory and make it again.\n";

/// A directory that cannot be opened as a database yet. The directory stays unfinished if the value
/// is dropped.
#[derive(Debug)]
pub struct Unfinished {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) dir: PathBuf,
}

/// Refuses a directory with the file `UNFINISHED`.
pub(crate) fn refuse(device: &dyn Device, dir: &Path) -> Result<(), Error> {
    let path = dir.join(UNFINISHED);
    if !device.exists(&path).map_err(Error::io(&path, "look for"))? {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "{} is a backup or a recovered database that was not finished ({} is there): remove the \
         directory and make it again",
        dir.display(),
        path.display()
    )))
}

impl Unfinished {
    /// Claims an empty or absent directory, and durably marks the directory as unfinished.
    ///
    /// # Errors
    /// The directory is not empty, or could not be written to.
    pub fn begin(device: Arc<dyn Device>, dir: &Path) -> Result<Self, Error> {
        device.create_dir(dir).map_err(Error::io(dir, "create the directory"))?;
        refuse(&*device, dir)?;
        let names = device.list(dir).map_err(Error::io(dir, "list"))?;
        if !names.is_empty() {
            return Err(Error::Invalid(format!(
                "{} is not empty: give a directory that is empty, or does not exist yet",
                dir.display()
            )));
        }
        let path = dir.join(UNFINISHED);
        device.write_small(&path, TEXT.as_bytes()).map_err(Error::io(&path, "write"))?;
        device.sync_dir(dir).map_err(Error::io(dir, "sync the directory"))?;
        Ok(Unfinished { device, dir: dir.to_owned() })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Opens the copy made so far. Replaces the options' directories and device.
    ///
    /// # Errors
    /// As [`open`](crate::open).
    pub fn open(&self, mut options: LogOptions) -> Result<Recovering, Error> {
        options.dirs = vec![self.dir.clone()];
        options.device = Arc::clone(&self.device);
        open_as(options, Leniency { unfinished: true, ..Leniency::default() })
    }

    /// Writes a text file for users beside the database; durable once the copy is finished.
    ///
    /// # Errors
    /// The file could not be written.
    pub fn leave_note(&self, name: &str, text: &str) -> Result<(), Error> {
        let path = self.dir.join(name);
        self.device.write_small(&path, text.as_bytes()).map_err(Error::io(&path, "write"))
    }

    /// Abandons the copy: removes the mark if the directory holds nothing else. If the mark stays,
    /// the directory is refused.
    pub fn abandon(self) {
        let names = self.device.list(&self.dir).unwrap_or_default();
        if names.iter().all(|name| name == UNFINISHED) {
            let _ = self.device.remove(&self.dir.join(UNFINISHED));
            let _ = self.device.sync_dir(&self.dir);
        }
    }

    /// Finishes the copy, which must be whole and durable: removes the mark durably.
    ///
    /// # Errors
    /// The directory could not be synced, or the mark not be removed.
    pub fn finish(self) -> Result<(), Error> {
        let (device, dir) = (&*self.device, &self.dir);
        let path = dir.join(UNFINISHED);
        device.sync_dir(dir).map_err(Error::io(dir, "sync the directory"))?;
        device.remove(&path).map_err(Error::io(&path, "remove"))?;
        device.sync_dir(dir).map_err(Error::io(dir, "sync the directory"))
    }
}
