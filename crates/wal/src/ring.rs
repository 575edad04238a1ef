//! The bytes of a stream that are not yet durable: position p lies at p modulo the size.

use std::cell::UnsafeCell;

/// Frames are written to places whose cache lines were asked for so many bytes earlier: dozens of short commands, or
/// a few data records.
const AHEAD: usize = 1024;
const LINE: usize = 64;

/// A buffer of a power of two bytes, written by many threads at disjoint places.
#[derive(Debug)]
pub(crate) struct Ring {
    bytes: Box<[UnsafeCell<u8>]>,
}

// SAFETY: access goes through `write` and `slices` only, whose contracts forbid that a byte is
// written while another thread reads or writes it.
unsafe impl Sync for Ring {}

impl Ring {
    /// A buffer of `size` bytes, a power of two.
    pub(crate) fn new(size: usize) -> Self {
        assert!(size.is_power_of_two());
        // Zeroed by the allocator, so that the system gives out pages as they are first used.
        let bytes: *mut [u8] = Box::into_raw(vec![0u8; size].into_boxed_slice());
        // SAFETY: UnsafeCell<u8> has the layout of u8, and the box is ours alone.
        let bytes = unsafe { Box::from_raw(bytes as *mut [UnsafeCell<u8>]) };
        Self { bytes }
    }

    pub(crate) fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn base(&self) -> *mut u8 {
        self.bytes.as_ptr().cast::<u8>().cast_mut()
    }

    /// Copies `from` to position `at`.
    ///
    /// # Safety
    /// The caller has [at, at + from.len()) to itself: it reserved these positions, everything one
    /// size before them is durable, and it has not published them.
    #[inline]
    pub(crate) unsafe fn write(&self, at: u64, from: &[u8]) {
        let size = self.bytes.len();
        assert!(from.len() <= size);
        let offset = at as usize & (size - 1);
        let first = from.len().min(size - offset);
        // SAFETY: offset + first <= size and from.len() - first <= offset, so both copies stay
        // inside; nobody else touches these bytes (contract); UnsafeCell allows writing through
        // &self.
        unsafe {
            std::ptr::copy_nonoverlapping(from.as_ptr(), self.base().add(offset), first);
            let rest = from.len() - first;
            std::ptr::copy_nonoverlapping(from.as_ptr().add(first), self.base(), rest);
        }
    }

    /// Copies `head`, of which the first `head_len` bytes count, to position `at`, and `rest` behind it.
    ///
    /// # Safety
    /// As for [`Ring::write`], for all `head_len + rest.len()` bytes.
    #[inline]
    pub(crate) unsafe fn write_behind<const N: usize>(
        &self,
        at: u64,
        head: &[u8; N],
        head_len: usize,
        rest: &[u8],
    ) {
        assert!(head_len <= N);
        let size = self.bytes.len();
        let offset = at as usize & (size - 1);
        let length = head_len + rest.len();
        self.fetch_ahead(at, length);
        if length >= N && length <= size - offset {
            // SAFETY: [offset, offset + length) lies inside, in one piece, and is the caller's
            // (contract); the whole head fits in it, and `rest` overwrites what does not count.
            unsafe {
                let to = self.base().add(offset);
                to.cast::<[u8; N]>().write_unaligned(*head);
                std::ptr::copy_nonoverlapping(rest.as_ptr(), to.add(head_len), rest.len());
            }
        } else {
            // SAFETY: both are parts of the caller's range (contract).
            unsafe {
                self.write(at, &head[..head_len]);
                self.write(at + head_len as u64, rest);
            }
        }
    }

    /// Asks for as many cache lines of the frames to come as are filled now. Nobody has touched them since the
    /// buffer was here before, so they come from memory; and a store that waits for its line holds up all that
    /// are behind it, those into rows among them.
    #[inline]
    fn fetch_ahead(&self, at: u64, length: usize) {
        self.fetch(at as usize + AHEAD);
        for line in (LINE..length.min(AHEAD)).step_by(LINE) {
            self.fetch(at as usize + AHEAD + line);
        }
    }

    #[inline(always)]
    fn fetch(&self, at: usize) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a prefetch reads nothing that the program can observe and never faults.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let offset = at & (self.bytes.len() - 1);
            _mm_prefetch::<_MM_HINT_T0>(self.base().wrapping_add(offset).cast());
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = at;
    }

    /// The bytes [from, to), in one or two pieces.
    ///
    /// # Safety
    /// They are filled and visible to the caller, and stay untouched while the slices live: `to` is
    /// at most a cut, and `from` is not yet reported durable.
    pub(crate) unsafe fn slices(&self, from: u64, to: u64) -> (&[u8], &[u8]) {
        let size = self.bytes.len();
        let length = (to - from) as usize;
        assert!(length <= size);
        let offset = from as usize & (size - 1);
        let first = length.min(size - offset);
        // SAFETY: inside the buffer as in `write`; not written meanwhile (contract).
        unsafe {
            (
                std::slice::from_raw_parts(self.base().add(offset), first),
                std::slice::from_raw_parts(self.base(), length - first),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_wrap_around_the_end() {
        let ring = Ring::new(8);
        // SAFETY: one thread; the ranges are its own.
        unsafe {
            ring.write(6, b"abcd");
            assert_eq!(ring.slices(6, 10), (&b"ab"[..], &b"cd"[..]));
            assert_eq!(ring.slices(8, 10), (&b"cd"[..], &b""[..]));
            ring.write(8, b"12345678");
            assert_eq!(ring.slices(8, 16), (&b"12345678"[..], &b""[..]));
        }
    }

    #[test]
    fn a_head_and_what_follows_it_stand_together_at_every_place() {
        for size in [8, 16] {
            for at in 0..16 {
                for (head_len, rest) in [(1, &b""[..]), (2, b"xyz"), (3, b"vwxyz"), (0, b"")] {
                    let ring = Ring::new(size);
                    let expected = [&b"abc"[..head_len], rest].concat();
                    let end = at + expected.len() as u64;
                    // SAFETY: one thread; the ranges are its own.
                    let (a, b) = unsafe {
                        ring.write_behind(at, b"abc", head_len, rest);
                        ring.slices(at, end)
                    };
                    assert_eq!([a, b].concat(), expected);
                    // SAFETY: as above; what was not written is as it was.
                    let (a, b) = unsafe { ring.slices(end, at + size as u64) };
                    assert!(a.iter().chain(b).all(|&byte| byte == 0));
                }
            }
        }
    }
}
