//! Workloads: YCSB, TPC-C, SmallBank, TATP, Voter and bank transfers, as stored procedures that run
//! both data-logged and command-logged.
//!
//! All random inputs are drawn outside the procedures, from a generator that the caller seeds; the
//! population depends only on its seed. A driver runs any workload through [`Workload`].
#![forbid(unsafe_code)]

pub mod bank;
mod bytes;
mod check;
pub mod smallbank;
pub mod tatp;
pub mod tpcc;
pub mod voter;
mod workload;
pub mod ycsb;
pub mod zipf;

#[cfg(test)]
mod engine_tests;
#[cfg(test)]
mod oracle;

pub use check::{MISSING_ROW, Reader, Violation};
pub use workload::{Calls, Outcome, Workload, populate};
