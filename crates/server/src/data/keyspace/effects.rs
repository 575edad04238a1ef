//! What a transaction does beside its rows.

use super::{Fills, Wait, WatchedKey, WrittenKey};
use crate::data::counts::CountChange;
use crate::data::expiries::{Expiries, Expiry, needs_timer};
use crate::data::head::Head;
use smallvec::SmallVec;

/// What a transaction does beside its rows, applied once it has committed.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// Changes of the numbers of keys.
    pub counts: SmallVec<[CountChange; 2]>,
    /// Keys that were written and expire, unless they expired before, and no later than now.
    pub expiries: Expiries,
    /// A database was flushed: there are keys to remove.
    pub flushed: bool,
    /// Databases were swapped.
    pub swapped: bool,
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
    /// Fields of hashes that had expired and were removed or overwritten, but for those of a hash
    /// that was replaced or deleted as a whole.
    pub expired_fields: u64,
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
    /// SCRIPT FLUSH was run.
    pub scripts_flushed: bool,
    /// Scripts that SCRIPT LOAD has added, less those that SCRIPT FLUSH has removed, and their
    /// bytes.
    pub loaded_scripts: (i64, i64),
    /// What the command has written, for keyspace events.
    pub written_keys: Vec<WrittenKey>,
}

/// What a transaction did before a command.
pub struct EffectsMark {
    /// Without the lists that commands only add to.
    before: Effects,
    /// The lengths of these.
    watched: usize,
    filled: usize,
    databases: usize,
    expiries: (usize, usize),
}

impl Effects {
    /// Forgets everything: the transaction runs again.
    pub fn clear(&mut self) {
        let mut expiries = std::mem::take(&mut self.expiries);
        expiries.clear();
        *self = Effects { expiries, ..Effects::default() };
    }

    /// All databases are flushed.
    pub fn flush_all(&mut self) {
        self.flushed_all_after = Some(self.changes);
    }

    /// A key of this head was removed.
    pub fn removed(&mut self, generation: u64, head: Head) {
        self.count(generation, -1, -i64::from(head.expires().is_some()));
    }

    /// Two databases were swapped.
    pub(super) fn note_swap(&mut self, a: u32, b: u32) {
        [a, b].into_iter().for_each(|number| self.fills.add_database(number));
        self.swapped = true;
    }

    /// A key was written: it had one head, and has another now.
    pub(super) fn note_expiry(
        &mut self,
        (generation, key): (u64, &[u8]),
        before: Option<Head>,
        now: Option<Head>,
    ) {
        if let Some(at_ms) = now.and_then(Head::expires)
            && needs_timer(before.and_then(Head::expires), at_ms)
        {
            self.expiries.push(Expiry { at_ms, generation, key });
        }
    }

    /// A command begins. The lists that it may add to are not copied: they are as long as the
    /// transaction.
    pub fn mark(&mut self) -> EffectsMark {
        let (watched, fills) = (std::mem::take(&mut self.watched), std::mem::take(&mut self.fills));
        let expiries = std::mem::take(&mut self.expiries);
        let mut before = self.clone();
        before.fills.unnamed = fills.unnamed;
        let (filled, databases) = (fills.keys.len(), fills.databases.len());
        let watched_len = watched.len();
        (self.watched, self.fills, self.expiries) = (watched, fills, expiries);
        let expiries = self.expiries.mark();
        EffectsMark { before, watched: watched_len, filled, databases, expiries }
    }

    /// Takes back what was done since then, but for what was copied: that is kept until the
    /// transaction ends.
    pub fn back_to(&mut self, mark: EffectsMark) {
        let EffectsMark { before, watched, filled, databases, expiries } = mark;
        self.expiries.back_to(expiries);
        self.watched.truncate(watched);
        self.fills.keys.truncate(filled);
        self.fills.databases.truncate(databases);
        self.fills.unnamed = before.fills.unnamed;
        *self = Effects {
            copied: self.copied,
            watched: std::mem::take(&mut self.watched),
            fills: std::mem::take(&mut self.fills),
            expiries: std::mem::take(&mut self.expiries),
            ..before
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_taken_back_but_for_what_it_has_copied() {
        let mut effects = Effects { changes: 1, ..Effects::default() };
        effects.count(1, 1, 0);
        [0, 1].into_iter().for_each(|number| effects.fills.add_database(number));
        let first = Expiry { at_ms: 5, generation: 1, key: b"a" };
        effects.expiries.push(first);
        let mark = effects.mark();
        assert_eq!(effects.fills.databases, [0, 1]);
        effects.count(1, 1, 1);
        effects.count(2, 1, 0);
        [1, 2].into_iter().for_each(|number| effects.fills.add_database(number));
        effects.fills.unnamed = true;
        (effects.changes, effects.copied) = (9, 100);
        effects.expiries.push(Expiry { at_ms: 6, generation: 1, key: b"b" });
        effects.back_to(mark);
        assert_eq!(effects.fills.databases, [0, 1]);
        assert!(!effects.fills.unnamed);
        assert_eq!((effects.changes, effects.copied), (1, 100));
        assert_eq!(effects.expiries.iter().collect::<Vec<_>>(), [first]);
        assert_eq!(effects.counts[..], [CountChange { generation: 1, keys: 1, expiring: 0 }]);
    }
}
