//! After the crash, in a fresh process: recovers the database and compares it with the journal.

use super::RoundSettings;
use super::journal::{self, What};
use super::work::Work;
use hyades::{Columns, Database, Error, RecordKind, RecoveryReport};
use hyades_cli::failure::Failure;
use hyades_cli::progress::Bar;
use hyades_cli::units;
use hyades_workloads::tpcc::schema::DISTRICTS;
use hyades_workloads::{Reader, Workload, bank};
use serde::{Deserialize, Serialize};
use std::ops::Bound;
use std::sync::Arc;

/// The result of a recovery after a crash.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Found {
    /// Why the database did not open, if it did not.
    pub refused: Option<String>,
    /// Seconds from opening until the database accepted transactions.
    pub seconds: f64,
    /// Threads used for recovery.
    pub threads: usize,
    /// Transactions replayed.
    pub records: u64,
    /// Log bytes replayed.
    pub bytes: u64,
    /// Dead transactions: in the log, but dependent on lost records.
    pub dead: u64,
    /// The digest of the state.
    pub digest: u64,
    /// Acknowledged transactions that were not recovered.
    pub missing: u64,
    /// Violated consistency conditions: a transaction was recovered in part.
    pub violations: u64,
    /// The first violation, as text.
    pub first_violation: Option<String>,
}

/// Recovers the database, and compares it with the journal if `checks` is set.
///
/// # Errors
/// The journal or the database cannot be read.
pub fn recover(settings: &RoundSettings, checks: bool) -> Result<Found, Failure> {
    let bar = Arc::new(Bar::new("recovering", 1));
    let shown = bar.clone();
    let mut work = Work::new(settings.size);
    let builder = Work::builder(settings, RecordKind::Adaptive, Work::files());
    let mut builder = builder.on_progress(move |progress| shown.show(progress));
    work.declare(&mut builder);
    let database = match builder.open(&settings.dir) {
        Ok(database) => database,
        Err(error) => {
            let text = error.to_string();
            bar.finish(&format!("recovery failed: {text}"));
            return Ok(Found { refused: Some(text), ..Found::default() });
        }
    };
    let mut found = found(database.recovery());
    bar.finish(&format!(
        "recovered {} transactions, {} of log, on {} {} in {}",
        units::exact(found.records),
        units::bytes(found.bytes as f64),
        found.threads,
        if found.threads == 1 { "thread" } else { "threads" },
        units::time(found.seconds)
    ));
    found.digest = database.digest();
    if checks {
        eprintln!("  checking acknowledged transactions, balances, and TPC-C's conditions");
        found.missing = missing(settings, &work, &database)?;
        let mut violations = work.bank.check(&database)?.unwrap_or_default();
        violations.extend(work.tpcc.check(&database)?.unwrap_or_default());
        found.violations = violations.len() as u64;
        found.first_violation = violations.first().map(ToString::to_string);
    }
    database.close()?;
    Ok(found)
}

fn found(report: &RecoveryReport) -> Found {
    Found {
        seconds: report.seconds,
        threads: report.threads,
        records: report.records,
        bytes: report.bytes,
        dead: report.dead,
        ..Found::default()
    }
}

/// Counts the acknowledged transactions whose rows were not recovered.
fn missing(settings: &RoundSettings, work: &Work, database: &Database) -> Result<u64, Failure> {
    let file = std::fs::File::open(&settings.journal)
        .map_err(Failure::doing("cannot open the journal"))?;
    let (mut transfers, mut orders, mut payments) = (Vec::new(), Vec::new(), 0);
    journal::read_all(file, |entry| match entry.what {
        What::Transfer(id) => transfers.push(id),
        What::Order { w, d, o } => orders.push((i32::from(w), i32::from(d), o as i32)),
        What::Payment => payments += 1,
        What::Other => {}
    })
    .map_err(Failure::doing("cannot read the journal"))?;
    let mut missing = bank::missing(database, work.bank.tables(), &transfers)?.len() as u64;
    let table = work.tpcc.tables().orders;
    for orders in orders.chunks(1000) {
        missing += database.read(|tx| {
            let mut absent = 0;
            for &key in orders {
                absent += u64::from(table.get_columns(tx, key, Columns::NONE)?.is_none());
            }
            Ok(absent)
        })?;
    }
    // A payment inserts a row into history, which has no key to look it up by: compare the counts.
    let expected = settings.size.customers() * DISTRICTS as u64 + payments;
    Ok(missing + expected.saturating_sub(history_rows(work, database)?))
}

fn history_rows(work: &Work, database: &Database) -> Result<u64, Error> {
    const AT_ONCE: usize = 10_000;
    let history = work.tpcc.tables().history;
    let (mut rows, mut after) = (0, Bound::Unbounded);
    loop {
        let (some, last) = database.read(|tx| {
            let scan = history.scan(tx).range((after, Bound::Unbounded)).limit(AT_ONCE);
            let rows = scan.get_columns(Columns::NONE)?;
            Ok((rows.len() as u64, rows.last().map(|row| row.row_id())))
        })?;
        rows += some;
        let Some(last) = last else {
            return Ok(rows);
        };
        after = Bound::Excluded(last);
    }
}
