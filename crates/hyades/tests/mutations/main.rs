//! Mutation tests: each rule, broken on purpose, is noticed. The broken rule is global to the
//! process, so one test runs at a time.
#![allow(missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod archive;
mod checkpoint;
mod hekaton;
mod lease;
mod session_order;
mod snapshot;
mod sums;
