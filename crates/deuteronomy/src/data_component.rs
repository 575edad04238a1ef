//! The transaction component's interface to data: the trait [`DataComponent`] and its contract.

use crate::error::Error;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

/// The highest timestamp permitted in a record or a resume point: a higher timestamp is damage. The
/// transaction table has two bits of a word beside a timestamp.
pub(crate) const MAX_TS: u64 = 1 << 61;
/// The most sessions of a database.
pub(crate) const MOST_SESSIONS: usize = 1 << 16;
/// The last timestamp at which a session begins a transaction: with a higher clock seen, none
/// begins, and a log or a data component with this timestamp or a higher one is not opened.
///
/// Invariant: no timestamp above [`MAX_TS`] is drawn, so no logged timestamp is refused by a
/// reader. A session draws only while the last clock value seen by the session is at or below
/// `LAST_TS`. After a draw of `LAST_TS` or more the session has seen a higher value, and so has the
/// next session in the same place. So each place draws at most a single timestamp from here on.
pub(crate) const LAST_TS: u64 = MAX_TS - MOST_SESSIONS as u64;

/// The state of a key in a data component.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The timestamp of the newest operation applied to the key; 0 if the data component has seen
    /// none, or has [forgotten](DataComponent::forget_below) the timestamp.
    pub ts: u64,
    /// The value; None if the key was deleted, or never written.
    pub value: Option<Vec<u8>>,
}

/// An operation on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The timestamp of the transaction.
    pub ts: u64,
    /// The new value; None deletes the key.
    pub value: Option<&'a [u8]>,
}

/// A range of keys: the lower and the upper bound.
pub type KeyRange<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// The order of a scan through a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanOrder {
    /// From the lowest key to the highest.
    Ascending,
    /// From the highest key to the lowest.
    Descending,
}

/// Up to where a data component holds the operations of a log (`docs/format.md`, section 13).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumePoint {
    /// The log.
    pub uuid: [u8; 16],
    /// The incarnation of the positions. All operations of earlier incarnations are held. 0, before
    /// the first, in an [initial](Self::initial) point.
    pub incarnation: u32,
    /// No transaction up to now has a higher timestamp. At most 2^61.
    pub highest_ts: u64,
    /// By stream of the incarnation, the end of the last frame up to which every operation is held.
    pub positions: Vec<u64>,
}

/// The limits of a data component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest key in bytes. No method is called with a longer key, or with a longer bound of a
    /// range.
    pub key_bytes: usize,
    /// The longest value in bytes.
    pub value_bytes: usize,
    /// Whether data made stable by a [checkpoint](DataComponent::checkpoint) outlive the process.
    /// Otherwise the log is kept whole, and the resume point has to be kept as long as the data.
    pub is_durable: bool,
}

impl Limits {
    /// # Errors
    /// [`Error::KeyTooLong`].
    pub(crate) fn check_key(&self, key: &[u8]) -> Result<(), Error> {
        match key.len() > self.key_bytes {
            true => Err(Error::KeyTooLong(key.len(), self.key_bytes)),
            false => Ok(()),
        }
    }

    /// # Errors
    /// [`Error::ValueTooLong`].
    pub(crate) fn check_value(&self, value: Option<&[u8]>) -> Result<(), Error> {
        match value {
            Some(value) if value.len() > self.value_bytes => {
                Err(Error::ValueTooLong(value.len(), self.value_bytes))
            }
            _ => Ok(()),
        }
    }
}

/// The data of a data component as of a moment. Data kept for the snapshot alone go when the
/// snapshot is dropped.
pub trait DataSnapshot: Send + Sync {
    /// The newest operation on the key, as [`DataComponent::get`].
    ///
    /// # Errors
    /// The data could not be read.
    fn get(&self, key: &[u8]) -> Result<Found, Error>;

    /// The newest operation on each key of a non-empty range, as [`DataComponent::scan`]. No lock
    /// of the data component is held while `each` runs: `each` may take as long as its caller
    /// likes, and may wait for writes.
    ///
    /// # Errors
    /// The data could not be read.
    fn scan(
        &self,
        range: KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error>;
}

/// A store of keys and values without transactions.
///
/// The store receives operations of committed transactions, durable in the log. So the store may
/// write operations to its medium at any time, or lose them: after a crash the operations behind
/// its resume point are applied again. All methods may be called from several threads at a time.
pub trait DataComponent: Send + Sync {
    /// The newest operation on the key, as of a moment after the call began.
    ///
    /// # Errors
    /// The data could not be read.
    fn get(&self, key: &[u8]) -> Result<Found, Error>;

    /// The newest operation on each key of a non-empty range, in `order`, including deleted keys
    /// not [forgotten](Self::forget_below): each as of a moment after the call began. Ends early if
    /// `each` says so. `each` does not call the data component.
    ///
    /// # Errors
    /// The data could not be read.
    fn scan(
        &self,
        range: KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error>;

    /// Applies operations. Operations come in any order and any number of times: of the operations
    /// on a key the operation with the highest timestamp counts. In a batch, keys ascend and none
    /// comes twice. Calls on several threads at a time have no key in common.
    ///
    /// # Errors
    /// The data could not be written; the database stops then.
    fn apply(&self, batch: &[Operation<'_>]) -> Result<(), Error>;

    /// Whether a batch may be cut between two neighbouring keys of the batch, and both pieces be
    /// [applied](Self::apply) at the same time, faster than in sequence. Otherwise, [one
    /// thread](crate::Options::proxy_threads) applies both. Default: false, as with a single writer
    /// at a time.
    fn may_cut(&self, _last: &[u8], _next: &[u8]) -> bool {
        false
    }

    /// Makes all operations applied before the call stable, together with the resume point,
    /// atomically. Before the first operation is applied, a database opened over the data component
    /// makes an [initial](ResumePoint::initial) point stable, to name the log: otherwise the data
    /// component could be opened later with another log. And each opening makes a point with its
    /// incarnation of the log stable, before the first operation of the incarnation is applied.
    /// Operations may be [applied](Self::apply) meanwhile.
    ///
    /// # Errors
    /// The data could not be made stable. Then the last resume point holds, or `point`.
    fn checkpoint(&self, point: &ResumePoint) -> Result<(), Error>;

    /// The resume point of the last checkpoint; None before the first. A data component with keys
    /// and without a resume point is refused.
    ///
    /// # Errors
    /// The point could not be read.
    fn resume_point(&self) -> Result<Option<ResumePoint>, Error>;

    /// Returns a timestamp at or above the timestamps of all operations held, without
    /// [forgotten](Self::forget_below) operations, and at or below the highest ever given; 0 where
    /// there is none. Asked at the opening of a database: a data component with an operation of a
    /// later time than its log is refused. Default: a scan of everything, so a large data component
    /// keeps the number beside its data, written with each batch.
    ///
    /// # Errors
    /// The data could not be read.
    fn highest_ts(&self) -> Result<u64, Error> {
        let mut highest = 0;
        let range = (Bound::Unbounded, Bound::Unbounded);
        self.scan(range, ScanOrder::Ascending, &mut |operation| {
            highest = highest.max(operation.ts);
            ControlFlow::Continue(())
        })?;
        Ok(highest)
    }

    /// No operation below `ts` will be applied any more, not even after a crash survived by the
    /// data component, and no transaction reads as of a lower timestamp. So timestamps below `ts`
    /// may be taken for 0, and deleted keys with such timestamps may be removed.
    ///
    /// # Errors
    /// The data could not be written.
    fn forget_below(&self, ts: u64) -> Result<(), Error>;

    /// The data as of now: every operation whose call of [`apply`](Self::apply) has returned, and
    /// no operation applied later. Called while nothing is applied; other calls may be under way.
    /// None, the default: the data component keeps no snapshots.
    ///
    /// # Errors
    /// The data could not be read.
    fn snapshot(&self) -> Result<Option<Arc<dyn DataSnapshot>>, Error> {
        Ok(None)
    }

    /// Returns the limits of the data component. With a key held, no lower than before; asked at
    /// the opening of a database.
    fn limits(&self) -> Limits;
}

/// Whether the bounds alone exclude all keys: data components are asked for no such range.
pub fn is_empty_range(range: KeyRange<'_>) -> bool {
    match range {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (
            Bound::Included(from) | Bound::Excluded(from),
            Bound::Included(to) | Bound::Excluded(to),
        ) => from >= to,
        _ => false,
    }
}

/// Returns the first `key_bytes` bytes of a longer bound.
fn too_long(bound: Bound<&[u8]>, key_bytes: usize) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) if key.len() > key_bytes => {
            Some(&key[..key_bytes])
        }
        _ => None,
    }
}

/// The part of a range that a scan in `order` reaches behind a key.
pub fn range_behind<'r>(range: KeyRange<'r>, key: &'r [u8], order: ScanOrder) -> KeyRange<'r> {
    match order {
        ScanOrder::Ascending => (Bound::Excluded(key), range.1),
        ScanOrder::Descending => (range.0, Bound::Excluded(key)),
    }
}

/// Returns a range with the same keys of up to `key_bytes` bytes, and bounds no longer than
/// `key_bytes`.
///
/// A longer bound is a position between two keys of up to `key_bytes` bytes: just behind its first
/// `key_bytes` bytes. For a key of up to `key_bytes` bytes is a prefix of these bytes, and then
/// below both; or the key differs from the bound within these bytes, and then the key is on the
/// same side of both.
pub(crate) fn cut_bounds<'r>((from, to): KeyRange<'r>, key_bytes: usize) -> KeyRange<'r> {
    (
        too_long(from, key_bytes).map_or(from, Bound::Excluded),
        too_long(to, key_bytes).map_or(to, Bound::Included),
    )
}

/// Whether the data component has anything of any key, including deleted keys.
pub(crate) fn holds_a_key(data: &dyn DataComponent) -> Result<bool, Error> {
    let mut holds_one = false;
    data.scan((Bound::Unbounded, Bound::Unbounded), ScanOrder::Ascending, &mut |_| {
        holds_one = true;
        ControlFlow::Break(())
    })?;
    Ok(holds_one)
}

impl ResumePoint {
    /// The resume point of a data component bound to a log, in need of the whole log.
    pub fn initial(uuid: [u8; 16]) -> Self {
        Self { uuid, incarnation: 0, highest_ts: 0, positions: vec![0] }
    }

    /// Whether all of the log is needed.
    pub fn is_initial(&self) -> bool {
        self.incarnation == 0
    }

    /// The encoding of `docs/format.md`.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(28 + 8 * self.positions.len());
        out.extend(self.uuid);
        out.extend(self.incarnation.to_le_bytes());
        out.extend(self.highest_ts.to_le_bytes());
        self.positions.iter().for_each(|lsn| out.extend(lsn.to_le_bytes()));
        out
    }

    /// Reads an encoded resume point; None if the bytes are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (uuid, rest) = bytes.split_first_chunk::<16>()?;
        let (incarnation, rest) = rest.split_first_chunk::<4>()?;
        let (highest_ts, rest) = rest.split_first_chunk::<8>()?;
        let (lanes, []) = rest.as_chunks::<8>() else { return None };
        if lanes.is_empty() || lanes.len() > hyades_wal::MAX_LANES {
            return None;
        }
        let highest_ts = u64::from_le_bytes(*highest_ts);
        if highest_ts > MAX_TS {
            return None;
        }
        Some(Self {
            uuid: *uuid,
            incarnation: u32::from_le_bytes(*incarnation),
            highest_ts,
            positions: lanes.iter().map(|lsn| u64::from_le_bytes(*lsn)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::RangeBounds;

    #[test]
    fn ranges_that_hold_nothing_for_their_bounds_are_empty() {
        let (a, b) = (&b"a"[..], &b"b"[..]);
        use Bound::{Excluded, Included, Unbounded};
        for range in [(Included(b), Included(a)), (Excluded(a), Excluded(a))] {
            assert!(is_empty_range(range));
        }
        assert!(
            is_empty_range((Included(a), Excluded(a)))
                && is_empty_range((Excluded(a), Included(a)))
        );
        for range in [(Included(a), Included(a)), (Excluded(a), Unbounded), (Unbounded, Unbounded)]
        {
            assert!(!is_empty_range(range));
        }
    }

    /// All keys of up to two bytes, and all bounds of up to four, over an alphabet of two.
    #[test]
    fn a_range_with_cut_bounds_has_the_same_keys() {
        let strings = |most: usize| -> Vec<Vec<u8>> {
            let of_len = |len: usize| (0..1u32 << len).map(move |bits| (bits, len));
            let bits = (0..=most).flat_map(of_len);
            bits.map(|(bits, len)| (0..len).map(|at| (bits >> at & 1) as u8).collect()).collect()
        };
        let (keys, bounds) = (strings(2), strings(4));
        let all = |key| [Bound::Included(key), Bound::Excluded(key), Bound::Unbounded];
        for (from, to) in bounds.iter().flat_map(|a| bounds.iter().map(move |b| (a, b))) {
            for (from, to) in all(&from[..]).into_iter().flat_map(|a| all(&to[..]).map(|b| (a, b)))
            {
                let cut = cut_bounds((from, to), 2);
                assert_eq!(too_long(cut.0, 2).or(too_long(cut.1, 2)), None);
                for key in &keys {
                    let is_in = |range: KeyRange<'_>| range.contains(&key[..]);
                    assert_eq!(is_in(cut), is_in((from, to)), "{key:?} in {from:?} to {to:?}");
                    assert!(!is_in(cut) || !is_empty_range(cut));
                }
            }
        }
    }

    #[test]
    fn a_resume_point_comes_back_and_nothing_else_is_one() {
        let point = ResumePoint {
            uuid: [7; 16],
            incarnation: 3,
            highest_ts: MAX_TS,
            positions: vec![1, 1 << 60, 0],
        };
        let bytes = point.encode();
        assert_eq!(ResumePoint::decode(&bytes), Some(point));
        for len in (0..bytes.len()).filter(|len| *len < 36 || (len - 28) % 8 != 0) {
            assert_eq!(ResumePoint::decode(&bytes[..len]), None);
        }
        let mut bytes = bytes;
        bytes[20] += 1;
        assert_eq!(ResumePoint::decode(&bytes), None, "its timestamp is too high");
    }
}
