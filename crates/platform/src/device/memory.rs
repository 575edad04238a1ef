//! Shared memory: files in a memory file system. The files survive the process, not the machine.

use super::file::PlainFile;
use super::{Device, DeviceFile, DirectoryLock, FileDevice};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

/// Files without syncs, meant for directories under [`MemoryDevice::ROOT`]. A log on the device
/// survives the end of the process, not a loss of power: `durable()` is false.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryDevice;

impl MemoryDevice {
    /// The directory of Linux's shared memory.
    pub const ROOT: &'static str = "/dev/shm";

    /// The device, shared.
    pub fn shared() -> Arc<dyn Device> {
        Arc::new(Self)
    }
}

impl Device for MemoryDevice {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn durable(&self) -> bool {
        false
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        std::fs::create_dir_all(dir)
    }

    fn create(&self, path: &Path, len: u64) -> io::Result<Arc<dyn DeviceFile>> {
        // A hole is as good as zeros here: there is no journal, and pages are allocated on the
        // first write.
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(path)?;
        file.set_len(len)?;
        Ok(Arc::new(PlainFile::new(file, false)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Arc::new(PlainFile::new(file, false)))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(Arc::new(PlainFile::new(File::open(path)?, false)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        FileDevice.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        FileDevice.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        FileDevice.list(dir)
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn read_small(&self, path: &Path) -> io::Result<Vec<u8>> {
        FileDevice.read_small(path)
    }

    fn write_small(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        File::create(path)?.write_all(bytes)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        FileDevice.exists(path)
    }

    fn lock_dir(&self, dir: &Path) -> io::Result<DirectoryLock> {
        FileDevice.lock_dir(dir)
    }

    fn lock_dir_shared(&self, dir: &Path) -> io::Result<DirectoryLock> {
        FileDevice.lock_dir_shared(dir)
    }

    fn check_writable(&self, dir: &Path) -> io::Result<()> {
        FileDevice.check_writable(dir)
    }
}
