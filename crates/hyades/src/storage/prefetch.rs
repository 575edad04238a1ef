//! A hint to the processor that a cache line is about to be read.

/// Asks for the cache line that holds `address`; any address is allowed, it is never faulted on.
#[inline(always)]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing that the program can observe and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// Asks for the cache lines that hold `len` bytes from `offset` on, and for no others if these begin on one.
#[inline(always)]
pub(crate) fn prefetch_bytes<T>(start: *const T, offset: usize, len: usize) {
    for at in (offset..offset + len).step_by(64) {
        prefetch(start.cast::<u8>().wrapping_add(at));
    }
}
