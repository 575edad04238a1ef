//! Where slots are, and who hands them out.

use super::reference::{Kind, Packed};
use super::slot::Slot;
use hyades_platform::sync::{AtomicU32, AtomicU64, Ordering};
use std::collections::VecDeque;
use std::sync::OnceLock;

// The schedule checker keeps a history of every atomic.
const CHUNK_SLOTS: usize = if cfg!(loom) { 4 } else { 1024 };
const CHUNKS: usize = if cfg!(loom) { 1 } else { 1 << 14 };

/// A cache line has so many words.
const LINE: usize = 8;

/// Slots side by side, each on cache lines of its own: head, replay time, a vector or two.
struct Chunk {
    words: Box<[AtomicU64]>,
    /// Where the first slot begins, so that slots begin on cache lines.
    first: usize,
}

/// The slots that are for rows alone, or those that rows share.
pub(super) struct Slots {
    lanes: usize,
    /// Words from slot to slot.
    stride: usize,
    chunks: Box<[OnceLock<Chunk>]>,
    next: AtomicU32,
}

impl Slots {
    pub fn new(lanes: usize, vectors: usize) -> Self {
        Slots {
            lanes,
            stride: (2 + vectors * lanes).next_multiple_of(LINE),
            chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            next: AtomicU32::new(0),
        }
    }

    /// How many there are, used or not.
    #[cfg(all(test, not(loom)))]
    pub fn len(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    /// The number of a new one.
    pub fn add(&self) -> u32 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        assert!((number as usize) < CHUNKS * CHUNK_SLOTS, "the hot-row table is full");
        number
    }

    #[cold]
    fn new_chunk(&self) -> Chunk {
        let words: Box<[AtomicU64]> =
            (0..CHUNK_SLOTS * self.stride + LINE).map(|_| AtomicU64::new(0)).collect();
        let first = words.as_ptr().align_offset(64).min(LINE);
        Chunk { words, first }
    }

    #[inline]
    pub fn get(&self, number: u32, kind: Kind) -> Slot<'_> {
        let number = number as usize;
        let chunk = self.chunks[number / CHUNK_SLOTS].get_or_init(|| self.new_chunk());
        let start = chunk.first + number % CHUNK_SLOTS * self.stride;
        Slot { words: &chunk.words[start..start + self.stride], kind, lanes: self.lanes }
    }
}

/// The slots that a session hands out, and what its transaction has handed out.
#[derive(Default)]
pub(crate) struct Ring {
    /// Those for one row, oldest first: a row keeps its slot for as long as it stays hot.
    pub(super) own: VecDeque<u32>,
    /// Shared ones that are handed out, by the tick of that, oldest first. No batch is empty.
    shared: VecDeque<Batch>,
    /// Room for batches to come.
    empty: Vec<Vec<u32>>,
    /// Shared ones that were not cold when their turn came, though later ones may be: they stand for what
    /// depends on a stream that is slower than others, or stands still.
    pub(super) late: VecDeque<u32>,
    /// Shared ones that are cold. The last is taken first: it is the likeliest to be in a cache.
    pub(super) free: Vec<u32>,
    /// The reference that all rows written by the transaction get, and, but for its kind, the cold ones that
    /// it read; 0 if there is none yet.
    pub(super) taken: Packed,
    /// The lane and position that `taken` says all with.
    pub(super) single: Option<(usize, u64)>,
    /// By lane, up to where the stream is known to be reserved.
    pub(super) reserved: Vec<u64>,
}

/// Shared slots that were handed out in the same tick.
struct Batch {
    tick: u64,
    numbers: Vec<u32>,
}

impl Ring {
    #[inline]
    pub(super) fn hand_out(&mut self, number: u32, tick: u64) {
        match self.shared.back_mut() {
            Some(batch) if batch.tick == tick => batch.numbers.push(number),
            _ => self.new_batch(number, tick),
        }
    }

    #[cold]
    fn new_batch(&mut self, number: u32, tick: u64) {
        let mut numbers = self.empty.pop().unwrap_or_default();
        numbers.push(number);
        self.shared.push_back(Batch { tick, numbers });
    }

    /// Shared slots of ticks that are cold are free again.
    pub(super) fn take_back(&mut self, has_cooled: impl Fn(u64) -> bool) {
        while let Some(mut batch) = self.shared.pop_front_if(|batch| has_cooled(batch.tick)) {
            self.free.append(&mut batch.numbers);
            self.empty.push(batch.numbers);
        }
    }

    /// The shared slot that was handed out first, if its tick is `old`; it is no longer in the ring then.
    pub(super) fn oldest_if(&mut self, old: impl Fn(u64) -> bool) -> Option<u32> {
        let batch = self.shared.front_mut().filter(|batch| old(batch.tick))?;
        let number = batch.numbers.pop();
        if batch.numbers.is_empty() {
            self.empty.extend(self.shared.pop_front().map(|batch| batch.numbers));
        }
        number
    }
}
