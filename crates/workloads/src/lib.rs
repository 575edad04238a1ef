//! Workloads: YCSB, TPC-C and bank transfers, as stored procedures that run data-logged and
//! command-logged alike.
//!
//! Everything random is drawn outside the procedures, from a generator that the caller seeds; the
//! population follows from its seed alone.
#![forbid(unsafe_code)]

mod bytes;
pub mod tpcc;
pub mod zipf;

#[cfg(test)]
mod oracle;

use std::fmt;

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
