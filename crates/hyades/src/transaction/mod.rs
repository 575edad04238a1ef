//! Transactions: the operations of a body, online and at replay. The state of a running transaction
//! is in [`crate::concurrency::state`].

pub(crate) mod access;
mod checking;
mod entering;
#[cfg(feature = "research")]
pub mod for_tests;
mod gaps;
mod indexing;
pub(crate) mod key;
mod placing;
pub(crate) mod procedure;
pub(crate) mod running;
pub(crate) mod scan;
mod scanning;
mod snapshot_scans;
mod summing;
mod updating;
pub(crate) mod walk;
