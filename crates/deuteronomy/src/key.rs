//! Keys, as held by the transaction component and by the data component in memory.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;
use std::sync::Arc;

/// The longest key without a separate allocation. The whole is three words.
pub(crate) const MOST_INLINE: usize = 22;

/// A key. Short keys lie in place: a comparison takes no further cache line, a copy no allocation
/// and no count shared by threads. All copies of a longer key share the bytes.
///
/// Invariant: a key is `Short` exactly if it has at most [`MOST_INLINE`] bytes; the bytes behind
/// the length are 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Short { len: u8, bytes: [u8; MOST_INLINE] },
    Long(Arc<[u8]>),
}

impl From<&[u8]> for Key {
    #[inline]
    fn from(key: &[u8]) -> Self {
        if key.len() > MOST_INLINE {
            return Key::Long(key.into());
        }
        let mut bytes = [0; MOST_INLINE];
        bytes[..key.len()].copy_from_slice(key);
        Key::Short { len: key.len() as u8, bytes }
    }
}

impl From<Key> for Arc<[u8]> {
    fn from(key: Key) -> Self {
        match key {
            Key::Short { len, bytes } => bytes[..usize::from(len)].into(),
            Key::Long(bytes) => bytes,
        }
    }
}

impl Deref for Key {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Key::Short { len, bytes } => &bytes[..usize::from(*len)],
            Key::Long(bytes) => bytes,
        }
    }
}

impl Borrow<[u8]> for Key {
    #[inline]
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl Ord for Key {
    /// The order of the bytes. Of two short keys equal up to the end of the shorter key, the bytes
    /// behind are compared with zeros, and then the lengths: the shorter key is never above.
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Key::Short { len, bytes }, Key::Short { len: other_len, bytes: other }) => {
                bytes.cmp(other).then(len.cmp(other_len))
            }
            _ => (**self).cmp(&**other),
        }
    }
}

impl PartialOrd for Key {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Hashes keys. By a secret, or keys with a common hash could be chosen, for a single long bucket;
/// where a single thread does all work without a secret, so that simulations repeat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyHasher {
    start: u64,
    /// Odd.
    factor: u64,
}

impl KeyHasher {
    /// The same in each process.
    pub const FIXED: Self = Self { start: 0xcbf2_9ce4_8422_2325, factor: 0x9e37_79b9_7f4a_7c15 };

    /// Returns a hasher different from all other hashers.
    pub fn random() -> Self {
        // The standard library has the secret from the system, and a hash to hide the secret.
        let secret = RandomState::new();
        Self { start: secret.hash_one(1), factor: secret.hash_one(2) | 1 }
    }

    /// Eight bytes at a time, each folded in by the two halves of a product.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        let fold = |hash: u64, word: [u8; 8]| {
            let product = u128::from(hash ^ u64::from_le_bytes(word)) * u128::from(self.factor);
            product as u64 ^ (product >> 64) as u64
        };
        let (words, rest) = key.as_chunks::<8>();
        // With the length, the zeros behind the rest are told from bytes of the key.
        let mut hash = self.start ^ key.len() as u64;
        for word in words {
            hash = fold(hash, *word);
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            hash = fold(hash, word);
        }
        (hash ^ hash >> 32).wrapping_mul(Self::FIXED.factor)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_bytes_up_to_the_longest_in_place_and_one_past_it() {
        assert_eq!(size_of::<Key>(), 24);
        for len in [0, 1, MOST_INLINE - 1, MOST_INLINE, MOST_INLINE + 1, 300] {
            let bytes = vec![7; len];
            let key = Key::from(&bytes[..]);
            assert_eq!(matches!(key, Key::Short { .. }), len <= MOST_INLINE);
            assert_eq!(*key, *bytes);
            assert_eq!(*Arc::<[u8]>::from(key.clone()), *bytes);
            assert_eq!(key.clone(), key);
        }
    }

    #[test]
    fn keys_are_in_the_order_of_their_bytes() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for _ in 0..400 {
            // Few values and zeros, so that many keys are prefixes of other keys.
            let len = rng.usize(0..MOST_INLINE + 4);
            keys.push((0..len).map(|_| rng.u8(0..2) * 255).collect());
        }
        for one in &keys {
            for two in &keys {
                let (a, b) = (Key::from(&one[..]), Key::from(&two[..]));
                assert_eq!(a.cmp(&b), one.cmp(two), "{one:?} and {two:?}");
                assert_eq!(a == b, one == two);
            }
        }
    }

    #[test]
    fn hashes_of_like_keys_differ_in_the_bits_that_choose_a_bucket() {
        for hasher in [KeyHasher::FIXED, KeyHasher::random(), KeyHasher::random()] {
            let mut hashes = std::collections::BTreeSet::new();
            let mut per_bucket = [0; 1024];
            for row in 0..100_000 {
                let hash = hasher.hash(format!("key{row:013}").as_bytes());
                hashes.insert(hash);
                per_bucket[(hash >> 32) as usize % 1024] += 1;
            }
            assert_eq!(hashes.len(), 100_000, "{hasher:?}");
            assert!(per_bucket.iter().all(|count| (40..180).contains(count)), "{per_bucket:?}");
            // Zeros at the end are bytes, too.
            assert_ne!(hasher.hash(b"a"), hasher.hash(b"a\0"));
            assert_ne!(hasher.hash(b""), hasher.hash(&[0; 8]));
        }
    }

    /// The second word of each key undoes the first, given the secret.
    #[test]
    fn keys_that_collide_by_one_secret_do_not_by_another() {
        let of_equal_hash = |n: u64| {
            let KeyHasher { start, factor } = KeyHasher::FIXED;
            let product = u128::from(start ^ 16 ^ n) * u128::from(factor);
            let state = product as u64 ^ (product >> 64) as u64;
            [n.to_le_bytes(), state.to_le_bytes()].concat()
        };
        let count = |hasher: KeyHasher| {
            let hashes = (0..40_000).map(|n| hasher.hash(&of_equal_hash(n)));
            hashes.collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!(count(KeyHasher::FIXED), 1, "they are not made for it");
        for _ in 0..4 {
            assert_eq!(count(KeyHasher::random()), 40_000);
        }
    }
}
