//! The operating system: files, clock, threads, randomness, synchronisation.
//!
//! Files, clocks, devices and waiting of the other crates go through this crate, so a simulation
//! can replace them. Atomics explored by loom come from [`sync`].
#![deny(unsafe_code)]

pub mod active_epochs;
pub mod callback;
pub mod clock;
pub mod device;
pub mod epoch;
pub mod event;
pub mod latency;
pub mod mutation;
pub mod phase;
pub mod prefetch;
pub mod random;
pub mod reclaim;
pub mod resident;
pub mod sync;
pub mod trace;
pub mod watermark;
