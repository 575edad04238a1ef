//! The item of a key in a store of bytes: 8 bytes of timestamp, little-endian, 1 if there is a
//! value, else 0, and the value.

use crate::data_component::Operation;

/// The timestamp of an item, and the value; None if the bytes are no item.
pub(super) fn read_item(item: &[u8]) -> Option<(u64, Option<&[u8]>)> {
    let (ts, rest) = item.split_first_chunk::<8>()?;
    let value = match rest.split_first()? {
        (0, []) => None,
        (1, value) => Some(value),
        _ => return None,
    };
    Some((u64::from_le_bytes(*ts), value))
}

/// Appends the item of an operation.
pub(super) fn put_item(out: &mut Vec<u8>, operation: &Operation<'_>) {
    out.extend(operation.ts.to_le_bytes());
    out.push(u8::from(operation.value.is_some()));
    out.extend(operation.value.unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_comes_back_and_nothing_else_is_one() {
        for value in [None, Some(&b""[..]), Some(b"v")] {
            let mut item = Vec::new();
            put_item(&mut item, &Operation { key: b"k", ts: u64::MAX, value });
            assert_eq!(read_item(&item), Some((u64::MAX, value)));
        }
        assert_eq!(read_item(&[0; 8]), None, "it is cut off");
        assert_eq!(read_item(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 1]), None, "a deleted key has no value");
        assert_eq!(read_item(&[0, 0, 0, 0, 0, 0, 0, 0, 2]), None);
    }
}
