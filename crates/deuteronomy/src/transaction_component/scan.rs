//! The work of a scan, piece by piece: see [`Ranges`](super::ranges) for the order of the steps.
//!
//! A piece is a range beginning at the end of the last piece. A piece ends with the last key
//! requested from the index or from the data component, at the earlier of the two, or with the
//! scan's range. So each key of the range lies in a single piece, with N2 before N3; and the memory
//! of a piece has a limit, for any number of keys in the range.

use super::TransactionComponent;
use super::ranges::Ranges;
use super::version::{Value, Version};
use super::work::Work;
use crate::data_component::{KeyRange, ScanOrder, cut_bounds, is_empty_range, range_behind};
use crate::error::{Abort, Error};
use hyades_platform::broken;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A key with a value, and the value.
pub type Row = (Arc<[u8]>, Value);

/// The least and the most keys of a piece from the index, and from the data component.
const PIECE: (usize, usize) = (16, 1024);
/// The bytes from the data component at which a piece ends.
const PIECE_BYTES: usize = 256 << 10;

/// A scan's finding about a key.
enum Candidate {
    /// The key is read by the rule for single keys.
    InTable,
    /// Only the data component has the key, with the given value.
    InData(Value),
    /// Only the data component has the key, too new for the transaction.
    TooNew,
}

/// The candidates of a piece, and the start of the rest of the range behind; None without a rest.
struct Piece {
    candidates: BTreeMap<Arc<[u8]>, Candidate>,
    rest_behind: Option<Arc<[u8]>>,
}

/// The range up to and including a key.
fn up_to<'r>(range: KeyRange<'r>, key: &'r [u8], order: ScanOrder) -> KeyRange<'r> {
    match order {
        ScanOrder::Ascending => (range.0, Bound::Included(key)),
        ScanOrder::Descending => (Bound::Included(key), range.1),
    }
}

/// Whether the second key comes behind the first.
fn is_behind(first: &[u8], second: &[u8], order: ScanOrder) -> bool {
    match order {
        ScanOrder::Ascending => first < second,
        ScanOrder::Descending => first > second,
    }
}

impl TransactionComponent {
    /// N1 to N5: hands the keys of a range with values, and the values, to `each`, in `order`,
    /// until `each` breaks off. `expected` is the approximate number of rows taken.
    pub fn scan(
        &self,
        work: &mut Work,
        range: KeyRange<'_>,
        order: ScanOrder,
        expected: usize,
        each: &mut dyn FnMut(Row) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        work.check()?;
        let ranges = self.versions.ranges.as_ref().ok_or(Error::NoRanges)?;
        // No key is longer, so notes and look-ups need no longer bound.
        let range = cut_bounds(range, self.limits.key_bytes);
        if is_empty_range(range) {
            return Ok(());
        }
        self.make_room_for(work)?;
        // No writer is old enough to write into the range scanned by a snapshot.
        let is_noted = !work.is_snapshot;
        let oldest_active = if is_noted { self.timestamps.oldest_lately() } else { 0 };
        // The own announcement keeps the note: the note's timestamp is not below the oldest active
        // timestamp.
        let note = || ranges.note(range, work.ts(), oldest_active);
        let mut noted = (is_noted && !broken!(NoteAfterScan)).then(note);
        let (mut most, mut last) = (expected.clamp(PIECE.0, PIECE.1), None::<Arc<[u8]>>);
        loop {
            let rest = last.as_deref().map_or(range, |last| range_behind(range, last, order));
            // The last piece may have ended at the far bound of the range: then nothing is left.
            let (ended, next) = match is_empty_range(rest) {
                true => (None, None),
                false => {
                    let piece = self.piece(work, ranges, rest, order, most)?;
                    let read = (piece.candidates, oldest_active);
                    (self.read_piece(work, read, order, each)?, piece.rest_behind)
                }
            };
            if is_noted && broken!(NoteAfterScan) {
                noted = Some(ranges.note(range, work.ts(), oldest_active));
            }
            if let (Some(end), Some(number)) = (&ended, noted) {
                ranges.end_note(number, end, order);
            }
            if ended.is_some() || next.is_none() {
                return Ok(());
            }
            debug_assert!(
                last.as_deref().zip(next.as_deref()).is_none_or(|(a, b)| is_behind(a, b, order)),
                "a piece ends where the last one did"
            );
            (last, most) = (next, (2 * most).min(PIECE.1));
        }
    }

    /// The first `limit` rows of a scan.
    pub fn scan_rows(
        &self,
        work: &mut Work,
        range: KeyRange<'_>,
        order: ScanOrder,
        limit: usize,
    ) -> Result<Vec<Row>, Error> {
        let mut rows = Vec::new();
        // A scan with limit 0 reads an empty range.
        let nothing = Bound::Excluded(&b""[..]);
        let range = if limit == 0 { (nothing, nothing) } else { range };
        self.scan(work, range, order, limit, &mut |row| {
            rows.push(row);
            match rows.len() < limit {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        Ok(rows)
    }

    /// N2, N3: the candidates of the next piece of a range.
    fn piece(
        &self,
        work: &mut Work,
        ranges: &Ranges,
        rest: KeyRange<'_>,
        order: ScanOrder,
        most: usize,
    ) -> Result<Piece, Error> {
        let mut keys = ranges.keys(rest, order, most);
        let mut end = keys.last().filter(|_| keys.len() == most).cloned().map(Arc::<[u8]>::from);
        let within = end.as_deref().map_or(rest, |end| up_to(rest, end, order));
        let mut candidates: BTreeMap<Arc<[u8]>, Candidate> = BTreeMap::new();
        if broken!(ScanDataFirst) {
            keys.clear();
        }
        candidates.extend(keys.into_iter().map(|key| (key.into(), Candidate::InTable)));
        let (mut taken, mut bytes, mut passed, mut ended_at) = (0, 0, 0, None);
        self.data.scan(within, order, &mut |item| {
            if candidates.contains_key(item.key) {
                return ControlFlow::Continue(());
            }
            let is_too_new = item.ts > work.ts() && !broken!(FetchAnyVersion);
            let candidate = match item.value {
                _ if is_too_new => Some(Candidate::TooNew),
                // Only the value is kept.
                value => Version::fetched(b"", item.ts, value).value().map(Candidate::InData),
            };
            let Some(candidate) = candidate else {
                passed += 1;
                return ControlFlow::Continue(());
            };
            candidates.insert(item.key.into(), candidate);
            taken += 1;
            bytes += item.key.len() + item.value.map_or(0, <[u8]>::len);
            if is_too_new || taken >= most || bytes >= PIECE_BYTES {
                ended_at = Some(Arc::from(item.key));
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        if passed > 0 {
            self.passed.fetch_add(passed, Ordering::Relaxed);
        }
        // For an absent key as well: the deleting operation may be forgotten.
        if !broken!(ForgetScanned) {
            work.depends_on_durable = true;
        }
        if broken!(ScanDataFirst) {
            let late = ranges.keys(within, order, usize::MAX).into_iter();
            candidates.extend(late.map(|key| (key.into(), Candidate::InTable)));
        }
        if let Some(ended_at) = ended_at {
            // Keys of the index behind it come with the next piece, looked for anew.
            candidates.retain(|key, _| !is_behind(&ended_at, key, order));
            end = Some(ended_at);
        }
        Ok(Piece { candidates, rest_behind: end })
    }

    /// N4: reads the candidates and hands them on. Returns the last key of an ended scan, if ended.
    /// Keys found deleted, below the timestamp, leave the table: a queue has deleted keys in front
    /// of all others.
    fn read_piece(
        &self,
        work: &mut Work,
        (candidates, oldest_active): (BTreeMap<Arc<[u8]>, Candidate>, u64),
        order: ScanOrder,
        each: &mut dyn FnMut(Row) -> ControlFlow<()>,
    ) -> Result<Option<Arc<[u8]>>, Error> {
        let mut candidates = candidates.into_iter();
        loop {
            let next = match order {
                ScanOrder::Ascending => candidates.next(),
                ScanOrder::Descending => candidates.next_back(),
            };
            let Some((key, candidate)) = next else { return Ok(None) };
            debug_assert!(
                matches!(candidate, Candidate::InTable) || !work.has_written(&key),
                "a key that was written is in the index"
            );
            let value = match candidate {
                Candidate::InTable if self.is_skipped(&key) => None,
                Candidate::InTable => {
                    let value = self.get(work, &key)?;
                    if value.is_none() {
                        self.versions.drop_deleted(&key, oldest_active);
                    }
                    value
                }
                Candidate::InData(value) => Some(value),
                Candidate::TooNew => return Err(work.fail(Abort::SnapshotTooOld)),
            };
            if let Some(value) = value
                && each((key.clone(), value)).is_break()
            {
                return Ok(Some(key));
            }
        }
    }

    /// For the mutation that takes a key with evicted versions for absent.
    fn is_skipped(&self, key: &[u8]) -> bool {
        broken!(SkipEvictedInScan) && !self.versions.has_versions(key)
    }
}
