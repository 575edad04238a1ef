//! Workloads: YCSB, TPC-C and bank transfers, as stored procedures that run data-logged and
//! command-logged alike.
//!
//! Everything random is drawn outside the procedures, from a generator that the caller seeds; the
//! population follows from its seed alone.
#![forbid(unsafe_code)]

pub mod bank;
mod bytes;
pub mod tpcc;
pub mod ycsb;
pub mod zipf;

#[cfg(test)]
mod oracle;

use hyades::{Abort, Error, Transaction};
use std::fmt;

/// A transaction ends with this [`Abort::User`] if a row is missing that must be there: the
/// database was not populated, or otherwise than the workload is set.
pub const MISSING_ROW: i64 = -1;

/// Runs a closure in a read-only transaction: a database, or a test's oracle.
pub trait Reader {
    /// Runs `body`.
    ///
    /// # Errors
    /// The database's; and an abort other than a conflict becomes an error.
    fn read<T>(&self, body: impl Fn(&Transaction<'_>) -> Result<T, Abort>) -> Result<T, Error>;
}

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
