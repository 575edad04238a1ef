//! `hyades checkpoint`: takes a checkpoint of a database that no process has open.

use crate::existing;
use crate::failure::Failure;
use crate::progress::Bar;
use crate::units;
use clap::Args;
use hyades::Database;
use std::path::PathBuf;
use std::sync::Arc;

/// Options of `hyades checkpoint`.
#[derive(Args, Clone, Debug)]
pub struct CheckpointOptions {
    /// All directories of the database, in any order
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Runs `hyades checkpoint`: recovers the database, takes a checkpoint, closes it.
///
/// # Errors
/// There is no database, or the database is in use or damaged, or its log calls procedures unknown
/// to this program.
pub fn checkpoint(options: &CheckpointOptions) -> Result<bool, Failure> {
    let database = open(&options.dirs)?;
    let report = database.checkpoint()?;
    database.close()?;
    if options.json {
        let report = serde_json::json!({
            "number": report.number,
            "cut_epoch": report.cut_epoch,
            "rows": report.rows,
            "changed_rows": report.changed_rows,
            "bytes": report.bytes,
            "parts": report.parts,
            "seconds": report.seconds,
            "truncated_bytes": report.truncated_bytes,
        });
        println!("{report}");
    } else {
        println!(
            "checkpoint {}: {} rows, {} in {}; {} of log truncated",
            report.number,
            units::exact(report.rows),
            units::bytes(report.bytes as f64),
            units::time(report.seconds),
            units::bytes(report.truncated_bytes as f64)
        );
    }
    Ok(true)
}

/// Opens a database with the settings of its last opening.
fn open(dirs: &[PathBuf]) -> Result<Database, Failure> {
    let manifest = existing::find(dirs, hyades_wal::open)?.manifest().clone();
    let bar = Arc::new(Bar::new("recovering", 1));
    existing::as_it_was(&manifest, |builder| {
        let shown = bar.clone();
        let builder = dirs.iter().skip(1).fold(builder, |builder, dir| builder.log_dir(dir));
        // No transactions run beside the checkpoint, so it may use all processors.
        builder.checkpoint_share(1.0).on_progress(move |p| shown.show(p)).open(&dirs[0])
    })
}
