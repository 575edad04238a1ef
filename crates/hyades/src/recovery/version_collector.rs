//! When a replay with row versions may drop old ones (Taurus 2016, section 5.3).
//!
//! Every record behind an anchor in its stream sees what the anchor covers
//! ([`crate::logging::versions`]), so anchors are the sync records. The *common view* is the
//! minimum, over all streams, of the last anchor that replay has passed: every record still to be
//! replayed sees what it covers. Older versions below it are dropped, and with them what they held
//! up: tombstones, and index entries of earlier states of rows. These are removed while no record
//! is being replayed, since a command may be about to insert the same key again.

use super::graph::Graph;
use super::replay::ReplayContext;
use crate::concurrency::replaying::Replaying;
use crate::logging::predecessors;
use crate::logging::unstamped::Unstamped;
use crate::storage::Stamp;
use hyades_wal::Lsn;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock, RwLockReadGuard};

/// Versions are dropped when there are at least this many more than twice what the last time left.
const SLACK: usize = 4096;

/// The anchors of one stream.
struct Anchors {
    /// Anchors that replay has not passed, with their positions, oldest first.
    ahead: VecDeque<(Lsn, Vec<Lsn>)>,
    /// The last anchor that replay has passed.
    passed: Vec<Lsn>,
    /// Where the stream ends, once it was read to its end.
    end: Option<Lsn>,
}

pub(crate) struct VersionCollector {
    lanes: Vec<Mutex<Anchors>>,
    /// Held shared while a record is replayed, and exclusively while garbage is removed.
    replaying: RwLock<()>,
    /// Held by the thread that collects, which is about to take `replaying` exclusively.
    collecting: Mutex<()>,
    /// Number of versions from which on dropping some is attempted. Relaxed: a hint.
    collect_at: AtomicUsize,
}

impl VersionCollector {
    pub fn new(lanes: usize) -> Self {
        let anchors = || Anchors { ahead: VecDeque::new(), passed: vec![0; lanes], end: None };
        VersionCollector {
            lanes: (0..lanes).map(|_| Mutex::new(anchors())).collect(),
            replaying: RwLock::new(()),
            collecting: Mutex::new(()),
            collect_at: AtomicUsize::new(SLACK),
        }
    }

    /// While the guard is held, no garbage is removed.
    pub fn replaying(&self) -> RwLockReadGuard<'_, ()> {
        self.replaying.read().expect("no holder panics")
    }

    /// Adds an anchor: the frames of the stream behind `at` are compressed against it.
    pub fn anchor(&self, lane: usize, at: Lsn, anchor: &[Lsn]) {
        debug_assert_eq!(anchor.len(), self.lanes.len(), "an anchor is of all streams");
        let mut lane = self.lanes[lane].lock().expect("no holder panics");
        debug_assert!(
            lane.ahead.back().is_none_or(|(last, _)| *last <= at),
            "the anchors of a stream are added in its order"
        );
        if lane.ahead.back().is_none_or(|(_, last)| last != anchor) {
            lane.ahead.push_back((at, anchor.to_vec()));
        }
    }

    /// The stream was read to its end.
    pub fn end(&self, lane: usize, at: Lsn) {
        let before = self.lanes[lane].lock().expect("no holder panics").end.replace(at);
        debug_assert_eq!(before, None, "a stream ends once");
    }

    fn common_view<T>(&self, graph: &Graph<T>) -> Vec<Lsn> {
        let mut common = vec![Lsn::MAX; self.lanes.len()];
        for (at, lane) in self.lanes.iter().enumerate() {
            let settled = graph.settled(at);
            let mut lane = lane.lock().expect("no holder panics");
            while lane.ahead.front().is_some_and(|(end, _)| *end <= settled) {
                lane.passed = lane.ahead.pop_front().expect("it was there").1;
            }
            if lane.end == Some(settled) {
                continue;
            }
            common.iter_mut().zip(&lane.passed).for_each(|(all, one)| *all = (*all).min(*one));
        }
        common
    }

    /// Drops old versions and what they held up, if there are enough. The caller must not be
    /// replaying a record.
    pub fn collect<S: Stamp, T>(&self, replay: &ReplayContext<S>, graph: &Graph<T>) {
        let versions = &replay.engine.protocol.versions;
        if versions.kept() < self.collect_at.load(Ordering::Relaxed) {
            return;
        }
        let Ok(_alone) = self.collecting.try_lock() else { return };
        let _paused = self.replaying.write().expect("no holder panics");
        let common = self.common_view(graph);
        versions.collect(&common);
        let mut later = replay.later.lock().expect("no holder panics");
        later.retain_mut(|(writer, garbage)| {
            if predecessors::end(*writer) > common[predecessors::lane(*writer)] {
                return true;
            }
            garbage.sweep_ready::<Replaying, Unstamped<S>>(&replay.engine, &mut (), |record| {
                versions.is_single(record)
            });
            !garbage.is_empty()
        });
        drop(later);
        // Twice as many, so that each version is checked about twice.
        self.collect_at.store(2 * versions.kept() + SLACK, Ordering::Relaxed);
    }

    /// All records were replayed: rows have one version again.
    pub fn clear<S: Stamp>(replay: &ReplayContext<S>) {
        replay.engine.protocol.versions.clear();
        let left = std::mem::take(&mut *replay.later.lock().expect("no holder panics"));
        for (_, mut garbage) in left {
            let keep = |table, key| {
                replay.absent.lock().expect("no holder panics").push((table, key));
            };
            garbage.sweep_all::<Replaying, Unstamped<S>>(&replay.engine, &mut (), keep);
        }
    }
}
