//! Threads that scan the largest table again and again beside a workload.

use super::measured::Interval;
use clap::{Args, ValueEnum};
use hyades::{Abort, Columns, Database, Error, Table};
use hyades_platform::clock::monotonic_ns;
use serde::{Deserialize, Serialize};

/// Options of scanning.
#[derive(Args, Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Scanning {
    /// Threads that scan the largest table again and again beside the workload
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub scanners: usize,
    /// What a scan reads: a snapshot (view), or the present, in a transaction that may conflict
    /// (plain; needs a table with an ordered index)
    #[arg(long, default_value = "view", value_name = "HOW")]
    pub scan_with: ScanWith,
}

/// What a scan reads.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScanWith {
    /// A snapshot.
    #[default]
    #[value(alias = "snapshot")]
    View,
    /// The present.
    Plain,
}

/// What the scanners did within the measured interval.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Scans {
    /// Scans of the whole table.
    pub completed: u64,
    /// Attempts at one that failed.
    pub failed: u64,
    /// Rows visited per second.
    pub rows_per_s: f64,
}

/// Older versions of rows, at the end of the scan at which they were most.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct OldVersions {
    /// Their number.
    pub peak: u64,
    /// Their memory, in bytes.
    pub peak_bytes: u64,
}

/// What scanners did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scanned {
    completed: u64,
    failed: u64,
    rows: u64,
    versions: OldVersions,
}

impl Scanned {
    /// Adds what another scanner did.
    pub fn add(&mut self, other: &Scanned) {
        self.completed += other.completed;
        self.failed += other.failed;
        self.rows += other.rows;
        self.versions.peak = self.versions.peak.max(other.versions.peak);
        self.versions.peak_bytes = self.versions.peak_bytes.max(other.versions.peak_bytes);
    }

    /// For the report of an interval of this length.
    pub fn report(&self, seconds: f64) -> (Scans, OldVersions) {
        let Scanned { completed, failed, .. } = *self;
        (Scans { completed, failed, rows_per_s: self.rows as f64 / seconds }, self.versions)
    }
}

/// Scans a table until the interval ends.
///
/// # Errors
/// The database's, but for scans that conflict.
pub(super) fn scan(
    database: &Database,
    table: Table,
    how: ScanWith,
    interval: Interval,
) -> Result<Scanned, Error> {
    let mut scanned = Scanned::default();
    loop {
        let rows = match how {
            ScanWith::View => scan_snapshot(database, table, &mut scanned.versions),
            ScanWith::Plain => scan_present(database, table, interval.end),
        };
        let now = monotonic_ns();
        let counts = (interval.begin..interval.end).contains(&now);
        match rows {
            Ok(rows) if counts => {
                scanned.completed += 1;
                scanned.rows += rows;
            }
            Ok(_) => {}
            Err(Error::Aborted(Abort::Conflict | Abort::SnapshotEnded)) => {
                scanned.failed += u64::from(counts);
            }
            Err(Error::Aborted(Abort::UnknownHandle)) => {
                return Err(Error::Misuse(
                    "--scan-with plain needs a table with an ordered index: of ycsb, add --ordered"
                        .to_string(),
                ));
            }
            Err(error) => return Err(error),
        }
        if now >= interval.end {
            return Ok(scanned);
        }
    }
}

fn scan_snapshot(database: &Database, table: Table, most: &mut OldVersions) -> Result<u64, Error> {
    let snapshot = database.open_snapshot();
    let rows = snapshot.for_each(table, Columns::ALL, |row| _ = std::hint::black_box(row))?;
    let stats = database.stats();
    most.peak = most.peak.max(stats.old_versions);
    most.peak_bytes = most.peak_bytes.max(stats.snapshot_bytes);
    Ok(rows)
}

/// One attempt: the transaction ends with the first conflict. With `--concurrency silo` it would
/// run again as of a snapshot otherwise.
fn scan_present(database: &Database, table: Table, until: u64) -> Result<u64, Error> {
    let mut attempts = 0;
    let rows = database.try_transact(|tx| {
        attempts += 1;
        if attempts > 1 || monotonic_ns() > until {
            return Err(Abort::User(0));
        }
        Ok(std::hint::black_box(tx.scan(table).rows()?).len() as u64)
    })?;
    match rows {
        Err(Abort::User(0)) => Err(Error::Aborted(Abort::Conflict)),
        rows => Ok(rows?),
    }
}
