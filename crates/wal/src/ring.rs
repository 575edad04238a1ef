//! The bytes of a stream that are not yet durable: position p lies at p modulo the size.

use std::cell::UnsafeCell;

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
        // SAFETY: offset + first <= size and from.len() - first <= offset, so both copies stay inside;
        // nobody else touches these bytes (contract); UnsafeCell allows writing through &self.
        unsafe {
            std::ptr::copy_nonoverlapping(from.as_ptr(), self.base().add(offset), first);
            let rest = from.len() - first;
            std::ptr::copy_nonoverlapping(from.as_ptr().add(first), self.base(), rest);
        }
    }

    /// The bytes [from, to), in one or two pieces.
    ///
    /// # Safety
    /// They are filled and visible to the caller, and stay untouched while the slices live: `to` is at
    /// most a cut, and `from` is not yet reported durable.
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
}
