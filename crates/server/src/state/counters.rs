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
    /// Read commands that found their key.
    pub hits: AtomicU64,
    /// Read commands that found no key.
    pub misses: AtomicU64,
    /// Expired keys removed.
    pub expired: AtomicU64,
    /// Expired fields of hashes removed.
    pub expired_fields: AtomicU64,
    /// Values written, changed or removed since the last save.
    pub changes: AtomicU64,
    /// Runs that met a conflict.
    pub conflicts: AtomicU64,
    /// Runs with patience, since the transactions had starved.
    pub alone: AtomicU64,
    /// Transactions with many reads or writes, run on a separate thread.
    pub large: AtomicU64,
    /// Removed collections and strings whose blocks or chunks are gone too.
    pub freed: AtomicU64,
    /// System calls that have read from clients' sockets.
    pub reads: AtomicU64,
    /// System calls that have written to clients' sockets.
    pub writes: AtomicU64,
    /// Error replies.
    pub errors: AtomicU64,
    /// Connections closed since their encryption has failed.
    pub tls_failures: AtomicU64,
    /// Clients disconnected for a request above the length limit.
    pub over_input: AtomicU64,
    /// Clients disconnected since too much output was left unread.
    pub over_output: AtomicU64,
    /// Turns of event loops.
    pub cycles: AtomicU64,
    /// How often event loops woke up.
    pub turns: AtomicU64,
    /// Nanoseconds from the commit of transactions to their acknowledgement.
    pub acknowledged_nanos: AtomicU64,
}
