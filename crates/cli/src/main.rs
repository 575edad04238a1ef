//! `hyades`: the command line.
//!
//! Results go to standard output, everything else to standard error. Exit code 0 means that what
//! the command checks holds, 1 that it does not, 2 wrong usage.
#![deny(unsafe_code)]

mod backup;
mod bench;
mod checkpoint;
mod children;
mod demo;
mod device;
mod existing;
mod failure;
mod log;
mod machine;
mod memory;
mod paper;
mod place;
mod progress;
mod recover;
mod runner;
mod serve;
mod simulate;
mod torture;
mod units;
mod verify;
mod words;

use clap::{Parser, Subcommand};
use failure::Failure;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: memory::CountingAllocator = memory::CountingAllocator;

/// Hyades: an in-memory, serializable, durable transactional database
///
/// Results go to standard output, everything else to standard error. Exit code 0: success, and all
/// checks hold; 1: a check does not hold, or the command failed; 2: wrong usage.
#[derive(Parser)]
#[command(name = "hyades", version, arg_required_else_help = true, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Kill a running database, recover it, and check that no acknowledged transaction is missing
    Demo(demo::DemoOptions),
    /// Run a workload and measure it, all of them under every protocol, or repeat the papers'
    /// experiments
    #[command(subcommand, after_help = bench::help::CHOICES)]
    Bench(Box<bench::options::Bench>),
    /// Take a checkpoint of a database that is not open, so that it opens faster and its log is
    /// shorter
    ///
    /// Replaying command records needs the procedures that they call; this program has only those
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
    /// backup. The original is not changed.
    ///
    /// Replaying command records needs the procedures that they call; this program has only those
    /// of its own workloads. For other databases call Builder::restore.
    Recover(recover::RecoverOptions),
    /// Read all of a database and report everything that is damaged or missing
    ///
    /// Checks every file, every block of the checkpoint, every frame and record of the log, and
    /// that no durable data is missing. It continues after damage and names each damaged place.
    /// Nothing is changed. Exit code 1 if anything is damaged.
    Verify(log::Dirs),
    /// Estimate the throughput of a larger machine from costs measured on this one
    ///
    /// A discrete-event model of YCSB with one simulated core for each worker. Its costs are
    /// measured first, by short runs of the benchmark, unless --calibration names a file with them.
    /// The results are computed, not measured.
    Simulate(simulate::SimulateOptions),
    /// Run random histories on simulated disks that fail, and check what is recovered
    Torture(torture::TortureOptions),
    /// Serve clients that speak Redis's protocol; every OK is on disk before it is sent
    ///
    /// Without arguments: port 6379 of this machine, and the directory hyades-data, which is
    /// created. Settings have Redis's names and values, from a file, from variables HYADES_NAME, or
    /// from flags, of which later ones count; docs/server/settings.md lists them. --tls-port N with
    /// --tls-cert-file, --tls-key-file and --tls-ca-cert-file takes encrypted connections. Prints
    /// "ready on ADDRESS:PORT" when it takes commands. Exit code 0 after SIGTERM, 1 if the log
    /// failed or the database cannot be opened, 2 for a wrong setting.
    Serve(serve::ServeOptions),
    /// Ask a server for a sign of life
    Ping(serve::PingOptions),
    /// Inspect a log
    #[command(subcommand)]
    Log(log::Log),
    /// Child processes of this program
    #[command(subcommand, hide = true)]
    Hidden(Hidden),
}

#[derive(Subcommand)]
enum Hidden {
    BenchRun,
    BenchRecover,
    DemoChild,
    DemoRecover,
    DemoCheck,
}

fn hidden(command: &Hidden) -> Result<bool, Failure> {
    match command {
        Hidden::BenchRun => {
            children::tell(&bench::run(&children::settings()?)?)?;
            children::crash()
        }
        Hidden::DemoChild => demo::child::run(&children::settings()?)?,
        Hidden::DemoRecover => {
            children::tell(&demo::check::recover(&children::settings()?, false)?)?;
        }
        Hidden::DemoCheck => {
            children::tell(&demo::check::recover(&children::settings()?, true)?)?;
        }
        Hidden::BenchRecover => children::tell(&bench::recover(&children::settings()?)?)?,
    }
    Ok(true)
}

/// The arguments. A link whose name ends in `redis-server` serves: what starts Redis starts this.
fn arguments() -> Vec<OsString> {
    let mut all: Vec<OsString> = std::env::args_os().collect();
    let program = all.first().and_then(|program| Path::new(program).file_name());
    if program.is_some_and(|name| name.as_encoded_bytes().ends_with(b"redis-server")) {
        all.insert(1, "serve".into());
    }
    all
}

fn main() -> ExitCode {
    let result = match Arguments::parse_from(arguments()).command {
        Command::Bench(options) => bench::bench(*options),
        Command::Checkpoint(options) => checkpoint::checkpoint(&options),
        Command::Demo(options) => demo::demo(&options),
        Command::Backup(options) => backup::backup(&options),
        Command::Recover(options) => recover::recover(&options),
        Command::Verify(dirs) => log::log(log::Log::Verify(dirs)),
        Command::Simulate(options) => simulate::simulate(&options),
        Command::Torture(options) => torture::torture(&options),
        Command::Log(command) => log::log(command),
        Command::Serve(options) => serve::serve(&options),
        Command::Ping(options) => serve::ping(&options),
        Command::Hidden(command) => hidden(&command),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(Failure::Failed(text)) => {
            let _ = writeln!(std::io::stderr(), "hyades: {text}");
            ExitCode::from(1)
        }
        Err(Failure::Usage(text)) => {
            let _ = writeln!(std::io::stderr(), "hyades: {text}");
            ExitCode::from(2)
        }
    }
}
