//! YCSB: one table of rows with ten columns of 100 bytes.
//!
//! In the form of the logging papers a transaction accesses several rows drawn from a Zipf
//! distribution; each access writes one column (or all) or reads one column. With two accesses,
//! half of them writes, a quarter of the transactions is read-only. The standard mixes A to F
//! (Cooper et al., SoCC 2010) are single operations that read whole rows.

mod procedures;
#[cfg(test)]
mod tests;
mod workload;

pub use procedures::*;
pub use workload::Ycsb;

use crate::zipf::{Scramble, Zipf};
use fastrand::Rng;
use std::collections::HashSet;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// The standard mixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standard {
    /// Half reads, half updates.
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Reads only.
    C,
    /// 95 % reads of the latest rows, 5 % inserts.
    D,
    /// 95 % scans of 1 to 100 rows, 5 % inserts.
    E,
    /// Half reads, half read-modify-writes.
    F,
}

impl FromStr for Standard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "A" | "a" => Ok(Standard::A),
            "B" | "b" => Ok(Standard::B),
            "C" | "c" => Ok(Standard::C),
            "D" | "d" => Ok(Standard::D),
            "E" | "e" => Ok(Standard::E),
            "F" | "f" => Ok(Standard::F),
            _ => Err(format!("{text:?} is no standard YCSB mix: choose A, B, C, D, E or F")),
        }
    }
}

/// The number of columns that a write sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WriteColumns {
    /// One column.
    #[default]
    One,
    /// All ten.
    All,
}

impl FromStr for WriteColumns {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "1" | "one" => Ok(WriteColumns::One),
            "all" => Ok(WriteColumns::All),
            _ => Err(format!("a YCSB write sets 1 column or all, not {text:?}")),
        }
    }
}

/// The source of written values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Values {
    /// Computed in the procedure from a small argument (as in Xia et al., VLDB 2020).
    #[default]
    Derived,
    /// Passed whole as arguments, so that command records contain the values (as in the report of
    /// 2016).
    Argument,
}

impl FromStr for Values {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "derived" => Ok(Values::Derived),
            "argument" => Ok(Values::Argument),
            _ => Err(format!("YCSB values are derived or argument, not {text:?}")),
        }
    }
}

/// Settings of the workload.
#[derive(Clone, Debug)]
pub struct YcsbConfig {
    /// Rows of the population.
    pub rows: u64,
    /// Skew of the Zipf distribution; 0 is uniform.
    pub theta: f64,
    /// Accesses per transaction.
    pub accesses: usize,
    /// The share of accesses that write, 0 to 1.
    pub write_share: f64,
    /// The share of transactions that write row 0 in their last access and only read in the earlier
    /// accesses, 0 to 1. These transactions form a dependency chain.
    pub hot_share: f64,
    /// Whether a transaction's accesses are to different rows.
    pub distinct: bool,
    /// The columns that a write sets.
    pub write_columns: WriteColumns,
    /// The reads besides the written columns.
    pub reads: Reads,
    /// If set, each transaction changes one column of a row and scans this many rows, instead of
    /// the accesses (the hybrid workload of Zhou et al., "Poplar", section 6).
    pub scan_length: Option<u32>,
    /// Whether the primary index is ordered although no transaction scans the index.
    pub ordered: bool,
    /// The source of written values.
    pub values: Values,
    /// A standard mix instead of the above settings; only rows, theta, write columns, reads and
    /// values still apply.
    pub standard: Option<Standard>,
    /// The share of transactions whose accesses are to two partitions in turn, 0 to 1; the other
    /// transactions access one partition. With a share the table is partitioned by its key; without
    /// one the table has no partitions, and rows are drawn without regard to partitions.
    pub remote: Option<f64>,
    /// The seed of the population.
    pub seed: u64,
}

impl Default for YcsbConfig {
    fn default() -> Self {
        YcsbConfig {
            rows: 1 << 20,
            theta: 0.6,
            accesses: 2,
            write_share: 0.5,
            hot_share: 0.0,
            distinct: true,
            write_columns: WriteColumns::One,
            reads: Reads::default(),
            scan_length: None,
            ordered: false,
            values: Values::Derived,
            standard: None,
            remote: None,
            seed: 1,
        }
    }
}

impl YcsbConfig {
    /// A standard mix over `rows` rows, with YCSB's own skew of 0.99.
    pub fn standard(mix: Standard, rows: u64) -> YcsbConfig {
        YcsbConfig {
            rows,
            theta: 0.99,
            accesses: 1,
            reads: Reads { whole_rows: true, ..Reads::default() },
            standard: Some(mix),
            ..YcsbConfig::default()
        }
    }

    /// Whether every access writes a whole row. Such accesses are blind writes, as in the
    /// write-only experiment of the Poplar paper (section 6.2).
    pub fn is_write_only(&self) -> bool {
        let all = self.write_columns == WriteColumns::All;
        let only = self.scan_length.is_none() && !self.reads.before_writes;
        let hot = self.hot_share > 0.0;
        self.standard.is_none() && only && all && !hot && self.write_share >= 1.0
    }

    /// Whether the primary index is ordered, as needed for scans by transactions.
    pub fn is_ordered(&self) -> bool {
        self.ordered || self.is_spread() || self.scan_length.is_some()
    }

    /// Whether keys are spread over the 64-bit range, for scans with concurrent inserts.
    pub fn is_spread(&self) -> bool {
        self.standard == Some(Standard::E)
    }
}

/// The procedure for an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Operation {
    /// [`access`].
    #[default]
    Access,
    /// [`access_all`].
    AccessAll,
    /// [`access_given`].
    AccessGiven,
    /// [`store`].
    Store,
    /// [`store_given`].
    StoreGiven,
    /// [`insert()`].
    Insert,
    /// [`scan`].
    Scan,
    /// [`modify`].
    Modify,
    /// [`write_and_scan`].
    WriteAndScan,
}

/// The input of one transaction. Inputs are reused, so that their buffers are allocated once; only
/// the arguments of the operation are meaningful.
#[derive(Clone, Debug, Default)]
pub struct YcsbInput {
    /// The procedure.
    pub operation: Operation,
    /// Arguments of the accesses; `values` is empty unless values are arguments.
    pub given: Given,
    /// For an insert.
    pub insert: Insert,
    /// For a scan.
    pub scan: Scan,
    /// For a read-modify-write.
    pub modify: Modify,
    /// For a write with a scan.
    pub write_and_scan: WriteAndScan,
    /// Rows drawn so far, used for many accesses.
    drawn: HashSet<u64>,
}

/// The row written by [`YcsbConfig::hot_share`] of the transactions.
const HOT: u64 = 0;

/// Up to this many accesses a comparison of each access with all earlier accesses is fastest.
const MANY: usize = 32;

/// After this many successive draws of rows already in a transaction, the transaction gets the most
/// popular row that it lacks: with a great skew a new row would hardly ever be drawn.
const MOST_REPEATS: u64 = 100_000;

/// Rows whose keys differ by this number are in the same partition, whatever the number of
/// partitions, a power of two up to this one.
const SLOTS: u64 = 64;

/// The partitions of a transaction: the slot of even accesses, and the slot of odd accesses.
#[derive(Clone, Copy)]
struct Homes([u64; 2]);

impl Homes {
    /// The row nearest to `id` that is in the partition of access number `at`.
    fn row(self, id: u64, at: usize, rows: u64) -> u64 {
        let moved = id - id % SLOTS + self.0[at % 2];
        if moved < rows { moved } else { moved - SLOTS }
    }
}

/// Draws inputs.
#[derive(Debug)]
pub struct YcsbInputs {
    config: YcsbConfig,
    zipf: Zipf,
    scramble: Scramble,
    /// An access writes if 32 random bits are below this value.
    write_below: u64,
    /// The next row to insert. Relaxed: workers need only distinct numbers.
    next: AtomicU64,
}

impl YcsbInputs {
    /// # Panics
    /// If there are no rows, or too few for `accesses` distinct ones, in one partition where
    /// transactions have partitions.
    pub fn new(config: YcsbConfig) -> YcsbInputs {
        let drawn_from = config.rows / if config.remote.is_some() { SLOTS } else { 1 };
        assert!(
            !config.distinct || config.accesses as u64 <= drawn_from.div_ceil(2),
            "{} rows are too few for {} different accesses",
            config.rows,
            config.accesses
        );
        YcsbInputs {
            zipf: Zipf::new(config.rows, config.theta),
            scramble: Scramble::new(config.rows),
            write_below: (config.write_share.clamp(0.0, 1.0) * (1u64 << 32) as f64) as u64,
            next: AtomicU64::new(config.rows),
            config,
        }
    }

    /// The settings.
    pub fn config(&self) -> &YcsbConfig {
        &self.config
    }

    /// Draws the next input.
    pub fn draw(&self, rng: &mut Rng, into: &mut YcsbInput) {
        let Some(standard) = self.config.standard else {
            return match self.config.scan_length {
                None => self.accesses(rng, into),
                Some(count) => {
                    // Far enough from the end that all rows of the range exist.
                    let last = self.config.rows.saturating_sub(count.into());
                    let (id, from) = (self.row(rng), self.row(rng) % (last + 1));
                    into.operation = Operation::WriteAndScan;
                    into.write_and_scan = WriteAndScan { id, seed: rng.u32(..), from, count };
                }
            };
        };
        let percent = rng.u32(..100);
        match standard {
            Standard::A => self.single(rng, into, percent < 50),
            Standard::B => self.single(rng, into, percent < 5),
            Standard::C => self.single(rng, into, false),
            Standard::D | Standard::E if percent < 5 => {
                // Rows 0 to `rows - 1` were populated; each number from there on is drawn once.
                let id = self.next.fetch_add(1, Ordering::Relaxed);
                let spread = self.config.is_spread();
                into.operation = Operation::Insert;
                into.insert = Insert { id, seed: self.config.seed, spread };
            }
            Standard::D => {
                // The latest rows are the most popular. A row whose insert has not committed is
                // missing, so the very last numbers are left out.
                let latest = self.next.load(Ordering::Relaxed).saturating_sub(LATEST_LAG);
                let latest = latest.max(self.config.rows) - 1;
                let id = latest - self.zipf.draw(rng);
                self.set_single(rng, into, id, false);
            }
            Standard::E => {
                into.operation = Operation::Scan;
                into.scan = Scan { id: self.row(rng), count: rng.u32(1..=100) };
            }
            Standard::F if percent < 50 => {
                into.operation = Operation::Modify;
                into.modify = Modify { id: self.row(rng), seed: rng.u32(..) };
            }
            Standard::F => self.single(rng, into, false),
        }
    }

    /// Draws a row by its popularity.
    #[inline]
    fn row(&self, rng: &mut Rng) -> u64 {
        self.scramble.key(self.zipf.draw(rng))
    }

    /// Draws the partitions of a transaction; none if transactions have no partitions.
    fn homes(&self, rng: &mut Rng) -> Option<Homes> {
        let spans = rng.f64() < self.config.remote?;
        let home = rng.u64(..SLOTS);
        // The next slot belongs to another partition, and to another site where there are several.
        Some(Homes([home, if spans { (home + 1) % SLOTS } else { home }]))
    }

    fn single(&self, rng: &mut Rng, into: &mut YcsbInput, write: bool) {
        let id = self.row(rng);
        self.set_single(rng, into, id, write);
    }

    fn set_single(&self, rng: &mut Rng, into: &mut YcsbInput, id: u64, write: bool) {
        into.given.accesses.rows.clear();
        into.given.accesses.rows.push(RowAccess::new(id, write));
        self.finish_accesses(rng, into);
    }

    fn accesses(&self, rng: &mut Rng, into: &mut YcsbInput) {
        let rows = &mut into.given.accesses.rows;
        rows.clear();
        if self.config.accesses > MANY {
            into.drawn.clear();
        }
        let hot = self.config.hot_share > 0.0 && rng.f64() < self.config.hot_share;
        let homes = self.homes(rng);
        let mut repeats = 0u64;
        while rows.len() < self.config.accesses - usize::from(hot) {
            let id = match repeats.checked_sub(MOST_REPEATS) {
                None => self.row(rng),
                Some(rank) => self.scramble.key(rank),
            };
            let id = homes.map_or(id, |homes| homes.row(id, rows.len(), self.config.rows));
            repeats += 1;
            if hot && id == HOT {
                continue;
            }
            if self.config.distinct {
                let again = if self.config.accesses <= MANY {
                    rows.iter().any(|row| row.id() == id)
                } else {
                    !into.drawn.insert(id)
                };
                if again {
                    continue;
                }
            }
            if repeats <= MOST_REPEATS {
                repeats = 0;
            }
            rows.push(RowAccess::new(id, (rng.u32(..) as u64) < self.write_below && !hot));
        }
        if hot {
            rows.push(RowAccess::new(HOT, true));
        }
        self.finish_accesses(rng, into);
    }

    /// Draws the seed, and the values if values are arguments.
    fn finish_accesses(&self, rng: &mut Rng, into: &mut YcsbInput) {
        let Given { accesses, values } = &mut into.given;
        accesses.seed = rng.u32(..);
        let all = self.config.write_columns == WriteColumns::All;
        into.operation = match (self.config.values, all) {
            (Values::Derived, true) if self.config.is_write_only() => Operation::Store,
            (Values::Argument, true) if self.config.is_write_only() => Operation::StoreGiven,
            (Values::Derived, false) => Operation::Access,
            (Values::Derived, true) => Operation::AccessAll,
            (Values::Argument, _) => Operation::AccessGiven,
        };
        if self.config.values == Values::Argument {
            let each = if all { WIDTH * COLUMNS } else { WIDTH };
            let writes = accesses.rows.iter().filter(|row| row.is_write()).count();
            values.0.resize(writes * each, 0);
            crate::bytes::fill(rng.u64(..), &mut values.0);
        }
    }
}

/// The number of latest inserts that mix D does not read.
const LATEST_LAG: u64 = 4096;

/// Rows per population call.
const CHUNK: u64 = 1000;

/// Returns the calls that populate the database.
pub fn parts(config: &YcsbConfig) -> Vec<YcsbPopulate> {
    let (rows, seed, spread) = (config.rows, config.seed, config.is_spread());
    let part = |from| YcsbPopulate { from, count: CHUNK.min(rows - from) as u32, seed, spread };
    (0..rows).step_by(CHUNK as usize).map(part).collect()
}
