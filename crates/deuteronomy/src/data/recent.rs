//! The operations applied lately, for a store that keeps the last write to arrive: an operation
//! known to be the newest on its key is written without a read of the stored item.
//!
//! Kept are, by the hash of the key, the highest timestamps applied since the opening, as far as
//! they are at or above the floor: no operation below the floor comes any more. Invariant: an
//! operation older than the stored item is not told to be the newest. For the timestamp of the
//! stored item, or a higher timestamp of a key with the same hash, is kept; or the item is of an
//! earlier process, or was left out for want of room, and then at or below `unknown_up_to`; or the
//! item is below the floor, and so below the operation.

use crate::data_component::Operation;
use crate::key::KeyHasher;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most timestamps kept, of 16 bytes and a bit more.
const MOST: usize = 1 << 18;

/// A hasher for hashes.
#[derive(Default)]
pub(super) struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, _: &[u8]) {
        unreachable!("the keys are hashes")
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The timestamps of the operations applied lately.
#[derive(Debug)]
pub(super) struct Recent {
    hasher: KeyHasher,
    applied: Mutex<Applied>,
}

#[derive(Debug)]
struct Applied {
    /// Items with timestamps up to this one may be stored, and not be kept here.
    unknown_up_to: u64,
    by_hash: HashMap<u64, u64, BuildHasherDefault<Hashed>>,
}

impl Recent {
    /// Begins without timestamps, for a store with timestamps up to `highest_ts`.
    pub fn new(highest_ts: u64) -> Self {
        let applied = Applied { unknown_up_to: highest_ts, by_hash: HashMap::default() };
        Self { hasher: KeyHasher::random(), applied: Mutex::new(applied) }
    }

    fn lock(&self) -> MutexGuard<'_, Applied> {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the operations of a batch about to be applied. Returns for each whether the operation
    /// is known to be the newest on its key.
    pub fn note(&self, batch: &[Operation<'_>]) -> Vec<bool> {
        let hashes: Vec<u64> = batch.iter().map(|o| self.hasher.hash(o.key)).collect();
        let applied = &mut *self.lock();
        if applied.by_hash.len() + batch.len() > MOST {
            let highest = applied.by_hash.values().copied().max().unwrap_or(0);
            applied.unknown_up_to = applied.unknown_up_to.max(highest);
            applied.by_hash = HashMap::default();
        }
        let is_newest = |(operation, hash): (&Operation<'_>, u64)| {
            let before = applied.by_hash.entry(hash).or_insert(0);
            let is_newest = operation.ts > applied.unknown_up_to && operation.ts > *before;
            *before = operation.ts.max(*before);
            is_newest
        };
        batch.iter().zip(hashes).map(is_newest).collect()
    }

    /// Forgets timestamps below the floor.
    pub fn forget_below(&self, ts: u64) {
        let by_hash = &mut self.lock().by_hash;
        by_hash.retain(|_, applied| *applied >= ts);
        if by_hash.len() < by_hash.capacity() / 4 {
            by_hash.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_the_newest_unless_a_later_one_may_be_stored() {
        let recent = Recent::new(10);
        let is_newest = |key: &[u8], ts| recent.note(&[Operation { key, ts, value: None }])[0];
        assert!(!is_newest(b"a", 10), "it may be stored since before the opening");
        assert!(is_newest(b"a", 12));
        assert!(!is_newest(b"a", 12) && !is_newest(b"a", 11));
        assert!(is_newest(b"b", 11) && is_newest(b"a", 20));
        recent.forget_below(15);
        assert_eq!(recent.lock().by_hash.len(), 1);
        assert!(!is_newest(b"a", 19) && is_newest(b"b", 16));
    }

    #[test]
    fn without_room_what_was_applied_counts_as_unknown() {
        let recent = Recent::new(0);
        let keys: Vec<[u8; 4]> = (0..MOST as u32 + 1).map(u32::to_be_bytes).collect();
        for (ts, key) in (1..).zip(&keys) {
            assert!(recent.note(&[Operation { key, ts, value: None }])[0]);
        }
        assert_eq!(recent.lock().by_hash.len(), 1);
        let again = |ts| recent.note(&[Operation { key: &keys[5], ts, value: None }])[0];
        assert!(!again(MOST as u64) && again(MOST as u64 + 1));
    }
}
