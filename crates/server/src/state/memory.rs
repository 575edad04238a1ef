//! The memory that the process uses, and how much `maxmemory` lets it use.
//!
//! What counts is what the program has allocated and not freed, but for the buffers of the log:
//! keys and values, their indexes, what waits for clients. The program says how much that is
//! ([`Settings::count_memory`](crate::Settings::count_memory)). If it does not, the pages of the
//! process that are in memory count.
//!
//! A deleted row is freed by later transactions of the session that has deleted it. While writes
//! are refused there may be none, so the event loops run empty ones.

use std::sync::atomic::{AtomicI64, AtomicU64};

/// What is replied to a command that may use memory when there is none left.
pub const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// What is known of the memory of the process.
#[derive(Default)]
pub struct MemoryUse {
    /// Bytes of its pages that were in memory.
    pub resident: AtomicU64,
    /// When they were counted, in milliseconds since 1970.
    pub counted_ms: AtomicI64,
    /// Bytes that counted before the database was opened.
    pub at_start: AtomicU64,
    /// When all loops were woken.
    pub woken_ms: AtomicI64,
    /// What counts as removed in place of what the engine tells, which is of all databases of the
    /// process: tests have several.
    #[cfg(test)]
    pub removed: std::sync::OnceLock<fn() -> u64>,
}
