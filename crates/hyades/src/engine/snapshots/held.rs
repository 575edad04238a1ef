//! The memory held by open snapshots: older versions of rows, and rows and index entries that have
//! left their index ([`crate::storage::kept`]).
//!
//! Older versions are freed as soon as no snapshot holds them; sessions free the rows and entries,
//! little by little. So the limit counts the rows and entries that open snapshots still need: an
//! item ended after a snapshot is charged to the newest older snapshot. The newest older snapshot
//! needs the item, and so does each open snapshot before; a later snapshot does not.

use super::{NONE, Registry, Snapshots};
use crate::storage::tid::Tid;
use hyades_platform::broken;
use hyades_platform::epoch::{Epoch, EpochNumber};
use hyades_platform::sync::Unpoisoned;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of kept rows and entries. Relaxed: the counts only tell when to end snapshots.
#[derive(Default)]
pub(super) struct KeptBytes {
    /// All bytes not freed. Changed by the sessions that keep and free rows and entries.
    there: AtomicU64,
    /// The bytes needed by open snapshots. Written under the lock of the registry.
    needed: AtomicU64,
}

/// By the epoch of a snapshot: the bytes charged to the snapshot.
pub(super) type ChargedBytes = BTreeMap<EpochNumber, u64>;

impl KeptBytes {
    /// Called when the oldest open snapshot has changed.
    pub fn publish(&self, charged: &ChargedBytes, oldest: EpochNumber) {
        let needed = charged.range(oldest..).map(|(_, bytes)| bytes).sum();
        self.needed.store(needed, Ordering::Relaxed);
    }
}

impl Snapshots {
    /// The lowest read timestamp of any snapshot.
    pub fn oldest_snapshot(&self) -> Tid {
        Tid::last_of(self.oldest())
    }

    /// The lowest read timestamp of any transaction, or of any record to come at replay; both read
    /// only rows and entries in the indexes.
    pub fn oldest_transaction(&self, epoch: &Epoch) -> Tid {
        if broken!(UnlinkForReaders) {
            return Tid::ABOVE_ALL;
        }
        self.lowest_reader(epoch).min(self.versions.floor())
    }

    /// The lowest and the highest read timestamp of open snapshots. A snapshot opened from now on
    /// needs nothing ended before.
    pub fn span(&self) -> (Tid, Tid) {
        let newest = EpochNumber(self.newest.load(Ordering::SeqCst));
        (self.oldest_snapshot(), Tid::last_of(newest))
    }

    /// A TID not below the TID of any transaction committed by now.
    pub fn latest(&self, epoch: &Epoch) -> Tid {
        match &self.readers {
            Some(readers) => readers.latest(epoch),
            None => Tid::last_of(epoch.current()),
        }
    }

    /// Bytes of memory held for snapshots.
    pub fn bytes(&self) -> u64 {
        self.versions.bytes() + self.kept.there.load(Ordering::Relaxed)
    }

    /// Whether readers have to be ended, because their versions take too much memory.
    pub(super) fn hold_too_much(&self) -> bool {
        let needed = self.versions.full_bytes() + self.kept.needed.load(Ordering::Relaxed);
        needed > self.settings.memory
    }

    /// Counts bytes kept beside an index. [`Snapshots::charge`] is called later.
    pub fn has_kept(&self, bytes: u64) {
        self.kept.there.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts kept bytes that are freed.
    pub fn has_freed(&self, bytes: u64) {
        let before = self.kept.there.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "what is freed was counted when it was kept");
    }

    /// Charges the bytes kept since the last call to the snapshots that need them: versions up to
    /// `end` ended the kept items. Ends the oldest snapshots if they hold too much.
    pub fn charge(&self, bytes: u64, end: Tid, epoch: &Epoch) {
        let mut registry = self.registry.lock().unpoisoned();
        let Registry { open, charged, .. } = &mut *registry;
        let oldest = open.front().map_or(NONE, |open| open.state.epoch);
        charged.retain(|snapshot, _| *snapshot >= oldest);
        if let Some(open) = open.iter().rev().find(|open| open.state.last < end) {
            *charged.entry(open.state.epoch).or_default() += bytes;
        }
        self.kept.publish(charged, oldest);
        drop(registry);
        if self.hold_too_much() {
            self.end_readers(self.latest(epoch), epoch);
        }
    }
}
