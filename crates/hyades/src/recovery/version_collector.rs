//! When a replay with row versions may drop old versions (Taurus 2016, section 5.3).
//!
//! Every record behind an anchor in its stream sees all records covered by the anchor
//! ([`crate::logging::versions`]), so anchors are the sync records. The *common view* is the
//! minimum, over all streams, of the last anchor passed by replay: every record still to be
//! replayed sees all records covered by the view, and all writes of epochs before the least epoch
//! reached by replay over all streams. Older versions below the view are dropped, and with them the
//! items held up by them: tombstones, and index entries of earlier states of rows. These items are
//! removed while no record is being replayed, since a command may be about to insert the same key
//! again.

use super::graph::Graph;
use super::replay::{DeferredGarbage, ReplayContext};
use crate::concurrency::replaying::Replaying;
use crate::logging::unstamped::Unstamped;
use crate::logging::versions::{CommonView, KeptVersions, Versions};
use crate::storage::Stamp;
use crate::storage::secondary::IndexEntry;
use crate::storage::table::TableData;
use hyades_index::Keyed;
use hyades_platform::epoch::EpochNumber;
use hyades_platform::sync::Unpoisoned;
use hyades_wal::Lsn;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock, RwLockReadGuard};

/// A pass drops versions when their number reaches twice the number left by the last pass plus
/// `number`, or their bytes reach one and a half times the bytes left plus `bytes`. Debug builds
/// drop versions early, since tests have few.
const SLACK: KeptVersions =
    KeptVersions { number: if cfg!(debug_assertions) { 16 } else { 4096 }, bytes: 8 << 20 };

/// How far the replay of one stream has passed its anchors, and its epochs.
struct Anchors {
    /// Anchors not yet passed by replay, with their positions, oldest first.
    ahead: VecDeque<(Lsn, Vec<Lsn>)>,
    /// The last anchor passed by replay.
    passed: Vec<Lsn>,
    /// Starts and epochs of records with a later epoch than all records before, oldest first. Not
    /// all records before them have settled.
    epochs: VecDeque<(Lsn, EpochNumber)>,
    /// The latest epoch of the records read.
    read: EpochNumber,
    /// The latest epoch of a record before which all records have settled.
    reached: EpochNumber,
    /// The end of the stream, once read to the end.
    end: Option<Lsn>,
}

pub(crate) struct VersionCollector {
    lanes: Vec<Mutex<Anchors>>,
    /// Held shared while a record is replayed, and exclusively while garbage is removed.
    replaying: RwLock<()>,
    /// Held by the collecting thread, about to take `replaying` exclusively.
    collecting: Mutex<()>,
    /// Number of versions, or bytes of their rows, at or above which a pass is attempted. Relaxed:
    /// hints.
    collect_at: AtomicUsize,
    collect_at_bytes: AtomicUsize,
}

/// The keys of the older versions of a row in an index, by the row's address and the index.
type KeysOfRows = HashMap<(usize, usize), HashSet<Vec<u8>>>;

/// The keys of older versions, collected on demand. No record is being replayed.
struct KeptKeys<'v> {
    versions: &'v Versions,
    of_rows: KeysOfRows,
}

impl KeptKeys<'_> {
    /// Whether the entry of an index matches an older version of its row.
    fn matches<S: Stamp>(
        &mut self,
        table: &TableData<S>,
        index: usize,
        entry: &IndexEntry<S>,
    ) -> bool {
        let record = entry.record();
        if self.versions.is_single(record) {
            return false;
        }
        let row = (std::ptr::from_ref(record) as usize, index);
        let keys = self.of_rows.entry(row).or_insert_with(|| {
            let mut keys = HashSet::new();
            self.versions.visit_older(record, |row| {
                keys.insert(table.secondary_key(index, row, record.key()).to_vec());
            });
            keys
        });
        keys.contains(entry.key())
    }
}

impl VersionCollector {
    pub fn new(lanes: usize) -> Self {
        let anchors = || Anchors {
            ahead: VecDeque::new(),
            passed: vec![0; lanes],
            epochs: VecDeque::new(),
            read: EpochNumber::default(),
            reached: EpochNumber::default(),
            end: None,
        };
        VersionCollector {
            lanes: (0..lanes).map(|_| Mutex::new(anchors())).collect(),
            replaying: RwLock::new(()),
            collecting: Mutex::new(()),
            collect_at: AtomicUsize::new(SLACK.number),
            collect_at_bytes: AtomicUsize::new(SLACK.bytes),
        }
    }

    /// Prevents the removal of garbage while the guard is held.
    pub fn replaying(&self) -> RwLockReadGuard<'_, ()> {
        self.replaying.read().unpoisoned()
    }

    /// Adds an anchor: the frames of the stream behind `at` are compressed against it.
    pub fn anchor(&self, lane: usize, at: Lsn, anchor: &[Lsn]) {
        debug_assert_eq!(anchor.len(), self.lanes.len(), "an anchor is of all streams");
        let mut lane = self.lanes[lane].lock().unpoisoned();
        debug_assert!(
            lane.ahead.back().is_none_or(|(last, _)| *last <= at),
            "the anchors of a stream are added in its order"
        );
        if lane.ahead.back().is_none_or(|(_, last)| last != anchor) {
            lane.ahead.push_back((at, anchor.to_vec()));
        }
    }

    /// Notes that the record with start `start` was read.
    pub fn read(&self, lane: usize, start: Lsn, epoch: EpochNumber) {
        let mut lane = self.lanes[lane].lock().unpoisoned();
        if epoch > lane.read {
            lane.read = epoch;
            lane.epochs.push_back((start, epoch));
        }
    }

    /// Notes the end of a stream that was read to its end.
    pub fn end(&self, lane: usize, at: Lsn) {
        let before = self.lanes[lane].lock().unpoisoned().end.replace(at);
        debug_assert_eq!(before, None, "a stream ends once");
    }

    fn common_view<T>(&self, graph: &Graph<T>) -> CommonView {
        let positions = vec![Lsn::MAX; self.lanes.len()];
        let mut common = CommonView { positions, epoch: EpochNumber::ABOVE_ALL };
        for (at, lane) in self.lanes.iter().enumerate() {
            let settled = graph.settled(at);
            let mut lane = lane.lock().unpoisoned();
            while lane.ahead.front().is_some_and(|(end, _)| *end <= settled) {
                lane.passed = lane.ahead.pop_front().expect("it was there").1;
            }
            while lane.epochs.front().is_some_and(|(start, _)| *start <= settled) {
                lane.reached = lane.epochs.pop_front().expect("it was there").1;
            }
            if lane.end == Some(settled) {
                continue;
            }
            let positions = common.positions.iter_mut().zip(&lane.passed);
            positions.for_each(|(all, one)| *all = (*all).min(*one));
            common.epoch = common.epoch.min(lane.reached);
        }
        common
    }

    /// Drops old versions and the items held up by them, if there are enough. The caller must not
    /// be replaying a record.
    pub fn collect<S: Stamp, T>(&self, replay: &ReplayContext<S>, graph: &Graph<T>) {
        let versions = &replay.engine.protocol.versions;
        let kept = versions.kept();
        if kept.number < self.collect_at.load(Ordering::Relaxed)
            && kept.bytes < self.collect_at_bytes.load(Ordering::Relaxed)
        {
            return;
        }
        let Ok(_alone) = self.collecting.try_lock() else { return };
        let _paused = self.replaying.write().unpoisoned();
        let common = self.common_view(graph);
        versions.collect(&common);
        let mut later = replay.later.lock().unpoisoned();
        let mut keys = KeptKeys { versions, of_rows: HashMap::new() };
        later.retain_mut(|DeferredGarbage { writer, epoch, garbage }| {
            if !common.covers(*writer, *epoch) {
                return true;
            }
            garbage.sweep_seen::<Replaying, Unstamped<S>>(
                &replay.engine,
                &mut (),
                |record| versions.is_single(record),
                |table, index, entry| keys.matches(table, index, entry),
            );
            !garbage.is_empty()
        });
        drop(later);
        // The next pass waits for a share of the versions left: each version is checked a few
        // times.
        let left = versions.kept();
        self.collect_at.store(2 * left.number + SLACK.number, Ordering::Relaxed);
        self.collect_at_bytes.store(left.bytes + left.bytes / 2 + SLACK.bytes, Ordering::Relaxed);
    }

    /// All records were replayed: rows have one version again.
    pub fn clear<S: Stamp>(replay: &ReplayContext<S>) {
        replay.engine.protocol.versions.clear();
        let left = std::mem::take(&mut *replay.later.lock().unpoisoned());
        for DeferredGarbage { mut garbage, .. } in left {
            let keep = |table, key| {
                replay.absent.lock().unpoisoned().push((table, key));
            };
            garbage.sweep_all::<Replaying, Unstamped<S>>(&replay.engine, &mut (), keep);
        }
    }
}
