//! The keys, values and transactions of the workload (Levandoski et al., CIDR 2015, section 6).

use fastrand::Rng;
use hyades_deuteronomy::{Error, Transaction};
use hyades_workloads::ycsb::Standard;
use hyades_workloads::zipf::{Scramble, Zipf};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The length of a key.
pub(super) const KEY_BYTES: usize = 16;
/// The digits of a key, and the factor that spreads rows: without a common divisor, so that no two
/// rows meet.
const DIGITS: u64 = 10_000_000_000_000;
const SPREAD: u64 = 6_180_339_887_499;
/// The number of latest inserts not read by mix D: the inserts may not have committed.
const LATEST_LAG: u64 = 4096;
/// The longest scan of mix E.
const LONGEST_SCAN: u64 = 100;

/// The accesses of transactions.
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
    /// If set, each transaction is one access of this standard mix instead.
    pub standard: Option<Standard>,
    /// The length of a value.
    pub value_bytes: usize,
}

impl KeyAccesses {
    /// The key of a row: digits, so that keys are in the order of rows; or, where rows are inserted
    /// beside scans, spread, so that those fall between the others.
    pub fn key(&self, row: u64) -> [u8; KEY_BYTES] {
        match self.standard {
            Some(Standard::E) => {
                key((u128::from(row) * u128::from(SPREAD) % u128::from(DIGITS)) as u64)
            }
            _ => key(row),
        }
    }
}

fn key(row: u64) -> [u8; KEY_BYTES] {
    const LOWER: u64 = 10_000_000;
    debug_assert!(row < DIGITS, "fewer than 2^40 rows");
    let mut key = *b"key0000000000000";
    // Two halves, which the processor works on at the same time.
    put_digits(&mut key[3..9], (row / LOWER) as u32);
    put_digits(&mut key[9..], (row % LOWER) as u32);
    key
}

fn put_digits(digits: &mut [u8], mut number: u32) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Fills a value that depends on this number.
pub fn fill(value: &mut [u8], number: u64) {
    let word = |at: usize| (number ^ u64::from_le_bytes([at as u8; 8])).to_le_bytes();
    let (words, rest) = value.as_chunks_mut::<8>();
    let at_rest = words.len();
    words.iter_mut().enumerate().for_each(|(at, eight)| *eight = word(at));
    rest.copy_from_slice(&word(at_rest)[..rest.len()]);
}

/// The most keys that are announced at once.
const ANNOUNCED: usize = 16;

/// The target of accesses: a transaction, or a store without transactions.
pub trait KeysAndValues {
    /// Its errors.
    type Error;

    /// Announces keys that are accessed next: a hint.
    fn prefetch(&mut self, _: &[[u8; KEY_BYTES]]) {}

    /// Reads a key. Returns whether the key has a value.
    fn read(&mut self, key: &[u8]) -> Result<bool, Self::Error>;

    /// Gives a key a value.
    fn write(&mut self, key: &[u8], value: &[u8]) -> Result<(), Self::Error>;

    /// Reads a key with a value, and writes another value.
    fn modify(&mut self, key: &[u8], value: &[u8]) -> Result<(), Self::Error> {
        self.read(key)?;
        self.write(key, value)
    }

    /// Checks that a key has no value, and inserts a value.
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), Self::Error> {
        self.modify(key, value)
    }

    /// Reads the first keys from one on, up to another that is not among them; how many.
    fn scan(&mut self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<usize, Self::Error>;
}

impl KeysAndValues for Transaction<'_> {
    type Error = Error;

    fn prefetch(&mut self, keys: &[[u8; KEY_BYTES]]) {
        Transaction::prefetch(self, keys);
    }

    fn read(&mut self, key: &[u8]) -> Result<bool, Error> {
        Ok(self.get(key)?.is_some())
    }

    fn write(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.put(key, value)
    }

    fn modify(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.update(key, value).map(drop)
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        Transaction::insert(self, key, value)
    }

    fn scan(&mut self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<usize, Error> {
        let to = to.map_or(Unbounded, Excluded);
        Ok(Transaction::scan(self, Included(from), to, limit)?.len())
    }
}

/// One access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read(u64),
    /// A row, and the number for the row's value.
    Write(u64, u64),
    /// The first row, and the number of rows.
    Scan(u64, u64),
    /// The first of these many keys from that of a row on.
    ScanFrom(u64, u64),
    /// A row to read, and the number for the row's new value.
    Modify(u64, u64),
    /// A new row, and the number for the row's value.
    Insert(u64, u64),
    /// A row that was inserted lately, if that has committed.
    ReadLatest(u64),
}

impl Access {
    /// The row, or the first row of a scan.
    fn first_row(self) -> u64 {
        match self {
            Access::Scan(row, _) | Access::ScanFrom(row, _) => row,
            Access::Read(row) | Access::ReadLatest(row) => row,
            Access::Write(row, _) | Access::Modify(row, _) | Access::Insert(row, _) => row,
        }
    }

    /// The row, except of a scan.
    pub fn row(self) -> Option<u64> {
        match self {
            Access::Read(row) | Access::ReadLatest(row) => Some(row),
            Access::Write(row, _) | Access::Modify(row, _) | Access::Insert(row, _) => Some(row),
            Access::Scan(..) | Access::ScanFrom(..) => None,
        }
    }

    /// Whether the transaction only reads.
    pub fn is_read(self) -> bool {
        match self {
            Access::Read(_) | Access::ReadLatest(_) => true,
            Access::Scan(..) | Access::ScanFrom(..) => true,
            Access::Write(..) | Access::Modify(..) | Access::Insert(..) => false,
        }
    }
}

/// Draws transactions, and runs them.
pub struct Drawer {
    accesses: KeyAccesses,
    zipf: Zipf,
    scramble: Scramble,
    rng: Rng,
    drawn: Vec<Access>,
    value: Vec<u8>,
    /// The next row to insert, of all drawers. Relaxed: they need only distinct numbers.
    next: Arc<AtomicU64>,
}

impl Drawer {
    /// Draws from a seed, and inserts rows from `next` on.
    pub fn new(accesses: KeyAccesses, seed: u64, next: Arc<AtomicU64>) -> Self {
        Self {
            accesses,
            zipf: Zipf::new(accesses.rows, accesses.theta),
            scramble: Scramble::new(accesses.rows),
            rng: Rng::with_seed(seed),
            drawn: Vec::new(),
            value: vec![0; accesses.value_bytes],
            next,
        }
    }

    fn row(&mut self) -> u64 {
        self.scramble.key(self.zipf.draw(&mut self.rng))
    }

    /// Draws the accesses of a transaction: to any rows, as in the paper.
    pub fn draw(&mut self) {
        self.drawn.clear();
        if let Some(mix) = self.accesses.standard {
            let access = self.draw_of(mix);
            self.drawn.push(access);
            return;
        }
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

    /// Draws an access of a standard mix.
    fn draw_of(&mut self, mix: Standard) -> Access {
        let (percent, number) = (self.rng.u32(..100), self.rng.u64(..));
        match mix {
            Standard::A if percent < 50 => Access::Write(self.row(), number),
            Standard::B if percent < 5 => Access::Write(self.row(), number),
            Standard::A | Standard::B | Standard::C => Access::Read(self.row()),
            Standard::D | Standard::E if percent < 5 => {
                Access::Insert(self.next.fetch_add(1, Ordering::Relaxed), number)
            }
            Standard::D => {
                let latest = self.next.load(Ordering::Relaxed).saturating_sub(LATEST_LAG);
                let latest = latest.max(self.accesses.rows) - 1;
                Access::ReadLatest(latest - self.zipf.draw(&mut self.rng))
            }
            Standard::E => Access::ScanFrom(self.row(), self.rng.u64(1..=LONGEST_SCAN)),
            Standard::F if percent < 50 => Access::Modify(self.row(), number),
            Standard::F => Access::Read(self.row()),
        }
    }

    /// The accesses of the transaction that was drawn last.
    pub fn drawn(&self) -> &[Access] {
        &self.drawn
    }

    /// Runs the transaction that was drawn last. Returns how many single keys it has read.
    ///
    /// # Errors
    /// The errors of the target.
    pub fn run<S: KeysAndValues + ?Sized>(&mut self, on: &mut S) -> Result<u64, S::Error> {
        self.accesses.run(&self.drawn, &mut self.value, on)
    }
}

impl KeyAccesses {
    /// Runs these accesses; `value` is for the values that they write. Returns how many single keys
    /// they have read.
    ///
    /// # Errors
    /// The errors of the target.
    pub fn run<S: KeysAndValues + ?Sized>(
        &self,
        accesses: &[Access],
        value: &mut [u8],
        on: &mut S,
    ) -> Result<u64, S::Error> {
        let mut reads = 0;
        for some in accesses.chunks(ANNOUNCED) {
            let mut keys = [[0; KEY_BYTES]; ANNOUNCED];
            let keys = &mut keys[..some.len()];
            for (key, access) in keys.iter_mut().zip(some) {
                *key = self.key(access.first_row());
            }
            if some.len() > 1 {
                on.prefetch(keys);
            }
            for (key, access) in keys.iter().zip(some) {
                reads += self.run_one(*access, key, value, on)?;
            }
        }
        Ok(reads)
    }

    /// Runs an access of this key. Returns how many single keys it has read.
    fn run_one<S: KeysAndValues + ?Sized>(
        &self,
        access: Access,
        key: &[u8],
        value: &mut [u8],
        on: &mut S,
    ) -> Result<u64, S::Error> {
        match access {
            Access::Read(_) => {
                let found = on.read(key)?;
                debug_assert!(found, "all rows are loaded");
            }
            Access::ReadLatest(_) => {
                on.read(key)?;
            }
            Access::Write(_, number) => {
                fill(value, number);
                on.write(key, value)?;
            }
            Access::Modify(_, number) => {
                fill(value, number);
                on.modify(key, value)?;
            }
            Access::Insert(_, number) => {
                fill(value, number);
                on.insert(key, value)?;
            }
            Access::Scan(row, length) => {
                let to = self.key((row + length).min(self.rows));
                let found = on.scan(key, Some(&to), length as usize)?;
                debug_assert!(found > 0, "all rows are loaded");
            }
            Access::ScanFrom(_, length) => {
                let found = on.scan(key, None, length as usize)?;
                debug_assert!(found > 0, "all rows are loaded");
            }
        }
        Ok(match access {
            Access::Write(..) | Access::Scan(..) | Access::ScanFrom(..) => 0,
            Access::Read(_) | Access::ReadLatest(_) | Access::Modify(..) | Access::Insert(..) => 1,
        })
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
        standard: None,
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
        let mut drawer = Drawer::new(PAPER, 1, Arc::default());
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
                    other => unreachable!("{other:?} was not asked for"),
                };
                all += 1;
                writes += u32::from(is_write);
                hot += u32::from(hottest.contains(&row));
                is_read_only &= !is_write;
            }
            read_only += u32::from(is_read_only);
        }
        let share = |part: u32, all: u32| f64::from(part) / f64::from(all);
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

    #[test]
    fn spread_keys_do_not_meet_and_inserts_fall_between_them() {
        let accesses = KeyAccesses { standard: Some(Standard::E), rows: 1000, ..PAPER };
        let keys: std::collections::BTreeSet<_> = (0..2000).map(|row| accesses.key(row)).collect();
        assert_eq!(keys.len(), 2000);
        let loaded: Vec<_> = (0..1000).map(|row| accesses.key(row)).collect();
        let between = (1000..2000).filter(|row| accesses.key(*row) < *loaded.iter().max().unwrap());
        assert!(between.count() > 900);
        assert_eq!(accesses.key(DIGITS - 1).len(), KEY_BYTES);
    }

    #[test]
    fn the_standard_mixes_have_their_shares() {
        for (mix, write_share) in [
            (Standard::A, 0.5),
            (Standard::B, 0.05),
            (Standard::C, 0.0),
            (Standard::D, 0.05),
            (Standard::E, 0.05),
            (Standard::F, 0.5),
        ] {
            let accesses = KeyAccesses { standard: Some(mix), theta: 0.99, rows: 10_000, ..PAPER };
            let next = Arc::new(AtomicU64::new(accesses.rows));
            let (mut drawer, mut writes) = (Drawer::new(accesses, 1, Arc::clone(&next)), 0);
            for _ in 0..10_000 {
                drawer.draw();
                writes += match drawer.drawn[..] {
                    [Access::Write(..) | Access::Modify(..) | Access::Insert(..)] => 1,
                    [Access::ScanFrom(_, length)] => {
                        assert!(mix == Standard::E && (1..=LONGEST_SCAN).contains(&length));
                        0
                    }
                    [Access::Read(_) | Access::ReadLatest(_)] => 0,
                    _ => unreachable!("one access each"),
                };
            }
            let share = f64::from(writes) / 10_000.0;
            assert!((share - write_share).abs() < 0.02, "{mix:?}: {share}");
            let inserts = next.load(Ordering::Relaxed) - accesses.rows;
            assert_eq!(inserts > 0, matches!(mix, Standard::D | Standard::E));
        }
    }
}
