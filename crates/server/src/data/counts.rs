//! Numbers of keys, by generation. The numbers are kept beside the tables: they are counted when
//! the server starts and changed after each commit, so that no transaction conflicts over a
//! counter.
//!
//! A member of a replicated database that becomes the primary counts while clients write already:
//! the count is of a snapshot from before the first write, so the sum of both is exact in the end.
//! The numbers of a standby are of the last count.

use hyades_platform::sync::Unpoisoned;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, RwLock};

#[derive(Debug, Default)]
struct GenerationCounters {
    keys: AtomicI64,
    expiring: AtomicI64,
}

type ByGeneration = HashMap<u64, Arc<GenerationCounters>>;

/// The numbers of keys of all generations.
#[derive(Debug, Default)]
pub struct KeyCounts {
    numbers: RwLock<ByGeneration>,
    /// Not all keys are counted. Written by the thread that counts; a reader that sees an earlier
    /// value counts by itself, or misses what was written just now.
    is_partial: AtomicBool,
}

/// A change of the numbers of one generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountChange {
    /// The generation.
    pub generation: u64,
    /// Change of the number of keys.
    pub keys: i64,
    /// Change of the number of keys with an expiry.
    pub expiring: i64,
}

impl KeyCounts {
    /// Whether all keys are counted.
    #[inline]
    pub fn is_exact(&self) -> bool {
        !self.is_partial.load(Relaxed)
    }

    /// Says whether all keys are counted.
    #[cfg(feature = "replication")]
    pub fn set_exact(&self, is_exact: bool) {
        self.is_partial.store(!is_exact, Relaxed);
    }

    /// Takes the numbers of another count in place of all numbers.
    #[cfg(feature = "replication")]
    pub fn replace(&self, counted: KeyCounts) {
        *self.numbers.write().unpoisoned() = counted.numbers.into_inner().unpoisoned();
    }

    /// Applies a change.
    pub fn apply(&self, change: CountChange) {
        if change.keys == 0 && change.expiring == 0 {
            return;
        }
        let known = self.numbers.read().unpoisoned().get(&change.generation).cloned();
        let counters = known.unwrap_or_else(|| {
            self.numbers.write().unpoisoned().entry(change.generation).or_default().clone()
        });
        counters.keys.fetch_add(change.keys, Relaxed);
        counters.expiring.fetch_add(change.expiring, Relaxed);
    }

    /// The number of keys of a generation, and of keys with an expiry. Expired keys count until
    /// they are removed.
    pub fn of(&self, generation: u64) -> (i64, i64) {
        let counters = self.numbers.read().unpoisoned().get(&generation).cloned();
        counters.map_or((0, 0), |numbers| {
            (numbers.keys.load(Relaxed).max(0), numbers.expiring.load(Relaxed).max(0))
        })
    }

    /// The number of keys of some generations together.
    pub fn of_all(&self, generations: &[u64]) -> i64 {
        generations.iter().map(|generation| self.of(*generation).0).sum()
    }

    /// The number of keys of all generations.
    pub fn all(&self) -> i64 {
        let counters = self.numbers.read().unpoisoned();
        counters.values().map(|numbers| numbers.keys.load(Relaxed)).sum::<i64>().max(0)
    }

    /// The number of keys with an expiry of all generations.
    pub fn expiring(&self) -> i64 {
        let counters = self.numbers.read().unpoisoned();
        counters.values().map(|numbers| numbers.expiring.load(Relaxed)).sum::<i64>().max(0)
    }

    /// Forgets the generations that `is_dead` names, if they have no keys left. Returns whether a
    /// dead generation is left that has keys.
    pub fn forget(&self, is_dead: impl Fn(u64) -> bool) -> bool {
        let mut counters = self.numbers.write().unpoisoned();
        counters
            .retain(|generation, numbers| !is_dead(*generation) || numbers.keys.load(Relaxed) != 0);
        counters.keys().any(|generation| is_dead(*generation))
    }
}
