//! Older versions of rows, for readers of earlier states, chained behind the row.
//!
//! A version is an image of the whole row, or a *part*: the words that its successor has changed. A
//! part is the cost of a short transaction for a writer of a long row. A part is put over the image
//! of the successor, in the row or in a version behind the row. So while a reader may want a part,
//! its successor stays: where the successor is overwritten and not wanted itself, the part becomes
//! an image ([`OldVersions::detach`]).
//!
//! The newest version is in the row itself. [`Record::older`] refers to the version before, and
//! each version to the version before itself. A writer keeps the version that it overwrites only if
//! a reader may want the version, so a chain may have gaps, and *a link may dangle*: memory is used
//! again, without unlinking, once no reader is below the TID that ended its versions. A reader as
//! of TID t never follows such a link. It follows the link of a version that began after t, and the
//! version behind this link, in which the reader is interested, ended after t. The version was
//! kept, since the reader was there at the overwrite, and its memory is not used again before the
//! reader has gone. A reader as of an epoch reads as of the last TID of the epoch.
//! `research/model/src/snapshots.rs` visits every interleaving of these steps.
//!
//! Two kinds of readers may *look* behind a dangling link all the same: a reader that was ended
//! because versions took too much memory, in the moment before the reader notices, and a reader
//! that finds the row locked and asks whether its version was kept by now. So all words are atomic,
//! lengths are clipped to their chunk, a chunk is freed through the epoch of memory reclamation,
//! and a version names its row: before and after the read, as under a sequence lock.

mod chunks;
mod listed;

use super::record::{Record, copy_row, word};
use super::tid::Tid;
use bumpalo::Bump;
use chunks::{DIRECTORY, LARGE_WORDS, Numbers, UNIT_BITS, VersionChunk};
use hyades_platform::reclaim::Guard;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};
use std::sync::{Mutex, OnceLock};

pub(crate) use listed::{LateVersion, ReplayedRecord};

/// A version is stored from a multiple of this many words on.
const UNIT_WORDS: usize = 2;

/// Words of a version ahead of its content: the address of the row's record, stored last; the
/// version word, with [`PART`] and [`LISTED`]; the TID of the transaction that ended the version;
/// the link to the version before, below the length of the content in bytes. Behind the head of a
/// [`LISTED`] version is the id of the log record that ended the version.
const HEAD_WORDS: usize = 4;

/// In a version word: the content is a part. Versions are not locked.
const PART: u64 = word::LOCKED;

/// In a version word: the version was kept at a replay along lists of predecessors. Dead rows have
/// no versions.
const LISTED: u64 = word::DEAD;

type ChunkDirectory = Box<[AtomicPtr<VersionChunk>]>;

/// The older versions of all rows of a database.
pub struct OldVersions {
    /// A chunk is published (Release) before a link to it, and removed (under the lock of
    /// `numbers`) before it is freed.
    directories: Box<[OnceLock<ChunkDirectory>]>,
    numbers: Mutex<Numbers>,
    /// Bytes of all chunks, and of the chunks that sessions have begun to fill. Relaxed: the counts
    /// only tell when to end readers.
    bytes: AtomicU64,
    filling: AtomicU64,
    /// At replay: no record to come reads as of a lower TID.
    floor: AtomicU64,
}

/// Where one session stores versions.
#[derive(Default)]
pub(crate) struct OldVersionWriter {
    /// The chunk being filled: its number, and the next free unit.
    chunk: Option<(u32, usize)>,
    /// The highest TID that ended a version in the chunk.
    last_end: Tid,
    /// The log record being replayed, if records list their predecessors.
    replayed: ReplayedRecord,
    /// By stream, the highest end of a record that ended a version in the chunk.
    positions: Vec<u64>,
}

/// A version of a row that a reader of a snapshot finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldVersion<'a> {
    Row(&'a [u8]),
    Absent,
}

/// The statement of a version about itself.
struct Head {
    seen: u64,
    end: Tid,
    older: u32,
    /// The id of the log record that ended the version, or 0.
    by: u64,
}

/// A version in a chunk.
#[derive(Clone, Copy)]
struct Stored<'g> {
    /// Its version word.
    seen: u64,
    /// Whether the content is a part: runs of words, each run after a word with the index of the
    /// first and, in the lower half, their number.
    is_part: bool,
    /// The TID of the end.
    end: Tid,
    /// The link to the version before.
    older: u32,
    /// The id of the log record that ended the version, or 0.
    by: u64,
    content: &'g [AtomicU64],
    /// Of the content, in bytes.
    len: usize,
    /// The words ahead of the content, as they were read.
    head: &'g [AtomicU64],
    read: [u64; HEAD_WORDS],
}

impl Stored<'_> {
    /// Whether the version has not been replaced. The words read before are then of this version:
    /// any other version, even of the same row in the same place, has another version word or
    /// another end.
    fn is_there(&self) -> bool {
        fence(Ordering::Acquire);
        self.head.iter().zip(self.read).all(|(word, read)| word.load(Ordering::Relaxed) == read)
    }

    fn copy<'a>(&self, arena: &'a Bump) -> OldVersion<'a> {
        if self.seen & word::ABSENT != 0 {
            return OldVersion::Absent;
        }
        OldVersion::Row(copy_row(self.content, self.len, arena))
    }

    /// The words of an image.
    fn words(&self) -> ImageWords {
        let words = self.content.get(..self.len.div_ceil(8)).unwrap_or(&[]);
        words.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    /// Puts a part over the image of its successor. False if the part does not fit; only the
    /// content of another row does not fit.
    #[must_use]
    fn put_over(&self, image: &mut [u64]) -> bool {
        let mut rest = self.content.get(..self.len / 8).unwrap_or(&[]);
        while let Some((run, words)) = rest.split_first() {
            let run = run.load(Ordering::Relaxed);
            let (first, count) = ((run >> 32) as usize, run as u32 as usize);
            let to = image.get_mut(first..).and_then(|image| image.get_mut(..count));
            let (Some(to), Some((from, after))) = (to, words.split_at_checked(count)) else {
                return false;
            };
            for (to, from) in to.iter_mut().zip(from) {
                *to = from.load(Ordering::Relaxed);
            }
            rest = after;
        }
        true
    }
}

/// The words of a row.
type ImageWords = SmallVec<[u64; 32]>;

/// Copies an image of `len` bytes into `arena` memory.
fn image_bytes<'a>(words: &[u64], len: usize, arena: &'a Bump) -> &'a [u8] {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    &arena.alloc_slice_fill_iter(bytes.collect::<SmallVec<[u8; 256]>>())[..len]
}

/// Bytes of a row.
pub(crate) type ByteRanges = SmallVec<[Range<usize>; 8]>;

/// A row about to be overwritten.
pub(crate) struct Overwritten<'r, S> {
    pub record: &'r Record<S>,
    /// Its version word.
    pub seen: u64,
    /// The transaction that overwrites it.
    pub end: Tid,
    /// The lowest TID that any reader reads as of, or a lower TID.
    pub lowest: Tid,
}

/// The address, as the name of a row.
fn address<S>(record: &Record<S>) -> u64 {
    std::ptr::from_ref(record).addr() as u64
}

impl Default for OldVersions {
    fn default() -> Self {
        OldVersions {
            directories: (0..DIRECTORY).map(|_| OnceLock::new()).collect(),
            numbers: Mutex::new(Numbers { next: 1, ..Numbers::default() }),
            bytes: AtomicU64::new(0),
            filling: AtomicU64::new(0),
            floor: AtomicU64::new(Tid::ABOVE_ALL.bits()),
        }
    }
}

impl OldVersions {
    /// Keeps the version of a row that is overwritten: only the bytes in `changed`, if given. The
    /// caller has set the row's lock bit, and changes the row afterwards. Returns false if there
    /// was no room: the readers that want the version have to be ended.
    #[must_use]
    pub fn keep<S>(
        &self,
        writer: &mut OldVersionWriter,
        overwritten: &Overwritten<'_, S>,
        changed: Option<&[Range<usize>]>,
        guard: &Guard,
    ) -> bool {
        let &Overwritten { record, seen, end, lowest } = overwritten;
        debug_assert!(word::tid(seen) < end, "a version ends after it has begun");
        self.renew(writer, lowest, guard);
        let (row, len) = if seen & word::ABSENT == 0 { record.block() } else { (&[][..], 0) };
        let row = &row[..len.div_ceil(8)];
        let (older, by) = (record.older(), writer.replayed.id);
        let head = Head { seen: seen & !word::LOCKED, end, older, by };
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        match changed {
            None => self.store(writer, record, head, (row.iter().map(load), row.len(), len), guard),
            Some(changed) => {
                let runs = || changed.iter().map(|bytes| bytes.start / 8..bytes.end.div_ceil(8));
                let words = runs().map(|run| 1 + run.len()).sum();
                let content = runs().flat_map(|run| {
                    let span = (run.start as u64) << 32 | run.len() as u64;
                    std::iter::once(span).chain(row[run].iter().map(load))
                });
                let head = Head { seen: head.seen | PART, ..head };
                self.store(writer, record, head, (content, words, words * 8), guard)
            }
        }
    }

    /// Makes the newest kept version of a row an image, if it is a part of the version that is
    /// overwritten, and the overwritten version is not kept, and a reader may want the part or a
    /// version behind it. Returns false if there was no room, as [`OldVersions::keep`].
    #[must_use]
    pub fn detach<S>(
        &self,
        writer: &mut OldVersionWriter,
        overwritten: &Overwritten<'_, S>,
        guard: &Guard,
    ) -> bool {
        let &Overwritten { record, seen, lowest, .. } = overwritten;
        let Some(top) = self.at(record.older(), record, guard) else { return true };
        if !top.is_part || top.end != word::tid(seen) || top.end <= lowest {
            return true;
        }
        let (row, len) = record.block();
        let row = &row[..len.div_ceil(8)];
        let mut image: ImageWords = row.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        let fits = top.put_over(&mut image);
        debug_assert!(fits, "a part is of its successor");
        let head = Head { seen: top.seen, end: top.end, older: top.older, by: top.by };
        self.renew(writer, lowest, guard);
        let words = image.len();
        self.store(writer, record, head, (image.into_iter(), words, len), guard)
    }

    /// Stores a version: its content, with its length in words and in bytes. False if there is no
    /// room.
    fn store<S>(
        &self,
        writer: &mut OldVersionWriter,
        record: &Record<S>,
        head: Head,
        content: (impl Iterator<Item = u64>, usize, usize),
        guard: &Guard,
    ) -> bool {
        let Some(link) = self.write(writer, record, head, content, guard) else { return false };
        // Release: a reader that follows the link finds the version.
        record.older.store(link, Ordering::Release);
        true
    }

    /// Writes a version that no link leads to so far. Returns the link. `None` if there is no room.
    fn write<S>(
        &self,
        writer: &mut OldVersionWriter,
        record: &Record<S>,
        head: Head,
        (content, length, bytes): (impl Iterator<Item = u64>, usize, usize),
        guard: &Guard,
    ) -> Option<u32> {
        // Only a replay along lists of predecessors pays for the id.
        let (head_words, listed) = match head.by {
            0 => (HEAD_WORDS, 0),
            _ => (HEAD_WORDS + 1, LISTED),
        };
        let (number, unit) = self.place(writer, head_words + length)?;
        let chunk = self.chunk(number, guard).expect("a chunk stays while it is filled");
        chunk.versions.store(chunk.versions.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let words = &chunk.words[unit * UNIT_WORDS..];
        // Release: a reader that finds its version replaced also finds itself ended.
        words[0].store(0, Ordering::Release);
        // A reader of a word stored below finds, afterwards, the version replaced.
        fence(Ordering::Release);
        words[1].store(head.seen | listed, Ordering::Relaxed);
        words[2].store(head.end.bits(), Ordering::Relaxed);
        words[3].store((bytes as u64) << 32 | u64::from(head.older), Ordering::Relaxed);
        if head.by != 0 {
            words[HEAD_WORDS].store(head.by, Ordering::Relaxed);
        }
        for (to, from) in words[head_words..].iter().zip(content) {
            to.store(from, Ordering::Relaxed);
        }
        words[0].store(address(record), Ordering::Release);
        if head_words + length > LARGE_WORDS {
            self.fill_alone(writer, number, (head.end, head.by));
        } else {
            writer.last_end = writer.last_end.max(head.end);
            writer.count_ended(head.by);
        }
        Some(number << UNIT_BITS | unit as u32)
    }

    /// The version behind a link, if of this row.
    fn at<'g, S>(&self, link: u32, record: &Record<S>, guard: &'g Guard) -> Option<Stored<'g>> {
        if link == 0 {
            return None;
        }
        let chunk = &self.chunk(link >> UNIT_BITS, guard)?.words;
        let at = (link & ((1 << UNIT_BITS) - 1)) as usize * UNIT_WORDS;
        let head = chunk.get(at..at + HEAD_WORDS)?;
        let name = head[0].load(Ordering::Acquire);
        if name != address(record) {
            return None;
        }
        let [seen, end, last] = [1, 2, 3].map(|at: usize| head[at].load(Ordering::Relaxed));
        let read = [name, seen, end, last];
        let content = &chunk[at + HEAD_WORDS..];
        let (by, content) = match content.split_first() {
            Some((by, content)) if seen & LISTED != 0 => (by.load(Ordering::Relaxed), content),
            _ => (0, content),
        };
        let len = ((last >> 32) as usize).min(content.len() * 8);
        let (end, older, is_part) = (Tid::from_bits(end), last as u32, seen & PART != 0);
        let seen = seen & !(PART | LISTED);
        let stored = Stored { seen, is_part, end, older, by, content, len, head, read };
        stored.is_there().then_some(stored)
    }

    /// The newest version behind a row for which `is_wanted` holds; called for one version after
    /// the other.
    fn find<'g, S>(
        &self,
        record: &Record<S>,
        guard: &'g Guard,
        mut is_wanted: impl FnMut(&Stored<'g>) -> bool,
    ) -> Option<Stored<'g>> {
        let mut link = record.older.load(Ordering::Acquire);
        let mut above = u64::MAX;
        // The chain ends where the row did not exist yet. Behind a dangling link, followed only by
        // a reader that was ended, a later version may be stored by now.
        while let Some(stored) = self.at(link, record, guard).filter(|stored| stored.seen < above) {
            if is_wanted(&stored) {
                return Some(stored);
            }
            (link, above) = (stored.older, stored.seen);
        }
        None
    }

    /// Reads the version of a row as of TID `as_of`, into `arena` memory, and its version word. The
    /// caller has seen that the version in the row began later. `None` if the row is needed and
    /// being overwritten: then the row is to be read again.
    pub fn read<'a, S>(
        &self,
        record: &Record<S>,
        as_of: Tid,
        arena: &'a Bump,
        guard: &Guard,
    ) -> Option<(u64, OldVersion<'a>)> {
        self.read_first(record, |stored| word::tid(stored.seen) <= as_of, arena, guard)
    }

    /// Reads the newest version behind a row for which `is_wanted` holds, as [`OldVersions::read`].
    fn read_first<'a, S>(
        &self,
        record: &Record<S>,
        mut is_wanted: impl FnMut(&Stored<'_>) -> bool,
        arena: &'a Bump,
        guard: &Guard,
    ) -> Option<(u64, OldVersion<'a>)> {
        // The last image ahead of the version, or in its place, and the parts behind the image.
        let (mut image, mut parts) = (None, SmallVec::<[Stored<'_>; 4]>::new());
        let found = self.find(record, guard, |stored| {
            let is_found = is_wanted(stored);
            if !is_found {
                if stored.is_part {
                    parts.push(*stored);
                } else {
                    parts.clear();
                    image = Some(*stored);
                }
            }
            is_found
        });
        match found {
            None => Some((word::ABSENT, OldVersion::Absent)),
            Some(found) if !found.is_part => Some((found.seen, found.copy(arena))),
            Some(found) => {
                parts.push(found);
                let version = Self::put_together(record, image, &parts, arena)?;
                Some((found.seen, version))
            }
        }
    }

    /// Puts parts, the newest first, over the image ahead of them; the image is in the row if
    /// `image` is `None`. `None` if the row is being overwritten.
    fn put_together<'a, S>(
        record: &Record<S>,
        image: Option<Stored<'_>>,
        parts: &[Stored<'_>],
        arena: &'a Bump,
    ) -> Option<OldVersion<'a>> {
        let (mut words, len, mut begins) = match image {
            Some(image) => (image.words(), image.len, word::tid(image.seen)),
            None => {
                let seen = record.word.load(Ordering::Acquire);
                let (row, len) = record.block();
                let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
                let words: ImageWords = row[..len.div_ceil(8)].iter().map(load).collect();
                // Orders the copy before the second load.
                fence(Ordering::Acquire);
                let is_same = record.word.load(Ordering::Relaxed) == seen;
                if seen & word::LOCKED != 0 || !is_same || word::tid(seen) != parts[0].end {
                    return None;
                }
                (words, len, word::tid(seen))
            }
        };
        for part in parts {
            // A part of another version is found only by a reader that was ended.
            if part.end != begins || !part.put_over(&mut words) {
                return Some(OldVersion::Absent);
            }
            begins = word::tid(part.seen);
        }
        Some(OldVersion::Row(image_bytes(&words, len, arena)))
    }

    /// Whether there is a version behind a row, not an absent one, that a reader as of a TID from
    /// `oldest` to `newest` may want, and for which `is_it` holds. `is_it` is given the version's
    /// bytes, as a record has them, or `None` for a part. The caller holds the row's lock.
    ///
    /// If no reader may want such a version of a row that is absent in place, the row is absent to
    /// every reader, whether its record is found or not.
    pub fn any_wanted<S>(
        &self,
        record: &Record<S>,
        (oldest, newest): (Tid, Tid),
        guard: &Guard,
        mut is_it: impl FnMut(Option<&[u8]>) -> bool,
    ) -> bool {
        let (mut bytes, mut found) = (Vec::new(), false);
        self.find(record, guard, |stored| {
            // Versions further behind have ended before. A replaced version is not wanted by any
            // reader.
            if stored.end <= oldest {
                return true;
            }
            if stored.seen & word::ABSENT != 0 || word::tid(stored.seen) > newest {
                return false;
            }
            bytes.clear();
            if !stored.is_part {
                bytes.extend(stored.words().iter().flat_map(|word| word.to_le_bytes()));
                bytes.truncate(stored.len);
            }
            found = stored.is_there() && is_it((!stored.is_part).then_some(&bytes[..]));
            found || !stored.is_there()
        });
        found
    }

    /// Returns the TID that ended version `tid` of a row, if the version was kept.
    pub fn end_of<S>(&self, record: &Record<S>, tid: Tid, guard: &Guard) -> Option<Tid> {
        let stored = self.find(record, guard, |kept| word::tid(kept.seen) <= tid)?;
        (word::tid(stored.seen) == tid).then_some(stored.end)
    }

    /// Reads the version with the version word `seen`, into `arena` memory, if kept as an image:
    /// then its row may be about to change. The caller has copied the row before.
    pub fn kept<'a, S>(
        &self,
        record: &Record<S>,
        seen: u64,
        arena: &'a Bump,
        guard: &Guard,
    ) -> Option<OldVersion<'a>> {
        let stored = self.at(record.older.load(Ordering::Acquire), record, guard)?;
        // A part is put over the row, which may be about to change.
        if stored.seen != seen & !word::LOCKED || stored.is_part {
            return None;
        }
        let copied = stored.copy(arena);
        // A replaced version was of no reader's interest: the copy is of another version.
        stored.is_there().then_some(copied)
    }
}

#[cfg(test)]
mod listed_tests;
#[cfg(test)]
mod tests;
