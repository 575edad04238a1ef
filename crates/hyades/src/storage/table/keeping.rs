//! Rows and entries of a table that open snapshots hold beside its indexes: how they are moved
//! there, and how readers of a snapshot find them. See [`crate::storage::kept`].

use super::walking::as_bytes;
use super::{Lookup, Primary, TableData, WalkPosition};
use crate::error::Abort;
use crate::storage::Stamp;
use crate::storage::kept::{KeptItem, KeptRecord, KeysInOrder};
use crate::storage::old_versions::OldVersions;
use crate::storage::record::{Record, word};
use crate::storage::secondary::IndexEntry;
use crate::storage::tid::Tid;
use bumpalo::Bump;
use hyades_index::{GapHooks, Keyed};
use hyades_platform::broken;
use hyades_platform::reclaim::Guard;
use smallvec::SmallVec;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

/// Records under one key; at most one has a row as of a snapshot.
type Candidates<'g, S> = SmallVec<[&'g Record<S>; 4]>;

/// The callback for each key of a secondary index, with the candidates under the key.
type VisitCandidates<'v, 'g, S> = dyn FnMut(&[u8], &[&'g Record<S>]) -> ControlFlow<()> + 'v;

/// Number of keys after which one call of [`TableData::walk_as_of`] stops.
const KEYS_IN_STEP: usize = 1024;

impl<S: Stamp> TableData<S> {
    /// Whether the primary index is ordered: only then deleted rows are in the way of scans, and
    /// are moved.
    pub fn is_ordered(&self) -> bool {
        matches!(self.primary, Primary::Ordered(_))
    }

    /// Moves a deleted row of an ordered table, held by a snapshot, into the kept tree. The record
    /// is as for [`TableData::unlink`]. Returns the number of kept bytes.
    pub fn move_to_kept(
        &self,
        record: &Record<S>,
        hooks: &dyn GapHooks<S>,
        leave: &dyn Fn(&S),
        guard: &Guard,
    ) -> u64 {
        debug_assert!(self.is_ordered(), "rows of hash tables stay in their index");
        let end = word::tid(record.word.load(Ordering::Acquire));
        let is_late = broken!(LeaveBeforeKept);
        if is_late {
            self.take_out(record, hooks, leave, guard);
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        let kept = self.kept.insert(record.key(), end, KeptRecord::of(record), guard);
        let kept = kept.expect("a version deletes a row once, and moves it once");
        if !is_late {
            self.take_out(record, hooks, leave, guard);
        }
        (kept + record.allocated_bytes()) as u64
    }

    /// Frees a row that no snapshot holds any more. Returns the number of bytes that were kept.
    pub fn free_kept_row(&self, key: &[u8], end: Tid, guard: &Guard) -> u64 {
        self.kept.remove_row(key, end, guard).unwrap_or(0) as u64
    }

    /// Frees an entry that no snapshot needs any more. Returns the number of bytes that were kept.
    pub fn free_kept_entry(&self, index: usize, key: &[u8], end: Tid, guard: &Guard) -> u64 {
        self.secondaries[index].kept.remove(key, end, guard).unwrap_or(0) as u64
    }

    /// Whether an entry matches a version behind its row that an open snapshot may hold; the oldest
    /// and the newest snapshot read as of the two TIDs. The caller holds the row's lock.
    pub fn matches_older(
        &self,
        index: usize,
        entry: &IndexEntry<S>,
        (versions, open): (&OldVersions, (Tid, Tid)),
        guard: &Guard,
    ) -> bool {
        let (record, arena) = (entry.record(), Bump::new());
        versions.any_wanted(record, open, guard, |row| {
            // For a part the answer is not known.
            row.is_none_or(|row| {
                let row = self.whole_row(record, row, &arena);
                self.secondary_key(index, row, record.key())[..] == *entry.key()
            })
        })
    }

    /// Whether such an entry is kept already, and stays as long as any snapshot open now: `newest`
    /// is the last TID of the newest snapshot. A snapshot opened later does not need the entry.
    pub fn has_kept_entry(
        &self,
        index: usize,
        entry: &IndexEntry<S>,
        newest: Tid,
        guard: &Guard,
    ) -> bool {
        self.secondaries[index].kept.has_later(entry.key(), newest.next(), guard)
    }

    /// Visits the kept records under a primary key, for a reader of a snapshot that has found
    /// nothing in the index.
    pub fn visit_kept<'g>(
        &'g self,
        key: &[u8],
        guard: &'g Guard,
        mut visit: impl FnMut(&'g Record<S>) -> ControlFlow<()>,
    ) {
        self.kept.visit(key, guard, |kept| visit(kept.content.get()));
    }

    /// Visits the keys of a range of the primary index, with the records under each key; a reader
    /// of a snapshot takes the record that has a row. `on_leaf` is called ahead of the visits.
    ///
    /// # Errors
    /// The table's primary index is a hash table.
    pub fn scan_as_of<'g>(
        &'g self,
        keys: KeysInOrder<'_>,
        guard: &'g Guard,
        on_leaf: &dyn Fn(&[&'g Record<S>]),
        visit: &mut dyn FnMut(&[&'g Record<S>]) -> ControlFlow<()>,
    ) -> Result<(), Abort> {
        let Primary::Ordered(tree) = &self.primary else { return Err(Abort::UnknownHandle) };
        self.kept.merge(tree, keys, guard, on_leaf, &mut |linked, kept| match (linked, kept) {
            (Some(record), []) => visit(&[record]),
            _ => visit(&Self::candidates(linked, kept)),
        });
        Ok(())
    }

    fn candidates<'g>(
        linked: Option<&'g Record<S>>,
        kept: &[&'g KeptItem<KeptRecord<S>>],
    ) -> Candidates<'g, S> {
        linked.into_iter().chain(kept.iter().map(|kept| kept.content.get())).collect()
    }

    /// Visits the keys of a range of a secondary index, like [`TableData::scan_as_of`]: with the
    /// records under each key, one of which may have a row that matches the key, as of a snapshot.
    pub fn scan_index_as_of<'g>(
        &'g self,
        index: usize,
        keys: KeysInOrder<'_>,
        guard: &'g Guard,
        on_leaf: &dyn Fn(&[&'g IndexEntry<S>]),
        visit: &mut VisitCandidates<'_, 'g, S>,
    ) {
        let secondary = &self.secondaries[index];
        secondary.kept.merge(&secondary.tree, keys, guard, on_leaf, &mut |linked, kept| {
            let Some(first) = kept.first() else {
                return linked.map_or(ControlFlow::Continue(()), |entry| {
                    visit(entry.key(), &[entry.record()])
                });
            };
            // A kept entry does not refer to the record: the record may have been freed since. The
            // row is looked up by its primary key, as of the snapshot.
            let key = first.index_key();
            let primary = &key[key.len() - first.content..];
            let mut candidates: Candidates<'g, S> =
                linked.map(IndexEntry::record).into_iter().collect();
            if let Lookup::Found(record) = self.find(primary, guard) {
                candidates.push(record);
            }
            self.visit_kept(primary, guard, |record| {
                candidates.push(record);
                ControlFlow::Continue(())
            });
            visit(key, &candidates)
        });
    }

    /// Visits the next keys of a walk over all rows of a snapshot, like [`TableData::walk`], with
    /// the records of each key.
    pub fn walk_as_of<'g>(
        &'g self,
        at: &mut WalkPosition,
        guard: &'g Guard,
        mut visit: impl FnMut(&[&'g Record<S>]) -> ControlFlow<()>,
    ) {
        if !self.is_ordered() {
            return self.walk(at, guard, |record| visit(&[record]));
        }
        let (lower, upper) = std::mem::replace(at, WalkPosition::End).into_bounds();
        let (lower, until) = (as_bytes(&lower), as_bytes(&upper));
        let keys = KeysInOrder { lower, upper: until, descending: false };
        let mut visited = 0;
        let walked = self.scan_as_of(keys, guard, &|_| (), &mut |records| {
            visited += 1;
            if visit(records).is_break() || visited == KEYS_IN_STEP {
                *at = WalkPosition::behind(records[0].key(), upper.clone());
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        debug_assert!(walked.is_ok(), "the table is ordered");
    }
}
