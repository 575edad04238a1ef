//! The effects of a transaction beside its rows.

use super::{Fills, Wait, WatchedKey, WrittenKey};
use crate::data::counts::CountChange;
use crate::data::expiries::{Expiries, Expiry, needs_timer};
use crate::data::head::Head;
use crate::data::scripts::ScriptCounts;
use smallvec::SmallVec;

/// The effects of a transaction beside its rows, applied after its commit.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// Changes of the numbers of keys.
    pub counts: SmallVec<[CountChange; 2]>,
    /// Written keys with an expiry, except keys with a former expiry no later than the new one.
    pub expiries: Expiries,
    /// A database was flushed: there are keys to remove.
    pub flushed: bool,
    /// Databases were swapped.
    pub swapped: bool,
    /// All databases were flushed, after this many changes.
    pub flushed_all_after: Option<u64>,
    /// A value in blocks or chunks was removed or replaced: the blocks or chunks are garbage.
    pub discarded: bool,
    /// Keys found and missed by reading commands.
    pub hits: u64,
    /// See [`Effects::hits`].
    pub misses: u64,
    /// Expired keys, removed or overwritten.
    pub expired: u64,
    /// Expired fields of hashes, removed or overwritten, except fields of a hash that was replaced
    /// or deleted as a whole.
    pub expired_fields: u64,
    /// Bytes logged by the transaction, about.
    pub written: usize,
    /// Bytes copied by the transaction, about, including the copies of commands that were taken
    /// back.
    pub copied: usize,
    /// Values written, changed or removed.
    pub changes: u64,
    /// The keys seen by WATCH.
    pub watched: Vec<WatchedKey>,
    /// WATCH has marked the heads of large collections, and has seen no key yet.
    pub marked: bool,
    /// UNWATCH was run.
    pub unwatched: bool,
    /// Keys for which clients may wait.
    pub fills: Fills,
    /// The last command waits.
    pub wait: Option<Wait>,
    /// SCRIPT FLUSH was run.
    pub scripts_flushed: bool,
    /// Changes of the numbers of stored scripts, libraries and functions.
    pub scripts: ScriptCounts,
    /// Keys written by the command, for keyspace events.
    pub written_keys: Vec<WrittenKey>,
}

/// The effects of a transaction before a command.
pub struct EffectsMark {
    /// The effects without the lists to which commands only add.
    before: Effects,
    /// The lengths of the lists.
    watched: usize,
    filled: usize,
    databases: usize,
    expiries: (usize, usize),
}

impl Effects {
    /// Forgets all effects: the transaction runs again.
    pub fn clear(&mut self) {
        let mut expiries = std::mem::take(&mut self.expiries);
        expiries.clear();
        *self = Effects { expiries, ..Effects::default() };
    }

    /// Notes a flush of all databases.
    pub fn flush_all(&mut self) {
        self.flushed_all_after = Some(self.changes);
    }

    /// Notes the removal of a key with this head.
    pub fn removed(&mut self, generation: u64, head: Head) {
        self.count(generation, -1, -i64::from(head.expires().is_some()));
    }

    /// Notes a swap of two databases.
    pub(super) fn note_swap(&mut self, a: u32, b: u32) {
        [a, b].into_iter().for_each(|number| self.fills.add_database(number));
        self.swapped = true;
    }

    /// Notes a write of a key: the head was `before`, and is `now`.
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

    /// Marks the begin of a command. The lists to which the command may add are not copied: they
    /// are as long as the transaction.
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

    /// Takes back the effects since the mark, except the copied bytes: the copies stay until the
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
