//! Keys and items in SlateDB, and the merge of items.
//!
//! Keys: after the byte `d` a key, with an item; after the byte `x` the timestamp of a deletion, 8
//! bytes big-endian, and the deleted key, with nothing; `r`, the resume point; `t`, the highest
//! applied timestamp, 8 bytes little-endian, merged as items are. An item: 8 bytes of timestamp,
//! little-endian, 1 if there is a value, else 0, and the value.

use bytes::Bytes;
use hyades_deuteronomy::{KeyRange, Operation};
use slatedb::{MergeOperator, MergeOperatorError};
use std::ops::Bound;

const DATA: u8 = b'd';
const DELETED: u8 = b'x';
/// The key of the resume point.
pub(crate) const RESUME: [u8; 1] = [b'r'];
/// The key of the highest applied timestamp.
pub(crate) const HIGHEST: [u8; 1] = [b't'];

/// The longest key of SlateDB, in bytes.
const SLATEDB_KEY_BYTES: usize = 65_535;
/// The bytes before a key in the key of the key's deletion.
const DELETION_BYTES: usize = 9;
/// The longest key of a data component, in bytes.
pub(crate) const KEY_BYTES: usize = SLATEDB_KEY_BYTES - DELETION_BYTES;

/// A range of keys of SlateDB.
pub(crate) type StoredRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The key of the item of a key.
pub(crate) fn data_key(key: &[u8]) -> Vec<u8> {
    [&[DATA], key].concat()
}

/// The range of the items of a range.
pub(crate) fn data_range((from, to): KeyRange<'_>) -> StoredRange {
    let from = match from {
        Bound::Unbounded => Bound::Included(vec![DATA]),
        bound => bound.map(data_key),
    };
    let to = match to {
        Bound::Unbounded => Bound::Excluded(vec![DATA + 1]),
        bound => bound.map(data_key),
    };
    (from, to)
}

/// The key of a deletion.
pub(crate) fn deletion_key(ts: u64, key: &[u8]) -> Vec<u8> {
    [&[DELETED], &ts.to_be_bytes()[..], key].concat()
}

/// The range of the deletions from a timestamp on, and below another.
pub(crate) fn deletions(from: u64, below: u64) -> StoredRange {
    let key = |ts| deletion_key(ts, &[]);
    (Bound::Included(key(from)), Bound::Excluded(key(below)))
}

/// The timestamp and the key of a deletion; None if the bytes are no key of a deletion.
pub(crate) fn read_deletion(stored: &[u8]) -> Option<(u64, &[u8])> {
    let (ts, key) = stored.strip_prefix(&[DELETED])?.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*ts), key))
}

/// The key of an item; None if the bytes are no key of an item.
pub(crate) fn read_data_key(stored: &[u8]) -> Option<&[u8]> {
    stored.strip_prefix(&[DATA])
}

/// The item of an operation.
pub(crate) fn item(operation: &Operation<'_>) -> Vec<u8> {
    let value = operation.value.unwrap_or_default();
    let mut item = Vec::with_capacity(9 + value.len());
    item.extend(operation.ts.to_le_bytes());
    item.push(u8::from(operation.value.is_some()));
    item.extend(value);
    item
}

/// The timestamp of an item, and the value; None if the bytes are no item.
pub(crate) fn read_item(item: &[u8]) -> Option<(u64, Option<&[u8]>)> {
    let (ts, rest) = item.split_first_chunk::<8>()?;
    let value = match rest.split_first()? {
        (0, []) => None,
        (1, value) => Some(value),
        _ => return None,
    };
    Some((u64::from_le_bytes(*ts), value))
}

/// The timestamp of an item or of a noted timestamp.
fn timestamp(item: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*item.first_chunk()?))
}

/// Merges items: the highest timestamp wins, of equals the item that came first.
///
/// Invariant: the merge is associative, idempotent, and, for the items of a key, commutative, since
/// two operations with the same key and timestamp are the same operation. So items arrive in any
/// order, any number of times.
pub(crate) struct Newest;

impl MergeOperator for Newest {
    fn merge(
        &self,
        _: &Bytes,
        existing: Option<Bytes>,
        item: Bytes,
    ) -> Result<Bytes, MergeOperatorError> {
        let ts = |item: &Bytes| {
            let message = "an item has no timestamp".to_string();
            timestamp(item).ok_or(MergeOperatorError::Callback { message })
        };
        match existing {
            Some(existing) if ts(&existing)? >= ts(&item)? => Ok(existing),
            _ => ts(&item).map(|_| item),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_and_a_deletion_come_back_and_nothing_else_is_one() {
        for value in [None, Some(&b""[..]), Some(b"v")] {
            let item = item(&Operation { key: b"k", ts: u64::MAX, value });
            assert_eq!(read_item(&item), Some((u64::MAX, value)));
        }
        assert_eq!(read_item(&[0; 8]), None, "it is cut off");
        assert_eq!(read_item(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 1]), None, "a deleted key has no value");
        assert_eq!(read_item(&[0, 0, 0, 0, 0, 0, 0, 0, 2]), None);
        assert_eq!(read_deletion(&deletion_key(7, b"k")), Some((7, &b"k"[..])));
        assert_eq!(read_deletion(&data_key(b"a longer key")), None);
        assert!(deletion_key(7, &[255; KEY_BYTES]).len() <= SLATEDB_KEY_BYTES);
    }

    #[test]
    fn the_highest_timestamp_wins_in_any_order_and_grouping() {
        let merge = |a: Option<&Bytes>, b: &Bytes| {
            Newest.merge(&Bytes::new(), a.cloned(), b.clone()).unwrap()
        };
        let all: Vec<Bytes> = [(3, Some(&b"3"[..])), (5, None), (5, None), (4, Some(b""))]
            .map(|(ts, value)| item(&Operation { key: b"k", ts, value }).into())
            .into();
        for seed in 0..50 {
            let (mut rng, mut items) = (fastrand::Rng::with_seed(seed), all.clone());
            rng.shuffle(&mut items);
            while items.len() > 1 {
                let at = rng.usize(1..items.len());
                let newer = items.remove(at);
                items[at - 1] = merge(Some(&items[at - 1]), &newer);
            }
            assert_eq!(merge(None, &items[0]), all[1]);
        }
        let short = Newest.merge(&Bytes::new(), None, Bytes::from_static(b"short"));
        assert!(short.is_err(), "a damaged item");
    }
}
