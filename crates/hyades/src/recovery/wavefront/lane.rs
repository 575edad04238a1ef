//! A stream while it is replayed in order: its watermark, what waits in it, and who waits at it.

use crate::logging::admits;
use crate::logging::record::Head;
use crate::recovery::cursor::Cursor;
use crate::recovery::decode::Shape;
use crate::recovery::read_ahead::LaneReader;
use hyades_wal::Lsn;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A record that waits.
pub(super) struct Parked {
    pub lane: usize,
    pub start: Lsn,
    pub head: Head,
    pub body: Vec<u8>,
    /// Watermarks still lacked, plus one while they are being counted.
    pub unmet: AtomicU32,
    pub dead: AtomicBool,
    pub done: AtomicBool,
}

/// A record, at a watermark that it lacks.
pub(super) struct Waiter {
    pub position: Lsn,
    /// What the record needs to be live: beyond the stream's end it is dead. Where it only has to follow
    /// something, the end is as good as any place beyond.
    pub validity: Lsn,
    pub record: Arc<Parked>,
}

impl PartialEq for Waiter {
    fn eq(&self, other: &Self) -> bool {
        self.position == other.position
    }
}
impl Eq for Waiter {}
impl PartialOrd for Waiter {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Waiter {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.position.cmp(&other.position)
    }
}

/// A stream while it is replayed.
#[repr(align(128))]
pub(super) struct Lane {
    pub stream: u32,
    pub cursor: Mutex<Cursor>,
    /// Only under a mutation: a dead record ended the lane. Of the cursor's holder alone: Relaxed.
    pub stopped: AtomicBool,
    /// The watermark. Raised by the lane's runner while nothing is parked, else under `parked`; read
    /// by all. Release and Acquire: what was installed before is seen.
    pub resolved: AtomicU64,
    /// Everything before this was run or parked. Written by the runner (SeqCst, against `waiting`).
    pub scanned: AtomicU64,
    /// Records parked and not yet taken off `parked`.
    pub waiting: AtomicUsize,
    pub parked: Mutex<VecDeque<Arc<Parked>>>,
    pub waiters: Mutex<BinaryHeap<Reverse<Waiter>>>,
    /// The lowest position in `waiters`, to pass by quickly. Written under `waiters` (SeqCst, against
    /// `resolved`).
    pub lowest_waiter: AtomicU64,
    /// The stream was read to its end, which is `end`.
    pub finished: AtomicBool,
    pub end: AtomicU64,
    /// The epoch that the lane has come to.
    pub epoch: AtomicU64,
    /// How much of all streams its last record builds on, in bytes: a clock that all lanes share, finer than
    /// the epoch.
    pub builds_on: AtomicU64,
}

impl Lane {
    pub fn new(reader: LaneReader, shape: Shape) -> Lane {
        let start = reader.start();
        Lane {
            stream: reader.stream,
            resolved: AtomicU64::new(start),
            scanned: AtomicU64::new(start),
            waiting: AtomicUsize::new(0),
            parked: Mutex::default(),
            waiters: Mutex::default(),
            lowest_waiter: AtomicU64::new(u64::MAX),
            finished: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            end: AtomicU64::new(u64::MAX),
            epoch: AtomicU64::new(0),
            builds_on: AtomicU64::new(0),
            cursor: Mutex::new(Cursor::new(reader, shape)),
        }
    }

    /// How far the lane is, in the order in which the log was written: lanes are run evenly. A hint, Relaxed.
    pub fn come_to(&self) -> (u64, u64) {
        (self.epoch.load(Ordering::Relaxed), self.builds_on.load(Ordering::Relaxed))
    }

    pub fn is_complete(&self) -> bool {
        self.finished.load(Ordering::Acquire)
            && self.resolved.load(Ordering::Acquire) == self.end.load(Ordering::Acquire)
    }
}

/// What a thread last saw of the lanes' watermarks. These only rise, so what was covered stays so.
pub(super) struct Seen {
    pub resolved: Vec<Lsn>,
}

impl Seen {
    /// Whether the watermark of a lane has come to `lsn`.
    #[inline]
    pub fn has(&mut self, lanes: &[Lane], at: usize, lsn: Lsn) -> bool {
        if lsn > self.resolved[at] {
            self.resolved[at] = lanes[at].resolved.load(Ordering::Acquire);
        }
        lsn <= self.resolved[at]
    }

    /// Whether all that must come first has; what would stand beyond the end of a stream never will.
    pub fn is_ordered(&mut self, lanes: &[Lane], order: &[Lsn]) -> bool {
        order.iter().enumerate().all(|(at, lsn)| {
            self.has(lanes, at, *lsn) || self.resolved[at] == lanes[at].end.load(Ordering::Acquire)
        })
    }

    pub fn is_covered(&mut self, lanes: &[Lane], validity: &[Lsn]) -> bool {
        // First what is not yet known to be covered is looked at again, then the one rule is asked.
        for (at, lsn) in validity.iter().enumerate() {
            self.has(lanes, at, *lsn);
        }
        admits(|at| self.resolved[at], validity.iter().copied().enumerate())
    }
}
