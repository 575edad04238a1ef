//! One row in memory: its version word, lock, stamp, key and bytes.
//!
//! A record is one allocation: header, key bytes, then an inline block for the row. A row that
//! outgrows its block moves to a separate block, and a row that has shrunk far below a separate
//! block moves to a smaller block, or back; the separate block left behind is retired through the
//! epoch, so a pinned reader may go on reading it. All row bytes are atomic words. A reader that
//! races with a writer may read torn bytes, detected by the version word, but never reads outside a
//! block: the row's length is stored in the block itself and never exceeds its capacity.
//!
//! A record does not know its table: the meaning of the bytes, and access to rows from elsewhere,
//! is in [`super::row_access`].

mod block;

use self::block::{free_block, is_wasteful, new_block, retire_block, store_block};
use super::key::stored_len;
use bumpalo::Bump;
use hyades_platform::prefetch::{prefetch, prefetch_bytes};
use hyades_platform::reclaim::Guard;
use std::alloc::{Layout as Allocation, alloc, dealloc, handle_alloc_error};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

/// The version word: TID << 3 | dead << 2 | absent << 1 | locked.
pub mod word {
    use crate::storage::tid::Tid;

    /// Set while a writer holds the record (optimistic concurrency control and replay).
    pub const LOCKED: u64 = 1;
    /// The row does not exist: not yet inserted, or deleted.
    pub const ABSENT: u64 = 2;
    /// The record is leaving its primary index, or has left it; a thread that still holds the
    /// record looks the key up again.
    pub const DEAD: u64 = 4;
    /// The TID is stored above the flags.
    const TID_SHIFT: u32 = 3;

    /// The TID in a version word.
    #[inline]
    pub const fn tid(word: u64) -> Tid {
        Tid::from_bits(word >> TID_SHIFT)
    }

    /// The word of a row that exists in this version, and is neither locked nor dead.
    #[inline]
    pub const fn of(tid: Tid) -> u64 {
        tid.bits() << TID_SHIFT
    }
}

/// The lock word of two-phase locking: the number of readers, or this value for a writer. Where
/// versions are kept: the number of the slot of the transaction that intends to write, or this
/// value while the record is being inserted or removed.
pub const WRITER: u32 = 1 << 31;

#[repr(C)]
pub struct Record<S> {
    /// See [`word`]. Written under the write lock ([`word::LOCKED`] or [`WRITER`], depending on the
    /// concurrency control), with Release, after the row's bytes; read with Acquire.
    pub word: AtomicU64,
    /// The data of the logging protocol, and of some concurrency controls, about the row.
    pub stamp: S,
    /// The row's current block. Replaced only under the write lock.
    block: AtomicPtr<AtomicU64>,
    /// The holder of the row, see [`WRITER`]; not used by optimistic concurrency control.
    pub lock: AtomicU32,
    /// Number of secondary index entries that point to the record, stale entries included. The
    /// record stays in its primary index until the number is 0.
    pub entries: AtomicU32,
    key_len: u32,
    /// The version before the version in the row, see [`super::old_versions`]; 0 if there is no
    /// such version. Written under the write lock.
    pub(super) older: AtomicU32,
}

/// The part of a block's head word with the row's length.
const LEN_MASK: u64 = u32::MAX as u64;

/// Maximum number of cache lines that a prefetch of a row loads, to spare the lines loaded before.
const MOST_LINES: usize = 5;

fn words_for(bytes: usize) -> usize {
    bytes.div_ceil(8)
}

impl<S: Default> Record<S> {
    fn allocation(key_len: usize, inline_words: usize) -> (Allocation, usize) {
        let key_at = std::mem::size_of::<Self>();
        let block_at = key_at + words_for(key_len) * 8;
        let size = block_at + (1 + inline_words) * 8;
        // Large records are aligned to a cache line, to be shared by header, key and first columns.
        let align = if size >= 192 { 64 } else { 16 };
        (Allocation::from_size_align(size, align).expect("a record's size"), block_at)
    }

    /// Allocates a record with this version word and lock word, and an empty row with room for
    /// `row_bytes`. The caller owns the record until it is linked into an index.
    pub fn new(key: &[u8], row_bytes: usize, version: u64, lock: u32) -> *mut Record<S> {
        let inline_words = words_for(row_bytes);
        let key_len = stored_len(key);
        let (allocation, block_at) = Self::allocation(key.len(), inline_words);
        // SAFETY: the allocation is not of size zero, and `allocation` places all parts inside it,
        // aligned to 8. Everything read later is initialised here: header, key, the block's head
        // and words.
        unsafe {
            let base = alloc(allocation);
            if base.is_null() {
                handle_alloc_error(allocation);
            }
            prefetch_next_allocation(base, allocation.size());
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
                older: AtomicU32::new(0),
            });
            std::ptr::copy_nonoverlapping(
                key.as_ptr(),
                base.add(std::mem::size_of::<Self>()),
                key.len(),
            );
            record
        }
    }

    /// Number of bytes freed by [`Record::free`].
    pub fn allocated_bytes(&self) -> usize {
        let [inline, current] =
            [self.inline_block(), self.block.load(Ordering::Acquire)].map(|block| {
                // SAFETY: the heads of both blocks are atomic. The inline block lives as long as
                // the record, the current block while the caller is pinned or holds the lock.
                unsafe { ((*block).load(Ordering::Relaxed) >> 32) as usize }
            });
        let (allocation, _) = Self::allocation(self.key_len as usize, inline);
        let is_outside = self.block.load(Ordering::Relaxed) != self.inline_block();
        allocation.size() + if is_outside { 8 * (current + 1) } else { 0 }
    }

    /// Frees a record.
    ///
    /// # Safety
    /// The record came from [`Record::new`], and no other reference to the record exists or can be
    /// obtained.
    pub unsafe fn free(record: *mut Record<S>) {
        // SAFETY: by the contract there is no other access. The layout is recomputed from the same
        // numbers, and a block other than the inline block came from `new_block`.
        unsafe {
            let this = &*record;
            // The inline block's head states its capacity, which never changes.
            let head = (*this.inline_block()).load(Ordering::Relaxed);
            let (allocation, _) = Self::allocation(this.key_len as usize, (head >> 32) as usize);
            let block = this.block.load(Ordering::Relaxed);
            if block != this.inline_block() {
                free_block(block);
            }
            std::ptr::drop_in_place(record);
            dealloc(record.cast::<u8>(), allocation);
        }
    }
}

/// Prefetches the memory of the probable next allocation of a record of this size: allocators
/// mostly proceed to the next address, and rows are often inserted in sequence. Otherwise the first
/// atomic read-modify-write after writing a record (on the leaf) waits for all lines of the record.
#[inline]
fn prefetch_next_allocation(base: *const u8, size: usize) {
    // A prefetch for the next record would be too late, so the prefetch is for the record after
    // next.
    prefetch_bytes(base, 2 * size, size.min(MOST_LINES * 64));
}

impl<S> Record<S> {
    /// The encoded primary key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        // SAFETY: the key bytes follow the header in the same allocation, were initialised by `new`
        // and never change. The bytes are outside the extent of `&self`: tree borrows permits this
        // access, stacked borrows forbids the access (docs/reliability.md).
        unsafe {
            let at = (self as *const Self).cast::<u8>().add(std::mem::size_of::<Self>());
            std::slice::from_raw_parts(at, self.key_len as usize)
        }
    }

    /// Prefetches `len` bytes of a record's row from `offset` on, if the row is in its inline
    /// block. Any address is allowed.
    #[inline]
    pub fn prefetch_row(record: *const Self, key_len: usize, (offset, len): (usize, usize)) {
        let row_at = std::mem::size_of::<Self>() + words_for(key_len) * 8 + 8;
        let start = record.cast::<u8>().wrapping_add(row_at + offset);
        // The cache line of `start`, and every further line with some of the bytes.
        for at in (0..len + 63).step_by(64).take(MOST_LINES) {
            prefetch(start.wrapping_add(at.min(len)));
        }
    }

    fn inline_block(&self) -> *mut AtomicU64 {
        let at = std::mem::size_of::<Self>() + words_for(self.key_len as usize) * 8;
        // SAFETY: the inline block is in the record's own allocation. The result is only compared,
        // and read by `free`, the owner of the allocation.
        unsafe { (self as *const Self).cast::<u8>().add(at).cast::<AtomicU64>().cast_mut() }
    }

    /// The block's words after its head, and the row's length in bytes.
    #[inline]
    pub(super) fn block(&self) -> (&[AtomicU64], usize) {
        // Acquire: pairs with the Release that published the block, after its head was initialised.
        let block = self.block.load(Ordering::Acquire);
        // SAFETY: the block is the inline block, or `store_row` published the block; its head
        // states the capacity, which never changes. A replaced block is retired through the
        // epoch. This function is safe because each `&Record` either has the lifetime of a
        // pinned guard, as indexes return it, or belongs to the record's only owner: `&self` keeps
        // the block from being freed.
        unsafe {
            let head = (*block).load(Ordering::Relaxed);
            let words = std::slice::from_raw_parts(block.add(1), (head >> 32) as usize);
            let len = (head & LEN_MASK) as usize;
            debug_assert!(words_for(len) <= words.len(), "a row is not longer than its block");
            (words, len)
        }
    }

    /// Returns the row's length in bytes. The length may change at any time unless the caller holds
    /// a lock.
    pub fn row_len(&self) -> usize {
        self.block().1
    }

    /// Appends the row's bytes to `out`. Without a lock the bytes may be torn, as the version word
    /// shows.
    #[inline]
    pub(super) fn read_row(&self, out: &mut Vec<u8>) {
        let (words, len) = self.block();
        let start = out.len();
        for word in &words[..words_for(len)] {
            out.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        out.truncate(start + len);
    }

    /// Copies the row into `arena` memory and returns its bytes.
    #[inline]
    pub(super) fn read_row_into<'a>(&self, arena: &'a Bump) -> &'a [u8] {
        let (words, len) = self.block();
        copy_row(words, len, arena)
    }

    /// The little-endian `u32` at `offset` of the row, or 0 beyond its capacity.
    #[inline]
    pub(super) fn read_u32(&self, offset: usize) -> u32 {
        let (words, _) = self.block();
        let word = |at: usize| words.get(at).map_or(0, |word| word.load(Ordering::Relaxed));
        let (at, shift) = (offset / 8, offset % 8 * 8);
        let low = word(at) >> shift;
        // The value may span two words.
        let high = if shift > 32 { word(at + 1) << (64 - shift) } else { 0 };
        (low | high) as u32
    }

    /// Copies the row's first `len` bytes, or the whole of a shorter row, into `arena` memory.
    #[inline]
    pub(super) fn read_prefix_into<'a>(&self, len: usize, arena: &'a Bump) -> &'a [u8] {
        let (words, row_len) = self.block();
        copy_row(words, len.min(row_len), arena)
    }

    /// The row's first word: its null bitmap, if the table has one.
    #[inline]
    pub(super) fn read_first_word(&self) -> u64 {
        self.block().0.first().map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Copies the words with the `len` bytes from `offset` on into `arena` memory. Returns the
    /// words as bytes, with the offset of the first.
    #[inline]
    pub(super) fn read_window_into<'a>(
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

    /// Overwrites bytes within the row in place. The caller holds the write lock.
    #[inline]
    pub(super) fn store_range(&self, offset: usize, bytes: &[u8]) {
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

    /// Replaces the whole row. The caller holds the write lock. Returns the previous length.
    pub(super) fn store_row(&self, bytes: &[u8], guard: &Guard) -> usize {
        debug_assert!(bytes.len() as u64 <= LEN_MASK, "a row's length fits its block's head");
        let (inline, old) = (self.inline_block(), self.block.load(Ordering::Relaxed));
        let (words, old_len) = self.block();
        let needed = words_for(bytes.len());
        if needed <= words.len() && (old == inline || !is_wasteful(needed, words.len())) {
            store_block(old, bytes);
            return old_len;
        }
        // SAFETY: the inline block is in the record's own allocation; its head is atomic.
        let inline_words = unsafe { (*inline).load(Ordering::Relaxed) >> 32 } as usize;
        // A reader that still reads the inline block, left by the row before, may see words of both
        // rows, as if the row were overwritten in place.
        let fresh = if needed <= inline_words { inline } else { new_block(needed) };
        store_block(fresh, bytes);
        // Release: a reader that sees the block sees its head and words.
        self.block.store(fresh, Ordering::Release);
        if old != inline {
            // SAFETY: the old block came from an earlier `store_row`. The block was replaced just
            // now, under the write lock, so it is retired once, and freed after every reader that
            // is pinned now has unpinned.
            unsafe { retire_block(old, guard) };
        }
        old_len
    }

    /// The link to the version before the version in the row. The caller holds the write lock.
    pub(super) fn older(&self) -> u32 {
        self.older.load(Ordering::Relaxed)
    }

    /// Sets [`word::LOCKED`], whatever protects the row: a reader without a lock must not accept a
    /// half-written row. The caller has the row's write protection, and keeps it until storing a
    /// new version word. Returns the version word before.
    pub fn set_locked(&self) -> u64 {
        let seen = self.word.load(Ordering::Relaxed);
        debug_assert!(
            seen & word::LOCKED != 0 || self.lock.load(Ordering::Relaxed) != 0,
            "a row is overwritten by the holder of its write protection"
        );
        self.word.store(seen | word::LOCKED, Ordering::Relaxed);
        fence(Ordering::Release);
        seen
    }

    /// Sets [`word::LOCKED`] in a row that only this thread may change, without the record's own
    /// lock: the thread holds the row's partition, or a lock in the stamp. Returns the version word
    /// before.
    #[inline]
    pub fn lock_in_turn(&self) -> u64 {
        let seen = self.word.load(Ordering::Relaxed);
        self.word.store(seen | word::LOCKED, Ordering::Relaxed);
        fence(Ordering::Release);
        seen
    }

    /// Ends [`Record::try_lock`], and stores the version word.
    #[inline]
    pub fn unlock(&self, version: u64) {
        debug_assert_eq!(version & word::LOCKED, 0, "an unlocked row's word");
        self.word.store(version, Ordering::Release);
    }

    /// Tries to set [`word::LOCKED`] on a record whose word is `expected`; returns whether the bit
    /// was set.
    #[inline]
    pub fn try_lock(&self, expected: u64) -> bool {
        debug_assert_eq!(expected & word::DEAD, 0, "a dead record is not locked again");
        let locked = self
            .word
            .compare_exchange(
                expected & !word::LOCKED,
                expected | word::LOCKED,
                // SeqCst: orders the lock before the load of read stamps, in the total order that
                // also contains a reader's raise and validation (docs/protocols/taurus.md, E4).
                Ordering::SeqCst,
                Ordering::Relaxed,
            )
            .is_ok();
        // A reader that sees a changed word of the row must also see the lock bit.
        fence(Ordering::Release);
        locked
    }
}

/// Overwrites bytes of the first word, from byte `within` on.
#[inline]
fn store_part(words: &[AtomicU64], within: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    debug_assert!(within + bytes.len() <= 8, "the bytes are in one word");
    let mut value = words[0].load(Ordering::Relaxed).to_le_bytes();
    value[within..within + bytes.len()].copy_from_slice(bytes);
    words[0].store(u64::from_le_bytes(value), Ordering::Relaxed);
}

/// Copies the first `len` bytes of a row into `arena` memory.
#[inline]
pub(super) fn copy_row<'a>(words: &[AtomicU64], len: usize, arena: &'a Bump) -> &'a [u8] {
    &copy_words(&words[..words_for(len)], arena)[..len]
}

/// Copies words into `arena` memory, as little-endian bytes.
#[inline]
fn copy_words<'a>(words: &[AtomicU64], arena: &'a Bump) -> &'a [u8] {
    let layout = Allocation::array::<u64>(words.len()).expect("a row's size");
    let out = arena.alloc_layout(layout).cast::<u64>().as_ptr();
    let load = |word: &AtomicU64| word.load(Ordering::Relaxed).to_le();
    // SAFETY: `out` has room for all words, and each word is written once before all are read as
    // bytes. The memory lives as long as the borrow of the arena.
    unsafe {
        // Four at a time: the compiler does not unroll atomic loads.
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

#[cfg(test)]
mod tests;
