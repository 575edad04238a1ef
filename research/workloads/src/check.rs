//! Consistency checks: their reads, and their findings.

use hyades::{Abort, Error, Transaction};
use std::fmt;

/// Ends a transaction with this [`Abort::User`] if a required row is missing: the database was not
/// populated, or with other settings than the workload's.
pub const MISSING_ROW: i64 = -1;

/// Returns a required row, or ends the transaction.
pub(crate) fn found<T>(row: Option<T>) -> Result<T, Abort> {
    row.ok_or(Abort::User(MISSING_ROW))
}

/// Ends the transaction if a required row was not there to be changed.
pub(crate) fn done(was_there: bool) -> Result<(), Abort> {
    if was_there { Ok(()) } else { Err(Abort::User(MISSING_ROW)) }
}

/// A finding of a consistency check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The condition's number.
    pub condition: u8,
    /// The difference, and its place.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "condition {}: {}", self.condition, self.text)
    }
}

/// Runs closures in read-only transactions: a database, or the oracle of the tests.
pub trait Reader {
    /// Runs `body` in a transaction.
    ///
    /// # Errors
    /// The database's; an abort other than a conflict becomes an error.
    fn read<T>(&self, body: impl Fn(&Transaction<'_>) -> Result<T, Abort>) -> Result<T, Error>;
}
