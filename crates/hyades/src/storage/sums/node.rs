//! A node of a sum index: the counts of the rows of a prefix, as of the committed transactions.
//!
//! Each writer of a count enters the node once the writer has locked its row, and leaves at the
//! installation of the row, which sets the count, or without a change. A reader takes an answer
//! under the latch, and remembers the version: the answer is current as long as the version is the
//! same and no other writer is inside. So writers conflict only with readers, never with writers.
//!
//! A node begins as a *candidate*: a transaction has read all rows of the prefix, and proposes the
//! counts before its validation. Writers treat a candidate like any node; readers take answers
//! only once the validation has succeeded. See `research/model/src/sums.rs`.

use super::SumBudget;
use super::counts::OrderedCounts;
use crate::storage::tid::Tid;
use hyades_platform::broken;
use hyades_platform::sync::Unpoisoned;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The writers inside, in the word of a node.
const WRITERS: u64 = (1 << 24) - 1;
/// The step of the version, in the word of a node.
const VERSION: u64 = 1 << 24;

/// The most looks of a reader at a node with writers inside.
const PATIENCE: u32 = 64;

#[derive(Debug, PartialEq, Eq)]
enum NodeState {
    /// Proposed by a transaction that is not validated.
    Candidate,
    Valid,
    /// Has left the index: writers and readers that still hold the node change and trust nothing.
    Dead,
}

struct LatchedCounts {
    state: NodeState,
    counts: OrderedCounts,
    /// The highest version of a row that has changed a count.
    highest: Tid,
}

/// The counts of a prefix, with stamps like a gap.
pub(crate) struct SumNode<S> {
    /// The hash of the prefix.
    pub hash: u64,
    pub prefix: Box<[u8]>,
    /// The stamp of the writers of the counts, observed by readers. Changed under the latch.
    pub written: S,
    /// The stamp of readers, observed by writers.
    pub readers: S,
    /// The version, and the writers inside. SeqCst, like the version word of a row.
    word: AtomicU64,
    /// Read since the last search for a node to drop. A hint, Relaxed.
    used: AtomicBool,
    /// The latch.
    latched: Mutex<LatchedCounts>,
    budget: Arc<SumBudget>,
}

/// What the change of a count has made of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeChange {
    Changed,
    Grown,
    /// The last row of the prefix is gone.
    Emptied,
}

impl<S: Default> SumNode<S> {
    pub fn new(
        (hash, prefix): (u64, &[u8]),
        counts: OrderedCounts,
        budget: Arc<SumBudget>,
    ) -> Self {
        let state = NodeState::Candidate;
        let latched = LatchedCounts { state, counts, highest: Tid::NONE };
        SumNode {
            hash,
            prefix: prefix.into(),
            written: S::default(),
            readers: S::default(),
            word: AtomicU64::new(0),
            used: AtomicBool::new(true),
            latched: Mutex::new(latched),
            budget,
        }
    }
}

impl<S> SumNode<S> {
    /// Reads the counts of a valid node, with the highest version of a row. Returns the observed
    /// version, too.
    pub fn read<T>(&self, read: impl FnOnce(&OrderedCounts, Tid) -> T) -> Option<(u64, T)> {
        for _ in 0..PATIENCE {
            if self.word.load(Ordering::Relaxed) & WRITERS == 0 {
                break;
            }
            std::hint::spin_loop();
        }
        let latched = self.latched.lock().unpoisoned();
        let is_valid = latched.state == NodeState::Valid
            || latched.state == NodeState::Candidate && broken!(ReadUnprovenSum);
        if !is_valid {
            return None;
        }
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        let seen = self.word.load(Ordering::SeqCst) & !WRITERS;
        Some((seen, read(&latched.counts, latched.highest)))
    }

    /// Reads the counts, whatever the state of the node: for the transaction that has built them
    /// and has not proposed the node.
    pub fn own<T>(&self, read: impl FnOnce(&OrderedCounts) -> T) -> T {
        read(&self.latched.lock().unpoisoned().counts)
    }

    /// Whether the version is still the observed version, and no writers are inside, except the
    /// transaction's own.
    #[inline]
    pub fn is_current(&self, seen: u64, own_writers: u64) -> bool {
        let now = self.word.load(Ordering::SeqCst);
        let now = if broken!(IgnoreSumWriters) { now & !WRITERS } else { now };
        now == seen + if broken!(IgnoreSumWriters) { 0 } else { own_writers }
    }

    /// Enters the node: the caller has locked a row of the prefix, whose count will change. The
    /// caller observes [`SumNode::readers`] only afterwards.
    #[inline]
    pub fn enter(&self) {
        self.word.fetch_add(1, Ordering::SeqCst);
    }

    /// Leaves the node without a change.
    pub fn leave(&self) {
        self.word.fetch_sub(1, Ordering::SeqCst);
    }

    /// Sets the count of a row that is locked, or removes the row, and leaves the node. `stamp`
    /// raises the stamp of the writers.
    #[inline]
    pub fn set(
        &self,
        key: &[u8],
        count: Option<u64>,
        tid: Tid,
        stamp: impl FnOnce(&S),
    ) -> NodeChange {
        let mut latched = self.latched.lock().unpoisoned();
        if latched.state == NodeState::Dead {
            self.leave();
            return NodeChange::Changed;
        }
        if !broken!(SumWithoutStamp) {
            stamp(&self.written);
        }
        latched.highest = latched.highest.max(tid);
        let grown = latched.counts.set(key, count);
        // The version changes, and the writer leaves, in one step.
        self.word.fetch_add(VERSION - 1, Ordering::SeqCst);
        if grown != 0 {
            self.budget.add(grown);
        }
        match (grown > 0, latched.counts.rows()) {
            (true, _) => NodeChange::Grown,
            (false, 0) => NodeChange::Emptied,
            (false, _) => NodeChange::Changed,
        }
    }

    /// Counts the memory of a candidate that enters the index. `highest` is the highest version of
    /// a row read.
    pub(super) fn enter_index(&self, highest: Tid) {
        let mut latched = self.latched.lock().unpoisoned();
        latched.highest = latched.highest.max(highest);
        self.budget.add(latched.counts.bytes() as isize);
    }

    /// Whether the counts alone take more memory than all nodes may.
    pub(super) fn is_too_large(&self) -> bool {
        self.latched.lock().unpoisoned().counts.bytes() > self.budget.limit()
    }

    /// Makes a candidate valid: the transaction that has read the rows was validated.
    pub fn prove(&self) {
        let mut latched = self.latched.lock().unpoisoned();
        if latched.state == NodeState::Candidate {
            latched.state = NodeState::Valid;
        }
    }

    /// Marks a node that has left the index, and frees the counts.
    pub(super) fn kill(&self) {
        let mut latched = self.latched.lock().unpoisoned();
        if latched.state != NodeState::Dead {
            latched.state = NodeState::Dead;
            // The last change: no observed version is current any more.
            if !broken!(ReadDroppedSum) {
                self.word.fetch_add(VERSION, Ordering::SeqCst);
            }
            let counts = std::mem::take(&mut latched.counts);
            self.budget.add(-(counts.bytes() as isize));
        }
    }

    /// Whether the node is valid, and was not read since the last call.
    pub(super) fn is_unused(&self) -> bool {
        let is_valid = self.latched.lock().unpoisoned().state == NodeState::Valid;
        is_valid && !self.used.swap(false, Ordering::Relaxed)
    }
}
