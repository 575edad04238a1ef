//! The common slot: where vectors go for which there is no slot.
//!
//! There may be only so many slots. When all are in use, and none gets cold because a stream stands still, the rows
//! that need another share one, whose vectors are raised to those of all of them. It is the first of those for one row, is
//! raised in place as these are, and is never marked nor given out again: all who find it find it as it is.
//!
//! The argument. A row that refers to it stands for at least what it had, because the slot is raised before the reference is
//! published, and never goes back. It stands for more than that: for positions that others have brought
//! here. Each of these was reserved when it came. So whoever follows one reserves its own frame later: nothing follows
//! itself, and replay, which knows no difference, has an order. And each is the end of a frame that a
//! transaction is about to fill or void and that the log then writes, as it does all others: who waits for it waits for nothing
//! that does not come unless the log stops. What a record depends on stands in the record, so that recovery judges it
//! by the same as the run did.
//!
//! What is lost is that a stream which stands still holds up only those who depend on it: it holds up all who touch a row
//! that is here. This ends by itself. A reference to the common slot bears a tick as any other does, and once that is cold
//! the row is; the vectors need never get cold.

use super::LsnVectorTable;
use super::reference::{self, Kind, PackedReference};
use super::slot::{Slot, raise_lanes};
use hyades_platform::mutation::{self, Mutation};
use hyades_platform::sync::{AtomicU64, Ordering};

/// The number of the common slot.
const COMMON: u32 = 0;

/// So many numbers are not handed out.
pub(super) const RESERVED: u32 = COMMON + 1;

impl LsnVectorTable {
    /// A reference for rows that have these vectors, at least.
    #[cold]
    pub(super) fn use_common(&self, write: &[u64], read: &[u64], replayed: u64) -> PackedReference {
        let slot = self.own.get(COMMON, Kind::Own);
        // What the row had that was cold, in part at least: nobody who finds this slot joins the cold vector.
        let mut cold = vec![0; self.lanes];
        self.load_cold(&mut cold);
        raise_lanes(slot.first(), &cold);
        raise_lanes(slot.second(), &cold);
        if !mutation::is(Mutation::ForgetCommon) {
            raise_lanes(slot.first(), write);
            raise_lanes(slot.second(), read);
        }
        slot.replayed().fetch_max(replayed, Ordering::Relaxed);
        // After what was raised had been reserved.
        reference::pack(COMMON, Kind::Own, self.ticks.now(), 0)
    }

    /// As [`LsnVectorTable::use_common`], for what `fill` would put into a slot of the row's own.
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

    /// Whether slots get few, or there is none: the cold vector is to be raised to all that is durable.
    #[inline]
    pub fn is_pressed(&self) -> bool {
        // Relaxed: a hint.
        self.pressed.load(Ordering::Relaxed)
    }

    /// The cold vector is about to be raised. Whoever wants a new slot after that says so again.
    pub fn relieve(&self) {
        self.pressed.store(false, Ordering::Relaxed);
    }
}
