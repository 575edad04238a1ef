//! What WATCH sees of a key: the last write of its row.
//!
//! A hash, set or sorted set in blocks, or a string in chunks, is changed without a write of its
//! key's row. So WATCH *marks* the head of such a row, in a transaction of its own, and looks at
//! the row's version in another one behind it. A change of a block or chunk finds the mark, since
//! every command reads the head of its key and the engine validates that; it writes the row as
//! well, and takes the mark away.
//!
//! Invariant: as long as a row has the version that a WATCH has seen, it has its mark, so that the
//! next change gives it another version. Only a write of the row takes a mark away, and every
//! client that watches the key notices that write; one that comes later marks the row again. So
//! one mark serves any number of clients. UNWATCH leaves it, and so does the end of the server:
//! the next change writes one row in vain. A value that is moved to another key takes its mark
//! along.

use super::{COPIES_OF_A_CHANGE, HEAD, Keyspace};
use crate::data::field_times::{first_behind, has_come};
use crate::data::head::Head;
use hyades::Abort;

/// A key that WATCH names, as it was then.
#[derive(Clone, Debug)]
pub struct WatchedKey {
    /// The number of the database.
    pub database: u32,
    /// The key.
    pub key: Vec<u8>,
    /// See [`Keyspace::write_of`].
    pub seen: Option<(u64, u64)>,
    /// When a field of the hash expires next, if one does: the hash has another content then.
    pub changes_at: Option<i64>,
}

/// Whether the value may change without a write of its key's row.
fn needs_mark(head: Head) -> bool {
    head.form().is_numbered() && !head.kind().writes_row() && !head.is_watched()
}

impl Keyspace<'_> {
    /// The last write of a key that exists: its generation, and the version of its row. Two calls
    /// return the same iff the key was not written in between, flushed, swapped away, or expired.
    /// One that does not exist, or has expired, has no last write.
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

    /// Keeps what WATCH sees of a key, unless that has to be marked first: then it is marked, and
    /// [`Effects::marked`](super::Effects::marked) says that WATCH is to be run again.
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

    /// When a field of a hash expires next.
    fn next_lapse(&self, key: &[u8]) -> Result<Option<i64>, Abort> {
        let entry = self.find_head(key)?;
        match entry.row() {
            // Its body was read as well.
            Some((head, body)) if head.form().is_timed() => {
                first_behind(head, body, entry.blocks(), self.context.expired_until_ms())
            }
            _ => Ok(None),
        }
    }

    /// Has the client watch nothing any more.
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
            // It was there when the entry was read.
            false => Err(Abort::Conflict),
        }
    }
}
