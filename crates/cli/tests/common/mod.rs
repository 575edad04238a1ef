//! Runs the program as a script would.

mod output;

pub use output::{code, stderr, stdout};
use std::process::{Command, Output};

/// Runs `hyades` with `words`, separated by spaces, and then the further arguments.
pub fn hyades(words: &str, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hyades"))
        .args(words.split_whitespace())
        .args(more)
        .output()
        .expect("the program starts")
}
