//! The recovery dependency graph (Taurus 2016, sections 4.1.4 and 4.4.2, algorithms 4 to 6).
//!
//! Nodes are records, named by their position in the log; edges lead from a record to its
//! successors. **Whether a record is live** is decided by its RAW edges: a lost or dead RAW
//! predecessor makes the record dead; a lost WAW predecessor does not. Under all other protocols a
//! vector decides. Beside its list a record has a vector, for dependencies not expressible by
//! names; the vector is judged as everywhere, by the ends of the streams.
//!
//! Every record *settles* once, as live or as dead, and notifies its successors. In a log of only
//! data records a record settles once its liveness is decided, since row versions order the applied
//! images. If commands are in the log, a record settles as live only after its replay: then the
//! graph orders replay as well, and everything covered by the record's vector must have settled
//! before.
//!
//! Departures from the printed algorithms (docs/protocols/taurus-2016.md):
//! - A node's counter has a bias of one while its edges are added; the bias is removed last.
//! - A settled predecessor still in the graph is not counted; a predecessor at or below the
//!   stream's collected position has settled too (the paper's `min_gc_id`, inclusive here).
//! - Dead records are collected like live records, and their names are kept: there are few.
//! - A *ghost* stands for a predecessor not read yet. At the end of its stream the predecessor is
//!   known to be lost, and settles as dead.

mod ready;

use crate::logging::predecessors::{self, Id, Predecessor};
use hyades_platform::broken;
use hyades_platform::sync::{
    Arc, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, Unpoisoned,
};
use hyades_wal::Lsn;
use ready::Ready;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The verdict on a record that has just been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The record is live and lacks nothing: the caller replays and settles the record.
    Ready,
    /// The record is dead: the caller settles the record as dead.
    Dead,
    /// [`Graph::next_ready`] will return the record.
    Waits,
}

/// A record, or a ghost.
pub(crate) struct RecordNode<T> {
    pub id: Id,
    /// Number of missing dependencies, plus one until the record was read and all its edges were
    /// added.
    missing: AtomicU32,
    dead: AtomicBool,
    links: Mutex<Links<T>>,
    /// The decoded record; taken by the thread that replays it.
    record: Mutex<Option<T>>,
}

struct Links<T> {
    /// The result of settling: true for live. `None` before.
    settled: Option<bool>,
    /// The successors, and whether each successor only overwrote (a WAW edge).
    successors: Successors<T>,
}

type Successors<T> = Vec<(Arc<RecordNode<T>>, bool)>;

impl<T> RecordNode<T> {
    fn ghost(id: Id) -> Arc<RecordNode<T>> {
        Arc::new(RecordNode {
            id,
            missing: AtomicU32::new(1),
            dead: AtomicBool::new(false),
            links: Mutex::new(Links { settled: None, successors: Vec::new() }),
            record: Mutex::new(None),
        })
    }

    fn links(&self) -> MutexGuard<'_, Links<T>> {
        self.links.lock().unpoisoned()
    }

    /// Whether a record read by this record, or needed by its vector, is lost.
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Takes the decoded record; once only.
    pub fn take(&self) -> T {
        self.record.lock().unpoisoned().take().expect("it is taken once")
    }
}

struct NodeQueue<T> {
    /// Everything up to here was truncated below a checkpoint, or is of an earlier incarnation.
    start: Lsn,
    /// Everything up to here has settled. Raised under the lock of `inside` (Release: the effects
    /// of settled records, and `any_dead`, are visible), read by all threads.
    settled: AtomicU64,
    /// Everything up to here was read. Ordering as for `settled`.
    scanned: AtomicU64,
    any_dead: AtomicBool,
    /// Number of waiting records. A hint for the stream's reader.
    open: AtomicUsize,
    inside: Mutex<Inside<T>>,
}

struct Inside<T> {
    /// Ghosts, waiting records, and records that settled before an earlier one of the stream.
    nodes: BTreeMap<Lsn, Arc<RecordNode<T>>>,
    /// Ends of the waiting records.
    open: BTreeSet<Lsn>,
    /// Ends of the records settled as dead.
    dead: HashSet<Lsn>,
    /// Nodes waiting for the stream to reach a position. The number distinguishes nodes waiting for
    /// the same position.
    waiters: BTreeMap<(Lsn, u64), Arc<RecordNode<T>>>,
    next_waiter: u64,
    /// The end of the stream, once known.
    end: Option<Lsn>,
}

impl<T> Inside<T> {
    /// Whether the collected record with this end settled as dead.
    fn died(&self, end: Lsn) -> bool {
        self.dead.contains(&end) && !broken!(ForgetDeadPredecessors)
    }
}

/// Notifications to send after the locks are released.
struct Notifications<T> {
    /// Successors of settled records: whether each only overwrote, and whether the settled record
    /// is live.
    successors: Vec<(Arc<RecordNode<T>>, bool, bool)>,
    /// Nodes whose stream has reached the awaited position.
    reached: Vec<Arc<RecordNode<T>>>,
}

impl<T> Notifications<T> {
    fn new() -> Self {
        Notifications { successors: Vec::new(), reached: Vec::new() }
    }

    /// Settles the node and collects its successors.
    fn settle(&mut self, node: &RecordNode<T>, live: bool) {
        let mut links = node.links();
        debug_assert_eq!(links.settled, None, "a record settles once");
        links.settled = Some(live);
        for (successor, overwritten) in std::mem::take(&mut links.successors) {
            self.successors.push((successor, overwritten, live));
        }
    }
}

/// Whether a successor is live only if this predecessor is.
fn is_needed(overwritten: bool) -> bool {
    !overwritten || broken!(NeedOverwritten)
}

/// The recovery dependency graph; see the module.
pub(crate) struct Graph<T> {
    lanes: Box<[NodeQueue<T>]>,
    /// Whether records settle only once they are replayed.
    ordered: bool,
    ready: Ready<RecordNode<T>>,
}

impl<T> Graph<T> {
    pub fn new(starts: impl IntoIterator<Item = Lsn>, ordered: bool) -> Self {
        let lane = |start| NodeQueue {
            start,
            settled: AtomicU64::new(start),
            scanned: AtomicU64::new(start),
            any_dead: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            inside: Mutex::new(Inside {
                nodes: BTreeMap::new(),
                open: BTreeSet::new(),
                dead: HashSet::new(),
                waiters: BTreeMap::new(),
                next_waiter: 0,
                end: None,
            }),
        };
        Graph { lanes: starts.into_iter().map(lane).collect(), ordered, ready: Ready::new() }
    }

    /// Whether records settle only once they are replayed.
    pub fn is_ordered(&self) -> bool {
        self.ordered
    }

    fn inside(&self, lane: usize) -> MutexGuard<'_, Inside<T>> {
        self.lanes[lane].inside.lock().unpoisoned()
    }

    /// The settled position of a stream: all records up to here have settled.
    pub fn settled(&self, lane: usize) -> Lsn {
        self.lanes[lane].settled.load(Ordering::Acquire)
    }

    /// Number of waiting records of a stream.
    pub fn waiting(&self, lane: usize) -> usize {
        self.lanes[lane].open.load(Ordering::Relaxed)
    }

    /// The position of a stream, for nodes waiting for a position.
    fn reached(&self, lane: usize) -> Lsn {
        let lane = &self.lanes[lane];
        if self.ordered { &lane.settled } else { &lane.scanned }.load(Ordering::Acquire)
    }

    /// Returns whether a record settled as live, if the collected position shows the result. Locks
    /// the stream only if the stream has dead records.
    fn settled_as(&self, id: Id) -> Option<bool> {
        let (lane, end) = (&self.lanes[predecessors::lane(id)], predecessors::end(id));
        if end <= lane.start {
            return Some(true);
        }
        if end > lane.settled.load(Ordering::Acquire) {
            return None;
        }
        // Relaxed: the flag was set before the position was raised.
        if !lane.any_dead.load(Ordering::Relaxed) {
            return Some(true);
        }
        Some(!self.inside(predecessors::lane(id)).died(end))
    }

    /// Like `settled_as`, with the stream's lock held: also checks the nodes and the stream's end.
    fn known(&self, inside: &Inside<T>, id: Id) -> Option<bool> {
        let (lane, end) = (&self.lanes[predecessors::lane(id)], predecessors::end(id));
        if end <= lane.settled.load(Ordering::Acquire) {
            return Some(end <= lane.start || !inside.died(end));
        }
        if let Some(node) = inside.nodes.get(&end) {
            return node.links().settled;
        }
        inside.end.is_some_and(|last| end > last).then_some(false)
    }

    /// Insert (algorithm 4): adds the record with end `end`. `vector`: the positions needed beside
    /// the predecessors. A stream is read by one thread at a time, in order.
    pub fn arrive(
        &self,
        (lane, end): (usize, Lsn),
        list: &[Predecessor],
        vector: &[Lsn],
        record: impl FnOnce() -> T,
    ) -> Admission {
        debug_assert!(
            end > self.lanes[lane].scanned.load(Ordering::Relaxed),
            "a stream is read in order"
        );
        let mut missing = false;
        for predecessor in list {
            match self.settled_as(predecessor.id) {
                Some(false) if is_needed(predecessor.overwritten) => return Admission::Dead,
                Some(_) => {}
                None => missing = true,
            }
        }
        missing |= vector.iter().enumerate().any(|(at, lsn)| *lsn > self.reached(at));
        if !missing {
            return Admission::Ready;
        }
        let node = {
            let mut inside = self.inside(lane);
            let is_new = inside.open.insert(end);
            debug_assert!(is_new, "a record arrives once");
            self.lanes[lane].open.fetch_add(1, Ordering::Relaxed);
            let id = predecessors::id(lane, end);
            inside.nodes.entry(end).or_insert_with(|| RecordNode::ghost(id)).clone()
        };
        *node.record.lock().unpoisoned() = Some(record());
        list.iter().for_each(|predecessor| self.add_edge(&node, *predecessor));
        vector.iter().enumerate().for_each(|(at, lsn)| self.wait_for(&node, at, *lsn));
        // Removes the bias.
        self.satisfy_one(&node);
        Admission::Waits
    }

    /// Adds an edge from the predecessor to `node`, unless the predecessor has settled.
    fn add_edge(&self, node: &Arc<RecordNode<T>>, predecessor: Predecessor) {
        let Predecessor { id, overwritten } = predecessor;
        let mut inside = self.inside(predecessors::lane(id));
        if let Some(live) = self.known(&inside, id) {
            if !live && is_needed(overwritten) {
                node.dead.store(true, Ordering::Release);
            }
            return;
        }
        let end = predecessors::end(id);
        let before = inside.nodes.entry(end).or_insert_with(|| RecordNode::ghost(id));
        node.missing.fetch_add(1, Ordering::AcqRel);
        before.links().successors.push((node.clone(), overwritten));
    }

    /// Makes the node wait until a stream reaches the position, unless already reached.
    fn wait_for(&self, node: &Arc<RecordNode<T>>, lane: usize, position: Lsn) {
        if position <= self.reached(lane) {
            return;
        }
        let mut inside = self.inside(lane);
        if position <= self.reached(lane) {
            return;
        }
        if inside.end.is_some_and(|end| position > end) {
            node.dead.store(true, Ordering::Release);
            return;
        }
        node.missing.fetch_add(1, Ordering::AcqRel);
        let number = inside.next_waiter;
        inside.next_waiter += 1;
        inside.waiters.insert((position, number), node.clone());
    }

    /// Counts one missing dependency of the node as provided.
    fn satisfy_one(&self, node: &Arc<RecordNode<T>>) {
        let missing = node.missing.fetch_sub(1, Ordering::AcqRel);
        debug_assert_ne!(missing, 0, "a record is provided with no more than it lacks");
        if missing == 1 {
            self.ready.push(node.clone());
        }
    }

    fn notify(&self, notifications: Notifications<T>) {
        for (successor, overwritten, live) in &notifications.successors {
            if !live && is_needed(*overwritten) {
                successor.dead.store(true, Ordering::Release);
            }
            self.satisfy_one(successor);
        }
        notifications.reached.iter().for_each(|node| self.satisfy_one(node));
    }

    /// Takes a record without missing dependencies: the record is dead, or can be replayed.
    pub fn next_ready(&self) -> Option<Arc<RecordNode<T>>> {
        self.ready.take()
    }

    /// CheckRecoverability and lines 8 to 15 of algorithm 3: settles a record.
    pub fn settle(&self, id: Id, live: bool) {
        let (at, end) = (predecessors::lane(id), predecessors::end(id));
        let mut notifications = Notifications::new();
        let mut inside = self.inside(at);
        debug_assert!(end > self.settled(at), "a position settles after its record");
        if inside.open.remove(&end) {
            self.lanes[at].open.fetch_sub(1, Ordering::Relaxed);
        }
        if !live {
            inside.dead.insert(end);
            self.lanes[at].any_dead.store(true, Ordering::Relaxed);
        }
        if let Some(node) = inside.nodes.get(&end) {
            notifications.settle(node, live);
        } else if !inside.open.is_empty() {
            // An earlier record waits, so the collected position does not cover this record yet.
            let node = RecordNode::ghost(id);
            node.links().settled = Some(live);
            inside.nodes.insert(end, node);
        }
        self.collect(at, &mut inside, &mut notifications);
        drop(inside);
        self.notify(notifications);
    }

    /// The stream's reader has reached `to`. Records below `to` that the reader found ready or dead
    /// have settled.
    pub fn pass(&self, lane: usize, to: Lsn) {
        let mut notifications = Notifications::new();
        let mut inside = self.inside(lane);
        self.lanes[lane].scanned.fetch_max(to, Ordering::Release);
        self.collect(lane, &mut inside, &mut notifications);
        drop(inside);
        self.notify(notifications);
    }

    /// GarbageCollect (algorithm 6): removes the settled prefix of a stream from the graph.
    fn collect(&self, at: usize, inside: &mut Inside<T>, notifications: &mut Notifications<T>) {
        let lane = &self.lanes[at];
        let scanned = lane.scanned.load(Ordering::Relaxed);
        let settled = inside.open.first().map_or(scanned, |first| scanned.min(first - 1));
        let before = lane.settled.fetch_max(settled, Ordering::Release);
        debug_assert!(before <= settled, "what has settled stays settled");
        while let Some(first) = inside.nodes.first_entry().filter(|n| *n.key() <= settled) {
            let (end, node) = first.remove_entry();
            // A ghost of a record found ready or dead, or of a record in the checkpoint.
            if node.links().settled.is_none() {
                notifications.settle(&node, !inside.dead.contains(&end));
            }
        }
        let reached = if self.ordered { settled } else { scanned };
        while let Some(first) = inside.waiters.first_entry().filter(|w| w.key().0 <= reached) {
            notifications.reached.push(first.remove());
        }
    }

    /// The stream was read to its end: ghosts beyond it are lost.
    pub fn end(&self, lane: usize, at: Lsn) {
        let mut notifications = Notifications::new();
        let mut inside = self.inside(lane);
        debug_assert_eq!(inside.end, None, "a stream ends once");
        debug_assert!(
            at >= self.lanes[lane].scanned.load(Ordering::Relaxed),
            "a stream ends behind all that was read of it"
        );
        inside.end = Some(at);
        for (_, ghost) in inside.nodes.split_off(&(at + 1)) {
            notifications.settle(&ghost, false);
        }
        // Ghosts at a position where no record ends are lost, too.
        let Inside { nodes, open, dead, .. } = &mut *inside;
        for (end, node) in nodes.iter().filter(|(end, _)| !open.contains(end)) {
            if node.links().settled.is_none() {
                dead.insert(*end);
                self.lanes[lane].any_dead.store(true, Ordering::Relaxed);
                notifications.settle(node, false);
            }
        }
        for (_, node) in inside.waiters.split_off(&(at + 1, 0)) {
            node.dead.store(true, Ordering::Release);
            notifications.reached.push(node);
        }
        self.lanes[lane].scanned.fetch_max(at, Ordering::Release);
        self.collect(lane, &mut inside, &mut notifications);
        drop(inside);
        self.notify(notifications);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod oracle;
#[cfg(all(test, not(loom)))]
mod tests;
