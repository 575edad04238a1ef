//! The keys of a tortured database: few, so that transactions meet, and of all kinds.

use super::history::{KeyByte, number};
use crate::Row;

/// How many keys there are.
pub(super) const KEYS: usize = 8;

/// The bytes of a long key.
pub(super) const LONG_KEY: usize = 1000;

/// The ends behind a common prefix of all keys: some are prefixes of later ends, in order.
const ENDS: [&[u8]; KEYS] = [&[], &[0], &[0, 0], &[0, 255], &[1], &[255], &[255, 0], &[255, 255]];

/// The keys, in order; a history knows keys by their places.
#[derive(Clone, Debug)]
pub(super) struct LifeKeys(Vec<Vec<u8>>);

impl LifeKeys {
    /// Half of the time keys of a single byte; else up to 40 bytes, random ones or prefixes of each
    /// other, also none, and now and then a long key.
    pub fn draw(rng: &mut fastrand::Rng) -> Self {
        let mut keys: Vec<Vec<u8>> = match rng.u8(0..4) {
            0 | 1 => return Self((0..KEYS as u8).map(|key| vec![key]).collect()),
            2 => (0..KEYS as u8).map(|key| Self::draw_one(key, rng)).collect(),
            _ => {
                let prefix: Vec<u8> = (0..rng.usize(0..=20)).map(|_| rng.u8(0..8)).collect();
                ENDS.map(|end| [&prefix, end].concat()).into()
            }
        };
        if rng.u8(0..4) == 0 {
            // The last key stays the last, also as a prefix.
            let long = keys.last_mut().expect("there are some");
            long.resize(LONG_KEY, 255);
        }
        Self(keys)
    }

    fn draw_one(first: u8, rng: &mut fastrand::Rng) -> Vec<u8> {
        if first == 0 && rng.bool() {
            return Vec::new();
        }
        let rest = (0..rng.usize(1..40)).map(|_| rng.u8(..));
        std::iter::once(first).chain(rest).collect()
    }

    /// The places of the keys, as in a history.
    pub fn all(&self) -> [KeyByte; KEYS] {
        std::array::from_fn(|place| place as KeyByte)
    }

    /// The bytes of a key.
    pub fn bytes(&self, key: KeyByte) -> &[u8] {
        &self.0[usize::from(key)]
    }

    /// Returns the key with `bytes`.
    ///
    /// # Panics
    /// There is none.
    pub fn of_bytes(&self, bytes: &[u8]) -> KeyByte {
        let place = self.0.iter().position(|key| key == bytes);
        place.unwrap_or_else(|| panic!("{bytes:?} is not a key that was written")) as KeyByte
    }

    /// Returns the rows of a scan, as in a history.
    pub fn rows(&self, rows: &[Row]) -> Vec<(KeyByte, u64)> {
        rows.iter().map(|(key, value)| (self.of_bytes(key), number(value))).collect()
    }

    /// The length of the longest key.
    pub fn longest(&self) -> usize {
        self.0.iter().map(Vec::len).max().unwrap_or_default()
    }

    /// Whether the key without bytes is among the keys.
    pub fn has_empty(&self) -> bool {
        self.0.iter().any(Vec::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_their_order_and_of_all_kinds() {
        let (mut empty, mut long) = (0, 0);
        for seed in 0..500 {
            let keys = LifeKeys::draw(&mut fastrand::Rng::with_seed(seed));
            assert!(keys.0.is_sorted_by(|a, b| a < b) && keys.0.len() == KEYS, "{keys:?}");
            assert!(keys.0.iter().all(|key| key.len() <= 40 || key.len() == LONG_KEY));
            for key in keys.all() {
                assert_eq!(keys.of_bytes(keys.bytes(key)), key);
            }
            empty += usize::from(keys.has_empty());
            long += usize::from(keys.longest() == LONG_KEY);
        }
        assert!(empty > 20 && long > 20, "{empty}, {long}");
    }
}
