//! Memory of older versions: chunks are filled by sessions, and used again, or freed, once no
//! reader wants their versions.

use super::{OldVersionWriter, OldVersions, UNIT_WORDS};
use crate::storage::tid::Tid;
use hyades_platform::reclaim::{Guard, retire};
use hyades_platform::sync::Unpoisoned;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Bits of a link that state the unit within a chunk.
pub(super) const UNIT_BITS: u32 = 12;

/// Words of a chunk that holds several versions: 64 KiB.
const CHUNK_WORDS: usize = UNIT_WORDS << UNIT_BITS;

/// A version longer than this has a chunk of its own.
pub(super) const LARGE_WORDS: usize = CHUNK_WORDS / 8;

/// Chunks are found by number through a directory of two levels.
pub(super) const DIRECTORY: usize = 1 << 10;

/// Numbers of chunks, a million: with the shortest chunks 64 GiB of versions.
const MOST_CHUNKS: usize = DIRECTORY * DIRECTORY;

/// Memory of versions.
pub(super) struct VersionChunk {
    pub words: Box<[AtomicU64]>,
    /// The number of versions in the chunk. Written by the session that fills the chunk; Relaxed: a
    /// counter.
    pub versions: AtomicU32,
}

impl VersionChunk {
    fn bytes(&self) -> u64 {
        (self.words.len() * 8) as u64
    }
}

/// A chunk that no writer fills any more.
pub(super) struct FullChunk {
    number: u32,
    /// The highest TID that ended a version of the chunk.
    pub last_end: Tid,
    /// By stream, the highest end of a log record that ended a version of the chunk, at a replay
    /// along lists of predecessors; otherwise empty.
    pub positions: Box<[u64]>,
}

#[derive(Default)]
pub(super) struct Numbers {
    /// Chunks that can be used again once no reader is below their last end.
    pub full: Vec<FullChunk>,
    /// Numbers without a chunk, and the lowest number never used.
    pub free: Vec<u32>,
    pub next: u32,
}

impl OldVersions {
    /// Bytes of memory held for versions.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn slot(&self, number: u32) -> &AtomicPtr<VersionChunk> {
        let directory = self.directories[number as usize / DIRECTORY]
            .get_or_init(|| (0..DIRECTORY).map(|_| AtomicPtr::default()).collect());
        &directory[number as usize % DIRECTORY]
    }

    /// A chunk, unless it was freed. Valid as long as the guard.
    pub(super) fn chunk<'g>(&self, number: u32, _guard: &'g Guard) -> Option<&'g VersionChunk> {
        let chunk = self.slot(number).load(Ordering::Acquire);
        // SAFETY: a chunk is removed from its slot before it is retired through the epoch, and the
        // guard was pinned before this load. The chunk was initialised before being published.
        unsafe { chunk.as_ref() }
    }

    /// Returns the number of versions held for snapshots or not yet freed. Takes a while if there
    /// are many.
    pub fn count(&self) -> u64 {
        let guard = hyades_platform::reclaim::pin();
        let next = self.numbers.lock().unpoisoned().next;
        let chunks = (1..next).filter_map(|number| self.chunk(number, &guard));
        chunks.map(|chunk| u64::from(chunk.versions.load(Ordering::Relaxed))).sum()
    }

    /// Creates a chunk. `None` if there are too many.
    fn add_chunk(&self, words: usize) -> Option<u32> {
        let words = (0..words).map(|_| AtomicU64::new(0)).collect();
        let chunk = VersionChunk { words, versions: AtomicU32::new(0) };
        self.bytes.fetch_add(chunk.bytes(), Ordering::Relaxed);
        let mut numbers = self.numbers.lock().unpoisoned();
        let number = match numbers.free.pop() {
            Some(number) => number,
            None if numbers.next as usize == MOST_CHUNKS => {
                self.bytes.fetch_sub(chunk.bytes(), Ordering::Relaxed);
                return None;
            }
            None => {
                numbers.next += 1;
                numbers.next - 1
            }
        };
        let old = self.slot(number).swap(Box::into_raw(Box::new(chunk)), Ordering::Release);
        debug_assert!(old.is_null(), "a free number has no chunk");
        Some(number)
    }

    /// Bytes of the chunks that are full: each is freed once no reader wants its versions.
    pub fn full_bytes(&self) -> u64 {
        self.bytes().saturating_sub(self.filling.load(Ordering::Relaxed))
    }

    /// Leaves a chunk to be used again once no reader is below `last_end`.
    fn fill(&self, number: u32, last_end: Tid, positions: Box<[u64]>) {
        self.numbers.lock().unpoisoned().full.push(FullChunk { number, last_end, positions });
    }

    /// Leaves the chunk of a single version, which ended at `end`, by the log record `by`.
    pub(super) fn fill_alone(&self, writer: &OldVersionWriter, number: u32, (end, by): (Tid, u64)) {
        let mut alone = OldVersionWriter { replayed: writer.replayed, ..Default::default() };
        alone.count_ended(by);
        self.fill(number, end, alone.positions.into());
    }

    /// Room for a version of this many words: the number of its chunk and its unit there.
    pub(super) fn place(
        &self,
        writer: &mut OldVersionWriter,
        words: usize,
    ) -> Option<(u32, usize)> {
        if words > LARGE_WORDS {
            return Some((self.add_chunk(words)?, 0));
        }
        let units = words.div_ceil(UNIT_WORDS);
        let (number, unit) = match writer.chunk {
            Some((number, unit)) if (unit + units) * UNIT_WORDS <= CHUNK_WORDS => (number, unit),
            _ => {
                self.end_writer(writer);
                let number = self.add_chunk(CHUNK_WORDS)?;
                self.filling.fetch_add((CHUNK_WORDS * 8) as u64, Ordering::Relaxed);
                (number, 0)
            }
        };
        writer.chunk = Some((number, unit + units));
        Some((number, unit))
    }

    /// Begins to fill a writer's chunk again, if no reader wants a version in the chunk.
    pub(super) fn renew(&self, writer: &mut OldVersionWriter, lowest: Tid, guard: &Guard) {
        if writer.last_end <= lowest {
            writer.chunk = writer.chunk.map(|(number, _)| (number, 0));
            let chunk = writer.chunk.and_then(|(number, _)| self.chunk(number, guard));
            chunk.inspect(|chunk| chunk.versions.store(0, Ordering::Relaxed));
        }
    }

    /// Leaves the chunk of a writer to be freed, as at the end of its session. Returns whether the
    /// writer had a chunk.
    pub fn end_writer(&self, writer: &mut OldVersionWriter) -> bool {
        let chunk = writer.chunk.take();
        if let Some((number, _)) = chunk {
            self.fill(number, writer.last_end, writer.positions.as_slice().into());
            self.filling.fetch_sub((CHUNK_WORDS * 8) as u64, Ordering::Relaxed);
        }
        writer.last_end = Tid::NONE;
        writer.positions.fill(0);
        chunk.is_some()
    }

    /// The lowest TID that a record to come may read as of: above all TIDs, except in a replay on
    /// several versions.
    pub fn floor(&self) -> Tid {
        Tid::from_bits(self.floor.load(Ordering::Acquire))
    }

    /// Begins a replay on several versions.
    pub fn lower_floor(&self) {
        self.floor.store(Tid::NONE.bits(), Ordering::Release);
    }

    /// Raises the floor of a replay, and frees the versions that no record to come reads. Returns
    /// false if the floor is as high already.
    pub fn raise_floor(&self, floor: Tid, guard: &Guard) -> bool {
        let is_raised = self.floor.fetch_max(floor.bits(), Ordering::AcqRel) < floor.bits();
        if is_raised {
            self.free_up_to(floor, guard);
        }
        is_raised
    }

    /// Frees the chunks whose versions all ended at or before `lowest`: the lowest TID that any
    /// reader, now or later, reads as of.
    pub fn free_up_to(&self, lowest: Tid, guard: &Guard) {
        self.free_full(|chunk| chunk.last_end <= lowest, guard);
    }

    /// Frees the full chunks with versions that no reader wants, now or later.
    pub(super) fn free_full(&self, is_needless: impl Fn(&FullChunk) -> bool, guard: &Guard) {
        let mut numbers = self.numbers.lock().unpoisoned();
        let Numbers { full, free, .. } = &mut *numbers;
        full.retain(|chunk| {
            if !is_needless(chunk) {
                return true;
            }
            let removed = self.slot(chunk.number).swap(std::ptr::null_mut(), Ordering::AcqRel);
            debug_assert!(!removed.is_null(), "a full chunk is there until it is freed here");
            free.push(chunk.number);
            // SAFETY: `add_chunk` made the chunk from a box. The chunk was removed from the only
            // place where readers find chunks, once, by the swap; readers that found it before are
            // pinned.
            unsafe {
                let bytes = (*removed).bytes();
                self.bytes.fetch_sub(bytes, Ordering::Relaxed);
                let removed = removed as usize;
                let free = move || drop(Box::from_raw(removed as *mut VersionChunk));
                retire(guard, bytes as usize, free);
            }
            false
        });
    }
}

impl Drop for OldVersions {
    fn drop(&mut self) {
        for directory in &mut self.directories {
            for chunk in directory.get_mut().into_iter().flatten() {
                let chunk = *chunk.get_mut();
                if !chunk.is_null() {
                    // SAFETY: `add_chunk` made the chunk from a box, and nothing else refers to the
                    // chunk: the database, with its sessions and readers, is gone.
                    drop(unsafe { Box::from_raw(chunk) });
                }
            }
        }
    }
}
