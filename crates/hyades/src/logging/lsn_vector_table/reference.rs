//! What a row remembers of its place in the hot-row table.

use hyades_platform::sync::AtomicU64;

/// A row's [`Packed`]; 0 for a row that was never hot.
pub(crate) type Reference = AtomicU64;

/// From the lowest bit up: slot number + 1, kind, tick, generation; the last two modulo their width.
pub(super) type Packed = u64;

const NUMBER_BITS: u32 = 25;
const KIND_AT: u32 = NUMBER_BITS;
const TICK_AT: u32 = KIND_AT + 2;
const TICK_BITS: u32 = 18;
const GENERATION_AT: u32 = TICK_AT + TICK_BITS;

/// Ticks are compared modulo one more than this.
pub(super) const TICKS: u64 = (1 << TICK_BITS) - 1;
/// The highest generation; 0 comes after it.
pub(super) const GENERATIONS: u64 = u64::MAX >> GENERATION_AT;

/// Whose slot it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// One row's, with both of its vectors.
    Own,
    /// That of the rows that a transaction wrote: nobody has read them since.
    Written,
    /// That of the rows that were cold when a transaction read them.
    Read,
}

#[inline]
pub(super) fn pack(number: u32, kind: Kind, tick: u64, generation: u64) -> Packed {
    generation << GENERATION_AT
        | (tick & TICKS) << TICK_AT
        | (kind as u64) << KIND_AT
        | (u64::from(number) + 1)
}

/// The slot's number; `None` for a row that was never hot.
#[inline]
pub(super) fn number(packed: Packed) -> Option<u32> {
    (packed as u32 & ((1 << NUMBER_BITS) - 1)).checked_sub(1)
}

#[inline]
pub(super) fn kind(packed: Packed) -> Kind {
    match packed >> KIND_AT & 3 {
        0 => Kind::Own,
        1 => Kind::Written,
        _ => Kind::Read,
    }
}

#[inline]
pub(super) fn tick(packed: Packed) -> u64 {
    packed >> TICK_AT & TICKS
}

#[inline]
pub(super) fn with_kind(packed: Packed, kind: Kind) -> Packed {
    packed & !(3 << KIND_AT) | (kind as u64) << KIND_AT
}

#[inline]
pub(super) fn with_tick(packed: Packed, tick: u64) -> Packed {
    packed & !(TICKS << TICK_AT) | (tick & TICKS) << TICK_AT
}

#[inline]
pub(super) fn generation(packed: Packed) -> u64 {
    packed >> GENERATION_AT
}
