//! The error type of commands.

use std::fmt::Display;

/// A command's failure. It decides the exit code.
#[derive(Debug)]
pub enum Failure {
    /// Wrong usage: exit code 2. One sentence that says what would be right; of a setting of a
    /// server, behind the line that is wrong.
    Usage(String),
    /// The command failed, or a check does not hold: exit code 1.
    Failed(String),
}

impl Failure {
    /// For `map_err`: puts what was being done before the error.
    pub fn doing<E: Display>(what: impl Display) -> impl FnOnce(E) -> Failure {
        move |error| Failure::Failed(format!("{what}: {error}"))
    }
}

impl From<hyades::Error> for Failure {
    fn from(error: hyades::Error) -> Self {
        match error {
            hyades::Error::Misuse(text) => Failure::Usage(text),
            other => Failure::Failed(other.to_string()),
        }
    }
}

impl From<hyades_wal::Error> for Failure {
    fn from(error: hyades_wal::Error) -> Self {
        Failure::Failed(error.to_string())
    }
}
