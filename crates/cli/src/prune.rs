//! `hyades prune`: removes from the archive of a log what no backup needs.

use crate::existing;
use crate::failure::Failure;
use crate::units;
use clap::Args;
use hyades_platform::device::FileDevice;
use std::path::PathBuf;

/// Options of `hyades prune`.
#[derive(Args, Clone, Debug)]
pub struct PruneOptions {
    /// The archive: the setting log-archive of the server, or LogSettings::archive
    #[arg(value_name = "ARCHIVE")]
    archive: PathBuf,
    /// The oldest backup still to be recovered from, with later ones
    #[arg(long, value_name = "BACKUP")]
    before: PathBuf,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Runs `hyades prune`.
///
/// # Errors
/// The directories are no archive and no backup of one database; a file cannot be removed.
pub fn prune(options: &PruneOptions) -> Result<bool, Failure> {
    let backup = existing::find(std::slice::from_ref(&options.before), hyades_wal::open_read)?;
    let device = FileDevice::shared();
    let pruned = hyades_wal::prune_archive(&*device, &options.archive, backup.manifest())?;
    if options.json {
        println!("{}", serde_json::json!({ "files": pruned.files, "bytes": pruned.bytes }));
    } else {
        println!(
            "{} in {} segments removed from {}",
            units::bytes(pruned.bytes as f64),
            units::exact(pruned.files),
            options.archive.display()
        );
    }
    Ok(true)
}
