//! Older versions of rows, for readers of snapshots: images of whole rows, chained behind the row.
//!
//! The newest version is in the row itself. [`Record::older`] refers to the version before it, that
//! one to the one before, and so on. A writer keeps the version that it overwrites only if a reader
//! may want it, so a chain may have gaps, and *a link may dangle*: memory is used again, without
//! being unlinked, once no reader is below the TID of what ended its versions. A reader as of TID t
//! never follows such a link. It follows the link of a version that began after t, and the version
//! behind that, in which it is interested, ended after t. It was kept, since the reader was there
//! when it was overwritten, and its memory is not used again before the reader has gone. A reader
//! as of an epoch reads as of the last TID of that.
//! `crates/model/src/snapshots.rs` visits every interleaving of this.
//!
//! Two kinds of readers may *look* behind a dangling link all the same: one that was ended because
//! versions took too much memory, in the moment before it notices, and one that finds the row
//! locked and asks whether its version was kept by now. So all words are atomic, lengths are
//! clipped to their chunk, a chunk is freed through the epoch of memory reclamation, and a version
//! names its row: before and after it is read, as under a sequence lock.

use super::record::{Record, copy_row, word};
use super::tid::Tid;
use bumpalo::Bump;
use crossbeam_epoch::Guard;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, OnceLock};

/// A version is stored from a multiple of this many words on.
const UNIT_WORDS: usize = 2;

/// Words of a version ahead of the row: the address of the row's record, stored last; the version
/// word; the TID of the transaction that ended it; the link to the version before it, below the
/// length of the row in bytes.
const HEAD_WORDS: usize = 4;

/// Bits of a link that state the unit within a chunk.
const UNIT_BITS: u32 = 12;

/// Words of a chunk that holds several versions: 64 KiB.
const CHUNK_WORDS: usize = UNIT_WORDS << UNIT_BITS;

/// A version longer than this has a chunk of its own.
const LARGE_WORDS: usize = CHUNK_WORDS / 8;

/// Chunks are found by number through a directory of two levels.
const DIRECTORY: usize = 1 << 10;

/// Numbers of chunks, a million: with the shortest chunks 64 GiB of versions.
const MOST_CHUNKS: usize = DIRECTORY * DIRECTORY;

/// Memory of versions.
struct VersionChunk {
    words: Box<[AtomicU64]>,
    /// How many versions it holds. Written by the session that fills it; Relaxed: a counter.
    versions: AtomicU32,
}

impl VersionChunk {
    fn bytes(&self) -> u64 {
        (self.words.len() * 8) as u64
    }
}

/// A chunk that no writer fills any more.
struct FullChunk {
    number: u32,
    /// The highest TID that ended one of its versions.
    last_end: Tid,
}

#[derive(Default)]
struct Numbers {
    /// Chunks that can be used again once no reader is below their last end.
    full: Vec<FullChunk>,
    /// Numbers without a chunk, and the lowest that was never used.
    free: Vec<u32>,
    next: u32,
}

type ChunkDirectory = Box<[AtomicPtr<VersionChunk>]>;

/// The older versions of all rows of a database.
pub(crate) struct OldVersions {
    /// A chunk is published (Release) before a link to it, and removed (under the lock of
    /// `numbers`) before it is freed.
    directories: Box<[OnceLock<ChunkDirectory>]>,
    numbers: Mutex<Numbers>,
    /// Bytes of all chunks. Relaxed: it only tells when to end readers.
    bytes: AtomicU64,
}

/// Where one session stores versions.
#[derive(Default)]
pub(crate) struct OldVersionWriter {
    /// The chunk that it fills: its number, and the next free unit.
    chunk: Option<(u32, usize)>,
    /// The highest TID that ended a version in the chunk.
    last_end: Tid,
}

/// A version of a row that a reader of a snapshot finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OldVersion<'a> {
    Row(&'a [u8]),
    Absent,
}

/// A version in a chunk.
struct Stored<'g> {
    /// Its version word.
    seen: u64,
    /// What ended it.
    end: Tid,
    /// The link to the version before it.
    older: u32,
    row: &'g [AtomicU64],
    /// Of the row, in bytes.
    len: usize,
    /// The word that names the record.
    name: &'g AtomicU64,
}

impl Stored<'_> {
    fn copy<'a>(&self, arena: &'a Bump) -> OldVersion<'a> {
        if self.seen & word::ABSENT != 0 {
            return OldVersion::Absent;
        }
        OldVersion::Row(copy_row(self.row, self.len, arena))
    }
}

/// What names a row.
fn address<S>(record: &Record<S>) -> u64 {
    std::ptr::from_ref(record).addr() as u64
}

impl Default for OldVersions {
    fn default() -> Self {
        OldVersions {
            directories: (0..DIRECTORY).map(|_| OnceLock::new()).collect(),
            numbers: Mutex::new(Numbers { next: 1, ..Numbers::default() }),
            bytes: AtomicU64::new(0),
        }
    }
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
    fn chunk<'g>(&self, number: u32, _guard: &'g Guard) -> Option<&'g VersionChunk> {
        let chunk = self.slot(number).load(Ordering::Acquire);
        // SAFETY: a chunk is removed from its slot before it is retired through the epoch, and the
        // guard was pinned before this load. It was initialised before it was published.
        unsafe { chunk.as_ref() }
    }

    /// The number of versions that are held for snapshots, and of those not yet freed. Takes a
    /// while if there are many.
    pub fn count(&self) -> u64 {
        let guard = crossbeam_epoch::pin();
        let next = self.numbers.lock().expect("no holder panics").next;
        let chunks = (1..next).filter_map(|number| self.chunk(number, &guard));
        chunks.map(|chunk| u64::from(chunk.versions.load(Ordering::Relaxed))).sum()
    }

    /// Creates a chunk. `None` if there are too many.
    fn add_chunk(&self, words: usize) -> Option<u32> {
        let words = (0..words).map(|_| AtomicU64::new(0)).collect();
        let chunk = VersionChunk { words, versions: AtomicU32::new(0) };
        self.bytes.fetch_add(chunk.bytes(), Ordering::Relaxed);
        let mut numbers = self.numbers.lock().expect("no holder panics");
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

    /// Whether there are chunks that can be freed some time.
    pub fn has_full_chunks(&self) -> bool {
        // Most have never kept a version.
        self.bytes() > 0 && !self.numbers.lock().expect("no holder panics").full.is_empty()
    }

    /// Leaves a chunk to be used again once no reader is below `last_end`.
    fn fill(&self, number: u32, last_end: Tid) {
        self.numbers.lock().expect("no holder panics").full.push(FullChunk { number, last_end });
    }

    /// Room for a version of this many words: the number of its chunk and its unit there.
    fn place(&self, writer: &mut OldVersionWriter, words: usize) -> Option<(u32, usize)> {
        if words > LARGE_WORDS {
            return Some((self.add_chunk(words)?, 0));
        }
        let units = words.div_ceil(UNIT_WORDS);
        let (number, unit) = match writer.chunk {
            Some((number, unit)) if (unit + units) * UNIT_WORDS <= CHUNK_WORDS => (number, unit),
            _ => {
                self.end_writer(writer);
                (self.add_chunk(CHUNK_WORDS)?, 0)
            }
        };
        writer.chunk = Some((number, unit + units));
        Some((number, unit))
    }

    /// Keeps the version of a row that is overwritten by transaction `end`. The caller has set the
    /// row's lock bit, and changes the row afterwards; `seen` is its version word. `lowest` is the
    /// lowest TID that any reader reads as of, or a lower one. Returns false if there was no room:
    /// the readers that want the version have to be ended.
    #[must_use]
    pub fn keep<S>(
        &self,
        writer: &mut OldVersionWriter,
        record: &Record<S>,
        seen: u64,
        (lowest, end): (Tid, Tid),
        guard: &Guard,
    ) -> bool {
        debug_assert!(word::tid(seen) < end, "a version ends after it has begun");
        if writer.last_end <= lowest {
            // No reader wants a version of the chunk.
            writer.chunk = writer.chunk.map(|(number, _)| (number, 0));
            let chunk = writer.chunk.and_then(|(number, _)| self.chunk(number, guard));
            chunk.inspect(|chunk| chunk.versions.store(0, Ordering::Relaxed));
        }
        let (row, len) = if seen & word::ABSENT == 0 { record.block() } else { (&[][..], 0) };
        let row = &row[..len.div_ceil(8)];
        let Some((number, unit)) = self.place(writer, HEAD_WORDS + row.len()) else { return false };
        let chunk = self.chunk(number, guard).expect("a chunk stays while it is filled");
        chunk.versions.store(chunk.versions.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let words = &chunk.words[unit * UNIT_WORDS..];
        let older = record.older.load(Ordering::Relaxed);
        words[0].store(0, Ordering::Relaxed);
        // A reader of a word stored below finds, afterwards, that the version was replaced.
        fence(Ordering::Release);
        words[1].store(seen & !word::LOCKED, Ordering::Relaxed);
        words[2].store(end.bits(), Ordering::Relaxed);
        words[3].store((len as u64) << 32 | u64::from(older), Ordering::Relaxed);
        for (to, from) in words[HEAD_WORDS..].iter().zip(row) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        words[0].store(address(record), Ordering::Release);
        let link = number << UNIT_BITS | unit as u32;
        // Release: a reader that follows the link finds the version.
        record.older.store(link, Ordering::Release);
        if HEAD_WORDS + row.len() > LARGE_WORDS {
            self.fill(number, end);
        } else {
            writer.last_end = writer.last_end.max(end);
        }
        true
    }

    /// The version behind a link, if it is one of this row.
    fn at<'g, S>(&self, link: u32, record: &Record<S>, guard: &'g Guard) -> Option<Stored<'g>> {
        if link == 0 {
            return None;
        }
        let chunk = &self.chunk(link >> UNIT_BITS, guard)?.words;
        let at = (link & ((1 << UNIT_BITS) - 1)) as usize * UNIT_WORDS;
        let head = chunk.get(at..at + HEAD_WORDS)?;
        let is_of_row = || head[0].load(Ordering::Acquire) == address(record);
        if !is_of_row() {
            return None;
        }
        let [seen, end, last] = [1, 2, 3].map(|at: usize| head[at].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let row = &chunk[at + HEAD_WORDS..];
        let len = ((last >> 32) as usize).min(row.len() * 8);
        let (end, older) = (Tid::from_bits(end), last as u32);
        is_of_row().then_some(Stored { seen, end, older, row, len, name: &head[0] })
    }

    /// The newest version behind a row for which `is_wanted` holds, given its TID.
    fn find<'g, S>(
        &self,
        record: &Record<S>,
        guard: &'g Guard,
        is_wanted: impl Fn(Tid) -> bool,
    ) -> Option<Stored<'g>> {
        let mut link = record.older.load(Ordering::Acquire);
        let mut above = u64::MAX;
        // The chain ends where the row did not exist yet. Behind a link that dangles, which only a
        // reader that was ended follows, a later version may be stored by now.
        while let Some(stored) = self.at(link, record, guard).filter(|stored| stored.seen < above) {
            if is_wanted(word::tid(stored.seen)) {
                return Some(stored);
            }
            (link, above) = (stored.older, stored.seen);
        }
        None
    }

    /// Reads the version of a row as of TID `as_of`, into `arena` memory, and its version word. The
    /// caller has seen that the version in the row began later.
    pub fn read<'a, S>(
        &self,
        record: &Record<S>,
        as_of: Tid,
        arena: &'a Bump,
        guard: &Guard,
    ) -> (u64, OldVersion<'a>) {
        match self.find(record, guard, |tid| tid <= as_of) {
            Some(stored) => (stored.seen, stored.copy(arena)),
            None => (word::ABSENT, OldVersion::Absent),
        }
    }

    /// What ended version `tid` of a row, if that version was kept.
    pub fn end_of<S>(&self, record: &Record<S>, tid: Tid, guard: &Guard) -> Option<Tid> {
        let stored = self.find(record, guard, |kept| kept <= tid)?;
        (word::tid(stored.seen) == tid).then_some(stored.end)
    }

    /// Reads the version with the version word `seen`, into `arena` memory, if it was kept: then
    /// its row may be about to change. The caller has copied the row before.
    pub fn kept<'a, S>(
        &self,
        record: &Record<S>,
        seen: u64,
        arena: &'a Bump,
        guard: &Guard,
    ) -> Option<OldVersion<'a>> {
        let stored = self.at(record.older.load(Ordering::Acquire), record, guard)?;
        if stored.seen != seen & !word::LOCKED {
            return None;
        }
        let copied = stored.copy(arena);
        // A version that is replaced was of no reader's interest: this is another one.
        fence(Ordering::Acquire);
        (stored.name.load(Ordering::Relaxed) == address(record)).then_some(copied)
    }

    /// Leaves the chunk of a writer to be freed, as when its session ends. Returns whether it had
    /// one.
    pub fn end_writer(&self, writer: &mut OldVersionWriter) -> bool {
        let chunk = writer.chunk.take();
        if let Some((number, _)) = chunk {
            self.fill(number, writer.last_end);
        }
        writer.last_end = Tid::NONE;
        chunk.is_some()
    }

    /// Frees the chunks whose versions all ended at or before `lowest`: the lowest TID that any
    /// reader, now or later, reads as of.
    pub fn free_up_to(&self, lowest: Tid, guard: &Guard) {
        let mut numbers = self.numbers.lock().expect("no holder panics");
        let Numbers { full, free, .. } = &mut *numbers;
        full.retain(|chunk| {
            if chunk.last_end > lowest {
                return true;
            }
            let removed = self.slot(chunk.number).swap(std::ptr::null_mut(), Ordering::AcqRel);
            debug_assert!(!removed.is_null(), "a full chunk is there until it is freed here");
            free.push(chunk.number);
            // SAFETY: `add_chunk` made it from a box. It was removed from the only place where
            // readers find it, once, by the swap; those that found it before are pinned.
            unsafe {
                self.bytes.fetch_sub((*removed).bytes(), Ordering::Relaxed);
                let removed = removed as usize;
                guard.defer_unchecked(move || drop(Box::from_raw(removed as *mut VersionChunk)));
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
                    // SAFETY: `add_chunk` made it from a box, and nothing else refers to it: the
                    // database, with its sessions and readers, is gone.
                    drop(unsafe { Box::from_raw(chunk) });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
