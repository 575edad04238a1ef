//! Numbers of keys, by generation. The numbers are kept beside the tables: they are counted when
//! the server starts and changed after each commit, so that no transaction conflicts over a
//! counter.

use hyades_platform::sync::Unpoisoned;
use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, RwLock};

#[derive(Debug, Default)]
struct GenerationCounters {
    keys: AtomicI64,
    expiring: AtomicI64,
}

/// The numbers of keys of all generations.
#[derive(Debug, Default)]
pub struct KeyCounts(RwLock<HashMap<u64, Arc<GenerationCounters>>>);

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
    /// Applies a change.
    pub fn apply(&self, change: CountChange) {
        if change.keys == 0 && change.expiring == 0 {
            return;
        }
        let known = self.0.read().unpoisoned().get(&change.generation).cloned();
        let counters = known.unwrap_or_else(|| {
            self.0.write().unpoisoned().entry(change.generation).or_default().clone()
        });
        counters.keys.fetch_add(change.keys, Relaxed);
        counters.expiring.fetch_add(change.expiring, Relaxed);
    }

    /// The number of keys of a generation, and of keys with an expiry. Expired keys count until
    /// they are removed.
    pub fn of(&self, generation: u64) -> (i64, i64) {
        let counters = self.0.read().unpoisoned().get(&generation).cloned();
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
        let counters = self.0.read().unpoisoned();
        counters.values().map(|numbers| numbers.keys.load(Relaxed)).sum::<i64>().max(0)
    }

    /// The number of keys with an expiry of all generations.
    pub fn expiring(&self) -> i64 {
        let counters = self.0.read().unpoisoned();
        counters.values().map(|numbers| numbers.expiring.load(Relaxed)).sum::<i64>().max(0)
    }

    /// Forgets the generations that `is_dead` names, if they have no keys left. Returns whether a
    /// dead generation is left that has keys.
    pub fn forget(&self, is_dead: impl Fn(u64) -> bool) -> bool {
        let mut counters = self.0.write().unpoisoned();
        counters
            .retain(|generation, numbers| !is_dead(*generation) || numbers.keys.load(Relaxed) != 0);
        counters.keys().any(|generation| is_dead(*generation))
    }
}
