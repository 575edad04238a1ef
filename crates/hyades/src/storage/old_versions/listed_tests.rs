//! Versions at a replay along lists of predecessors, against a list of all versions.

use super::*;
use hyades_platform::epoch::EpochNumber;
use proptest::prelude::*;

/// The row as one writer left it.
struct WrittenVersion {
    tid: Tid,
    writer: u64,
    row: Option<Vec<u8>>,
}

fn tid_of(number: u64) -> Tid {
    Tid::new(EpochNumber(1 + number / 8), number)
}

fn replayed(number: u64) -> ReplayedRecord {
    ReplayedRecord { id: number + 1, stream: number as usize % 3, end: 10 * number }
}

/// A row, and all its versions in the order of their TIDs.
struct ReplayedRow<'r> {
    versions: OldVersions,
    writer: OldVersionWriter,
    record: &'r Record<()>,
    all: Vec<WrittenVersion>,
}

impl ReplayedRow<'_> {
    /// Overwrites the row: a part of the row, the whole row, or a deletion. False if there was no
    /// room.
    fn overwrite(&mut self, number: u64, (step, len): (u8, usize), guard: &Guard) -> bool {
        let (tid, record) = (tid_of(number), self.record);
        self.writer.replay(replayed(number));
        let mut row = self.all.last().and_then(|last| last.row.clone());
        let part = row.as_mut().filter(|row| step >= 3 && row.len() > 1).map(|row| {
            let from = len % (row.len() - 1);
            let range = from..(from + 1 + len % 20).min(row.len());
            row[range.clone()].fill(number as u8);
            (range.clone(), row[range].to_vec())
        });
        let ranges = part.as_ref().map(|(range, _)| [range.clone()]);
        let ranges = ranges.as_ref().map(|ranges| &ranges[..]);
        let seen = record.word.load(Ordering::Relaxed);
        let overwritten = Overwritten { record, seen, end: tid, lowest: Tid::NONE };
        let had_room = self.versions.keep(&mut self.writer, &overwritten, ranges, guard);
        if let Some((range, bytes)) = part {
            record.store_range(range.start, &bytes);
        } else {
            row = (step != 0).then(|| vec![number as u8; len]);
            if let Some(row) = &row {
                record.store_row(row, guard);
            }
        }
        let absent = if row.is_none() { word::ABSENT } else { 0 };
        record.word.store(word::of(tid) | absent, Ordering::Relaxed);
        self.all.push(WrittenVersion { tid, writer: number + 1, row });
        had_room
    }

    /// A version between two of the versions arrives late. False if there was no room.
    fn insert_late(&mut self, number: u64, len: usize, guard: &Guard) -> bool {
        let tid = tid_of(number);
        if self.all.iter().any(|written| written.tid == tid) {
            return true;
        }
        self.writer.replay(replayed(number));
        let row = len.is_multiple_of(2).then(|| vec![200 + number as u8 % 50; len]);
        let place = (self.record, self.record.word.load(Ordering::Relaxed));
        let late = LateVersion { tid, row: row.as_deref() };
        let had_room = self.versions.insert(&mut self.writer, place, &late, guard);
        let to = self.all.partition_point(|written| written.tid < tid);
        self.all.insert(to, WrittenVersion { tid, writer: number + 1, row });
        had_room
    }

    /// Frees the chunks whose versions were all ended by log records for which `is_seen` holds.
    fn free(&self, is_seen: impl Fn(u64) -> bool, guard: &Guard) {
        self.versions.free_seen(|_, ends| ends.iter().all(|end| is_seen(*end)), guard);
    }
}

proptest! {
    /// A row is overwritten, changed in part and deleted, and some versions arrive late: each
    /// reader finds the newest version whose writer it sees.
    #[test]
    fn each_reader_finds_the_newest_version_that_it_sees(
        steps in proptest::collection::vec((0u8..5, 1usize..80), 1..40),
        seen in proptest::collection::hash_set(0u64..80, 0..30),
        lowest in 0u64..10,
    ) {
        let record = Record::<()>::new(b"key", 100, word::ABSENT, 0);
        // SAFETY: this test owns the record until `free`.
        let this = unsafe { &*record };
        let guard = hyades_platform::reclaim::pin();
        let mut row = ReplayedRow {
            versions: OldVersions::default(),
            writer: OldVersionWriter::default(),
            record: this,
            all: vec![WrittenVersion { tid: Tid::NONE, writer: 0, row: None }],
        };
        // All readers see the lowest writers.
        let sees = |id: u64| id <= lowest || seen.contains(&id);
        for (at, (step, len)) in steps.into_iter().enumerate() {
            // Every other number is for a version that arrives late.
            prop_assert!(row.overwrite(2 * at as u64 + 1, (step, len), &guard));
            if len % 7 == 0 {
                prop_assert!(row.insert_late(2 * (len as u64 % (at as u64 + 1)), len, &guard));
            }
        }
        let now = this.word.load(Ordering::Relaxed);
        let last = row.all.last().expect("there is one at least").writer;
        prop_assert_eq!(row.versions.writer_of(this, now, &guard), last);
        if !sees(last) {
            let arena = Bump::new();
            let found = row.versions.read_seen(this, sees, &arena, &guard);
            let wanted = row.all.iter().rev().find(|written| sees(written.writer));
            let wanted = wanted.expect("all readers see the first");
            let version = wanted.row.as_deref().map_or(OldVersion::Absent, OldVersion::Row);
            prop_assert!(found == Some(version), "writer {}", wanted.writer);
        }
        for written in &row.all[..row.all.len() - 1] {
            let image = row.versions.image_of((this, now), written.tid, &guard);
            prop_assert_eq!(&image, &written.row);
        }
        // A chunk is freed once all that its versions' enders wrote is seen: the last writer has
        // the highest number.
        row.versions.end_writer(&mut row.writer);
        let highest = 10 * (last - 1);
        row.free(|end| end < highest, &guard);
        prop_assert!(row.versions.bytes() > 0);
        // Versions stored again count as ended behind all positions.
        row.free(|end| end <= highest || end == u64::MAX, &guard);
        prop_assert_eq!(row.versions.bytes(), 0);
        prop_assert_eq!(row.versions.writer_of(this, now, &guard), 0);
        // SAFETY: no other reference to the record is left.
        unsafe { Record::free(record) };
    }
}

/// A version that is stored again, by a late record that all readers see, stays until all readers
/// see the record that ended the version.
#[test]
fn a_version_stored_again_is_not_freed_with_the_late_record() {
    let record = Record::<()>::new(b"key", 100, word::ABSENT, 0);
    // SAFETY: this test owns the record until `free`.
    let this = unsafe { &*record };
    let guard = hyades_platform::reclaim::pin();
    let mut row = ReplayedRow {
        versions: OldVersions::default(),
        writer: OldVersionWriter::default(),
        record: this,
        all: vec![WrittenVersion { tid: Tid::NONE, writer: 0, row: None }],
    };
    assert!(row.overwrite(1, (1, 8), &guard) && row.overwrite(5, (1, 8), &guard));
    // The thread of the late record has a chunk of its own.
    let mut others = std::mem::take(&mut row.writer);
    assert!(row.insert_late(2, 8, &guard));
    row.versions.end_writer(&mut row.writer);
    let now = this.word.load(Ordering::Relaxed);
    row.free(|end| end <= 20, &guard);
    assert_eq!(row.versions.writer_of(this, now, &guard), 6, "the version is there");
    row.versions.end_writer(&mut others);
    row.free(|_| true, &guard);
    assert_eq!(row.versions.bytes(), 0);
    // SAFETY: no other reference to the record is left.
    unsafe { Record::free(record) };
}
