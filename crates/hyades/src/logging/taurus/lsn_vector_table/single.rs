//! Rows with a vector equal to the eviction vector except in a single component: a reference of
//! [`Kind::Single`](reference::Kind) holds the whole vector.
//!
//! The reference has the low bits of the position. A position that is not evicted is not far above
//! the eviction vector, so the high bits follow from any nearby position of the component.
//! Wrap-around: when the tick of a stale reference has wrapped around, and the low bits too, the
//! reference seems to have a later position. The later position is already reserved, so following
//! it only adds a conservative dependency.

use super::reference::{self, LOW, PackedReference, Single};
use super::slot::raise_lanes;
use super::{FoldTarget, LsnVectorTable, Raise, Ring, RowObservation};
use crate::logging::lanes::zip_lanes;
use hyades_platform::sync::Ordering;

impl LsnVectorTable {
    /// Returns whether all components of a vector except `lane` are covered by the eviction vector.
    #[inline]
    pub fn is_single(&self, vector: &[u64], lane: usize) -> bool {
        let mut at = 0;
        let mut above = 0;
        zip_lanes(vector, &self.eviction, |lsn, evicted| {
            above |= u64::from(*lsn > evicted.load(Ordering::Acquire)) << at;
            at += 1;
        });
        above & !(1 << lane) == 0
    }

    /// Called when the transaction has a position, `lsn` in `lane`, and all other components of the
    /// vector are evicted: the transaction's rows need no slot. False if the position is too far
    /// from the eviction vector to be reconstructed from the low bits.
    #[inline(always)]
    pub fn take_single(&self, ring: &mut Ring, lane: usize, lsn: u64) -> bool {
        // See `position`: a position not evicted is not far above the eviction vector.
        let near = lsn.wrapping_sub(self.eviction[lane].load(Ordering::Acquire)) <= LOW / 4;
        if near {
            ring.single = Some((lane, lsn));
            ring.taken = reference::pack_single(lane, lsn, self.ticks.now());
        }
        near
    }

    /// Reconstructs a position from the low bits. If the reference is of an evicted row with a
    /// wrapped tick, the result may be a later, already reserved position.
    #[inline]
    fn position(&self, single: Single, ring: &mut Ring) -> u64 {
        let Single { lane, low, .. } = single;
        let known = ring.reserved[lane].max(self.eviction[lane].load(Ordering::Acquire));
        let behind = known.wrapping_sub(low) & LOW;
        if behind <= LOW / 2 {
            return known.saturating_sub(behind);
        }
        // The position is above `known`, not far below: at most LOW / 4 above the eviction vector,
        // or evicted.
        self.later_position(single, ring)
    }

    #[cold]
    fn later_position(&self, Single { lane, low, .. }: Single, ring: &mut Ring) -> u64 {
        // The position was reserved before the load of the reference, which precedes the load here.
        let reserved = (self.reserved)(lane);
        ring.reserved[lane] = reserved;
        reserved.saturating_sub(reserved.wrapping_sub(low) & LOW)
    }

    pub(super) fn fold_single(
        &self,
        single: Single,
        into: FoldTarget<'_>,
        ring: &mut Ring,
    ) -> RowObservation {
        if single.read && matches!(into, FoldTarget::Write(_)) {
            return RowObservation::EVICTED;
        }
        let lsn = self.position(single, ring);
        let raise = |vector: &mut [u64]| vector[single.lane] = vector[single.lane].max(lsn);
        match into {
            FoldTarget::Write(vector) | FoldTarget::Both(vector) => raise(vector),
            FoldTarget::Apart(write, both) => {
                if !single.read {
                    raise(write);
                }
                raise(both);
            }
        }
        RowObservation { warm: true, replayed: None, joins_eviction: true }
    }

    /// Returns the raised reference of a row with a single position; `None` if the position already
    /// covers the raise.
    pub(super) fn raise_single(
        &self,
        single: Single,
        to: &Raise<'_>,
        ring: &mut Ring,
    ) -> Option<PackedReference> {
        let lsn = self.position(single, ring);
        if let (true, None, Some((lane, own))) = (single.read, to.write, ring.single)
            && lane == single.lane
        {
            // Of two readers with the same component the later stands for both.
            return (lsn < own).then(|| reference::of_reader(ring.taken));
        }
        Some(self.take_own(ring, to.replayed, |slot| {
            self.load_eviction_into(slot.first());
            self.load_eviction_into(slot.second());
            let had = if single.read { slot.second() } else { slot.first() };
            raise_lanes(&had[single.lane..=single.lane], &[lsn]);
            if let Some(write) = to.write {
                raise_lanes(slot.first(), write);
            }
            raise_lanes(slot.second(), to.read);
        }))
    }
}
