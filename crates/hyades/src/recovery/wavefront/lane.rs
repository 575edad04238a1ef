//! A stream while it is replayed in order.

use super::watermarks::Watermarks;
use crate::logging::admits;
use crate::recovery::cursor::Cursor;
use crate::recovery::decode::Shape;
use crate::recovery::read_ahead::LaneReader;
use hyades_wal::Lsn;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// See the module; its watermark is in [`Watermarks`].
#[repr(align(128))]
pub(super) struct Lane {
    pub stream: u32,
    pub cursor: Mutex<Cursor>,
    /// Only under a mutation: a dead record ended the lane. Of the cursor's holder alone: Relaxed.
    pub stopped: AtomicBool,
    /// The epoch that the lane has come to.
    pub epoch: AtomicU64,
    /// How much of all streams its last record builds on, in bytes: a clock that all lanes share, finer than
    /// the epoch.
    pub builds_on: AtomicU64,
}

impl Lane {
    pub fn new(reader: LaneReader, shape: Shape) -> Lane {
        Lane {
            stream: reader.stream,
            stopped: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            builds_on: AtomicU64::new(0),
            cursor: Mutex::new(Cursor::new(reader, shape)),
        }
    }

    /// How far the lane is, in the order in which the log was written: lanes are run evenly. A hint, Relaxed.
    pub fn come_to(&self) -> (u64, u64) {
        (self.epoch.load(Ordering::Relaxed), self.builds_on.load(Ordering::Relaxed))
    }
}

/// What a thread last saw of the lanes' watermarks. These only rise, so what was covered stays so.
pub(super) struct Seen {
    pub resolved: Vec<Lsn>,
}

impl Seen {
    /// Whether the watermark of a lane has come to `lsn`.
    #[inline]
    pub fn has<T>(&mut self, marks: &Watermarks<T>, at: usize, lsn: Lsn) -> bool {
        if lsn > self.resolved[at] {
            self.resolved[at] = marks.resolved(at);
        }
        lsn <= self.resolved[at]
    }

    /// Whether all that must come first has; what would stand beyond the end of a stream never will.
    pub fn is_ordered<T>(&mut self, marks: &Watermarks<T>, order: &[Lsn]) -> bool {
        let mut lanes = order.iter().enumerate();
        lanes.all(|(at, lsn)| self.has(marks, at, *lsn) || self.resolved[at] == marks.end(at))
    }

    pub fn is_covered<T>(&mut self, marks: &Watermarks<T>, validity: &[Lsn]) -> bool {
        // First what is not yet known to be covered is looked at again, then the one rule is asked.
        for (at, lsn) in validity.iter().enumerate() {
            self.has(marks, at, *lsn);
        }
        admits(|at| self.resolved[at], validity.iter().copied().enumerate())
    }
}
