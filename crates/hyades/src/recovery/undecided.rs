//! Records not yet known as live or dead.
//!
//! Each record is parked under one slot of the frontier, by its missing position in the slot, and
//! is checked again once the slot reaches the position: for any number of records, a slot that does
//! not advance costs one check of its lowest position.

use hyades_wal::Lane;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A parked record, with its missing position.
struct UndecidedRecord<T> {
    position: u64,
    record: T,
}

impl<T> PartialEq for UndecidedRecord<T> {
    fn eq(&self, other: &Self) -> bool {
        self.position == other.position
    }
}
impl<T> Eq for UndecidedRecord<T> {}
impl<T> PartialOrd for UndecidedRecord<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for UndecidedRecord<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        // A `BinaryHeap` returns its greatest element first; the lowest position is wanted.
        other.position.cmp(&self.position)
    }
}

/// The undecided records of one thread.
pub(super) struct Undecided<T> {
    lanes: Vec<BinaryHeap<UndecidedRecord<T>>>,
}

impl<T> Undecided<T> {
    /// Creates an empty set over this many slots.
    pub fn new(lanes: usize) -> Self {
        Undecided { lanes: (0..lanes).map(|_| BinaryHeap::new()).collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.lanes.iter().all(BinaryHeap::is_empty)
    }

    /// Adds a record with a missing position of a slot.
    pub fn park(&mut self, (lane, position): (Lane, u64), record: T) {
        let at = lane.index();
        debug_assert!(at < self.lanes.len(), "a record lacks a position of a known slot");
        self.lanes[at].push(UndecidedRecord { position, record });
    }

    /// Takes out a record without missing positions. `frontier` returns the value of a slot, and
    /// `missing` the first missing position of a record.
    pub fn decided(
        &mut self,
        frontier: impl Fn(Lane) -> u64,
        missing: impl Fn(&T) -> Option<(Lane, u64)>,
    ) -> Option<T> {
        for lane in Lane::first(self.lanes.len()) {
            let at = lane.index();
            if self.lanes[at].is_empty() {
                continue;
            }
            let reached = frontier(lane);
            while self.lanes[at].peek().is_some_and(|parked| parked.position <= reached) {
                let parked = self.lanes[at].pop().expect("looked at above");
                match missing(&parked.record) {
                    Some(place) => self.park(place, parked.record),
                    None => return Some(parked.record),
                }
            }
        }
        None
    }

    /// Returns all remaining records.
    pub fn into_rest(self) -> impl Iterator<Item = T> {
        self.lanes.into_iter().flatten().map(|parked| parked.record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A record for each chunk lacks positions that two slots reach only at the end; the rest are
    /// decided in between.
    #[test]
    fn a_slot_that_does_not_advance_costs_no_checks() {
        const CHUNKS: u64 = 2_000;
        let (frontier, checks) = ([0, 0, 0].map(Cell::new), Cell::new(0));
        let now = |lane: Lane| frontier[lane.index()].get();
        let missing = |needs: &[u64; 3]| {
            checks.set(checks.get() + 1);
            Lane::each(needs).find(|&(lane, needed)| needed > now(lane))
        };
        let mut undecided = Undecided::new(3);
        let mut decided = Vec::new();
        for chunk in 1..=CHUNKS {
            // A record decided by the next chunk, and a record decided by two slots, in any order.
            for record in [[chunk + 1, 0, 0], [0, chunk * 7 % CHUNKS + 1, chunk]] {
                undecided.park(missing(&record).unwrap(), record);
            }
            frontier[0].set(chunk);
            while let Some(record) = undecided.decided(now, missing) {
                decided.push(record);
            }
        }
        assert_eq!(decided.len() as u64, CHUNKS - 1);
        frontier[1].set(CHUNKS);
        frontier[2].set(CHUNKS - 1);
        while let Some(record) = undecided.decided(now, missing) {
            decided.push(record);
        }
        assert_eq!(decided.len() as u64, 2 * CHUNKS - 2);
        let rest: Vec<_> = undecided.into_rest().collect();
        assert_eq!(rest.len(), 2);
        assert!(rest.iter().all(|needs| needs[0] > CHUNKS || needs[2] == CHUNKS));
        // A check when the record was parked, and a check for each slot that it lacked.
        assert!(checks.get() <= 5 * CHUNKS, "{} checks", checks.get());
    }
}
