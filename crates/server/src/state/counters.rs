//! Counters, by the names of INFO.

use std::sync::atomic::AtomicU64;

/// Counters, by the names of INFO.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections accepted.
    pub connections: AtomicU64,
    /// Connections refused.
    pub rejected: AtomicU64,
    /// Commands run.
    pub commands: AtomicU64,
    /// Bytes received.
    pub input: AtomicU64,
    /// Bytes sent.
    pub output: AtomicU64,
    /// Reading commands that found their key.
    pub hits: AtomicU64,
    /// Reading commands that did not.
    pub misses: AtomicU64,
    /// Expired keys removed.
    pub expired: AtomicU64,
    /// Expired fields of hashes removed.
    pub expired_fields: AtomicU64,
    /// Values written, changed or removed since the last save.
    pub changes: AtomicU64,
    /// Runs that met a conflict.
    pub conflicts: AtomicU64,
    /// Runs that were run with patience, since they had starved.
    pub alone: AtomicU64,
    /// Transactions that were run on a thread of their own since they read or write much.
    pub large: AtomicU64,
    /// Collections and strings whose blocks or chunks were removed.
    pub freed: AtomicU64,
    /// Calls of the system that have read from clients' sockets.
    pub reads: AtomicU64,
    /// Calls of the system that have written to them.
    pub writes: AtomicU64,
    /// Error replies.
    pub errors: AtomicU64,
    /// Connections closed since their encryption has failed.
    pub tls_failures: AtomicU64,
    /// Clients disconnected for a request that is longer than they may send.
    pub over_input: AtomicU64,
    /// Clients disconnected since they have left too much unread.
    pub over_output: AtomicU64,
    /// Turns of event loops.
    pub cycles: AtomicU64,
    /// Times that an event loop woke up.
    pub turns: AtomicU64,
    /// Nanoseconds that transactions took from their commit to their acknowledgement.
    pub acknowledged_nanos: AtomicU64,
}
