//! Applied records behind the resume point: redo would apply these records again.
//!
//! The data component may forget only operations below the lowest of the records' timestamps. While
//! a transaction with parts holds the resume point back the records become more and more, so the
//! entries are kept in bounded memory: neighbours become a single entry for both.
//!
//! Invariant: for each position, the lowest timestamp kept above the position is at or below the
//! lowest of all records noted above. So nothing brought back by redo is forgotten.

use hyades_wal::Lsn;
use std::collections::BTreeMap;

/// The most entries; at least 2.
const MOST_ENTRIES: usize = 1024;

/// The ends of applied records of a stream, with timestamps.
#[derive(Debug, Default)]
pub(super) struct AppliedBehind {
    /// Timestamps ascend with positions: an earlier record with a higher timestamp adds nothing to
    /// the later record.
    by_end: BTreeMap<Lsn, u64>,
}

impl AppliedBehind {
    /// Notes a record by its end.
    pub fn note(&mut self, end: Lsn, ts: u64) {
        if self.by_end.range(end..).next().is_some_and(|(_, later)| *later <= ts) {
            return;
        }
        while let Some((&before, &earlier)) = self.by_end.range(..=end).next_back()
            && earlier >= ts
        {
            self.by_end.remove(&before);
        }
        self.by_end.insert(end, ts);
        if self.by_end.len() > MOST_ENTRIES {
            self.join_neighbours();
        }
    }

    /// Of each two entries a single entry is left: the lower timestamp counts until the later
    /// position is passed.
    fn join_neighbours(&mut self) {
        let mut entries = std::mem::take(&mut self.by_end).into_iter();
        while let Some((end, ts)) = entries.next() {
            let end = entries.next().map_or(end, |(later, _)| later);
            self.by_end.insert(end, ts);
        }
    }

    /// Forgets records with an end at or below `position`: redo will not apply these.
    pub fn forget_up_to(&mut self, position: Lsn) {
        self.by_end = self.by_end.split_off(&(position + 1));
    }

    /// Returns a timestamp at or below the timestamps of all noted records.
    pub fn lowest(&self) -> Option<u64> {
        self.by_end.first_key_value().map(|(_, ts)| *ts)
    }

    /// How many entries there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.by_end.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_never_above_what_was_noted() {
        let mut rng = fastrand::Rng::with_seed(5);
        for spread in [1, 50, 100_000] {
            let (mut kept, mut all) = (AppliedBehind::default(), Vec::new());
            let mut forgotten = 0;
            for n in 1..6000u64 {
                // Mostly in order: records passed over come later.
                let back = if rng.u8(..4) == 0 { rng.u64(..64) } else { 0 };
                let (end, ts) = ((n * 8).saturating_sub(back * 8 + 1), n + rng.u64(..spread));
                if end <= forgotten {
                    continue;
                }
                kept.note(end, ts);
                all.push((end, ts));
                assert!(kept.len() <= MOST_ENTRIES, "{}", kept.len());
                if rng.u8(..) == 0 {
                    let position = rng.u64(forgotten..=end);
                    forgotten = position;
                    kept.forget_up_to(position);
                    all.retain(|(end, _)| *end > position);
                    let lowest = all.iter().map(|(_, ts)| *ts).min();
                    assert!(kept.lowest().is_none_or(|kept| lowest.is_none_or(|l| kept <= l)));
                    assert!(kept.lowest().is_some() || lowest.is_none(), "one is forgotten");
                    if all.is_empty() {
                        break;
                    }
                }
            }
            kept.forget_up_to(6000 * 8);
            assert_eq!(kept.lowest(), None);
        }
    }

    #[test]
    fn up_to_the_limit_each_is_kept_and_one_more_joins_neighbours() {
        let mut kept = AppliedBehind::default();
        (1..=MOST_ENTRIES as u64).for_each(|n| kept.note(n, n));
        assert_eq!(kept.len(), MOST_ENTRIES);
        kept.note(MOST_ENTRIES as u64 + 1, MOST_ENTRIES as u64 + 1);
        assert_eq!(kept.len(), MOST_ENTRIES / 2 + 1);
        kept.forget_up_to(1);
        assert_eq!(kept.lowest(), Some(1), "it stands for the second, too");
        kept.forget_up_to(2);
        assert_eq!(kept.lowest(), Some(3));
    }
}
