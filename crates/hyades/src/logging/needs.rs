//! What a transaction waits for before it is acknowledged.

use hyades_wal::Lane;
use smallvec::SmallVec;

/// Positions or watermarks that the frontier has to reach before a transaction is acknowledged, by
/// frontier slot, each slot at most once. Nearly always there is only the transaction's own, which
/// is pushed last and stored inline.
#[derive(Clone, Debug, Default)]
pub(crate) struct Needs {
    /// 0 if there is none: position 0 is always reached.
    last: u64,
    lane: Lane,
    /// Inline room for the others of a transaction over four streams.
    others: SmallVec<[(Lane, u64); 3]>,
}

impl Needs {
    /// Adds an entry. Zero is always reached, and left out.
    #[inline(always)]
    pub fn push(&mut self, (lane, number): (Lane, u64)) {
        if number == 0 {
            return;
        }
        if self.last != 0 {
            self.others.push((self.lane, self.last));
        }
        (self.lane, self.last) = (lane, number);
    }

    /// Removes and returns the last entry.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<(Lane, u64)> {
        if self.last == 0 {
            return None;
        }
        let popped = (self.lane, self.last);
        (self.lane, self.last) = self.others.pop().unwrap_or_default();
        Some(popped)
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.last == 0
    }

    /// All entries, the last one first.
    pub fn iter(&self) -> impl Iterator<Item = (Lane, u64)> {
        let last = (self.last != 0).then_some((self.lane, self.last));
        last.into_iter().chain(self.others.iter().rev().copied())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_was_pushed_comes_back_in_reverse() {
        for n in 0..5 {
            let mut needs = Needs::default();
            let all: Vec<(Lane, u64)> = Lane::first(n).zip(10..).collect();
            all.iter().for_each(|need| needs.push(*need));
            needs.push((Lane::position(9), 0));
            let backwards: Vec<_> = all.iter().rev().copied().collect();
            assert_eq!(needs.iter().collect::<Vec<_>>(), backwards);
            let mut taken = needs.clone();
            assert_eq!(std::iter::from_fn(|| taken.pop()).collect::<Vec<_>>(), backwards);
            assert!(taken.is_empty());
            assert!(taken.iter().next().is_none());
        }
    }
}
