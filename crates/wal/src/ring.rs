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

    /// Writes `head`, four bytes and the low `head_len` bytes of a word, lowest first, to position `at`, and `rest`
    /// behind it. (It stays in registers: what is put together in memory would be read before it is written.)
    ///
    /// # Safety
    /// As for [`Ring::write`], for all `4 + head_len + rest.len()` bytes.
    #[inline(always)]
    pub(crate) unsafe fn write_behind(
        &self,
        at: u64,
        head: (u32, u64),
        head_len: usize,
        rest: &[u8],
    ) {
        assert!(head_len <= 8);
        let size = self.bytes.len();
        let offset = at as usize & (size - 1);
        let length = 4 + head_len + rest.len();
        self.fetch_ahead(at, length);
        let (first, second) = (head.0.to_le_bytes(), head.1.to_le_bytes());
        if length >= 12 && length <= size - offset {
            // SAFETY: [offset, offset + length) lies inside, in one piece, and is the caller's
            // (contract); the whole head fits in it, and `rest` overwrites what does not count.
            unsafe {
                let to = self.base().add(offset);
                to.cast::<[u8; 4]>().write_unaligned(first);
                to.add(4).cast::<[u8; 8]>().write_unaligned(second);
                copy(rest, to.add(4 + head_len));
            }
        } else {
            // SAFETY: as for this function.
            unsafe { self.write_in_pieces(at, [&first, &second[..head_len], rest]) };
        }
    }

    /// Writes pieces one behind the other: for what goes on at the buffer's beginning, or is very short.
    ///
    /// # Safety
    /// As for [`Ring::write`], for the bytes of all.
    #[cold]
    unsafe fn write_in_pieces(&self, mut at: u64, pieces: [&[u8]; 3]) {
        for piece in pieces {
            // SAFETY: a part of the caller's range (contract).
            unsafe { self.write(at, piece) };
            at += piece.len() as u64;
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

/// Copies bytes, most often so few that a call of the library's function for it would take longer.
///
/// # Safety
/// `to` is valid for writes of as many, which overlap nothing of `from`.
#[inline(always)]
unsafe fn copy(from: &[u8], to: *mut u8) {
    const WORD: usize = size_of::<u64>();
    // SAFETY: the bytes [0, len) of `to` may be written (contract), and words are written inside these.
    unsafe {
        if let (WORD..=16, Some(first), Some(last)) =
            (from.len(), from.first_chunk::<WORD>(), from.last_chunk::<WORD>())
        {
            // They overlap where there are fewer than sixteen.
            to.cast::<[u8; WORD]>().write_unaligned(*first);
            to.add(from.len() - WORD).cast::<[u8; WORD]>().write_unaligned(*last);
        } else {
            std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len());
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
        let long: Vec<u8> = (0..40).collect();
        for size in [8, 16, 64] {
            for at in 0..2 * size as u64 {
                let rests = (0..=long.len()).map(|len| &long[..len]);
                let all = rests.flat_map(|rest| (0..=8).map(move |head_len| (head_len, rest)));
                for (head_len, rest) in all.filter(|(len, rest)| 4 + len + rest.len() <= size) {
                    let ring = Ring::new(size);
                    let head = (0x0403_0201, 0x1817_1615_1413_1211);
                    let second: Vec<u8> = (0x11..=0x18).collect();
                    let expected = [&[1, 2, 3, 4], &second[..head_len], rest].concat();
                    let end = at + expected.len() as u64;
                    // SAFETY: one thread; the ranges are its own.
                    let (a, b) = unsafe {
                        ring.write_behind(at, head, head_len, rest);
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
