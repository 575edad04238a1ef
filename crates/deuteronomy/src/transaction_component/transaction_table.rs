//! The transaction table: for each recent timestamp, the outcome of the transaction, and the
//! dependencies of its acknowledgement.
//!
//! A ring of entries. An entry is used again only without a loss: its transaction was aborted and
//! left no version, or is committed and durable with all its dependencies. So a version without an
//! entry for its timestamp is committed and durable (`docs/protocols/deuteronomy.md`, D12).

use super::place::Place;
use hyades_platform::broken;
use hyades_platform::prefetch::prefetch;
use hyades_platform::sync::{AtomicU64, Ordering};
use hyades_wal::lsn_vector::{self, INLINE_LANES};
use hyades_wal::{Lane, Lsn, MAX_LANES, admits};

/// The states of an entry, in the lowest bits of its word.
const FREE: u64 = 0;
const ACTIVE: u64 = 1;
const COMMITTED: u64 = 2;
const STATE_BITS: u32 = 2;
const STATE: u64 = (1 << STATE_BITS) - 1;

/// The streams whose dependencies fit on the cache line of an entry.
const NEAR: usize = 6;

/// How many timestamps ahead entries are prefetched.
const AHEAD: u64 = 8;

/// On a separate cache line: neighbours are concurrent transactions of other sessions.
#[derive(Debug)]
#[repr(align(64))]
struct TransactionEntry {
    /// Timestamp and state. Claimed by the beginning transaction, changed by the transaction at its
    /// end.
    word: AtomicU64,
    /// The [`Place`] of the end of the transaction's record.
    own: AtomicU64,
    /// A position of each of the first streams: the transaction's dependencies.
    near: [AtomicU64; NEAR],
}

/// The standing of a transaction with a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The transaction has not ended.
    Active,
    /// The transaction is committed.
    Committed,
}

/// The recently begun transactions.
#[derive(Debug)]
pub(crate) struct TransactionTable {
    entries: Box<[TransactionEntry]>,
    /// For each entry, the transaction's dependencies in the streams behind the first `NEAR`.
    far: Box<[AtomicU64]>,
    streams: usize,
}

impl TransactionTable {
    /// Makes a table of `entries` entries, a power of two.
    pub fn new(entries: usize, streams: usize) -> Self {
        debug_assert!(entries.is_power_of_two(), "{entries} entries");
        let entry = |_| TransactionEntry {
            word: AtomicU64::new(FREE),
            own: AtomicU64::new(Place::NONE.word()),
            near: [(); NEAR].map(|()| AtomicU64::new(0)),
        };
        let far = entries * streams.saturating_sub(NEAR);
        Self {
            entries: (0..entries).map(entry).collect(),
            far: (0..far).map(|_| AtomicU64::new(0)).collect(),
            streams,
        }
    }

    fn index(&self, ts: u64) -> usize {
        ts as usize & (self.entries.len() - 1)
    }

    /// Returns, by stream, the dependencies of an entry's transaction.
    #[inline]
    fn dependencies(&self, index: usize) -> impl Iterator<Item = &AtomicU64> {
        let far = self.streams.saturating_sub(NEAR);
        let near = &self.entries[index].near[..self.streams - far];
        near.iter().chain(&self.far[index * far..][..far])
    }

    /// B4: takes the entry of a timestamp. False if the entry is in use: then the timestamp is of
    /// no use. `durable` tells the durable position of a stream.
    pub fn claim(&self, ts: u64, durable: impl Fn(Lane) -> Lsn) -> bool {
        // The ring is larger than a cache.
        prefetch(&raw const self.entries[self.index(ts + AHEAD)]);
        let index = self.index(ts);
        let entry = &self.entries[index];
        let word = entry.word.load(Ordering::Acquire);
        let is_over = match word & STATE {
            FREE => true,
            COMMITTED if broken!(ReuseUndurable) => true,
            COMMITTED => {
                let own = Place::from_word(entry.own.load(Ordering::Acquire)).get();
                let own = own.map(|(stream, end)| (Lane::position(stream), end));
                let needs = self.dependencies(index).map(|d| d.load(Ordering::Acquire));
                let needs = Lane::first(self.streams).zip(needs).chain(own);
                // If another transaction takes the entry meanwhile, the exchange below fails.
                admits(durable, needs)
            }
            _ => false,
        };
        let active = ts << STATE_BITS | ACTIVE;
        // Acquire and release: the fields are written by a single transaction at a time.
        let exchange = |new| {
            entry.word.compare_exchange(word, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        is_over && exchange(active)
    }

    fn end(&self, ts: u64, state: u64) {
        let entry = &self.entries[self.index(ts)];
        debug_assert_eq!(
            entry.word.load(Ordering::Relaxed),
            ts << STATE_BITS | ACTIVE,
            "transaction {ts} ends twice, or was never active"
        );
        // Release: the transaction's writes into its versions are visible to a thread that finds
        // the transaction ended.
        entry.word.store(ts << STATE_BITS | state, Ordering::Release);
    }

    /// C5, C6: the transaction is committed: from now on other transactions read its versions.
    pub fn commit(&self, ts: u64, own: Place, depends_on: &[u64]) {
        let index = self.index(ts);
        // Release: a reader of any of the values finds the earlier claim as well.
        self.entries[index].own.store(own.word(), Ordering::Release);
        for (entry, lsn) in self.dependencies(index).zip(depends_on) {
            entry.store(*lsn, Ordering::Release);
        }
        self.end(ts, COMMITTED);
    }

    /// A4: the transaction has ended, and has left no version.
    pub fn free(&self, ts: u64) {
        self.end(ts, FREE);
    }

    /// S1, S2: the standing of a version's transaction. The version must be in its list, under the
    /// latch: an aborted transaction takes its versions out before its entry is free.
    pub fn standing(&self, ts: u64) -> Standing {
        let word = self.entries[self.index(ts)].word.load(Ordering::Acquire);
        debug_assert!(word != (ts << STATE_BITS | FREE), "transaction {ts} has left a version");
        match word == (ts << STATE_BITS | ACTIVE) {
            true => Standing::Active,
            false => Standing::Committed,
        }
    }

    /// Whether a transaction found active is still active.
    pub fn is_active(&self, ts: u64) -> bool {
        self.entries[self.index(ts)].word.load(Ordering::Acquire) == ts << STATE_BITS | ACTIVE
    }

    /// Joins into `vector` the positions awaited by dependents of a committed transaction: its
    /// record, and its own dependencies. False if the entry is used again: then all of these are
    /// durable.
    #[must_use]
    #[inline]
    pub fn join(&self, ts: u64, vector: &mut [u64]) -> bool {
        match self.streams <= INLINE_LANES {
            true => self.join_by::<INLINE_LANES>(ts, vector),
            false => self.join_by::<MAX_LANES>(ts, vector),
        }
    }

    /// The same, of at most `LANES` streams.
    fn join_by<const LANES: usize>(&self, ts: u64, vector: &mut [u64]) -> bool {
        let index = self.index(ts);
        let entry = &self.entries[index];
        let committed = ts << STATE_BITS | COMMITTED;
        if entry.word.load(Ordering::Acquire) != committed {
            return false;
        }
        let mut found = [0; LANES];
        let found = &mut found[..self.streams];
        for (found, lsn) in found.iter_mut().zip(self.dependencies(index)) {
            *found = lsn.load(Ordering::Acquire);
        }
        let own = Place::from_word(entry.own.load(Ordering::Acquire));
        // If a field was a later transaction's, the later claim is visible here.
        if entry.word.load(Ordering::Acquire) != committed {
            return false;
        }
        if broken!(NoDependencies) {
            return true;
        }
        if !broken!(DirectDependenciesOnly) {
            lsn_vector::join(vector, found);
        }
        if let Some((stream, end)) = own.get() {
            vector[stream] = vector[stream].max(end);
        }
        true
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// The dependencies of transaction 1: its own record in stream 0, and a version read in stream
    /// 1.
    const FIRST: [u64; 2] = [5, 3];

    struct World {
        table: TransactionTable,
        durable: [AtomicU64; 2],
    }

    impl World {
        /// A single entry, shared by all transactions. Transaction 1 has committed.
        fn new() -> Arc<Self> {
            let (table, durable) = (TransactionTable::new(1, 2), [(); 2].map(|()| 0.into()));
            assert!(table.claim(1, |_| 0));
            table.commit(1, Place::new(0, FIRST[0]), &[0, FIRST[1]]);
            Arc::new(World { table, durable })
        }

        fn durable(&self, stream: usize) -> u64 {
            self.durable[stream].load(Ordering::Acquire)
        }

        /// Takes the entry for a later transaction, if allowed; the transaction commits.
        fn use_again(&self, ts: u64) -> bool {
            let is_claimed = self.table.claim(ts, |lane| self.durable(lane.index()));
            if is_claimed {
                self.table.commit(ts, Place::new(1, 90 + ts), &[70 + ts, 0]);
            }
            is_claimed
        }
    }

    /// A reader finds the dependencies of transaction 1, whole and unmixed, or the entry is used
    /// again: then all dependencies are durable, and known to the reader as durable.
    #[test]
    fn an_entry_that_is_used_again_says_nothing_false_of_its_last_transaction() {
        loom::model(|| {
            let world = World::new();
            let flusher = {
                let world = world.clone();
                thread::spawn(move || {
                    world.durable[0].store(FIRST[0], Ordering::Release);
                    world.durable[1].store(FIRST[1], Ordering::Release);
                })
            };
            let next = {
                let world = world.clone();
                thread::spawn(move || world.use_again(2))
            };
            let mut vector = [0; 2];
            match world.table.join(1, &mut vector) {
                true => assert_eq!(vector, FIRST),
                false => {
                    let durable = [world.durable(0), world.durable(1)];
                    assert_eq!(durable, FIRST, "a dependency is lost");
                }
            }
            assert_eq!(world.table.standing(1), Standing::Committed);
            flusher.join().unwrap();
            next.join().unwrap();
        });
    }

    #[test]
    fn one_of_two_transactions_gets_an_entry() {
        loom::model(|| {
            let world = World::new();
            (0..2).for_each(|at| world.durable[at].store(9, Ordering::Release));
            let other = {
                let world = world.clone();
                thread::spawn(move || world.table.claim(2, |lane| world.durable(lane.index())))
            };
            let own = world.table.claim(3, |lane| world.durable(lane.index()));
            let other = other.join().unwrap();
            assert!(own != other, "{own}, {other}");
            let (active, not) = if own { (3, 2) } else { (2, 3) };
            assert!(world.table.is_active(active) && !world.table.is_active(not));
            world.table.free(active);
            assert!(world.table.claim(4, |_| 0), "an aborted one leaves nothing to wait for");
        });
    }
}
