//! Ranges: the keys put into the version table by writers, and the scanned ranges.
//!
//! A scan N1 notes its range, N2 takes the keys of the table in a piece of the range, N3 the keys
//! of the data component in the piece, N4 reads each key of the table by the rule for single keys,
//! and takes the keys only in the data component; so piece by piece. After an early end, N5 the
//! scan's note ends with the last key read. A writer M1 has its key in the table's index before its
//! version is there, and M2 looks for noted scans of younger transactions afterwards. So of a scan
//! and an older writer at least one finds the other: a note after M2 comes after M1, and N2 finds
//! the key, or the key has left the table since, and N3 finds the operation applied before. Each of
//! these orders is needed (`docs/protocols/scans.md`, D15; also why scans are a list and not stamps
//! of gaps).
//!
//! The index is a tree of the standard library under a lock for each few workers: a scan reads all
//! trees, a writer's key changes one. An entry of `hyades-index`, without
//! a lock, would take about 95 bytes instead of 40 (four words and a pointer in a leaf, and a key
//! in a separate allocation), of a budget meant for versions. The time spent here, including waits,
//! is 0.1 % where keys stay in memory, and 3 % where a tenth of the reads is fetched
//! (`docs/performance.md`), with one tree and two workers.
//!
//! Invariants:
//! - Every key read by a scan, present or absent, is in the range of its note, or the note is part
//!   of `everything`, as long as an older transaction may write. Keys not read by the scan, N5 may
//!   leave out at any time.
//! - A key is in the index exactly if its record has had versions of writers (`entered`). Both
//!   change under the latch of its bucket.
//! - The notes are within both limits, and none is above `last_scan` once its scan reads.

use crate::data_component::{KeyRange, ScanOrder};
use crate::key::{Key, MOST_INLINE};
use hyades_platform::broken;
use hyades_platform::sync::{
    AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, Padded, RwLock, checker_fence,
};
use std::collections::BTreeSet;
use std::ops::Bound;

/// The most noted scans; with more, the whole key space counts as scanned.
const MOST_NOTES: usize = 1024;
/// The approximate bytes of an entry of the index, without the bytes of a long key.
pub(super) const ENTRY_BYTES: usize = 40;
/// The approximate bytes of a note without its keys.
const NOTE_BYTES: usize = 96;

type OwnedRange = (Bound<Box<[u8]>>, Bound<Box<[u8]>>);

#[derive(Debug)]
struct Note {
    range: OwnedRange,
    ts: u64,
    /// Tells the note from other notes of its transaction.
    number: u64,
}

impl Note {
    fn bytes(&self) -> usize {
        let len = |bound: &Bound<Box<[u8]>>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => key.len(),
            Bound::Unbounded => 0,
        };
        NOTE_BYTES + len(&self.range.0) + len(&self.range.1)
    }
}

#[derive(Debug, Default)]
struct Notes {
    notes: Vec<Note>,
    /// The bytes of the notes, about.
    bytes: usize,
    /// The timestamp of a scan of the whole key space.
    everything: u64,
    /// How many were ever added.
    added: u64,
}

impl Notes {
    /// Drops the notes below `oldest_active`, if no writer is older.
    fn forget_below(&mut self, oldest_active: u64) {
        self.notes.retain(|note| {
            note.ts >= oldest_active && !broken!(ForgetScans) || {
                self.bytes -= note.bytes();
                false
            }
        });
    }

    /// Takes a note, if there is room. Otherwise the whole key space counts as scanned by all noted
    /// scans, at the cost of aborts of older writers, without a loss. All notes are dropped then,
    /// so a note missing afterwards is part of `everything`.
    fn add(&mut self, note: Note, byte_limit: usize) {
        let bytes = note.bytes();
        if self.notes.len() >= MOST_NOTES || self.bytes + bytes > byte_limit {
            let highest = self.notes.drain(..).map(|note| note.ts).max();
            self.bytes = 0;
            self.everything = self.everything.max(highest.unwrap_or(0));
        }
        if bytes > byte_limit {
            self.everything = self.everything.max(note.ts);
        } else {
            self.bytes += bytes;
            self.notes.push(note);
        }
    }

    /// N5: the range of a note ends with `key`. Not if the note is part of `everything`, or if
    /// there is no room for the key.
    fn end_at(&mut self, number: u64, key: &[u8], order: ScanOrder, byte_limit: usize) {
        if self.bytes + key.len() > byte_limit {
            return;
        }
        let Some(note) = self.notes.iter_mut().rfind(|note| note.number == number) else { return };
        let end = match broken!(NoteBelowLast) {
            true => Bound::Excluded(Box::from(key)),
            false => Bound::Included(Box::from(key)),
        };
        debug_assert!(is_in(&note.range, key), "a scan has ended outside its range");
        let before = note.bytes();
        match order {
            ScanOrder::Ascending => note.range.1 = end,
            ScanOrder::Descending => note.range.0 = end,
        }
        self.bytes = self.bytes - before + note.bytes();
    }
}

/// The keys of the version table in order, and the scans.
#[derive(Debug)]
pub(crate) struct Ranges {
    /// Each key is in the part of its hash: one for a few workers, so that their locks do not meet.
    keys: Box<[Padded<RwLock<BTreeSet<Key>>>]>,
    notes: Mutex<Notes>,
    /// At least the timestamp of every noted scan: writers at or above it need not look. Raised
    /// before a scan goes on, read by writers after their version is in place. SeqCst: at least one
    /// of the two finds the other.
    last_scan: AtomicU64,
    /// The most bytes of notes.
    note_bytes: usize,
    /// The approximate bytes of index and notes. A sum without an ordering role: Relaxed.
    bytes: AtomicUsize,
}

fn entry_bytes(key: &[u8]) -> usize {
    ENTRY_BYTES + if key.len() > MOST_INLINE { key.len() } else { 0 }
}

fn to_owned(bound: Bound<&[u8]>) -> Bound<Box<[u8]>> {
    bound.map(Box::from)
}

fn is_in((from, to): &OwnedRange, key: &[u8]) -> bool {
    let is_behind = match from {
        Bound::Included(from) => **from <= *key,
        Bound::Excluded(from) => **from < *key,
        Bound::Unbounded => true,
    };
    is_behind
        && match to {
            Bound::Included(to) => *key <= **to,
            Bound::Excluded(to) => *key < **to,
            Bound::Unbounded => true,
        }
}

impl Ranges {
    /// Makes empty ranges, the index in `parts` parts; notes of scans may take `note_bytes` bytes.
    pub fn new(note_bytes: usize, parts: usize) -> Self {
        Self {
            keys: (0..parts).map(|_| Padded(RwLock::new(BTreeSet::new()))).collect(),
            notes: Mutex::new(Notes::default()),
            last_scan: AtomicU64::new(0),
            note_bytes,
            bytes: AtomicUsize::new(0),
        }
    }

    /// About how many bytes index and notes take.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Changes the notes, and counts their bytes.
    fn with_notes<R>(&self, change: impl FnOnce(&mut Notes) -> R) -> R {
        let mut notes = self.notes();
        let before = notes.bytes;
        let changed = change(&mut notes);
        debug_assert!(notes.notes.len() <= MOST_NOTES && notes.bytes <= self.note_bytes);
        // Added before the subtraction: the sum does not wrap.
        self.bytes.fetch_add(notes.bytes, Ordering::Relaxed);
        self.bytes.fetch_sub(before, Ordering::Relaxed);
        changed
    }

    /// M1: the key has, or is about to have, versions in the table. Under the latch of the key's
    /// bucket.
    pub fn enter(&self, key: &[u8], hash: u64) {
        self.bytes.fetch_add(entry_bytes(key), Ordering::Relaxed);
        let mut part = self.part(hash).write().unwrap_or_else(|e| e.into_inner());
        let is_new = part.insert(key.into());
        debug_assert!(is_new, "a key enters that has not left");
    }

    /// E4: the key leaves the table. Under the latch of the key's bucket.
    pub fn leave(&self, key: &[u8], hash: u64) {
        let mut part = self.part(hash).write().unwrap_or_else(|e| e.into_inner());
        let was_there = part.remove(key);
        debug_assert!(was_there, "a key leaves that never entered");
        self.bytes.fetch_sub(entry_bytes(key), Ordering::Relaxed);
    }

    /// M2: whether a transaction younger than `ts` has scanned over the key.
    pub fn is_scanned_by_younger(&self, key: &[u8], ts: u64) -> bool {
        checker_fence();
        if self.last_scan.load(Ordering::SeqCst) <= ts || broken!(WriteBelowScan) {
            return false;
        }
        let notes = self.notes();
        let over = |note: &Note| note.ts > ts && is_in(&note.range, key);
        notes.everything > ts || notes.notes.iter().any(over)
    }

    /// N1: notes a scan, where no writer is older than `oldest_active`, or will be. Returns the
    /// number of the note.
    pub fn note(&self, range: KeyRange<'_>, ts: u64, oldest_active: u64) -> u64 {
        debug_assert!(oldest_active <= ts, "the transaction that scans is active");
        let range = (to_owned(range.0), to_owned(range.1));
        let number = self.with_notes(|notes| {
            notes.forget_below(oldest_active);
            notes.added += 1;
            let number = notes.added;
            notes.add(Note { range, ts, number }, self.note_bytes);
            number
        });
        self.last_scan.fetch_max(ts, Ordering::SeqCst);
        checker_fence();
        number
    }

    /// N5: the scan of a note has ended with `key`, and has read nothing behind.
    pub fn end_note(&self, number: u64, key: &[u8], order: ScanOrder) {
        self.with_notes(|notes| notes.end_at(number, key, order, self.note_bytes));
    }

    /// Drops the notes without a meaning any more.
    pub fn forget_below(&self, oldest_active: u64) {
        self.with_notes(|notes| notes.forget_below(oldest_active));
    }

    /// N2: returns the first keys of the table in the range, in `order`; at most `most`.
    pub fn keys(&self, range: KeyRange<'_>, order: ScanOrder, most: usize) -> Vec<Key> {
        let read = |part: &Padded<RwLock<BTreeSet<Key>>>| {
            let part = part.read().unwrap_or_else(|e| e.into_inner());
            let keys = part.range::<[u8], _>(range);
            match order {
                ScanOrder::Ascending => keys.take(most).cloned().collect::<Vec<_>>(),
                ScanOrder::Descending => keys.rev().take(most).cloned().collect(),
            }
        };
        let [first, others @ ..] = &*self.keys else { return Vec::new() };
        let mut keys = read(first);
        if others.is_empty() {
            return keys;
        }
        // Of the other parts, too, at most the first `most` are among the first of all.
        keys.extend(others.iter().flat_map(read));
        keys.sort_unstable();
        if order == ScanOrder::Descending {
            keys.reverse();
        }
        keys.truncate(most);
        keys
    }

    fn part(&self, hash: u64) -> &RwLock<BTreeSet<Key>> {
        &self.keys[hash as usize % self.keys.len()]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_scan_counts_for_its_range_and_those_older() {
        let ranges = Ranges::new(usize::MAX, 1);
        ranges.note((Bound::Included(b"b"), Bound::Excluded(b"d")), 7, 1);
        let scanned = |key: &[u8], ts| ranges.is_scanned_by_younger(key, ts);
        assert!(scanned(b"b", 6) && scanned(b"c", 1));
        assert!(!scanned(b"b", 7) && !scanned(b"b", 8) && !scanned(b"a", 6) && !scanned(b"d", 6));
        ranges.note((Bound::Unbounded, Bound::Excluded(b"a")), 9, 8);
        assert!(!scanned(b"b", 6), "no writer is that old");
        for ts in 10..20 + MOST_NOTES as u64 {
            ranges.note((Bound::Excluded(b"x"), Bound::Unbounded), ts, 8);
        }
        assert!(scanned(b"b", 8), "everything counts as scanned");
    }

    #[test]
    fn notes_take_no_more_than_their_share_and_lose_nothing() {
        let limit = 4 * NOTE_BYTES;
        let ranges = Ranges::new(limit, 1);
        let scanned = |key: &[u8], ts| ranges.is_scanned_by_younger(key, ts);
        for ts in 5..9 {
            ranges.note((Bound::Excluded(b""), Bound::Unbounded), ts, 1);
        }
        assert_eq!(ranges.bytes(), limit, "four fit");
        assert!(scanned(b"a", 4) && scanned(b"a", 7) && !scanned(b"", 4));
        ranges.note((Bound::Included(b""), Bound::Included(b"")), 9, 1);
        assert_eq!(ranges.bytes(), NOTE_BYTES, "the fifth is alone");
        assert!(scanned(b"a", 7) && !scanned(b"a", 8) && scanned(b"", 8), "none is forgotten");
        let long = vec![b'x'; limit];
        ranges.note((Bound::Unbounded, Bound::Included(&long)), 10, 1);
        assert_eq!(ranges.bytes(), 0, "one that does not fit at all is not kept");
        assert!(scanned(b"a", 9) && !scanned(b"a", 10));
        ranges.note((Bound::Included(b"a"), Bound::Unbounded), 12, 1);
        ranges.forget_below(12);
        assert_eq!(ranges.bytes(), NOTE_BYTES + 1, "a writer at 11 has not been seen to end");
        ranges.forget_below(13);
        assert_eq!(ranges.bytes(), 0);
    }

    #[test]
    fn the_note_of_a_scan_that_ends_early_ends_with_its_last_key() {
        let ranges = Ranges::new(4 * NOTE_BYTES, 1);
        let scanned = |key: &[u8]| ranges.is_scanned_by_younger(key, 1);
        let number = ranges.note((Bound::Included(b"b"), Bound::Unbounded), 7, 1);
        ranges.end_note(number, b"dd", ScanOrder::Ascending);
        assert!(scanned(b"b") && scanned(b"d") && scanned(b"dd") && !scanned(b"dda"));
        assert_eq!(ranges.bytes(), NOTE_BYTES + 3);
        let number = ranges.note((Bound::Unbounded, Bound::Included(b"y")), 8, 1);
        ranges.end_note(number, b"x", ScanOrder::Descending);
        assert!(!scanned(b"w") && scanned(b"x") && scanned(b"y") && !scanned(b"z"));
        // Two more notes are within the limit of bytes but for the keys: all become one.
        let number = ranges.note((Bound::Included(b"g"), Bound::Unbounded), 9, 1);
        ranges.note((Bound::Included(b"m"), Bound::Included(b"m")), 9, 1);
        assert_eq!(ranges.bytes(), NOTE_BYTES + 2);
        ranges.end_note(number, b"h", ScanOrder::Ascending);
        assert!(scanned(b"a") && scanned(b"z"), "it is not forgotten");
    }

    #[test]
    fn keys_come_in_their_order_and_no_more_than_asked_for() {
        for parts in 1..5 {
            let ranges = Ranges::new(0, parts);
            for (key, hash) in [(b"a", 3), (b"b", 7), (b"c", 1), (b"d", 2)] {
                ranges.enter(key, hash);
            }
            let range = (Bound::Excluded(&b"a"[..]), Bound::Included(&b"d"[..]));
            let keys = |order, most| {
                let keys = ranges.keys(range, order, most);
                keys.iter().flat_map(|key| key.to_vec()).collect::<Vec<_>>()
            };
            assert_eq!(keys(ScanOrder::Ascending, 2), b"bc");
            assert_eq!(keys(ScanOrder::Descending, 2), b"dc");
            assert_eq!(keys(ScanOrder::Ascending, 3), b"bcd");
            assert_eq!(keys(ScanOrder::Descending, usize::MAX), b"dcb");
            assert_eq!(keys(ScanOrder::Ascending, 0), b"");
            ranges.leave(b"c", 1);
            assert_eq!(keys(ScanOrder::Ascending, 2), b"bd");
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc as LoomArc;
    use loom::thread;

    /// Writer W5, of timestamp 5, enters a key and looks for scans; scan S7 notes its range and
    /// takes the keys: at least one finds the other, also while another scan ends its note early,
    /// or the notes are full.
    fn one_finds_the_other(note_bytes: usize, other_ends_early: bool) {
        let mut model = loom::model::Builder::new();
        // With a third thread all schedules would take minutes.
        model.preemption_bound = other_ends_early.then_some(2);
        model.check(move || {
            let ranges = LoomArc::new(Ranges::new(note_bytes, 2));
            let number = ranges.note((Bound::Unbounded, Bound::Unbounded), 6, 1);
            // The other scan is younger than W5 as well: told apart by its range.
            ranges.end_note(number, b"a", ScanOrder::Ascending);
            let writer = {
                let ranges = ranges.clone();
                thread::spawn(move || {
                    ranges.enter(b"k", 1);
                    ranges.is_scanned_by_younger(b"k", 5)
                })
            };
            let other = other_ends_early.then(|| {
                let ranges = ranges.clone();
                thread::spawn(move || {
                    let number = ranges.note((Bound::Excluded(b"k"), Bound::Unbounded), 8, 5);
                    ranges.end_note(number, b"m", ScanOrder::Ascending);
                })
            });
            ranges.note((Bound::Included(b"j"), Bound::Excluded(b"l")), 7, 5);
            let range = (Bound::Included(&b"j"[..]), Bound::Excluded(&b"l"[..]));
            let has_found = !ranges.keys(range, ScanOrder::Ascending, 9).is_empty();
            let is_found = writer.join().unwrap();
            if let Some(other) = other {
                other.join().unwrap();
            }
            assert!(has_found || is_found, "a scan and an older writer miss each other");
        });
    }

    #[test]
    fn of_a_scan_and_an_older_writer_one_finds_the_other() {
        one_finds_the_other(usize::MAX, false);
    }

    #[test]
    fn so_while_another_scan_ends_early() {
        one_finds_the_other(usize::MAX, true);
    }

    #[test]
    fn so_where_all_notes_are_one() {
        one_finds_the_other(0, true);
    }
}
