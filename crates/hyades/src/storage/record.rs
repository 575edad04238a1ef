//! One row in memory: its version word, lock, stamp, key and bytes.
//!
//! A record is one allocation: header, key bytes, then an inline block for the row. A row that
//! outgrows its block moves to a block of its own; the old one is retired through the epoch
//! collector, so a reader that is pinned may go on reading it. All row bytes are atomic words:
//! a reader may race with a writer and then finds the version word changed, but never reads outside
//! a block, because the row's length stands in the block itself and never exceeds its capacity.

use super::key::stored_len;
use super::prefetch::{prefetch, prefetch_bytes};
use bumpalo::Bump;
use crossbeam_epoch::Guard;
use std::alloc::{Layout as Allocation, alloc, dealloc, handle_alloc_error};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

/// The version word: TID << 3 | dead << 2 | absent << 1 | locked.
pub(crate) mod word {
    /// Set while a writer holds the record (optimistic concurrency control and replay).
    pub const LOCKED: u64 = 1;
    /// The row is not there: not yet inserted, or deleted.
    pub const ABSENT: u64 = 2;
    /// The record has left its index for good; whoever still holds it looks the key up again.
    pub const DEAD: u64 = 4;
    /// The TID stands above the flags.
    pub const TID_SHIFT: u32 = 3;

    /// The TID in a version word.
    #[inline]
    pub const fn tid(word: u64) -> u64 {
        word >> TID_SHIFT
    }
}

/// The lock word of two-phase locking: the number of readers, or this for a writer.
pub(crate) const WRITER: u32 = 1 << 31;

#[repr(C)]
pub(crate) struct Record<S> {
    /// See [`word`]. Written by the holder of the record's write protection, with Release after the
    /// row's bytes; read with Acquire by anyone.
    pub word: AtomicU64,
    /// What the logging protocol remembers of the row.
    pub stamp: S,
    /// The row's block. Replaced by the holder of the write protection only.
    block: AtomicPtr<AtomicU64>,
    /// Readers or [`WRITER`]; two-phase locking only.
    pub lock: AtomicU32,
    /// Secondary index entries that point here, stale ones included. The record stays in its primary
    /// index until there are none.
    pub entries: AtomicU32,
    key_len: u32,
    inline_words: u32,
}

/// Head word of a block: capacity in words above, row length in bytes below.
const LEN_MASK: u64 = u32::MAX as u64;

/// A prefetch loads at most this many lines of a row: more would push out what was loaded before.
const MOST_LINES: usize = 5;

fn words_for(bytes: usize) -> usize {
    bytes.div_ceil(8)
}

impl<S: Default> Record<S> {
    fn allocation(key_len: usize, inline_words: usize) -> (Allocation, usize) {
        let key_at = std::mem::size_of::<Self>();
        let block_at = key_at + words_for(key_len) * 8;
        let size = block_at + (1 + inline_words) * 8;
        // Long rows start on a cache line, so that header, key and the first columns share it.
        let align = if size >= 192 { 64 } else { 16 };
        (Allocation::from_size_align(size, align).expect("a record's size"), block_at)
    }

    /// Makes a record whose row is absent, with room for `row_bytes`, and the given version word.
    /// The caller owns it until it is linked into an index.
    pub fn new(key: &[u8], row_bytes: usize, version: u64, lock: u32) -> *mut Record<S> {
        let inline_words = words_for(row_bytes);
        let key_len = stored_len(key);
        let (allocation, block_at) = Self::allocation(key.len(), inline_words);
        // SAFETY: the allocation is not of size zero; all parts lie inside it by construction of
        // `allocation`, aligned to 8; every byte that is read later is initialised here (the header,
        // the key, the block's head and its words).
        unsafe {
            let base = alloc(allocation);
            if base.is_null() {
                handle_alloc_error(allocation);
            }
            prefetch_coming(base, allocation.size());
            let block = base.add(block_at).cast::<AtomicU64>();
            block.write(AtomicU64::new((inline_words as u64) << 32));
            std::ptr::write_bytes(block.add(1).cast::<u8>(), 0, inline_words * 8);
            let record = base.cast::<Record<S>>();
            record.write(Record {
                word: AtomicU64::new(version),
                stamp: S::default(),
                block: AtomicPtr::new(block),
                lock: AtomicU32::new(lock),
                entries: AtomicU32::new(0),
                key_len,
                inline_words: inline_words as u32,
            });
            std::ptr::copy_nonoverlapping(
                key.as_ptr(),
                base.add(std::mem::size_of::<Self>()),
                key.len(),
            );
            record
        }
    }

    /// Frees a record.
    ///
    /// # Safety
    /// Nobody else may hold or find the record, now or later.
    pub unsafe fn free(record: *mut Record<S>) {
        // SAFETY: the caller hands over the only reference; the layout is recomputed from the same
        // numbers that the allocation was made from.
        unsafe {
            let this = &*record;
            let (allocation, _) =
                Self::allocation(this.key_len as usize, this.inline_words as usize);
            let block = this.block.load(Ordering::Relaxed);
            if block != this.inline_block() {
                free_block(block);
            }
            std::ptr::drop_in_place(record);
            dealloc(record.cast::<u8>(), allocation);
        }
    }
}

/// Starts loading what a record of this size will soon be written to, as allocators mostly go on: rows are inserted
/// side by side, and the first atomic read-modify-write after it, on the leaf, waits until all that was written to the
/// record is in the cache.
#[inline]
fn prefetch_coming(base: *const u8, size: usize) {
    // The one after the next: the next is asked for too late.
    prefetch_bytes(base, 2 * size, size.min(MOST_LINES * 64));
}

impl<S> Record<S> {
    /// The encoded primary key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        // SAFETY: the key bytes follow the header in the same allocation and never change.
        unsafe {
            let at = (self as *const Self).cast::<u8>().add(std::mem::size_of::<Self>());
            std::slice::from_raw_parts(at, self.key_len as usize)
        }
    }

    /// Starts loading the bytes of a record's row from `offset` on, if they are where a row is first put. Any
    /// address will do.
    #[inline]
    pub fn prefetch_row(record: *const Self, key_len: usize, (offset, len): (usize, usize)) {
        let row_at = std::mem::size_of::<Self>() + words_for(key_len) * 8 + 8;
        let start = record.cast::<u8>().wrapping_add(row_at + offset);
        // The line of `start`, and every further one that the bytes reach into.
        for at in (0..len + 63).step_by(64).take(MOST_LINES) {
            prefetch(start.wrapping_add(at.min(len)));
        }
    }

    fn inline_block(&self) -> *mut AtomicU64 {
        let at = std::mem::size_of::<Self>() + words_for(self.key_len as usize) * 8;
        // SAFETY: the inline block lies in the record's own allocation.
        unsafe { (self as *const Self).cast::<u8>().add(at).cast::<AtomicU64>().cast_mut() }
    }

    /// The block's words behind its head, and the row's length in bytes.
    #[inline]
    fn block(&self) -> (&[AtomicU64], usize) {
        // Acquire: pairs with the Release that published a fresh block, whose head is initialised.
        let block = self.block.load(Ordering::Acquire);
        // SAFETY: the block is the inline one or was published by `store_row`; it is freed only
        // after every guard pinned now is gone, and callers are pinned (or own the record). Its head
        // states its capacity, which never changes.
        unsafe {
            let head = (*block).load(Ordering::Relaxed);
            let words = std::slice::from_raw_parts(block.add(1), (head >> 32) as usize);
            (words, (head & LEN_MASK) as usize)
        }
    }

    /// The row's length in bytes, if nobody writes meanwhile.
    pub fn row_len(&self) -> usize {
        self.block().1
    }

    /// Appends the row's bytes to `out`. Without protection what is read may be torn; the version
    /// word tells.
    #[inline]
    pub fn read_row(&self, out: &mut Vec<u8>) {
        let (words, len) = self.block();
        let start = out.len();
        for word in &words[..words_for(len)] {
            out.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        out.truncate(start + len);
    }

    /// Copies the row's words into `arena` memory and returns its bytes.
    #[inline]
    pub fn read_row_into<'a>(&self, arena: &'a Bump) -> &'a [u8] {
        let (words, len) = self.block();
        &copy_words(&words[..words_for(len)], arena)[..len]
    }

    /// The little-endian number at `offset` of the row, or 0 beyond its capacity.
    #[inline]
    pub fn read_u32(&self, offset: usize) -> u32 {
        let (words, _) = self.block();
        let word = |at: usize| words.get(at).map_or(0, |word| word.load(Ordering::Relaxed));
        let (at, shift) = (offset / 8, offset % 8 * 8);
        let low = word(at) >> shift;
        // It may stand across two words.
        let high = if shift > 32 { word(at + 1) << (64 - shift) } else { 0 };
        (low | high) as u32
    }

    /// Copies the row's first `len` bytes, or all of it if it is shorter, into `arena` memory.
    #[inline]
    pub fn read_prefix_into<'a>(&self, len: usize, arena: &'a Bump) -> &'a [u8] {
        let (words, row_len) = self.block();
        let len = len.min(row_len);
        &copy_words(&words[..words_for(len)], arena)[..len]
    }

    /// The row's first word: its null bitmap, where the table has one.
    #[inline]
    pub fn read_first_word(&self) -> u64 {
        self.block().0.first().map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Copies `len` bytes from `offset` on into `arena` memory: the words that hold them, and returns
    /// the bytes with the offset at which they begin.
    #[inline]
    pub fn read_window_into<'a>(
        &self,
        offset: usize,
        len: usize,
        arena: &'a Bump,
    ) -> (&'a [u8], usize) {
        let (words, row_len) = self.block();
        let first = offset / 8;
        let last = words_for(offset + len).min(words_for(row_len));
        let words = words.get(first..last).unwrap_or(&[]);
        (copy_words(words, arena), first * 8)
    }

    /// Overwrites bytes of the row in place. The caller holds the write protection and the bytes lie
    /// within the row.
    #[inline]
    pub fn store_range(&self, offset: usize, bytes: &[u8]) {
        let (words, len) = self.block();
        assert!(offset + bytes.len() <= len, "a write within the row");
        let (first, within) = (offset / 8, offset % 8);
        let (head, rest) = bytes.split_at(bytes.len().min((8 - within) % 8));
        store_part(&words[first..], within, head);
        let words = &words[first + usize::from(within != 0)..];
        let (whole, tail) = rest.as_chunks::<8>();
        for (word, chunk) in words.iter().zip(whole) {
            word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
        }
        store_part(&words[whole.len()..], 0, tail);
    }

    /// Replaces the whole row. The caller holds the write protection.
    pub fn store_row(&self, bytes: &[u8], guard: &Guard) {
        let (words, _) = self.block();
        if words_for(bytes.len()) <= words.len() {
            fill(words, bytes);
            let block = self.block.load(Ordering::Relaxed);
            // SAFETY: the block is valid as in `block`; the head is atomic.
            unsafe {
                (*block).store((words.len() as u64) << 32 | bytes.len() as u64, Ordering::Relaxed)
            };
            return;
        }
        // Half as much again, so that a row that grows bit by bit does not move every time.
        let capacity = words_for(bytes.len()) * 3 / 2;
        let fresh: Box<[AtomicU64]> = (0..=capacity).map(|_| AtomicU64::new(0)).collect();
        fresh[0].store((capacity as u64) << 32 | bytes.len() as u64, Ordering::Relaxed);
        fill(&fresh[1..], bytes);
        let fresh = Box::into_raw(fresh).cast::<AtomicU64>();
        // Release: a reader that finds the block finds its head and words.
        let old = self.block.swap(fresh, Ordering::Release);
        if old != self.inline_block() {
            // SAFETY: the old block is no longer reachable and is freed after every reader that is
            // pinned now has gone.
            unsafe {
                let old = old as usize;
                guard.defer_unchecked(move || free_block(old as *mut AtomicU64));
            }
        }
    }

    /// Tries to set [`word::LOCKED`] on a record whose word is `expected`.
    #[inline]
    pub fn try_lock(&self, expected: u64) -> bool {
        let locked = self
            .word
            .compare_exchange(
                expected & !word::LOCKED,
                expected | word::LOCKED,
                // SeqCst: the lock comes before the load of read stamps in the order that a reader's
                // raise and validation are in (docs/protocols.md, E4).
                Ordering::SeqCst,
                Ordering::Relaxed,
            )
            .is_ok();
        // The row's words must not be seen changed by a reader that sees the word unlocked.
        fence(Ordering::Release);
        locked
    }
}

/// Overwrites a few bytes of the first word, from `within` on.
#[inline]
fn store_part(words: &[AtomicU64], within: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let mut value = words[0].load(Ordering::Relaxed).to_le_bytes();
    value[within..within + bytes.len()].copy_from_slice(bytes);
    words[0].store(u64::from_le_bytes(value), Ordering::Relaxed);
}

/// Copies words into `arena` memory, as little-endian bytes.
#[inline]
fn copy_words<'a>(words: &[AtomicU64], arena: &'a Bump) -> &'a [u8] {
    let layout = Allocation::array::<u64>(words.len()).expect("a row's size");
    let out = arena.alloc_layout(layout).cast::<u64>().as_ptr();
    let load = |word: &AtomicU64| word.load(Ordering::Relaxed).to_le();
    // SAFETY: `out` has room for as many words as there are, each is written once, and together they
    // are read as bytes only then; the memory lives as long as the arena lends it.
    unsafe {
        // Four at a time: atomic loads are not unrolled by the compiler.
        let (fours, rest) = words.as_chunks::<4>();
        for (four, at) in fours.iter().zip((0..).step_by(4)) {
            out.add(at).cast::<[u64; 4]>().write(four.each_ref().map(load));
        }
        for (word, at) in rest.iter().zip(fours.len() * 4..) {
            out.add(at).write(load(word));
        }
        std::slice::from_raw_parts(out.cast::<u8>(), words.len() * 8)
    }
}

fn fill(words: &[AtomicU64], bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks::<8>();
    for (word, chunk) in words.iter().zip(whole) {
        word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        words[whole.len()].store(u64::from_le_bytes(last), Ordering::Relaxed);
    }
}

/// # Safety
/// `block` came from `Box::into_raw` in `store_row` and nobody can reach it any more.
unsafe fn free_block(block: *mut AtomicU64) {
    // SAFETY: as the function demands; the capacity stands in the head.
    unsafe {
        let capacity = ((*block).load(Ordering::Relaxed) >> 32) as usize;
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(block, capacity + 1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_grows_shrinks_and_reads_back() {
        let record = Record::<()>::new(b"key", 10, word::ABSENT, 0);
        // SAFETY: this test owns the record until `free`.
        let this = unsafe { &*record };
        assert_eq!(this.key(), b"key");
        let guard = crossbeam_epoch::pin();
        for len in [10usize, 3, 64, 200, 16, 1000, 0] {
            let row: Vec<u8> = (0..len).map(|i| i as u8).collect();
            this.store_row(&row, &guard);
            let mut out = Vec::new();
            this.read_row(&mut out);
            assert_eq!(out, row);
            let arena = bumpalo::Bump::new();
            assert_eq!(this.read_row_into(&arena), &row[..]);
            if len > 12 {
                this.store_range(5, &[0xAA; 7]);
                let (window, base) = this.read_window_into(5, 7, &arena);
                assert_eq!(&window[5 - base..12 - base], &[0xAA; 7]);
            }
        }
        drop(guard);
        // SAFETY: the only reference.
        unsafe { Record::free(record) };
    }

    #[test]
    fn a_locked_word_cannot_be_locked_again() {
        let record = Record::<AtomicU64>::new(b"k", 8, 40, 0);
        // SAFETY: this test owns the record until `free`.
        let this = unsafe { &*record };
        assert!(this.try_lock(40));
        assert!(!this.try_lock(40));
        assert!(!this.try_lock(48));
        // SAFETY: the only reference.
        unsafe { Record::free(record) };
    }
}
