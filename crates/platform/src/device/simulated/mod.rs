//! A whole disk in memory, with every failure of a real disk, by seed.
//!
//! A [`SimulatedDisk`] keeps the page cache and the medium of each file; a [`SimulatedDevice`] is
//! the access of a process. A killed process leaves the page cache to the next process. At a power
//! cut unsynced bytes reach the medium by sectors, in any order, some torn, and of the unsynced
//! changes of a directory's names a prefix does. A failed sync marks the pages clean: reads see the
//! pages, and no later sync writes them. A file can be mapped: see [`FileMemory`], and `memory.rs`.
//! Disks can be forked, so a crash can be recovered in many ways.

mod faults;
mod medium;
mod memory;

use super::{Device, DeviceFile, DirectoryLock, FileMemory, whole};
use crate::random::Random;
use crate::sync::locked;
pub use faults::SimulatedFault;
use faults::{FaultPlan, countdown_fires};
use medium::{Medium, split};
use memory::SimulatedMemory;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// A disk, shared by clones.
#[derive(Clone, Debug, Default)]
pub struct SimulatedDisk(Arc<Mutex<Medium>>);

/// The place of flipped bits.
#[derive(Clone, Debug)]
pub struct Rot {
    /// The file.
    pub path: PathBuf,
    /// The offset of the byte.
    pub offset: usize,
    /// Whether the byte is of the last write to the file's directory. Then no later durable write
    /// proves the byte's durability.
    pub in_last_write: bool,
}

impl SimulatedDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a process on the disk; earlier processes are dead from now on. `seed` decides the
    /// effects of the process's faults.
    pub fn process(&self, seed: u64) -> SimulatedDevice {
        let mut medium = locked(&self.0);
        medium.process += 1;
        medium.locks.clear();
        let plan = FaultPlan::new(Random::seeded(seed));
        let (plan, changed) = (Mutex::new(plan), Condvar::new());
        let state = ProcessState { disk: self.clone(), process: medium.process, plan, changed };
        SimulatedDevice(Arc::new(state))
    }

    /// Kills the running process; the process's writes stay in the page cache.
    pub fn kill(&self) {
        let mut medium = locked(&self.0);
        medium.process += 1;
        medium.locks.clear();
    }

    /// Cuts the power, and so kills the process as well.
    pub fn power_cut(&self, seed: u64) {
        self.kill();
        locked(&self.0).power_cut(&mut Random::seeded(seed));
    }

    /// Returns a copy of the disk, page cache included, without a process.
    pub fn fork(&self) -> SimulatedDisk {
        let mut medium = locked(&self.0).clone();
        medium.process += 1;
        medium.locks.clear();
        SimulatedDisk(Arc::new(Mutex::new(medium)))
    }

    /// Flips up to three adjacent bits of a byte of some file. `None` if all files are empty.
    pub fn rot(&self, seed: u64) -> Option<Rot> {
        let mut random = Random::seeded(seed);
        let mut medium = locked(&self.0);
        // Unwritten bytes are zero, and damage to zeros is rarely of interest: draws up to six
        // times for a nonzero byte.
        let mut found = None;
        for _ in 0..6 {
            let files: Vec<_> = medium.files().filter(|(_, body)| !body.seen.is_empty()).collect();
            let (path, body) = files.get(random.below(files.len().max(1) as u64) as usize)?;
            let at = random.below(body.seen.len() as u64) as usize;
            let interesting = body.seen[at] != 0;
            found = Some((path.clone(), at));
            if interesting {
                break;
            }
        }
        let (path, offset) = found?;
        let in_last_write = medium.is_last_write(&path, offset);
        let first = random.below(8) as u32;
        for bit in first..=(first + random.below(3) as u32).min(7) {
            medium.flip(&path, offset, bit).ok()?;
        }
        Some(Rot { path, offset, in_last_write })
    }

    /// Writes all files, as the page cache shows them, below a directory of the file system.
    ///
    /// # Errors
    /// The file system's.
    pub fn save(&self, dir: &Path) -> io::Result<()> {
        for (path, body) in locked(&self.0).files() {
            let to = dir.join(path.strip_prefix("/").unwrap_or(&path));
            std::fs::create_dir_all(to.parent().unwrap_or(dir))?;
            std::fs::write(to, &body.seen)?;
        }
        Ok(())
    }

    /// Loads the files below a directory, as written by [`save`](Self::save), into a new disk, all
    /// durable.
    ///
    /// # Errors
    /// The file system's.
    pub fn load(dir: &Path) -> io::Result<SimulatedDisk> {
        fn below(medium: &mut Medium, from: &Path, to: &Path) -> io::Result<()> {
            medium.create_dir(to);
            for entry in std::fs::read_dir(from)? {
                let entry = entry?;
                let (path, to) = (entry.path(), to.join(entry.file_name()));
                if path.is_dir() {
                    below(medium, &path, &to)?;
                    continue;
                }
                let file = medium.create(&to)?;
                medium.body_mut(file)?.write(0, 0, &std::fs::read(path)?);
                medium.body_mut(file)?.sync();
            }
            medium.sync_dir(to)
        }
        let mut medium = Medium::default();
        below(&mut medium, dir, Path::new("/"))?;
        Ok(SimulatedDisk(Arc::new(Mutex::new(medium))))
    }

    /// Returns every file with the content in the page cache.
    pub fn content(&self) -> Vec<(PathBuf, Vec<u8>)> {
        locked(&self.0).files().map(|(path, body)| (path, body.seen.clone())).collect()
    }
}

#[derive(Debug)]
struct ProcessState {
    disk: SimulatedDisk,
    process: u64,
    plan: Mutex<FaultPlan>,
    changed: Condvar,
}

fn off() -> io::Error {
    io::Error::other("the process has been stopped")
}

impl ProcessState {
    /// Returns the medium, if the process is alive.
    fn medium(&self) -> io::Result<MutexGuard<'_, Medium>> {
        let mut medium = locked(&self.disk.0);
        if medium.process != self.process {
            return Err(off());
        }
        medium.now += 1;
        Ok(medium)
    }

    /// Counts a change; false if the process dies at the change. The caller may do a part of the
    /// change first.
    fn survives(&self) -> bool {
        !countdown_fires(&mut locked(&self.plan).stop)
    }

    fn die(&self) -> io::Error {
        let mut medium = locked(&self.disk.0);
        if medium.process == self.process {
            medium.process += 1;
            medium.locks.clear();
        }
        self.changed.notify_all();
        off()
    }

    /// Applies a change of names. If the process dies at the change, the change may be done or not.
    fn change<T>(&self, change: impl FnOnce(&mut Medium) -> io::Result<T>) -> io::Result<T> {
        let survives = self.survives();
        if !survives && locked(&self.plan).random.chance(0.5) {
            return Err(self.die());
        }
        let result = change(&mut *self.medium()?);
        if survives { result } else { Err(self.die()) }
    }

    /// Delays the caller if files of the path's directory are armed to be slow.
    fn pace(&self, path: &Path) {
        let mut waited = false;
        loop {
            let plan = locked(&self.plan);
            let is = |name: &str| path.components().any(|c| c.as_os_str() == name);
            let Some((_, pace)) = plan.slow.iter().find(|(name, _)| is(name)) else { return };
            match *pace {
                Some(_) if waited => return,
                Some(pace) => {
                    waited = true;
                    drop(self.changed.wait_timeout(plan, pace));
                }
                None => drop(self.changed.wait_timeout(plan, Duration::from_millis(5))),
            }
            if locked(&self.disk.0).process != self.process {
                return;
            }
        }
    }
}

/// The access of a process to a [`SimulatedDisk`]; shared by clones.
#[derive(Clone, Debug)]
pub struct SimulatedDevice(Arc<ProcessState>);

impl SimulatedDevice {
    /// Arms a fault in addition to the faults already armed.
    pub fn arm(&self, fault: SimulatedFault) {
        locked(&self.0.plan).arm(fault);
    }

    /// Removes all faults and delays.
    pub fn disarm(&self) {
        let mut plan = locked(&self.0.plan);
        let random = plan.random.clone();
        *plan = FaultPlan::new(random);
    }

    /// Delays writes and syncs of files below a directory named `directory` by `pace` from now on;
    /// `None` blocks them until the process ends.
    pub fn slow(&self, directory: &str, pace: Option<Duration>) {
        locked(&self.0.plan).slow.push((directory.to_string(), pace));
    }

    /// Whether the process may still use the disk.
    pub fn is_alive(&self) -> bool {
        locked(&self.0.disk.0).process == self.0.process
    }
}

#[derive(Clone, Debug)]
struct SimulatedFile {
    state: Arc<ProcessState>,
    path: PathBuf,
    file: u64,
}

impl SimulatedFile {
    /// Makes a transfer of the write begun at `began`; may write less than `slices`.
    fn write_some(&self, began: u64, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let mut bytes = slices.iter().flat_map(|s| s.iter().copied()).collect::<Vec<u8>>();
        let room = locked(&self.state.plan).room_for(bytes.len());
        bytes.truncate(room);
        if bytes.is_empty() {
            return Err(rustix::io::Errno::NOSPC.into());
        }
        {
            let mut plan = locked(&self.state.plan);
            if plan.short && plan.random.chance(0.3) {
                if plan.random.chance(0.2) {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                let kept = 1 + plan.random.below(bytes.len() as u64) as usize;
                bytes.truncate(kept);
            }
        }
        self.state.medium()?.body_mut(self.file)?.write(began, offset as usize, &bytes);
        Ok(bytes.len())
    }

    /// Writes a random prefix of the slices, possibly empty.
    fn write_part(&self, slices: &[IoSlice<'_>], offset: u64) {
        let mut bytes = slices.iter().flat_map(|s| s.iter().copied()).collect::<Vec<u8>>();
        let kept = locked(&self.state.plan).random.below(bytes.len() as u64 + 1) as usize;
        bytes.truncate(kept);
        if let Ok(mut medium) = self.state.medium() {
            let now = medium.now;
            if let Ok(body) = medium.body_mut(self.file) {
                body.write(now, offset as usize, &bytes);
            }
        }
    }
}

impl DeviceFile for SimulatedFile {
    fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.state.pace(&self.path);
        if !self.state.survives() {
            self.write_part(slices, offset);
            return Err(self.state.die());
        }
        let fails = countdown_fires(&mut locked(&self.state.plan).write);
        if fails {
            self.write_part(slices, offset);
            return Err(rustix::io::Errno::IO.into());
        }
        let began = self.state.medium()?.now;
        whole::write(slices, offset, |slices, offset| self.write_some(began, slices, offset))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let (fails, short) = {
            let mut plan = locked(&self.state.plan);
            (countdown_fires(&mut plan.read), plan.short)
        };
        if fails {
            return Err(rustix::io::Errno::IO.into());
        }
        whole::read(buffer, offset, |buffer, offset| {
            let mut wanted = buffer.len();
            if short {
                let mut plan = locked(&self.state.plan);
                if plan.random.chance(0.1) {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                wanted = 1 + plan.random.below(wanted as u64) as usize;
            }
            let medium = self.state.medium()?;
            let seen = &medium.body(self.file)?.seen;
            let from = (offset as usize).min(seen.len());
            let n = wanted.min(seen.len() - from);
            buffer[..n].copy_from_slice(&seen[from..from + n]);
            Ok(n)
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.state.pace(&self.path);
        let survives = self.state.survives();
        let (fails, lies) = {
            let mut plan = locked(&self.state.plan);
            (plan.sync_fails(), plan.lying)
        };
        if fails || !survives {
            let mut random = Random::seeded(locked(&self.state.plan).random.next_u64());
            // At the death of a process, a sync may still complete or not; the page cache is the
            // same.
            if fails {
                self.state.medium()?.body_mut(self.file)?.sync_in_part(&mut random);
            } else if random.chance(0.5) {
                self.state.medium()?.body_mut(self.file)?.sync();
            }
            return Err(if survives { rustix::io::Errno::IO.into() } else { self.state.die() });
        }
        let mut medium = self.state.medium()?;
        if !lies {
            medium.body_mut(self.file)?.sync();
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.state.medium()?.body(self.file)?.seen.len() as u64)
    }

    fn map(&self) -> io::Result<Box<dyn FileMemory>> {
        Ok(Box::new(SimulatedMemory::new(self.clone(), self.len()?)))
    }
}

impl SimulatedDevice {
    fn file(&self, path: &Path, file: u64) -> SimulatedFile {
        SimulatedFile { state: Arc::clone(&self.0), path: path.to_owned(), file }
    }
}

/// A locked directory; the end of the process releases the directory as well.
#[derive(Debug)]
struct Held {
    state: Arc<ProcessState>,
    dir: PathBuf,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Ok(mut medium) = self.state.medium() {
            medium.locks.remove(&self.dir);
        }
    }
}

impl Device for SimulatedDevice {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn durable(&self) -> bool {
        !locked(&self.0.plan).lying
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        if self.0.medium()?.is_directory(dir) {
            return Ok(());
        }
        self.0.change(|medium| {
            medium.create_dir(dir);
            Ok(())
        })
    }

    fn create(&self, path: &Path, len: u64) -> io::Result<Arc<dyn DeviceFile>> {
        let file = self.file(path, self.0.change(|medium| medium.create(path))?);
        if len > 0 {
            file.write_at(&[IoSlice::new(&vec![0; len as usize])], 0)?;
        }
        Ok(Arc::new(file))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>> {
        let file = self.0.medium()?.find(path)?;
        Ok(Arc::new(self.file(path, file)))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>> {
        self.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.change(|medium| medium.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.change(|medium| medium.remove(path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.medium()?.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.change(|medium| medium.sync_dir(dir))
    }

    fn read_small(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.open(path)?;
        let mut bytes = vec![0; file.len()? as usize];
        file.read_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    fn write_small(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let file = self.create(path, 0)?;
        if !bytes.is_empty() {
            file.write_at(&[IoSlice::new(bytes)], 0)?;
        }
        file.sync_data()
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let medium = self.0.medium()?;
        Ok(split(path).is_ok() && (medium.is_directory(path) || medium.find(path).is_ok()))
    }

    fn lock_dir(&self, dir: &Path) -> io::Result<DirectoryLock> {
        let mut medium = self.0.medium()?;
        if medium.locks.contains_key(dir) {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "in use by another opener"));
        }
        medium.locks.insert(dir.to_owned(), self.0.process);
        Ok(DirectoryLock(Box::new(Held { state: Arc::clone(&self.0), dir: dir.to_owned() })))
    }
}

#[cfg(test)]
mod tests;
