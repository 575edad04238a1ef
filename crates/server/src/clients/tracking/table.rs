//! The clients that have read each key.

use crate::clients::ClientEntry;
use hyades_platform::sync::Unpoisoned;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Parts of the table, each with a lock.
const SHARDS: usize = 64;

/// Clients that have read a key.
pub type Readers = SmallVec<[Arc<ClientEntry>; 2]>;

/// A key, and the clients that have read it.
pub struct TrackedKey {
    /// The key.
    pub key: Arc<[u8]>,
    /// The clients.
    pub readers: Readers,
}

/// The keys of a part in any order, with the place of each.
#[derive(Default)]
struct Shard {
    keys: Vec<TrackedKey>,
    places: HashMap<Arc<[u8]>, usize>,
}

impl Shard {
    fn remove(&mut self, at: usize) -> TrackedKey {
        let removed = self.keys.swap_remove(at);
        self.places.remove(&removed.key);
        if let Some(moved) = self.keys.get(at) {
            *self.places.get_mut(&moved.key).expect("it has a place") = at;
        }
        removed
    }
}

/// The keys that clients have read, until the keys are written.
///
/// When a client is added to a list, clients that track no more are taken off: a list has no more
/// clients than have tracked at a time. So the bound of the number of keys bounds the table.
pub struct TrackedKeys {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    keys: AtomicUsize,
    items: AtomicUsize,
}

impl Default for TrackedKeys {
    fn default() -> TrackedKeys {
        TrackedKeys {
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            keys: AtomicUsize::new(0),
            items: AtomicUsize::new(0),
        }
    }
}

impl TrackedKeys {
    /// The number of keys.
    pub fn keys(&self) -> usize {
        self.keys.load(Relaxed)
    }

    /// The number of clients in all lists.
    pub fn items(&self) -> usize {
        self.items.load(Relaxed)
    }

    fn shard(&self, key: &[u8]) -> &Mutex<Shard> {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }

    /// A client reads a key.
    pub fn add(&self, key: &[u8], client: &Arc<ClientEntry>) {
        let mut shard = self.shard(key).lock().unpoisoned();
        let at = match shard.places.get(key) {
            Some(at) => *at,
            None => {
                let (key, at): (Arc<[u8]>, usize) = (key.into(), shard.keys.len());
                shard.places.insert(key.clone(), at);
                shard.keys.push(TrackedKey { key, readers: Readers::new() });
                self.keys.fetch_add(1, Relaxed);
                at
            }
        };
        let readers = &mut shard.keys[at].readers;
        if readers.iter().any(|reader| reader.id == client.id) {
            return;
        }
        let before = readers.len();
        readers.retain(|reader| reader.tracking.is_on());
        readers.push(client.clone());
        self.items.fetch_add(readers.len(), Relaxed);
        self.items.fetch_sub(before, Relaxed);
    }

    /// Whether a client is in the list of a key.
    pub fn has(&self, key: &[u8], client: &ClientEntry) -> bool {
        let shard = self.shard(key).lock().unpoisoned();
        let found = shard.places.get(key).map(|at| &shard.keys[*at].readers);
        found.is_some_and(|readers| readers.iter().any(|reader| reader.id == client.id))
    }

    fn count_removed(&self, removed: &TrackedKey) {
        self.keys.fetch_sub(1, Relaxed);
        self.items.fetch_sub(removed.readers.len(), Relaxed);
    }

    /// Takes the clients off the list of a key, except clients for which `stays` holds.
    pub fn take(&self, key: &[u8], stays: impl Fn(&ClientEntry) -> bool) -> Option<TrackedKey> {
        let mut shard = self.shard(key).lock().unpoisoned();
        let at = *shard.places.get(key)?;
        let TrackedKey { key, readers } = &mut shard.keys[at];
        if readers.iter().all(|reader| !stays(reader)) {
            let removed = shard.remove(at);
            self.count_removed(&removed);
            return Some(removed);
        }
        let (stay, leave): (Readers, Readers) = readers.drain(..).partition(|reader| stays(reader));
        *readers = stay;
        self.items.fetch_sub(leave.len(), Relaxed);
        Some(TrackedKey { key: key.clone(), readers: leave })
    }

    /// Takes any key, if there is one.
    pub fn take_any(&self) -> Option<TrackedKey> {
        let first = fastrand::usize(..SHARDS);
        (0..SHARDS).find_map(|by| {
            let mut shard = self.shards[(first + by) % SHARDS].lock().unpoisoned();
            let count = shard.keys.len();
            let removed = (count > 0).then(|| shard.remove(fastrand::usize(..count)))?;
            self.count_removed(&removed);
            Some(removed)
        })
    }

    /// Forgets all.
    pub fn clear(&self) {
        for shard in &self.shards {
            let shard = std::mem::take(&mut *shard.lock().unpoisoned());
            shard.keys.iter().for_each(|key| self.count_removed(key));
        }
    }
}
