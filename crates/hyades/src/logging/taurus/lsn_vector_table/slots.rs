//! Storage and limits of slots, and the rings from which sessions hand out slots.

use super::reference::{Kind, PackedReference};
use super::slot::Slot;
use hyades_platform::sync::{AtomicU32, AtomicU64, Ordering, Unpoisoned};
use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock};

// Small under loom, which keeps a history of every atomic.
const CHUNK_SLOTS: usize = if cfg!(loom) { 5 } else { 1024 };
const CHUNKS: usize = if cfg!(loom) { 1 } else { 1 << 14 };

/// Words of a cache line.
const LINE: usize = 8;

/// Adjacent slots, each on its own cache lines: head, replay time, one or two vectors.
struct Chunk {
    words: Box<[AtomicU64]>,
    /// The first word of the first slot, so that slots begin on cache lines.
    first: usize,
}

/// Either the slots for single rows or the shared slots.
pub(super) struct Slots {
    lanes: usize,
    /// Words from one slot to the next.
    stride: usize,
    chunks: Box<[OnceLock<Chunk>]>,
    /// The number of the next new slot. Incremented by each session in need of a new slot;
    /// concurrent attempts may raise the number above `most`.
    next: AtomicU32,
    /// The limit: slot numbers are below `most`.
    most: u32,
    /// Free slots that no session owns: once the limit is reached, sessions with many free slots
    /// share some.
    surplus: Mutex<Vec<u32>>,
}

/// Slots count as running short once 1 / `SHORT_DIVISOR` of the limit exists: the eviction vector
/// is then raised as far as possible.
const SHORT_DIVISOR: u32 = 4;

/// A session with more free slots than this shares half of them, once there can be no new slots.
const SURPLUS: usize = 1024;

/// Free slots taken from the surplus at a time.
const TAKEN: usize = 64;

impl Slots {
    /// Creates slots of `vectors` vectors each, in about `bytes` bytes at most. Numbers below
    /// `first` are not handed out.
    pub fn new(lanes: usize, vectors: usize, bytes: u64, first: u32) -> Self {
        let stride = (2 + vectors * lanes).next_multiple_of(LINE);
        let most = bytes / (stride * size_of::<u64>()) as u64;
        Slots {
            lanes,
            stride,
            chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            next: AtomicU32::new(first),
            most: most.clamp(1, (CHUNKS * CHUNK_SLOTS) as u64) as u32,
            surplus: Mutex::default(),
        }
    }

    /// Returns the highest number in use + 1.
    #[cfg_attr(loom, allow(dead_code))]
    pub fn len(&self) -> u32 {
        self.next.load(Ordering::Relaxed).min(self.most)
    }

    /// Returns the memory of all slots in bytes.
    #[cfg_attr(loom, allow(dead_code))]
    pub fn bytes(&self) -> u64 {
        u64::from(self.len()) * (self.stride * size_of::<u64>()) as u64
    }

    /// Returns whether the limit is reached.
    pub fn is_full(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.most
    }

    /// Returns whether slots are running short, so that reuse is better than a new slot.
    pub fn is_running_short(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.most / SHORT_DIVISOR
    }

    /// Returns the number of a new slot; `None` if the limit is reached.
    pub fn add(&self) -> Option<u32> {
        if self.is_full() {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < self.most).then_some(number)
    }

    /// Moves half of a session's free slots to the surplus, if there are many and the limit is
    /// reached.
    pub fn pass_on(&self, free: &mut Vec<u32>) {
        if free.len() > SURPLUS && self.is_full() {
            let half = free.split_off(free.len() / 2);
            self.surplus.lock().unpoisoned().extend(half);
        }
    }

    /// Moves slots shared by other sessions to `free`.
    pub fn take_surplus(&self, free: &mut Vec<u32>) {
        let mut surplus = self.surplus.lock().unpoisoned();
        let rest = surplus.len().saturating_sub(TAKEN);
        free.extend(surplus.drain(rest..));
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

/// The slots of a session, and the reference taken by the session's transaction.
#[derive(Default)]
pub struct Ring {
    /// Slots for single rows, oldest first: a row keeps its slot until eviction.
    pub(super) own: VecDeque<u32>,
    /// Shared slots in use, by the tick in which they were handed out, oldest first. No batch is
    /// empty.
    shared: VecDeque<Batch>,
    /// Spare vectors for new batches.
    empty: Vec<Vec<u32>>,
    /// Shared slots that could not be evicted in their turn, though later slots may be: the vectors
    /// depend on a slow or stalled stream.
    pub(super) late: VecDeque<u32>,
    /// Evicted shared slots. The last slot is used first, as the likeliest to be in a cache.
    pub(super) free: Vec<u32>,
    /// The reference of all rows that the transaction writes and, but for the kind, of the evicted
    /// rows that the transaction reads; 0 if there is no reference yet.
    pub(super) taken: PackedReference,
    /// The component and position of `taken`, if of [`Kind::Single`].
    pub(super) single: Option<(usize, u64)>,
    /// By stream: a position up to which the stream is known to be reserved.
    pub(super) reserved: Vec<u64>,
}

/// Shared slots handed out in the same tick.
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

    /// Frees the shared slots of evicted ticks.
    pub(super) fn take_back(&mut self, is_tick_evicted: impl Fn(u64) -> bool) {
        while let Some(mut batch) = self.shared.pop_front_if(|batch| is_tick_evicted(batch.tick)) {
            self.free.append(&mut batch.numbers);
            self.empty.push(batch.numbers);
        }
    }

    /// Removes and returns a shared slot of the oldest batch, if the batch's tick is `old`.
    pub(super) fn oldest_if(&mut self, old: impl Fn(u64) -> bool) -> Option<u32> {
        let batch = self.shared.front_mut().filter(|batch| old(batch.tick))?;
        let number = batch.numbers.pop();
        if batch.numbers.is_empty() {
            self.empty.extend(self.shared.pop_front().map(|batch| batch.numbers));
        }
        number
    }
}
