//! A device that loses everything unsynced at a power cut.
//!
//! Everything written since a file's last sync is kept only in the process's memory, and so is
//! every name created, changed or removed since its directory's last sync. Killing the process, or
//! [`PowerCutDevice::cut`], therefore has the worst effect of a loss of power. Reads see the
//! unsynced state, as in the page cache. Directories themselves are created at once.

mod names;
#[cfg(test)]
mod tests;

use super::{Device, DeviceFile, DirectoryLock, FileDevice};
use crate::random::Random;
use crate::sync::locked;
use names::{DirectoryNames, HIDDEN, NameChange, not_found, split};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The unit in which unsynced bytes may reach the medium early.
const SECTOR: usize = 512;

/// Further misbehaviour of the device.
#[derive(Clone, Copy, Debug, Default)]
pub struct PowerCutOptions {
    /// The seed for the choice of sectors written early to the medium.
    pub seed: u64,
    /// The probability, for each sector written, that the sector reaches the medium before any
    /// sync, for torn writes. 0 for none.
    pub early_sectors: f64,
    /// Syncs of files return `Ok` and do nothing, for tests that a check can fail.
    pub lying_sync: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct PowerCutDevice(Arc<PowerCutState>);

#[derive(Debug)]
struct PowerCutState {
    options: PowerCutOptions,
    random: Mutex<Random>,
    /// Set once by `cut`, read by every operation. SeqCst: not on a hot path.
    off: AtomicBool,
    /// The number of changes (writes, syncs, names) that still succeed; each change decrements the
    /// number.
    changes_left: AtomicU64,
    hidden: AtomicU64,
    names: Mutex<DirectoryNames>,
}

#[derive(Debug)]
struct FileBody {
    medium: File,
    unsynced: Mutex<BTreeMap<u64, Box<[u8; SECTOR]>>>,
}

#[derive(Debug)]
struct PowerCutFile {
    state: Arc<PowerCutState>,
    body: Arc<FileBody>,
}

impl PowerCutState {
    fn alive(&self) -> io::Result<()> {
        if self.off.load(Ordering::SeqCst) {
            return Err(io::Error::other("the power is off"));
        }
        Ok(())
    }

    /// Like `alive`, for an operation that changes something.
    fn change(&self) -> io::Result<()> {
        if self.changes_left.fetch_sub(1, Ordering::SeqCst) == 0 {
            self.off.store(true, Ordering::SeqCst);
        }
        self.alive()
    }
}

impl PowerCutDevice {
    /// A device over the file system.
    pub fn new(options: PowerCutOptions) -> Self {
        Self(Arc::new(PowerCutState {
            options,
            random: Mutex::new(Random::seeded(options.seed)),
            off: AtomicBool::new(false),
            changes_left: AtomicU64::new(u64::MAX),
            hidden: AtomicU64::new(0),
            names: Mutex::new(DirectoryNames::default()),
        }))
    }

    /// Cuts the power: unsynced data is lost, and every later operation fails. A new device over
    /// the same directories sees the rest.
    pub fn cut(&self) {
        self.0.off.store(true, Ordering::SeqCst);
        let names = locked(&self.0.names);
        for body in names.files.values() {
            locked(&body.unsynced).clear();
        }
    }

    /// Cuts the power after `changes` more writes, syncs and changes of names have succeeded.
    pub fn cut_after(&self, changes: u64) {
        self.0.changes_left.store(changes, Ordering::SeqCst);
    }

    fn file(
        &self,
        names: &mut DirectoryNames,
        physical: PathBuf,
    ) -> io::Result<Arc<dyn DeviceFile>> {
        // Synced and closed files need no open descriptor.
        names
            .files
            .retain(|_, body| Arc::strong_count(body) > 1 || !locked(&body.unsynced).is_empty());
        let body = match names.files.get(&physical) {
            Some(body) => Arc::clone(body),
            None => {
                let medium = OpenOptions::new().read(true).write(true).open(&physical)?;
                let body = Arc::new(FileBody { medium, unsynced: Mutex::default() });
                names.files.insert(physical, Arc::clone(&body));
                body
            }
        };
        Ok(Arc::new(PowerCutFile { state: Arc::clone(&self.0), body }))
    }
}

impl PowerCutFile {
    /// Returns the sector as seen by reads.
    fn sector(&self, unsynced: &BTreeMap<u64, Box<[u8; SECTOR]>>, index: u64) -> Sector {
        if let Some(bytes) = unsynced.get(&index) {
            return Ok(bytes.clone());
        }
        let mut bytes = Box::new([0; SECTOR]);
        let mut done = 0;
        while done < SECTOR {
            let offset = index * SECTOR as u64 + done as u64;
            match self.body.medium.read_at(&mut bytes[done..], offset)? {
                0 => break,
                n => done += n,
            }
        }
        Ok(bytes)
    }
}

type Sector = io::Result<Box<[u8; SECTOR]>>;

impl DeviceFile for PowerCutFile {
    fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.state.change()?;
        let mut unsynced = locked(&self.body.unsynced);
        let mut position = offset;
        for slice in slices {
            let mut rest: &[u8] = slice;
            while !rest.is_empty() {
                let (index, within) = (position / SECTOR as u64, position as usize % SECTOR);
                let n = rest.len().min(SECTOR - within);
                let mut bytes = self.sector(&unsynced, index)?;
                bytes[within..within + n].copy_from_slice(&rest[..n]);
                unsynced.insert(index, bytes);
                position += n as u64;
                rest = &rest[n..];
            }
        }
        if self.state.options.early_sectors > 0.0 && position > offset {
            let mut random = locked(&self.state.random);
            for index in offset / SECTOR as u64..=(position - 1) / SECTOR as u64 {
                if random.chance(self.state.options.early_sectors)
                    && let Some(bytes) = unsynced.get(&index)
                {
                    self.body.medium.write_all_at(&bytes[..], index * SECTOR as u64)?;
                }
            }
        }
        Ok(())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.state.alive()?;
        let unsynced = locked(&self.body.unsynced);
        let length = self.length(&unsynced)?;
        let n = (length.saturating_sub(offset)).min(buffer.len() as u64) as usize;
        let mut done = 0;
        while done < n {
            match self.body.medium.read_at(&mut buffer[done..n], offset + done as u64)? {
                0 => break,
                read => done += read,
            }
        }
        buffer[done..n].fill(0);
        if n > 0 {
            let (first, last) = (offset / SECTOR as u64, (offset + n as u64 - 1) / SECTOR as u64);
            for (index, bytes) in unsynced.range(first..=last) {
                let base = index * SECTOR as u64;
                let from = base.max(offset);
                let to = (base + SECTOR as u64).min(offset + n as u64);
                buffer[(from - offset) as usize..(to - offset) as usize]
                    .copy_from_slice(&bytes[(from - base) as usize..(to - base) as usize]);
            }
        }
        Ok(n)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.state.change()?;
        if self.state.options.lying_sync {
            return Ok(());
        }
        let mut unsynced = locked(&self.body.unsynced);
        // The power may have been cut since the first check; the cut drops the unsynced bytes. The
        // sync must fail then.
        self.state.alive()?;
        for (index, bytes) in std::mem::take(&mut *unsynced) {
            self.body.medium.write_all_at(&bytes[..], index * SECTOR as u64)?;
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.state.alive()?;
        self.length(&locked(&self.body.unsynced))
    }
}

impl PowerCutFile {
    fn length(&self, unsynced: &BTreeMap<u64, Box<[u8; SECTOR]>>) -> io::Result<u64> {
        let end = unsynced.last_key_value().map_or(0, |(index, _)| (index + 1) * SECTOR as u64);
        Ok(self.body.medium.metadata()?.len().max(end))
    }
}

impl Device for PowerCutDevice {
    fn name(&self) -> &'static str {
        "power-cut"
    }

    fn durable(&self) -> bool {
        !self.0.options.lying_sync
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.change()?;
        fs::create_dir_all(dir)
    }

    fn create(&self, path: &Path, len: u64) -> io::Result<Arc<dyn DeviceFile>> {
        self.0.change()?;
        let (dir, name) = split(path)?;
        let mut names = locked(&self.0.names);
        let number = self.0.hidden.fetch_add(1, Ordering::Relaxed);
        let physical = format!("{HIDDEN}{}-{number}", std::process::id());
        let directory = names.directory(&dir)?;
        // The zeros count as written: only the name can be lost.
        File::create(dir.join(&physical))?.set_len(len)?;
        directory.view.insert(name.clone(), physical.clone());
        directory.pending.push(NameChange::Rename { physical: physical.clone(), name });
        // A hidden file of an earlier process may have had the same name.
        names.files.remove(&dir.join(&physical));
        self.file(&mut names, dir.join(physical))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>> {
        self.0.alive()?;
        let mut names = locked(&self.0.names);
        let physical = names.physical(path)?;
        self.file(&mut names, physical)
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>> {
        self.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.change()?;
        let ((dir, old), (to_dir, new)) = (split(from)?, split(to)?);
        if dir != to_dir {
            return Err(io::Error::other("a power-cut device renames within a directory only"));
        }
        let mut names = locked(&self.0.names);
        let directory = names.directory(&dir)?;
        let physical = directory.view.remove(&old).ok_or_else(|| not_found(from))?;
        directory.view.insert(new.clone(), physical.clone());
        directory.pending.push(NameChange::Rename { physical, name: new });
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.change()?;
        let (dir, name) = split(path)?;
        let mut names = locked(&self.0.names);
        let directory = names.directory(&dir)?;
        let physical = directory.view.remove(&name).ok_or_else(|| not_found(path))?;
        directory.pending.push(NameChange::Remove { physical });
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.alive()?;
        Ok(locked(&self.0.names).directory(dir)?.view.keys().cloned().collect())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.change()?;
        locked(&self.0.names).sync(dir)
    }

    fn read_small(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.open(path)?;
        let mut bytes = vec![0; file.len()? as usize];
        file.read_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    fn write_small(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        // Small files have an exact length, not kept by the overlay of whole sectors.
        self.create(path, bytes.len() as u64)?;
        let physical = locked(&self.0.names).physical(path)?;
        fs::write(physical, bytes)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.0.alive()?;
        // Directories are created at once and are not among the names.
        if path.is_dir() {
            return Ok(true);
        }
        let (dir, name) = split(path)?;
        if !dir.is_dir() {
            return Ok(false);
        }
        Ok(locked(&self.0.names).directory(&dir)?.view.contains_key(&name))
    }

    fn lock_dir(&self, dir: &Path) -> io::Result<DirectoryLock> {
        self.0.alive()?;
        FileDevice.lock_dir(dir)
    }
}
