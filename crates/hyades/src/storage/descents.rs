//! Positions of one transaction in ordered indexes: descents to keys needed soon, advancing while
//! the transaction does other work, and fingers (the last leaf used in an index).

use super::key::KeyBytes;
use super::range::Range;
use super::table::TableData;
use crate::storage::Stamp;
use bumpalo::Bump;
use bumpalo::collections::Vec as ArenaVec;
use hyades_index::{Descent, DescentProgress, Finger};
use hyades_platform::reclaim::Guard;
use std::ops::Bound;

/// Maximum number of fingers. Further indexes share the last finger.
const MAX_FINGERS: usize = 8;

/// A key at or above every other, as far as a descent compares keys (their first 32 bytes).
const MAX_KEY: [u8; 32] = [0xFF; 32];

/// Maximum number of descents under way: more would evict the nodes loaded by the first ones from
/// the caches.
const MAX_DESCENTS: usize = 64;

/// The descents under way and the fingers of one transaction.
pub(crate) struct IndexPositions<'s> {
    descents: ArenaVec<'s, Descending<'s>>,
    fingers: ArenaVec<'s, Finger<'s>>,
}

struct Descending<'s> {
    table: u32,
    index: Option<usize>,
    descent: Descent<'s>,
}

impl<'s> IndexPositions<'s> {
    /// Returns the positions, allocated in `arena` on first use.
    #[inline]
    pub fn of<'p>(places: &'p mut Option<&'s mut Self>, arena: &'s Bump) -> &'p mut Self {
        places.get_or_insert_with(|| {
            let fingers = ArenaVec::with_capacity_in(MAX_FINGERS, arena);
            arena.alloc(IndexPositions { descents: ArenaVec::new_in(arena), fingers })
        })
    }

    /// Begins a descent to the start of a scan of this range.
    pub fn begin<S: Stamp>(
        &mut self,
        table: &'s TableData<S>,
        index: Option<usize>,
        range: &Range<'_>,
        guard: &'s Guard,
    ) {
        let bound = if range.descending { range.upper } else { range.lower };
        let (key, after) = match bound {
            Bound::Included(key) => (key, range.descending),
            Bound::Excluded(key) => (key, !range.descending),
            Bound::Unbounded => (&[][..], false),
        };
        let key = match bound {
            Bound::Unbounded if range.descending => KeyBytes::from_slice(&MAX_KEY),
            Bound::Unbounded => KeyBytes::new(),
            _ => match table.encode_bound(index, key, after) {
                Ok(Some(key)) => key,
                // No key is above the prefix: start at the last key.
                Ok(None) if range.descending => KeyBytes::from_slice(&MAX_KEY),
                // The range is empty, or invalid: the announced operation reports the error.
                Ok(None) | Err(_) => return,
            },
        };
        if self.descents.len() == MAX_DESCENTS {
            return;
        }
        if let Some(descent) = table.begin_descent(index, &key, range.descending, guard) {
            self.descents.push(Descending { table: table.layout.table, index, descent });
        }
    }

    /// Whether any descent is under way.
    #[inline]
    pub fn any_under_way(&self) -> bool {
        !self.descents.is_empty()
    }

    /// Advances each descent by one level. The previous step prefetched the node to read.
    pub fn advance_all<S: Stamp>(&mut self, tables: &'s [TableData<S>]) {
        let IndexPositions { descents, fingers } = self;
        descents.retain_mut(|Descending { table, index, descent }| {
            match tables[*table as usize].step(*index, descent) {
                DescentProgress::Deeper => true,
                DescentProgress::Arrived(finger) => {
                    let (tree, guard) = (finger.tree(), finger.guard());
                    *slot(fingers, tree, guard) = finger;
                    false
                }
                DescentProgress::Lost => false,
            }
        });
    }

    /// The finger for this index. A new finger points nowhere; the shared finger may be in another
    /// index.
    #[inline]
    pub fn finger(&mut self, tree: *const (), guard: &'s Guard) -> &mut Finger<'s> {
        slot(&mut self.fingers, tree, guard)
    }
}

#[inline]
fn slot<'f, 's>(
    fingers: &'f mut ArenaVec<'s, Finger<'s>>,
    tree: *const (),
    guard: &'s Guard,
) -> &'f mut Finger<'s> {
    let position = |tree| fingers.iter().position(|finger| finger.tree() == tree);
    // Otherwise an unused finger.
    let at = position(tree).or_else(|| position(std::ptr::null())).unwrap_or_else(|| {
        if fingers.len() < MAX_FINGERS {
            fingers.push(Finger::new(guard));
        }
        debug_assert!(fingers.len() <= MAX_FINGERS, "further indexes share the last finger");
        fingers.len() - 1
    });
    &mut fingers[at]
}
