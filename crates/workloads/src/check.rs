//! Consistency checks: how they read, and what they report.

use hyades::{Abort, Error, Transaction};
use std::fmt;

/// A transaction ends with this [`Abort::User`] if a row is missing that must be there: the
/// database was not populated, or otherwise than the workload is set.
pub const MISSING_ROW: i64 = -1;

/// Something that a consistency check found wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The condition's number.
    pub condition: u8,
    /// What differs, where.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "condition {}: {}", self.condition, self.text)
    }
}

/// Runs a closure in a read-only transaction: a database, or a test's oracle.
pub trait Reader {
    /// Runs `body`.
    ///
    /// # Errors
    /// The database's; and an abort other than a conflict becomes an error.
    fn read<T>(&self, body: impl Fn(&Transaction<'_>) -> Result<T, Abort>) -> Result<T, Error>;
}
