//! The front of each key: the number of a keyspace. The order of keys within a keyspace is the
//! order of their bytes.

use hyades::row_codec::{push_varint, successor_of_prefix};
use std::ops::Bound;

/// The keyspace of the catalogue.
pub(crate) const CATALOGUE: u32 = 0;
/// The keyspace of the pieces of large values.
pub(crate) const PIECES: u32 = 1;
/// The first number given to a keyspace, a table or an index.
pub(crate) const FIRST: u32 = 2;

/// A range of keys, with owned bounds.
pub(crate) type OwnedRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The bytes in front of the keys of a keyspace: the keyspace's number as a varint of 7 bits a
/// byte. No such number is the beginning of another one, so keyspaces have no key in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prefix(Vec<u8>);

impl Prefix {
    pub fn new(number: u32) -> Self {
        let mut bytes = Vec::new();
        push_varint(&mut bytes, u64::from(number));
        Self(bytes)
    }

    /// The key `rest` of the keyspace.
    pub fn key(&self, rest: &[u8]) -> Vec<u8> {
        [&self.0, rest].concat()
    }

    /// The key within the keyspace.
    pub fn rest<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        debug_assert!(key.starts_with(&self.0), "a key is read in its keyspace");
        &key[self.0.len()..]
    }

    /// All keys of the keyspace.
    pub fn all(&self) -> OwnedRange {
        self.starting_with(&[])
    }

    /// The keys of the keyspace that start with `start`.
    pub fn starting_with(&self, start: &[u8]) -> OwnedRange {
        (Bound::Included(self.key(start)), self.below_next(start))
    }

    /// The upper bound of the keys that start with `start`.
    fn below_next(&self, start: &[u8]) -> Bound<Vec<u8>> {
        // The last byte of a varint is below 0x80, so there is a successor.
        successor_of_prefix(&self.key(start)).map_or(Bound::Unbounded, Bound::Excluded)
    }

    /// The keys of the keyspace between two bounds.
    pub fn between(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> OwnedRange {
        let lower = match lower {
            Bound::Unbounded => Bound::Included(self.0.clone()),
            bound => bound.map(|key| self.key(key)),
        };
        let upper = match upper {
            Bound::Unbounded => self.below_next(&[]),
            bound => bound.map(|key| self.key(key)),
        };
        (lower, upper)
    }

    /// The keys between two bounds, each of which stands for all keys that start with it.
    pub fn between_starts(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> OwnedRange {
        let behind = |start: &[u8]| successor_of_prefix(&self.key(start));
        let lower = match lower {
            Bound::Unbounded => Bound::Included(self.0.clone()),
            Bound::Included(start) => Bound::Included(self.key(start)),
            Bound::Excluded(start) => behind(start).map_or(Bound::Unbounded, Bound::Included),
        };
        let upper = match upper {
            Bound::Unbounded => self.below_next(&[]),
            Bound::Included(start) => self.below_next(start),
            Bound::Excluded(start) => Bound::Excluded(self.key(start)),
        };
        (lower, upper)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::RangeBounds;

    #[test]
    fn keyspaces_do_not_overlap() {
        let numbers = [0, 1, 2, 127, 128, 129, 255, 256, 16_383, 16_384, u32::MAX];
        let rests: [&[u8]; 5] = [b"", b"\0", b"\xff", b"\x01\x01", &[0xff; 9]];
        for (own, number) in numbers.map(Prefix::new).iter().zip(numbers) {
            for other in numbers {
                for rest in rests {
                    let key = Prefix::new(other).key(rest);
                    assert_eq!(own.all().contains(&key), number == other, "{number} {other}");
                }
            }
        }
    }

    #[test]
    fn bounds_are_of_keys_or_of_starts() {
        let prefix = Prefix::new(200);
        let (a, ab, b) = (prefix.key(b"a"), prefix.key(b"ab"), prefix.key(b"b"));
        let plain = prefix.between(Bound::Excluded(b"a"), Bound::Included(b"b"));
        assert_eq!([&a, &ab, &b].map(|key| plain.contains(key)), [false, true, true]);
        let starts = prefix.between_starts(Bound::Excluded(b"a"), Bound::Included(b"b"));
        assert_eq!([&a, &ab, &b].map(|key| starts.contains(key)), [false, false, true]);
        let starts = prefix.between_starts(Bound::Unbounded, Bound::Included(b"a"));
        assert_eq!([&a, &ab, &b].map(|key| starts.contains(key)), [true, true, false]);
        assert_eq!(prefix.rest(&ab), b"ab");
    }

    #[test]
    fn a_start_of_highest_bytes_ends_with_its_keyspace() {
        let prefix = Prefix::new(5);
        let range = prefix.starting_with(&[0xff, 0xff]);
        assert!(range.contains(&prefix.key(&[0xff; 7])));
        assert!(!range.contains(&Prefix::new(6).key(b"")));
    }
}
