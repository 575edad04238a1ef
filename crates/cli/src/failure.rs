//! The error type of commands.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

/// A command's failure, with its exit code.
#[derive(Debug)]
pub enum Failure {
    /// Wrong usage: exit code 2. A sentence with the right form; for a setting of a server, behind
    /// the wrong line.
    Usage(String),
    /// The command failed, or a check does not hold: exit code 1.
    Failed(String),
}

impl Failure {
    /// For `map_err`: puts the failed action before the error.
    pub fn doing<E: Display>(what: impl Display) -> impl FnOnce(E) -> Failure {
        move |error| Failure::Failed(format!("{what}: {error}"))
    }
}

/// Returns a failure of wrong usage with this sentence.
///
/// # Errors
/// Always.
pub fn usage<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Usage(text.into()))
}

impl From<hyades::Error> for Failure {
    fn from(error: hyades::Error) -> Self {
        match error {
            hyades::Error::Misuse(text) => Failure::Usage(text),
            other => Failure::Failed(other.to_string()),
        }
    }
}

impl From<hyades_deuteronomy::Error> for Failure {
    fn from(error: hyades_deuteronomy::Error) -> Self {
        Failure::Failed(error.to_string())
    }
}

impl From<hyades_wal::Error> for Failure {
    fn from(error: hyades_wal::Error) -> Self {
        Failure::Failed(error.to_string())
    }
}

/// The exit code of `program` after a result; a failure is printed on standard error.
pub fn exit_code(program: &str, result: Result<bool, Failure>) -> ExitCode {
    let (code, text) = match result {
        Ok(true) => return ExitCode::SUCCESS,
        Ok(false) => return ExitCode::from(1),
        Err(Failure::Failed(text)) => (1, text),
        Err(Failure::Usage(text)) => (2, text),
    };
    let _ = writeln!(std::io::stderr(), "{program}: {text}");
    ExitCode::from(code)
}
