//! The hash function of the index.

#![forbid(unsafe_code)]

/// The hash of a key: the same in every process and on every machine.
///
/// Folded 128-bit products, as in Wang Yi's wyhash. It has no secret, so keys chosen by an
/// adversary can collide; the index then degrades to searches along chains, and stays correct.
#[inline]
pub fn hash_key(key: &[u8]) -> u64 {
    const A: u64 = 0x9e37_79b9_7f4a_7c15;
    const B: u64 = 0xd1b5_4a32_d192_ed03;
    const C: u64 = 0x8cb9_2ba7_2f3d_8dd7;
    #[inline(always)]
    fn fold(a: u64, b: u64) -> u64 {
        let product = u128::from(a) * u128::from(b);
        product as u64 ^ (product >> 64) as u64
    }
    #[inline(always)]
    fn end(a: u64, b: u64, seed: u64, length: usize) -> u64 {
        fold(fold(a ^ A, b ^ seed) ^ length as u64, C)
    }
    let long = |at: usize| u64::from_le_bytes(key[at..at + 8].try_into().expect("eight bytes"));
    let short =
        |at: usize| u64::from(u32::from_le_bytes(key[at..at + 4].try_into().expect("four bytes")));
    let n = key.len();
    match n {
        4 => end(short(0), 0, B, n),
        8 => end(long(0), 0, B, n),
        12 => end(long(0), short(8), B, n),
        16 => end(long(0), long(8), B, n),
        0..4 => end(key.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)), 0, B, n),
        5..8 => end(short(0) << 32 | short(n - 4), 0, B, n),
        9..16 => end(long(0), long(n - 8), B, n),
        _ => {
            let mut seed = B;
            let mut at = 0;
            while at + 16 < n {
                seed = fold(long(at) ^ A, long(at + 8) ^ seed);
                at += 16;
            }
            end(long(n - 16), long(n - 8), seed, n)
        }
    }
}
