//! Storage for the log: directories and files, behind two small traits.
//!
//! The traits exist because there are real choices ([`FileDevice`], [`MemoryDevice`]) and because
//! the guarantees of a log are about the worst behaviour of a device ([`PowerCutDevice`],
//! [`FaultyDevice`], and [`SimulatedDisk`], with all of these faults and more in memory). For
//! experiments there are files mapped into memory ([`NvmDevice`]), devices of a given speed
//! ([`ThrottledDevice`]), sets of devices ([`StripedDevice`]), and a selection of the device by
//! directory ([`MountedDevice`]). All wrap other devices and can be combined.

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
pub use nvm::{LINE, LineFlush, Nvm, NvmDevice};
pub use power_cut::{PowerCutDevice, PowerCutOptions};
pub use schedule::Throttle;
pub use simulated::{Rot, SimulatedDevice, SimulatedDisk, SimulatedFault};
pub use striped::StripedDevice;
pub use throttled::ThrottledDevice;

use std::fmt::Debug;
use std::io::{self, ErrorKind, IoSlice};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A place for directories and files.
pub trait Device: Send + Sync + Debug {
    /// The kind of device, for display.
    fn name(&self) -> &'static str;
    /// Whether synced data survives a loss of power.
    fn durable(&self) -> bool;
    /// Whether a read blocks on the device, so several files are best read in parallel, with a
    /// thread each. False where the system reads ahead into memory.
    fn reads_wait(&self) -> bool {
        false
    }
    /// Creates a directory and its parents, durably; succeeds for an existing directory.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// Creates a file of `len` zero bytes, or replaces an existing one. Where it matters the bytes
    /// are written, not merely allocated, so later overwrites change no metadata. The bytes are not
    /// synced.
    fn create(&self, path: &Path, len: u64) -> io::Result<Arc<dyn DeviceFile>>;
    /// Like [`create`](Self::create), for a file not needed soon: writes and syncs the file in
    /// pieces and calls `pause` with the bytes of a piece before the next piece, so other users get
    /// the device meanwhile. Once `pause` returns false the file is needed: the rest is written
    /// at once. A device without a benefit from pieces creates the file at once.
    fn create_in_pieces(
        &self,
        path: &Path,
        len: u64,
        pause: &mut dyn FnMut(u64) -> bool,
    ) -> io::Result<Arc<dyn DeviceFile>> {
        let _ = pause;
        self.create(path, len)
    }
    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>>;
    /// Opens an existing file for reading only. Needs no write permission; writes to the file fail.
    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>>;
    /// Renames a file and replaces an existing `to`. Durable after [`sync_dir`](Self::sync_dir).
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file. Durable after [`sync_dir`](Self::sync_dir).
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Returns the names in a directory, sorted.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Makes the directory's names durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Reads a whole small file.
    fn read_small(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Creates or replaces a small file and syncs the content, but not the name.
    fn write_small(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Whether a file or directory has the name `path`.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Locks the directory exclusively until the lock is dropped. If locked elsewhere, by the
    /// current or another process, fails with [`io::ErrorKind::WouldBlock`] and a message about the
    /// lock.
    fn lock_dir(&self, dir: &Path) -> io::Result<DirectoryLock>;
    /// Locks the directory for reading until the lock is dropped. Further readers may hold the lock
    /// too; the shared lock and [`lock_dir`](Self::lock_dir) exclude each other. Needs no write
    /// permission. A device without shared locks locks exclusively.
    fn lock_dir_shared(&self, dir: &Path) -> io::Result<DirectoryLock> {
        self.lock_dir(dir)
    }
    /// Fails if files cannot be created in the existing directory `dir`: the file system is
    /// read-only, or permission is lacking. Writes nothing. The default returns `Ok`.
    fn check_writable(&self, dir: &Path) -> io::Result<()> {
        let _ = dir;
        Ok(())
    }
}

/// Forwards `durable`, `read_small` and every operation on names to the device `self.inner`.
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

        fn lock_dir(
            &self,
            dir: &std::path::Path,
        ) -> std::io::Result<$crate::device::DirectoryLock> {
            self.inner.lock_dir(dir)
        }

        fn lock_dir_shared(
            &self,
            dir: &std::path::Path,
        ) -> std::io::Result<$crate::device::DirectoryLock> {
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
    /// Writes all the slices, in order, at `offset`.
    fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> io::Result<()>;
    /// Reads until the buffer is full or the file ends; returns the bytes read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Makes everything written so far durable.
    fn sync_data(&self) -> io::Result<()>;
    /// Asks the system to drop its cached pages of synced data, so that later reads come from the
    /// device. A hint: does nothing without a cache.
    fn drop_cached(&self) {}
    /// The file's length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file is empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// The file's bytes as memory, for an [`NvmDevice`].
    ///
    /// # Errors
    /// Files of this device cannot be mapped, or there is no space for the file's holes.
    fn map(&self) -> io::Result<Box<dyn FileMemory>> {
        Err(io::Error::new(ErrorKind::Unsupported, "files of this device cannot be mapped"))
    }
}

/// The bytes of a mapped file, as many as the file has at the time of mapping. Reads of the file
/// see a store at once. The memory has a line of the store after a flush of the line and a fence;
/// until then the memory may have the line or not.
pub trait FileMemory: Send + Debug {
    /// How many bytes are mapped.
    fn length(&self) -> u64;
    /// Whether the memory survives a loss of power, as far as the device does.
    fn persists(&self) -> bool;
    /// Copies bytes to `offset`.
    ///
    /// # Panics
    /// The bytes end beyond the mapping.
    fn store(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Begins to write back the cache lines with any of these bytes.
    ///
    /// # Panics
    /// The bytes end beyond the mapping.
    fn flush(&mut self, bytes: Range<u64>) -> io::Result<()>;
    /// Waits until the flushed lines are in the memory.
    fn fence(&mut self) -> io::Result<()>;
}

/// An opener's lock on a directory; released on drop, and by the system when the process ends.
#[derive(Debug)]
pub struct DirectoryLock(
    #[allow(dead_code, reason = "held for its effect")] Box<dyn Debug + Send + Sync>,
);
