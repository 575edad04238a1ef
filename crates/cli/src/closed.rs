//! The commands on databases that no process has open.

use crate::failure::Failure;
use crate::{backup, checkpoint, log, prune, recover, verify};
use clap::Subcommand;

/// A command on a closed or crashed database.
#[derive(Subcommand, Clone, Debug)]
pub enum Closed {
    /// Take a checkpoint of a database that is not open, so that it opens faster and its log is
    /// shorter
    ///
    /// Replaying command records needs the called procedures; this program has only the procedures
    /// of its own workloads. For other databases, and while the database is open, call
    /// Database::checkpoint. The log before the checkpoint is truncated: take a backup first if you
    /// may want to recover to an earlier time.
    Checkpoint(checkpoint::CheckpointOptions),
    /// Copy a closed or crashed database to a new directory, from which it can be opened
    ///
    /// A running program copies its own database with Database::backup, while transactions
    /// continue.
    Backup(backup::BackupOptions),
    /// Recover a database to a point in time, or salvage a damaged one, into a new directory
    ///
    /// Recovery stops between two epochs, which are about 10 ms long; the command prints which. The
    /// earliest point is the last checkpoint of the database; for an earlier one, recover from a
    /// backup, with the archive of the log (--archive) to any point after the backup. The original
    /// is not changed.
    ///
    /// Replaying command records needs the called procedures; this program has only the procedures
    /// of its own workloads. For other databases call Builder::restore.
    Recover(recover::RecoverOptions),
    /// Remove from the archive of a log what no backup needs
    ///
    /// Given the oldest backup still to be recovered from, removes the segments before it.
    Prune(prune::PruneOptions),
    /// Read all of a database and report everything that is damaged or missing
    ///
    /// Checks every file, every block of the checkpoint, every frame and record of the log, and
    /// that no durable data is missing. It continues after damage and names each damaged place.
    /// Nothing is changed. Exit code 1 if anything is damaged.
    Verify(verify::DatabaseOptions),
    /// Inspect a log
    #[command(subcommand)]
    Log(log::Log),
}

impl Closed {
    /// Runs the command. True if all checks hold.
    ///
    /// # Errors
    /// Those of the command.
    pub fn run(self) -> Result<bool, Failure> {
        match self {
            Closed::Checkpoint(options) => checkpoint::checkpoint(&options),
            Closed::Backup(options) => backup::backup(&options),
            Closed::Recover(options) => recover::recover(&options),
            Closed::Prune(options) => prune::prune(&options),
            Closed::Verify(options) => log::log(log::Log::Verify(options)),
            Closed::Log(command) => log::log(command),
        }
    }
}
