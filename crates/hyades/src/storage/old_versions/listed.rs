//! Older versions at a replay along lists of predecessors (Taurus 2016, section 5.2): a reader
//! wants the newest version whose writer it *sees*, whatever the TIDs are.
//!
//! Every overwritten version is kept, with the id of the log record that overwrote the version. So
//! the id of a version's writer is with the version before: the version behind a row names the
//! writer of the row, and so on. Where the version before was freed, or never was there, all
//! readers see the writer.

use super::{Head, ImageWords, OldVersion, OldVersionWriter, OldVersions, Stored};
use crate::storage::record::{Record, word};
use crate::storage::tid::Tid;
use bumpalo::Bump;
use hyades_platform::reclaim::Guard;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;

/// A version of a row that arrives after a newer version.
pub(crate) struct LateVersion<'r> {
    pub tid: Tid,
    /// The row in the form of a record; `None` if the row is absent.
    pub row: Option<&'r [u8]>,
}

/// A log record that ends versions at a replay along lists of predecessors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReplayedRecord {
    /// The id of the record; 0 in all other replays, and outside of replay.
    pub id: u64,
    /// The stream of the record, by its place, and the end of the record in the stream.
    pub stream: usize,
    pub end: u64,
}

impl OldVersionWriter {
    /// The versions kept from here on are ended by this log record.
    pub fn replay(&mut self, record: ReplayedRecord) {
        self.replayed = record;
    }

    /// The log record being replayed.
    pub fn replayed(&self) -> ReplayedRecord {
        self.replayed
    }

    /// Counts the log record that ended a version in the positions of the chunk.
    pub(super) fn count_ended(&mut self, by: u64) {
        if by == 0 {
            return;
        }
        let ReplayedRecord { id, stream, end } = self.replayed;
        // A version that is stored again was ended by a later record, at a position not known here:
        // the epoch tells when the chunk can be freed, or the end of the replay.
        let (stream, end) = if by == id { (stream, end) } else { (0, u64::MAX) };
        if self.positions.len() <= stream {
            self.positions.resize(stream + 1, 0);
        }
        self.positions[stream] = self.positions[stream].max(end);
    }
}

/// A version to be stored again, as an image.
struct Image {
    head: Head,
    words: ImageWords,
    bytes: usize,
}

impl OldVersions {
    /// Returns the id of the log record that wrote the row in place, whose version word is `seen`;
    /// 0 if all readers see the record.
    #[inline]
    pub fn writer_of<S>(&self, record: &Record<S>, seen: u64, guard: &Guard) -> u64 {
        // A link to a freed version may lead to any words: these do not end at the row's TID.
        let top = self.at(record.older.load(Ordering::Acquire), record, guard);
        top.filter(|top| top.end == word::tid(seen)).map_or(0, |top| top.by)
    }

    /// Reads the newest version behind a row whose writer the reader sees, into `arena` memory. The
    /// reader does not see the writer of the row in place. `None` if the row is needed and being
    /// overwritten: then the row is to be read again.
    pub fn read_seen<'a, S>(
        &self,
        record: &Record<S>,
        sees: impl Fn(u64) -> bool,
        arena: &'a Bump,
        guard: &Guard,
    ) -> Option<OldVersion<'a>> {
        let found = self.read_first(
            record,
            |stored| sees(self.writer_behind(record, stored, guard)),
            arena,
            guard,
        );
        found.map(|(_, version)| version)
    }

    /// The id of the log record that wrote a stored version; 0 if all readers see the record.
    fn writer_behind<S>(&self, record: &Record<S>, stored: &Stored<'_>, guard: &Guard) -> u64 {
        let before = self.at(stored.older, record, guard);
        before.filter(|before| before.end == word::tid(stored.seen)).map_or(0, |before| before.by)
    }

    /// Puts a version behind newer versions of its row. The caller holds the row's lock; the
    /// version word is `seen`. Returns false if there was no room, as [`OldVersions::keep`].
    ///
    /// The versions above are stored again: links lead from newer to older versions.
    #[must_use]
    pub fn insert<S>(
        &self,
        writer: &mut OldVersionWriter,
        (record, seen): (&Record<S>, u64),
        late: &LateVersion<'_>,
        guard: &Guard,
    ) -> bool {
        let above = self.images_from(record, seen, late.tid, guard);
        // If no version before the late version is kept, all readers see a later version.
        let Some((before, above)) =
            above.split_last().filter(|(last, _)| word::tid(last.head.seen) < late.tid)
        else {
            return true;
        };
        let replayed = writer.replayed;
        let (end, by) = (before.head.end, before.head.by);
        let absent = if late.row.is_none() { word::ABSENT } else { 0 };
        let row = late.row.unwrap_or_default();
        let words: ImageWords = row.chunks(8).map(word_of).collect();
        let new = Image {
            head: Head { seen: word::of(late.tid) | absent, end, older: 0, by },
            words,
            bytes: row.len(),
        };
        let ended = Head { end: late.tid, by: replayed.id, ..before.head };
        let mut link = before.head.older;
        let first = [(&ended, before), (&new.head, &new)];
        let rest = above.iter().rev().map(|image| (&image.head, image));
        for (head, image) in first.into_iter().chain(rest) {
            let head = Head { older: link, ..*head };
            let content = (image.words.iter().copied(), image.words.len(), image.bytes);
            let Some(to) = self.write(writer, record, head, content, guard) else { return false };
            link = to;
        }
        // Release: a reader that follows the link finds the versions.
        record.older.store(link, Ordering::Release);
        true
    }

    /// Returns version `tid` of a row in the form of a record, if the version is kept and the row
    /// existed. The caller holds the row's lock; the version word is `seen`.
    pub fn image_of<S>(
        &self,
        (record, seen): (&Record<S>, u64),
        tid: Tid,
        guard: &Guard,
    ) -> Option<Vec<u8>> {
        let images = self.images_from(record, seen, tid.next(), guard);
        let Image { head, words, bytes } = images.last()?;
        let is_it = word::tid(head.seen) == tid && head.seen & word::ABSENT == 0;
        let mut row: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        row.truncate(*bytes);
        is_it.then_some(row)
    }

    /// The versions behind a row, newest first, as images: down to the first version before `tid`.
    fn images_from<S>(
        &self,
        record: &Record<S>,
        seen: u64,
        tid: Tid,
        guard: &Guard,
    ) -> SmallVec<[Image; 2]> {
        let mut out = SmallVec::new();
        let (row, mut bytes) = if seen & word::ABSENT == 0 { record.block() } else { (&[][..], 0) };
        let row = &row[..bytes.div_ceil(8)];
        let mut words: ImageWords = row.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        let mut end = word::tid(seen);
        self.find(record, guard, |stored| {
            if stored.end != end {
                // A dangling link.
                return true;
            }
            if stored.is_part {
                let fits = stored.put_over(&mut words);
                debug_assert!(fits, "a part is of its successor");
            } else {
                (words, bytes) = (stored.words(), stored.len);
            }
            end = word::tid(stored.seen);
            let Stored { seen, older, by, .. } = *stored;
            let head = Head { seen, end: stored.end, older, by };
            out.push(Image { head, words: words.clone(), bytes });
            end < tid
        });
        out
    }

    /// Frees the versions that all readers to come do without: each version of a chunk was ended
    /// by a log record that `is_seen` says that they see, by the latest TID of such records and, by
    /// stream, their highest end.
    pub fn free_seen(&self, is_seen: impl Fn(Tid, &[u64]) -> bool, guard: &Guard) {
        self.free_full(|chunk| is_seen(chunk.last_end, &chunk.positions), guard);
    }

    /// Calls `visit` with the images behind a row, in the form of a record: down to the first
    /// version whose writer, with this TID, `is_seen` by all readers to come. No record is being
    /// replayed.
    pub fn visit_images<S>(
        &self,
        record: &Record<S>,
        guard: &Guard,
        is_seen: impl Fn(u64, Tid) -> bool,
        mut visit: impl FnMut(&[u8]),
    ) {
        let mut bytes = Vec::new();
        self.find(record, guard, |stored| {
            if !stored.is_part && stored.seen & word::ABSENT == 0 {
                bytes.clear();
                bytes.extend(stored.words().iter().flat_map(|word| word.to_le_bytes()));
                bytes.truncate(stored.len);
                visit(&bytes);
            }
            is_seen(self.writer_behind(record, stored, guard), word::tid(stored.seen))
        });
    }
}

/// Up to eight bytes of a row, as a word of a record.
fn word_of(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}
