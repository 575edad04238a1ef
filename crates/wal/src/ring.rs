//! The ring buffer of a stream: the bytes not yet durable. Position p is stored at p modulo the
//! size.

use std::cell::UnsafeCell;

/// How far ahead of a written frame cache lines are prefetched, in bytes: dozens of short commands,
/// or a few data records.
const AHEAD: usize = 1024;
const LINE: usize = 64;

/// A buffer of a power of two bytes, written by many threads at disjoint positions.
#[derive(Debug)]
pub(crate) struct Ring {
    bytes: Box<[UnsafeCell<u8>]>,
}

// SAFETY: threads that share a ring access its bytes only through `write`, `write_behind` and
// `slices`, and the contracts exclude a write of a byte during another thread's read or write of
// the byte. The buffer itself is never replaced, and is freed by a thread with sole ownership of
// the ring.
unsafe impl Sync for Ring {}

impl Ring {
    /// A buffer of `size` bytes, a power of two.
    pub(crate) fn new(size: usize) -> Self {
        debug_assert!(size.is_power_of_two(), "a buffer of {size} bytes: positions are masked");
        // Zeroed by the allocator, so the system allocates pages on first use.
        let bytes: *mut [u8] = Box::into_raw(vec![0u8; size].into_boxed_slice());
        // SAFETY: `bytes` comes from `Box::into_raw` and is used once, so the new box owns the
        // buffer alone. UnsafeCell<u8> has the layout of u8 and the cast keeps the length, so the
        // buffer is freed with the layout of the allocation.
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
    /// `from` is at most as long as the buffer. The caller has exclusive access to [at, at +
    /// from.len()): the caller has reserved and not published the positions, and everything a
    /// buffer size before them is durable.
    #[inline]
    pub(crate) unsafe fn write(&self, at: u64, from: &[u8]) {
        let size = self.bytes.len();
        debug_assert!(from.len() <= size, "{} bytes in a buffer of {size}", from.len());
        let offset = at as usize & (size - 1);
        let first = from.len().min(size - offset);
        // SAFETY: from.len() <= size (contract), so offset + first <= size and from.len() - first
        // <= offset: both copies stay inside the buffer. The caller has exclusive access to these
        // bytes (contract), so no other thread accesses the bytes and `from` does not overlap them.
        // The bytes are UnsafeCells, so writes through &self are allowed.
        unsafe {
            std::ptr::copy_nonoverlapping(from.as_ptr(), self.base().add(offset), first);
            let rest = from.len() - first;
            std::ptr::copy_nonoverlapping(from.as_ptr().add(first), self.base(), rest);
        }
    }

    /// Writes `head` (four bytes and the low `head_len` bytes of a word, lowest first) to position
    /// `at`, and `rest` behind the head. The head stays in registers: assembled in memory, the head
    /// would have to be read back before the write here.
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
        debug_assert!(head_len <= 8, "{head_len} bytes of a word");
        let size = self.bytes.len();
        let offset = at as usize & (size - 1);
        let length = 4 + head_len + rest.len();
        debug_assert!(length <= size, "{length} bytes in a buffer of {size}");
        self.fetch_ahead(at, length);
        let (first, second) = (head.0.to_le_bytes(), head.1.to_le_bytes());
        if length >= 12 && length <= size - offset {
            // SAFETY: [offset, offset + length) is inside the buffer, and the caller has exclusive
            // access to the range (contract), so `rest` does not overlap the range. The range has
            // at least 12 bytes, so both words of the head fit. The unused bytes of the second word
            // are at 4 + head_len to 12; `rest` begins there, ends at `length`, and overwrites the
            // unused bytes.
            unsafe {
                let to = self.base().add(offset);
                to.cast::<[u8; 4]>().write_unaligned(first);
                to.add(4).cast::<[u8; 8]>().write_unaligned(second);
                copy(rest, to.add(4 + head_len));
            }
        } else {
            // SAFETY: together the pieces have `length` bytes, at most the buffer's size, and the
            // caller has exclusive access to `length` bytes from `at` on (contract).
            unsafe { self.write_in_pieces(at, [&first, &second[..head_len], rest]) };
        }
    }

    /// Writes pieces in sequence. For frames that wrap around the buffer's end or are very short.
    ///
    /// # Safety
    /// As for [`Ring::write`], for the bytes of all pieces.
    #[cold]
    unsafe fn write_in_pieces(&self, mut at: u64, pieces: [&[u8]; 3]) {
        for piece in pieces {
            // SAFETY: each piece begins at the end of the last piece, so every piece is a part of
            // the caller's exclusive range, and the buffer has room for the range (contract).
            unsafe { self.write(at, piece) };
            at += piece.len() as u64;
        }
    }

    /// Prefetches as many cache lines of later frames as are filled now. Those lines were last
    /// accessed a round of the buffer ago, so are read from memory, and a store waiting for its
    /// cache line delays all later stores, including stores into rows.
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
        // SAFETY: prefetching needs SSE, present in every x86_64 processor. Prefetching never
        // faults, at any address, and has no effect observable by the program.
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
    /// The range is at most as long as the buffer. The bytes are filled and visible to the caller,
    /// and are not written while the slices live: `to` is at most a cut, and `from` is not yet
    /// reported durable.
    pub(crate) unsafe fn slices(&self, from: u64, to: u64) -> (&[u8], &[u8]) {
        let size = self.bytes.len();
        debug_assert!(from <= to, "a range from {from} to {to}");
        let length = (to - from) as usize;
        debug_assert!(length <= size, "{length} bytes of a buffer of {size}");
        let offset = from as usize & (size - 1);
        let first = length.min(size - offset);
        // SAFETY: length <= size (contract), so offset + first <= size and length - first <=
        // offset: both pieces are inside the buffer, all of which is initialized. No thread writes
        // the pieces while the slices live (contract), and the slices borrow the ring, so the ring
        // is not freed either.
        unsafe {
            (
                std::slice::from_raw_parts(self.base().add(offset), first),
                std::slice::from_raw_parts(self.base(), length - first),
            )
        }
    }
}

/// Copies bytes. Inlined for 8 to 16 bytes, where a call of the library function would take longer.
///
/// # Safety
/// `to` is valid for writes of `from.len()` bytes, without an overlap with `from`.
#[inline(always)]
unsafe fn copy(from: &[u8], to: *mut u8) {
    const WORD: usize = size_of::<u64>();
    // SAFETY: `to` is valid for from.len() bytes without an overlap with `from` (contract). A word
    // is copied only if there are at least eight bytes, so the first word and the last word are
    // inside.
    unsafe {
        if let (WORD..=16, Some(first), Some(last)) =
            (from.len(), from.first_chunk::<WORD>(), from.last_chunk::<WORD>())
        {
            // The two words overlap if there are fewer than sixteen bytes.
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
        // SAFETY: there is one thread, and no slice is used after a later write.
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
                    // SAFETY: there is one thread, with no later write.
                    let (a, b) = unsafe {
                        ring.write_behind(at, head, head_len, rest);
                        ring.slices(at, end)
                    };
                    assert_eq!([a, b].concat(), expected);
                    // SAFETY: there is one thread, with no later write.
                    let (a, b) = unsafe { ring.slices(end, at + size as u64) };
                    assert!(a.iter().chain(b).all(|&byte| byte == 0));
                }
            }
        }
    }
}
