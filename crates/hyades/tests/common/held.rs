//! A device that can hold the syncs or the writes of some files, refuse some names and fail a read.

use hyades_platform::device::{Device, DeviceFile, DirectoryLock};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Wraps a device. Syncs of files below a held directory, and writes to a file whose writes are
/// held, wait until the release.
#[derive(Clone, Debug)]
pub struct HeldDevice {
    inner: Arc<dyn Device>,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    /// Names of directories.
    held: Mutex<Vec<String>>,
    /// Names of files whose writes wait, all but the write of their first bytes.
    held_writes: Mutex<Vec<String>>,
    /// The number of writes that wait.
    waiting: Mutex<usize>,
    changed: Condvar,
    /// Refused names of files.
    refused: Mutex<Vec<String>>,
    /// A name of a file, and the number of reads until one fails.
    failing_read: Mutex<Option<(String, usize)>>,
}

impl Gate {
    fn pass(&self, path: &Path) {
        let is_held = |held: &mut Vec<String>| {
            held.iter().any(|name| path.components().any(|c| c.as_os_str() == name.as_str()))
        };
        let held = self.held.lock().unwrap();
        drop(self.changed.wait_while(held, is_held).unwrap());
    }

    fn check_read(&self, path: &Path) -> io::Result<()> {
        let mut failing = self.failing_read.lock().unwrap();
        match failing.as_mut() {
            Some((name, left)) if path.file_name().is_some_and(|n| n == name.as_str()) => {
                if *left == 0 {
                    *failing = None;
                    return Err(io::Error::other("a read that fails once"));
                }
                *left -= 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn pass_write(&self, path: &Path, offset: u64) {
        let is_held = |held: &mut Vec<String>| {
            offset > 0
                && held.iter().any(|name| path.file_name().is_some_and(|n| n == name.as_str()))
        };
        let mut held = self.held_writes.lock().unwrap();
        if is_held(&mut held) {
            *self.waiting.lock().unwrap() += 1;
            drop(self.changed.wait_while(held, is_held).unwrap());
            *self.waiting.lock().unwrap() -= 1;
        }
    }
}

impl HeldDevice {
    pub fn new(inner: Arc<dyn Device>) -> Self {
        HeldDevice { inner, gate: Arc::default() }
    }

    /// Blocks every sync of a file below a directory of this name until `release`, or until the
    /// returned guard is dropped, so that a failing test does not hang.
    pub fn hold(&self, name: &str) -> Held<'_> {
        self.gate.held.lock().unwrap().push(name.to_string());
        Held(self)
    }

    /// Blocks every write to a file of this name, except at its start, until `release`, or until
    /// the returned guard is dropped.
    #[allow(dead_code, reason = "each test file uses its part")]
    pub fn hold_writes(&self, name: &str) -> Held<'_> {
        self.gate.held_writes.lock().unwrap().push(name.to_string());
        Held(self)
    }

    /// Waits until a write is blocked, or until `over`. Returns whether a write is blocked.
    #[allow(dead_code, reason = "each test file uses its part")]
    pub fn wait_for_held_write(&self, over: impl Fn() -> bool) -> bool {
        loop {
            if *self.gate.waiting.lock().unwrap() > 0 {
                return true;
            }
            if over() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Makes every rename of a file to this name fail, and every creation.
    #[allow(dead_code, reason = "each test file uses its part")]
    pub fn refuse(&self, name: &str) {
        self.gate.refused.lock().unwrap().push(name.to_string());
    }

    /// Makes all names possible again.
    #[allow(dead_code, reason = "each test file uses its part")]
    pub fn accept(&self) {
        self.gate.refused.lock().unwrap().clear();
    }

    /// Makes one read of a file of this name fail, after `before` more reads.
    #[allow(dead_code, reason = "each test file uses its part")]
    pub fn fail_read(&self, name: &str, before: usize) {
        *self.gate.failing_read.lock().unwrap() = Some((name.to_string(), before));
    }

    /// Whether the read of `fail_read` has failed.
    #[allow(dead_code, reason = "each test file uses its part")]
    pub fn has_failed(&self) -> bool {
        self.gate.failing_read.lock().unwrap().is_none()
    }

    fn check_name(&self, path: &Path) -> io::Result<()> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        if name.is_some_and(|name| self.gate.refused.lock().unwrap().contains(&name)) {
            return Err(io::Error::other("refused"));
        }
        Ok(())
    }

    /// Releases all directories, and all files whose writes are held.
    pub fn release(&self) {
        self.gate.held.lock().unwrap().clear();
        self.gate.held_writes.lock().unwrap().clear();
        self.gate.changed.notify_all();
    }

    /// Releases the directories of this name.
    #[allow(dead_code, reason = "each test file uses its part")]
    pub fn release_one(&self, name: &str) {
        self.gate.held.lock().unwrap().retain(|held| held != name);
        self.gate.changed.notify_all();
    }

    fn wrap(&self, path: &Path, inner: Arc<dyn DeviceFile>) -> Arc<dyn DeviceFile> {
        Arc::new(HeldFile { inner, path: path.to_owned(), gate: self.gate.clone() })
    }
}

/// Releases the device when dropped.
pub struct Held<'d>(&'d HeldDevice);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

#[derive(Debug)]
struct HeldFile {
    inner: Arc<dyn DeviceFile>,
    path: PathBuf,
    gate: Arc<Gate>,
}

impl DeviceFile for HeldFile {
    fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.gate.pass_write(&self.path, offset);
        self.inner.write_at(slices, offset)
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.gate.check_read(&self.path)?;
        self.inner.read_at(buffer, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.gate.pass(&self.path);
        self.inner.sync_data()
    }
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
}

impl Device for HeldDevice {
    fn name(&self) -> &'static str {
        "held"
    }
    fn durable(&self) -> bool {
        self.inner.durable()
    }
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.create_dir(dir)
    }
    fn create(&self, path: &Path, len: u64) -> io::Result<Arc<dyn DeviceFile>> {
        self.check_name(path)?;
        Ok(self.wrap(path, self.inner.create(path, len)?))
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(self.wrap(path, self.inner.open(path)?))
    }
    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(self.wrap(path, self.inner.open_read(path)?))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check_name(to)?;
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
        self.check_name(path)?;
        self.inner.write_small(path, bytes)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }
    fn lock_dir(&self, dir: &Path) -> io::Result<DirectoryLock> {
        self.inner.lock_dir(dir)
    }
}
