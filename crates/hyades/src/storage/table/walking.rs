//! Walks over the records of a table, in steps.

use super::{Primary, TableData};
use crate::error::Abort;
use crate::storage::Stamp;
use crate::storage::hash_index::{HashCursor, HashPosition};
use crate::storage::key::KeyBytes;
use crate::storage::record::Record;
use hyades_platform::reclaim::{Guard, pin};
use std::ops::{Bound, ControlFlow};

/// The resume position of [`TableData::walk`], and the end of the walked range.
#[derive(Default)]
pub(crate) enum WalkPosition {
    /// The beginning of a walk over all records.
    #[default]
    Start,
    /// The position in a hash index.
    Hash(HashPosition),
    /// The rest of the range in an ordered index.
    Keys {
        lower: Bound<KeyBytes>,
        upper: Bound<KeyBytes>,
    },
    End,
}

impl WalkPosition {
    /// The position behind a record of an ordered index, in a walk up to `upper`.
    pub fn behind(key: &[u8], upper: Bound<KeyBytes>) -> WalkPosition {
        WalkPosition::Keys { lower: Bound::Excluded(KeyBytes::from_slice(key)), upper }
    }

    /// The bounds of the rest of a walk over an ordered index.
    pub fn into_bounds(self) -> (Bound<KeyBytes>, Bound<KeyBytes>) {
        match self {
            WalkPosition::Keys { lower, upper } => (lower, upper),
            _ => (Bound::Unbounded, Bound::Unbounded),
        }
    }
}

/// A bound as the index takes bounds.
pub(super) fn as_bytes(bound: &Bound<KeyBytes>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &key[..])
}

/// Number of records after which one call of [`TableData::walk`] stops.
const WALK_BATCH: usize = 1024;

impl<S: Stamp> TableData<S> {
    /// Returns the beginnings of at most `most` walks over parts of the table. A record linked
    /// throughout all walks is visited by exactly one of the walks. A small table is one part.
    pub fn walk_starts(&self, most: usize, guard: &Guard) -> Vec<WalkPosition> {
        match &self.primary {
            Primary::Hash { index, .. } => {
                let starts = index.range_starts(most, guard).into_iter();
                starts.map(WalkPosition::Hash).collect()
            }
            Primary::Ordered(tree) => {
                let keys = tree.dividing_keys(most, guard);
                let between = || keys.iter().map(|key| KeyBytes::from_slice(key));
                let lowers =
                    std::iter::once(Bound::Unbounded).chain(between().map(Bound::Included));
                let uppers = between().map(Bound::Excluded).chain([Bound::Unbounded]);
                let part = |(lower, upper)| WalkPosition::Keys { lower, upper };
                lowers.zip(uppers).map(part).collect()
            }
        }
    }

    /// Visits the next records of a walk, absent ones included. Stops when `visit` breaks off or
    /// [`WALK_BATCH`] records were visited (in a hash index at the end of that bucket). A record
    /// of the walked range that is linked throughout the walk is visited. The caller need not stay
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
                let (lower, upper) = std::mem::replace(at, WalkPosition::End).into_bounds();
                tree.scan(as_bytes(&lower), as_bytes(&upper), false, guard, &mut |_, entries| {
                    let mut entries = entries.iter();
                    match entries.find(|record| visit(record).is_break()) {
                        Some(record) => {
                            *at = WalkPosition::behind(record.key(), upper.clone());
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
