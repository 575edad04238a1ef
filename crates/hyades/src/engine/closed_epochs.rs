//! Cut marks: epochs of which every record is below known positions of the log, for followers.
//!
//! A mark is an epoch c with two positions of each stream. No frame of a transaction of a later
//! epoch begins below `from`, and every frame of the transactions of all epochs up to c ends at or
//! below `to`. So a follower that has replayed the epochs up to an earlier mark b replays the
//! epochs after b up to c by reading from `from` of b to `to` of c. Steps, in order:
//!
//! 1. Close c ([`Snapshots::close_epoch`]): a transaction whose timestamp may be of an epoch before
//!    its commit conflicts from now on, instead of joining c late. Nothing is kept for the mark.
//!    An epoch is closed only if it may end: at the limit of epochs no mark is made.
//! 2. Note the next position of each stream: `from`. Then check that the epoch is still c, else
//!    begin again. A transaction of a later epoch reads its epoch after the check and reserves its
//!    frames later still, parts of its record included: at or behind `from`.
//! 3. Advance the epoch. The interval of the epoch begins anew, so marks use up few epochs.
//! 4. Once every session was seen idle or in a later epoch, all frames of the epochs up to c are
//!    reserved: note the next positions again, as `to`. Nothing waits; a later call looks again.
//!
//! A vector of a transaction up to c names positions that were reserved before the transaction left
//! its slot, so all of them are at or below `to`. A mark stays true, however late it is read.
//! `docs/protocols/cut-marks.md` has the argument with its hazards.

use super::snapshots::{SnapshotState, Snapshots};
use hyades_platform::active_epochs::ActiveEpochs;
use hyades_platform::broken;
use hyades_platform::clock;
use hyades_platform::epoch::{Epoch, EpochNumber};
use hyades_wal::Lsn;
use std::sync::Arc;
use std::time::Duration;

/// How soon a mark with a snapshot looks again for commits under way.
const AGAIN: Duration = Duration::from_micros(100);

/// A point of the log at which the effects of whole epochs can be told apart, see
/// [`Database::cut_marks`](crate::Database::cut_marks).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutMark {
    /// The incarnation of the log.
    pub incarnation: u32,
    /// The epoch c.
    pub epoch: u64,
    /// For each stream: no frame of a later epoch begins below.
    pub from: Vec<Lsn>,
    /// For each stream: every frame of epoch c or an earlier epoch ends at or below.
    pub to: Vec<Lsn>,
    /// The end of the epoch by the wall clock, in microseconds since 1970; for people.
    pub wall_us: u64,
}

/// The parts of a database that tell its epochs.
#[derive(Clone, Copy)]
pub(crate) struct Epochs<'e> {
    pub epoch: &'e Epoch,
    pub snapshots: &'e Snapshots,
    pub active: &'e ActiveEpochs,
}

/// A mark between step 3 and step 4.
#[derive(Debug)]
struct EndedEpoch {
    epoch: EpochNumber,
    from: Vec<Lsn>,
    wall_us: u64,
}

/// Makes cut marks, see the module.
#[derive(Debug, Default)]
pub(crate) struct ClosedEpochs {
    ended: Option<EndedEpoch>,
}

impl ClosedEpochs {
    /// Ends an epoch, or looks again at the epoch ended by the last call. Returns the mark once all
    /// frames of the epoch have their places; `None` also at the limit of epochs. `positions`
    /// returns the next position of each stream.
    pub fn tick(
        &mut self,
        epochs: Epochs<'_>,
        incarnation: u32,
        positions: impl Fn() -> Vec<Lsn>,
    ) -> Option<CutMark> {
        if self.ended.is_none() {
            self.end_epoch(epochs, &positions, |epoch| epochs.snapshots.close_epoch(epoch));
        }
        self.complete(epochs, incarnation, positions)
    }

    /// Steps 1 to 3. `close` is called with the epoch to close, possibly several times. False, and
    /// no epoch has ended, at the limit of epochs.
    pub fn end_epoch(
        &mut self,
        Epochs { epoch, .. }: Epochs<'_>,
        positions: &impl Fn() -> Vec<Lsn>,
        mut close: impl FnMut(EpochNumber),
    ) -> bool {
        let (closed, mut from) = loop {
            let now = epoch.current();
            if !epoch.may_end(now) {
                return false;
            }
            close(now);
            let from = positions();
            if epoch.current() == now {
                break (now, from);
            }
        };
        while epoch.current() <= closed {
            // Whatever the age of the epoch.
            epoch.advance_if_older_than(Duration::ZERO);
        }
        if broken!(MarkFromLate) {
            std::thread::sleep(Duration::from_micros(500));
            from = positions();
        }
        self.ended = Some(EndedEpoch { epoch: closed, from, wall_us: clock::wall_us() });
        true
    }

    /// Step 4: returns the mark of the ended epoch, if all frames of the epoch are reserved.
    pub fn complete(
        &mut self,
        Epochs { epoch, snapshots, active }: Epochs<'_>,
        incarnation: u32,
        positions: impl Fn() -> Vec<Lsn>,
    ) -> Option<CutMark> {
        let closed = self.ended.as_ref()?.epoch;
        if active.lowest(epoch) <= closed && !broken!(MarkEarly) {
            return None;
        }
        snapshots.settle(closed);
        let to = positions();
        let EndedEpoch { epoch: EpochNumber(epoch), from, wall_us } = self.ended.take()?;
        debug_assert!(from.iter().zip(&to).all(|(from, to)| from <= to), "a stream only grows");
        Some(CutMark { incarnation, epoch, from, to, wall_us })
    }
}

/// Makes a mark together with a snapshot of its epoch, to compare both. Waits for commits. `None`
/// at the limit of epochs.
pub(crate) fn mark_with_snapshot(
    epochs: Epochs<'_>,
    incarnation: u32,
    positions: impl Fn() -> Vec<Lsn>,
) -> Option<(CutMark, Arc<SnapshotState>)> {
    // No other snapshot begins in the epoch of the mark.
    let _opening = epochs.snapshots.hold_opening();
    let (mut closing, mut opened) = (ClosedEpochs::default(), None);
    let close = |stale: Option<Arc<SnapshotState>>| {
        stale.iter().for_each(|stale| epochs.snapshots.close(stale, epochs.epoch));
    };
    let has_ended = closing.end_epoch(epochs, &positions, |_| {
        close(opened.take());
        opened = epochs.snapshots.begin_for_mark(epochs.epoch);
    });
    if !has_ended {
        close(opened);
        return None;
    }
    loop {
        if let Some(mark) = closing.complete(epochs, incarnation, &positions) {
            return Some((mark, opened.expect("an epoch was closed")));
        }
        std::thread::sleep(AGAIN);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use hyades_platform::sync::{AtomicU64, Ordering};
    use loom::thread;
    use std::sync::Arc;

    /// Two sessions commit while a mark is made: a transaction up to the mark's epoch has its place
    /// below `to`, a later transaction at or behind `from`.
    #[test]
    fn a_transaction_is_below_the_mark_or_behind_it() {
        struct Shared {
            epoch: Epoch,
            active: ActiveEpochs,
            snapshots: Snapshots,
            /// The end of the log.
            log: AtomicU64,
        }
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let shared = Arc::new(Shared {
                epoch: Epoch::new(EpochNumber(5)),
                active: ActiveEpochs::default(),
                snapshots: Snapshots::default(),
                log: AtomicU64::new(0),
            });
            let session = || {
                let (shared, slot) = (Arc::clone(&shared), shared.active.add());
                thread::spawn(move || {
                    slot.enter(&shared.epoch);
                    let epoch = shared.epoch.current();
                    let place = shared.log.fetch_add(1, Ordering::SeqCst);
                    slot.leave();
                    (epoch, place)
                })
            };
            let sessions = [session(), session()];
            let Shared { epoch, active, snapshots, log } = &*shared;
            let epochs = Epochs { epoch, snapshots, active };
            let mut closed = ClosedEpochs::default();
            let mark = loop {
                let positions = || vec![log.load(Ordering::SeqCst)];
                if let Some(mark) = closed.tick(epochs, 1, positions) {
                    break mark;
                }
                thread::yield_now();
            };
            for session in sessions {
                let (EpochNumber(epoch), place) = session.join().unwrap();
                match epoch <= mark.epoch {
                    true => assert!(place < mark.to[0], "it is of the mark, and behind its end"),
                    false => assert!(place >= mark.from[0], "it is below the next round"),
                }
            }
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A mark is made once the sessions of its epoch have left, and its positions are as of the end
    /// of the epoch, and as of the moment when the sessions have left.
    #[test]
    fn a_mark_waits_for_the_sessions_of_its_epoch() {
        let (epoch, active) = (Epoch::new(EpochNumber(5)), ActiveEpochs::default());
        let (snapshots, log) = (Snapshots::default(), Cell::new(10));
        let epochs = Epochs { epoch: &epoch, snapshots: &snapshots, active: &active };
        let positions = || vec![log.get()];
        let slot = active.add();
        slot.enter(&epoch);
        let mut closed = ClosedEpochs::default();
        for end in [10, 20, 30] {
            log.set(end);
            assert_eq!(closed.tick(epochs, 3, positions), None);
            assert_eq!((epoch.current(), snapshots.closed()), (EpochNumber(6), EpochNumber(5)));
            assert_eq!(snapshots.settled(), EpochNumber(0));
        }
        log.set(40);
        slot.leave();
        let mark = closed.tick(epochs, 3, positions).unwrap();
        assert_eq!((mark.incarnation, mark.epoch, mark.from, mark.to), (3, 5, vec![10], vec![40]));
        assert_eq!(snapshots.settled(), EpochNumber(5));
        let next = closed.tick(epochs, 3, positions).unwrap();
        assert_eq!((next.epoch, next.from, next.to), (6, vec![40], vec![40]));
    }

    /// At the limit of epochs no mark is made, and the epoch is not closed: transactions go on. A
    /// mark of an epoch that had ended before is made.
    #[test]
    fn no_mark_is_made_at_the_limit() {
        let (epoch, active) =
            (Epoch::new(EpochNumber(5)).limited_to(EpochNumber(6)), ActiveEpochs::default());
        let snapshots = Snapshots::default();
        let epochs = Epochs { epoch: &epoch, snapshots: &snapshots, active: &active };
        let slot = active.add();
        slot.enter(&epoch);
        let mut closed = ClosedEpochs::default();
        let mut tick = || closed.tick(epochs, 3, || vec![10]).map(|mark| mark.epoch);
        assert_eq!((tick(), epoch.current()), (None, EpochNumber(6)));
        slot.leave();
        assert_eq!([(); 4].map(|()| tick()), [Some(5), None, None, None]);
        assert_eq!((epoch.current(), snapshots.closed()), (EpochNumber(6), EpochNumber(5)));
        epoch.raise_limit(EpochNumber(7));
        assert_eq!([(); 3].map(|()| tick()), [Some(6), None, None]);
        assert_eq!((epoch.current(), snapshots.closed()), (EpochNumber(7), EpochNumber(6)));
    }
}
