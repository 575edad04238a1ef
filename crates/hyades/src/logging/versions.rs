//! Several versions of a row during replay (Taurus 2016, sections 5.2 and 5.3): a command reads the
//! versions that it read when it ran, though later writers may have been replayed before it.
//!
//! Which version: *the latest whose writer is in the RAW list* (5.2). A writer counts as listed if its
//! place is covered by the record's vector, that is, by the anchor in effect at the record or by what
//! it read of gaps. That is right: let W have written a row that T read, and stand at or below such a
//! position. W had locked the row before it took its place, and T learnt of that position before T
//! was validated (or while T held its locks). So T either saw what W wrote, or something later, or
//! failed. So among the versions of a row those that T sees, in this sense, are the one that it read
//! and older ones. A WAW predecessor may count too: were one of its other writes later than what T
//! read, each of the two would precede the other.
//!
//! **The sync records** (5.3) are the anchors, for the same reason: what an anchor covers, all that
//! stands behind it in its stream sees. So once replay has come beyond an anchor in every stream, of
//! the versions that all these anchors cover only the latest is wanted.
//!
//! The newest version stands in the row itself, older ones here. A row is changed under its lock bit,
//! and what is changed is kept here first: a reader that finds nothing kept, then copies the row, then
//! finds its version word as before, has copied what it was to see.

use super::predecessors::{self, Id, Predecessor};
use crate::storage::address_hasher::AddressHasher;
use crate::storage::record::{Record, word};
use hyades_wal::Lsn;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard};

const SHARDS: usize = 64;

/// Which versions a record sees, and how its own are named.
#[derive(Debug, Default)]
pub(crate) struct View {
    /// The record's own name; 0 where rows have one version only.
    pub own: Id,
    named: Vec<Id>,
    positions: Vec<Lsn>,
}

impl View {
    /// The view of the record `own`.
    pub fn set(&mut self, own: Id, list: &[Predecessor], positions: &[Lsn]) {
        self.own = own;
        self.named.clear();
        self.named.extend(list.iter().map(|predecessor| predecessor.id));
        self.positions.clear();
        self.positions.extend_from_slice(positions);
    }

    /// Whether what this record wrote is seen. 0 stands for all that was there before.
    fn sees(&self, writer: Id) -> bool {
        writer == 0
            || predecessors::end(writer) <= self.positions[predecessors::lane(writer)]
            || self.named.binary_search(&writer).is_ok()
    }
}

/// The versions of a row.
#[derive(Default)]
struct Chain {
    /// Who wrote the one in the row.
    newest: Id,
    /// The others, oldest first. Where none is seen, the row is absent.
    older: SmallVec<[Old; 1]>,
}

struct Old {
    writer: Id,
    tid: u64,
    /// `None` where the row was absent.
    row: Option<Box<[u8]>>,
}

impl Chain {
    /// How much there is to forget of it.
    fn weight(&self) -> usize {
        self.older.len().max(1)
    }
}

/// By the row's address: rows that have older versions leave their index only when these are gone.
type VersionShard = HashMap<usize, Chain, BuildHasherDefault<AddressHasher>>;

/// Rows that have older versions.
pub(crate) struct Versions {
    shards: Box<[Mutex<VersionShard>]>,
    /// How many versions there are to forget. Relaxed: it tells when to look for some that may go.
    kept: AtomicUsize,
}

impl Default for Versions {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Versions { shards, kept: AtomicUsize::new(0) }
    }
}

/// The version word of a row that nobody is changing.
fn stable_word<S>(record: &Record<S>) -> u64 {
    let mut looks = 0u32;
    loop {
        let seen = record.word.load(Ordering::Acquire);
        if seen & word::LOCKED == 0 {
            return seen;
        }
        looks += 1;
        if looks.is_multiple_of(64) {
            // Who changes it may have lost its processor.
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

impl Versions {
    fn shard<S>(&self, record: &Record<S>) -> (MutexGuard<'_, VersionShard>, usize) {
        let address = std::ptr::from_ref(record) as usize;
        let hash = (address >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48;
        (self.shards[hash % SHARDS].lock().expect("no holder panics"), address)
    }

    /// How many versions there are to forget.
    pub fn kept(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }

    /// Whether the row has one version only.
    pub fn is_single<S>(&self, record: &Record<S>) -> bool {
        let (shard, address) = self.shard(record);
        !shard.contains_key(&address)
    }

    /// Puts the row as `view` sees it into `out`; false if it is absent.
    pub fn read<S>(&self, record: &Record<S>, view: &View, out: &mut Vec<u8>) -> bool {
        self.see(record, view, |row| {
            out.clear();
            match row {
                Some(Some(old)) => out.extend_from_slice(old),
                Some(None) => record.read_row(out),
                None => {}
            }
        })
    }

    /// Whether the row is there, as `view` sees it.
    pub fn is_there<S>(&self, record: &Record<S>, view: &View) -> bool {
        self.see(record, view, |_| ())
    }

    /// Calls `copy` on the version that is seen: the bytes of an older one, or `Some(None)` for the one
    /// in the row, which may have to be copied again; `None` for none.
    fn see<S>(
        &self,
        record: &Record<S>,
        view: &View,
        mut copy: impl FnMut(Option<Option<&[u8]>>),
    ) -> bool {
        loop {
            let seen = stable_word(record);
            let (shard, address) = self.shard(record);
            if let Some(chain) = shard.get(&address).filter(|chain| !view.sees(chain.newest)) {
                let old = chain.older.iter().rev().find(|old| view.sees(old.writer));
                let row = old.and_then(|old| old.row.as_deref());
                copy(row.map(Some));
                return row.is_some();
            }
            drop(shard);
            let there = seen & word::ABSENT == 0;
            copy(if there { Some(None) } else { None });
            // The copy comes before the second look.
            fence(Ordering::Acquire);
            if record.word.load(Ordering::Relaxed) == seen {
                return there;
            }
        }
    }

    /// The row, whose lock bit the caller has set and whose version word is `version`, is about to be
    /// changed by `writer`.
    pub fn supersede<S>(&self, record: &Record<S>, version: u64, writer: Id) {
        let row = (version & word::ABSENT == 0).then(|| {
            let mut row = Vec::with_capacity(record.row_len());
            record.read_row(&mut row);
            row.into_boxed_slice()
        });
        let (mut shard, address) = self.shard(record);
        let (chain, before) = match shard.entry(address) {
            Entry::Occupied(entry) => {
                let chain = entry.into_mut();
                let before = chain.weight();
                (chain, before)
            }
            Entry::Vacant(entry) => (entry.insert(Chain::default()), 0),
        };
        if row.is_some() || chain.newest != 0 {
            chain.older.push(Old { writer: chain.newest, tid: word::tid(version), row });
        }
        chain.newest = writer;
        self.kept.fetch_add(chain.weight() - before, Ordering::Relaxed);
    }

    /// A version that comes late: the row has a newer one already, whose writer was a blind one and did not
    /// have to wait, because one between the two was lost.
    pub fn slip_in<S>(&self, record: &Record<S>, tid: u64, writer: Id, row: Option<&[u8]>) {
        let (mut shard, address) = self.shard(record);
        // If all see the newer one, nobody is left to see this one.
        let Some(chain) = shard.get_mut(&address) else { return };
        let before = chain.weight();
        let at = chain.older.partition_point(|old| old.tid < tid);
        chain.older.insert(at, Old { writer, tid, row: row.map(Box::from) });
        self.kept.fetch_add(chain.weight() - before, Ordering::Relaxed);
    }

    /// The older version `tid` of the row, if it is kept and the row was there.
    pub fn older<S>(&self, record: &Record<S>, tid: u64) -> Option<Vec<u8>> {
        let (shard, address) = self.shard(record);
        let old = shard.get(&address)?.older.iter().find(|old| old.tid == tid)?;
        old.row.as_deref().map(<[u8]>::to_vec)
    }

    /// Drops the versions that nobody will see: all that is still to be replayed sees what `covered`
    /// covers.
    pub fn collect(&self, covered: &[Lsn]) {
        let seen_by_all = |writer: Id| {
            writer == 0 || predecessors::end(writer) <= covered[predecessors::lane(writer)]
        };
        for shard in &self.shards {
            shard.lock().expect("no holder panics").retain(|_, chain| {
                let before = chain.weight();
                let single = seen_by_all(chain.newest);
                let last = chain.older.iter().rposition(|old| seen_by_all(old.writer));
                if let Some(last) = last.filter(|_| !single) {
                    chain.older.drain(..last);
                }
                let gone = if single { before } else { before - chain.weight() };
                self.kept.fetch_sub(gone, Ordering::Relaxed);
                !single
            });
        }
    }

    /// Forgets all older versions.
    pub fn clear(&self) {
        self.shards.iter().for_each(|shard| shard.lock().expect("no holder panics").clear());
        self.kept.store(0, Ordering::Relaxed);
    }
}
