//! The keys, values and transactions of the workload (Levandoski et al., CIDR 2015, section 6).

use fastrand::Rng;
use hyades_deuteronomy::{Error, Transaction};
use hyades_workloads::zipf::{Scramble, Zipf};
use std::ops::Bound::{Excluded, Included};

/// The length of a key.
const KEY_BYTES: usize = 16;

/// What transactions access.
#[derive(Clone, Copy, Debug)]
pub struct KeyAccesses {
    /// Keys of the population.
    pub rows: u64,
    /// Skew of the Zipf distribution; 0 is uniform.
    pub theta: f64,
    /// Accesses per transaction.
    pub accesses: usize,
    /// The share of accesses that write, 0 to 1.
    pub write_share: f64,
    /// If set, each transaction writes a key and scans this many instead.
    pub scan_length: Option<u64>,
    /// The length of a value.
    pub value_bytes: usize,
}

/// The key of a row: digits, so that keys are in the order of rows.
pub fn key(row: u64) -> [u8; KEY_BYTES] {
    let mut key = *b"key0000000000000";
    let (mut row, digits) = (row, &mut key[3..]);
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (row % 10) as u8;
        row /= 10;
    }
    debug_assert_eq!(row, 0, "fewer than 2^40 rows");
    key
}

/// Fills a value that depends on this number.
pub fn fill(value: &mut [u8], number: u64) {
    let bytes = number.to_le_bytes();
    for (at, byte) in value.iter_mut().enumerate() {
        *byte = bytes[at % 8] ^ (at / 8) as u8;
    }
}

/// One access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read(u64),
    /// A row, and what its value depends on.
    Write(u64, u64),
    /// A row, and how many from it on.
    Scan(u64, u64),
}

/// Draws transactions, and runs them.
pub struct Drawer {
    accesses: KeyAccesses,
    zipf: Zipf,
    scramble: Scramble,
    rng: Rng,
    drawn: Vec<Access>,
    value: Vec<u8>,
}

impl Drawer {
    /// Draws from a seed.
    pub fn new(accesses: KeyAccesses, seed: u64) -> Self {
        Self {
            accesses,
            zipf: Zipf::new(accesses.rows, accesses.theta),
            scramble: Scramble::new(accesses.rows),
            rng: Rng::with_seed(seed),
            drawn: Vec::new(),
            value: vec![0; accesses.value_bytes],
        }
    }

    fn row(&mut self) -> u64 {
        self.scramble.key(self.zipf.draw(&mut self.rng))
    }

    /// Draws the accesses of a transaction: to any rows, as in the paper.
    pub fn draw(&mut self) {
        self.drawn.clear();
        if let Some(length) = self.accesses.scan_length {
            let write = Access::Write(self.row(), self.rng.u64(..));
            let scan = Access::Scan(self.row(), length);
            self.drawn.extend([write, scan]);
            return;
        }
        for _ in 0..self.accesses.accesses {
            let row = self.row();
            let writes = self.rng.f64() < self.accesses.write_share;
            let access = match writes {
                true => Access::Write(row, self.rng.u64(..)),
                false => Access::Read(row),
            };
            self.drawn.push(access);
        }
    }

    /// Runs the transaction that was drawn last. Returns how many single keys it has read.
    ///
    /// # Errors
    /// Those of the database.
    pub fn run(&mut self, tx: &mut Transaction<'_>) -> Result<u64, Error> {
        let mut reads = 0;
        for access in &self.drawn {
            match *access {
                Access::Read(row) => {
                    let found = tx.get(&key(row))?;
                    debug_assert!(found.is_some(), "all rows are loaded");
                    reads += 1;
                }
                Access::Write(row, number) => {
                    fill(&mut self.value, number);
                    tx.put(&key(row), &self.value)?;
                }
                Access::Scan(row, length) => {
                    let (from, to) = (key(row), key((row + length).min(self.accesses.rows)));
                    let rows = tx.scan(Included(&from), Excluded(&to), length as usize)?;
                    debug_assert!(!rows.is_empty(), "all rows are loaded");
                }
            }
        }
        Ok(reads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAPER: KeyAccesses = KeyAccesses {
        rows: 1 << 20,
        theta: 0.9,
        accesses: 4,
        write_share: 0.16,
        scan_length: None,
        value_bytes: 100,
    };

    #[test]
    fn keys_are_in_the_order_of_rows() {
        assert_eq!(&key(0), b"key0000000000000");
        assert_eq!(&key((1 << 40) - 1), b"key1099511627775");
        for row in [1, 9, 10, 99, 12_345] {
            assert!(key(row - 1) < key(row));
        }
    }

    #[test]
    fn it_is_the_papers_workload() {
        let mut drawer = Drawer::new(PAPER, 1);
        let (mut writes, mut read_only, mut hot, mut all) = (0u32, 0u32, 0u32, 0u32);
        // The rank of a row: a fifth of the ranks are hot.
        let hottest: std::collections::HashSet<u64> =
            (0..PAPER.rows / 5).map(|rank| drawer.scramble.key(rank)).collect();
        for _ in 0..20_000 {
            drawer.draw();
            assert_eq!(drawer.drawn.len(), 4);
            let mut is_read_only = true;
            for access in &drawer.drawn {
                let (row, is_write) = match *access {
                    Access::Read(row) => (row, false),
                    Access::Write(row, _) => (row, true),
                    Access::Scan(..) => unreachable!("no scans were asked for"),
                };
                all += 1;
                writes += u32::from(is_write);
                hot += u32::from(hottest.contains(&row));
                is_read_only &= !is_write;
            }
            read_only += u32::from(is_read_only);
        }
        let share = |of: u32, all: u32| f64::from(of) / f64::from(all);
        assert!((0.15..0.17).contains(&share(writes, all)), "16 % of the accesses write");
        assert!((0.78..0.83).contains(&share(hot, all)), "20 % get 80 %: {}", share(hot, all));
        let read_only = share(read_only, 20_000);
        assert!((0.48..0.52).contains(&read_only), "half only read: {read_only}");
    }

    #[test]
    fn values_depend_on_their_number() {
        let (mut one, mut two) = ([0; 20], [0; 20]);
        fill(&mut one, 1);
        fill(&mut two, 2);
        assert_ne!(one, two);
        fill(&mut two, 1);
        assert_eq!(one, two);
    }
}
