//! `hyades demo`: shows in about two minutes that no acknowledged transaction is lost.
//!
//! A child process runs bank transfers and TPC-C at once. Every acknowledgement goes through a pipe
//! to this process, which writes it to a journal. The child is killed at a random moment, and the
//! recovered database is compared with the journal. Killing a process does not lose the system's
//! page cache, so a second round runs on a device that keeps unsynced data in the child's memory:
//! there the kill acts as a power cut.

pub mod check;
pub mod child;
mod journal;
#[cfg(feature = "replication")]
mod replicated;
mod round;
mod screen;
mod server;
mod work;

use clap::Args;
use hyades_cli::failure::Failure;
use hyades_cli::units;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use work::Size;

/// Options of `hyades demo`. It needs none.
#[derive(Args, Clone, Debug)]
pub struct DemoOptions {
    /// Seed of the random numbers: when to kill, and what the transactions do [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// Longest time that each of the two rounds runs before the kill: seconds, or a number with a
    /// unit
    #[arg(long, value_name = "TIME", default_value = "12", value_parser = units::some_seconds)]
    seconds: f64,
    /// Log streams, 1 to 64
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    streams: u32,
    /// Kill `hyades serve` under clients instead, and `redis-server`, if there is one, beside it
    #[arg(long, conflicts_with = "lying_sync")]
    server: bool,
    /// Start three NATS servers and three members of a replicated database instead, kill the
    /// primary, a NATS server, and then all, and check that nothing acknowledged is missing;
    /// clients run for a quarter of --seconds before, between and after
    #[arg(long, conflicts_with_all = ["lying_sync", "server"])]
    replicated: bool,
    /// The program nats-server for --replicated [default: HYADES_NATS_SERVER, or of the PATH]
    #[arg(long, value_name = "FILE", requires = "replicated")]
    #[cfg_attr(not(feature = "replication"), allow(dead_code, reason = "it is refused there"))]
    nats_server: Option<PathBuf>,
    /// Use a device whose sync does nothing, to show that the check can fail
    #[arg(long, hide = true)]
    lying_sync: bool,
    /// Use a small database
    #[arg(long, hide = true)]
    small: bool,
}

/// The storage of a round's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Medium {
    /// Files.
    Files,
    /// Files that keep only synced data.
    PowerCut {
        /// Whether syncs do nothing.
        lying: bool,
    },
}

/// Settings of a round's child processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RoundSettings {
    dir: PathBuf,
    medium: Medium,
    streams: usize,
    seed: u64,
    size: Size,
    /// Threads that recover; 0 for all cores.
    recovery_threads: usize,
    /// Where the journal is.
    journal: PathBuf,
}

/// Runs `hyades demo`. True if all checks hold.
///
/// # Errors
/// A process could not be started, or a database did not open.
pub fn demo(options: &DemoOptions) -> Result<bool, Failure> {
    if options.server {
        return server::demo(options);
    }
    if options.replicated {
        return replicated(options);
    }
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    let mut random = fastrand::Rng::with_seed(seed);
    let rounds = [
        ("killed", "a process killed with SIGKILL; its log is in files", Medium::Files),
        (
            "power cut",
            "a power cut; unsynced data is lost, except for some sectors written early",
            Medium::PowerCut { lying: options.lying_sync },
        ),
    ];
    let mut results = Vec::new();
    for (number, (name, what, medium)) in rounds.into_iter().enumerate() {
        eprintln!("round {}: {what}", number + 1);
        let plan = round::Plan {
            medium,
            streams: options.streams as usize,
            seed: random.u64(..),
            size: if options.small { Size::SMALL } else { Size::USUAL },
            kill_after: options.seconds * (0.6 + 0.4 * random.f64()),
        };
        results.push((name, round::run(&plan)?));
    }
    let holds = results.iter().all(|(_, round)| round.holds());
    print!("{}", screen::screen(&results, seed));
    Ok(holds)
}

#[cfg(feature = "replication")]
fn replicated(options: &DemoOptions) -> Result<bool, Failure> {
    replicated::demo(options)
}

#[cfg(not(feature = "replication"))]
fn replicated(_: &DemoOptions) -> Result<bool, Failure> {
    hyades_cli::failure::usage(
        "this program was built without replication: build it with cargo build --release \
         -p hyades-cli --features replication",
    )
}
