//! LSN vectors: one component, a *lane*, for each stream of an incarnation.
//!
//! Two operations matter, element-wise maximum and comparison (Taurus, VLDB 2020, sections 3.1 and
//! 4.2). Wide vectors use the processor's vector instructions, chosen once; for up to
//! [`INLINE_LANES`] components the plain loop is inlined, because the cost of an indirect call
//! would exceed the gain. Components have 64 bits: the paper's 32-bit instruction wraps after 4 GiB
//! of log.

use crate::Lsn;
use smallvec::SmallVec;
use std::ops::Deref;
use std::sync::atomic::{AtomicU8, Ordering};

/// The most components a vector may have: the most streams of an incarnation.
pub const MAX_LANES: usize = 64;
/// The most components of an inline vector: vectors up to this length are stored inline and handled
/// by inlined code.
pub const INLINE_LANES: usize = 8;

const UNKNOWN: u8 = 0;
const PORTABLE: u8 = 1;
const AVX2: u8 = 2;
const AVX512: u8 = 3;

/// The implementation used for wide vectors. Threads in a concurrent initialization write the same
/// value (a benchmark may change the value); Relaxed, since every value is right at all times.
static CHOSEN: AtomicU8 = AtomicU8::new(UNKNOWN);

fn choose() -> u8 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
            return AVX512;
        }
        if is_x86_feature_detected!("avx2") {
            return AVX2;
        }
    }
    PORTABLE
}

#[inline]
fn chosen() -> u8 {
    match CHOSEN.load(Ordering::Relaxed) {
        UNKNOWN => {
            let choice = choose();
            CHOSEN.store(choice, Ordering::Relaxed);
            choice
        }
        choice => {
            debug_assert!(choice <= choose(), "the processor lacks these instructions: {choice}");
            choice
        }
    }
}

/// Whether [`join`] and [`covers`] use the processor's vector instructions on wide vectors: then a
/// caller passes whole vectors instead of groups of components kept in registers.
#[inline]
pub fn uses_vector_instructions() -> bool {
    chosen() != PORTABLE
}

/// Makes wide vectors use the portable code (true), or the processor's instructions (false). For
/// benchmarks; either gives the same results.
pub fn set_portable(portable: bool) {
    CHOSEN.store(if portable { PORTABLE } else { choose() }, Ordering::Relaxed);
}

#[inline(always)]
fn join_loop(dst: &mut [u64], src: &[u64]) {
    for (d, s) in dst.iter_mut().zip(src) {
        *d = (*d).max(*s);
    }
}

#[inline(always)]
fn covers_loop(upper: &[u64], lower: &[u64]) -> bool {
    // No early exit: only then is the loop vectorized, and 64 components cost a few nanoseconds.
    let mut above = false;
    for (u, l) in upper.iter().zip(lower) {
        above |= l > u;
    }
    !above
}

#[cfg(target_arch = "x86_64")]
mod wide {
    #[target_feature(enable = "avx512f,avx512vl")]
    pub(super) fn join_avx512(dst: &mut [u64], src: &[u64]) {
        super::join_loop(dst, src);
    }

    #[target_feature(enable = "avx512f,avx512vl")]
    pub(super) fn covers_avx512(upper: &[u64], lower: &[u64]) -> bool {
        super::covers_loop(upper, lower)
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn join_avx2(dst: &mut [u64], src: &[u64]) {
        super::join_loop(dst, src);
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn covers_avx2(upper: &[u64], lower: &[u64]) -> bool {
        super::covers_loop(upper, lower)
    }
}

/// `dst[i] = max(dst[i], src[i])` for every component. Both have the same length; surplus
/// components of the longer vector stay unchanged.
#[inline]
pub fn join(dst: &mut [u64], src: &[u64]) {
    debug_assert_eq!(dst.len(), src.len(), "vectors of different incarnations");
    // A fast path for the usual number of streams, without a loop.
    if let (Ok(dst), Ok(src)) = (<&mut [u64; 4]>::try_from(&mut *dst), <&[u64; 4]>::try_from(src)) {
        return join_loop(dst, src);
    }
    if dst.len() <= INLINE_LANES {
        return join_loop(dst, src);
    }
    match chosen() {
        // SAFETY: the function may run only on a processor with avx512f and avx512vl. `CHOSEN` is
        // `AVX512` only if `choose` found both.
        #[cfg(target_arch = "x86_64")]
        AVX512 => unsafe { wide::join_avx512(dst, src) },
        // SAFETY: the function may run only on a processor with avx2. `CHOSEN` is `AVX2` only if
        // `choose` found avx2.
        #[cfg(target_arch = "x86_64")]
        AVX2 => unsafe { wide::join_avx2(dst, src) },
        _ => join_loop(dst, src),
    }
}

/// Whether `lower[i] <= upper[i]` in every component.
#[inline]
pub fn covers(upper: &[u64], lower: &[u64]) -> bool {
    debug_assert_eq!(upper.len(), lower.len(), "vectors of different incarnations");
    if upper.len() <= INLINE_LANES {
        return covers_loop(upper, lower);
    }
    match chosen() {
        // SAFETY: the function may run only on a processor with avx512f and avx512vl. `CHOSEN` is
        // `AVX512` only if `choose` found both.
        #[cfg(target_arch = "x86_64")]
        AVX512 => unsafe { wide::covers_avx512(upper, lower) },
        // SAFETY: the function may run only on a processor with avx2. `CHOSEN` is `AVX2` only if
        // `choose` found avx2.
        #[cfg(target_arch = "x86_64")]
        AVX2 => unsafe { wide::covers_avx2(upper, lower) },
        _ => covers_loop(upper, lower),
    }
}

/// An owned vector of 1 to 64 components.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct LsnVector(SmallVec<[Lsn; INLINE_LANES]>);

impl LsnVector {
    /// A copy of a slice. Panics above [`MAX_LANES`] components.
    pub(crate) fn from_slice(lanes: &[Lsn]) -> Self {
        assert!(lanes.len() <= MAX_LANES, "{} lanes, at most {MAX_LANES}", lanes.len());
        Self(SmallVec::from_slice(lanes))
    }
}

impl Deref for LsnVector {
    type Target = [Lsn];
    #[inline]
    fn deref(&self) -> &[Lsn] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_implementation_agrees(
            pairs in prop::collection::vec((any::<u64>(), any::<u64>()), 1..=MAX_LANES),
            near in any::<bool>(),
        ) {
            let upper: Vec<u64> = pairs.iter().map(|p| p.0).collect();
            let lower: Vec<u64> =
                pairs.iter().map(|p| if near { p.0 - p.1 % 2 * u64::from(p.0 > 0) } else { p.1 })
                    .collect();
            let mut plain = upper.clone();
            join_loop(&mut plain, &lower);
            let expected = covers_loop(&upper, &lower);
            for portable in [true, false] {
                set_portable(portable);
                let mut joined = upper.clone();
                join(&mut joined, &lower);
                prop_assert_eq!(&joined, &plain);
                prop_assert_eq!(covers(&upper, &lower), expected);
                prop_assert!(covers(&joined, &lower) && covers(&joined, &upper));
            }
        }
    }

    #[test]
    fn one_lane_above_is_seen_in_every_place() {
        for lanes in 1..=MAX_LANES {
            for lane in 0..lanes {
                let upper = vec![u64::MAX - 1; lanes];
                let mut lower = upper.clone();
                assert!(covers(&upper, &lower));
                lower[lane] = u64::MAX;
                assert!(!covers(&upper, &lower));
            }
        }
    }
}
