//! The record of a transaction (`docs/format.md`, section 13).

use crate::data_component::{MAX_TS, Operation};
use hyades_wal::{Lsn, compress, varint};

/// A mark, not a timestamp, in the place of the timestamp of a record with parts.
const PARTED: u64 = 0;

/// The parts of a transaction before its record, in the same stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// The start of the first part.
    pub first: Lsn,
    /// The number of parts; at least 1.
    pub count: u64,
}

/// A record read from the log.
#[derive(Debug)]
pub(crate) struct ReadRecord<'r> {
    pub ts: u64,
    pub parts: Option<Parts>,
    /// The operations, without the parts', in ascending order of keys.
    pub operations: Vec<Operation<'r>>,
}

/// Appends parts, timestamp and vector, without the lanes covered by the anchor.
pub(crate) fn put_head<A>(
    out: &mut Vec<u8>,
    parts: Option<Parts>,
    ts: u64,
    vector: &[u64],
    anchor: &[A],
    load: impl Fn(&A) -> u64,
) {
    if let Some(Parts { first, count }) = parts {
        debug_assert!(count > 0, "the first part at {first}, and none");
        [PARTED, first, count].into_iter().for_each(|number| varint::put(out, number));
    }
    varint::put(out, ts);
    compress::encode(out, vector, anchor, load);
}

/// Appends the head of a part; operations follow.
pub(crate) fn put_part_head(out: &mut Vec<u8>, ts: u64) {
    varint::put(out, ts);
}

/// The most bytes of an operation without its key and value.
const OPERATION_BYTES: usize = 20;
/// The most bytes of the head of a part.
pub(crate) const PART_HEAD_BYTES: usize = 10;

/// At most how many bytes an operation takes in a frame.
pub(crate) fn operation_bytes(key: &[u8], value: Option<&[u8]>) -> usize {
    OPERATION_BYTES + key.len() + value.map_or(0, <[u8]>::len)
}

/// Returns the most bytes of a part with a single operation.
pub(crate) fn part_bytes(key: &[u8], value: Option<&[u8]>) -> usize {
    PART_HEAD_BYTES + operation_bytes(key, value)
}

/// Appends an operation; the timestamp is the record's.
pub(crate) fn put_operation(out: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    varint::put(out, (key.len() as u64) << 1 | u64::from(value.is_none()));
    out.extend_from_slice(key);
    if let Some(value) = value {
        varint::put(out, value.len() as u64);
        out.extend_from_slice(value);
    }
}

/// Reads a record; the vector into `vector`.
///
/// # Errors
/// The bytes are not a record; the text says why.
pub(crate) fn read<'r>(
    record: &'r [u8],
    anchor: &[u64],
    vector: &mut [u64],
) -> Result<ReadRecord<'r>, &'static str> {
    let mut rest = record;
    let mut ts = varint::take(&mut rest).ok_or("the timestamp is not a number")?;
    let mut parts = None;
    if ts == PARTED {
        let first = varint::take(&mut rest).ok_or("the position of its parts is not a number")?;
        let count = varint::take(&mut rest).ok_or("the number of its parts is not a number")?;
        if count == 0 {
            return Err("it states that it has parts, and how many: none");
        }
        parts = Some(Parts { first, count });
        ts = varint::take(&mut rest).ok_or("the timestamp is not a number")?;
    }
    check_ts(ts)?;
    let used = compress::decode(rest, anchor, vector)?;
    let operations = read_operations(&rest[used..], ts)?;
    if operations.windows(2).any(|two| two[0].key >= two[1].key) {
        return Err("its keys do not ascend");
    }
    Ok(ReadRecord { ts, parts, operations })
}

/// The timestamp of a record, and whether the record has parts; None if unreadable, or a time mark.
pub(crate) fn read_ts(record: &[u8]) -> Option<(u64, bool)> {
    let mut rest = record;
    let mark = varint::take(&mut rest)?;
    if mark != PARTED {
        return Some((mark, false));
    }
    let [_first, count, ts] = [(); 3].map(|()| varint::take(&mut rest));
    // Without parts: a time mark.
    Some((ts.filter(|_| count > Some(0))?, true))
}

/// Reads the head of a part: the timestamp of the transaction, and the bytes of the operations.
///
/// # Errors
/// The bytes are not a part; the text says why.
pub(crate) fn read_part(part: &[u8]) -> Result<(u64, &[u8]), &'static str> {
    let mut rest = part;
    let ts = varint::take(&mut rest).ok_or("the timestamp is not a number")?;
    check_ts(ts)?;
    if rest.is_empty() {
        return Err("a part has no operations");
    }
    Ok((ts, rest))
}

fn check_ts(ts: u64) -> Result<(), &'static str> {
    match (1..=MAX_TS).contains(&ts) {
        true => Ok(()),
        false => Err("no transaction has this timestamp"),
    }
}

/// Reads operations up to the end of the bytes, in order.
///
/// # Errors
/// The bytes are not operations; the text says why.
pub(crate) fn read_operations(bytes: &[u8], ts: u64) -> Result<Vec<Operation<'_>>, &'static str> {
    let (mut rest, mut operations) = (bytes, Vec::new());
    while !rest.is_empty() {
        let head = varint::take(&mut rest).ok_or("the length of a key is not a number")?;
        let key = take(&mut rest, head >> 1).ok_or("a key is cut off")?;
        let value = match head & 1 {
            1 => None,
            _ => {
                let len = varint::take(&mut rest).ok_or("the length of a value is not a number")?;
                Some(take(&mut rest, len).ok_or("a value is cut off")?)
            }
        };
        operations.push(Operation { key, ts, value });
    }
    Ok(operations)
}

fn take<'r>(from: &mut &'r [u8], len: u64) -> Option<&'r [u8]> {
    let (taken, rest) = from.split_at_checked(usize::try_from(len).ok()?)?;
    *from = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back() {
        let mut bytes = Vec::new();
        put_head(&mut bytes, None, 300, &[0, 90], &[10, 20], |lsn| *lsn);
        put_operation(&mut bytes, b"", Some(b""));
        put_operation(&mut bytes, b"a", None);
        put_operation(&mut bytes, b"b", Some(&[1; 200]));
        let mut vector = [0; 2];
        let ReadRecord { ts, parts, operations } = read(&bytes, &[10, 20], &mut vector).unwrap();
        assert_eq!((ts, parts, vector), (300, None, [10, 90]));
        assert_eq!(read_ts(&bytes), Some((300, false)));
        let operation = |key, value| Operation { key, ts: 300, value };
        let long = [1; 200];
        let expected = [
            operation(b"", Some(&b""[..])),
            operation(b"a", None),
            operation(b"b", Some(&long[..])),
        ];
        assert_eq!(operations, expected);
    }

    #[test]
    fn a_record_with_parts_comes_back_and_so_does_a_part() {
        for (first, count) in [(0, 1), (4096, 300), (u64::MAX, u64::MAX)] {
            let (mut bytes, parts) = (Vec::new(), Some(Parts { first, count }));
            put_head(&mut bytes, parts, 7, &[5], &[0], |lsn| *lsn);
            let read = read(&bytes, &[0], &mut [0]).unwrap();
            assert_eq!((read.ts, read.parts, read.operations.len()), (7, parts, 0));
            assert_eq!(read_ts(&bytes), Some((7, true)));
        }
        let mut part = Vec::new();
        put_part_head(&mut part, MAX_TS);
        assert!(read_part(&part).is_err(), "it has no operation");
        let head = part.len();
        assert!(head <= PART_HEAD_BYTES);
        put_operation(&mut part, b"b", Some(b"1"));
        put_operation(&mut part, b"a", None);
        let (ts, operations) = read_part(&part).unwrap();
        let operations = read_operations(operations, ts).unwrap();
        assert_eq!((ts, operations.len(), operations[1].key), (MAX_TS, 2, &b"a"[..]));
        // No parts, no timestamp, and records that are cut off.
        for wrong in [&[0, 5, 0, 7, 0][..], &[0, 5, 1, 0, 0], &[0, 5, 1], &[0]] {
            assert!(read(wrong, &[0], &mut [0]).is_err(), "{wrong:?}");
        }
        assert!(read_part(&[0, 2, b'a', 0]).is_err());
    }

    #[test]
    fn a_timestamp_that_no_transaction_has_is_refused() {
        for (ts, is_one) in [(0, false), (1, true), (MAX_TS, true), (MAX_TS + 1, false)] {
            let mut bytes = Vec::new();
            put_head(&mut bytes, None, ts, &[0], &[0], |lsn| *lsn);
            assert_eq!(read(&bytes, &[0], &mut [0]).is_ok(), is_one, "{ts}");
        }
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut bytes = Vec::new();
        put_head(&mut bytes, None, 1 << 40, &[5, 7], &[0, 0], |lsn| *lsn);
        put_operation(&mut bytes, b"key", Some(b"value"));
        put_operation(&mut bytes, b"last", None);
        let mut refused = 0;
        for _ in 0..20_000 {
            let mut wrong = bytes[..rng.usize(..=bytes.len())].to_vec();
            for _ in 0..rng.usize(0..4).min(wrong.len()) {
                let at = rng.usize(..wrong.len());
                wrong[at] = rng.u8(..);
            }
            refused += usize::from(read(&wrong, &[0, 0], &mut [0; 2]).is_err());
        }
        assert!(refused > 10_000, "{refused} of 20000");
        let mut vector = [0; 2];
        let mut unsorted = Vec::new();
        put_head(&mut unsorted, None, 1, &[0, 0], &[0, 0], |lsn| *lsn);
        put_operation(&mut unsorted, b"b", None);
        put_operation(&mut unsorted, b"a", None);
        assert!(read(&unsorted, &[0, 0], &mut vector).is_err());
    }
}
