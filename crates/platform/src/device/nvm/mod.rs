//! Files in non-volatile memory: a write stores into the mapped file and flushes the cache lines.

mod lines;
#[cfg(target_os = "linux")]
pub(super) mod mapping;
#[cfg(test)]
mod tests;

pub use lines::{LINE, LineFlush};

use super::{Device, DeviceFile, FileMemory, forward_names};
use crate::clock;
use crate::mutation::broken;
use crate::sync::locked;
use std::io::{self, ErrorKind, IoSlice};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// How slow non-volatile memory is, relative to the ordinary memory of the machine. The times of
/// the latter are [measured](Nvm::measured), or stated where a history is to be repeated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nvm {
    /// The latency relative to ordinary memory; 2 in the experiments of Poplar (section 6).
    pub factor: f64,
    /// Time of ordinary memory for a flushed line and its fence, in nanoseconds.
    pub first_ns: f64,
    /// The same for each further line flushed before the fence.
    pub line_ns: f64,
}

impl Nvm {
    /// The latency in nanoseconds that `lines` lines have beyond ordinary memory's.
    pub fn extra_ns(&self, lines: u64) -> u64 {
        let further = lines.saturating_sub(1) as f64 * self.line_ns;
        let first = if lines > 0 { self.first_ns } else { 0.0 };
        ((self.factor - 1.0).max(0.0) * (first + further)).round() as u64
    }
}

/// Maps the files of another device. A write within the file's length at its opening stores into
/// the mapping, flushes the touched lines, and ends with a fence: the write is durable on return,
/// enters no system call, and needs no sync. A write beyond that length goes to the device below,
/// and is durable after a sync, because the file's length changes.
///
/// After a write the thread spins for the time by which the memory is slower than the machine's.
/// Reads go to the device below and take the same extra time. The device below sees the stores, and
/// reports an error where a read of a mapping would end the process.
///
/// On a file system that maps neither memory nor its medium (no DAX), a sync goes to the device
/// below, and writes the pages with stores.
#[derive(Clone, Debug)]
pub struct NvmDevice {
    inner: Arc<dyn Device>,
    nvm: Nvm,
}

impl NvmDevice {
    /// Keeps the files of `inner` in memory with the latency of `nvm`.
    pub fn new(inner: Arc<dyn Device>, nvm: Nvm) -> Self {
        NvmDevice { inner, nvm }
    }

    fn open_as(&self, inner: Arc<dyn DeviceFile>, maps: bool) -> io::Result<Arc<dyn DeviceFile>> {
        let memory = if maps { Some(inner.map()?) } else { None };
        let persists = memory.as_ref().is_some_and(|memory| memory.persists());
        let (memory, is_behind) = (memory.map(Mutex::new), AtomicBool::new(true));
        Ok(Arc::new(NvmFile { inner, nvm: self.nvm, persists, memory, is_behind }))
    }

    /// Removes the name of a file about to be replaced. The bytes stay where the file is mapped;
    /// a store to the mapping of an emptied file would end the process.
    fn unlink(&self, path: &Path) -> io::Result<()> {
        match self.inner.exists(path)? {
            true => self.inner.remove(path),
            false => Ok(()),
        }
    }
}

#[derive(Debug)]
struct NvmFile {
    inner: Arc<dyn DeviceFile>,
    nvm: Nvm,
    /// Whether flushed lines survive a loss of power.
    persists: bool,
    /// None for a file that is only read. The mutex keeps the stores of two threads apart; a file
    /// of the log is written by one thread at a time.
    memory: Option<Mutex<Box<dyn FileMemory>>>,
    /// Whether the device below may have something to sync: a new file, writes of an earlier
    /// process, writes beyond the mapping. Set by such a write before its return (SeqCst), read and
    /// cleared by syncs (SeqCst), so a sync begun after the write finds the flag set.
    is_behind: AtomicBool,
}

impl NvmFile {
    /// Stores the slices if they lie within the mapping, and returns when the memory has them;
    /// false otherwise.
    fn store(&self, slices: &[IoSlice<'_>], offset: u64, end: u64) -> io::Result<bool> {
        let Some(mut memory) = self.memory.as_ref().map(locked) else { return Ok(false) };
        if end > memory.length() {
            return Ok(false);
        }
        let mut at = offset;
        for slice in slices {
            memory.store(at, slice)?;
            at += slice.len() as u64;
        }
        let left = if broken!(LeaveLastLine) { LINE.min(end - offset) } else { 0 };
        memory.flush(offset..end - left)?;
        memory.fence()?;
        Ok(true)
    }

    /// Spins for the extra time of the lines with any of `bytes` bytes at `offset`.
    fn spin_extra(&self, offset: u64, bytes: u64) {
        if bytes > 0 {
            let lines = (offset + bytes).div_ceil(LINE) - offset / LINE;
            clock::spin_until(clock::monotonic_ns() + self.nvm.extra_ns(lines));
        }
    }
}

impl DeviceFile for NvmFile {
    fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let bytes = slices.iter().map(|slice| slice.len() as u64).sum();
        if bytes == 0 {
            return Ok(());
        }
        let end = offset.checked_add(bytes).ok_or(ErrorKind::InvalidInput)?;
        if !self.store(slices, offset, end)? {
            let written = self.inner.write_at(slices, offset);
            self.is_behind.store(true, Ordering::SeqCst);
            written?;
        }
        self.spin_extra(offset, bytes);
        Ok(())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let n = self.inner.read_at(buffer, offset)?;
        self.spin_extra(offset, n as u64);
        Ok(n)
    }

    fn sync_data(&self) -> io::Result<()> {
        if !self.persists {
            return self.inner.sync_data();
        }
        if self.is_behind.swap(false, Ordering::SeqCst) {
            // After a failure the next sync tries again.
            self.inner.sync_data().inspect_err(|_| self.is_behind.store(true, Ordering::SeqCst))?;
        }
        Ok(())
    }

    fn drop_cached(&self) {
        self.inner.drop_cached();
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
}

impl Device for NvmDevice {
    fn name(&self) -> &'static str {
        "nvm"
    }

    fn create(&self, path: &Path, len: u64) -> io::Result<Arc<dyn DeviceFile>> {
        self.unlink(path)?;
        self.open_as(self.inner.create(path, len)?, true)
    }

    fn create_in_pieces(
        &self,
        path: &Path,
        len: u64,
        pause: &mut dyn FnMut(u64) -> bool,
    ) -> io::Result<Arc<dyn DeviceFile>> {
        self.unlink(path)?;
        self.open_as(self.inner.create_in_pieces(path, len, pause)?, true)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>> {
        self.open_as(self.inner.open(path)?, true)
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>> {
        self.open_as(self.inner.open_read(path)?, false)
    }

    fn write_small(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.inner.write_small(path, bytes)
    }

    forward_names!();
}
