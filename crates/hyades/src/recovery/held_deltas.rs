//! Deltas waiting for their row to reach their base version.

use super::apply::is_locked;
use crate::logging::record::Change;
use crate::storage::Stamp;
use crate::storage::address_hasher::AddressHasher;
use crate::storage::key::KeyBytes;
use crate::storage::record::{Record, word};
use crate::storage::table::{Lookup, TableData};
use crate::storage::tid::Tid;
use hyades_platform::reclaim::Guard;
use hyades_platform::sync::Unpoisoned;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const SHARDS: usize = 64;

/// A waiting delta.
pub(crate) struct HeldDelta {
    /// The version produced by the delta.
    pub tid: Tid,
    bytes: Box<[u8]>,
    /// Whether `bytes` are edits, and not a delta.
    are_edits: bool,
    /// The table's position and the row's key.
    row: (usize, KeyBytes),
}

impl HeldDelta {
    /// Returns the change of the row with version `base`.
    pub fn change(&self, base: Tid) -> Change<'_> {
        match self.are_edits {
            true => Change::Edits { base, edits: &self.bytes },
            false => Change::Delta { base, delta: &self.bytes },
        }
    }
}

/// By the row object's address and the base version. A row object does not move during replay.
type DeltasByVersion = HashMap<(usize, Tid), HeldDelta, BuildHasherDefault<AddressHasher>>;

#[derive(Default)]
#[repr(align(64))]
struct DeltaShard {
    /// Number of deltas in `held`, for a quick test. Changed and read under the lock of the row
    /// concerned, so its value is ordered for all threads in search of the row's deltas.
    count: AtomicUsize,
    held: Mutex<DeltasByVersion>,
}

/// The held deltas of all rows; see the module.
pub(crate) struct HeldDeltas {
    shards: Box<[DeltaShard]>,
}

impl Default for HeldDeltas {
    fn default() -> Self {
        HeldDeltas { shards: (0..SHARDS).map(|_| DeltaShard::default()).collect() }
    }
}

impl HeldDeltas {
    fn shard<S>(&self, record: &Record<S>) -> (&DeltaShard, usize) {
        let address = std::ptr::from_ref(record) as usize;
        let hash = (address >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48;
        (&self.shards[hash % SHARDS], address)
    }

    /// Holds a delta back. The caller holds the row's lock.
    pub fn hold<S>(
        &self,
        record: &Record<S>,
        row: (usize, KeyBytes),
        base: Tid,
        tid: Tid,
        change: Change<'_>,
    ) {
        let (bytes, are_edits) = match change {
            Change::Delta { delta, .. } => (delta, false),
            Change::Edits { edits, .. } => (edits, true),
            Change::Put(_) | Change::Delete => unreachable!("it follows no version"),
        };
        debug_assert!(is_locked(record), "a delta is held back under the row's lock");
        let (shard, address) = self.shard(record);
        shard.count.fetch_add(1, Ordering::AcqRel);
        let held = HeldDelta { tid, bytes: bytes.into(), are_edits, row };
        shard.held.lock().unpoisoned().insert((address, base), held);
    }

    /// Takes the delta that follows version `base` of the row. The caller holds the row's lock.
    #[inline]
    pub fn take<S>(&self, record: &Record<S>, base: Tid) -> Option<HeldDelta> {
        debug_assert!(is_locked(record), "a held delta is taken under the row's lock");
        let (shard, address) = self.shard(record);
        if shard.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let held = shard.held.lock().unpoisoned().remove(&(address, base))?;
        let count = shard.count.fetch_sub(1, Ordering::AcqRel);
        debug_assert_ne!(count, 0, "a shard counts the deltas that it holds");
        Some(held)
    }

    /// Drops the deltas of a row that produce no later version than `version`, the row's version.
    /// Returns whether no other delta of the row waits. The caller holds the row's lock.
    pub fn forget_superseded<S>(&self, record: &Record<S>, version: Tid) -> bool {
        debug_assert!(is_locked(record), "deltas of a row are dropped under its lock");
        let (shard, address) = self.shard(record);
        if shard.count.load(Ordering::Acquire) == 0 {
            return true;
        }
        let mut held = shard.held.lock().unpoisoned();
        let (before, mut waits) = (held.len(), false);
        held.retain(|(held_address, _), delta| {
            let is_needed = *held_address != address || delta.tid > version;
            waits |= *held_address == address && is_needed;
            is_needed
        });
        shard.count.fetch_sub(before - held.len(), Ordering::AcqRel);
        !waits
    }

    /// Ends a completely read incarnation: drops the deltas superseded by a newer image. If another
    /// delta is left, its base version is missing. Returns the table's position, the base version
    /// and the delta's version.
    pub fn settle<S: Stamp>(
        &self,
        tables: &[TableData<S>],
        guard: &Guard,
    ) -> Option<(usize, Tid, Tid)> {
        self.shards.iter().find_map(|shard| {
            let mut shard_held = shard.held.lock().unpoisoned();
            let count = shard.count.swap(0, Ordering::AcqRel);
            debug_assert!(shard_held.len() <= count, "a shard counts the deltas that it holds");
            shard_held.drain().find_map(|((_, base), held)| {
                let (table, key) = &held.row;
                let version = match tables[*table].find(key, guard) {
                    Lookup::Found(record) => word::tid(record.word.load(Ordering::Acquire)),
                    Lookup::Missing(_) => Tid::NONE,
                };
                (version < held.tid).then_some((*table, base, held.tid))
            })
        })
    }
}
