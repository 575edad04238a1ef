//! Logging protocols.

pub(crate) mod arrival;
mod counters;
pub(crate) mod gsn;
pub(crate) mod physiological;
pub(crate) mod plover;
pub(crate) mod poplar;
pub(crate) mod silo_r;
pub(crate) mod taurus_2016;
