//! A discrete-event model of logging and replay, for machines larger than the one at hand.
//!
//! Workers, the cache lines that they share, log buffers, devices and replay are modelled; the
//! protocols keep their own stamps and acknowledge by their own rules ([`rules`]). What each step
//! costs is measured on the machine at hand ([`costs`]). The workload is YCSB: two accesses, each a
//! read or a write with equal probability.
#![forbid(unsafe_code)]

pub mod costs;
pub mod forward;
pub mod machine;
pub mod replay;
pub mod rules;
