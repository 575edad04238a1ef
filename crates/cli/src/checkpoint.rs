//! `hyades checkpoint`: a checkpoint of a database that nobody has open.

use crate::failure::Failure;
use crate::progress::Bar;
use crate::units;
use clap::Args;
use hyades::{Builder, Database, Error, Record};
use hyades_wal::LogOptions;
use hyades_workloads::{Workload, bank, tpcc, ycsb};
use std::path::PathBuf;
use std::sync::Arc;

/// `hyades checkpoint`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The database's directories, all of them
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// `hyades checkpoint`: recovers the database, takes a checkpoint, closes it.
///
/// # Errors
/// There is no database, it is in use or damaged, or its log calls procedures that this program does not have.
pub fn checkpoint(options: &Options) -> Result<bool, Failure> {
    let database = open(&options.dirs)?;
    let report = database.checkpoint()?;
    database.close()?;
    if options.json {
        let report = serde_json::json!({
            "number": report.number,
            "cut_epoch": report.cut_epoch,
            "rows": report.rows,
            "bytes": report.bytes,
            "parts": report.parts,
            "seconds": report.seconds,
            "truncated_bytes": report.truncated_bytes,
        });
        println!("{report}");
    } else {
        println!(
            "checkpoint {}: {} rows, {} in {}; {} of log given up",
            report.number,
            units::exact(report.rows),
            units::bytes(report.bytes as f64),
            units::time(report.seconds),
            units::bytes(report.truncated_bytes as f64)
        );
    }
    Ok(true)
}

/// Opens a database as it was, with the procedures of whichever workload of this program it belongs to.
fn open(dirs: &[PathBuf]) -> Result<Database, Failure> {
    for dir in dirs {
        // Opening would make a directory that is not there.
        if !dir.is_dir() {
            return Err(Failure::Usage(format!(
                "{} is not a directory: give the directories of a database",
                dir.display()
            )));
        }
    }
    let recovering = hyades_wal::open(LogOptions::new(dirs.to_vec(), 1))?;
    if recovering.is_fresh() {
        return Err(Failure::Usage(format!(
            "{} holds no log: give the directories that a database was opened with",
            dirs[0].display()
        )));
    }
    let manifest = recovering.manifest().clone();
    drop(recovering);
    let bar = Arc::new(Bar::new("recovering", 1));
    let ready = |builder: Builder| {
        let shown = bar.clone();
        let builder = dirs.iter().skip(1).fold(builder, |builder, dir| builder.log_dir(dir));
        // Nobody else is at work on it.
        builder.checkpoint_share(1.0).on_progress(move |p| shown.show(p))
    };
    let workloads: [&dyn Fn(&mut Builder); 3] = [
        &|builder| ycsb::Ycsb::new(ycsb::Config::default()).declare(builder),
        &|builder| tpcc::Tpcc::new(tpcc::Config::new(1)).declare(builder),
        &|builder| bank::Bank::new(bank::Config::default()).declare(builder),
    ];
    for declare in workloads {
        let mut builder = ready(hyades::inspect::builder_without_tables(&manifest)?);
        declare(&mut builder);
        match builder.record(Record::Data).open(&dirs[0]) {
            // Other tables: nothing has been done yet.
            Err(Error::Mismatch(_)) => {}
            opened => return Ok(opened?),
        }
    }
    Ok(ready(hyades::inspect::builder(&manifest)?).open(&dirs[0])?)
}
