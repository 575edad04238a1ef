use super::block::{SMALL_BLOCK_WORDS, allocated};
use super::*;
use crate::storage::tid::Tid;

#[test]
fn a_row_grows_shrinks_and_reads_back() {
    let record = Record::<()>::new(b"key", 10, word::ABSENT, 0);
    // SAFETY: this test owns the record until `free`.
    let this = unsafe { &*record };
    assert_eq!(this.key(), b"key");
    let guard = hyades_platform::reclaim::pin();
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
    // SAFETY: no other reference to the record is left.
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
    // SAFETY: no other reference to the record is left.
    unsafe { Record::free(record) };
}

/// The capacity of a record's current block, and whether the block is the inline block.
fn block_of<S>(record: &Record<S>) -> (usize, bool) {
    (record.block().0.len(), record.block.load(Ordering::Relaxed) == record.inline_block())
}

#[test]
fn an_allocation_has_one_of_four_sizes_to_each_power_of_two() {
    let sizes: Vec<usize> = (1..=64).map(allocated).collect();
    assert_eq!(sizes[..9], [2, 2, 4, 4, 6, 6, 8, 8, 10]);
    for words in 1..100_000 {
        let size = allocated(words);
        assert_eq!(allocated(size), size);
        assert!(size >= words && (size - words) * 4 < words.max(8), "{words}: {size}");
        assert!(size < 8 || size.is_multiple_of(1 << ((size - 1).ilog2() - 2)));
    }
}

#[test]
fn a_row_that_grows_and_shrinks_bit_by_bit_moves_seldom_and_wastes_little() {
    let record = Record::<()>::new(b"key", 0, word::ABSENT, 0);
    // SAFETY: this test owns the record until `free`.
    let this = unsafe { &*record };
    let guard = hyades_platform::reclaim::pin();
    let (mut moves, mut last) = (0, block_of(this));
    for len in (0..4096).chain((0..4096).rev()) {
        let row = vec![len as u8; len];
        this.store_row(&row, &guard);
        let mut out = Vec::new();
        this.read_row(&mut out);
        assert_eq!(out, row);
        let (capacity, _) = block_of(this);
        moves += usize::from(last != block_of(this));
        last = block_of(this);
        let most = if capacity > SMALL_BLOCK_WORDS { len / 8 * 2 + 8 } else { SMALL_BLOCK_WORDS };
        assert!(capacity <= most, "{len} bytes lie in {capacity} words");
    }
    assert!(last.0 <= SMALL_BLOCK_WORDS, "{last:?}");
    assert!(moves < 60, "{moves}");
    drop(guard);
    // SAFETY: no other reference to the record is left.
    unsafe { Record::free(record) };
}

#[test]
fn a_row_that_swings_within_a_size_does_not_move() {
    let record = Record::<()>::new(b"key", 100, word::ABSENT, 0);
    // SAFETY: this test owns the record until `free`.
    let this = unsafe { &*record };
    let guard = hyades_platform::reclaim::pin();
    this.store_row(&[1; 2000], &guard);
    let home = block_of(this);
    assert_eq!(home, (255, false));
    for len in [2040, 1300, 1700, 1273] {
        this.store_row(&vec![2; len], &guard);
        assert_eq!(block_of(this), home);
    }
    // At five eighths, and one byte past the block.
    this.store_row(&[3; 1272], &guard);
    assert_eq!(block_of(this), (159, false));
    this.store_row(&[3; 1273], &guard);
    assert_eq!(block_of(this), (191, false));
    this.store_row(&[4; 104], &guard);
    assert_eq!(block_of(this), (13, true));
    drop(guard);
    // SAFETY: no other reference to the record is left.
    unsafe { Record::free(record) };
}

/// A pinned reader reads while a writer moves the row out, to and fro and back: a read accepted by
/// the version word is one row, whole.
#[test]
fn a_reader_never_accepts_a_row_torn_by_a_move() {
    const ROUNDS: u64 = if cfg!(miri) { 60 } else { 60_000 };
    let record = Record::<()>::new(b"key", 64, word::of(Tid::from_bits(0)), 0);
    // SAFETY: this test owns the record until `free`, after all threads have ended.
    let this = unsafe { &*record };
    let row_of = |round: u64| {
        // Inline, small, large, and in between.
        let len = [40, 300, 2000, 900, 64][round as usize % 5] + round as usize % 24;
        vec![round as u8; len]
    };
    this.store_row(&row_of(0), &hyades_platform::reclaim::pin());
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                let mut out = Vec::new();
                while !done.load(Ordering::Relaxed) {
                    let _guard = hyades_platform::reclaim::pin();
                    let seen = this.word.load(Ordering::Acquire);
                    out.clear();
                    this.read_row(&mut out);
                    fence(Ordering::Acquire);
                    if seen & word::LOCKED == 0 && this.word.load(Ordering::Relaxed) == seen {
                        assert_eq!(out, row_of(word::tid(seen).bits()));
                    }
                }
            });
        }
        for round in 1..ROUNDS {
            assert!(this.try_lock(word::of(Tid::from_bits(round - 1))));
            this.store_row(&row_of(round), &hyades_platform::reclaim::pin());
            this.unlock(word::of(Tid::from_bits(round)));
        }
        done.store(true, Ordering::Relaxed);
    });
    // SAFETY: no other reference to the record is left.
    unsafe { Record::free(record) };
}
