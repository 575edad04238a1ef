//! Places in ordered indexes: descents to those that will be wanted soon, which go on while the transaction does
//! something else, and fingers at those where it has been.

use super::access::Range;
use crate::storage::key::KeyBytes;
use crate::storage::ordered_index::{Descent, Finger, Step};
use crate::storage::table::Table;
use bumpalo::Bump;
use bumpalo::collections::Vec as ArenaVec;
use crossbeam_epoch::Guard;
use std::ops::Bound;

/// More indexes than this share a finger.
const MOST: usize = 8;

/// See the module.
pub(crate) struct Places<'s> {
    descents: ArenaVec<'s, Descending<'s>>,
    fingers: ArenaVec<'s, Finger<'s>>,
}

struct Descending<'s> {
    table: u32,
    index: Option<usize>,
    descent: Descent<'s>,
}

impl<'s> Places<'s> {
    pub fn new(arena: &'s Bump) -> Self {
        let fingers = ArenaVec::with_capacity_in(MOST, arena);
        Places { descents: ArenaVec::new_in(arena), fingers }
    }

    /// Begins a descent to where a scan of this range would begin.
    pub fn begin<S: Default + Send + Sync + 'static>(
        &mut self,
        table: &'s Table<S>,
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
            Bound::Unbounded if range.descending => KeyBytes::from_slice(&[0xFF; 32]),
            Bound::Unbounded => KeyBytes::new(),
            // What is no bound is reported by the operation that uses it.
            _ => match table.encode_bound(index, key, after) {
                Ok(Some(key)) => key,
                _ => return,
            },
        };
        if let Some(descent) = table.begin_descent(index, &key, range.descending, guard) {
            self.descents.push(Descending { table: table.layout.table, index, descent });
        }
    }

    /// Whether descents are under way.
    #[inline]
    pub fn are_sought(&self) -> bool {
        !self.descents.is_empty()
    }

    /// Each descent goes one level down: what it needs for that has come meanwhile.
    pub fn seek<S: Default + Send + Sync + 'static>(&mut self, tables: &'s [Table<S>]) {
        let Places { descents, fingers } = self;
        descents.retain_mut(|Descending { table, index, descent }| {
            match tables[*table as usize].step(*index, descent) {
                Step::Deeper => true,
                Step::Arrived(finger) => {
                    let (tree, guard) = (finger.tree(), finger.guard());
                    *slot(fingers, tree, guard) = finger;
                    false
                }
                Step::Lost => false,
            }
        });
    }

    /// The finger in this index; wherever it points, if it is new or had to be taken from another.
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
    let at = fingers.iter().position(|finger| finger.tree() == tree).unwrap_or_else(|| {
        if fingers.len() < MOST {
            fingers.push(Finger::new(guard));
        }
        fingers.len() - 1
    });
    &mut fingers[at]
}
