//! Transactions: what a caller may do, online and at replay. What a transaction remembers until it
//! ends is in [`crate::concurrency::state`].

pub(crate) mod access;
mod checking;
pub mod for_tests;
mod indexing;
pub(crate) mod procedure;
pub(crate) mod running;
mod scanning;
