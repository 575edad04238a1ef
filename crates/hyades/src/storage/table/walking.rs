//! Walks over the records of a table, in steps.

use super::{Primary, TableData};
use crate::error::Abort;
use crate::storage::Stamp;
use crate::storage::hash_index::{HashCursor, HashPosition};
use crate::storage::key::KeyBytes;
use crate::storage::record::Record;
use hyades_platform::reclaim::{Guard, pin};
use std::ops::{Bound, ControlFlow};

/// The resume position of [`TableData::walk`].
#[derive(Default)]
pub(crate) enum WalkPosition {
    #[default]
    Start,
    /// The position in a hash index.
    Hash(HashPosition),
    /// The last key visited in an ordered index.
    Key(KeyBytes),
    End,
}

/// Number of records after which one call of [`TableData::walk`] stops.
const WALK_BATCH: usize = 1024;

impl<S: Stamp> TableData<S> {
    /// Visits the next records of a walk over all of them, absent ones included. Stops when `visit`
    /// breaks off or [`WALK_BATCH`] records were visited (in a hash index at the end of that
    /// bucket). A record that is linked throughout the walk is visited. The caller need not stay
    /// pinned between two calls.
    pub fn walk<'g>(
        &'g self,
        at: &mut WalkPosition,
        guard: &'g Guard,
        mut visit: impl FnMut(&'g Record<S>) -> ControlFlow<()>,
    ) {
        let mut visited = 0;
        let mut visit = |record| {
            visited += 1;
            let flow = visit(record);
            if visited >= WALK_BATCH { ControlFlow::Break(()) } else { flow }
        };
        match &self.primary {
            Primary::Hash { index, .. } => {
                let from =
                    if let WalkPosition::Hash(from) = at { *from } else { HashPosition::default() };
                *at = index
                    .for_each_from(from, guard, visit)
                    .map_or(WalkPosition::End, WalkPosition::Hash);
            }
            Primary::Ordered(tree) => {
                let last = std::mem::replace(at, WalkPosition::End);
                let lower = match &last {
                    WalkPosition::Key(key) => Bound::Excluded(&key[..]),
                    _ => Bound::Unbounded,
                };
                tree.scan(lower, Bound::Unbounded, false, guard, &mut |_, entries| {
                    let mut entries = entries.iter();
                    match entries.find(|record| visit(record).is_break()) {
                        Some(record) => {
                            *at = WalkPosition::Key(KeyBytes::from_slice(record.key()));
                            ControlFlow::Break(())
                        }
                        None => ControlFlow::Continue(()),
                    }
                });
            }
        }
    }

    /// Visits every record, absent ones included, in no order. The thread is pinned for a step of
    /// the walk at a time.
    pub fn for_each_in_steps(&self, mut visit: impl FnMut(&Record<S>)) {
        let mut at = WalkPosition::Start;
        while !matches!(at, WalkPosition::End) {
            self.walk(&mut at, &pin(), |record| {
                visit(record);
                ControlFlow::Continue(())
            });
        }
    }

    /// Visits records of a hash table from a cursor on, absent ones included, as
    /// [`HashIndex::walk_from`](crate::hash_index::HashIndex::walk_from) does. Returns the next
    /// cursor, 0 at the end, where a walk begins as well.
    ///
    /// # Errors
    /// The table's primary index is ordered.
    pub fn walk_hashed<'g>(
        &'g self,
        cursor: u64,
        steps: &mut usize,
        guard: &'g Guard,
        visit: impl FnMut(&'g Record<S>) -> ControlFlow<()>,
    ) -> Result<u64, Abort> {
        let Primary::Hash { index, .. } = &self.primary else { return Err(Abort::UnknownHandle) };
        let Some(cursor) = HashCursor::from_number(cursor) else { return Ok(0) };
        Ok(index.walk_from(cursor, steps, guard, visit).map_or(0, HashCursor::number))
    }
}
