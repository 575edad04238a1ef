//! A redb database in a file that fails, and that loses unsynced bytes.

use super::stores::LivingStore;
use crate::{DataComponent, Error, RedbData};
use hyades_platform::sync::Unpoisoned;
use redb::StorageBackend;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The bytes written by a medium at once.
const PAGE: usize = 512;

/// A file: the bytes on the medium, and unsynced writes and lengths.
#[derive(Clone, Debug, Default)]
struct StoreFile {
    seen: Vec<u8>,
    stable: Vec<u8>,
    unsynced: Vec<(usize, Vec<u8>)>,
}

/// The kind of access to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
    Sync,
}

/// The failing accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailingAccess {
    /// All later accesses, of any kind: the process is about to die.
    All,
    /// Writes, with the first half possibly done, and longer files.
    Writes,
    /// Syncs. Bytes that should have become stable are lost at a power cut, or are not.
    Syncs,
}

#[derive(Clone, Copy, Debug)]
struct StoreFault {
    which: FailingAccess,
    /// The number of earlier writes and syncs, or of earlier accesses of the failing kind.
    after: u64,
    /// Otherwise once.
    for_ever: bool,
}

/// The storage of a process; a later process has another storage on the same file.
#[derive(Debug)]
struct StoreOfProcess {
    file: Arc<Mutex<StoreFile>>,
    alive: Arc<Mutex<bool>>,
    fault: Mutex<Option<StoreFault>>,
    failed: Arc<AtomicUsize>,
}

impl StoreOfProcess {
    fn with<R>(&self, act: impl FnOnce(&mut StoreFile) -> R) -> Result<R, io::Error> {
        match *self.alive.lock().unpoisoned() {
            true => Ok(act(&mut self.file.lock().unpoisoned())),
            false => Err(io::Error::other("the process is dead")),
        }
    }

    /// Whether `access` fails.
    fn fails(&self, access: Access) -> bool {
        let armed = &mut *self.fault.lock().unpoisoned();
        let Some(fault) = armed else { return false };
        let is_meant = match fault.which {
            FailingAccess::All => access != Access::Read || fault.after == 0,
            FailingAccess::Writes => access == Access::Write,
            FailingAccess::Syncs => access == Access::Sync,
        };
        if !is_meant {
            return false;
        }
        if let Some(left) = fault.after.checked_sub(1) {
            fault.after = left;
            return false;
        }
        if !fault.for_ever {
            *armed = None;
        }
        self.failed.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn meet(&self, access: Access) -> Result<(), io::Error> {
        match self.fails(access) {
            true => Err(io::Error::other("the simulated file fails")),
            false => Ok(()),
        }
    }
}

impl StoreFile {
    fn write(&mut self, offset: u64, data: &[u8]) {
        self.seen[offset as usize..][..data.len()].copy_from_slice(data);
        self.unsynced.push((offset as usize, data.to_vec()));
    }
}

impl StorageBackend for StoreOfProcess {
    fn len(&self) -> Result<u64, io::Error> {
        self.with(|file| file.seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.meet(Access::Read)?;
        self.with(|file| out.copy_from_slice(&file.seen[offset as usize..][..out.len()]))
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.meet(Access::Write)?;
        self.with(|file| {
            file.seen.resize(len as usize, 0);
            // A longer file is as good as a synced file: the file is read by its header.
            if file.stable.len() < len as usize {
                file.stable.resize(len as usize, 0);
            }
        })
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.meet(Access::Sync)?;
        self.with(|file| {
            file.stable.clone_from(&file.seen);
            file.unsynced.clear();
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        if let Err(failed) = self.meet(Access::Write) {
            self.with(|file| file.write(offset, &data[..data.len() / 2]))?;
            return Err(failed);
        }
        self.with(|file| file.write(offset, data))
    }
}

/// A redb database in a failing file; the database loses power, also in the middle of its own
/// commits.
#[derive(Debug, Default)]
pub struct RedbStore {
    file: Arc<Mutex<StoreFile>>,
    alive: Arc<Mutex<bool>>,
    /// The fault of the next process.
    fault: Option<StoreFault>,
    /// Whether the database was ever opened. Before, the file has another name, and its content
    /// counts for nothing: see [`RedbData::open`].
    is_made: bool,
    /// How many accesses have failed.
    failed: Arc<AtomicUsize>,
}

impl RedbStore {
    /// How many reads, writes and syncs of redb have failed.
    pub fn failed(&self) -> usize {
        self.failed.load(Ordering::Relaxed)
    }

    /// Lets the process of the next opening die at the write, sync or change of length number
    /// `step` of redb's file, from 0 on. The first half of a write is done.
    pub fn stop_at(&mut self, step: u64) {
        let which = FailingAccess::All;
        self.fault = Some(StoreFault { which, after: step, for_ever: true });
    }

    /// A copy of the file, in the page cache and on the medium, without a process.
    pub fn fork(&self) -> Self {
        let file = self.file.lock().unpoisoned().clone();
        Self { file: Arc::new(Mutex::new(file)), is_made: self.is_made, ..Self::default() }
    }
}

impl LivingStore for RedbStore {
    fn open(&mut self) -> Result<Arc<dyn DataComponent>, Error> {
        // The rest of the last process can do nothing.
        *self.alive.lock().unpoisoned() = false;
        self.alive = Arc::new(Mutex::new(true));
        if !self.is_made {
            *self.file.lock().unpoisoned() = StoreFile::default();
        }
        let (file, alive) = (self.file.clone(), self.alive.clone());
        let fault = Mutex::new(self.fault.take());
        let storage = StoreOfProcess { file, alive, fault, failed: self.failed.clone() };
        let data = RedbData::open_in(storage, 1 << 20)?;
        self.is_made = true;
        Ok(Arc::new(data))
    }

    fn arm(&mut self, rng: &mut fastrand::Rng) -> bool {
        let for_ever = rng.bool();
        self.fault = match rng.u8(0..8) {
            // In the opening, and in any later commit.
            0 => Some((FailingAccess::All, rng.u64(0..12))),
            1 => Some((FailingAccess::All, rng.u64(0..100))),
            2 => Some((FailingAccess::Writes, rng.u64(0..100))),
            3 => Some((FailingAccess::Syncs, rng.u64(0..12))),
            _ => None,
        }
        .map(|(which, after)| {
            let for_ever = for_ever || which == FailingAccess::All;
            StoreFault { which, after, for_ever }
        });
        self.fault.is_some()
    }

    fn crash(&mut self, rng: &mut fastrand::Rng, power: bool) {
        *self.alive.lock().unpoisoned() = false;
        let file = &mut *self.file.lock().unpoisoned();
        if !power {
            return;
        }
        // Pieces of unsynced writes reach the medium, or do not.
        let kept = [0.0, 0.5, 1.0][rng.usize(0..3)];
        for (offset, data) in std::mem::take(&mut file.unsynced) {
            for (at, piece) in data.chunks(PAGE).enumerate() {
                let from = offset + at * PAGE;
                let to = file.stable.len().min(from + piece.len());
                if rng.f64() < kept && from < to {
                    file.stable[from..to].copy_from_slice(&piece[..to - from]);
                }
            }
        }
        file.seen.clone_from(&file.stable);
    }
}
