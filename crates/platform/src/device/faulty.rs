//! A device that fails at the k-th write or sync (a dying or full disk), stores a wrong bit, or
//! panics at the k-th read (a defect in the reader).

use super::{Device, DeviceFile, DirectoryLock};
use crate::sync::Unpoisoned;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The failing operation, counted over all files of the device since the fault was armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The k-th sync from now (0 is the next) fails once with an I/O error.
    Sync(u64),
    /// The k-th write from now and all later writes fail: the device is full.
    Write(u64),
    /// The k-th read from now panics, once.
    Panic(u64),
    /// A write from now to a file with a name beginning with `files` succeeds, but a stored bit is
    /// flipped, once.
    Flip {
        /// The beginning of the file names whose writes are counted.
        files: &'static str,
        /// The number of the faulty write (0 is the next).
        write: u64,
    },
}

#[derive(Debug)]
struct FaultCounters {
    /// Operations left before the fault; `u64::MAX` is "never". Relaxed everywhere: either of two
    /// concurrent operations may fail.
    syncs: AtomicU64,
    writes: AtomicU64,
    reads: AtomicU64,
    flips: AtomicU64,
    /// The beginning of the file names whose writes `flips` counts.
    flipped_files: Mutex<&'static str>,
}

/// Wraps a device and fails on demand.
#[derive(Clone, Debug)]
pub struct FaultyDevice {
    inner: Arc<dyn Device>,
    plan: Arc<FaultCounters>,
}

impl FaultyDevice {
    /// Wraps `inner`, with no fault armed.
    pub fn new(inner: Arc<dyn Device>) -> Self {
        let never = || AtomicU64::new(u64::MAX);
        let plan = FaultCounters {
            syncs: never(),
            writes: never(),
            reads: never(),
            flips: never(),
            flipped_files: Mutex::new(""),
        };
        Self { inner, plan: Arc::new(plan) }
    }

    /// Arms a fault.
    pub fn arm(&self, fault: Fault) {
        match fault {
            Fault::Sync(k) => self.plan.syncs.store(k, Ordering::Relaxed),
            Fault::Write(k) => self.plan.writes.store(k, Ordering::Relaxed),
            Fault::Panic(k) => self.plan.reads.store(k, Ordering::Relaxed),
            Fault::Flip { files, write } => {
                *self.plan.flipped_files.lock().unpoisoned() = files;
                self.plan.flips.store(write, Ordering::Relaxed);
            }
        }
    }

    fn wrap(&self, path: &Path, file: Arc<dyn DeviceFile>) -> Arc<dyn DeviceFile> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Arc::new(FaultyFile { name, inner: file, plan: Arc::clone(&self.plan) })
    }
}

#[derive(Debug)]
struct FaultyFile {
    name: String,
    inner: Arc<dyn DeviceFile>,
    plan: Arc<FaultCounters>,
}

/// Counts an operation down; returns true if the operation fails.
fn countdown_fires(counter: &AtomicU64, sticky: bool) -> bool {
    let step = |left: u64| match left {
        u64::MAX => None,
        0 if sticky => None,
        0 => Some(u64::MAX),
        n => Some(n - 1),
    };
    match counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step) {
        Ok(before) | Err(before) => before == 0,
    }
}

impl DeviceFile for FaultyFile {
    fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        if countdown_fires(&self.plan.writes, true) {
            return Err(rustix::io::Errno::NOSPC.into());
        }
        let files = *self.plan.flipped_files.lock().unpoisoned();
        if self.name.starts_with(files) && countdown_fires(&self.plan.flips, false) {
            let mut bytes: Vec<u8> =
                slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            return self.inner.write_at(&[IoSlice::new(&bytes)], offset);
        }
        self.inner.write_at(slices, offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        assert!(!countdown_fires(&self.plan.reads, false), "a fault that was armed");
        self.inner.read_at(buffer, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        if countdown_fires(&self.plan.syncs, false) {
            return Err(rustix::io::Errno::IO.into());
        }
        self.inner.sync_data()
    }

    fn drop_cached(&self) {
        self.inner.drop_cached();
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
}

impl Device for FaultyDevice {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn durable(&self) -> bool {
        self.inner.durable()
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.create_dir(dir)
    }

    fn create(&self, path: &Path, len: u64) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(self.wrap(path, self.inner.create(path, len)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(self.wrap(path, self.inner.open(path)?))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(self.wrap(path, self.inner.open_read(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }

    fn read_small(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.inner.read_small(path)
    }

    fn write_small(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.inner.write_small(path, bytes)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn lock_dir(&self, dir: &Path) -> io::Result<DirectoryLock> {
        self.inner.lock_dir(dir)
    }

    fn lock_dir_shared(&self, dir: &Path) -> io::Result<DirectoryLock> {
        self.inner.lock_dir_shared(dir)
    }

    fn check_writable(&self, dir: &Path) -> io::Result<()> {
        self.inner.check_writable(dir)
    }
}
