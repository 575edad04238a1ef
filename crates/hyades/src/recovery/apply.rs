//! Applies data records: changes are installed by row version, in any order.
//!
//! Every row has the TID of its last writer, and an image is installed only if newer. A delta names
//! its base version, and so do edits; both are held until the row has the base version, or a newer
//! version.

use super::former_changes;
use super::replay::{DeferredGarbage, ReplayContext};
use super::tombstones::{Tombstone, Tombstones};
use crate::concurrency::replaying::{self, RowLock};
use crate::engine::RowIdBlock;
use crate::error::Error;
use crate::garbage::Garbage;
use crate::logging::predecessors::Id;
use crate::logging::record::{Change, RecordHead, TableShape, take_change};
use crate::logging::row_frame::Before;
use crate::storage::Stamp;
use crate::storage::edits::expand_edits;
use crate::storage::key::KeyBytes;
use crate::storage::layout::Layout;
use crate::storage::old_versions::OldVersionWriter;
use crate::storage::record::{Record, word};
use crate::storage::row::Assignments;
use crate::storage::table::{Lookup, Placed, TableData};
use crate::storage::tid::Tid;
use crate::storage::usage::{LocalUsage, change_of};
use hyades_index::{Finger, Keyed, NoHooks};
use hyades_platform::broken;
use hyades_platform::epoch::EpochNumber;
use hyades_platform::reclaim::Guard;
use hyades_platform::sync::Unpoisoned;
use std::sync::atomic::Ordering;

/// State of one thread for applying data records.
#[derive(Default)]
pub(crate) struct Applier {
    scratch: Vec<u8>,
    old: Vec<u8>,
    /// A change of a former table.
    converted: Vec<u8>,
    /// The delta made from edits.
    pub(super) expanded: Vec<u8>,
    pub tombstones: Tombstones,
    /// Whether rows have several versions, by TID.
    pub by_timestamp: bool,
    /// Whether the state before the replay is served meanwhile, see [`super::serving`].
    pub serves: bool,
    pub(super) old_versions: OldVersionWriter,
    stale: Garbage,
    /// The usage added to the tables.
    usage: LocalUsage,
    pub images: u64,
}

impl Applier {
    /// Applies a data record's body.
    pub fn apply<S: Stamp>(
        &mut self,
        replay: &ReplayContext<S>,
        head: &RecordHead,
        body: &[u8],
        guard: &Guard,
    ) -> Result<(), Error> {
        let mut rest = body;
        while !rest.is_empty() {
            if !self.apply_next(replay, head.tid, &mut rest, guard) {
                return Err(Error::Recovery(format!(
                    "the data record of transaction {} does not fit the declared tables, though \
                     its checksum is right",
                    head.tid
                )));
            }
        }
        if !self.serves {
            let writer = self.old_versions.replayed().id;
            defer_garbage(replay, (writer, head.tid), &mut self.stale);
        }
        Ok(())
    }

    /// Decodes the next change in `rest` and applies it as transaction `tid`'s. Returns false if
    /// the change does not fit the tables.
    pub fn apply_next<S: Stamp>(
        &mut self,
        replay: &ReplayContext<S>,
        tid: Tid,
        rest: &mut &[u8],
        guard: &Guard,
    ) -> bool {
        let start = *rest;
        let Some((at, key, change)) = Self::next_change(replay, rest) else {
            *rest = start;
            return self.apply_former(replay, tid, rest, guard);
        };
        self.apply_change(replay, at, &key, tid, change, guard);
        self.images += 1;
        true
    }

    /// Like [`Applier::apply_next`], for a change of a former table.
    #[cold]
    fn apply_former<S: Stamp>(
        &mut self,
        replay: &ReplayContext<S>,
        tid: Tid,
        rest: &mut &[u8],
        guard: &Guard,
    ) -> bool {
        let mut converted = std::mem::take(&mut self.converted);
        let next = former_changes::next_change(replay, rest, &mut converted);
        let fits = next.is_some();
        if let Some((at, key, change)) = next.flatten() {
            let table = &replay.engine.tables[at];
            if !matches!(change, Change::Put(_)) && !table.accepts_key(&key) {
                return false;
            }
            count_row_id(replay, table.keyless, &key);
            self.apply_change(replay, at, &key, tid, change, guard);
            self.images += 1;
        }
        self.converted = converted;
        fits
    }

    /// Decodes the next change in `rest`: the table's position, the key and the change. `None` if
    /// the change does not fit the declared tables.
    pub fn next_change<'a, S: Stamp>(
        replay: &ReplayContext<S>,
        rest: &mut &'a [u8],
    ) -> Option<(usize, KeyBytes, Change<'a>)> {
        let tables = &replay.engine.tables;
        let shape = |id| {
            let table = &tables[replay.catalogue.table(id)?];
            let (layout, keyless) = (&table.layout, table.keyless);
            Some(TableShape { layout, keyless, key_bytes: table.key_bytes })
        };
        let (id, key, change) = take_change(rest, shape)?;
        let at = replay.catalogue.table(id).expect("it had a shape");
        let table = &tables[at];
        let key = key_of(&table.layout, key, change);
        // A whole row contains its key.
        if !matches!(change, Change::Put(_)) && !table.accepts_key(&key) {
            return None;
        }
        count_row_id(replay, table.keyless, &key);
        Some((at, key, change))
    }

    /// Restores a row's before-image if transaction `tid` wrote the row last.
    pub fn undo_change<S: Stamp>(
        &mut self,
        replay: &ReplayContext<S>,
        at: usize,
        key: &[u8],
        tid: Tid,
        before: Before<'_>,
        guard: &Guard,
    ) {
        let table = &replay.engine.tables[at];
        // One thread runs the undo pass after the end of all replay threads, so the row's lock is
        // free.
        let Lookup::Found(record) = table.find(key, guard) else { return };
        let Some(mut lock) = RowLock::take(record) else { return };
        if word::tid(lock.version) == tid {
            let Before { base, image, .. } = before;
            lock.version = self.install(table, record, lock.version, base, image, guard);
            if lock.version & word::ABSENT != 0 {
                let (table, key, tid) =
                    (at as u32, KeyBytes::from_slice(key), word::tid(lock.version));
                self.tombstones.push(Tombstone { table, key, tid });
            }
        }
    }

    fn apply_change<S: Stamp>(
        &mut self,
        replay: &ReplayContext<S>,
        at: usize,
        key: &[u8],
        tid: Tid,
        change: Change<'_>,
        guard: &Guard,
    ) {
        let table = &replay.engine.tables[at];
        // Another thread may be applying another version of the same row, or removing the row
        // object from its index: then the key is looked up again.
        let (record, mut lock) = loop {
            let record = match table.find(key, guard) {
                Lookup::Found(record) => record,
                Lookup::Missing(_) => {
                    let row_bytes = match change {
                        Change::Put(row) => table.bytes_in_record(row),
                        _ => 0,
                    };
                    let finger = &mut Finger::new(guard);
                    match table.place(key, row_bytes, word::ABSENT, 0, &NoHooks, finger) {
                        Placed::New(record, _) | Placed::Exists(record) => record,
                    }
                }
            };
            match RowLock::take(record) {
                Some(lock) => break (record, lock),
                None if replay.has_failed() => return,
                None => std::thread::yield_now(),
            }
        };
        let version = lock.version;
        let current = word::tid(version);
        let now = match change {
            change if tid <= current && !broken!(ApplyOlder) => {
                self.insert_older_version(replay, (table, record, version), tid, change, guard);
                version
            }
            Change::Delta { base, .. } | Change::Edits { base, .. }
                if base != current && !broken!(ApplyToAnyVersion) =>
            {
                let row = (at, KeyBytes::from_slice(key));
                replay.held.hold(record, row, base, tid, change);
                version
            }
            change => {
                debug_assert!(
                    tid > current || broken!(ApplyOlder),
                    "a version is replaced by a later one"
                );
                self.keep_overwritten(replay, (table, record, version), tid, guard);
                self.install_newer(replay, (table, record, version), tid, change, guard)
            }
        };
        let now = self.apply_held_deltas(replay, at, record, now, guard);
        if now & word::ABSENT != 0 && now != version {
            let (table, key) = (at as u32, KeyBytes::from_slice(key));
            match self.keeps_versions() {
                true => self.stale.add_row_of(table, key, word::tid(now).epoch()),
                false => self.tombstones.push(Tombstone { table, key, tid: word::tid(now) }),
            }
        }
        lock.version = now;
    }

    /// Keeps a version overwritten by transaction `tid`, where commands read as of a timestamp.
    pub(super) fn keep<S: Stamp>(
        &mut self,
        replay: &ReplayContext<S>,
        row: (&Record<S>, u64),
        tid: Tid,
        guard: &Guard,
    ) {
        let versions = replay.engine.snapshots.versions();
        let to = (&mut self.old_versions, guard);
        if let Err(what) = replaying::keep_for_records(versions, row, tid, None, to) {
            replay.fail(Error::Recovery(format!("transaction {tid} {what}")));
        }
    }

    /// Applies the held deltas that follow the row's version, one after the other.
    fn apply_held_deltas<S: Stamp>(
        &mut self,
        replay: &ReplayContext<S>,
        at: usize,
        record: &Record<S>,
        mut version: u64,
        guard: &Guard,
    ) -> u64 {
        let table = &replay.engine.tables[at];
        while let Some(held) = replay.held.take(record, word::tid(version)) {
            debug_assert!(held.tid > word::tid(version), "a delta produces a later version");
            if self.by_timestamp {
                self.keep(replay, (record, version), held.tid, guard);
            } else if self.serves {
                self.keep_served(replay, (table, record, version), held.tid, guard);
            }
            let change = held.change(word::tid(version));
            let row = (table, record, version);
            version = self.install_newer(replay, row, held.tid, change, guard);
        }
        version
    }

    /// Installs a change of the current version of a row. The row's lock is held. Returns the new
    /// version word.
    fn install_newer<S: Stamp>(
        &mut self,
        replay: &ReplayContext<S>,
        (table, record, version): (&TableData<S>, &Record<S>, u64),
        tid: Tid,
        change: Change<'_>,
        guard: &Guard,
    ) -> u64 {
        let Change::Edits { base, edits } = change else {
            return self.install(table, record, version, tid, change, guard);
        };
        let mut delta = std::mem::take(&mut self.expanded);
        self.old.clear();
        let expanded = if version & word::ABSENT == 0 {
            table.read_row(record, &mut self.old);
            expand_edits(&table.layout, &self.old, edits, &mut delta)
        } else {
            None
        };
        let now = match expanded {
            Some(()) => {
                let change = Change::Delta { base, delta: &delta };
                self.install(table, record, version, tid, change, guard)
            }
            None => {
                replay.fail(Error::Recovery(format!(
                    "transaction {tid} changes a row of table {:?} whose version {base} has other \
                     values than the log says",
                    table.layout.name
                )));
                version
            }
        };
        self.expanded = delta;
        now
    }

    /// Installs a change in a row, updates the row's index entries, and returns the new version
    /// word. The row's lock is held.
    fn install<S: Stamp>(
        &mut self,
        table: &TableData<S>,
        record: &Record<S>,
        version: u64,
        tid: Tid,
        change: Change<'_>,
        guard: &Guard,
    ) -> u64 {
        debug_assert!(is_locked(record), "a change is installed under the row's lock");
        debug_assert_eq!(version & (word::LOCKED | word::DEAD), 0, "the word before the lock");
        let indexed = !table.secondaries.is_empty();
        let there = version & word::ABSENT == 0;
        self.old.clear();
        if indexed && there {
            table.read_row(record, &mut self.old);
        }
        let gone = matches!(change, Change::Delete);
        let (columns, grown) = match change {
            Change::Put(row) => (u64::MAX, table.store_row(record, row, guard, &mut self.scratch)),
            Change::Delta { delta, .. } => {
                let columns = Assignments::new(&table.layout, delta)
                    .fold(0, |set, (column, _)| set | 1 << column);
                (columns, table.store_delta(record, columns, delta, guard, &mut self.scratch))
            }
            Change::Delete => (u64::MAX, 0),
            Change::Edits { .. } => unreachable!("edits are expanded before"),
        };
        self.usage.add(table.layout.table, change_of(record, (there, !gone), grown));
        if indexed && columns & table.indexed != 0 {
            self.scratch.clear();
            if !gone {
                table.read_row(record, &mut self.scratch);
            }
            let old = there.then_some(&self.old[..]);
            let new = (!gone).then_some(&self.scratch[..]);
            let stale = self.keeps_versions().then_some((&mut self.stale, tid));
            reindex(table, record, old, new, stale, guard);
        }
        word::of(tid) | if gone { word::ABSENT } else { 0 }
    }

    /// Whether rows have several versions, so that deleted rows and index entries stay.
    fn keeps_versions(&self) -> bool {
        self.by_timestamp || self.is_listed() || self.serves
    }

    /// Hands over the remaining tombstones, for removal at the end.
    pub fn finish<S: Stamp>(mut self, replay: &ReplayContext<S>) {
        replay.add_usage(self.usage.take());
        replay.engine.snapshots.versions().end_writer(&mut self.old_versions);
        self.tombstones.hand_over(replay);
        if !self.stale.is_empty() {
            replay.left.lock().unpoisoned().append(&mut self.stale);
        }
    }
}

/// Whether a thread holds the lock of a row object.
pub(super) fn is_locked<S>(record: &Record<S>) -> bool {
    record.word.load(Ordering::Relaxed) & word::LOCKED != 0
}

/// Updates a row's entries in the secondary indexes. If `stale` is given, the old entries are noted
/// there, as stale since the TID, and stay, because commands reading older versions may need the
/// entries. The caller holds the row's lock.
fn reindex<S: Stamp>(
    table: &TableData<S>,
    record: &Record<S>,
    old: Option<&[u8]>,
    new: Option<&[u8]>,
    mut stale: Option<(&mut Garbage, Tid)>,
    guard: &Guard,
) {
    debug_assert!(is_locked(record), "entries of a row change under the row's lock");
    for at in 0..table.secondaries.len() {
        let old_key = old.map(|row| table.secondary_key(at, row, record.key()));
        let new_key = new.map(|row| table.secondary_key(at, row, record.key()));
        if old_key == new_key {
            continue;
        }
        if let Some(key) = new_key {
            let (entry, _) = table
                .link(at, &key, record, &NoHooks, &mut Finger::new(guard))
                .expect("a record is not dead while its lock is held");
            entry.unpin();
        }
        if let (Some(key), Some((stale, since))) = (&old_key, &mut stale) {
            stale.add_entry(table.layout.table, at as u16, key.clone(), *since);
            continue;
        }
        if let Some(key) = old_key
            && let Some(entry) = table.secondaries[at].tree.find(&key, guard)
        {
            debug_assert_eq!(entry.key(), &key[..]);
            table.unlink_entry(at, entry, None, &NoHooks, &|_| (), guard);
        }
    }
}

/// Keeps a record's garbage until all records still to be replayed see the record's writes.
pub(crate) fn defer_garbage<S: Stamp>(
    replay: &ReplayContext<S>,
    (writer, tid): (Id, Tid),
    garbage: &mut Garbage,
) {
    if !garbage.is_empty() {
        let garbage = std::mem::take(garbage);
        let left = DeferredGarbage { writer, epoch: tid.epoch(), garbage };
        replay.later.lock().unpoisoned().push_back(left);
    }
}

/// Returns the key of a decoded change. Whole rows may come without a key: the row contains the
/// key.
#[inline]
pub(super) fn key_of(layout: &Layout, key: Option<&[u8]>, change: Change<'_>) -> KeyBytes {
    match (key, change) {
        (Some(key), _) => KeyBytes::from_slice(key),
        (None, Change::Put(row)) => {
            let mut key = KeyBytes::new();
            layout.primary_key_of(row, &mut key);
            key
        }
        (None, _) => unreachable!("only whole rows come without their key"),
    }
}

/// Raises the maximum row id to the key of a row in a table without a primary key.
#[inline]
fn count_row_id<S: Stamp>(replay: &ReplayContext<S>, keyless: bool, key: &[u8]) {
    if keyless && let Ok(id) = <[u8; 8]>::try_from(key) {
        let id = u64::from_be_bytes(id);
        if replay.counts.max_row_id.load(Ordering::Relaxed) < id {
            replay.counts.max_row_id.fetch_max(id, Ordering::Relaxed);
        }
    }
}

/// Raises the maximum epoch and row id to the values of a record.
pub(crate) fn count<S: Stamp>(replay: &ReplayContext<S>, head: &RecordHead) {
    let counts = &replay.counts;
    let EpochNumber(epoch) = head.tid.epoch();
    if counts.max_epoch.load(Ordering::Relaxed) < epoch {
        counts.max_epoch.fetch_max(epoch, Ordering::Relaxed);
    }
    if let Some(&id) = head.row_ids.iter().max() {
        // Calls logged before they ran state the number of a block.
        let id = if head.slots.is_some() { RowIdBlock::last_of(id) } else { id };
        counts.max_row_id.fetch_max(id, Ordering::Relaxed);
    }
}
