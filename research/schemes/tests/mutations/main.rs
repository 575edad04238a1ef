//! Mutation tests: each rule of the schemes, broken on purpose, is noticed. The broken rule is
//! global to the process, so one test runs at a time.
#![allow(missing_docs)]

#[path = "../../../../crates/hyades/tests/common/mod.rs"]
mod common;

mod arrival;
mod partitioned;
mod poplar;
mod taurus_2016;
mod tictoc;
mod timestamp_order;
mod wait_die;
