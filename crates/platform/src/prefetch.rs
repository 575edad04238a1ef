//! Prefetch hints for cache lines about to be read.

#![allow(unsafe_code)]

/// Prefetches the cache line of `address`. Any address is allowed; a prefetch never faults.
#[inline(always)]
pub fn prefetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing observable by the program and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// Prefetches every cache line with any of `len` bytes from `offset` on.
#[inline(always)]
pub fn prefetch_bytes<T>(start: *const T, offset: usize, len: usize) {
    let first = start.cast::<u8>().wrapping_add(offset);
    let into_line = first.addr() % 64;
    for at in (0..into_line + len).step_by(64) {
        prefetch(first.wrapping_sub(into_line).wrapping_add(at));
    }
}
