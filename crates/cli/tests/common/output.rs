//! The output of a program, and its exit code.

use std::process::Output;

/// The exit code of a program; a signal is an error.
pub fn code(output: &Output) -> i32 {
    output.status.code().expect("it ended by itself")
}

/// The output of a program on standard output.
pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("it prints text")
}

/// The output of a program on standard error.
pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("it prints text")
}
