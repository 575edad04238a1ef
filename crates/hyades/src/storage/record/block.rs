//! Blocks: the memory of rows outside of their records, and the words of all rows.
//!
//! The head word of a block states its capacity in words in the upper half, and the row's length in
//! bytes in the lower.

use super::words_for;
use hyades_platform::reclaim::{Guard, retire};
use std::alloc::{Layout as Allocation, alloc_zeroed, dealloc, handle_alloc_error};
use std::sync::atomic::{AtomicU64, Ordering};

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

/// Words of an allocation with room for `words`, of a size that allocators with four sizes to each
/// power of two (mimalloc, jemalloc) serve without a rest.
pub(super) fn allocated(words: usize) -> usize {
    debug_assert!(words > 0, "a block has a head");
    if words <= 8 {
        // Sixteen bytes are the smallest step.
        return words.next_multiple_of(2);
    }
    words.next_multiple_of(1 << ((words - 1).ilog2() - 2))
}

/// Blocks up to this capacity in words never shrink.
pub(super) const SMALL_BLOCK_WORDS: usize = 31;

/// Whether a row of `needed` words leaves a separate block of this capacity: the row's own block
/// would have five eighths of the size at most. A row that grows again then moves a second time at
/// least two sizes later, so the moves cost less than the changes between them.
pub(super) fn is_wasteful(needed: usize, capacity: usize) -> bool {
    capacity > SMALL_BLOCK_WORDS && allocated(needed + 1) * 8 <= (capacity + 1) * 5
}

/// # Safety
/// `block` came from `new_block`, and no reader that pins from now on reaches the block; it is
/// retired once.
pub(super) unsafe fn retire_block(block: *mut AtomicU64, guard: &Guard) {
    // SAFETY: the guard keeps the block until the end of this function; its head is atomic. The
    // block is freed after every reader that may reach it has unpinned.
    unsafe {
        let capacity = ((*block).load(Ordering::Relaxed) >> 32) as usize;
        let address = block as usize;
        retire(guard, 8 * (capacity + 1), move || free_block(address as *mut AtomicU64));
    }
}

/// Allocates a block with room for `needed` words, and the room needed by a row that grows bit by
/// bit. The head states the capacity, everything else is 0.
pub(super) fn new_block(needed: usize) -> *mut AtomicU64 {
    let words = allocated(needed + 1);
    let allocation = Allocation::array::<AtomicU64>(words).expect("a block's size");
    // SAFETY: the allocation is not of size zero, and is aligned and large enough for its head.
    // All zeros are valid words.
    unsafe {
        let block = alloc_zeroed(allocation).cast::<AtomicU64>();
        if block.is_null() {
            handle_alloc_error(allocation);
        }
        block.write(AtomicU64::new((words as u64 - 1) << 32));
        block
    }
}

/// Writes a row into a block with enough room.
pub(super) fn store_block(block: *mut AtomicU64, bytes: &[u8]) {
    // SAFETY: the caller holds the record's write lock, so the block, the record's current or next
    // one, is not freed; the head states the constant capacity, and all words are atomic.
    unsafe {
        let capacity = (*block).load(Ordering::Relaxed) >> 32;
        debug_assert!(words_for(bytes.len()) as u64 <= capacity, "a row fits its block");
        fill(std::slice::from_raw_parts(block.add(1), capacity as usize), bytes);
        (*block).store(capacity << 32 | bytes.len() as u64, Ordering::Relaxed);
    }
}

/// # Safety
/// `block` came from [`new_block`], cannot be reached any more, and is freed once.
pub(super) unsafe fn free_block(block: *mut AtomicU64) {
    // SAFETY: by the contract there is no other access. The head states the capacity, and the block
    // had one more word for the head.
    unsafe {
        let capacity = ((*block).load(Ordering::Relaxed) >> 32) as usize;
        let allocation = Allocation::array::<AtomicU64>(capacity + 1).expect("a block's size");
        dealloc(block.cast(), allocation);
    }
}
