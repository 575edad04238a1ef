//! `hyades-lab`: comparisons and proofs: benchmarks of every protocol and control, the papers'
//! experiments, random histories on disks that fail, and a model of larger machines.
//!
//! Results go to standard output, everything else to standard error. Exit code 0: the command's
//! checks hold; 1: a check does not hold; 2: wrong usage.
#![deny(unsafe_code)]

mod bench;
mod device;
mod paper;
mod runner;
mod simulate;
mod torture;

use clap::{Parser, Subcommand};
use hyades_cli::closed::Closed;
use hyades_cli::failure::{self, Failure};
use hyades_cli::{children, memory};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: memory::CountingAllocator = memory::CountingAllocator;

/// The laboratory of Hyades: benchmarks, the papers' experiments, torture and simulation
///
/// Results go to standard output, everything else to standard error. Exit code 0: success, and all
/// checks hold; 1: a check does not hold, or the command failed; 2: wrong usage.
#[derive(Parser)]
#[command(name = "hyades-lab", version, arg_required_else_help = true, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a workload and measure it, all of them under every protocol, or repeat the papers'
    /// experiments
    #[command(subcommand, after_help = bench::help::CHOICES)]
    Bench(Box<bench::options::Bench>),
    /// Run random histories on simulated disks that fail, and check what is recovered
    Torture(torture::TortureOptions),
    /// Estimate the throughput of a larger machine from costs measured on this one
    ///
    /// A discrete-event model of YCSB with one simulated core for each worker. Its costs are
    /// measured first, by short runs of the benchmark, unless --calibration names a file with them.
    /// The results are computed, not measured.
    Simulate(simulate::SimulateOptions),
    #[command(flatten)]
    Closed(Closed),
    /// Child processes of this program
    #[command(subcommand, hide = true)]
    Hidden(Hidden),
}

#[derive(Subcommand)]
enum Hidden {
    BenchRun,
    BenchRecover,
}

fn hidden(command: &Hidden) -> Result<bool, Failure> {
    match command {
        Hidden::BenchRun => {
            children::tell(&bench::run(&children::settings()?)?)?;
            children::crash()
        }
        Hidden::BenchRecover => children::tell(&bench::recover(&children::settings()?)?)?,
    }
    Ok(true)
}

fn main() -> ExitCode {
    hyades_schemes::register();
    let result = match Arguments::parse().command {
        Command::Bench(options) => bench::bench(*options),
        Command::Torture(options) => torture::torture(&options),
        Command::Simulate(options) => simulate::simulate(&options),
        Command::Closed(command) => command.run(),
        Command::Hidden(command) => hidden(&command),
    };
    failure::exit_code("hyades-lab", result)
}
