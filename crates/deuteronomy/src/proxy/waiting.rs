//! The records of a stream handed over and not applied.

use super::Handed;
use std::collections::VecDeque;

/// Records, by the positions of their ends. Records arrive nearly in order, and leave in order: so
/// a record has its place at the end or close by, and nothing is moved when the first record
/// leaves.
#[derive(Default)]
pub(super) struct Waiting {
    records: VecDeque<Handed>,
}

impl Waiting {
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// By position.
    pub fn iter(&self) -> impl Iterator<Item = &Handed> {
        self.records.iter()
    }

    pub fn first(&self) -> Option<&Handed> {
        self.records.front()
    }

    pub fn take_first(&mut self) -> Option<Handed> {
        self.records.pop_front()
    }

    /// Moves the records with `is_taken` to `taken`, by position.
    pub fn take_where(
        &mut self,
        taken: &mut Vec<Handed>,
        mut is_taken: impl FnMut(&Handed) -> bool,
    ) {
        for record in std::mem::take(&mut self.records) {
            match is_taken(&record) {
                true => taken.push(record),
                false => self.records.push_back(record),
            }
        }
    }

    /// Adds a record, behind all records with an earlier end.
    pub fn insert(&mut self, record: Handed) {
        let end = record.place.1;
        let later = self.records.iter().rev().take_while(|other| other.place.1 > end).count();
        let at = self.records.len() - later;
        debug_assert!(
            at == 0 || self.records[at - 1].place.1 < end,
            "two records end at one position"
        );
        self.records.insert(at, record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyades_wal::{Lsn, Needs};

    fn ending_at(end: Lsn) -> Handed {
        let (needs, operations) = (Needs::default(), Default::default());
        let place = (end - 1, end);
        Handed {
            ts: end,
            stream: 0,
            place,
            first: end - 1,
            needs,
            operations,
            bytes: 1,
            handed_ns: 0,
        }
    }

    #[test]
    fn records_leave_by_position_in_whatever_order_they_come() {
        let mut rng = fastrand::Rng::with_seed(4);
        for reach in [1, 2, 50, 300] {
            let mut ends: Vec<Lsn> = (1..=300).collect();
            ends.chunks_mut(reach).for_each(|chunk| rng.shuffle(chunk));
            let (mut waiting, mut left, mut last) = (Waiting::default(), 0, 0);
            for end in ends {
                waiting.insert(ending_at(end));
                // Only records without possible predecessors leave.
                while waiting.first().is_some_and(|first| first.ts == last + 1) {
                    last = waiting.take_first().unwrap().ts;
                    left += 1;
                }
                assert!(waiting.iter().is_sorted_by_key(|record| record.place.1));
            }
            assert_eq!((left, last, waiting.is_empty()), (300, 300, true));
        }
    }
}
