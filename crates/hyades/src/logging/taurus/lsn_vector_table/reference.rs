//! References from rows into the LSN vector table.

use hyades_platform::sync::AtomicU64;

/// A row's packed reference; 0 for an evicted row without a slot.
pub type Reference = AtomicU64;

/// From the lowest bit up: slot number + 1, kind, tick, generation; the last two modulo their
/// width. In [`Kind::Single`] slot number and generation form a number of 44 bits; from the lowest
/// bit up: whether the reference is of a reader, the component, the low bits of the position.
pub(super) type PackedReference = u64;

const NUMBER_BITS: u32 = 25;
const NUMBERS: u64 = (1 << NUMBER_BITS) - 1;
const KIND_AT: u32 = NUMBER_BITS;
const TICK_AT: u32 = KIND_AT + 2;
const TICK_BITS: u32 = 18;
const GENERATION_AT: u32 = TICK_AT + TICK_BITS;

/// Ticks are compared modulo `TICKS + 1`.
pub(super) const TICKS: u64 = (1 << TICK_BITS) - 1;
/// The highest generation; the next is 0.
pub(super) const GENERATIONS: u64 = u64::MAX >> GENERATION_AT;

/// The use of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// For a single row, with both vectors.
    Own,
    /// Shared by the rows that a transaction wrote, if not read since.
    Written,
    /// Shared by the evicted rows that a transaction read.
    Read,
    /// No slot: all components but one are evicted, and the reference has the position of that
    /// component.
    Single,
}

/// The content of a [`Kind::Single`] reference.
#[derive(Clone, Copy, Debug)]
pub(super) struct Single {
    pub lane: usize,
    /// The position modulo 2^[`LOW_BITS`].
    pub low: u64,
    /// Whether the read vector has the component and the write vector is evicted; otherwise the
    /// reverse.
    pub read: bool,
}

/// The number of low bits kept of a position.
const LOW_BITS: u32 = 37;
/// The mask of the low bits.
pub(super) const LOW: u64 = (1 << LOW_BITS) - 1;

#[inline]
pub(super) fn pack(number: u32, kind: Kind, tick: u64, generation: u64) -> PackedReference {
    generation << GENERATION_AT
        | (tick & TICKS) << TICK_AT
        | (kind as u64) << KIND_AT
        | (u64::from(number) + 1)
}

/// Returns the number of the slot. `packed` must not be 0.
#[inline]
pub(super) fn number(packed: PackedReference) -> u32 {
    (packed & NUMBERS) as u32 - 1
}

#[inline]
pub(super) fn kind(packed: PackedReference) -> Kind {
    match packed >> KIND_AT & 3 {
        0 => Kind::Own,
        1 => Kind::Written,
        2 => Kind::Read,
        _ => Kind::Single,
    }
}

/// Returns whether the reference has a slot, evicted or not.
#[inline]
pub(super) fn has_slot(packed: PackedReference) -> bool {
    packed != 0 && kind(packed) != Kind::Single
}

#[inline]
pub(super) fn tick(packed: PackedReference) -> u64 {
    packed >> TICK_AT & TICKS
}

/// Packs a writer's reference of a single position.
#[inline]
pub(super) fn pack_single(lane: usize, lsn: u64, tick: u64) -> PackedReference {
    let both = (lsn & LOW) << 7 | (lane as u64) << 1;
    both >> NUMBER_BITS << GENERATION_AT
        | (tick & TICKS) << TICK_AT
        | (Kind::Single as u64) << KIND_AT
        | both & NUMBERS
}

#[inline]
pub(super) fn single(packed: PackedReference) -> Single {
    let both = packed >> GENERATION_AT << NUMBER_BITS | packed & NUMBERS;
    Single { lane: (both >> 1 & 63) as usize, low: both >> 7, read: both & 1 == 1 }
}

/// Converts a writer's reference into the reference of the rows read by the same transaction.
#[inline]
pub(super) fn of_reader(packed: PackedReference) -> PackedReference {
    match kind(packed) {
        Kind::Single => packed | 1,
        // The common slot, which is for readers and writers.
        Kind::Own => packed,
        _ => packed & !(3 << KIND_AT) | (Kind::Read as u64) << KIND_AT,
    }
}

#[inline]
pub(super) fn with_tick(packed: PackedReference, tick: u64) -> PackedReference {
    packed & !(TICKS << TICK_AT) | (tick & TICKS) << TICK_AT
}

#[inline]
pub(super) fn generation(packed: PackedReference) -> u64 {
    packed >> GENERATION_AT
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_single_position_reads_back(lane in 0usize..64, lsn: u64, at: u64) {
            let packed = pack_single(lane, lsn, at);
            for (packed, reads) in [(packed, false), (of_reader(packed), true)] {
                prop_assert_eq!(kind(packed), Kind::Single);
                prop_assert_eq!(tick(packed), at & TICKS);
                let single = single(packed);
                prop_assert_eq!((single.lane, single.low, single.read), (lane, lsn & LOW, reads));
            }
        }
    }
}
