//! Keys as compared by the tree: a few big-endian words inline, the whole key only on a tie.
//!
//! Zero padding keeps the order: where two padded prefixes differ, the keys differ in the same
//! direction, because the key with the earlier end is smaller. Where padded prefixes are equal,
//! fixed-length keys within the words are equal too; any other key is compared in full.

#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::ops::Bound;

/// The common shape of all keys of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyShape {
    /// Every key has exactly this many bytes.
    Fixed(usize),
    /// Keys have any length.
    Variable,
}

/// An entry with its own key.
pub trait Keyed {
    /// Returns the key's bytes, in an encoding whose byte order is the key order. The bytes never
    /// change while the entry is linked into an index.
    fn key(&self) -> &[u8];
}

/// A search position between keys.
///
/// With `full`, the position is the key `full`. Without, the position is the smallest key with the
/// words `words`; for a fixed-length key within the words, the key itself.
#[derive(Clone, Copy)]
pub(super) struct Probe<'k, const W: usize> {
    pub words: [u64; W],
    pub full: Option<&'k [u8]>,
}

impl<const W: usize> Probe<'_, W> {
    /// Compares two positions. A position without a full key is below all keys with the same words.
    #[inline]
    pub fn cmp(&self, other: &Probe<'_, W>) -> Ordering {
        self.words.cmp(&other.words).then_with(|| self.full.cmp(&other.full))
    }

    /// The bytes of the position, at most `length`.
    pub fn to_bytes(self, length: usize) -> Vec<u8> {
        let words = || self.words.iter().flat_map(|word| word.to_be_bytes()).take(length);
        self.full.map_or_else(|| words().collect(), <[u8]>::to_vec)
    }
}

/// The first `8 * W` bytes of `key` as big-endian words, padded with zeros.
#[inline]
pub(super) fn words<const W: usize>(key: &[u8]) -> [u64; W] {
    std::array::from_fn(|i| word(key, i * 8))
}

/// The words of a key, padded with zeros to four.
#[inline]
pub(super) fn padded<const W: usize>(words: &[u64; W]) -> [u64; 4] {
    std::array::from_fn(|at| words.get(at).copied().unwrap_or(0))
}

#[inline]
fn word(key: &[u8], start: usize) -> u64 {
    if let Some(bytes) = key.get(start..start + 8) {
        u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
    } else if key.len() <= start {
        0
    } else {
        tail(key, start)
    }
}

/// The last, partial word, read in one or two loads, with a possible overlap with the bytes before.
#[inline]
fn tail(key: &[u8], start: usize) -> u64 {
    let missing_bits = 8 * (start + 8 - key.len()) as u32;
    if let Some(last) = key.last_chunk::<8>() {
        u64::from_be_bytes(*last) << missing_bits
    } else if let (Some(head), Some(last)) = (key.first_chunk::<4>(), key.last_chunk::<4>()) {
        let head = u64::from(u32::from_be_bytes(*head)) << 32;
        head | u64::from(u32::from_be_bytes(*last)) << missing_bits
    } else {
        key.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)) << missing_bits
    }
}

/// Turns bounds of any length into bounds of exactly `length` bytes that admit the same keys of
/// that length. The returned bytes become the words of a fixed-length probe: a shorter bound is
/// padded by `words`, a longer bound is cut here.
pub(super) fn fit_lower(bound: Bound<&[u8]>, length: usize) -> Bound<&[u8]> {
    match bound {
        // A proper prefix is below every key with the prefix.
        Bound::Excluded(key) if key.len() < length => Bound::Included(key),
        Bound::Included(key) | Bound::Excluded(key) if key.len() > length => {
            Bound::Excluded(&key[..length])
        }
        other => other,
    }
}

/// As [`fit_lower`], for the upper end.
pub(super) fn fit_upper(bound: Bound<&[u8]>, length: usize) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) if key.len() < length => Bound::Excluded(key),
        Bound::Included(key) | Bound::Excluded(key) if key.len() > length => {
            Bound::Included(&key[..length])
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]
        #[test]
        fn words_keep_the_byte_order(a in prop::collection::vec(0u8..3, 0..40),
                                     b in prop::collection::vec(0u8..3, 0..40)) {
            let by_words = words::<4>(&a).cmp(&words::<4>(&b));
            prop_assert!(by_words == Ordering::Equal || by_words == a.cmp(&b));
            let mut padded = a.clone();
            padded.resize(32, 0);
            let expected: Vec<u64> = padded.chunks(8)
                .map(|c| u64::from_be_bytes(c.try_into().unwrap())).collect();
            prop_assert_eq!(&words::<4>(&a)[..], &expected[..]);
        }
    }
}
