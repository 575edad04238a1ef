//! RAID-0 over directories: each file is spread over all directories in units of a fixed length, so
//! a single stream has the bandwidth of several devices.

use super::workers::{Task, Workers};
use super::{Device, DeviceFile, DirectoryLock};
use std::io::{self, ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Spreads files over directories, each perhaps on a separate device.
///
/// Paths are paths of the first directory. The units `i`, `i + n`, `i + 2n`, ... of a file are
/// stored contiguously in the file of the same name in directory `i`. Small files are in the first
/// directory only. A name is created in the first directory last and removed from the first
/// directory first, so every listed file is complete. A renamed file is complete after a power cut,
/// too: under its new name if the first directory has the new name, whatever the other directories
/// had under the name. Parts are read, written and synced in parallel; a sync covers only the parts
/// written since the last sync.
#[derive(Clone, Debug)]
pub struct StripedDevice {
    set: Arc<Set>,
}

#[derive(Debug)]
struct Set {
    dirs: Vec<(PathBuf, Arc<dyn Device>)>,
    unit: u64,
    workers: Workers,
}

impl StripedDevice {
    /// A set of directories, each with a device; `unit` is the stripe unit in bytes.
    ///
    /// # Panics
    /// Without a directory, or with a unit of 0.
    pub fn new(dirs: Vec<(PathBuf, Arc<dyn Device>)>, unit: u64) -> Self {
        assert!(!dirs.is_empty() && unit > 0, "a striped set has directories and a unit");
        let workers = Workers::new(dirs.len());
        StripedDevice { set: Arc::new(Set { dirs, unit, workers }) }
    }

    fn first(&self) -> &dyn Device {
        &*self.set.dirs[0].1
    }

    /// Returns the path in every directory, the first directory last.
    fn parts<'a>(
        &'a self,
        path: &'a Path,
    ) -> impl Iterator<Item = (usize, &'a Arc<dyn Device>, PathBuf)> {
        let below = path.strip_prefix(&self.set.dirs[0].0).ok();
        self.set.dirs.iter().enumerate().rev().filter_map(move |(at, (dir, device))| {
            // Paths outside the first directory are not striped.
            let path = match below {
                Some(below) if below.as_os_str().is_empty() => dir.clone(),
                Some(below) => dir.join(below),
                None if at == 0 => path.to_path_buf(),
                None => return None,
            };
            Some((at, device, path))
        })
    }

    /// A file of `parts`, the first part last. `fresh` if the content is not synced yet.
    fn file(&self, mut parts: Vec<Arc<dyn DeviceFile>>, fresh: bool) -> Arc<dyn DeviceFile> {
        parts.reverse();
        let written = parts.iter().map(|_| AtomicBool::new(fresh)).collect();
        Arc::new(StripedFile { set: Arc::clone(&self.set), parts, written })
    }
}

/// How many of a file's first `len` bytes are in part `part` of `parts`.
fn share(len: u64, unit: u64, parts: u64, part: u64) -> u64 {
    let row = unit * parts;
    len / row * unit + (len % row).saturating_sub(part * unit).min(unit)
}

#[derive(Debug)]
struct StripedFile {
    set: Arc<Set>,
    parts: Vec<Arc<dyn DeviceFile>>,
    /// Whether a part has unsynced writes. Set after each write, cleared before each sync. Relaxed:
    /// a write to be covered by a sync returned before the sync began, and the caller orders the
    /// two.
    written: Vec<AtomicBool>,
}

/// A piece of a transfer stored in a single part: at `at` in the part, `range` in the transfer.
struct Run {
    part: usize,
    at: u64,
    range: std::ops::Range<usize>,
}

impl StripedFile {
    /// Splits a transfer of `len` bytes at `offset` into runs.
    fn runs(&self, offset: u64, len: usize) -> impl Iterator<Item = Run> {
        let (unit, parts) = (self.set.unit, self.parts.len() as u64);
        let mut done = 0;
        std::iter::from_fn(move || {
            let from = offset + done as u64;
            let n = ((unit - from % unit) as usize).min(len - done);
            let at = from / unit / parts * unit + from % unit;
            let run = Run { part: (from / unit % parts) as usize, at, range: done..done + n };
            done += n;
            (n > 0).then_some(run)
        })
    }

    /// Groups the runs by part, without empty parts; the runs of a part are contiguous in the part.
    fn by_part(&self, offset: u64, len: usize) -> Vec<(usize, Vec<Run>)> {
        let mut all: Vec<(usize, Vec<Run>)> =
            self.parts.iter().map(|_| Vec::new()).enumerate().collect();
        self.runs(offset, len).for_each(|run| all[run.part].1.push(run));
        all.retain(|(_, runs)| !runs.is_empty());
        all
    }
}

impl DeviceFile for StripedFile {
    fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        let tasks = self.by_part(offset, bytes.len()).into_iter().map(|(part, runs)| {
            let file = Arc::clone(&self.parts[part]);
            let own: Vec<u8> = runs.iter().flat_map(|r| &bytes[r.range.clone()]).copied().collect();
            let at = runs[0].at;
            Task::new(part, move || file.write_at(&[IoSlice::new(&own)], at))
        });
        let tasks: Vec<_> = tasks.collect();
        let parts: Vec<usize> = tasks.iter().map(|task| task.device).collect();
        let result = self.set.workers.run(tasks).into_iter().collect();
        parts.iter().for_each(|part| self.written[*part].store(true, Ordering::Relaxed));
        result
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let len = (self.len()?.saturating_sub(offset)).min(buffer.len() as u64) as usize;
        let all = self.by_part(offset, len);
        let tasks = all.iter().map(|(part, runs)| {
            let file = Arc::clone(&self.parts[*part]);
            let at = runs[0].at;
            let mut own = vec![0; runs.iter().map(|run| run.range.len()).sum()];
            // A part may be short if the power failed during its creation or a write. The missing
            // bytes read as zeros, never accepted as valid by a log reader.
            Task::new(*part, move || file.read_at(&mut own, at).map(|_| own))
        });
        let read = self.set.workers.run(tasks.collect());
        for ((_, runs), own) in all.iter().zip(read) {
            let own = own?;
            let mut rest = &own[..];
            for run in runs {
                let (head, tail) = rest.split_at(run.range.len());
                buffer[run.range.clone()].copy_from_slice(head);
                rest = tail;
            }
        }
        Ok(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let tasks = self.parts.iter().enumerate().filter_map(|(part, file)| {
            let file = Arc::clone(file);
            let written = self.written[part].swap(false, Ordering::Relaxed);
            written.then(|| Task::new(part, move || file.sync_data()))
        });
        self.set.workers.run(tasks.collect()).into_iter().collect()
    }

    fn drop_cached(&self) {
        self.parts.iter().for_each(|part| part.drop_cached());
    }

    /// The end of the last byte of any part.
    fn len(&self) -> io::Result<u64> {
        let (unit, n) = (self.set.unit, self.parts.len() as u64);
        let mut end = 0;
        for (part, file) in self.parts.iter().enumerate() {
            if let Some(last) = file.len()?.checked_sub(1) {
                end = end.max((last / unit * n + part as u64) * unit + last % unit + 1);
            }
        }
        Ok(end)
    }
}

/// A part without a durable name at the power failure; the part is empty.
#[derive(Debug)]
struct Missing;

impl DeviceFile for Missing {
    fn write_at(&self, _slices: &[IoSlice<'_>], _offset: u64) -> io::Result<()> {
        Err(io::Error::new(ErrorKind::Unsupported, "open for reading only"))
    }

    fn read_at(&self, _buffer: &mut [u8], _offset: u64) -> io::Result<usize> {
        Ok(0)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(0)
    }
}

/// Ignores `NotFound`.
fn unless_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

impl Device for StripedDevice {
    fn name(&self) -> &'static str {
        "striped"
    }

    fn durable(&self) -> bool {
        self.set.dirs.iter().all(|(_, device)| device.durable())
    }

    fn reads_wait(&self) -> bool {
        self.set.dirs.iter().any(|(_, device)| device.reads_wait())
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.parts(dir).try_for_each(|(_, device, dir)| device.create_dir(&dir))
    }

    fn create(&self, path: &Path, len: u64) -> io::Result<Arc<dyn DeviceFile>> {
        let n = self.set.dirs.len() as u64;
        let part = |(at, device, path): (usize, &Arc<dyn Device>, PathBuf)| {
            device.create(&path, share(len, self.set.unit, n, at as u64))
        };
        self.parts(path).map(part).collect::<io::Result<_>>().map(|parts| self.file(parts, true))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>> {
        // Without its first part the file does not exist.
        self.first().open(path)?;
        let part = |(_, device, path): (usize, &Arc<dyn Device>, PathBuf)| {
            // The name of the part was not durable at the power failure: the part is empty.
            if device.exists(&path)? { device.open(&path) } else { device.create(&path, 0) }
        };
        self.parts(path).map(part).collect::<io::Result<_>>().map(|parts| self.file(parts, false))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>> {
        self.first().open_read(path)?;
        let part = |(_, device, path): (usize, &Arc<dyn Device>, PathBuf)| {
            if device.exists(&path)? { device.open_read(&path) } else { Ok(Arc::new(Missing) as _) }
        };
        self.parts(path).map(part).collect::<io::Result<_>>().map(|parts| self.file(parts, false))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        for ((at, device, from), (_, _, to)) in self.parts(from).zip(self.parts(to)) {
            if at == 0 {
                device.rename(&from, &to)?;
            } else if device.exists(&from)? {
                device.rename(&from, &to)?;
                // Durable before the name in the first directory, because the first name may become
                // durable by itself: after a power cut a new first part never stands before old
                // other parts.
                device.sync_dir(to.parent().unwrap_or(&to))?;
            } else {
                // `from` is a small file, without a part here; the small file may replace a file
                // with a part here.
                unless_missing(device.remove(&to))?;
            }
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.first().remove(path)?;
        let mut others = self.parts(path).filter(|(at, ..)| *at > 0);
        others.try_for_each(|(_, device, path)| unless_missing(device.remove(&path)))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.first().list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.parts(dir).try_for_each(|(_, device, dir)| device.sync_dir(&dir))
    }

    fn read_small(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.first().read_small(path)
    }

    fn write_small(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.first().write_small(path, bytes)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.first().exists(path)
    }

    fn lock_dir(&self, dir: &Path) -> io::Result<DirectoryLock> {
        let locks = self.parts(dir).map(|(_, device, dir)| device.lock_dir(&dir));
        Ok(DirectoryLock(Box::new(locks.collect::<io::Result<Vec<_>>>()?)))
    }

    fn lock_dir_shared(&self, dir: &Path) -> io::Result<DirectoryLock> {
        let locks = self.parts(dir).map(|(_, device, dir)| device.lock_dir_shared(&dir));
        Ok(DirectoryLock(Box::new(locks.collect::<io::Result<Vec<_>>>()?)))
    }

    fn check_writable(&self, dir: &Path) -> io::Result<()> {
        self.parts(dir).try_for_each(|(_, device, dir)| device.check_writable(&dir))
    }
}

#[cfg(test)]
mod tests;
