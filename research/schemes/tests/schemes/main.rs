//! Promises of the schemes, one module for each protocol and control. Promises of all protocols and
//! controls are among the tests of `hyades`.
#![allow(missing_docs)]

#[path = "../../../../crates/hyades/tests/common/mod.rs"]
mod common;

mod arrival;
mod arrival_long;
mod partitioned;
mod poplar;
mod sites;
mod taurus_2016;
mod tictoc;
mod timestamp_order;
mod wait_die;
