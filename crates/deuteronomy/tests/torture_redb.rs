//! The transaction component over redb: log and data component both lose power.
#![allow(missing_docs)]

mod common;
#[path = "common/torture.rs"]
mod lives;

use hyades_deuteronomy::{DataComponent, Error, RedbData};
use lives::{Met, Store, torture};
use redb::StorageBackend;
use std::io;
use std::sync::{Arc, Mutex};

const PAGE: usize = 512;

/// A file: what is on the medium, and writes and lengths that were not synced.
#[derive(Debug, Default)]
struct File {
    seen: Vec<u8>,
    stable: Vec<u8>,
    unsynced: Vec<(usize, Vec<u8>)>,
}

/// The storage of one process; a later process has another on the same file.
#[derive(Debug)]
struct Storage {
    file: Arc<Mutex<File>>,
    alive: Arc<Mutex<bool>>,
}

impl Storage {
    fn with<R>(&self, act: impl FnOnce(&mut File) -> R) -> Result<R, io::Error> {
        match *self.alive.lock().unwrap() {
            true => Ok(act(&mut self.file.lock().unwrap())),
            false => Err(io::Error::other("the process is dead")),
        }
    }
}

impl StorageBackend for Storage {
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
struct Redb {
    file: Arc<Mutex<File>>,
    alive: Arc<Mutex<bool>>,
}

impl Redb {
    fn new() -> Self {
        Redb { file: Arc::default(), alive: Arc::default() }
    }
}

impl Store for Redb {
    fn open(&mut self) -> Result<Arc<dyn DataComponent>, Error> {
        // What is left of the last process can do nothing.
        *self.alive.lock().unwrap() = false;
        self.alive = Arc::new(Mutex::new(true));
        let storage = Storage { file: self.file.clone(), alive: self.alive.clone() };
        Ok(Arc::new(RedbData::open_in(storage, 1 << 20)?))
    }

    fn crash(&mut self, rng: &mut fastrand::Rng, power: bool) {
        *self.alive.lock().unwrap() = false;
        let file = &mut *self.file.lock().unwrap();
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

#[test]
fn acknowledged_is_recovered_from_log_and_redb() {
    let mut met = Met::default();
    for seed in 0..120 {
        if let Err(wrong) = torture(seed, &mut Redb::new(), &mut met) {
            panic!("seed {seed}: {wrong}");
        }
    }
    println!("{met:#?}");
    assert!(met.scans > 1000, "{met:?}");
    assert!(met.committed > 6000 && met.acknowledged > 3000 && met.truncated > 0, "{met:?}");
}
