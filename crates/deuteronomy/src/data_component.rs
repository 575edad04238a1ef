//! What the transaction component knows of data: the trait [`DataComponent`] and its contract.

use crate::error::Error;
use std::ops::{Bound, ControlFlow};

/// The highest timestamp that a record or a resume point may state: what states a higher one is
/// damaged. The transaction table has two bits of a word beside a timestamp.
pub(crate) const MAX_TS: u64 = 1 << 61;
/// The most sessions of a database.
pub(crate) const MOST_SESSIONS: usize = 1 << 16;
/// A session that has seen the clock above this begins no transaction, and a log or a data
/// component that has come this far is not opened.
///
/// Invariant: no timestamp above [`MAX_TS`] is drawn, so none is logged that is refused when it is
/// read. A session draws only while the last value of the clock that it has seen is at or below
/// `LAST_TS`. Once it has drawn this or more it has seen a higher one, and so has the next session
/// in its place. So each place draws at most one timestamp from here on.
pub(crate) const LAST_TS: u64 = MAX_TS - MOST_SESSIONS as u64;

/// What a data component holds of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The timestamp of the newest operation applied to the key; 0 if it has seen none, or has
    /// [forgotten](DataComponent::forget_below) it.
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

/// A range of keys: its lower and its upper bound.
pub type KeyRange<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// In which order a scan goes through its range.
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
    /// The incarnation of the positions. All operations of earlier ones are held. 0, before the
    /// first, in an [initial](Self::initial) one.
    pub incarnation: u32,
    /// No transaction up to now has a higher timestamp. At most 2^61.
    pub highest_ts: u64,
    /// By stream of the incarnation, the end of the last frame up to which every operation is held.
    pub positions: Vec<u64>,
}

/// What a data component can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest key in bytes. No method is called with a longer key, or with a longer bound of a
    /// range.
    pub key_bytes: usize,
    /// The longest value in bytes.
    pub value_bytes: usize,
    /// Whether what a [checkpoint](DataComponent::checkpoint) makes stable outlives the process.
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

/// A store of keys and values that knows no transactions.
///
/// It is fed operations of committed transactions that are durable in the log. So it may write them
/// to its medium when it likes, or lose them: after a crash those behind its resume point are
/// applied again. All methods may be called from several threads at a time.
pub trait DataComponent: Send + Sync {
    /// The newest operation on the key, as of a moment after the call began.
    ///
    /// # Errors
    /// The data could not be read.
    fn get(&self, key: &[u8]) -> Result<Found, Error>;

    /// The newest operation on each key of a range that is not empty, in this order, deleted keys
    /// that are not [forgotten](Self::forget_below) included: each as of a moment after the call
    /// began. Ends early if `each` says so. `each` does not call the data component.
    ///
    /// # Errors
    /// The data could not be read.
    fn scan(
        &self,
        range: KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error>;

    /// Applies operations. They come in any order and any number of times: of the operations on a
    /// key the one with the highest timestamp counts. In a batch, keys ascend and none comes twice.
    /// Calls on several threads at a time have no key in common.
    ///
    /// # Errors
    /// The data could not be written; the database stops then.
    fn apply(&self, batch: &[Operation<'_>]) -> Result<(), Error>;

    /// Whether a batch may be cut between these two of its keys, which are neighbours there, and
    /// both pieces be [applied](Self::apply) at the same time, faster than one after the other.
    /// Where it may not, [one thread](crate::Options::proxy_threads) applies both. Default: it may
    /// not, as where there is one writer at a time.
    fn may_cut(&self, _last: &[u8], _next: &[u8]) -> bool {
        false
    }

    /// Makes all that was applied before the call stable, and the resume point with it, atomically.
    /// Before the first operation is applied, a database that is opened over it makes an
    /// [initial](ResumePoint::initial) one stable, which names its log: without that, it could be
    /// opened later with another one. And each opening makes one stable that names its incarnation
    /// of the log, before the first operation of that is applied. Operations may be
    /// [applied](Self::apply) meanwhile.
    ///
    /// # Errors
    /// The data could not be made stable. Then the last resume point holds, or this one.
    fn checkpoint(&self, point: &ResumePoint) -> Result<(), Error>;

    /// The resume point of the last checkpoint; None before the first. One that holds keys and has
    /// none is refused.
    ///
    /// # Errors
    /// It could not be read.
    fn resume_point(&self) -> Result<Option<ResumePoint>, Error>;

    /// A timestamp that is at or above those of all operations held, without those that are
    /// [forgotten](Self::forget_below), and at or below the highest that was ever given; 0 where
    /// there is none. Asked when a database is opened: a data component that holds an operation of
    /// a later time than its log is refused. Default: a scan of everything, so one that is large
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

    /// No operation below `ts` will be applied any more, not even after a crash that the data
    /// component outlives, and no transaction reads as of a lower timestamp. So timestamps below it
    /// may be taken for 0, and deleted keys with such timestamps may be removed.
    ///
    /// # Errors
    /// The data could not be written.
    fn forget_below(&self, ts: u64) -> Result<(), Error>;

    /// What it can take. As long as it holds a key, no less than before; asked when a database is
    /// opened.
    fn limits(&self) -> Limits;
}

/// Whether the range holds no key for its bounds alone; such ranges make ordered maps panic.
pub(crate) fn is_empty(range: KeyRange<'_>) -> bool {
    match range {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (
            Bound::Included(from) | Bound::Excluded(from),
            Bound::Included(to) | Bound::Excluded(to),
        ) => from >= to,
        _ => false,
    }
}

/// The first `key_bytes` bytes of a bound that is longer.
fn too_long(bound: Bound<&[u8]>, key_bytes: usize) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) if key.len() > key_bytes => {
            Some(&key[..key_bytes])
        }
        _ => None,
    }
}

/// A range that has the same keys of up to `key_bytes` bytes, with bounds that are no longer.
///
/// A longer bound is a position between two of these keys: just behind its first `key_bytes` bytes.
/// For a key of up to that many bytes is a prefix of them, and then below both; or it differs from
/// the bound within them, and then it is on the same side of both.
pub(crate) fn cut_bounds<'r>((from, to): KeyRange<'r>, key_bytes: usize) -> KeyRange<'r> {
    (
        too_long(from, key_bytes).map_or(from, Bound::Excluded),
        too_long(to, key_bytes).map_or(to, Bound::Included),
    )
}

/// Whether the data component has anything of any key, deleted ones included.
pub(crate) fn holds_a_key(data: &dyn DataComponent) -> Result<bool, Error> {
    let mut holds_one = false;
    data.scan((Bound::Unbounded, Bound::Unbounded), ScanOrder::Ascending, &mut |_| {
        holds_one = true;
        ControlFlow::Break(())
    })?;
    Ok(holds_one)
}

impl ResumePoint {
    /// That of a data component that belongs to a log, and needs all of it.
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
            assert!(is_empty(range));
        }
        assert!(is_empty((Included(a), Excluded(a))) && is_empty((Excluded(a), Included(a))));
        for range in [(Included(a), Included(a)), (Excluded(a), Unbounded), (Unbounded, Unbounded)]
        {
            assert!(!is_empty(range));
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
                    assert!(!is_in(cut) || !is_empty(cut));
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
