//! Runs the program as a script would.

#[path = "../../../../crates/cli/tests/common/output.rs"]
mod output;

pub use output::{code, stderr, stdout};
use std::process::{Command, Output};

/// Runs `hyades-lab` with `words`, separated by spaces, and then the arguments `more`.
pub fn lab(words: &str, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hyades-lab"))
        .args(words.split_whitespace())
        .args(more)
        .output()
        .expect("the program starts")
}
