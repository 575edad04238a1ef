//! Workloads: YCSB, TPC-C and bank transfers, as stored procedures that run data-logged and
//! command-logged alike.
//!
//! Everything random is drawn outside the procedures, from a generator that the caller seeds; the
//! population follows from its seed alone.
#![forbid(unsafe_code)]

pub mod bank;
mod bytes;
mod check;
pub mod tpcc;
pub mod ycsb;
pub mod zipf;

#[cfg(test)]
mod oracle;

pub use check::{MISSING_ROW, Reader, Violation};
