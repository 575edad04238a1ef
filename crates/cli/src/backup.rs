//! `hyades backup`: copies a database that no process has open.

use crate::data_place::{self, DataPlace};
use crate::existing;
use crate::failure::Failure;
use crate::log::component::is_of_component;
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
    /// The data of a database of hyades-deuteronomy, as in redb:FILE
    #[arg(long, value_name = "KIND:PATH", requires = "data_out")]
    data: Option<DataPlace>,
    /// With --data, the place for the copy of the data, of the same or of another kind
    #[arg(long, value_name = "KIND:PATH", requires = "data")]
    data_out: Option<DataPlace>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Runs `hyades backup`.
///
/// # Errors
/// There is no database, or the database is in use or damaged, or the copy cannot be made.
pub fn backup(options: &BackupOptions) -> Result<bool, Failure> {
    let manifest = existing::find(&options.dirs, hyades_wal::open_read)?.manifest().clone();
    data_place::check_needed(is_of_component(&manifest), options.data.as_ref())?;
    if let (Some(data), Some(data_out)) = (&options.data, &options.data_out) {
        return backup_component(options, data, data_out);
    }
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

/// Backs up a database of a transaction component.
fn backup_component(
    options: &BackupOptions,
    data: &DataPlace,
    data_out: &DataPlace,
) -> Result<bool, Failure> {
    let (from, into) = (data.open()?, data_out.make()?);
    let backup = hyades_deuteronomy::backup(&options.dirs, &*from, &options.out, &*into)?;
    let seconds = backup.duration.as_secs_f64();
    if options.json {
        let report = serde_json::json!({
            "timestamp": backup.timestamp,
            "keys": backup.keys,
            "data_bytes": backup.data_bytes,
            "log_bytes": backup.log_bytes,
            "seconds": seconds,
        });
        println!("{report}");
    } else {
        println!(
            "{} keys with {} copied to {}, and {} of log to {}, in {}; verified by reading the \
             copies back",
            units::exact(backup.keys),
            units::bytes(backup.data_bytes as f64),
            data_out.path().display(),
            units::bytes(backup.log_bytes as f64),
            options.out.display(),
            units::time(seconds)
        );
    }
    Ok(true)
}
