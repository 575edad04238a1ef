//! The hash function of the index, and its secret.

#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

/// The input of a database's hashes beside its keys. Without knowing the secret, keys of equal
/// hashes cannot be chosen: the factors of each product are unknown.
///
/// Kept in the catalogue, so a cursor of a walk is good after a restart. A database without a
/// secret ([`HashSecret::KNOWN`]) is as correct: keys chosen by an adversary can then collide, and
/// are searched for along chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 3]", into = "[u64; 3]")]
pub struct HashSecret {
    a: u64,
    b: u64,
    c: u64,
}

impl HashSecret {
    /// The secret of hashes that are the same in every database: for simulations and digests.
    pub const KNOWN: HashSecret =
        HashSecret { a: 0x9e37_79b9_7f4a_7c15, b: 0xd1b5_4a32_d192_ed03, c: 0x8cb9_2ba7_2f3d_8dd7 };

    /// Returns a new secret, known only to its owner.
    pub fn fresh() -> HashSecret {
        HashSecret::from(hyades_platform::random::secret_words())
    }

    /// The hash of a key: the same in every process and on every machine.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        hash_with(self, key)
    }
}

impl From<[u64; 3]> for HashSecret {
    fn from([a, b, c]: [u64; 3]) -> HashSecret {
        // An even last factor would lose bits of the hash.
        HashSecret { a, b, c: c | 1 }
    }
}

impl From<HashSecret> for [u64; 3] {
    fn from(secret: HashSecret) -> [u64; 3] {
        [secret.a, secret.b, secret.c]
    }
}

/// The hash of a key under [`HashSecret::KNOWN`].
pub fn hash_key(key: &[u8]) -> u64 {
    HashSecret::KNOWN.hash(key)
}

/// Folded 128-bit products, as in Wang Yi's wyhash.
#[inline]
fn hash_with(secret: &HashSecret, key: &[u8]) -> u64 {
    let HashSecret { a: first, b: second, c: last } = *secret;
    #[inline(always)]
    fn fold(a: u64, b: u64) -> u64 {
        let product = u128::from(a) * u128::from(b);
        product as u64 ^ (product >> 64) as u64
    }
    let end = |a: u64, b: u64, seed: u64, length: usize| {
        fold(fold(a ^ first, b ^ seed) ^ length as u64, last)
    };
    let long = |at: usize| u64::from_le_bytes(key[at..at + 8].try_into().expect("eight bytes"));
    let short =
        |at: usize| u64::from(u32::from_le_bytes(key[at..at + 4].try_into().expect("four bytes")));
    let n = key.len();
    match n {
        4 => end(short(0), 0, second, n),
        8 => end(long(0), 0, second, n),
        12 => end(long(0), short(8), second, n),
        16 => end(long(0), long(8), second, n),
        0..4 => end(key.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)), 0, second, n),
        5..8 => end(short(0) << 32 | short(n - 4), 0, second, n),
        9..16 => end(long(0), long(n - 8), second, n),
        _ => {
            let mut seed = second;
            let mut at = 0;
            while at + 16 < n {
                seed = fold(long(at) ^ first, long(at + 8) ^ seed);
                at += 16;
            }
            end(long(n - 16), long(n - 8), seed, n)
        }
    }
}
