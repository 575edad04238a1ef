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
//!
//! No lock protects a record. The successors of a record are a list that begins in the cell of the
//! record's position ([`lane`]); settling closes the list, by one step, and takes it. A ghost is
//! nothing but such a list. A waiting record counts its missing dependencies; each end of a list
//! and each awaited position counts down once, and the last countdown releases the record: so no
//! other thread refers to a released record. Locks remain where a stream has dead records, where a
//! record waits for a position of its vector, and where a list names a record far ahead in a stream
//! that is read slowly ([`waiters`]).
//!
//! Memory: a stream has cells for a *window* of positions behind its settled position, and is read
//! no further than the window ([`Graph::has_room`]). So one slow stream does not make the others
//! fill memory.

mod lane;
mod ready;
mod slab;
mod waiters;

use crate::logging::predecessors::{self, Id, Predecessor};
use hyades_platform::broken;
use hyades_platform::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, checker_fence};
use hyades_wal::Lsn;
use lane::{Lane, Taken};
use ready::ReadyQueues;
use slab::{Handover, Slab};
use waiters::Waiter;

/// Bytes of a stream's window.
const WINDOW: u64 = 1 << 18;

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

/// A record that waited and lacks nothing now.
pub(crate) struct ReleasedRecord<T> {
    pub id: Id,
    /// Whether a record read by this record, or needed by its vector, is lost.
    pub dead: bool,
    pub record: T,
}

/// A waiting record.
struct RecordNode<T> {
    id: AtomicU64,
    /// Number of missing dependencies, plus one until all edges were added.
    missing: AtomicU32,
    dead: AtomicBool,
    /// The decoded record. Put in before the first edge, taken after the last countdown.
    record: Handover<T>,
}

impl<T> Default for RecordNode<T> {
    fn default() -> Self {
        RecordNode {
            id: AtomicU64::new(0),
            missing: AtomicU32::new(0),
            dead: AtomicBool::new(false),
            record: Handover::default(),
        }
    }
}

/// From a record to a successor: the successor's node, whether the successor only overwrote (a WAW
/// edge), and the next edge of the same record. Written before the edge is in a list.
#[derive(Default)]
struct Edge(AtomicU64);

/// The bit of an edge's word for a WAW edge; the node is above.
const OVERWRITTEN: u64 = 1 << 32;

impl Edge {
    fn set(&self, node: u32, overwritten: bool, next: u32) {
        let kind = if overwritten { OVERWRITTEN } else { 0 };
        self.0.store(u64::from(node) << 33 | kind | u64::from(next), Ordering::Relaxed);
    }

    /// The node, whether it only overwrote, and the next edge.
    fn get(&self) -> (u32, bool, u32) {
        let word = self.0.load(Ordering::Relaxed);
        ((word >> 33) as u32, word & OVERWRITTEN != 0, word as u32)
    }
}

/// The part of a thread in the graph: the number of the thread, and free nodes and edges.
pub(crate) struct GraphThread {
    number: usize,
    nodes: Vec<u32>,
    edges: Vec<u32>,
}

/// Whether a successor is live only if this predecessor is.
fn is_needed(overwritten: bool) -> bool {
    !overwritten || broken!(NeedOverwritten)
}

/// The recovery dependency graph; see the module.
pub(crate) struct Graph<T> {
    lanes: Box<[Lane]>,
    /// Whether records settle only once they are replayed.
    ordered: bool,
    nodes: Slab<RecordNode<T>>,
    edges: Slab<Edge>,
    ready: ReadyQueues,
}

impl<T> Graph<T> {
    pub fn new(starts: impl IntoIterator<Item = Lsn>, ordered: bool, threads: usize) -> Self {
        Graph::with_window(starts, ordered, threads, WINDOW)
    }

    fn with_window(
        starts: impl IntoIterator<Item = Lsn>,
        ordered: bool,
        threads: usize,
        window: u64,
    ) -> Self {
        Graph {
            lanes: starts.into_iter().map(|start| Lane::new(start, window)).collect(),
            ordered,
            nodes: Slab::default(),
            edges: Slab::default(),
            ready: ReadyQueues::new(threads),
        }
    }

    /// The part of the thread with this number.
    pub fn thread(&self, number: usize) -> GraphThread {
        GraphThread { number, nodes: Vec::new(), edges: Vec::new() }
    }

    /// Whether records settle only once they are replayed.
    pub fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// The settled position of a stream: all records up to here have settled.
    pub fn settled(&self, lane: usize) -> Lsn {
        self.lanes[lane].settled()
    }

    /// Number of records of a stream from its first waiting record to its last.
    pub fn waiting(&self, lane: usize) -> usize {
        self.lanes[lane].waiting()
    }

    /// Whether the record that ends at `end` may arrive. If nothing of the stream waits, every
    /// record may.
    pub fn has_room(&self, lane: usize, end: Lsn) -> bool {
        self.lanes[lane].has_room(end)
    }

    /// Returns a stream and a position near which a record names a predecessor, but no record
    /// ends, if such a name was found.
    pub fn misnamed(&self) -> Option<(usize, Lsn)> {
        let mut lanes = self.lanes.iter().enumerate();
        lanes.find_map(|(at, lane)| Some((at, lane.misnamed()?)))
    }

    /// The position of a stream, for nodes waiting for a position.
    fn reached(&self, lane: usize) -> Lsn {
        let lane = &self.lanes[lane];
        if self.ordered { lane.settled() } else { lane.scanned() }
    }

    /// Returns the result of settling a record: true for live. `None` before.
    fn known(&self, id: Id) -> Option<bool> {
        self.lanes[predecessors::lane(id)].known(predecessors::end(id))
    }

    /// Insert (algorithm 4): adds the record with end `end`. `vector`: the positions needed beside
    /// the predecessors. A stream is read by one thread at a time, in order.
    pub fn arrive(
        &self,
        (lane, end): (usize, Lsn),
        list: &[Predecessor],
        vector: &[Lsn],
        record: impl FnOnce() -> T,
        thread: &mut GraphThread,
    ) -> Admission {
        debug_assert!(end > self.lanes[lane].scanned(), "a stream is read in order");
        let mut missing = false;
        for predecessor in list {
            match self.known(predecessor.id) {
                Some(false) if is_needed(predecessor.overwritten) => return Admission::Dead,
                Some(_) => {}
                None => missing = true,
            }
        }
        missing |= vector.iter().enumerate().any(|(at, lsn)| *lsn > self.reached(at));
        if !missing {
            return Admission::Ready;
        }
        let at = self.nodes.take(&mut thread.nodes);
        let node = self.nodes.get(at);
        node.id.store(predecessors::id(lane, end), Ordering::Relaxed);
        // A bias of one: no thread releases the node while its edges are added.
        node.missing.store(1, Ordering::Relaxed);
        node.dead.store(false, Ordering::Relaxed);
        // SAFETY: the node was just taken, and no edge leads to it.
        unsafe { node.record.put(record()) };
        self.lanes[lane].wait(end);
        for predecessor in list {
            if self.add_edge(at, *predecessor, false, thread) {
                // The stream may have come near before it could see the edge.
                self.wake(predecessors::lane(predecessor.id), thread);
            }
        }
        for (stream, lsn) in vector.iter().enumerate() {
            self.wait_for(at, stream, *lsn, thread);
        }
        self.satisfy_one(at, thread);
        Admission::Waits
    }

    /// Adds an edge from the predecessor to a node, unless the predecessor has settled. `counted`:
    /// whether the node counts the predecessor as missing already. Returns whether the edge waits
    /// for the stream to come near: then the caller looks again how far the stream has come.
    fn add_edge(
        &self,
        node: u32,
        predecessor: Predecessor,
        mut counted: bool,
        thread: &mut GraphThread,
    ) -> bool {
        let Predecessor { id, overwritten } = predecessor;
        let (lane, end) = (&self.lanes[predecessors::lane(id)], predecessors::end(id));
        let edge = self.edges.take(&mut thread.edges);
        let is_far = loop {
            if let Some(live) = self.known(id) {
                self.edges.give(edge, &mut thread.edges);
                if !live && is_needed(overwritten) {
                    self.nodes.get(node).dead.store(true, Ordering::Release);
                }
                if counted {
                    self.satisfy_one(node, thread);
                }
                return false;
            }
            if !counted {
                self.nodes.get(node).missing.fetch_add(1, Ordering::AcqRel);
                counted = true;
            }
            if lane.is_far(end) {
                self.edges.give(edge, &mut thread.edges);
                lane.far.add(end, Waiter::Successor(node, predecessor));
                break true;
            }
            if lane.push(end, edge, |next| self.edges.get(edge).set(node, overwritten, next)) {
                break false;
            }
        };
        // The stream may have reached its end before it could see the edge.
        checker_fence();
        if lane.end().is_some() {
            let lost = lane.lose(end);
            self.notify(lost, thread);
            self.lose_waiters(predecessors::lane(id), thread);
        }
        is_far
    }

    /// Makes the node wait until a stream reaches the position, unless already reached.
    fn wait_for(&self, node: u32, lane: usize, position: Lsn, thread: &mut GraphThread) {
        if position <= self.reached(lane) {
            return;
        }
        self.nodes.get(node).missing.fetch_add(1, Ordering::AcqRel);
        self.lanes[lane].positions.add(position, Waiter::Position(node));
        checker_fence();
        self.wake(lane, thread);
        if self.lanes[lane].end().is_some() {
            self.lose_waiters(lane, thread);
        }
    }

    /// Counts one missing dependency of the node as provided.
    fn satisfy_one(&self, node: u32, thread: &GraphThread) {
        let missing = self.nodes.get(node).missing.fetch_sub(1, Ordering::AcqRel);
        debug_assert_ne!(missing, 0, "a record is provided with no more than it lacks");
        if missing == 1 {
            self.ready.push(thread.number, node);
        }
    }

    /// Tells the successors of a record that it has settled.
    fn notify(&self, taken: Taken, thread: &mut GraphThread) {
        let mut at = taken.edges;
        while at != 0 {
            let (node, overwritten, next) = self.edges.get(at).get();
            self.edges.give(at, &mut thread.edges);
            if !taken.live && is_needed(overwritten) {
                self.nodes.get(node).dead.store(true, Ordering::Release);
            }
            self.satisfy_one(node, thread);
            at = next;
        }
    }

    /// Takes a record without missing dependencies: the record is dead, or can be replayed.
    pub fn next_ready(&self, thread: &mut GraphThread) -> Option<ReleasedRecord<T>> {
        let at = self.ready.take(thread.number)?;
        let node = self.nodes.get(at);
        let id = node.id.load(Ordering::Relaxed);
        let dead = node.dead.load(Ordering::Acquire);
        // SAFETY: the last countdown has put the node into a queue, after `put`, and each node of a
        // queue is taken once. No edge leads to the node any more.
        let record = unsafe { node.record.take() };
        self.nodes.give(at, &mut thread.nodes);
        Some(ReleasedRecord { id, dead, record })
    }

    /// CheckRecoverability and lines 8 to 15 of algorithm 3: settles a record.
    pub fn settle(&self, id: Id, live: bool, thread: &mut GraphThread) {
        let (at, end) = (predecessors::lane(id), predecessors::end(id));
        let lane = &self.lanes[at];
        debug_assert!(end > lane.settled(), "a position settles after its record");
        if !live {
            lane.bury(end);
        }
        let taken = lane.settle(end, live);
        self.notify(taken, thread);
        checker_fence();
        if lane.is_first(end) {
            self.advance(at, thread);
        }
    }

    /// Settles a position where no record is replayed: the record is in a checkpoint, or was given
    /// up.
    pub fn skip(&self, lane: usize, end: Lsn, thread: &mut GraphThread) {
        let taken = self.lanes[lane].settle(end, true);
        self.notify(taken, thread);
    }

    /// The stream's reader has reached `to`. Records below `to` that the reader found ready or dead
    /// have settled.
    pub fn pass(&self, lane: usize, to: Lsn, thread: &mut GraphThread) {
        self.lanes[lane].pass(to);
        checker_fence();
        self.advance(lane, thread);
    }

    /// GarbageCollect (algorithm 6): raises the settled position of a stream, so that the cells of
    /// the settled prefix are used again.
    fn advance(&self, at: usize, thread: &mut GraphThread) {
        self.lanes[at].advance();
        checker_fence();
        self.wake(at, thread);
    }

    /// Wakes what waits for a position that the stream has reached.
    fn wake(&self, at: usize, thread: &mut GraphThread) {
        let lane = &self.lanes[at];
        // Most of the time nothing waits.
        while let Some(waiter) = lane.positions.take_up_to(|| self.reached(at)) {
            let Waiter::Position(node) = waiter else { continue };
            self.satisfy_one(node, thread);
        }
        while let Some(waiter) = lane.far.take_up_to(|| lane.last_near()) {
            let Waiter::Successor(node, predecessor) = waiter else { continue };
            // No call of `wake`: many waiters may come near at once. The loop looks again.
            self.add_edge(node, predecessor, true, thread);
        }
    }

    /// The stream was read to its end: ghosts beyond it are lost, and so are ghosts at positions
    /// where no record ends.
    pub fn end(&self, at: usize, end: Lsn, thread: &mut GraphThread) {
        let lane = &self.lanes[at];
        lane.set_end(end);
        checker_fence();
        for lost in lane.lose_all() {
            self.notify(lost, thread);
        }
        self.lose_waiters(at, thread);
        self.pass(at, end, thread);
    }

    /// What waits for a position behind the known end of the stream waits in vain.
    fn lose_waiters(&self, at: usize, thread: &mut GraphThread) {
        let lane = &self.lanes[at];
        let Some(end) = lane.end() else { return };
        while let Some(waiter) = lane.positions.take_above(end) {
            let Waiter::Position(node) = waiter else { continue };
            self.nodes.get(node).dead.store(true, Ordering::Release);
            self.satisfy_one(node, thread);
        }
        while let Some(waiter) = lane.far.take_above(end) {
            let Waiter::Successor(node, Predecessor { overwritten, .. }) = waiter else { continue };
            if is_needed(overwritten) {
                self.nodes.get(node).dead.store(true, Ordering::Release);
            }
            self.satisfy_one(node, thread);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod oracle;
#[cfg(all(test, not(loom)))]
mod tests;
