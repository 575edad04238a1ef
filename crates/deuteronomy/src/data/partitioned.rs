//! Several data components, each with the keys of a range.
//!
//! The keys are split once and for all: a component with a key of another component's range is
//! refused when the components are opened together, since the key would be missing.
//!
//! Invariants:
//! - An operation, a read and a piece of a scan go to the single component with the key in its
//!   range.
//! - The resume point is reached by each component: redo from there gives each its missing
//!   operations, and operations already held, without effect. So a crash between the checkpoints of
//!   two components loses nothing.
//! - Each component takes part in each checkpoint, whether or not the other components outlive the
//!   process. But if a component does not, the log is kept whole, and the durable components forget
//!   nothing: each is given the whole log again.

use crate::data_component::{
    DataComponent, DataSnapshot, Found, KeyRange, Limits, Operation, ResumePoint, ScanOrder,
    cut_bounds, holds_a_key, is_empty_range,
};
use crate::error::Error;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

/// Data components sharing the keys by range.
///
/// ```
/// use hyades_deuteronomy::{DataComponent, MemoryData, Operation, PartitionedData};
/// use std::sync::Arc;
///
/// let (low, high) = (Arc::new(MemoryData::new()), Arc::new(MemoryData::new()));
/// let data = PartitionedData::new(vec![b"m".to_vec()], vec![low.clone(), high.clone()])?;
/// data.apply(&[
///     Operation { key: b"a", ts: 1, value: Some(b"1") },
///     Operation { key: b"m", ts: 1, value: Some(b"2") },
/// ])?;
/// assert_eq!((low.items(), high.items()), (1, 1));
/// # Ok::<(), hyades_deuteronomy::Error>(())
/// ```
pub struct PartitionedData {
    splits: Splits,
    parts: Vec<Arc<dyn DataComponent>>,
}

/// The lowest key of each part but the first; ascending.
#[derive(Clone)]
struct Splits(Arc<[Vec<u8>]>);

impl Splits {
    /// Returns the part of a key.
    fn part_of(&self, key: &[u8]) -> usize {
        self.0.partition_point(|split| **split <= *key)
    }

    /// The range of a part.
    fn range_of(&self, part: usize) -> KeyRange<'_> {
        let from =
            part.checked_sub(1).map_or(Bound::Unbounded, |at| Bound::Included(&self.0[at][..]));
        let to = self.0.get(part).map_or(Bound::Unbounded, |to| Bound::Excluded(&to[..]));
        (from, to)
    }

    /// Scans the parts in `order`, until `each` breaks off. `scan_part` scans a part of the given
    /// number.
    fn scan(
        &self,
        range: KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
        scan_part: impl Fn(usize, KeyRange<'_>, &mut EachOperation<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut has_ended = false;
        for nth in 0..=self.0.len() {
            let part = match order {
                ScanOrder::Ascending => nth,
                ScanOrder::Descending => self.0.len() - nth,
            };
            let Some(range) = common(range, self.range_of(part)) else { continue };
            scan_part(part, range, &mut |item| {
                let flow = each(item);
                has_ended = flow.is_break();
                flow
            })?;
            if has_ended {
                break;
            }
        }
        Ok(())
    }
}

type EachOperation<'e> = dyn FnMut(Operation<'_>) -> ControlFlow<()> + 'e;

/// Snapshots of all parts, each with the length of the part's longest key.
struct PartitionedSnapshot {
    splits: Splits,
    parts: Vec<(Arc<dyn DataSnapshot>, usize)>,
}

impl DataSnapshot for PartitionedSnapshot {
    fn get(&self, key: &[u8]) -> Result<Found, Error> {
        self.parts[self.splits.part_of(key)].0.get(key)
    }

    fn scan(
        &self,
        range: KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.splits.scan(range, order, each, |part, range, each| {
            let (part, key_bytes) = &self.parts[part];
            // A split may be longer than the part's keys, and is a bound of the range.
            let range = cut_bounds(range, *key_bytes);
            if is_empty_range(range) { Ok(()) } else { part.scan(range, order, each) }
        })
    }
}

impl PartitionedData {
    /// Gives the keys below the first split to the first part, the keys from there on, and below
    /// the second split, to the second, and so on.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the number of parts is not the number of splits plus one, the splits do
    /// not ascend, a part holds a key of another's range, or the parts belong to different logs; a
    /// part failed.
    pub fn new(splits: Vec<Vec<u8>>, parts: Vec<Arc<dyn DataComponent>>) -> Result<Self, Error> {
        if parts.len() != splits.len() + 1 {
            return Err(Error::Invalid(format!(
                "{} data components for {} ranges of keys: give one for each",
                parts.len(),
                splits.len() + 1
            )));
        }
        if let Some(at) = splits.windows(2).position(|pair| pair[0] >= pair[1]) {
            return Err(Error::Invalid(format!(
                "the ranges of keys do not ascend: split {} is not below split {}",
                at + 1,
                at + 2
            )));
        }
        let data = Self { splits: Splits(splits.into()), parts };
        (0..data.parts.len()).try_for_each(|part| data.check_keys(part))?;
        data.resume_point()?;
        Ok(data)
    }

    /// Scans a part. A split may be longer than the part's keys, and is a bound of the range.
    fn scan_part(
        &self,
        part: usize,
        range: KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let part = &self.parts[part];
        let range = cut_bounds(range, part.limits().key_bytes);
        if is_empty_range(range) { Ok(()) } else { part.scan(range, order, each) }
    }

    /// Refuses a part with a key outside its range.
    fn check_keys(&self, part: usize) -> Result<(), Error> {
        let (from, to) = self.splits.range_of(part);
        let outside = [
            match from {
                Bound::Included(from) => Some((Bound::Unbounded, Bound::Excluded(from))),
                _ => None,
            },
            match to {
                Bound::Excluded(to) => Some((Bound::Included(to), Bound::Unbounded)),
                _ => None,
            },
        ];
        // Nothing is below the empty key.
        for range in outside.into_iter().flatten().filter(|r| r.1 != Bound::Excluded(&b""[..])) {
            let mut is_there = false;
            self.scan_part(part, range, ScanOrder::Ascending, &mut |_| {
                is_there = true;
                ControlFlow::Break(())
            })?;
            if is_there {
                return Err(Error::Invalid(format!(
                    "data component {} of {} holds keys outside its range: open them with the \
                     splits and in the order with which they were filled",
                    part + 1,
                    self.parts.len()
                )));
            }
        }
        Ok(())
    }
}

/// Returns the common range of two ranges; None if the bounds alone exclude all keys.
fn common<'r>(one: KeyRange<'r>, two: KeyRange<'r>) -> Option<KeyRange<'r>> {
    use Bound::{Excluded, Included, Unbounded};
    // Of two bounds with the same key, the excluding bound.
    let from = match (one.0, two.0) {
        (Unbounded, other) | (other, Unbounded) => other,
        (Included(a) | Excluded(a), Included(b) | Excluded(b)) if a != b => {
            if a > b {
                one.0
            } else {
                two.0
            }
        }
        (Excluded(key), _) | (_, Excluded(key)) => Excluded(key),
        (both, _) => both,
    };
    let to = match (one.1, two.1) {
        (Unbounded, other) | (other, Unbounded) => other,
        (Included(a) | Excluded(a), Included(b) | Excluded(b)) if a != b => {
            if a < b {
                one.1
            } else {
                two.1
            }
        }
        (Excluded(key), _) | (_, Excluded(key)) => Excluded(key),
        (both, _) => both,
    };
    (!is_empty_range((from, to))).then_some((from, to))
}

impl DataComponent for PartitionedData {
    fn get(&self, key: &[u8]) -> Result<Found, Error> {
        self.parts[self.splits.part_of(key)].get(key)
    }

    fn scan(
        &self,
        range: KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.splits
            .scan(range, order, each, |part, range, each| self.scan_part(part, range, order, each))
    }

    fn apply(&self, batch: &[Operation<'_>]) -> Result<(), Error> {
        let mut rest = batch;
        while let Some(first) = rest.first() {
            let part = self.splits.part_of(first.key);
            // Keys ascend.
            let (of_part, behind) =
                rest.split_at(rest.partition_point(|o| self.splits.part_of(o.key) == part));
            self.parts[part].apply(of_part)?;
            rest = behind;
        }
        Ok(())
    }

    fn may_cut(&self, last: &[u8], next: &[u8]) -> bool {
        let part = self.splits.part_of(last);
        part != self.splits.part_of(next) || self.parts[part].may_cut(last, next)
    }

    fn checkpoint(&self, point: &ResumePoint) -> Result<(), Error> {
        for part in &self.parts {
            // A part with a point keeps the point: an initial point would only ask for more redo.
            if !point.is_initial() || part.resume_point()?.is_none() {
                part.checkpoint(point)?;
            }
        }
        Ok(())
    }

    fn resume_point(&self) -> Result<Option<ResumePoint>, Error> {
        let points = self.parts.iter().map(|part| part.resume_point());
        let points: Vec<Option<ResumePoint>> = points.collect::<Result<_, _>>()?;
        let Some(uuid) = points.iter().flatten().map(|point| point.uuid).next() else {
            return Ok(None);
        };
        let mut lowest: Option<ResumePoint> = None;
        for (at, point) in points.into_iter().enumerate() {
            // A part without a point is new, belongs to the log of the other parts, and needs the
            // whole log.
            if point.is_none() && holds_a_key(&*self.parts[at])? {
                return Err(Error::Invalid(format!(
                    "data component {} of {} holds keys, and does not say of which log: give an \
                     empty one in its place, which is filled from the log",
                    at + 1,
                    self.parts.len()
                )));
            }
            let point = point.unwrap_or_else(|| ResumePoint::initial(uuid));
            lowest = Some(match lowest {
                Some(lowest) => lower(lowest, point)?,
                None => point,
            });
        }
        Ok(lowest)
    }

    fn highest_ts(&self) -> Result<u64, Error> {
        self.parts.iter().try_fold(0, |highest: u64, part| Ok(highest.max(part.highest_ts()?)))
    }

    fn forget_below(&self, ts: u64) -> Result<(), Error> {
        // If a part does not outlive the process, all parts are given the whole log again. Durable
        // parts have not forgotten then.
        let is_durable = self.limits().is_durable;
        let mut parts = self.parts.iter().filter(|part| part.limits().is_durable == is_durable);
        parts.try_for_each(|part| part.forget_below(ts))
    }

    fn snapshot(&self) -> Result<Option<Arc<dyn DataSnapshot>>, Error> {
        let mut parts = Vec::new();
        for part in &self.parts {
            let Some(snapshot) = part.snapshot()? else { return Ok(None) };
            parts.push((snapshot, part.limits().key_bytes));
        }
        Ok(Some(Arc::new(PartitionedSnapshot { splits: self.splits.clone(), parts })))
    }

    fn limits(&self) -> Limits {
        let limits = self.parts.iter().map(|part| part.limits());
        let lower = |a: Limits, b: Limits| Limits {
            key_bytes: a.key_bytes.min(b.key_bytes),
            value_bytes: a.value_bytes.min(b.value_bytes),
            is_durable: a.is_durable && b.is_durable,
        };
        limits.reduce(lower).expect("there is a part")
    }
}

/// A point reached by both, with the higher of the two timestamps: no transaction up to now has a
/// higher timestamp.
fn lower(one: ResumePoint, two: ResumePoint) -> Result<ResumePoint, Error> {
    let wrong = |what: &str| Err(Error::Invalid(what.to_string()));
    if one.uuid != two.uuid {
        return wrong("the data components belong to different logs: open those of one");
    }
    let highest_ts = one.highest_ts.max(two.highest_ts);
    if one.incarnation != two.incarnation {
        let lower = if one.incarnation < two.incarnation { one } else { two };
        return Ok(ResumePoint { highest_ts, ..lower });
    }
    if one.positions.len() != two.positions.len() {
        return wrong("the resume points of the data components have different streams");
    }
    let positions = one.positions.iter().zip(&two.positions).map(|(a, b)| *a.min(b)).collect();
    Ok(ResumePoint { highest_ts, positions, ..one })
}

#[cfg(test)]
#[path = "partitioned_tests.rs"]
mod tests;
