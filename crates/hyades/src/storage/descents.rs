//! Places in ordered indexes: descents to those that will be wanted soon, which go on while the
//! caller does something else, and fingers at those where it has been.

use super::key::KeyBytes;
use super::ordered_index::{Descent, DescentProgress, Finger};
use super::range::Range;
use super::table::TableData;
use bumpalo::Bump;
use bumpalo::collections::Vec as ArenaVec;
use crossbeam_epoch::Guard;
use std::ops::Bound;

/// More indexes than this share a finger.
const MOST: usize = 8;

/// Behind all keys, as far as a descent looks at them.
const LAST: [u8; 32] = [0xFF; 32];

/// More descents than this are not under way: by then others have been forgotten by the caches.
const MOST_AHEAD: usize = 64;

/// See the module.
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
    /// The places behind this reference, made when they are first wanted.
    #[inline]
    pub fn of<'p>(places: &'p mut Option<&'s mut Self>, arena: &'s Bump) -> &'p mut Self {
        places.get_or_insert_with(|| {
            let fingers = ArenaVec::with_capacity_in(MOST, arena);
            arena.alloc(IndexPositions { descents: ArenaVec::new_in(arena), fingers })
        })
    }

    /// Begins a descent to where a scan of this range would begin.
    pub fn begin<S: Default + Send + Sync + 'static>(
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
            Bound::Unbounded if range.descending => KeyBytes::from_slice(&LAST),
            Bound::Unbounded => KeyBytes::new(),
            _ => match table.encode_bound(index, key, after) {
                Ok(Some(key)) => key,
                // No key lies above it.
                Ok(None) if range.descending => KeyBytes::from_slice(&LAST),
                // Nothing is in the range, or the operation that uses it will say what is wrong
                // with it.
                Ok(None) | Err(_) => return,
            },
        };
        if self.descents.len() == MOST_AHEAD {
            return;
        }
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
    pub fn seek<S: Default + Send + Sync + 'static>(&mut self, tables: &'s [TableData<S>]) {
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
    let of = |tree| fingers.iter().position(|finger| finger.tree() == tree);
    // One that is not in use yet will do.
    let at = of(tree).or_else(|| of(std::ptr::null())).unwrap_or_else(|| {
        if fingers.len() < MOST {
            fingers.push(Finger::new(guard));
        }
        fingers.len() - 1
    });
    &mut fingers[at]
}
