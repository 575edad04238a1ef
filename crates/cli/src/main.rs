//! `hyades`: the database from the command line: a server, a demonstration, a short measurement,
//! and commands on closed databases.
//!
//! Results go to standard output, everything else to standard error. Exit code 0 means that the
//! checks of the command hold, 1 that a check does not hold, 2 wrong usage.
#![deny(unsafe_code)]

mod bench;
mod dc;
mod demo;
#[cfg(feature = "replication")]
mod member;
mod moving;
#[cfg(feature = "replication")]
mod replication;
mod serve;

use clap::{Parser, Subcommand};
use hyades_cli::closed::Closed;
use hyades_cli::failure::{self, Failure};
use hyades_cli::{children, memory};
use std::ffi::OsString;
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
    /// Serve clients that speak Redis's protocol; every OK is on disk before it is sent
    ///
    /// Without arguments: port 6379 of this machine, and the directory hyades-data, which is
    /// created. Settings have Redis's names and values, from a file, from variables HYADES_NAME, or
    /// from flags, of which later ones count; docs/server/settings.md lists them. --tls-port N with
    /// --tls-cert-file, --tls-key-file and --tls-ca-cert-file takes encrypted connections. Prints
    /// "ready on ADDRESS:PORT" when it takes commands. Exit code 0 after SIGTERM, 1 if the log
    /// failed or the database cannot be opened, 2 for a wrong setting.
    Serve(serve::ServeOptions),
    /// Bring files of Redis into a new database
    ///
    /// Reads an RDB file (of Redis to 7.4, or Valkey 8) or append-only files, on all cores, into
    /// the directory of the setting --dir, whose database has to be empty. An import that was ended
    /// goes on when it is called again. Exit code 1 if something was left out, which is printed.
    Import(moving::ImportOptions),
    /// Write a server's database, which is not open, into an RDB file of Redis 7.0
    Export(moving::ExportOptions),
    /// Ask a server for a sign of life
    Ping(serve::PingOptions),
    /// Measure transfers between accounts on this machine, each on disk before it counts
    ///
    /// Workers transfer money between random accounts, and record each transfer as a row. Printed
    /// are transfers acknowledged per second, the latency to the acknowledgement, and bytes of log.
    /// hyades-lab bench measures other workloads, protocols and devices.
    Bench(bench::BenchOptions),
    /// Serve the data of a database of hyades-deuteronomy, whose log is in another process
    ///
    /// The other process connects with RemoteData of the crate hyades-deuteronomy-remote. Prints
    /// "ready on ADDRESS:PORT". Killed at any time, nothing is lost.
    Dc(dc::DcOptions),
    /// Look at a replicated log, and measure its service
    #[cfg(feature = "replication")]
    #[command(subcommand)]
    Replication(replication::Replication),
    #[command(flatten)]
    Closed(Closed),
    /// Child processes of this program
    #[command(subcommand, hide = true)]
    Hidden(Hidden),
}

#[derive(Subcommand)]
#[allow(clippy::enum_variant_names, reason = "they are words of the command line")]
enum Hidden {
    DemoChild,
    DemoRecover,
    DemoCheck,
}

fn hidden(command: &Hidden) -> Result<bool, Failure> {
    match command {
        Hidden::DemoChild => demo::child::run(&children::settings()?)?,
        Hidden::DemoRecover => {
            children::tell(&demo::check::recover(&children::settings()?, false)?)?;
        }
        Hidden::DemoCheck => {
            children::tell(&demo::check::recover(&children::settings()?, true)?)?;
        }
    }
    Ok(true)
}

/// The arguments. A link with a name ending in `redis-server` serves, in the place of Redis.
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
        Command::Demo(options) => demo::demo(&options),
        Command::Serve(options) => serve::serve(&options),
        Command::Import(options) => moving::import(&options),
        Command::Export(options) => moving::export(&options),
        Command::Ping(options) => serve::ping(&options),
        Command::Bench(options) => bench::bench(&options),
        Command::Dc(options) => dc::dc(&options),
        #[cfg(feature = "replication")]
        Command::Replication(command) => replication::replication(&command),
        Command::Closed(command) => command.run(),
        Command::Hidden(command) => hidden(&command),
    };
    failure::exit_code("hyades", result)
}
