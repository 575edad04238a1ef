//! The possible parallelism of replay: the number of transactions over the longest chain of records
//! that wait for each other.
//!
//! As in replay, a component of an order vector covers all of a stream up to its LSN. Chains may
//! therefore be longer than the actual chains of reads and writes, which the log does not contain.

use hyades_wal::Lsn;
use std::collections::VecDeque;

/// A frame in the order of replay.
pub struct Item {
    /// The LSN of the frame's end.
    pub end: Lsn,
    /// Whether the frame is a live transaction.
    pub live: bool,
    /// The LSNs that the frame waits for, by lane; empty without a wait.
    pub order: Vec<Lsn>,
}

/// The items of one stream as read.
pub struct Lane {
    queue: VecDeque<Item>,
    /// Everything below this LSN is passed.
    passed: Lsn,
    ended: bool,
    /// (end, depth) of each record deeper than all earlier records.
    rises: Vec<(Lsn, u64)>,
}

impl Lane {
    fn depth_up_to(&self, lsn: Lsn) -> u64 {
        let below = self.rises.partition_point(|(end, _)| *end <= lsn);
        below.checked_sub(1).map_or(0, |at| self.rises[at].1)
    }
}

/// Computes the depths of the records in one incarnation.
pub struct Depths {
    lanes: Vec<Lane>,
    /// Whether each record waits for the record before in its stream, as in a log without vectors.
    chained: bool,
    /// Live transactions passed.
    pub records: u64,
    /// The length of the longest chain.
    pub longest: u64,
}

impl Depths {
    /// Creates lanes that begin at these LSNs.
    pub fn new(starts: &[Lsn], chained: bool) -> Depths {
        let lane =
            |&passed| Lane { queue: VecDeque::new(), passed, ended: false, rises: Vec::new() };
        Depths { lanes: starts.iter().map(lane).collect(), chained, records: 0, longest: 0 }
    }

    /// Passes all records with passed dependencies. Calls `more` for the next items of an empty
    /// lane (`None` at its end). Returns false if records wait for each other in a cycle.
    ///
    /// # Errors
    /// Errors of `more`.
    pub fn pass_all<E>(
        &mut self,
        mut more: impl FnMut(usize) -> Result<Option<Vec<Item>>, E>,
    ) -> Result<bool, E> {
        loop {
            let mut moved = false;
            for at in 0..self.lanes.len() {
                while !self.lanes[at].ended {
                    if self.lanes[at].queue.is_empty() {
                        match more(at)? {
                            Some(items) => self.lanes[at].queue.extend(items),
                            None => {
                                self.lanes[at].ended = true;
                                self.lanes[at].passed = Lsn::MAX;
                            }
                        }
                        moved = true;
                    } else if self.pass_one(at) {
                        moved = true;
                    } else {
                        break;
                    }
                }
            }
            if self.lanes.iter().all(|lane| lane.ended) {
                return Ok(true);
            }
            if !moved {
                return Ok(false);
            }
        }
    }

    /// Passes the first item of the lane, unless the item has to wait.
    fn pass_one(&mut self, at: usize) -> bool {
        let Some(item) = self.lanes[at].queue.front() else { return false };
        if item.live && item.order.iter().zip(&self.lanes).any(|(lsn, lane)| *lsn > lane.passed) {
            return false;
        }
        let Some(item) = self.lanes[at].queue.pop_front() else { return false };
        if item.live {
            let depths = item.order.iter().zip(&self.lanes).map(|(lsn, l)| l.depth_up_to(*lsn));
            let before = match self.chained {
                true => self.lanes[at].depth_up_to(Lsn::MAX),
                false => depths.max().unwrap_or(0),
            };
            let depth = before + 1;
            self.records += 1;
            self.longest = self.longest.max(depth);
            if depth > self.lanes[at].depth_up_to(Lsn::MAX) {
                self.lanes[at].rises.push((item.end, depth));
            }
        }
        self.lanes[at].passed = item.end;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(end: Lsn, order: &[Lsn]) -> Item {
        Item { end, live: true, order: order.to_vec() }
    }

    fn run(lanes: Vec<Vec<Item>>, chained: bool) -> Option<(u64, u64)> {
        let mut depths = Depths::new(&vec![0; lanes.len()], chained);
        let mut lanes: Vec<_> = lanes.into_iter().map(Some).collect();
        let passed = depths.pass_all(|at| Ok::<_, ()>(lanes[at].take())).unwrap();
        passed.then_some((depths.records, depths.longest))
    }

    #[test]
    fn independent_records_have_depth_one() {
        let lanes = vec![vec![record(10, &[0, 0]), record(20, &[0, 0])], vec![record(10, &[0, 0])]];
        assert_eq!(run(lanes, false), Some((3, 1)));
    }

    #[test]
    fn an_entry_means_everything_below_it() {
        // In lane 0 the second record has depth 2, and the third has depth 1. Lane 1 waits for the
        // third, whose LSN covers the second.
        let lanes = vec![
            vec![record(10, &[0, 0]), record(20, &[10, 0]), record(30, &[0, 0])],
            vec![record(10, &[30, 0])],
        ];
        assert_eq!(run(lanes, false), Some((4, 3)));
    }

    #[test]
    fn dead_records_are_passed_and_count_for_nothing() {
        let dead = Item { end: 10, live: false, order: vec![99, 99] };
        assert_eq!(run(vec![vec![dead, record(20, &[10, 0])], vec![]], false), Some((1, 1)));
    }

    #[test]
    fn without_vectors_each_waits_for_the_one_before() {
        let lanes = vec![vec![record(10, &[]), record(20, &[]), record(30, &[])]];
        assert_eq!(run(lanes, true), Some((3, 3)));
    }

    #[test]
    fn a_circle_is_noticed() {
        let lanes = vec![vec![record(10, &[0, 10])], vec![record(10, &[10, 0])]];
        assert_eq!(run(lanes, false), None);
    }
}
