//! The acknowledgement rule, and the positions needed by a transaction before acknowledgement.

use crate::lane::Lane;
use smallvec::SmallVec;

/// **The acknowledgement rule.** A transaction is acknowledged by a running database, and belongs
/// to the recovered state after a crash, iff each needed position is at or below the frontier.
///
/// At run time the frontier is the part confirmed by the device; at recovery the frontier is the
/// end of each stream's valid prefix, never less. A protocol with numbered records needs *marks*,
/// stated in the log by streams: at run time the durable marks, at recovery the marks in the valid
/// prefixes, again never less. The [`Frontier`](crate::Frontier) has a lane for each position and
/// mark, named by a [`Lane`]. The rule is monotone in the frontier, hence *acknowledged implies
/// recovered*.
#[inline]
pub fn admits(
    frontier: impl Fn(Lane) -> u64,
    needs: impl IntoIterator<Item = (Lane, u64)>,
) -> bool {
    first_unmet(frontier, needs).is_none()
}

/// Returns the first position not reached by the frontier: the next position of a waiter.
#[inline]
pub fn first_unmet(
    frontier: impl Fn(Lane) -> u64,
    needs: impl IntoIterator<Item = (Lane, u64)>,
) -> Option<(Lane, u64)> {
    needs.into_iter().find(|&(lane, number)| !is_met(frontier(lane), number))
}

/// Whether a component of the frontier has reached a needed position. Only this function compares
/// the two.
#[inline(always)]
pub fn is_met(frontier: u64, needed: u64) -> bool {
    needed <= frontier
}

/// Positions or marks needed from the frontier before a transaction is acknowledged, by frontier
/// lane, each lane at most once. Nearly always there is only the transaction's own entry, pushed
/// last and stored inline.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// 0 if there is none: position 0 is always reached.
    last: u64,
    lane: Lane,
    /// Inline room for the further entries of a transaction over four streams.
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

    /// Raises the entry of a lane to at least `number`; adds a missing entry.
    #[inline]
    pub fn raise(&mut self, (lane, number): (Lane, u64)) {
        let mut others = self.others.iter_mut();
        if self.last != 0 && self.lane == lane {
            self.last = self.last.max(number);
        } else if let Some((_, other)) = others.find(|(other, _)| *other == lane) {
            *other = number.max(*other);
        } else {
            self.push((lane, number));
        }
    }

    /// Raises the entries to at least the entries of `others`.
    #[inline]
    pub fn join(&mut self, others: &Needs) {
        // Backwards: the entry pushed last stays last.
        others.others.iter().for_each(|need| self.raise(*need));
        if others.last != 0 {
            self.raise((others.lane, others.last));
        }
    }

    /// Drops the entries reached by the frontier.
    #[inline]
    pub fn forget_met(&mut self, frontier: impl Fn(Lane) -> u64) {
        if !self.others.is_empty() {
            self.others.retain(|(lane, number)| !is_met(frontier(*lane), *number));
        }
        if self.last != 0 && is_met(frontier(self.lane), self.last) {
            (self.lane, self.last) = self.others.pop().unwrap_or_default();
        }
    }

    /// Whether nothing has to be reached.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.last == 0
    }

    /// Returns all entries, the last first.
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

    #[test]
    fn needs_are_joined_by_slot_and_dropped_once_they_are_met() {
        let needs = |all: &[(usize, u64)]| {
            let mut needs = Needs::default();
            all.iter().for_each(|(at, number)| needs.push((Lane::position(*at), *number)));
            needs
        };
        let sorted = |needs: &Needs| {
            let mut all: Vec<(usize, u64)> = needs.iter().map(|(l, n)| (l.index(), n)).collect();
            all.sort_unstable();
            all
        };
        let mut joined = needs(&[(0, 5), (3, 7)]);
        joined.join(&needs(&[(1, 2), (3, 9), (0, 4)]));
        assert_eq!(sorted(&joined), [(0, 5), (1, 2), (3, 9)]);
        joined.join(&Needs::default());
        let mut copied = Needs::default();
        copied.join(&joined);
        assert_eq!(copied.iter().collect::<Vec<_>>(), joined.iter().collect::<Vec<_>>());
        for (reached, left) in [(1, 3), (2, 2), (8, 1), (9, 0)] {
            let mut needs = joined.clone();
            needs.forget_met(|_| reached);
            assert!(needs.iter().all(|(_, number)| number > reached), "{needs:?}");
            assert_eq!((needs.iter().count(), needs.is_empty()), (left, left == 0));
        }
    }
}
