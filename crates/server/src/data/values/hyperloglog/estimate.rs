//! How many elements there were, by the registers of a HyperLogLog, and the hash of an element.
//!
//! The estimate is that of Otmar Ertl, "New cardinality estimation algorithms for HyperLogLog
//! sketches", arXiv:1702.01284, algorithm 6: it needs no correction for few or many elements. The
//! hash is MurmurHash64A by Austin Appleby. Both are those of Redis, which has the same numbers.

use super::{INDEX_BITS, REGISTERS};

/// The greatest rank but one: bits of a hash that choose no register.
const RANK_BITS: usize = 64 - INDEX_BITS as usize;

/// 1 / (2 ln 2).
const ALPHA: f64 = 0.721_347_520_444_481_7;

const SEED: u64 = 0xadc8_3b19;
const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
const SHIFT: u32 = 47;

/// The hash of an element.
pub fn hash(bytes: &[u8]) -> u64 {
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(FACTOR);
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes")).wrapping_mul(FACTOR);
        hash = (hash ^ (word ^ word >> SHIFT).wrapping_mul(FACTOR)).wrapping_mul(FACTOR);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(FACTOR);
    }
    hash = (hash ^ hash >> SHIFT).wrapping_mul(FACTOR);
    hash ^ hash >> SHIFT
}

/// The sum of `x^(2^k) * 2^(k-1)` over `k > 0`, and `x`.
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut power, mut sum) = (1.0, x);
    loop {
        x *= x;
        let before = sum;
        sum += x * power;
        power += power;
        if sum == before {
            return sum;
        }
    }
}

/// A third of `1 - x`, less the sum of `(1 - x^(2^-k))^2 * 2^-k` over `k > 0`.
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut power, mut rest) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = rest;
        power *= 0.5;
        rest -= (1.0 - x) * (1.0 - x) * power;
        if rest == before {
            return rest / 3.0;
        }
    }
}

/// The number of elements, by how many registers have each rank.
pub fn estimate(histogram: &[usize; 64]) -> u64 {
    let all = REGISTERS as f64;
    let mut sum = all * tau((all - histogram[RANK_BITS + 1] as f64) / all);
    for count in histogram[1..=RANK_BITS].iter().rev() {
        sum = (sum + *count as f64) * 0.5;
    }
    sum += all * sigma(histogram[0] as f64 / all);
    (ALPHA * all * all / sum).round() as u64
}
