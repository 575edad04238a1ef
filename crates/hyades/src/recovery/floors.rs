//! The floor of a replay by timestamps: no remaining record reads as of a lower TID, so row
//! versions with an end before the floor can be forgotten, with the items held up by them:
//! tombstones, and index entries of earlier states of rows.
//!
//! A record may state a floor: the record, and every record whose position is reserved later, in
//! any stream, reads as of no lower TID. So no record behind the stating record in the same stream
//! reads as of a lower TID. The common floor is the lowest, over all streams with unresolved
//! records, of the last floor up to the watermark (RLV, where replay is from pools). The floor of a
//! dead record counts as well; but a later incarnation begins anew, since its timestamps may be
//! lower than the timestamps of dead records.

use super::replay::{DeferredGarbage, ReplayContext};
use super::version_collector::VersionCollector;
use crate::concurrency::replaying::Replaying;
use crate::logging::unstamped::Unstamped;
use crate::storage::Stamp;
use crate::storage::tid::Tid;
use hyades_platform::broken;
use hyades_platform::epoch::EpochNumber;
use hyades_platform::sync::Unpoisoned;
use hyades_wal::Lsn;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock};

/// The floors stated by a stream.
#[derive(Default)]
struct LaneFloors {
    /// Floors not yet reached by replay, with the starts of their records, in the stream's order.
    ahead: VecDeque<(Lsn, Tid)>,
    /// The last floor reached by replay.
    reached: Tid,
}

pub(crate) struct Floors {
    lanes: Mutex<Vec<LaneFloors>>,
    /// Held shared while records are replayed, and exclusively while garbage is removed: a command
    /// may be about to insert the same key again.
    running: RwLock<()>,
    /// Number of garbage items at which items are checked: twice the number left, and some.
    /// Relaxed: a hint.
    sweep_at: AtomicUsize,
}

/// See [`Floors::sweep_at`].
const SLACK: usize = 1024;

impl Floors {
    /// Begins the replay of an incarnation, before any of its records.
    pub fn begin<S: Stamp>(replay: &ReplayContext<S>, lanes: usize) -> Floors {
        replay.engine.snapshots.versions().lower_floor();
        Floors::of(lanes)
    }

    fn of(lanes: usize) -> Floors {
        let lanes = Mutex::new((0..lanes).map(|_| LaneFloors::default()).collect());
        Floors { lanes, running: RwLock::new(()), sweep_at: AtomicUsize::new(SLACK) }
    }

    /// Adds the floor stated by the record of a stream at `start`.
    pub fn add(&self, lane: usize, start: Lsn, floor: Tid) {
        let ahead = &mut self.lanes.lock().unpoisoned()[lane].ahead;
        // A record is decoded again if it could not be run.
        if ahead.back().is_none_or(|(last, _)| *last < start) {
            ahead.push_back((start, floor));
        }
    }

    /// Calls `run`, to replay records, while no garbage is removed. Procedures may panic in `run`.
    pub fn while_running<T>(&self, run: impl FnOnce() -> T) -> T {
        let _running = self.running.read().unpoisoned();
        run()
    }

    /// Raises the common floor, and forgets versions not read by any remaining record. The caller
    /// replays no record. `resolved`: the position of a stream below which all records are
    /// resolved; `None` if the whole stream is.
    pub fn raise<S: Stamp>(
        &self,
        replay: &ReplayContext<S>,
        resolved: impl Fn(usize) -> Option<Lsn>,
    ) {
        let Some(mut floor) = self.common(resolved) else { return };
        if broken!(ForgetAboveFloor) {
            floor = Tid::ABOVE_ALL;
        }
        let versions = replay.engine.snapshots.versions();
        replay.counts.version_bytes.fetch_max(versions.bytes(), Ordering::Relaxed);
        if versions.raise_floor(floor, &hyades_platform::reclaim::pin()) {
            self.remove_garbage(replay);
        }
    }

    /// The common floor. `None` if another thread computes it.
    fn common(&self, resolved: impl Fn(usize) -> Option<Lsn>) -> Option<Tid> {
        let mut lanes = self.lanes.try_lock().ok()?;
        let mut common = Tid::ABOVE_ALL;
        for (at, lane) in lanes.iter_mut().enumerate() {
            let to = resolved(at);
            let is_reached = |(start, _): &mut (Lsn, Tid)| to.is_none_or(|to| *start <= to);
            while let Some((_, floor)) = lane.ahead.pop_front_if(is_reached) {
                lane.reached = lane.reached.max(floor);
            }
            if to.is_some() {
                common = common.min(lane.reached);
            }
        }
        Some(common)
    }

    /// Removes garbage not needed by any remaining record.
    fn remove_garbage<S: Stamp>(&self, replay: &ReplayContext<S>) {
        let found: usize = {
            let later = replay.later.lock().unpoisoned();
            later.iter().map(|deferred| deferred.garbage.len()).sum()
        };
        if found < self.sweep_at.load(Ordering::Relaxed) {
            return;
        }
        let _alone = self.running.write().unpoisoned();
        let mut later = replay.later.lock().unpoisoned();
        let Some(DeferredGarbage { mut garbage, .. }) = later.pop_front() else { return };
        later.drain(..).for_each(|mut more| garbage.append(&mut more.garbage));
        garbage.sweep_needless::<Replaying, Unstamped<S>>(&replay.engine, &mut ());
        self.sweep_at.store(2 * garbage.len() + SLACK, Ordering::Relaxed);
        if !garbage.is_empty() {
            later.push_back(DeferredGarbage { writer: 0, epoch: EpochNumber::default(), garbage });
        }
    }

    /// Ends the replay of an incarnation: rows have one version again.
    pub fn end<S: Stamp>(&self, replay: &ReplayContext<S>) {
        replay
            .engine
            .snapshots
            .versions()
            .raise_floor(Tid::ABOVE_ALL, &hyades_platform::reclaim::pin());
        VersionCollector::clear(replay);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyades_platform::epoch::EpochNumber;
    use std::cell::RefCell;

    #[test]
    fn the_common_floor_is_the_lowest_of_streams_that_go_on() {
        let resolved = RefCell::new([Some(0), Some(0)]);
        let floors = Floors::of(2);
        let tid = |epoch| Tid::new(EpochNumber(epoch), 0);
        let common = || {
            let to = *resolved.borrow();
            floors.common(|at| to[at]).expect("no other thread computes it")
        };
        floors.add(0, 0, tid(3));
        assert_eq!(common(), Tid::NONE);
        // A floor decoded again counts once. A floor holds for its own record.
        (0..2).for_each(|_| floors.add(1, 8, tid(4)));
        assert_eq!(common(), Tid::NONE);
        resolved.borrow_mut()[1] = Some(8);
        assert_eq!(common(), tid(3));
        floors.add(0, 16, tid(7));
        resolved.borrow_mut()[0] = Some(16);
        assert_eq!(common(), tid(4));
        resolved.borrow_mut()[1] = None;
        assert_eq!(common(), tid(7));
        resolved.borrow_mut()[0] = None;
        assert_eq!(common(), Tid::ABOVE_ALL);
    }
}
