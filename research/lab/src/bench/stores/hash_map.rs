//! A concurrent hash map, to compare reads with that find their key in memory. Keys and values are
//! on the heap, and a read clones a reference to the value, as a transaction component does. There
//! is nothing else: no transactions, no log, no order.

use super::{GroupedStore, StoreBody};
use crate::bench::deuteronomy::KeysAndValues;
use hyades_cli::failure::Failure;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::hint::black_box;
use std::sync::{Arc, Mutex, MutexGuard};

/// Parts, each under a lock of its own: enough of them that threads hardly meet.
const PARTS: usize = 1 << 14;

/// A hash of a key, eight bytes at a time.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let mixed = (self.0 ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.0 = mixed ^ mixed >> 32;
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type MapPart = HashMap<Box<[u8]>, Arc<[u8]>, BuildHasherDefault<KeyHasher>>;

/// A concurrent hash map.
pub struct MapStore {
    parts: Box<[Mutex<MapPart>]>,
}

impl MapStore {
    /// An empty one.
    pub fn new() -> Self {
        Self { parts: (0..PARTS).map(|_| Mutex::default()).collect() }
    }

    fn part(&self, key: &[u8]) -> MutexGuard<'_, MapPart> {
        let mut hasher = KeyHasher::default();
        hasher.write(key);
        // The part itself uses other bits.
        let part = (hasher.finish() >> 20) as usize % PARTS;
        self.parts[part].lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl KeysAndValues for &MapStore {
    type Error = Failure;

    fn read(&mut self, key: &[u8]) -> Result<bool, Failure> {
        let found = self.part(key).get(key).cloned();
        Ok(black_box(found).is_some())
    }

    fn write(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        let value: Arc<[u8]> = value.into();
        let mut part = self.part(key);
        match part.get_mut(key) {
            Some(held) => *held = value,
            None => drop(part.insert(key.into(), value)),
        }
        Ok(())
    }

    fn scan(&mut self, _: &[u8], _: Option<&[u8]>, _: usize) -> Result<usize, Failure> {
        Err(Failure::Failed("a hash map has no ranges: choose another engine".to_string()))
    }
}

impl GroupedStore for MapStore {
    fn read_all(&self, body: &mut StoreBody<'_>) -> Result<(), Failure> {
        body(&mut { self })
    }

    fn write_all(&self, body: &mut StoreBody<'_>) -> Result<(), Failure> {
        body(&mut { self })
    }
}
