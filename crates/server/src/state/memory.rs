//! The memory of the process, and the limit set by `maxmemory`.
//!
//! All bytes allocated and not freed by the program count: keys and values, their indexes, replies
//! that wait for clients, but not the buffers of the log. The program supplies the number
//! ([`Settings::count_memory`](crate::Settings::count_memory)). Without the number, the pages of
//! the process in memory count.
//!
//! A deleted row is freed by later transactions of the session that has deleted the row. While
//! writes are refused there may be no transactions, so the event loops run empty transactions.

use std::sync::atomic::{AtomicI64, AtomicU64};

/// The reply to a command that may use memory when no memory is left.
pub const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// Numbers about the memory of the process.
#[derive(Default)]
pub struct MemoryUse {
    /// Bytes of the process's pages in memory.
    pub resident: AtomicU64,
    /// The time of the count, in milliseconds since 1970.
    pub counted_ms: AtomicI64,
    /// Counted bytes before the database was opened.
    pub at_start: AtomicU64,
    /// The time at which all loops were woken.
    pub woken_ms: AtomicI64,
    /// The removed bytes for tests, in place of the engine's number, which is for all databases of
    /// the process: tests have several.
    #[cfg(test)]
    pub removed: std::sync::OnceLock<fn() -> u64>,
}
