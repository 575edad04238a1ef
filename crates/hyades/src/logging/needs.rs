//! What a transaction waits for before it is acknowledged.

use hyades_wal::Lsn;
use smallvec::SmallVec;

/// Positions or watermarks that the frontier has to reach before a transaction is acknowledged, by
/// frontier slot (`lane` in the code), each slot at most once. Nearly always there is only the
/// transaction's own, which is pushed last and stored inline.
#[derive(Clone, Debug, Default)]
pub(crate) struct Needs {
    /// 0 if there is none: position 0 is always reached.
    last: Lsn,
    lane: u16,
    /// Inline room for the others of a transaction over four streams.
    others: SmallVec<[(u16, Lsn); 3]>,
}

impl Needs {
    /// Adds an entry. Zero is always reached, and left out.
    #[inline(always)]
    pub fn push(&mut self, (lane, lsn): (u16, Lsn)) {
        if lsn == 0 {
            return;
        }
        if self.last != 0 {
            self.others.push((self.lane, self.last));
        }
        (self.lane, self.last) = (lane, lsn);
    }

    /// Removes and returns the last entry.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<(u16, Lsn)> {
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
    pub fn iter(&self) -> impl Iterator<Item = (u16, Lsn)> {
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
            let all: Vec<(u16, Lsn)> = (0..n).map(|lane| (lane, 10 + Lsn::from(lane))).collect();
            all.iter().for_each(|need| needs.push(*need));
            needs.push((9, 0));
            let backwards: Vec<_> = all.iter().rev().copied().collect();
            assert_eq!(needs.iter().collect::<Vec<_>>(), backwards);
            let mut taken = needs.clone();
            assert_eq!(std::iter::from_fn(|| taken.pop()).collect::<Vec<_>>(), backwards);
            assert!(taken.is_empty());
            assert!(taken.iter().next().is_none());
        }
    }
}
