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
mod memory;
mod paper;
mod place;
mod progress;
mod recover;
mod simulate;
mod torture;
mod units;
mod verify;
mod words;

use clap::{Parser, Subcommand};
use failure::Failure;
use std::process::ExitCode;

/// Replay allocates rows on all threads at once: a slow allocator would decide its speed.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Hyades: an in-memory, serializable, durable transactional database
///
/// Results go to standard output, everything else to standard error. Exit code 0: what the command checks holds;
/// 1: it does not, or the command failed; 2: wrong usage.
#[derive(Parser)]
#[command(name = "hyades", version, arg_required_else_help = true, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Kill a running database, recover it, and see that nothing acknowledged is missing
    Demo(demo::DemoOptions),
    /// Run a workload and measure it; the papers' experiments
    #[command(subcommand, after_help = bench::help::CHOICES)]
    Bench(Box<bench::options::Bench>),
    /// Take a checkpoint of a database that is not open, so that opening it is quick and its log small
    ///
    /// A log that holds commands needs the procedures that they call; this program has those of its own workloads.
    /// For others, and while the database is open, call Database::checkpoint. What the log tells of the time
    /// before a checkpoint is gone with it: take a backup first if you may want to go back there.
    Checkpoint(checkpoint::CheckpointOptions),
    /// Copy a database that is not open, closed or crashed, to a new directory that opens like it
    ///
    /// A running program copies its own database with Database::backup, while transactions go on.
    Backup(backup::BackupOptions),
    /// Bring a database back to a moment, or save what is left of a damaged one, in a new directory
    ///
    /// Moments are cuts between epochs, which are some 10 ms long; the command says which it took. They reach back
    /// to the last checkpoint, and as far as that of each backup that was kept. The original is not changed.
    ///
    /// A log that holds commands needs the procedures that they call; this program has those of its own workloads.
    /// For others call Builder::restore.
    Recover(recover::RecoverOptions),
    /// Read all of a database, and say exactly what is whole and what is not
    ///
    /// Every file, every block of the checkpoint, every frame and record of the log, and that nothing durable is
    /// missing. It goes on behind what is damaged and names each place. Nothing is changed. Exit code 1 if
    /// anything is damaged.
    Verify(log::Dirs),
    /// Compute what a larger machine would do, with the costs of this one
    ///
    /// A discrete-event model of YCSB, one simulated core for each worker. Its costs are measured first, by
    /// short runs of the benchmark, unless --calibration has them. What it prints was computed, not run.
    Simulate(simulate::SimulateOptions),
    /// Run random histories on disks that fail, and check what is recovered
    Torture(torture::TortureOptions),
    /// Look into a log
    #[command(subcommand)]
    Log(log::Log),
    /// The program's own child processes
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

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Bench(options) => bench::bench(*options),
        Command::Checkpoint(options) => checkpoint::checkpoint(&options),
        Command::Demo(options) => demo::demo(&options),
        Command::Backup(options) => backup::backup(&options),
        Command::Recover(options) => recover::recover(&options),
        Command::Verify(dirs) => log::log(log::Log::Verify(dirs)),
        Command::Simulate(options) => simulate::simulate(&options),
        Command::Torture(options) => torture::torture(&options),
        Command::Log(command) => log::log(command),
        Command::Hidden(command) => hidden(&command),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(Failure::Failed(text)) => {
            eprintln!("hyades: {text}");
            ExitCode::from(1)
        }
        Err(Failure::Usage(text)) => {
            eprintln!("hyades: {text}");
            ExitCode::from(2)
        }
    }
}
