//! The shared parts of the programs `hyades` and `hyades-lab`: commands on databases that no
//! process has open, child processes, memory, progress, and units of sizes and times.
#![deny(unsafe_code)]

pub mod backup;
pub mod checkpoint;
pub mod children;
pub mod closed;
pub mod data_place;
pub mod existing;
pub mod failure;
pub mod log;
pub mod machine;
pub mod memory;
pub mod place;
pub mod progress;
pub mod prune;
pub mod record;
pub mod recover;
pub mod units;
pub mod verify;
pub mod words;

/// The tests of this crate measure the counts of the programs' allocator.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: memory::CountingAllocator = memory::CountingAllocator;
