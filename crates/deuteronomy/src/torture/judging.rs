//! The check of a recovered state against a history, and the kind of any difference.

use super::history::{EMPTY, ExecutedInLife, KeyByte, KeyState, LifeHistory, WriteNumber, value};
use super::wrong::{WrongCounts, WrongLife};
use std::collections::BTreeSet;

/// Whether several transactions may have left the value: the value does not name its transaction.
fn is_of_any(written: WriteNumber) -> bool {
    written.is_none_or(|number| number == EMPTY)
}

impl LifeHistory {
    /// Whether a crash may have left the state `recovered` of `keys`: every acknowledged
    /// transaction is there, each is there whole, and so is everything read by each.
    ///
    /// # Errors
    /// The mismatch.
    pub fn check_recovered(&self, keys: &[KeyByte], recovered: &KeyState) -> Result<(), WrongLife> {
        let explained = self.explain(keys, recovered);
        explained.map_err(|what| WrongLife { counts: self.count_wrong(keys, recovered), what })
    }

    /// Whether a data component holds the state left by the transactions, all acknowledged.
    ///
    /// # Errors
    /// The states differ.
    pub fn check_content(&self, keys: &[KeyByte], found: &KeyState) -> Result<(), WrongLife> {
        let expected = self.last_state();
        if keys.iter().all(|key| value(&expected, *key) == value(found, *key)) {
            return Ok(());
        }
        let counts = self.count_wrong(keys, found);
        let what = format!("the data component holds {found:?}, not {expected:?}");
        Err(WrongLife { counts, what })
    }

    /// Whether the transactions acknowledged or with a visible write explain the state.
    fn explain(&self, keys: &[KeyByte], recovered: &KeyState) -> Result<(), String> {
        let of_write = |written: WriteNumber| {
            self.executed.iter().position(|e| e.writes.values().any(|w| *w == written))
        };
        let is_base = |key: KeyByte, written: WriteNumber| value(&self.base, key) == written;
        let mut wanted = self.acknowledged();
        for &key in keys {
            let written = value(recovered, key);
            if !is_of_any(written) && !is_base(key, written) {
                let by = of_write(written);
                wanted.push(by.ok_or_else(|| format!("{written:?} of {key} was never written"))?);
            }
        }
        self.fits(keys, recovered, wanted)
    }

    fn acknowledged(&self) -> Vec<usize> {
        (0..self.executed.len()).filter(|at| self.executed[*at].acknowledged).collect()
    }

    /// Whether the state was left by the wanted transactions, with all transactions read from, and
    /// perhaps further transactions with only anonymous values.
    fn fits(
        &self,
        keys: &[KeyByte],
        recovered: &KeyState,
        wanted: Vec<usize>,
    ) -> Result<(), String> {
        let there = self.closure(wanted)?;
        let mut state = self.base.clone();
        for at in &there {
            let writes = self.executed[*at].writes.iter();
            state.extend(writes.map(|(key, written)| (*key, *written)));
        }
        for &key in keys {
            let (expected, found) = (value(&state, key), value(recovered, key));
            if expected == found {
                continue;
            }
            let leaves = |at: &usize| self.executed[*at].writes.get(&key) == Some(&found);
            let others = (0..self.executed.len()).filter(|at| !there.contains(at));
            let with = |other| there.iter().copied().chain([other]).collect();
            let explains = |other| self.fits(keys, recovered, with(other)).is_ok();
            return match is_of_any(found) && others.filter(leaves).any(explains) {
                true => Ok(()),
                false => Err(format!("{key} is {found:?}, not {expected:?}")),
            };
        }
        Ok(())
    }

    /// Returns the wanted transactions, and all transactions read from.
    fn closure(&self, mut wanted: Vec<usize>) -> Result<BTreeSet<usize>, String> {
        let mut there = BTreeSet::new();
        while let Some(at) = wanted.pop() {
            if !there.insert(at) {
                continue;
            }
            let executed = &self.executed[at];
            for &(key, read) in &executed.reads {
                let is_writer =
                    |e: &ExecutedInLife| e.ticket.is_some() && e.writes.contains_key(&key);
                let writer = self.executed[..at].iter().rposition(is_writer);
                let written = match writer {
                    Some(writer) => self.executed[writer].writes[&key],
                    None => value(&self.base, key),
                };
                if written != read {
                    return Err(format!("{} read {read:?} of {key}: {written:?}", executed.ts));
                }
                wanted.extend(writer);
            }
        }
        Ok(there)
    }

    /// Returns the last state of a key with the value `written`: 0 is the state before all
    /// transactions, n the state behind n transactions.
    fn last_place(&self, key: KeyByte, written: WriteNumber) -> Option<usize> {
        let leaves = |e: &ExecutedInLife| e.writes.get(&key) == Some(&written);
        let by = self.executed.iter().rposition(leaves);
        by.map(|at| at + 1).or_else(|| (value(&self.base, key) == written).then_some(0))
    }

    /// Returns the counts of faults by kind in an unexplained state.
    pub(super) fn count_wrong(&self, keys: &[KeyByte], recovered: &KeyState) -> WrongCounts {
        let mut counts = WrongCounts::default();
        let places = keys.iter().map(|key| self.last_place(*key, value(recovered, *key)));
        let places: Vec<(KeyByte, Option<usize>)> = keys.iter().copied().zip(places).collect();
        let place = |key: KeyByte| places.iter().find(|(k, _)| *k == key).and_then(|(_, p)| *p);
        // The transaction's write is not there, nor a later write.
        let is_missing = |at: usize, key: KeyByte| place(key).is_some_and(|place| place <= at);
        let is_there = |key: KeyByte, written: WriteNumber| {
            !is_of_any(written) && value(recovered, key) == written
        };
        for (key, place) in &places {
            let found = value(recovered, *key);
            let is_of_another_key =
                self.executed.iter().any(|e| e.writes.values().any(|w| *w == found));
            match (place, found) {
                (Some(_), _) => {}
                // The key had a value, and no transaction has deleted the key.
                (None, None) => counts.lost += 1,
                (None, Some(_)) if is_of_another_key => counts.diverged += 1,
                (None, Some(_)) => counts.resurrected += 1,
            }
        }
        let needed = self.closure(self.acknowledged()).unwrap_or_default();
        let mut came_back = BTreeSet::new();
        for (at, executed) in self.executed.iter().enumerate() {
            let writes = || executed.writes.iter().map(|(key, written)| (*key, *written));
            let mut missing = writes().filter(|(key, _)| is_missing(at, *key)).peekable();
            if missing.peek().is_none() {
                continue;
            }
            let is_needed = needed.contains(&at);
            let has_part = writes().any(|(key, written)| is_there(key, written));
            counts.partial += usize::from(has_part);
            let (mut deleted, mut other) = (false, false);
            for (key, written) in missing {
                let is_back = written.is_none() && value(recovered, key).is_some();
                deleted |= is_back;
                other |= !is_back;
                if is_back && is_needed {
                    came_back.insert(key);
                }
            }
            counts.lost += usize::from(is_needed && !has_part && (other || !deleted));
        }
        counts.resurrected += came_back.len();
        if counts == WrongCounts::default() {
            counts.diverged = 1;
        }
        counts
    }
}

#[cfg(all(test, not(loom)))]
#[path = "judging_tests.rs"]
mod tests;
