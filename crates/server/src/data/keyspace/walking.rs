//! Walks over the keys of a database, step by step, in the order of the table that holds the keys
//! of all databases.

use super::{HEAD, Keyspace};
use crate::data::head::Head;
use hyades::{Abort, Column, Columns};

const KEY: Column<[u8]> = Column::at(1);
/// The key without the generation, which is known, and the head.
const KEY_AND_HEAD: Columns = Columns::of(&[0, 1, 2]);

/// Buckets and keys visited by a step for one key; the more, the fewer calls a walk over a small
/// database takes beside large ones. About a third of a millisecond.
pub const LEAST_STEPS: usize = 8_192;

/// Further buckets and keys visited by a step for each wanted key, as in Redis.
const STEPS_PER_KEY: usize = 10;

/// The most keys of a step: a step for more keys ends there, since a loop runs it.
pub const MOST_KEYS: usize = 10_000;

impl<'t> Keyspace<'t> {
    /// Walks on from a cursor of [`hyades::Transaction::walk`] over keys that have not expired, and
    /// passes them to `visit`. Ends after `count` found keys, or some thousands of visited ones.
    /// Returns the next cursor, 0 at the end.
    ///
    /// # Errors
    /// A conflict, or the transaction has copied too much.
    pub fn walk(
        &self,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(&'t [u8], Head),
    ) -> Result<u64, Abort> {
        self.context.check_copied()?;
        let count = count.clamp(1, MOST_KEYS);
        let prefix = [self.generation.get().into()];
        let step = self.tx.walk(self.context.tables.keys, cursor).prefix(&prefix).limit(count);
        let step = step.steps(LEAST_STEPS + STEPS_PER_KEY * count).columns(KEY_AND_HEAD).rows()?;
        for row in step.rows {
            let (key, head) = (row.get(KEY), self.head_of(row.get(HEAD))?);
            self.context.count_read_bytes(key.len(), 0);
            if !self.is_absent(key, head)? {
                visit(key, head);
            }
        }
        // Buckets and keys of other databases are cheap, but not free: a run of many steps without
        // a result is too long for a loop.
        self.charge(step.steps / 4)?;
        Ok(step.next)
    }
}
