//! The common slot: holds the vectors of all rows for which no slot is left.
//!
//! The number of slots is bounded. When all are in use, and none can be evicted because a stream is
//! stalled, the rows that need another share one, whose vectors are raised to those of all of them.
//! It is the first of the slots for single rows, is raised in place as these are, and is never
//! marked or reused, so its references do not become stale by reuse.
//!
//! Why this is correct. A row that refers to it stands for at least what it had, because the slot
//! is raised before the reference is published, and never falls. It stands for more than that: for
//! positions that other rows brought in. Each of these was reserved when it was brought in. So a
//! transaction that follows one reserves its own frame later: nothing follows itself, and replay,
//! which does not distinguish these dependencies, has an order. Each is also the end of a frame
//! that a transaction is about to fill or void and that the log then writes like all others:
//! waiting for it ends unless the log stops. A record states all its dependencies, so recovery
//! judges it by the same ones as the run did.
//!
//! The cost: a stalled stream otherwise holds up only the transactions that depend on it; here it
//! holds up all that touch a row in the common slot. This ends by itself. A reference to the common
//! slot has a tick like any other, and once that is evicted the row is; the slot's vectors need
//! never be.

use super::LsnVectorTable;
use super::reference::{self, Kind, PackedReference};
use super::slot::{Slot, raise_lanes};
use hyades_platform::broken;
use hyades_platform::sync::{AtomicU64, Ordering};

/// The number of the common slot.
const COMMON: u32 = 0;

/// The number of slots that are not handed out.
pub(super) const RESERVED: u32 = COMMON + 1;

impl LsnVectorTable {
    /// Returns a reference for rows that have at least these vectors.
    #[cold]
    pub(super) fn use_common(&self, write: &[u64], read: &[u64], replayed: u64) -> PackedReference {
        let slot = self.own.get(COMMON, Kind::Own);
        // Part of what the row had may be evicted, and readers of this slot do not join the
        // eviction vector: it is joined here.
        let mut evicted = vec![0; self.lanes];
        self.load_eviction(&mut evicted);
        raise_lanes(slot.first(), &evicted);
        raise_lanes(slot.second(), &evicted);
        if !broken!(DropCommonSlotVectors) {
            raise_lanes(slot.first(), write);
            raise_lanes(slot.second(), read);
        }
        slot.replayed().fetch_max(replayed, Ordering::Relaxed);
        // The tick is loaded after everything raised here had been reserved.
        reference::pack(COMMON, Kind::Own, self.ticks.now(), 0)
    }

    /// As [`LsnVectorTable::use_common`], with what `fill` would store in a slot of the row's own.
    #[cold]
    pub(super) fn fill_common(
        &self,
        replayed: u64,
        fill: impl FnOnce(Slot<'_>),
    ) -> PackedReference {
        let words: Vec<AtomicU64> = (0..2 + 2 * self.lanes).map(|_| AtomicU64::new(0)).collect();
        let slot = Slot { words: &words, kind: Kind::Own, lanes: self.lanes };
        fill(slot);
        let load = |lanes: &[AtomicU64]| -> Vec<u64> {
            lanes.iter().map(|lane| lane.load(Ordering::Relaxed)).collect()
        };
        self.use_common(&load(slot.first()), &load(slot.second()), replayed)
    }

    /// Whether slots are running short, so that the eviction vector has to be raised to all that is
    /// durable.
    #[inline]
    pub fn is_short_of_slots(&self) -> bool {
        // Relaxed: a hint.
        self.short_of_slots.load(Ordering::Relaxed)
    }

    /// Called before the eviction vector is raised. A session that still needs a new slot
    /// afterwards sets the flag again.
    pub fn clear_shortage(&self) {
        self.short_of_slots.store(false, Ordering::Relaxed);
    }
}
