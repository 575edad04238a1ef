//! Checksums of the outcomes of calls that were logged before execution. The call's record cannot
//! state the outcome, so later records do: replay finds, and names, a nondeterministic procedure.
//!
//! A session sums up the outcomes of its calls, by epoch and procedure. When the session runs a
//! call of another epoch, or is idle, it hands the sums over, and the next record of any session
//! states the sums. Replay adds up, for each epoch and procedure, the stated outcomes and the
//! outcomes found. Sums are over sets: the order in which calls end does not matter, and calls of a
//! procedure may be stated in several records. The set of calls is identified by a sum as well, of
//! the calls' places. Where the sum of places differs from the sum of the replayed calls, calls or
//! statements are lost, skipped, or not stated yet; then nothing is compared.
//!
//! Not compared are calls behind the last statement, thus about the calls of the last two epochs
//! before the log ends; and epochs with a call lost in a crash.
//!
//! An outcome is whether the call has committed. For one place in [`EXAMINED`], the outcome of a
//! committed call is a checksum of the writes, too: every nondeterministic procedure soon has a
//! call at such a place, and most calls cost no more than an addition.

use crate::storage::row::{push_varint, take, take_varint};
use hyades_platform::epoch::EpochNumber;
use hyades_platform::sync::Unpoisoned;
use hyades_wal::{Lsn, StreamId};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The writes of one call in `EXAMINED` are examined.
const EXAMINED: u64 = 8;

/// The most sums that a record states.
const MAX_STATED: usize = 32;

/// The place of a call in the log, mixed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallPlace(u64);

impl CallPlace {
    /// `start`: the start of the frame of the call's record.
    pub fn new(stream: StreamId, start: Lsn) -> CallPlace {
        CallPlace(mix(mix(u64::from(stream.0)) ^ start))
    }

    /// Returns the outcome of the call; `written` returns a checksum of the call's writes.
    pub fn outcome(self, committed: bool, written: impl FnOnce() -> u32) -> CallSum {
        let is_examined = committed && self.0.is_multiple_of(EXAMINED);
        let ended = u64::from(committed) << 32;
        let ended = if is_examined { ended | u64::from(written()) } else { ended };
        CallSum { places: self.0, outcomes: mix(self.0 ^ mix(ended)) as u32 }
    }
}

/// A bijection that spreads values with small differences.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    (bits ^ bits >> 31).wrapping_add(0x9E37_79B9_7F4A_7C15)
}

/// Sums over a set of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallSum {
    /// The sum of the calls' places.
    pub places: u64,
    /// The sum of the calls' outcomes.
    pub outcomes: u32,
}

impl CallSum {
    fn add(&mut self, other: CallSum) {
        self.places = self.places.wrapping_add(other.places);
        self.outcomes = self.outcomes.wrapping_add(other.outcomes);
    }
}

/// A sum over calls of one epoch and procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatedSum {
    pub epoch: EpochNumber,
    /// The number of the procedure in the log.
    pub procedure: u32,
    pub sum: CallSum,
}

/// Adds to the sum for the epoch and procedure of `more`, or begins a sum.
fn add_to(sums: &mut Vec<StatedSum>, more: StatedSum) {
    let is_same = |sum: &&mut StatedSum| (sum.epoch, sum.procedure) == (more.epoch, more.procedure);
    match sums.iter_mut().rev().find(is_same) {
        Some(same) => same.sum.add(more.sum),
        None => sums.push(more),
    }
}

/// The sums of a session, over the session's calls.
#[derive(Debug, Default)]
pub(crate) struct SessionOutcomes(Vec<StatedSum>);

impl SessionOutcomes {
    /// Adds a call. Hands over sums of other epochs.
    pub fn add(&mut self, call: StatedSum, unstated: &UnstatedOutcomes) {
        if self.0.first().is_some_and(|first| first.epoch != call.epoch) {
            self.hand_over(unstated);
        }
        add_to(&mut self.0, call);
    }

    /// Hands over all sums.
    pub fn hand_over(&mut self, unstated: &UnstatedOutcomes) {
        unstated.add(&mut self.0);
    }
}

/// Sums for the next record of any session to state.
#[derive(Debug, Default)]
pub(crate) struct UnstatedOutcomes {
    /// Whether there are any. Relaxed: a hint.
    any: AtomicBool,
    sums: Mutex<Vec<StatedSum>>,
}

impl UnstatedOutcomes {
    /// Takes over `more`, and leaves `more` empty.
    pub fn add(&self, more: &mut Vec<StatedSum>) {
        if more.is_empty() {
            return;
        }
        let mut sums = self.sums.lock().unpoisoned();
        more.drain(..).for_each(|sum| add_to(&mut sums, sum));
        self.any.store(true, Ordering::Relaxed);
    }

    /// Moves some sums to `to`, if there are any and no other session does so.
    #[inline]
    pub fn take(&self, to: &mut Vec<StatedSum>) {
        if self.any.load(Ordering::Relaxed) {
            self.take_some(to);
        }
    }

    #[cold]
    fn take_some(&self, to: &mut Vec<StatedSum>) {
        let Ok(mut sums) = self.sums.try_lock() else { return };
        let some = sums.len().min(MAX_STATED);
        to.extend(sums.drain(..some));
        self.any.store(!sums.is_empty(), Ordering::Relaxed);
    }
}

/// Appends sums: the number of sums, and for each the epoch, the procedure, and the two sums.
pub fn push_sums(out: &mut Vec<u8>, sums: &[StatedSum]) {
    push_varint(out, sums.len() as u64);
    for StatedSum { epoch, procedure, sum } in sums {
        push_varint(out, epoch.0);
        push_varint(out, u64::from(*procedure));
        out.extend_from_slice(&sum.places.to_le_bytes());
        out.extend_from_slice(&sum.outcomes.to_le_bytes());
    }
}

/// Reads the output of [`push_sums`], and calls `each`; `None` if malformed.
pub fn take_sums(bytes: &mut &[u8], mut each: impl FnMut(StatedSum)) -> Option<()> {
    for _ in 0..take_varint(bytes)? {
        let epoch = EpochNumber(take_varint(bytes)?);
        let procedure = u32::try_from(take_varint(bytes)?).ok()?;
        let places = u64::from_le_bytes(take(bytes, 8)?.try_into().ok()?);
        let outcomes = u32::from_le_bytes(take(bytes, 4)?.try_into().ok()?);
        each(StatedSum { epoch, procedure, sum: CallSum { places, outcomes } });
    }
    Some(())
}

/// The stated outcomes and the outcomes found by replay, by epoch and procedure.
#[derive(Debug, Default)]
pub(crate) struct ComparedOutcomes(BTreeMap<(EpochNumber, u32), [CallSum; 2]>);

impl ComparedOutcomes {
    fn add(&mut self, addend: StatedSum, side: usize) {
        self.0.entry((addend.epoch, addend.procedure)).or_default()[side].add(addend.sum);
    }

    /// Adds a sum stated by a record.
    pub fn stated(&mut self, sum: StatedSum) {
        self.add(sum, 0);
    }

    /// Adds a replayed call.
    pub fn found(&mut self, call: StatedSum) {
        self.add(call, 1);
    }

    /// Takes over the sums of another thread.
    pub fn merge(&mut self, other: ComparedOutcomes) {
        for (key, sums) in other.0 {
            let mine = self.0.entry(key).or_default();
            mine.iter_mut().zip(sums).for_each(|(mine, sum)| mine.add(sum));
        }
    }

    /// Returns the first epoch with outcomes of calls that differ from the statement, and the
    /// procedures.
    pub fn differing(&self) -> Option<(EpochNumber, Vec<u32>)> {
        let differs = |[stated, found]: &[CallSum; 2]| {
            stated.places == found.places && stated.outcomes != found.outcomes
        };
        let mut differing = self.0.iter().filter(|(_, sums)| differs(sums)).map(|(key, _)| *key);
        let (epoch, first) = differing.next()?;
        let others = differing
            .take_while(|(next_epoch, _)| *next_epoch == epoch)
            .map(|(_, procedure)| procedure);
        Some((epoch, std::iter::once(first).chain(others).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(epoch: u64, procedure: u32, start: Lsn, written: u32) -> StatedSum {
        let place = CallPlace::new(StreamId(3), start);
        let sum = place.outcome(true, || written);
        StatedSum { epoch: EpochNumber(epoch), procedure, sum }
    }

    #[test]
    fn sums_read_back() {
        let sums = [call(1, 2, 300, 4), call(1 << 33, u32::MAX, 1 << 40, 0)];
        let mut bytes = Vec::new();
        push_sums(&mut bytes, &sums);
        bytes.push(7);
        let (mut rest, mut read) = (&bytes[..], Vec::new());
        take_sums(&mut rest, |sum| read.push(sum)).unwrap();
        assert_eq!((&read[..], rest), (&sums[..], &[7][..]));
        for len in 0..bytes.len() - 1 {
            assert!(take_sums(&mut &bytes[..len], |_| ()).is_none(), "{len}");
        }
    }

    #[test]
    fn what_differs_is_found_and_what_is_incomplete_is_not_compared() {
        for lost in [None, Some(17)] {
            for other in [None, Some(40)] {
                let mut compared = ComparedOutcomes::default();
                for start in 0..64 {
                    compared.stated(call(5, 1, start, 9));
                    compared.stated(call(5, 2, 1000 + start, 9));
                    if Some(start) != lost {
                        compared.found(call(5, 1, start, 9));
                    }
                    let written = if other.is_some_and(|from| start >= from) { 8 } else { 9 };
                    compared.found(call(5, 2, 1000 + start, written));
                }
                let expected = other.map(|_| (EpochNumber(5), vec![2]));
                assert_eq!(compared.differing(), expected, "{lost:?} {other:?}");
            }
        }
    }

    #[test]
    fn sessions_hand_over_what_is_of_another_epoch() {
        let (unstated, mut session) = (UnstatedOutcomes::default(), SessionOutcomes::default());
        let mut taken = Vec::new();
        for start in 0..10 {
            session.add(call(1, 0, start, 0), &unstated);
        }
        unstated.take(&mut taken);
        assert!(taken.is_empty());
        session.add(call(2, 0, 10, 0), &unstated);
        unstated.take(&mut taken);
        assert_eq!(taken.len(), 1);
        session.hand_over(&unstated);
        unstated.take(&mut taken);
        assert_eq!(taken.iter().map(|sum| sum.epoch.0).collect::<Vec<_>>(), [1, 2]);
    }
}
