//! Several versions of a row during replay (Taurus 2016, sections 5.2 and 5.3): a replayed command
//! reads the same versions as in its first run, even if later writers were replayed earlier.
//!
//! The version to read: *the latest whose writer is in the RAW list* (5.2). A writer counts as
//! listed if the writer's position is covered by the record's vector, that is, by the anchor in
//! effect at the record or by the record's reads of gaps. The rule is correct: let W have written,
//! at a covered position, a row that T read. W had locked the row before W reserved the position,
//! and T learnt of the covering position before T was validated (or while T held its locks). So T
//! saw W's version, or a later version, or failed. So of a row's versions, T sees in this sense the
//! version that T read and older versions. A WAW predecessor P may count too: were another write of
//! P later than a version that T read, P and T would precede each other.
//!
//! **The sync records** (5.3) are the anchors, for the same reason: a record behind an anchor in
//! the same stream sees everything covered by the anchor. So once replay has passed an anchor in
//! every stream, only the latest of the versions covered by all the anchors is needed.
//!
//! **Epochs** tell the same of an idle stream without a new anchor. Let T have read the version
//! that D overwrote. T reserved its place before T was validated (or while T held its locks), and D
//! locked the row afterwards, and read D's epoch then. A record F of a later epoch read the epoch
//! still later, and reserved a place after that. So T stands before F in T's stream. Once all
//! records before an F of a later epoch have been replayed, or are dead, in each stream, no record
//! needs a version overwritten by D, or by another writer of D's epoch.
//!
//! The newest version is in the row itself, older versions are here. A row is changed under its
//! lock bit, and the old content is saved here first: a reader that finds nothing saved, then
//! copies the row, then finds the version word unchanged, has copied the right version.

use super::predecessors::{self, Id, Predecessor};
use crate::storage::Stamp;
use crate::storage::address_hasher::AddressHasher;
use crate::storage::record::{Record, word};
use crate::storage::table::TableData;
use crate::storage::tid::Tid;
use hyades_platform::broken;
use hyades_platform::epoch::EpochNumber;
use hyades_platform::sync::Unpoisoned;
use hyades_wal::Lsn;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard};

const SHARDS: usize = 64;

/// The versions that a record sees, and the record's own id.
#[derive(Debug, Default)]
pub(crate) struct View {
    /// The record's own id; 0 where rows have one version only.
    pub own: Id,
    named: Vec<Id>,
    positions: Vec<Lsn>,
}

impl View {
    /// Sets the view of the record `own`.
    pub fn set(&mut self, own: Id, list: &[Predecessor], positions: &[Lsn]) {
        self.own = own;
        self.named.clear();
        self.named.extend(list.iter().map(|predecessor| predecessor.id));
        self.positions.clear();
        self.positions.extend_from_slice(positions);
    }

    /// Returns whether the versions of `writer` are seen. 0 stands for all earlier content.
    fn sees(&self, writer: Id) -> bool {
        writer == 0
            || predecessors::end(writer) <= self.positions[predecessors::lane(writer)]
            || self.named.binary_search(&writer).is_ok()
            || broken!(SeeUnlistedVersions)
    }
}

/// The versions of a row.
#[derive(Default)]
struct Chain {
    /// The writer of the version in the row.
    newest: Id,
    newest_tid: Tid,
    /// The older versions, oldest first. If none is seen, the row is absent.
    older: SmallVec<[Old; 1]>,
}

struct Old {
    writer: Id,
    tid: Tid,
    /// The whole row; `None` if the row was absent.
    row: Option<Box<[u8]>>,
}

/// The versions seen by every record still to be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommonView {
    /// By stream: all writers up to this position.
    pub positions: Vec<Lsn>,
    /// All writers of earlier epochs.
    pub epoch: EpochNumber,
}

impl CommonView {
    /// Returns whether the versions of `writer` are seen. 0 stands for all earlier content.
    pub fn covers(&self, writer: Id, epoch: EpochNumber) -> bool {
        // Broken by several epochs, which histories notice soon.
        let too_many = if broken!(DropVersionsOfOpenEpochs) { 3 } else { 0 };
        writer == 0
            || epoch.0 < self.epoch.0.saturating_add(too_many)
            || predecessors::end(writer) <= self.positions[predecessors::lane(writer)]
    }
}

/// The older versions that may be dropped later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeptVersions {
    pub number: usize,
    /// Bytes of the versions' rows.
    pub bytes: usize,
}

impl Old {
    fn bytes(&self) -> usize {
        self.row.as_ref().map_or(0, |row| row.len())
    }
}

impl Chain {
    /// Returns the chain's share in the number of [`Versions::kept`].
    fn weight(&self) -> usize {
        self.older.len().max(1)
    }

    /// Returns the chain's share in [`Versions::kept`].
    fn kept(&self) -> KeptVersions {
        let bytes = self.older.iter().map(Old::bytes).sum();
        KeptVersions { number: self.weight(), bytes }
    }
}

/// By the row's address: rows with older versions leave their index only when the older versions
/// are dropped.
type VersionShard = HashMap<usize, Chain, BuildHasherDefault<AddressHasher>>;

/// The older versions of rows.
pub(crate) struct Versions {
    shards: Box<[Mutex<VersionShard>]>,
    /// The number of versions that may be dropped later, and the bytes of their rows. Relaxed: the
    /// counts only tell when to collect.
    kept: AtomicUsize,
    kept_bytes: AtomicUsize,
}

impl Default for Versions {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Versions { shards, kept: AtomicUsize::new(0), kept_bytes: AtomicUsize::new(0) }
    }
}

/// Waits until the row is unlocked, and returns its version word.
fn stable_word<S>(record: &Record<S>) -> u64 {
    let mut looks = 0u32;
    loop {
        let seen = record.word.load(Ordering::Acquire);
        if seen & word::LOCKED == 0 {
            return seen;
        }
        looks += 1;
        if looks.is_multiple_of(64) {
            // The thread that changes the row may be descheduled.
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
        (self.shards[hash % SHARDS].lock().unpoisoned(), address)
    }

    /// Returns the extent of the versions that may be dropped later.
    pub fn kept(&self) -> KeptVersions {
        let load = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        KeptVersions { number: load(&self.kept), bytes: load(&self.kept_bytes) }
    }

    fn keep(&self, number: usize, bytes: usize) {
        self.kept.fetch_add(number, Ordering::Relaxed);
        self.kept_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns whether the row has one version only.
    pub fn is_single<S>(&self, record: &Record<S>) -> bool {
        let (shard, address) = self.shard(record);
        !shard.contains_key(&address)
    }

    /// Copies the whole row as `view` sees it to `out`; false if the row is absent.
    pub fn read<S: Stamp>(
        &self,
        table: &TableData<S>,
        record: &Record<S>,
        view: &View,
        out: &mut Vec<u8>,
    ) -> bool {
        self.see(record, view, |row| {
            out.clear();
            match row {
                Some(Some(old)) => out.extend_from_slice(old),
                Some(None) => table.read_row(record, out),
                None => {}
            }
        })
    }

    /// Returns whether the row exists, as `view` sees it.
    pub fn is_there<S>(&self, record: &Record<S>, view: &View) -> bool {
        self.see(record, view, |_| ())
    }

    /// Calls `copy` with the visible version: the bytes of an older version; `Some(None)` for the
    /// version in the row, which may have to be copied again; `None` if the row is absent. Returns
    /// whether the row exists.
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
            // The copy comes before the second load.
            fence(Ordering::Acquire);
            if record.word.load(Ordering::Relaxed) == seen {
                return there;
            }
        }
    }

    /// Saves the row before `writer` changes it. The caller has set the row's lock bit; `version`
    /// is the row's version word.
    pub fn supersede<S: Stamp>(
        &self,
        table: &TableData<S>,
        record: &Record<S>,
        version: u64,
        (writer, tid): (Id, Tid),
    ) {
        let row = (version & word::ABSENT == 0).then(|| {
            let mut row = Vec::with_capacity(record.row_len());
            table.read_row(record, &mut row);
            row.into_boxed_slice()
        });
        let bytes = row.as_ref().map_or(0, |row| row.len());
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
        (chain.newest, chain.newest_tid) = (writer, tid);
        self.keep(chain.weight() - before, bytes);
    }

    /// Adds a version that was replayed late: the row already has a newer version, a blind write
    /// that did not have to wait because a version between the two was lost.
    pub fn insert_older_version<S>(
        &self,
        record: &Record<S>,
        tid: Tid,
        writer: Id,
        row: Option<&[u8]>,
    ) {
        let (mut shard, address) = self.shard(record);
        // Without a chain all records see the newer version, and no record needs the late version.
        let Some(chain) = shard.get_mut(&address) else { return };
        let before = chain.weight();
        let at = chain.older.partition_point(|old| old.tid < tid);
        chain.older.insert(at, Old { writer, tid, row: row.map(Box::from) });
        self.keep(chain.weight() - before, row.map_or(0, <[u8]>::len));
    }

    /// Returns the older version `tid` of the row, if the version is kept and the row existed.
    pub fn older<S>(&self, record: &Record<S>, tid: Tid) -> Option<Vec<u8>> {
        let (shard, address) = self.shard(record);
        let old = shard.get(&address)?.older.iter().find(|old| old.tid == tid)?;
        old.row.as_deref().map(<[u8]>::to_vec)
    }

    /// Calls `visit` with the older versions of the row in which the row existed.
    pub fn visit_older<S>(&self, record: &Record<S>, visit: impl FnMut(&[u8])) {
        let (shard, address) = self.shard(record);
        let older = shard.get(&address).into_iter().flat_map(|chain| &chain.older);
        older.filter_map(|old| old.row.as_deref()).for_each(visit);
    }

    /// Drops the versions that no record will see: every record still to be replayed sees the
    /// versions covered by `common`.
    pub fn collect(&self, common: &CommonView) {
        for shard in &self.shards {
            shard.lock().unpoisoned().retain(|_, chain| {
                let before = chain.kept();
                let single = common.covers(chain.newest, chain.newest_tid.epoch());
                let is_seen = |old: &Old| common.covers(old.writer, old.tid.epoch());
                let last = chain.older.iter().rposition(is_seen);
                if let Some(last) = last.filter(|_| !single) {
                    chain.older.drain(..last);
                }
                let left = if single { KeptVersions::default() } else { chain.kept() };
                self.kept.fetch_sub(before.number - left.number, Ordering::Relaxed);
                self.kept_bytes.fetch_sub(before.bytes - left.bytes, Ordering::Relaxed);
                !single
            });
        }
    }

    /// Drops all older versions.
    pub fn clear(&self) {
        self.shards.iter().for_each(|shard| shard.lock().unpoisoned().clear());
        self.kept.store(0, Ordering::Relaxed);
        self.kept_bytes.store(0, Ordering::Relaxed);
    }
}
