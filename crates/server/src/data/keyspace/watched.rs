//! What WATCH sees of a key: the last write of the row.
//!
//! A hash, set or sorted set in blocks, or a string in chunks, is changed without a write of the
//! key's row. So WATCH *marks* the head of such a row, in a transaction of its own, and reads the
//! row's version in a later transaction. A change of a block or chunk finds the mark, since every
//! command reads the head of its key and the engine validates the read; the change then writes the
//! row as well, and removes the mark.
//!
//! Invariant: as long as a row has the version seen by a WATCH, the row has the mark, so that the
//! next change gives the row another version. Only a write of the row removes a mark, and every
//! client that watches the key notices the write; a later WATCH marks the row again. So one mark
//! serves any number of clients. The mark stays after UNWATCH, and after the end of the server: the
//! next change writes one row in vain. A value moved to another key takes its mark along.

use super::{COPIES_OF_A_CHANGE, HEAD, Keyspace};
use crate::data::field_times::{first_behind, has_come};
use crate::data::head::Head;
use hyades::Abort;

/// A key named by WATCH, as seen then.
#[derive(Clone, Debug)]
pub struct WatchedKey {
    /// The number of the database.
    pub database: u32,
    /// The key.
    pub key: Vec<u8>,
    /// See [`Keyspace::write_of`].
    pub seen: Option<(u64, u64)>,
    /// The next time of expiry of a field of the hash, if there is one: the content of the hash
    /// changes then.
    pub changes_at: Option<i64>,
}

/// Whether the value may change without a write of its key's row.
fn needs_mark(head: Head) -> bool {
    head.form().is_numbered() && !head.kind().writes_row() && !head.is_watched()
}

impl Keyspace<'_> {
    /// The last write of an existing key: the generation, and the version of the row. Two calls
    /// return the same iff the key was not written in between, flushed, swapped away, or expired. A
    /// key that does not exist, or has expired, has no last write.
    ///
    /// # Errors
    /// As [`Keyspace::find`].
    pub fn write_of(&self, key: &[u8]) -> Result<Option<(u64, u64)>, Abort> {
        if !self.find_head(key)?.exists() {
            return Ok(None);
        }
        let generation = self.generation.get();
        let version = self.tx.version(self.context.tables.keys, (generation, key))?;
        Ok(version.map(|version| (generation, version)))
    }

    /// Stores the key as WATCH sees it. If the key needs a mark first, the mark is set instead, and
    /// [`Effects::marked`](super::Effects::marked) tells that WATCH is to be run again.
    ///
    /// # Errors
    /// As [`Keyspace::find`].
    pub fn watch(&self, key: &[u8]) -> Result<(), Abort> {
        if let Some(head) = self.find_head(key)?.head().filter(|head| needs_mark(*head)) {
            self.write_head(key, head.watched())?;
            self.context.effects.borrow_mut().marked = true;
            return Ok(());
        }
        let seen = self.write_of(key)?;
        let changes_at = self.next_lapse(key)?;
        let watched = WatchedKey { database: self.database, key: key.to_vec(), seen, changes_at };
        self.context.effects.borrow_mut().watched.push(watched);
        Ok(())
    }

    /// The next time of expiry of a field of a hash.
    fn next_lapse(&self, key: &[u8]) -> Result<Option<i64>, Abort> {
        let entry = self.find_head(key)?;
        match entry.row() {
            // The body was read as well.
            Some((head, body)) if head.form().is_timed() => {
                first_behind(head, body, entry.blocks(), self.context.expired_until_ms())
            }
            _ => Ok(None),
        }
    }

    /// Ends all watches of the client.
    pub fn unwatch(&self) {
        self.context.effects.borrow_mut().unwatched = true;
    }

    /// Whether all keys are as WATCH has seen them.
    ///
    /// # Errors
    /// As [`Keyspace::find`].
    pub fn are_as_watched(&self, watched: &[WatchedKey]) -> Result<bool, Abort> {
        for WatchedKey { database, key, seen, changes_at } in watched {
            if has_come(*changes_at, self.context.expired_until_ms()) {
                return Ok(false);
            }
            if self.of_database(*database)?.write_of(key)? != *seen {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn write_head(&self, key: &[u8], head: Head) -> Result<(), Abort> {
        self.context.count_written_bytes(key.len(), 0, COPIES_OF_A_CHANGE);
        let place = (self.generation.get(), key);
        match self.tx.update(self.context.tables.keys, place, &[HEAD.set(head.word())])? {
            true => Ok(()),
            // The row existed when the entry was read.
            false => Err(Abort::Conflict),
        }
    }
}
