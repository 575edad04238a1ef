//! What a transaction does beside its rows.

use super::{Fills, Wait, WatchedKey, WrittenKey};
use crate::data::counts::CountChange;
use crate::data::head::Head;
use smallvec::SmallVec;

/// What a transaction does beside its rows, applied once it has committed.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// Changes of the numbers of keys.
    pub counts: SmallVec<[CountChange; 2]>,
    /// The earliest time at which a key that was written expires.
    pub expiry: Option<i64>,
    /// A database was flushed: there are keys to remove.
    pub flushed: bool,
    /// All databases were flushed, after this many changes.
    pub flushed_all_after: Option<u64>,
    /// A value that lay in blocks or chunks is none any more: they are to be removed.
    pub discarded: bool,
    /// Keys found and missed by reading commands.
    pub hits: u64,
    /// See [`Effects::hits`].
    pub misses: u64,
    /// Expired keys that were removed or overwritten.
    pub expired: u64,
    /// Bytes that the transaction logs, about.
    pub written: usize,
    /// Bytes that it has copied, about, those for commands included that were taken back.
    pub copied: usize,
    /// Values written, changed or removed.
    pub changes: u64,
    /// What WATCH has seen.
    pub watched: Vec<WatchedKey>,
    /// WATCH has marked the heads of large collections, and has seen nothing yet.
    pub marked: bool,
    /// UNWATCH was run.
    pub unwatched: bool,
    /// What clients may wait for.
    pub fills: Fills,
    /// The last command waits.
    pub wait: Option<Wait>,
    /// What the command has written, for keyspace events.
    pub written_keys: Vec<WrittenKey>,
}

impl Effects {
    /// Forgets everything: the transaction runs again.
    pub fn clear(&mut self) {
        *self = Effects::default();
    }

    /// All databases are flushed.
    pub fn flush_all(&mut self) {
        self.flushed_all_after = Some(self.changes);
    }

    /// A key of this head was removed.
    pub fn removed(&mut self, generation: u64, head: Head) {
        self.count(generation, -1, -i64::from(head.expires().is_some()));
    }

    pub(super) fn count(&mut self, generation: u64, keys: i64, expiring: i64) {
        match self.counts.iter_mut().find(|change| change.generation == generation) {
            Some(change) => {
                change.keys += keys;
                change.expiring += expiring;
            }
            None => self.counts.push(CountChange { generation, keys, expiring }),
        }
    }
}
