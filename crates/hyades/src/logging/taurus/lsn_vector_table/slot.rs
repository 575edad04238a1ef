//! A slot of the LSN vector table: reads of a slot while the owner may reuse the slot.
//!
//! A slot has a head, with the generation and whether the owner is changing the slot (marked), and
//! one or two vectors. Invariant: everything read between two checks that found the same generation
//! unmarked ([`Slot::is_of`], [`Slot::is_still`]) is of that generation.

use super::reference::Kind;
use super::{FoldTarget, RowObservation};
use crate::logging::lanes::{zip_lanes, zip_lanes_mut};
use hyades_platform::sync::{AtomicU64, Ordering, fence};
use hyades_platform::sync::{spin_hint, yield_now};
use hyades_wal::MAX_LANES;
use hyades_wal::lsn_vector::{join, uses_vector_instructions};

/// The flag in a slot's head, generation << 1 | flag: the owner is changing the slot.
pub(super) const MARKED: u64 = 1;

/// The size of groups of components that are copied together without vector instructions, so that
/// copies stay in registers.
const GROUP: usize = 8;

/// See the module.
#[derive(Clone, Copy)]
pub(super) struct Slot<'a> {
    pub words: &'a [AtomicU64],
    pub kind: Kind,
    pub lanes: usize,
}

impl<'a> Slot<'a> {
    #[inline]
    pub fn head(self) -> &'a AtomicU64 {
        &self.words[0]
    }
    #[inline]
    pub fn replayed(self) -> &'a AtomicU64 {
        &self.words[1]
    }
    /// Returns the write vector; in a [`Kind::Read`] slot the read vector.
    #[inline]
    pub fn first(self) -> &'a [AtomicU64] {
        &self.words[2..2 + self.lanes]
    }
    /// Returns the read vector of a [`Kind::Own`] slot.
    #[inline]
    pub fn second(self) -> &'a [AtomicU64] {
        &self.words[2 + self.lanes..2 + 2 * self.lanes]
    }

    /// Waits until the slot is unmarked in `generation`; false if the slot has another generation.
    #[inline]
    pub fn is_of(self, generation: u64) -> bool {
        let mut looks = 0u32;
        loop {
            // Acquire: the owner's stores before the removal of the mark are seen; and where the
            // generation differs, later loads of the eviction vector come after the load of the
            // head.
            let head = self.head().load(Ordering::Acquire);
            if head >> 1 != generation {
                return false;
            }
            if head & MARKED == 0 {
                return true;
            }
            looks += 1;
            if looks.is_multiple_of(64) {
                // The owner may be descheduled.
                yield_now();
            } else {
                spin_hint();
            }
        }
    }

    /// Returns whether the slot is unchanged since `is_of`: reads in between are valid.
    #[inline]
    pub fn is_still(self, generation: u64) -> bool {
        // Loads before the fence are not reordered after the load behind the fence.
        fence(Ordering::Acquire);
        self.head().load(Ordering::Relaxed) == generation << 1
    }

    /// Joins the slot's vectors.
    pub fn fold(self, generation: u64, into: FoldTarget<'_>) -> RowObservation {
        // Common numbers of streams, with loops that the compiler can unroll.
        match self.lanes {
            1 => self.fold_fixed::<1>(generation, into),
            2 => self.fold_fixed::<2>(generation, into),
            4 => self.fold_fixed::<4>(generation, into),
            8 => self.fold_fixed::<8>(generation, into),
            // All components are joined at once where the processor has vector instructions.
            _ if uses_vector_instructions() => self.fold_any::<MAX_LANES>(generation, into),
            _ => self.fold_any::<GROUP>(generation, into),
        }
    }

    /// As [`Slot::fold`], for `N` components.
    #[inline]
    fn fold_fixed<const N: usize>(self, generation: u64, into: FoldTarget<'_>) -> RowObservation {
        let lanes = |lanes: &[AtomicU64], ordering| -> [u64; N] {
            let lanes: &[AtomicU64; N] = lanes.try_into().expect("as many lanes as vectors have");
            std::array::from_fn(|at| lanes[at].load(ordering))
        };
        let all = !matches!(into, FoldTarget::Write(_));
        if self.kind == Kind::Read && !all {
            return RowObservation::EVICTED;
        }
        loop {
            if !self.is_of(generation) {
                return RowObservation::EVICTED;
            }
            let replayed = self.replayed().load(Ordering::Relaxed);
            let first = lanes(self.first(), Ordering::Relaxed);
            let own = all && self.kind == Kind::Own;
            // SeqCst: as in `fold_any`.
            let second = if own { lanes(self.second(), Ordering::SeqCst) } else { [0; N] };
            if !self.is_still(generation) {
                continue;
            }
            // Component by component: the components are in registers, and a wide load would wait
            // for their stores.
            let raise = |vector: &mut [u64], to: &[u64; N]| {
                zip_lanes_mut(vector, to, |lane, lsn| *lane = (*lane).max(*lsn));
            };
            match into {
                FoldTarget::Write(write) => raise(write, &first),
                FoldTarget::Both(both) => {
                    raise(both, &first);
                    if own {
                        raise(both, &second);
                    }
                }
                FoldTarget::Apart(write, both) => {
                    if self.kind != Kind::Read {
                        raise(write, &first);
                    }
                    raise(both, &first);
                    if own {
                        raise(both, &second);
                    }
                }
            }
            let joins_eviction = self.is_evicted_in_part(all);
            return RowObservation { warm: true, replayed: Some(replayed), joins_eviction };
        }
    }

    /// As [`Slot::fold`], for any number of components, in groups of `N`.
    fn fold_any<const N: usize>(self, generation: u64, into: FoldTarget<'_>) -> RowObservation {
        let (mut write, mut both) = match into {
            FoldTarget::Write(write) => (Some(write), None),
            FoldTarget::Both(both) => (None, Some(both)),
            FoldTarget::Apart(write, both) => (Some(write), Some(both)),
        };
        if self.kind == Kind::Read {
            write = None;
        }
        let all = both.is_some();
        if write.is_none() && !all {
            return RowObservation::EVICTED;
        }
        'again: loop {
            if !self.is_of(generation) {
                return RowObservation::EVICTED;
            }
            let replayed = self.replayed().load(Ordering::Relaxed);
            for from in (0..self.lanes).step_by(N) {
                let lanes = from..self.lanes.min(from + N);
                let (mut first, mut second) = ([0; N], [0; N]);
                let first = copy(&self.first()[lanes.clone()], &mut first, Ordering::Relaxed);
                let second = match self.kind {
                    // SeqCst: a writer's lock precedes its load of the read vector, see E4.
                    Kind::Own if all => {
                        copy(&self.second()[lanes.clone()], &mut second, Ordering::SeqCst)
                    }
                    _ => &[],
                };
                // Nothing is taken from a slot reused meanwhile. Components taken before belonged
                // to the row, which is evicted by now.
                if !self.is_still(generation) {
                    continue 'again;
                }
                if let Some(write) = &mut write {
                    join(&mut write[lanes.clone()], first);
                }
                if let Some(both) = &mut both {
                    let both = &mut both[lanes];
                    join(both, first);
                    join(&mut both[..second.len()], second);
                }
            }
            let joins_eviction = self.is_evicted_in_part(all);
            return RowObservation { warm: true, replayed: Some(replayed), joins_eviction };
        }
    }

    /// Returns whether a requested vector of the row is not in the slot, but is the eviction
    /// vector.
    #[inline]
    fn is_evicted_in_part(self, all: bool) -> bool {
        match self.kind {
            Kind::Own => false,
            Kind::Written => all,
            Kind::Read | Kind::Single => true,
        }
    }
}

#[inline(always)]
fn copy<'c>(lanes: &[AtomicU64], out: &'c mut [u64], ordering: Ordering) -> &'c [u64] {
    for (to, from) in out.iter_mut().zip(lanes) {
        *to = from.load(ordering);
    }
    &out[..lanes.len()]
}

/// Fills components of a slot not published yet.
#[inline]
pub(super) fn store(lanes: &[AtomicU64], vector: &[u64]) {
    zip_lanes(lanes, vector, |lane, lsn| lane.store(*lsn, Ordering::Relaxed));
}

#[inline]
pub(super) fn raise_lanes(lanes: &[AtomicU64], vector: &[u64]) {
    zip_lanes(lanes, vector, |lane, lsn| {
        // Acquire half: a thread that finds the component raised already comes after the raising
        // thread, and so sees the mark of an owner that checked the vectors before the raise.
        // SeqCst: as the raise (E4).
        if lane.load(Ordering::SeqCst) < *lsn {
            lane.fetch_max(*lsn, Ordering::SeqCst);
        }
    });
}
