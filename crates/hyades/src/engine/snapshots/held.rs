//! What open snapshots hold in memory: older versions of rows, and rows and index entries that have
//! left their index ([`crate::storage::kept`]).
//!
//! Older versions are freed as soon as no snapshot holds them, those rows and entries by sessions,
//! little by little. So the limit counts what open snapshots still need of them: what was ended
//! after a snapshot is charged to the newest one that is older. That one needs it, and with it each
//! open snapshot before; a later one does not.

use super::{NONE, Registry, Snapshots};
use crate::storage::tid::Tid;
use hyades_platform::broken;
use hyades_platform::epoch::{Epoch, EpochNumber};
use hyades_platform::sync::Unpoisoned;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of kept rows and entries. Relaxed: they only tell when to end snapshots.
#[derive(Default)]
pub(super) struct KeptBytes {
    /// All that are not freed. Changed by the sessions that keep and free them.
    there: AtomicU64,
    /// Those that open snapshots need. Written under the lock of the registry.
    needed: AtomicU64,
}

/// By the epoch of a snapshot: the bytes that are charged to it.
pub(super) type ChargedBytes = BTreeMap<EpochNumber, u64>;

impl KeptBytes {
    /// Called when the oldest open snapshot has changed.
    pub fn publish(&self, charged: &ChargedBytes, oldest: EpochNumber) {
        let needed = charged.range(oldest..).map(|(_, bytes)| bytes).sum();
        self.needed.store(needed, Ordering::Relaxed);
    }
}

impl Snapshots {
    /// The lowest TID that any snapshot reads as of.
    pub fn oldest_snapshot(&self) -> Tid {
        Tid::last_of(self.oldest())
    }

    /// The lowest TID that any transaction reads as of, or any record to come at replay, which read
    /// nothing but what is in the indexes.
    pub fn oldest_transaction(&self, epoch: &Epoch) -> Tid {
        if broken!(UnlinkForReaders) {
            return Tid::ABOVE_ALL;
        }
        self.lowest_reader(epoch).min(self.versions.floor())
    }

    /// The lowest and the highest TID that open snapshots read as of. One opened from now on needs
    /// nothing that was ended before.
    pub fn span(&self) -> (Tid, Tid) {
        let newest = EpochNumber(self.newest.load(Ordering::SeqCst));
        (self.oldest_snapshot(), Tid::last_of(newest))
    }

    /// A TID that is not below that of any transaction that has committed by now.
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

    /// Whether readers have to be ended, because what they need takes too much memory.
    pub(super) fn hold_too_much(&self) -> bool {
        let needed = self.versions.full_bytes() + self.kept.needed.load(Ordering::Relaxed);
        needed > self.settings.memory
    }

    /// Counts what is kept beside an index. [`Snapshots::charge`] is called later.
    pub fn has_kept(&self, bytes: u64) {
        self.kept.there.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts what was kept and is freed.
    pub fn has_freed(&self, bytes: u64) {
        let before = self.kept.there.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "what is freed was counted when it was kept");
    }

    /// Charges bytes, of what was kept since the last call, to the snapshots that need them: it was
    /// ended by versions up to `end`. Ends the oldest snapshots if they hold too much.
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
