//! TATP, the Telecom Application Transaction Processing benchmark, version 1.0: the register of the
//! subscribers of a mobile network, and seven short transactions; 80 % of the load only reads.
//!
//! Several transactions name rows that may be missing, or insert a row that may exist. The
//! specification counts both cases as failures that are part of the load; here they are rollbacks.
//!
//! Departures from the specification: inputs have a subscriber's number; procedures form the string
//! `sub_nbr` from the number, and look the subscriber up by the string. An inserted call forwarding
//! ends 1 to 8 hours after its start, as in the population, so that no forwarding ends before its
//! start. Foreign keys are checked by the procedures.

mod check;
mod input;
mod population;
mod procedures;
pub mod schema;
#[cfg(test)]
pub(crate) mod tests;
mod workload;

pub use check::check;
pub use input::{TatpInput, TatpInputs, non_uniform_mask};
pub use population::{TatpPopulate, parts, populate};
pub use procedures::*;
pub use workload::Tatp;

/// Settings of the workload.
#[derive(Clone, Copy, Debug)]
pub struct TatpConfig {
    /// Subscribers, numbered from 1.
    pub subscribers: u32,
    /// The seed of the population.
    pub seed: u64,
}

impl Default for TatpConfig {
    fn default() -> Self {
        TatpConfig { subscribers: 100_000, seed: 1 }
    }
}
