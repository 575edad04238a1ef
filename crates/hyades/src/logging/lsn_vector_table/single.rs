//! Rows whose vector is the cold one but for one lane: a reference of [`Kind::Single`](reference::Kind) says
//! it all.
//!
//! It has the low bits of the position. What is not cold is not far above the cold vector, so that the rest
//! follows from any position of the lane that is not far from it. A row of which nobody has heard for so long
//! that its tick has come round, and its low bits as well, seems to have a later position; that is one up to
//! which the stream is reserved all the same, so that to follow it is not wrong.

use super::reference::{self, LOW, PackedReference, Single};
use super::slot::raise_lanes;
use super::{Into, LsnVectorTable, Raise, Ring, RowObservation};
use crate::logging::lanes::zip_lanes;
use hyades_platform::sync::Ordering;

impl LsnVectorTable {
    /// Whether all lanes of a vector but this one are at or below the cold vector.
    #[inline]
    pub fn is_single(&self, vector: &[u64], lane: usize) -> bool {
        let mut at = 0;
        let mut above = 0;
        zip_lanes(vector, &self.cold, |lsn, cold| {
            above |= u64::from(*lsn > cold.load(Ordering::Acquire)) << at;
            at += 1;
        });
        above & !(1 << lane) == 0
    }

    /// The transaction has its place, at `lsn` in `lane`, and all other lanes of its vector are at or below the
    /// cold vector: its rows need no slot. False if it is too far from what is cold to be told by its low bits.
    #[inline(always)]
    pub fn take_single(&self, ring: &mut Ring, lane: usize, lsn: u64) -> bool {
        // See `position`: what is not cold is not far above it.
        let near = lsn.wrapping_sub(self.cold[lane].load(Ordering::Acquire)) <= LOW / 4;
        if near {
            ring.single = Some((lane, lsn));
            ring.taken = reference::pack_single(lane, lsn, self.ticks.now());
        }
        near
    }

    /// The position that a reference has the low bits of. If the reference is not that of a cold row whose tick
    /// has come round, it is this one; otherwise it is one up to which the stream is reserved, which may
    /// stand for it.
    #[inline]
    fn position(&self, single: Single, ring: &mut Ring) -> u64 {
        let Single { lane, low, .. } = single;
        let known = ring.reserved[lane].max(self.cold[lane].load(Ordering::Acquire));
        let behind = known.wrapping_sub(low) & LOW;
        if behind <= LOW / 2 {
            return known.saturating_sub(behind);
        }
        // It is above what is known, not far below: it is at most LOW / 4 above the cold vector, or cold.
        self.later_position(single, ring)
    }

    #[cold]
    fn later_position(&self, Single { lane, low, .. }: Single, ring: &mut Ring) -> u64 {
        // The reference was loaded before this, and its position reserved before that.
        let reserved = (self.reserved)(lane);
        ring.reserved[lane] = reserved;
        reserved.saturating_sub(reserved.wrapping_sub(low) & LOW)
    }

    pub(super) fn fold_single(
        &self,
        single: Single,
        into: Into<'_>,
        ring: &mut Ring,
    ) -> RowObservation {
        if single.read && matches!(into, Into::Write(_)) {
            return RowObservation::COLD;
        }
        let lsn = self.position(single, ring);
        let raise = |vector: &mut [u64]| vector[single.lane] = vector[single.lane].max(lsn);
        match into {
            Into::Write(vector) | Into::Both(vector) => raise(vector),
            Into::Apart(write, both) => {
                if !single.read {
                    raise(write);
                }
                raise(both);
            }
        }
        RowObservation { warm: true, replayed: None, cold: true }
    }

    /// A reference for a row that has one of a single position, raised. `None` if that says all of it already.
    pub(super) fn succeed(
        &self,
        single: Single,
        to: &Raise<'_>,
        ring: &mut Ring,
    ) -> Option<PackedReference> {
        let lsn = self.position(single, ring);
        if let (true, None, Some((lane, own))) = (single.read, to.write, ring.single)
            && lane == single.lane
        {
            // Of two readers in one lane the later stands for both.
            return (lsn < own).then(|| reference::of_reader(ring.taken));
        }
        Some(self.take_own(ring, to.replayed, |slot| {
            self.load_cold_into(slot.first());
            self.load_cold_into(slot.second());
            let had = if single.read { slot.second() } else { slot.first() };
            raise_lanes(&had[single.lane..=single.lane], &[lsn]);
            if let Some(write) = to.write {
                raise_lanes(slot.first(), write);
            }
            raise_lanes(slot.second(), to.read);
        }))
    }
}
