//! Promises of logging protocols, one module for each protocol or for a promise of several.
#![allow(missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod combinations;
mod commands;
mod heads;
mod incarnations;
mod levels;
mod marks;
mod odd_logs;
mod recoverability;
mod serial_fallback;
mod session_order;
mod versions;
mod waiting_replay;
