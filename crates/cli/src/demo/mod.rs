//! `hyades demo`: no acknowledged transaction is lost, shown on this machine in about a minute.
//!
//! A child process runs bank transfers and TPC-C at once; every acknowledgement goes through a pipe
//! to this process, which journals it. The child is killed at a random moment, the database is
//! recovered, and the journal is held against it. Killing a process leaves the system's page cache
//! alone, so a second round runs on a device that keeps what is not synced in the child's memory:
//! the kill is a power cut there.

pub mod check;
pub mod child;
mod journal;
mod round;
mod screen;
mod work;

use crate::failure::Failure;
use crate::units;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use work::Size;

/// Options of `hyades demo`. It needs none.
#[derive(Args, Clone, Debug)]
pub struct DemoOptions {
    /// Seed of the moments at which processes are killed, and of the inputs [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// Run for at most so long in each round before the kill
    #[arg(long, default_value = "12", value_parser = units::some_seconds)]
    seconds: f64,
    /// Log streams
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    streams: u32,
    /// A device whose sync does nothing: shows that the check can fail
    #[arg(long, hide = true)]
    lying_sync: bool,
    /// A small database
    #[arg(long, hide = true)]
    small: bool,
}

/// What the log of a round is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Medium {
    /// Files.
    Files,
    /// Files that keep only what is synced.
    PowerCut {
        /// Syncs do nothing.
        lying: bool,
    },
}

/// What a round's processes are told.
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

/// `hyades demo`. True if everything holds.
///
/// # Errors
/// A process could not be started, or a database did not open.
pub fn demo(options: &DemoOptions) -> Result<bool, Failure> {
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    let mut random = fastrand::Rng::with_seed(seed);
    let rounds = [
        ("killed", "a process killed with SIGKILL; its log in files", Medium::Files),
        (
            "power cut",
            "a power cut; whatever was not synced is gone, some sectors of it written early",
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
