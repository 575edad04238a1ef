//! The files of a base as a list: read in pieces, while the log or mirror that has the files goes
//! on.
//!
//! **Invariant.** While a list is there, no file of the list is removed or reused: a truncation
//! keeps what it would release ([`Pins`]), and the end of the last list removes the files. A file
//! that is left by a crash is a leftover, which the next opening removes.

use crate::copy_plan::{CopiedFrom, PlannedFile};
use crate::error::Error;
use hyades_platform::device::Device;
use hyades_platform::sync::locked;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The lists of a log or mirror, and what is to be removed after them.
#[derive(Debug, Default)]
pub(crate) struct Pins(Arc<Mutex<Pinned>>);

#[derive(Debug, Default)]
struct Pinned {
    lists: usize,
    gone: Vec<PathBuf>,
}

impl Pins {
    /// A pin on the files that are there now.
    pub(crate) fn pin(&self, device: &Arc<dyn Device>) -> Pin {
        locked(&self.0).lists += 1;
        Pin { pinned: Arc::clone(&self.0), device: Arc::clone(device) }
    }

    /// Whether files have to stay.
    pub(crate) fn is_pinned(&self) -> bool {
        locked(&self.0).lists > 0
    }

    /// Has a file removed with the last pin, or at once.
    pub(crate) fn remove(&self, device: &dyn Device, path: PathBuf) {
        let mut pinned = locked(&self.0);
        match pinned.lists {
            0 => _ = device.remove(&path),
            _ => pinned.gone.push(path),
        }
    }
}

/// Keeps files.
#[derive(Debug)]
pub(crate) struct Pin {
    pinned: Arc<Mutex<Pinned>>,
    device: Arc<dyn Device>,
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut pinned = locked(&self.pinned);
        pinned.lists -= 1;
        if pinned.lists == 0 {
            for path in std::mem::take(&mut pinned.gone) {
                // A file that stays is a leftover.
                let _ = self.device.remove(&path);
            }
        }
    }
}

/// The files of a base. Dropped, the list lets the files go.
#[derive(Debug)]
pub struct BaseFiles {
    files: Vec<PlannedFile>,
    pin: Pin,
}

impl BaseFiles {
    pub(crate) fn new(files: Vec<PlannedFile>, pin: Pin) -> BaseFiles {
        BaseFiles { files, pin }
    }

    /// The names below the directory of a base, and the lengths: in this order a base is written.
    pub fn list(&self) -> Vec<(String, u64)> {
        self.files.iter().map(|file| (file.name.clone(), file.length)).collect()
    }

    /// Reads the bytes of a file from `from` on, as many as the file has, and at most `most`. Empty
    /// behind the end.
    ///
    /// # Errors
    /// [`Error::Invalid`]: there is no such file. Also if the file could not be read.
    pub fn read(&self, file: usize, from: u64, most: usize) -> Result<Vec<u8>, Error> {
        let Some(file) = self.files.get(file) else {
            return Err(Error::Invalid(format!("a base of {} files", self.files.len())));
        };
        let n = file.length.saturating_sub(from).min(most as u64) as usize;
        match &file.content {
            CopiedFrom::Bytes(bytes) => {
                let from = from.min(file.length) as usize;
                Ok(bytes[from..from + n].to_vec())
            }
            CopiedFrom::File(path) => self.read_file(path, from, n),
        }
    }

    fn read_file(&self, path: &Path, from: u64, n: usize) -> Result<Vec<u8>, Error> {
        let file = self.pin.device.open_read(path).map_err(Error::io(path, "open"))?;
        let mut bytes = vec![0; n];
        let read = file.read_at(&mut bytes, from).map_err(Error::io(path, "read"))?;
        if read < n {
            let what = "it ends here, and a base has more of it".to_owned();
            return Err(Error::corrupt(path, from + read as u64, what));
        }
        Ok(bytes)
    }
}
