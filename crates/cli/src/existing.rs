//! Opens existing databases without their own program.

use crate::failure::Failure;
use hyades::{Builder, Error};
use hyades_wal::{LogOptions, Manifest, Recovering};
use hyades_workloads::{Workload, bank, smallbank, tatp, tpcc, voter, ycsb};
use std::path::PathBuf;

/// A function that opens a log: [`hyades_wal::open`], [`hyades_wal::open_read`] or
/// [`hyades_wal::open_damaged`].
pub type Open = fn(LogOptions) -> Result<Recovering, hyades_wal::Error>;

/// Finds and locks an existing log. Plain opening would create a missing log.
///
/// # Errors
/// There is no log, or the log is in use or damaged.
pub fn find(dirs: &[PathBuf], open: Open) -> Result<Recovering, Failure> {
    for dir in dirs {
        if !dir.is_dir() {
            return Err(Failure::Usage(format!(
                "{} is not a directory: give the directories of a database",
                dir.display()
            )));
        }
    }
    let recovering = open(LogOptions::new(dirs.to_vec(), 1))?;
    if recovering.is_fresh() {
        return Err(Failure::Usage(format!(
            "{} holds no log: give the directories that a database was opened with",
            dirs[0].display()
        )));
    }
    Ok(recovering)
}

/// Calls `act` with a builder that has the settings and the tables of the last opening, and the
/// procedures of this program's workload with the same tables, if any. A table that a workload
/// declares otherwise, or in addition, would be changed: then the database is another program's.
/// `act` must not change anything before a failure with [`Error::Mismatch`].
///
/// # Errors
/// The error of `act`.
pub fn as_it_was<T>(
    manifest: &Manifest,
    mut act: impl FnMut(Builder) -> Result<T, Error>,
) -> Result<T, Failure> {
    let workloads: [&dyn Fn(&mut Builder); 7] = [
        &|builder| ycsb::Ycsb::new(ycsb::YcsbConfig::default()).declare(builder),
        &|builder| {
            let config = ycsb::YcsbConfig { ordered: true, ..ycsb::YcsbConfig::default() };
            ycsb::Ycsb::new(config).declare(builder)
        },
        &|builder| tpcc::Tpcc::new(tpcc::TpccConfig::new(1)).declare(builder),
        &|builder| bank::Bank::new(bank::BankConfig::default()).declare(builder),
        &|builder| {
            smallbank::SmallBank::new(smallbank::SmallBankConfig::default()).declare(builder)
        },
        &|builder| tatp::Tatp::new(tatp::TatpConfig::default()).declare(builder),
        &|builder| voter::Voter::new(voter::VoterConfig::default()).declare(builder),
    ];
    for declare in workloads {
        let mut builder = hyades::inspect::builder_without_tables(manifest)?;
        declare(&mut builder);
        if !hyades::inspect::declares_same_tables(manifest, &builder)? {
            continue;
        }
        match act(builder) {
            // The database is of another program all the same, and `act` has changed nothing.
            Err(Error::Mismatch(_)) => {}
            done => return Ok(done?),
        }
    }
    Ok(act(hyades::inspect::builder(manifest)?)?)
}
