use super::*;
use hyades_platform::epoch::EpochNumber;
use proptest::prelude::*;

fn last_of(epoch: u64) -> Tid {
    Tid::last_of(EpochNumber(epoch))
}

fn of(record: &Record<()>, seen: u64, (lowest, end): (Tid, Tid)) -> Overwritten<'_, ()> {
    Overwritten { record, seen, end, lowest }
}

fn read<'a>(
    versions: &OldVersions,
    record: &Record<()>,
    as_of: Tid,
    arena: &'a Bump,
    guard: &Guard,
) -> OldVersion<'a> {
    versions.read(record, as_of, arena, guard).expect("the row is not locked").1
}

/// Changes some bytes of a row, and returns their range.
fn change_some_of(row: &mut [u8], n: usize) -> Range<usize> {
    let from = n % (row.len() - 1);
    let range = from..(from + 1 + n % 20).min(row.len());
    row[range.clone()].fill((n % 249) as u8);
    range
}

fn word_of(epoch: u64, absent: bool) -> u64 {
    word::of(Tid::new(EpochNumber(epoch), 0)) | if absent { word::ABSENT } else { 0 }
}

proptest! {
    /// A row is overwritten, deleted and inserted again, while readers come and go: each reader
    /// finds the version that was the newest when the reader began.
    #[test]
    fn each_reader_finds_the_version_of_its_epoch(
        steps in proptest::collection::vec((0u8..7, 0usize..3000, any::<bool>()), 1..60),
    ) {
        let versions = OldVersions::default();
        let mut writer = OldVersionWriter::default();
        let record = Record::<()>::new(b"key", 100, word::ABSENT, 0);
        // SAFETY: this test owns the record until `free`.
        let this = unsafe { &*record };
        let (mut epoch, mut readers) = (1u64, Vec::<(Tid, Option<Vec<u8>>)>::new());
        let (mut now, mut sequence) = (None::<Vec<u8>>, 0);
        for (step, len, is_large) in steps {
            let guard = hyades_platform::reclaim::pin();
            match step {
                0 => {
                    readers.push((last_of(epoch), now.clone()));
                    epoch += 1;
                }
                1 if !readers.is_empty() => {
                    readers.remove(len % readers.len());
                    let lowest = readers.first().map_or(last_of(epoch), |r| r.0);
                    versions.free_up_to(lowest, &guard);
                }
                _ => {
                    let seen = this.word.load(Ordering::Relaxed);
                    let lowest = readers.first().map_or(last_of(epoch), |reader| reader.0);
                    let wanted = readers.last().is_some_and(|reader| word::tid(seen) <= reader.0);
                    sequence += 1;
                    let tid = Tid::new(EpochNumber(epoch), sequence);
                    let overwritten = of(this, seen, (lowest, tid));
                    // Bytes overwritten in place, if there are any.
                    let part = now.as_mut().filter(|row| step >= 4 && row.len() > 1);
                    let part = part.map(|row| (change_some_of(row, len), row));
                    let ranges = part.as_ref().map(|(range, _)| [range.clone()]);
                    let ranges = ranges.as_ref().map(|ranges| &ranges[..]);
                    let had_room = match wanted {
                        true => versions.keep(&mut writer, &overwritten, ranges, &guard),
                        false => versions.detach(&mut writer, &overwritten, &guard),
                    };
                    prop_assert!(had_room);
                    if let Some((range, row)) = part {
                        this.store_range(range.start, &row[range]);
                    } else {
                        let len = if is_large { len * 10 } else { len / 10 };
                        now = (step != 3).then(|| vec![(len % 251) as u8; len]);
                        if let Some(row) = &now {
                            this.store_row(row, &guard);
                        }
                    }
                    let absent = if now.is_none() { word::ABSENT } else { 0 };
                    this.word.store(word::of(tid) | absent, Ordering::Relaxed);
                }
            }
            for (as_of, was) in &readers {
                let arena = Bump::new();
                let seen = this.word.load(Ordering::Relaxed);
                if word::tid(seen) > *as_of {
                    let found = read(&versions, this, *as_of, &arena, &guard);
                    let was = was.as_deref().map_or(OldVersion::Absent, OldVersion::Row);
                    prop_assert!(found == was, "as of {}", as_of);
                }
            }
        }
        versions.end_writer(&mut writer);
        versions.free_up_to(last_of(epoch), &hyades_platform::reclaim::pin());
        prop_assert_eq!(versions.bytes(), 0);
        // SAFETY: no other reference to the record is left.
        unsafe { Record::free(record) };
    }
}

/// Versions of one row in reused memory: their links form a circle. A reader that was ended meets
/// the circle.
#[test]
fn a_reader_does_not_follow_links_in_a_circle() {
    let versions = OldVersions::default();
    let (mut first, mut second) = (OldVersionWriter::default(), OldVersionWriter::default());
    let record = Record::<()>::new(b"key", 8, word_of(1, false), 0);
    // SAFETY: this test owns the record until `free`.
    let this = unsafe { &*record };
    let guard = hyades_platform::reclaim::pin();
    let keep = |writer: &mut OldVersionWriter, version, lowest| {
        let ends = (last_of(lowest), last_of(version + 1));
        assert!(versions.keep(writer, &of(this, word_of(version, false), ends), None, &guard));
    };
    keep(&mut first, 1, 1);
    keep(&mut second, 2, 1);
    // The reader of epoch 1 has been ended, and no other reader wants the version ended in epoch 2.
    keep(&mut first, 3, 2);
    let arena = Bump::new();
    let found = read(&versions, this, last_of(1), &arena, &guard);
    assert_eq!(found, OldVersion::Absent);
    // SAFETY: no other reference to the record is left.
    unsafe { Record::free(record) };
}

#[test]
fn a_link_into_memory_that_was_freed_finds_nothing() {
    let versions = OldVersions::default();
    let mut writer = OldVersionWriter::default();
    let record = Record::<()>::new(b"key", 8, word_of(3, false), 0);
    // SAFETY: this test owns the record until `free`.
    let this = unsafe { &*record };
    let guard = hyades_platform::reclaim::pin();
    this.store_row(&[7; 8], &guard);
    let ends = (last_of(3), last_of(4));
    assert!(versions.keep(&mut writer, &of(this, word_of(3, false), ends), None, &guard));
    let arena = Bump::new();
    let found = read(&versions, this, last_of(3), &arena, &guard);
    assert_eq!(found, OldVersion::Row(&[7; 8]));
    let end = |version| {
        versions.end_of(this, word::tid(word_of(version, false)), &hyades_platform::reclaim::pin())
    };
    assert_eq!((end(2), end(3), end(4)), (None, Some(last_of(4)), None));
    versions.end_writer(&mut writer);
    versions.free_up_to(last_of(3), &guard);
    assert_eq!(read(&versions, this, last_of(3), &arena, &guard), found);
    versions.free_up_to(last_of(4), &guard);
    let found = read(&versions, this, last_of(3), &arena, &guard);
    assert_eq!(found, OldVersion::Absent);
    // SAFETY: no other reference to the record is left.
    unsafe { Record::free(record) };
}
