//! Runs the program as a script would.

use std::process::{Command, Output};

/// Runs `hyades` with these words, separated by spaces, and then these arguments.
pub fn hyades(words: &str, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hyades"))
        .args(words.split_whitespace())
        .args(more)
        .output()
        .expect("the program starts")
}

/// Its exit code; a signal is an error.
pub fn code(output: &Output) -> i32 {
    output.status.code().expect("it ended by itself")
}

/// What it printed on standard output.
pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("it prints text")
}

/// What it printed on standard error.
pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("it prints text")
}
