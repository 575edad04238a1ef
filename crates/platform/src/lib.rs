//! The operating system: files, clock, threads, randomness, synchronisation.
//!
//! No other crate of the workspace calls the operating system or names an atomic that a schedule
//! checker should see: they use those of this crate.
#![forbid(unsafe_code)]

pub mod active_epochs;
pub mod clock;
pub mod device;
pub mod epoch;
pub mod event;
pub mod mutation;
pub mod random;
pub mod sync;
pub mod watermark;
