//! Range scans, leaf by leaf.
//!
//! Each leaf is reported as a consistent snapshot. The scan goes on from the leaf's fence at the
//! time of the read. Since a leaf's key range changes only with its version, the ranges of the
//! reported leaves, at the reported versions, cover every key of the scanned range.

use std::ops::{Bound, ControlFlow};

use hyades_platform::reclaim::Guard;
use smallvec::SmallVec;

use super::Leaf;
use super::key::{Keyed, Probe};
use super::node::{InnerNode, LeafNode, NodeHeader};
use super::tree::{LeafPosition, Tree};

/// The callback of a scan, called for each leaf with the leaf's entries in the range; the callback
/// may stop the scan.
pub type Visit<'v, 'g, E, G> = &'v mut dyn FnMut(Leaf<'g, G>, &[&'g E]) -> ControlFlow<()>;

/// The range still to be scanned, as search positions.
pub(super) struct ScanRange<'k, const W: usize> {
    pub lower: Bound<Probe<'k, W>>,
    pub upper: Bound<Probe<'k, W>>,
    pub descending: bool,
}

/// The position of the next leaf.
#[derive(Clone, Copy)]
enum LeafCursor<'k, const W: usize> {
    First,
    Last,
    Holding(Probe<'k, W>),
    Below(Probe<'k, W>),
}

/// The current leaf and the surroundings.
struct Place<'g, E, G, const W: usize, const L: usize, const N: usize, const B: usize> {
    leaf: &'g LeafNode<E, G, W, L>,
    version: u64,
    /// The leaf's parent, with the parent's version, the leaf's index and the number of children.
    parent: Option<(&'g InnerNode<W, N, B>, u64, usize, usize)>,
    /// The parent's own far fence, in the scan's direction.
    outer: Option<Probe<'g, W>>,
    /// The leaf's far fence, in the scan's direction.
    fence: Option<Probe<'g, W>>,
    /// The leaf follows a reported leaf, so the range began before the leaf.
    begun: bool,
}

impl<'k, const W: usize> ScanRange<'k, W> {
    fn start(&self) -> LeafCursor<'k, W> {
        match (self.descending, &self.lower, &self.upper) {
            (false, Bound::Unbounded, _) => LeafCursor::First,
            (false, Bound::Included(key) | Bound::Excluded(key), _) => LeafCursor::Holding(*key),
            (true, _, Bound::Unbounded) => LeafCursor::Last,
            (true, _, Bound::Included(key)) => LeafCursor::Holding(*key),
            (true, _, Bound::Excluded(key)) => LeafCursor::Below(*key),
        }
    }

    /// Restricts the range to the part beyond `fence`.
    fn advance(&mut self, fence: Probe<'k, W>) {
        if self.descending {
            self.upper = Bound::Excluded(fence);
        } else {
            self.lower = Bound::Included(fence);
        }
    }

    /// Whether the range goes on beyond a leaf's end at `fence`.
    fn continues(&self, fence: &Probe<'_, W>) -> bool {
        if self.descending {
            match &self.lower {
                Bound::Unbounded => true,
                Bound::Included(key) | Bound::Excluded(key) => key.cmp(fence).is_lt(),
            }
        } else {
            match &self.upper {
                Bound::Unbounded => true,
                Bound::Included(key) => key.cmp(fence).is_ge(),
                Bound::Excluded(key) => key.cmp(fence).is_gt(),
            }
        }
    }

    /// Returns the slots of `leaf` in the range. An end known to be crossed by the range is not
    /// searched for.
    ///
    /// # Safety
    /// The caller is pinned.
    unsafe fn slots<E: Keyed + 'static, G: Default + 'static, const L: usize>(
        &self,
        leaf: &LeafNode<E, G, W, L>,
        begun: bool,
        goes_on: bool,
    ) -> (usize, usize) {
        let count = leaf.count();
        // SAFETY: G1 by the function's contract.
        let at = |key: &Probe<'_, W>| unsafe { leaf.lower_bound(key, count) };
        let behind = |key| {
            // The slot is searched for once: while a writer changes the leaf, two searches may
            // differ, and the sum exceed the count.
            let slot = at(key);
            // SAFETY: G1 by the function's contract.
            slot + usize::from(unsafe { leaf.holds(slot, count, key) })
        };
        let (below, above) = if self.descending { (goes_on, begun) } else { (begun, goes_on) };
        let from = match &self.lower {
            Bound::Included(key) if !below => at(key),
            Bound::Excluded(key) if !below => behind(key),
            _ => 0,
        };
        let to = match &self.upper {
            Bound::Included(key) if !above => behind(key),
            Bound::Excluded(key) if !above => at(key),
            _ => count,
        };
        debug_assert!(from <= count && to <= count, "only slots with entries are read");
        (from, to.max(from))
    }
}

impl<E, G, const W: usize, const L: usize, const N: usize, const B: usize> Tree<E, G, W, L, N, B>
where
    E: Keyed + 'static,
    G: Default + 'static,
{
    /// Visits every leaf with a key range meeting `range`, in the range's direction.
    pub fn scan<'g>(&self, range: ScanRange<'_, W>, guard: &'g Guard, visit: Visit<'_, 'g, E, G>) {
        // Rebound, for a lifetime short enough for the fences too.
        let mut range = range;
        let mut entries: SmallVec<[&'g E; 32]> = SmallVec::new();
        'descend: loop {
            let Some(mut place) = self.descend_to(range.start(), range.descending, guard) else {
                continue;
            };
            loop {
                let beyond = place.fence.filter(|fence| range.continues(fence));
                if beyond.is_some() {
                    place.prefetch_next(range.descending);
                }
                if !snapshot(&range, &place, beyond.is_some(), &mut entries) {
                    continue 'descend;
                }
                let leaf = Leaf { head: &place.leaf.top, version: place.version };
                if visit(leaf, &entries).is_break() {
                    return;
                }
                let Some(fence) = beyond else { return };
                // If the tree has changed, the next leaf may hold reported keys too, before the
                // fence.
                range.advance(fence);
                match place.next(range.descending) {
                    Some(next) => place = next,
                    None => continue 'descend,
                }
            }
        }
    }

    /// Returns separators of the root in ascending order and, if the root has fewer children than
    /// `wanted`, of the root's children. Changes of the tree meanwhile move separators: the result
    /// divides the keys, though not evenly.
    pub fn fences_near_root<'g>(&self, wanted: usize, guard: &'g Guard) -> Vec<Probe<'g, W>> {
        let mut fences = self.fences_on(None, guard);
        let children = fences.len() + 1;
        if (2..wanted).contains(&children) {
            fences.extend((0..children).flat_map(|child| self.fences_on(Some(child), guard)));
        }
        fences.sort_by(Probe::cmp);
        fences.dedup_by(|one, other| one.cmp(other).is_eq());
        fences
    }

    /// Returns the separators of the root, or of a child of the root; none if the node is a leaf.
    fn fences_on<'g>(&self, child: Option<usize>, guard: &'g Guard) -> Vec<Probe<'g, W>> {
        loop {
            let (mut fences, mut depth) = (Vec::new(), 0);
            let descended = self.try_descend(guard, |inner, _, count| {
                if depth == usize::from(child.is_some()) {
                    // SAFETY: G1.
                    fences = (0..count - 1).map(|slot| unsafe { inner.fence(slot) }).collect();
                }
                depth += 1;
                child.filter(|_| depth == 1).unwrap_or(0).min(count - 1)
            });
            if descended.is_some() {
                return fences;
            }
        }
    }

    /// Makes an attempt to descend to `cursor`, noting the fences on the far side.
    fn descend_to<'g>(
        &self,
        cursor: LeafCursor<'_, W>,
        descending: bool,
        guard: &'g Guard,
    ) -> Option<Place<'g, E, G, W, L, N, B>> {
        let mut parent = None;
        let mut outer = None;
        let mut fence = None;
        let LeafPosition { leaf, version, .. } =
            self.try_descend(guard, |inner, version, count| {
                // SAFETY: G1.
                let index = unsafe {
                    match &cursor {
                        LeafCursor::First => 0,
                        LeafCursor::Last => count - 1,
                        LeafCursor::Holding(probe) => inner.route(probe, count),
                        LeafCursor::Below(probe) => inner.route_below(probe, count),
                    }
                };
                outer = fence;
                // SAFETY: G1.
                fence = unsafe { fence_of(inner, index, count, descending) }.or(outer);
                parent = Some((inner, version, index, count));
                index
            })?;
        Some(Place { leaf, version, parent, outer, fence, begun: false })
    }
}

/// The separator on the far side of child `index`, if held by the node.
///
/// # Safety
/// The caller is pinned for `'g`.
unsafe fn fence_of<'g, const W: usize, const N: usize, const B: usize>(
    inner: &InnerNode<W, N, B>,
    index: usize,
    count: usize,
    descending: bool,
) -> Option<Probe<'g, W>> {
    let at = match (descending, index) {
        (true, 0) => return None,
        (true, _) => index - 1,
        (false, _) if index + 1 == count => return None,
        (false, _) => index,
    };
    // SAFETY: G1 by the function's contract, the same as for `fence`.
    Some(unsafe { inner.fence(at) })
}

/// Collects the entries of the leaf in the range, in scan order; false if the leaf changed.
fn snapshot<
    'g,
    E: Keyed + 'static,
    G: Default + 'static,
    const W: usize,
    const L: usize,
    const N: usize,
    const B: usize,
>(
    range: &ScanRange<'_, W>,
    place: &Place<'g, E, G, W, L, N, B>,
    goes_on: bool,
    entries: &mut SmallVec<[&'g E; 32]>,
) -> bool {
    entries.clear();
    let leaf = place.leaf;
    // SAFETY: G1: `'g` is the lifetime of the guard.
    let (from, to) = unsafe { range.slots(leaf, place.begun, goes_on) };
    for slot in from..to {
        // SAFETY: G1, G2.
        match unsafe { leaf.entry(slot).as_ref() } {
            Some(entry) => entries.push(entry),
            None => return false,
        }
    }
    if range.descending {
        entries.reverse();
    }
    leaf.version().validate(place.version)
}

impl<'g, E, G, const W: usize, const L: usize, const N: usize, const B: usize>
    Place<'g, E, G, W, L, N, B>
where
    E: Keyed + 'static,
    G: Default + 'static,
{
    /// Prefetches the next leaf below the same parent.
    fn prefetch_next(&self, descending: bool) {
        let Some((inner, _, index, count)) = self.parent else { return };
        let next = if descending { index.checked_sub(1) } else { Some(index + 1) };
        if let Some(next) = next.filter(|&next| next < count) {
            LeafNode::<E, G, W, L>::prefetch_entries(inner.child(next).cast());
        }
    }

    /// The next leaf below the same parent, if any, and if the parent has not changed.
    fn next(&self, descending: bool) -> Option<Self> {
        let (inner, version, index, count) = self.parent?;
        let index = if descending { index.checked_sub(1)? } else { index + 1 };
        if index >= count {
            return None;
        }
        let child = inner.child(index);
        // SAFETY: G1, G2: `'g` is the lifetime of the guard.
        let head: &NodeHeader = unsafe { child.as_ref() }?;
        // SAFETY: G1: `'g` is the lifetime of the guard.
        let fence = unsafe { fence_of(inner, index, count, descending) }.or(self.outer);
        let leaf_version = head.version.read()?;
        if !inner.head.version.validate(version) {
            return None;
        }
        Some(Place {
            // SAFETY: G1, G2, G3: `inner` is the parent of a leaf, so all children are leaves.
            leaf: unsafe { &*child.cast() },
            version: leaf_version,
            parent: Some((inner, version, index, count)),
            outer: self.outer,
            fence,
            begun: true,
        })
    }
}
