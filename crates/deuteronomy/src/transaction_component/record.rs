//! The record of a transaction (`docs/format.md`, section 13).

use crate::data_component::{MAX_TS, Operation};
use hyades_wal::{compress, varint};

/// Appends timestamp and vector, without the lanes that the anchor covers.
pub(crate) fn put_head<A>(
    out: &mut Vec<u8>,
    ts: u64,
    vector: &[u64],
    anchor: &[A],
    load: impl Fn(&A) -> u64,
) {
    varint::put(out, ts);
    compress::encode(out, vector, anchor, load);
}

/// Appends an operation; its timestamp is the record's.
pub(crate) fn put_operation(out: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    varint::put(out, (key.len() as u64) << 1 | u64::from(value.is_none()));
    out.extend_from_slice(key);
    if let Some(value) = value {
        varint::put(out, value.len() as u64);
        out.extend_from_slice(value);
    }
}

/// Reads a record: its timestamp, its vector into `vector`, and its operations.
///
/// # Errors
/// The bytes are not a record; the text says why.
pub(crate) fn read<'r>(
    record: &'r [u8],
    anchor: &[u64],
    vector: &mut [u64],
) -> Result<(u64, Vec<Operation<'r>>), &'static str> {
    let (ts, used) = varint::get(record).ok_or("the timestamp is not a number")?;
    if !(1..=MAX_TS).contains(&ts) {
        return Err("no transaction has this timestamp");
    }
    let rest = &record[used..];
    let used = compress::decode(rest, anchor, vector)?;
    let (mut rest, mut operations) = (&rest[used..], Vec::<Operation<'_>>::new());
    while !rest.is_empty() {
        let (head, used) = varint::get(rest).ok_or("the length of a key is not a number")?;
        rest = &rest[used..];
        let key = take(&mut rest, head >> 1).ok_or("a key is cut off")?;
        let value = match head & 1 {
            1 => None,
            _ => {
                let (len, used) =
                    varint::get(rest).ok_or("the length of a value is not a number")?;
                rest = &rest[used..];
                Some(take(&mut rest, len).ok_or("a value is cut off")?)
            }
        };
        if operations.last().is_some_and(|last| last.key >= key) {
            return Err("its keys do not ascend");
        }
        operations.push(Operation { key, ts, value });
    }
    Ok((ts, operations))
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
        put_head(&mut bytes, 300, &[0, 90], &[10, 20], |lsn| *lsn);
        put_operation(&mut bytes, b"", Some(b""));
        put_operation(&mut bytes, b"a", None);
        put_operation(&mut bytes, b"b", Some(&[1; 200]));
        let mut vector = [0; 2];
        let (ts, operations) = read(&bytes, &[10, 20], &mut vector).unwrap();
        assert_eq!((ts, vector), (300, [10, 90]));
        let of = |key, value| Operation { key, ts: 300, value };
        let long = [1; 200];
        let expected = [of(b"", Some(&b""[..])), of(b"a", None), of(b"b", Some(&long[..]))];
        assert_eq!(operations, expected);
    }

    #[test]
    fn a_timestamp_that_no_transaction_has_is_refused() {
        for (ts, is_one) in [(0, false), (1, true), (MAX_TS, true), (MAX_TS + 1, false)] {
            let mut bytes = Vec::new();
            put_head(&mut bytes, ts, &[0], &[0], |lsn| *lsn);
            assert_eq!(read(&bytes, &[0], &mut [0]).is_ok(), is_one, "{ts}");
        }
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut bytes = Vec::new();
        put_head(&mut bytes, 1 << 40, &[5, 7], &[0, 0], |lsn| *lsn);
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
        put_head(&mut unsorted, 1, &[0, 0], &[0, 0], |lsn| *lsn);
        put_operation(&mut unsorted, b"b", None);
        put_operation(&mut unsorted, b"a", None);
        assert!(read(&unsorted, &[0, 0], &mut vector).is_err());
    }
}
