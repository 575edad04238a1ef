//! What a replay with versions may forget, and when (Taurus 2016, section 5.3).
//!
//! All that stands behind an anchor in its stream sees what the anchor covers
//! ([`crate::logging::versions`]), so anchors are the sync records. The *common view* is the minimum, over
//! all streams, of the anchors that replay has come beyond: whatever is still to be replayed sees what
//! it covers. Older versions below it go, and with them what they held up: tombstones, and index
//! entries of what rows were before. These leave while nobody replays anything, since a command may
//! be about to put the same key in anew.

use super::graph::Graph;
use super::replay::ReplayContext;
use crate::concurrency::replaying::Replaying;
use crate::logging::predecessors;
use crate::logging::unstamped::Unstamped;
use crate::logging::versions::View;
use hyades_wal::Lsn;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock, RwLockReadGuard};

/// One looks for something to forget when there is this much more to look at than the last time left.
const SLACK: usize = 4096;

/// The anchors of one stream.
struct Anchors {
    /// Where they end, oldest first: those that replay has not come beyond.
    ahead: VecDeque<(Lsn, Vec<Lsn>)>,
    /// The last that it has.
    passed: Vec<Lsn>,
    /// The stream was read to its end, which is here.
    end: Option<Lsn>,
}

pub(crate) struct Syncing {
    lanes: Vec<Mutex<Anchors>>,
    /// Held shared by who replays a record, and alone by who clears away.
    replaying: RwLock<()>,
    /// Held by who is about to.
    forgetting: Mutex<()>,
    /// How many versions there are to be before it is worth a look. Relaxed: a hint.
    worthwhile: AtomicUsize,
}

impl Syncing {
    pub fn new(lanes: usize) -> Self {
        let anchors = || Anchors { ahead: VecDeque::new(), passed: vec![0; lanes], end: None };
        Syncing {
            lanes: (0..lanes).map(|_| Mutex::new(anchors())).collect(),
            replaying: RwLock::new(()),
            forgetting: Mutex::new(()),
            worthwhile: AtomicUsize::new(SLACK),
        }
    }

    /// While the guard is held nothing is cleared away.
    pub fn replaying(&self) -> RwLockReadGuard<'_, ()> {
        self.replaying.read().expect("no holder panics")
    }

    /// What stands behind `at` in a lane is compressed against this anchor.
    pub fn anchor(&self, lane: usize, at: Lsn, anchor: &[Lsn]) {
        let mut lane = self.lanes[lane].lock().expect("no holder panics");
        if lane.ahead.back().is_none_or(|(_, last)| last != anchor) {
            lane.ahead.push_back((at, anchor.to_vec()));
        }
    }

    /// The lane was read to its end.
    pub fn end(&self, lane: usize, at: Lsn) {
        self.lanes[lane].lock().expect("no holder panics").end = Some(at);
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

    /// Forgets what may be forgotten, if that is worth a look. The caller replays nothing meanwhile.
    pub fn forget<S: Default + Send + Sync + 'static, T>(
        &self,
        replay: &ReplayContext<S>,
        graph: &Graph<T>,
    ) {
        let versions = &replay.engine.protocol.versions;
        if versions.kept() < self.worthwhile.load(Ordering::Relaxed) {
            return;
        }
        let Ok(_one) = self.forgetting.try_lock() else { return };
        let _alone = self.replaying.write().expect("no holder panics");
        let common = self.common_view(graph);
        versions.collect(&common);
        let mut later = replay.later.lock().expect("no holder panics");
        later.retain_mut(|(writer, garbage)| {
            if predecessors::end(*writer) > common[predecessors::lane(*writer)] {
                return true;
            }
            garbage.sweep_ready::<Replaying, Unstamped<S>>(
                &replay.engine,
                &mut View::default(),
                |record| versions.is_single(record),
            );
            !garbage.is_empty()
        });
        drop(later);
        // Twice as much: then each version is looked at about twice.
        self.worthwhile.store(2 * versions.kept() + SLACK, Ordering::Relaxed);
    }

    /// All was replayed: rows have one version again.
    pub fn forget_all<S: Default + Send + Sync + 'static>(replay: &ReplayContext<S>) {
        replay.engine.protocol.versions.clear();
        let left = std::mem::take(&mut *replay.later.lock().expect("no holder panics"));
        for (_, mut garbage) in left {
            let keep = |table, key| {
                replay.absent.lock().expect("no holder panics").push((table, key));
            };
            let view = &mut View::default();
            garbage.sweep_all::<Replaying, Unstamped<S>>(&replay.engine, view, keep);
        }
    }
}
