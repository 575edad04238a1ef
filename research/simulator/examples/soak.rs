//! Runs a soak test, see `hyades_simulator::soak`.
//!
//! `cargo run --release -p hyades-simulator --example soak -- --seconds 600`

use hyades_simulator::soak::{CHILD, run_child, soak};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The allocator of programs that allocate on many threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // A life names its protocol, which may be one of the schemes.
    hyades_schemes::register();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [kind, dir, life] = &arguments[..]
        && kind == CHILD
    {
        run_child(Path::new(dir), &serde_json::from_str(life).expect("the parent wrote it"));
        return ExitCode::FAILURE;
    }
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)
    };
    let seconds = value("--seconds").and_then(|s| s.parse().ok()).unwrap_or(60.0);
    let seed = value("--seed").and_then(|s| s.parse().ok());
    let below = value("--dir").map_or_else(std::env::temp_dir, PathBuf::from);
    match soak(seconds, seed.unwrap_or_else(|| fastrand::u64(..1 << 48)), &below) {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("{wrong}");
            ExitCode::FAILURE
        }
    }
}
