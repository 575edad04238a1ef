//! Promises of concurrency controls, and of transactions under all of them.
#![allow(missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod acknowledging;
mod blind;
mod handles;
mod hekaton;
mod hints;
mod posting;
mod serializable;
mod undoing;
