//! Where slots are, how many there may be, and who hands them out.

use super::reference::{Kind, PackedReference};
use super::slot::Slot;
use hyades_platform::sync::{AtomicU32, AtomicU64, Ordering};
use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock};

// The schedule checker keeps a history of every atomic.
const CHUNK_SLOTS: usize = if cfg!(loom) { 5 } else { 1024 };
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
    /// The number of the next new one. Raised by whoever wants one; at most by the number of these above `most`.
    next: AtomicU32,
    /// So many there may be.
    most: u32,
    /// Free ones that no session has: once there are as many as there may be, those who have many pass some on.
    surplus: Mutex<Vec<u32>>,
}

/// With this share of the slots in use the cold vector is to be raised as far as it can be.
const MANY: u32 = 4;

/// A session that finds more free slots than this passes half of them on, where others can have no new ones.
const SURPLUS: usize = 1024;

/// And so many are taken at a time.
const TAKEN: usize = 64;

impl Slots {
    /// For slots of so many vectors, in about so many bytes at most. Numbers below `first` are not handed out.
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

    /// How many there are, used or not.
    #[cfg(all(test, not(loom)))]
    pub fn len(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    /// Whether there may be no new ones.
    pub fn is_full(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.most
    }

    /// Whether it would be well if others were used again rather than new ones.
    pub fn are_many(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.most / MANY
    }

    /// The number of a new one; none if there may be no more.
    pub fn add(&self) -> Option<u32> {
        if self.is_full() {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < self.most).then_some(number)
    }

    /// The session has found free slots: where others can have no new ones, it keeps not all of them.
    pub fn pass_on(&self, free: &mut Vec<u32>) {
        if free.len() > SURPLUS && self.is_full() {
            let half = free.split_off(free.len() / 2);
            self.surplus.lock().expect("no holder panics").extend(half);
        }
    }

    /// Slots that others have passed on.
    pub fn take_surplus(&self, free: &mut Vec<u32>) {
        let mut surplus = self.surplus.lock().expect("no holder panics");
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
    pub(super) taken: PackedReference,
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
