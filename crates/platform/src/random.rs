//! Fast, seedable random numbers; not for secrets.

/// A generator. The same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random(fastrand::Rng);

impl Random {
    /// A generator from a seed.
    pub fn seeded(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// A generator with a fresh seed.
    pub fn from_entropy() -> Self {
        Self(fastrand::Rng::new())
    }

    /// A uniform number.
    pub fn next_u64(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// A uniform number below `bound`; `bound` must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.u64(..bound)
    }

    /// True with probability `p`, clamped to 0..=1.
    pub fn chance(&mut self, p: f64) -> bool {
        self.0.f64() < p
    }

    /// Fills a buffer.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }
}

/// A fresh 16-byte identifier, to tell databases apart; not a secret.
pub fn fresh_uuid() -> [u8; 16] {
    let mut rng = fastrand::Rng::new();
    let mut bytes = [0; 16];
    rng.fill(&mut bytes);
    // Mixed with the clock, so two processes with the same seed still differ.
    let now = crate::clock::wall_ms().to_le_bytes();
    for (byte, mix) in bytes.iter_mut().zip(now) {
        *byte ^= mix;
    }
    bytes
}

/// Words not guessable by other processes: the system's entropy, through the keyed hash of the
/// standard library.
pub fn secret_words<const N: usize>() -> [u64; N] {
    use std::hash::BuildHasher;
    let of_process = std::hash::RandomState::new();
    std::array::from_fn(|at| of_process.hash_one(at))
}
