//! Where the log lives: directories and files, behind two small traits.
//!
//! The traits exist because there are real choices ([`FileDevice`], [`MemoryDevice`]) and because
//! the promises of a log are about what a device does at its worst ([`PowerCutDevice`],
//! [`FaultyDevice`], and [`SimulatedDisk`], which does all of that and more in memory). For
//! experiments there are devices that behave as others would ([`ThrottledDevice`], [`NvmDevice`]),
//! sets of devices ([`StripedDevice`]), and one that finds the device by the directory
//! ([`MountedDevice`]); all of these stand on others and can be combined.

mod cold;
mod faulty;
mod file;
mod memory;
mod mounted;
mod nvm;
mod power_cut;
mod schedule;
mod simulated;
mod striped;
mod throttled;
mod uncached;
mod whole;
mod workers;

pub use cold::drop_cached;
pub use faulty::{Fault, FaultyDevice};
pub use file::FileDevice;
pub use memory::MemoryDevice;
pub use mounted::MountedDevice;
pub use nvm::{Nvm, NvmDevice};
pub use power_cut::{PowerCutDevice, PowerCutOptions};
pub use schedule::Throttle;
pub use simulated::{Rot, SimulatedDevice, SimulatedDisk, SimulatedFault};
pub use striped::StripedDevice;
pub use throttled::ThrottledDevice;

use std::fmt::Debug;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

/// A place for directories and files.
pub trait Device: Send + Sync + Debug {
    /// The kind, as a word for people.
    fn name(&self) -> &'static str;
    /// Whether what has been synced survives a loss of power.
    fn durable(&self) -> bool;
    /// Whether whoever reads waits for the device, so that several are best read at once, each by a
    /// thread of its own. Not so where the system reads ahead into memory.
    fn reads_wait(&self) -> bool {
        false
    }
    /// Creates a directory and its parents, durably; fine if it exists.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// Creates a file of `len` zero bytes, or empties an existing one. Where it matters the bytes
    /// are written, not merely promised, so that overwriting them later changes no metadata; they
    /// are not synced.
    fn create(&self, path: &Path, len: u64) -> io::Result<Arc<dyn DeviceFile>>;
    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>>;
    /// Opens an existing file for reading only: needs no right to write, and makes nothing. Writing to it fails.
    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>>;
    /// Renames a file, in place of what has that name. Durable after [`sync_dir`](Self::sync_dir).
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file. Durable after [`sync_dir`](Self::sync_dir).
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// The names in a directory, sorted.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Makes the directory's names durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Reads a whole small file.
    fn read_small(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Creates or replaces a small file's content and syncs it (its name is not synced).
    fn write_small(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Whether something has this name.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Takes the directory for this opener alone, until the lock is dropped. A lock held elsewhere,
    /// by this or another process, is an error of kind [`io::ErrorKind::WouldBlock`] that says so.
    fn lock_dir(&self, dir: &Path) -> io::Result<DirectoryLock>;
    /// Takes the directory for reading, until the lock is dropped: others may do so too, and
    /// [`lock_dir`](Self::lock_dir) fails meanwhile, as this does while that lock is held. Needs no right to write
    /// to the directory. A device without such locks takes it alone.
    fn lock_dir_shared(&self, dir: &Path) -> io::Result<DirectoryLock> {
        self.lock_dir(dir)
    }
    /// Fails if files cannot be made in this directory, which exists: it is on a read-only file system, or
    /// permission is lacking. Writes nothing. A device that knows of neither says that they can.
    fn check_writable(&self, dir: &Path) -> io::Result<()> {
        let _ = dir;
        Ok(())
    }
}

/// Hands everything that concerns names, not bytes, on to the device `self.inner`.
macro_rules! forward_names {
    () => {
        fn durable(&self) -> bool {
            self.inner.durable()
        }

        fn create_dir(&self, dir: &std::path::Path) -> std::io::Result<()> {
            self.inner.create_dir(dir)
        }

        fn rename(&self, from: &std::path::Path, to: &std::path::Path) -> std::io::Result<()> {
            self.inner.rename(from, to)
        }

        fn remove(&self, path: &std::path::Path) -> std::io::Result<()> {
            self.inner.remove(path)
        }

        fn list(&self, dir: &std::path::Path) -> std::io::Result<Vec<String>> {
            self.inner.list(dir)
        }

        fn sync_dir(&self, dir: &std::path::Path) -> std::io::Result<()> {
            self.inner.sync_dir(dir)
        }

        fn read_small(&self, path: &std::path::Path) -> std::io::Result<Vec<u8>> {
            self.inner.read_small(path)
        }

        fn exists(&self, path: &std::path::Path) -> std::io::Result<bool> {
            self.inner.exists(path)
        }

        fn lock_dir(&self, dir: &std::path::Path) -> std::io::Result<super::DirectoryLock> {
            self.inner.lock_dir(dir)
        }

        fn lock_dir_shared(&self, dir: &std::path::Path) -> std::io::Result<super::DirectoryLock> {
            self.inner.lock_dir_shared(dir)
        }

        fn check_writable(&self, dir: &std::path::Path) -> std::io::Result<()> {
            self.inner.check_writable(dir)
        }
    };
}
pub(in crate::device) use forward_names;

/// An open file of a [`Device`].
pub trait DeviceFile: Send + Sync + Debug {
    /// Writes all the slices, one after the other, at `offset`.
    fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> io::Result<()>;
    /// Reads until the buffer is full or the file ends; returns the bytes read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Makes everything written so far durable.
    fn sync_data(&self) -> io::Result<()>;
    /// Has the system drop what it caches of what was synced, so that it is read from the device. A hint: where
    /// there is no such cache nothing happens.
    fn drop_cached(&self) {}
    /// The file's length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file is empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// A directory held by one opener; released on drop, and by the system when the process ends.
#[derive(Debug)]
pub struct DirectoryLock(
    #[allow(dead_code, reason = "held for its effect")] Box<dyn Debug + Send + Sync>,
);
