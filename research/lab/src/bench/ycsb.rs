//! The options of YCSB.

use super::choices::Engine;
use super::deuteronomy::{EngineOptions, KeyAccesses};
use clap::Args;
use hyades_cli::failure::{Failure, usage};
use hyades_workloads::ycsb;
use serde::{Deserialize, Serialize};

/// The most partitions of a database.
const PARTITIONS: u64 = 64;

/// Options of YCSB.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct Ycsb {
    /// Number of rows, of 1,000 bytes each; engines other than memory have keys of 16 bytes, with
    /// values of --value-bytes
    #[arg(long, default_value_t = 1 << 20)]
    rows: u64,
    /// Zipf exponent (skew); 0 is uniform [default: 0.6; 0.99 for a standard mix; 0.9 with engines
    /// other than memory, by which 20 % of a million keys get 80 % of the accesses]
    #[arg(long)]
    theta: Option<f64>,
    /// Accesses per transaction [default: 2; 4 with engines other than memory]
    #[arg(long, conflicts_with = "standard")]
    accesses: Option<usize>,
    /// Share of accesses that write, 0 to 1 [default: 0.5; 0.16 with engines other than memory]
    #[arg(long, conflicts_with = "standard")]
    write_share: Option<f64>,
    /// Share of transactions that only read, except that the last access of each writes the same
    /// hot row, 0 to 1
    #[arg(long, default_value_t = 0.0, conflicts_with_all = ["standard", "scan_length"])]
    hot_share: f64,
    /// Read each row that is accessed, then write it
    #[arg(long, conflicts_with_all = ["standard", "write_share"])]
    read_and_write: bool,
    /// Instead of these accesses, write one column of a row, and scan this many rows in key order
    #[arg(long, value_name = "ROWS", conflicts_with_all = ["standard", "write_share", "accesses",
        "read_and_write", "write_columns", "values"])]
    scan_length: Option<u32>,
    /// Keep the rows in an ordered index instead of a hash index, as --scan-with plain needs
    #[arg(long)]
    ordered: bool,
    /// Columns that a write sets: 1 or all
    #[arg(long, default_value = "1", value_parser = ["1", "all"])]
    write_columns: String,
    /// Written values: derived from a small argument, or passed whole as an argument
    #[arg(long, default_value = "derived", value_parser = ["derived", "argument"])]
    values: String,
    /// Share of transactions whose accesses are to two partitions in turn, 0 to 1; the other
    /// transactions access one partition [default: rows are drawn without regard to partitions]
    #[arg(long, value_name = "SHARE", conflicts_with_all = ["standard", "scan_length",
        "hot_share"])]
    remote: Option<f64>,
    /// Run a standard YCSB mix instead, A to F
    #[arg(long, value_parser = ["A", "B", "C", "D", "E", "F"], ignore_case = true)]
    standard: Option<String>,
    #[command(flatten)]
    pub engine: EngineOptions,
}

impl Ycsb {
    /// Checks the options against one another.
    ///
    /// # Errors
    /// Wrong usage, in one sentence.
    pub fn check(&self) -> Result<(), Failure> {
        if !(1..1 << 40).contains(&self.rows) {
            return usage(format!("--rows must be at least 1 and below 2^40, not {}", self.rows));
        }
        if let Some(theta) = self.theta.filter(|t| !(0.0..=10.0).contains(t)) {
            return usage(format!("--theta must be 0 to 10, not {theta}"));
        }
        let write_share = self.write_share();
        if !(0.0..=1.0).contains(&write_share) {
            return usage(format!("--write-share must be 0 to 1, not {write_share}"));
        }
        if !(0.0..=1.0).contains(&self.hot_share) {
            return usage(format!("--hot-share must be 0 to 1, not {}", self.hot_share));
        }
        if let Some(share) = self.remote.filter(|share| !(0.0..=1.0).contains(share)) {
            return usage(format!("--remote must be 0 to 1, not {share}"));
        }
        let is_mix_e = self.standard.as_deref().is_some_and(|mix| mix.eq_ignore_ascii_case("E"));
        if self.engine.engine() == Engine::HashMap && (is_mix_e || self.scan_length.is_some()) {
            return usage("a hash map has no ranges to scan: choose another engine, or mix");
        }
        let (drawn_from, of_what) = match self.remote {
            Some(_) => (self.rows / PARTITIONS, "the rows of one of 64 partitions"),
            None => (self.rows, "the rows"),
        };
        let most = drawn_from.div_ceil(2);
        // A standard mix and a scan define their own accesses.
        if self.standard.is_some() || self.scan_length.is_some() {
            return Ok(());
        }
        let accesses = self.accesses();
        if accesses == 0 || accesses as u64 > most {
            return usage(format!(
                "--accesses must be 1 to {most}, half of {of_what}, not {accesses}: the accesses \
                 of a transaction are to distinct rows"
            ));
        }
        Ok(())
    }

    /// Those of the papers: Xia et al., VLDB 2020; and of Deuteronomy, section 6.
    fn accesses(&self) -> usize {
        self.accesses.unwrap_or(if self.engine.has_keys() { 4 } else { 2 })
    }

    fn write_share(&self) -> f64 {
        self.write_share.unwrap_or(if self.engine.has_keys() { 0.16 } else { 0.5 })
    }

    /// The first option that is not for keys and values, if one is set.
    pub fn of_rows_only(&self) -> Option<&'static str> {
        let set = [
            ("--hot-share", self.hot_share > 0.0),
            ("--read-and-write", self.read_and_write),
            ("--ordered", self.ordered),
            ("--write-columns", self.write_columns != "1"),
            ("--values", self.values != "derived"),
            ("--remote", self.remote.is_some()),
        ];
        set.into_iter().find(|(_, is_set)| *is_set).map(|(name, _)| name)
    }

    /// The accesses of transactions on keys and values.
    pub fn accesses_to_keys(&self) -> KeyAccesses {
        let parsed = "clap accepts only words that the workload knows";
        let standard = self.standard.as_ref().map(|mix| mix.parse().expect(parsed));
        KeyAccesses {
            rows: self.rows,
            theta: self.theta.unwrap_or(if standard.is_some() { 0.99 } else { 0.9 }),
            accesses: self.accesses(),
            write_share: self.write_share(),
            scan_length: self.scan_length.map(u64::from),
            standard,
            value_bytes: self.engine.value_bytes(),
        }
    }

    /// The workload's configuration.
    pub fn config(&self, seed: u64) -> ycsb::YcsbConfig {
        let parsed = "clap accepts only words that the workload knows";
        let mut config = match &self.standard {
            Some(mix) => ycsb::YcsbConfig::standard(mix.parse().expect(parsed), self.rows),
            None => ycsb::YcsbConfig {
                rows: self.rows,
                accesses: self.accesses(),
                write_share: if self.read_and_write { 1.0 } else { self.write_share() },
                hot_share: self.hot_share,
                reads: ycsb::Reads { before_writes: self.read_and_write, ..Default::default() },
                scan_length: self.scan_length,
                distinct: self.scan_length.is_none(),
                ..ycsb::YcsbConfig::default()
            },
        };
        config.theta = self.theta.unwrap_or(config.theta);
        config.write_columns = self.write_columns.parse().expect(parsed);
        config.values = self.values.parse().expect(parsed);
        config.ordered = self.ordered;
        config.remote = self.remote;
        config.seed = seed;
        config
    }
}
