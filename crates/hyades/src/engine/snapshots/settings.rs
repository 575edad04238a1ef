//! Limits of snapshots.

use std::time::Duration;

/// The least memory for older versions that can be set. Memory that sessions have begun to fill is
/// not counted: up to 64 KiB each.
const LEAST_MEMORY: u64 = 32 << 20;

/// Limits of snapshots, see [`Builder::snapshots`](crate::Builder::snapshots).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotSettings {
    /// Bytes of memory for the older versions of rows needed by open snapshots, and by transactions
    /// under [`Concurrency::Hekaton`](crate::Concurrency::Hekaton), and for the deleted rows held
    /// by open snapshots, at least 32 MiB. Beyond the limit the oldest reader ends: the reads of a
    /// snapshot fail with [`Abort::SnapshotEnded`](crate::Abort::SnapshotEnded), and a transaction
    /// conflicts. Writers go on. Default: 1 GiB.
    pub memory: u64,
    /// The age at which a snapshot ends, as soon as some session has run a few transactions more.
    /// Default: none.
    pub age: Option<Duration>,
}

impl Default for SnapshotSettings {
    fn default() -> Self {
        SnapshotSettings { memory: 1 << 30, age: None }
    }
}

impl SnapshotSettings {
    /// Returns the fault of the settings, if any.
    pub(crate) fn fault(&self) -> Option<String> {
        if self.memory < LEAST_MEMORY {
            return Some(format!(
                "snapshots have {} bytes of memory: set at least {LEAST_MEMORY}",
                self.memory
            ));
        }
        if self.age == Some(Duration::ZERO) {
            return Some("snapshots end at age 0: set a longer one, or none".to_string());
        }
        None
    }
}
