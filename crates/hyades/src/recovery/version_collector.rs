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
use super::pause::{Pauses, RunningThread};
use super::replay::{DeferredGarbage, ReplayContext};
use crate::concurrency::replaying::Replaying;
use crate::logging::unstamped::Unstamped;
use crate::logging::versions::CommonView;
use crate::storage::Stamp;
use crate::storage::old_versions::OldVersions;
use crate::storage::record::{Record, word};
use crate::storage::secondary::IndexEntry;
use crate::storage::table::TableData;
use crate::storage::tid::Tid;
use bumpalo::Bump;
use hyades_index::Keyed;
use hyades_platform::epoch::EpochNumber;
use hyades_platform::reclaim::{Guard, pin};
use hyades_platform::sync::Unpoisoned;
use hyades_wal::Lsn;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Deferred garbage is looked at when the number of its items reaches twice the number left by the
/// last look plus this. Debug builds look early, since tests have few.
const SLACK: usize = if cfg!(debug_assertions) { 4 } else { 1024 };

/// Full chunks of versions are looked at when their bytes reach twice the bytes left by the last
/// look plus this.
const SLACK_BYTES: u64 = if cfg!(debug_assertions) { 0 } else { 4 << 20 };

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
    /// Keeps the replay of records and the removal of garbage apart.
    pauses: Pauses,
    /// The common view: held by the thread that computes it.
    common: Mutex<CommonView>,
    /// Every record still to be replayed sees all writers of earlier epochs. Raised by the holder
    /// of `common`; Relaxed: a lower epoch is right, too.
    seen_epoch: AtomicU64,
    /// Number of garbage items at which items are looked at. Relaxed: a hint.
    sweep_at: AtomicUsize,
    /// Bytes of full chunks at which chunks are looked at. Relaxed: a hint.
    free_at: AtomicU64,
}

/// The keys of the older versions of a row in an index, by the row's address and the index.
type KeysOfRows = HashMap<(usize, usize), HashSet<Vec<u8>>>;

/// The rows with older versions that some record may see, and their keys, collected on demand. No
/// record is being replayed.
struct KeptVersions<'v> {
    versions: &'v OldVersions,
    common: &'v CommonView,
    guard: Guard,
    of_rows: KeysOfRows,
}

impl KeptVersions<'_> {
    /// Whether all records to come see the version in the row.
    fn is_single<S>(&self, record: &Record<S>) -> bool {
        let seen = record.word.load(Ordering::Acquire);
        let writer = self.versions.writer_of(record, seen, &self.guard);
        self.common.covers(writer, word::tid(seen).epoch())
    }

    /// Whether the entry of an index matches an older version of its row.
    fn matches<S: Stamp>(
        &mut self,
        table: &TableData<S>,
        index: usize,
        entry: &IndexEntry<S>,
    ) -> bool {
        let record = entry.record();
        if self.is_single(record) {
            return false;
        }
        let row = (std::ptr::from_ref(record) as usize, index);
        let keys = self.of_rows.entry(row).or_insert_with(|| {
            let mut keys = HashSet::new();
            let is_seen = |writer, tid: Tid| self.common.covers(writer, tid.epoch());
            // A version that is not an image has the key of a later version. An entry of a version
            // that no record sees must not stay: no other transaction has recorded the entry.
            self.versions.visit_images(record, &self.guard, is_seen, |image| {
                let arena = Bump::new();
                let row = table.whole_row(record, image, &arena);
                keys.insert(table.secondary_key(index, row, record.key()).to_vec());
            });
            keys
        });
        keys.contains(entry.key())
    }
}

impl VersionCollector {
    pub fn new(lanes: usize, threads: usize) -> Self {
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
            pauses: Pauses::new(threads),
            common: Mutex::new(CommonView::of_all(lanes)),
            seen_epoch: AtomicU64::new(0),
            sweep_at: AtomicUsize::new(SLACK),
            free_at: AtomicU64::new(SLACK_BYTES),
        }
    }

    /// Prevents the removal of garbage while the guard is held by the thread.
    pub fn replaying(&self, thread: usize) -> RunningThread<'_> {
        self.pauses.run(thread)
    }

    /// Every record still to be replayed sees all writers of earlier epochs.
    pub fn seen_epoch(&self) -> EpochNumber {
        EpochNumber(self.seen_epoch.load(Ordering::Relaxed))
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

    /// Computes the common view.
    fn look<T>(&self, graph: &Graph<T>, common: &mut CommonView) {
        common.positions.fill(Lsn::MAX);
        common.epoch = EpochNumber::ABOVE_ALL;
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
        self.seen_epoch.store(common.seen_epoch().0, Ordering::Relaxed);
    }

    /// Drops old versions, and the items held up by them if there are enough. The caller must not
    /// be replaying a record.
    pub fn collect<S: Stamp, T>(&self, replay: &ReplayContext<S>, graph: &Graph<T>) {
        // Another thread is at it.
        let Ok(mut common) = self.common.try_lock() else { return };
        self.look(graph, &mut common);
        let versions = replay.engine.snapshots.versions();
        replay.counts.version_bytes.fetch_max(versions.bytes(), Ordering::Relaxed);
        if versions.full_bytes() >= self.free_at.load(Ordering::Relaxed) {
            versions.free_seen(|last, ends| common.covers_all(last.epoch(), ends), &pin());
            self.free_at.store(2 * versions.full_bytes() + SLACK_BYTES, Ordering::Relaxed);
        }
        self.remove_garbage(replay, &common);
    }

    /// Removes the garbage that no record to come needs, if there is enough garbage.
    fn remove_garbage<S: Stamp>(&self, replay: &ReplayContext<S>, common: &CommonView) {
        let items = |later: &VecDeque<DeferredGarbage>| -> usize {
            later.iter().map(|deferred| deferred.garbage.len()).sum()
        };
        let least = self.sweep_at.load(Ordering::Relaxed);
        {
            let later = replay.later.lock().unpoisoned();
            // Counting many short lists takes a while.
            if later.len() < least.min(SLACK) || items(&later) < least {
                return;
            }
        }
        let _paused = self.pauses.pause();
        let mut later = replay.later.lock().unpoisoned();
        let versions = replay.engine.snapshots.versions();
        let kept = KeptVersions { versions, common, guard: pin(), of_rows: HashMap::new() };
        let kept = RefCell::new(kept);
        later.retain_mut(|DeferredGarbage { writer, epoch, garbage }| {
            if !common.covers(*writer, *epoch) {
                return true;
            }
            garbage.sweep_seen::<Replaying, Unstamped<S>>(
                &replay.engine,
                &mut (),
                |record| kept.borrow().is_single(record),
                |table, index, entry| kept.borrow_mut().matches(table, index, entry),
            );
            !garbage.is_empty()
        });
        self.sweep_at.store(2 * items(&later) + SLACK, Ordering::Relaxed);
    }

    /// All records were replayed: rows have one version again.
    pub fn clear<S: Stamp>(replay: &ReplayContext<S>) {
        replay.engine.snapshots.versions().free_seen(|_, _| true, &pin());
        let left = std::mem::take(&mut *replay.later.lock().unpoisoned());
        for DeferredGarbage { mut garbage, .. } in left {
            let keep = |table, key| {
                replay.absent.lock().unpoisoned().push((table, key));
            };
            garbage.sweep_all::<Replaying, Unstamped<S>>(&replay.engine, &mut (), keep);
        }
    }
}
