//! A redb database in a file that loses what was not synced.

use super::stores::LivingStore;
use crate::{DataComponent, Error, RedbData};
use redb::StorageBackend;
use std::io;
use std::sync::{Arc, Mutex};

/// The bytes that a medium writes at once.
const PAGE: usize = 512;

/// A file: what is on the medium, and writes and lengths that were not synced.
#[derive(Debug, Default)]
struct StoreFile {
    seen: Vec<u8>,
    stable: Vec<u8>,
    unsynced: Vec<(usize, Vec<u8>)>,
}

/// The storage of one process; a later process has another on the same file.
#[derive(Debug)]
struct StoreOfProcess {
    file: Arc<Mutex<StoreFile>>,
    alive: Arc<Mutex<bool>>,
}

impl StoreOfProcess {
    fn with<R>(&self, act: impl FnOnce(&mut StoreFile) -> R) -> Result<R, io::Error> {
        match *self.alive.lock().expect("no holder panics") {
            true => Ok(act(&mut self.file.lock().expect("no holder panics"))),
            false => Err(io::Error::other("the process is dead")),
        }
    }
}

impl StorageBackend for StoreOfProcess {
    fn len(&self) -> Result<u64, io::Error> {
        self.with(|file| file.seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.with(|file| out.copy_from_slice(&file.seen[offset as usize..][..out.len()]))
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.with(|file| {
            file.seen.resize(len as usize, 0);
            // A longer file is as good as one that was synced: it is read by its header.
            if file.stable.len() < len as usize {
                file.stable.resize(len as usize, 0);
            }
        })
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.with(|file| {
            file.stable.clone_from(&file.seen);
            file.unsynced.clear();
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.with(|file| {
            file.seen[offset as usize..][..data.len()].copy_from_slice(data);
            file.unsynced.push((offset as usize, data.to_vec()));
        })
    }
}

/// A redb database that loses power.
#[derive(Debug, Default)]
pub struct RedbStore {
    file: Arc<Mutex<StoreFile>>,
    alive: Arc<Mutex<bool>>,
}

impl LivingStore for RedbStore {
    fn open(&mut self) -> Result<Arc<dyn DataComponent>, Error> {
        // What is left of the last process can do nothing.
        *self.alive.lock().expect("no holder panics") = false;
        self.alive = Arc::new(Mutex::new(true));
        let storage = StoreOfProcess { file: self.file.clone(), alive: self.alive.clone() };
        Ok(Arc::new(RedbData::open_in(storage, 1 << 20)?))
    }

    fn crash(&mut self, rng: &mut fastrand::Rng, power: bool) {
        *self.alive.lock().expect("no holder panics") = false;
        let file = &mut *self.file.lock().expect("no holder panics");
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
