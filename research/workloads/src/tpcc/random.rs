//! The specification's random numbers (clauses 2.1.5, 2.1.6 and 4.3.2).

use crate::bytes::{Text, mix};
use fastrand::Rng;

/// The constants C of NURand (clause 2.1.6), fixed for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constants {
    /// For last names while loading.
    pub last_load: i32,
    /// For last names while running.
    pub last_run: i32,
    /// For customer numbers.
    pub customer: i32,
    /// For item numbers.
    pub item: i32,
}

impl Constants {
    /// The constants for a seed. The two for last names differ as clause 2.1.6.1 requires: by 65 to
    /// 119, but neither 96 nor 112.
    pub fn new(seed: u64) -> Constants {
        let mut rng = Rng::with_seed(mix(seed, 0xC0));
        let last_load = rng.i32(0..=255);
        let last_run = loop {
            let candidate = rng.i32(0..=255);
            let distance = (candidate - last_load).abs();
            if (65..=119).contains(&distance) && distance != 96 && distance != 112 {
                break candidate;
            }
        };
        Constants { last_load, last_run, customer: rng.i32(0..=1023), item: rng.i32(0..=8191) }
    }
}

/// NURand(a, x, y) with constant `c` (clause 2.1.6): a non-uniform number in `x..=y`.
#[inline]
pub fn non_uniform(rng: &mut Rng, a: i32, c: i32, x: i32, y: i32) -> i32 {
    ((rng.i32(0..=a) | rng.i32(x..=y)) + c) % (y - x + 1) + x
}

const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];

/// The last name for a number in `0..=999` (clause 4.3.2.3).
pub fn last_name(number: u16) -> Text<16> {
    let mut text = Text::default();
    let number = number as usize;
    text.push(SYLLABLES[number / 100 % 10])
        .push(SYLLABLES[number / 10 % 10])
        .push(SYLLABLES[number % 10]);
    text
}

/// The random permutation of `1..=n` for a seed.
pub fn permutation(seed: u64, n: i32) -> Vec<i32> {
    let mut all: Vec<i32> = (1..=n).collect();
    Rng::with_seed(seed).shuffle(&mut all);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_names_are_the_specifications() {
        assert_eq!(last_name(371).as_str(), "PRICALLYOUGHT");
        assert_eq!(last_name(40).as_str(), "BARPRESBAR");
        assert_eq!(last_name(0).as_str(), "BARBARBAR");
    }

    #[test]
    fn constants_keep_their_distance() {
        for seed in 0..2000 {
            let c = Constants::new(seed);
            let distance = (c.last_run - c.last_load).abs();
            assert!((65..=119).contains(&distance) && distance != 96 && distance != 112);
        }
    }

    #[test]
    fn non_uniform_covers_its_range_and_is_not_uniform() {
        let mut rng = Rng::with_seed(5);
        let mut seen = vec![0u32; 3001];
        for _ in 0..3_000_000 {
            seen[non_uniform(&mut rng, 1023, 77, 1, 3000) as usize] += 1;
        }
        // A number with few bits set is drawn about once in three million draws.
        assert_eq!(seen[0], 0);
        assert!(seen.iter().filter(|&&n| n > 0).count() > 2900);
        // A number with all ten low bits set results from many first draws.
        let mean = 1000;
        assert!(seen.iter().any(|&n| n > 20 * mean) && seen.iter().any(|&n| n < mean / 20));
    }
}
