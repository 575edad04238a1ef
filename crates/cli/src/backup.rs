//! `hyades backup`: copies a database that no process has open.

use crate::existing;
use crate::failure::Failure;
use crate::units;
use clap::Args;
use std::path::PathBuf;

/// Options of `hyades backup`.
#[derive(Args, Clone, Debug)]
pub struct BackupOptions {
    /// All directories of the database, in any order
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Directory for the copy; it must be empty or absent
    #[arg(long, value_name = "NEW")]
    out: PathBuf,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Runs `hyades backup`.
///
/// # Errors
/// There is no database, or the database is in use or damaged, or the copy cannot be made.
pub fn backup(options: &BackupOptions) -> Result<bool, Failure> {
    drop(existing::find(&options.dirs, hyades_wal::open_read)?);
    let report = hyades::backup(&options.dirs, &options.out)?;
    if options.json {
        let report = serde_json::json!({
            "files": report.files,
            "bytes": report.bytes,
            "seconds": report.seconds,
        });
        println!("{report}");
    } else {
        println!(
            "{} in {} files copied to {} in {}; verified by reading the copy back",
            units::bytes(report.bytes as f64),
            units::exact(report.files),
            options.out.display(),
            units::time(report.seconds)
        );
    }
    Ok(true)
}
