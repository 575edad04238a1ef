//! Zipf-distributed ranks, exact and in constant time.
//!
//! Rank `r` (from 0) has probability proportional to `(r + 1)^-theta`. The formula of YCSB and most
//! later benchmarks (Gray et al., SIGMOD 1994) is only an approximation: it draws rank 3 about 20 %
//! too often. Here the ranks are split into blocks whose probabilities differ by a few per cent at
//! most. Walker's alias method draws a block from a table that stays in the cache, then a rank is
//! drawn uniformly from the block, and rejection corrects the small difference to the rank's true
//! probability. No harmonic number is needed, so setting up takes microseconds for any range.

use fastrand::Rng;

/// A block of neighbouring ranks, and its column of the alias table.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// The first rank, counted from 0.
    first: u64,
    /// How many ranks.
    size: u64,
    /// The last rank's probability relative to the first's, times 2^64, rounded down: a draw below
    /// this value is accepted without computing a power.
    surely: u64,
    /// The column keeps its own block when 32 random bits are below this value.
    keep: u32,
    /// Otherwise the column yields this block.
    alias: u32,
}

/// A Zipf distribution over the ranks `0..n`; `theta` 0 is uniform, larger is more skewed.
#[derive(Clone, Debug)]
pub struct Zipf {
    n: u64,
    theta: f64,
    /// Empty when uniform.
    blocks: Vec<Block>,
}

/// A block has a sixteenth as many ranks as all before it, at least one: block ends grow by 17/16.
const GROWTH: u64 = 16;

impl Zipf {
    /// The distribution over `0..n` with skew `theta`.
    ///
    /// # Panics
    /// If `n` is 0 or above 2^40, or if `theta` is negative or not finite.
    pub fn new(n: u64, theta: f64) -> Zipf {
        assert!(n > 0 && n <= 1 << 40, "a Zipf distribution needs 1 to 2^40 ranks, not {n}");
        assert!(theta >= 0.0 && theta.is_finite(), "a Zipf theta must be 0 or more, not {theta}");
        if theta == 0.0 {
            return Zipf { n, theta, blocks: Vec::new() };
        }
        let mut blocks = Vec::new();
        let mut weights = Vec::new();
        let mut first = 0;
        while first < n {
            let size = (first / GROWTH).max(1).min(n - first);
            let ratio = ((first + size) as f64 / (first + 1) as f64).powf(-theta);
            // Slightly below the true ratio: rounding must not accept what the power would reject.
            let surely = if size == 1 { u64::MAX } else { scale(ratio * (1.0 - 1e-12)) };
            weights.push(size as f64 * ((first + 1) as f64).powf(-theta));
            blocks.push(Block { first, size, surely, keep: 0, alias: 0 });
            first += size;
        }
        set_aliases(&mut blocks, &weights);
        Zipf { n, theta, blocks }
    }

    /// The number of ranks.
    pub fn ranks(&self) -> u64 {
        self.n
    }

    /// Draws a rank; 0 is the most likely.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        if self.blocks.is_empty() {
            return rng.u64(..self.n);
        }
        loop {
            let bits = rng.u64(..);
            let column = ((bits >> 32) * self.blocks.len() as u64) >> 32;
            let mut block = &self.blocks[column as usize];
            if bits as u32 >= block.keep {
                block = &self.blocks[block.alias as usize];
            }
            // One draw serves twice: the integer part is the rank within the block, the fraction
            // (24 bits and more, as blocks have at most 2^40 ranks) decides on acceptance.
            let place = rng.u64(..) as u128 * block.size as u128;
            let rank = block.first + (place >> 64) as u64;
            let fraction = place as u64;
            if fraction < block.surely || fraction < self.relative(rank, block.first) {
                return rank;
            }
        }
    }

    /// The probability of `rank` relative to the probability of `first`, times 2^64.
    #[cold]
    fn relative(&self, rank: u64, first: u64) -> u64 {
        scale(((rank + 1) as f64 / (first + 1) as f64).powf(-self.theta))
    }
}

fn scale(probability: f64) -> u64 {
    (probability * 2f64.powi(64)) as u64
}

/// Walker's alias method, set up as by Vose: every column is filled up to the average by one block
/// with more than the average.
fn set_aliases(blocks: &mut [Block], weights: &[f64]) {
    let average = weights.iter().sum::<f64>() / weights.len() as f64;
    let mut left: Vec<f64> = weights.iter().map(|w| w / average).collect();
    let (mut small, mut large): (Vec<usize>, Vec<usize>) =
        (0..blocks.len()).partition(|&i| left[i] < 1.0);
    while let (Some(&taker), Some(&giver)) = (small.last(), large.last()) {
        small.pop();
        blocks[taker].keep = (left[taker] * 2f64.powi(32)) as u32;
        blocks[taker].alias = giver as u32;
        left[giver] -= 1.0 - left[taker];
        if left[giver] < 1.0 {
            large.pop();
            small.push(giver);
        }
    }
    for full in small.into_iter().chain(large) {
        blocks[full].keep = u32::MAX;
        blocks[full].alias = full as u32;
    }
}

/// A permutation of `0..n` that spreads neighbouring ranks far apart, so that popular rows are not
/// neighbours. Unlike a hash modulo `n` the permutation maps no two ranks to one key, and so keeps
/// the distribution exact.
#[derive(Clone, Copy, Debug)]
pub struct Scramble {
    n: u64,
    factor: u64,
}

impl Scramble {
    /// The permutation of `0..n`.
    pub fn new(n: u64) -> Scramble {
        // The golden section of n spreads consecutive multiples most evenly; a factor without a
        // common divisor with n gives a permutation.
        let mut factor = ((n as f64 * 0.618_033_988_749_894_9) as u64).max(1);
        while greatest_common_divisor(factor, n) != 1 {
            factor += 1;
        }
        Scramble { n, factor }
    }

    /// The key of rank `rank`.
    #[inline]
    pub fn key(&self, rank: u64) -> u64 {
        match rank.checked_mul(self.factor) {
            Some(product) => product % self.n,
            None => (rank as u128 * self.factor as u128 % self.n as u128) as u64,
        }
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pearson's statistic of `draws` draws against the exact probabilities, divided by its degrees
    /// of freedom: about 1 if both agree. Ranks from `bins` on are grouped by powers of two.
    fn reduced_chi_square(n: u64, theta: f64, bins: u64, draws: u64) -> f64 {
        let bin = |rank: u64| {
            if rank < bins { rank } else { bins + (rank / bins).ilog2() as u64 }
        };
        let count = bin(n - 1) as usize + 1;
        let mut expected = vec![0.0; count];
        for rank in 0..n {
            expected[bin(rank) as usize] += ((rank + 1) as f64).powf(-theta);
        }
        let sum: f64 = expected.iter().sum();
        let mut seen = vec![0u64; count];
        let zipf = Zipf::new(n, theta);
        let mut rng = Rng::with_seed(n ^ draws ^ theta.to_bits());
        for _ in 0..draws {
            seen[bin(zipf.draw(&mut rng)) as usize] += 1;
        }
        let statistic: f64 = (0..count)
            .map(|i| {
                let expected = expected[i] / sum * draws as f64;
                (seen[i] as f64 - expected).powi(2) / expected
            })
            .sum();
        statistic / (count - 1).max(1) as f64
    }

    #[test]
    fn ranks_follow_the_zipf_law() {
        for (n, theta) in
            [(2, 0.5), (17, 0.9), (100, 0.0), (100, 0.6), (1000, 0.99), (1000, 1.0), (1000, 1.4)]
        {
            let reduced = reduced_chi_square(n, theta, n, 2_000_000);
            assert!(reduced < 3.0 || (n > 10 && reduced < 1.6), "{n} {theta}: {reduced}");
            assert!(n <= 10 || reduced < 1.6, "{n} {theta}: {reduced}");
        }
    }

    #[test]
    fn the_tail_of_a_large_range_is_right_too() {
        for theta in [0.0, 0.6, 0.99, 1.2, 2.0] {
            let reduced = reduced_chi_square(1 << 20, theta, 64, 1_000_000);
            assert!(reduced < 1.7, "{theta}: {reduced}");
        }
    }

    #[test]
    fn the_test_tells_a_wrong_theta() {
        let zipf = Zipf::new(100, 0.65);
        let mut rng = Rng::with_seed(1);
        let first = (0..1_000_000).filter(|_| zipf.draw(&mut rng) == 0).count() as f64 / 1e6;
        let share = |theta: f64| 1.0 / (1..=100).map(|r| (r as f64).powf(-theta)).sum::<f64>();
        assert!((first - share(0.65)).abs() < 0.002 && (first - share(0.6)).abs() > 0.01);
    }

    #[test]
    fn every_rank_has_its_own_key() {
        for n in [1, 2, 3, 10, 64, 1000, 1 << 16] {
            let scramble = Scramble::new(n);
            let mut seen = vec![false; n as usize];
            (0..n).for_each(|rank| seen[scramble.key(rank) as usize] = true);
            assert!(seen.iter().all(|&s| s), "{n}");
        }
        let huge = Scramble::new(1 << 40);
        assert!((0..1000u64).all(|i| huge.key((1 << 40) - 1 - i) < 1 << 40));
    }
}
