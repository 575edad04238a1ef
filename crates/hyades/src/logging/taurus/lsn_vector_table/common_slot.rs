//! The common slot: holds the vectors of all rows for which no slot is left.
//!
//! The number of slots is bounded. When all slots are in use, and no slot can be evicted because a
//! stream is stalled, the rows in need of a slot share the common slot, with vectors raised to the
//! vectors of all these rows. The common slot is the first of the slots for single rows, is raised
//! in place like them, and is never marked or reused, so references to the slot do not become stale
//! by reuse.
//!
//! Why sharing is correct. A row in the common slot stands for at least its former vectors, because
//! the slot is raised before the reference is published, and never falls. The row stands for more:
//! for positions that other rows brought in. Each such position had been reserved before. So a
//! transaction that follows the position reserves its own frame later: nothing follows itself, and
//! replay, which does not distinguish the added dependencies, has an order. Each position is also
//! the end of a frame that a transaction is about to fill or void and the log then writes like
//! every frame: waiting for the position ends unless the log stops. A record states all its
//! dependencies, so recovery judges the record by the same dependencies as the run did.
//!
//! The cost: a stalled stream otherwise holds up only the transactions that depend on the stream;
//! here the stream holds up all transactions that touch a row in the common slot. The effect ends
//! by itself. A reference to the common slot has a tick like any other, and with the tick the row
//! is evicted; the slot's vectors need never be.

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
    /// Returns a reference that stands for at least the given vectors.
    #[cold]
    pub(super) fn use_common(&self, write: &[u64], read: &[u64], replayed: u64) -> PackedReference {
        let slot = self.own.get(COMMON, Kind::Own);
        // Part of the row's vectors may be evicted, and readers of the common slot do not join the
        // eviction vector: the join is here.
        let mut evicted = vec![0; self.lanes];
        self.load_eviction(&mut evicted);
        raise_lanes(slot.first(), &evicted);
        raise_lanes(slot.second(), &evicted);
        if !broken!(DropCommonSlotVectors) {
            raise_lanes(slot.first(), write);
            raise_lanes(slot.second(), read);
        }
        slot.replayed().fetch_max(replayed, Ordering::Relaxed);
        // The tick is loaded after all positions raised here had been reserved.
        reference::pack(COMMON, Kind::Own, self.ticks.now(), 0)
    }

    /// As [`LsnVectorTable::use_common`], with the vectors that `fill` would store in the row's own
    /// slot.
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

    /// Returns whether slots are running short, so that the eviction vector has to be raised to all
    /// durable positions.
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
