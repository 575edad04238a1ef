//! A stream while it is replayed in order.

use crate::recovery::cursor::StreamCursor;
use crate::recovery::decode::RecordShape;
use crate::recovery::read_ahead::LaneReader;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

/// See the module; its watermark is in [`Watermarks`](super::watermarks::Watermarks).
#[repr(align(128))]
pub(super) struct ReplayStream {
    pub stream: u32,
    pub cursor: Mutex<StreamCursor>,
    /// Only under a mutation: a dead record ended the lane. Of the cursor's holder alone: Relaxed.
    pub stopped: AtomicBool,
    /// The epoch that the lane has come to.
    epoch: AtomicU64,
    /// How much of all streams its next record builds on, in bytes: a clock that all lanes share, finer than
    /// the epoch.
    builds_on: AtomicU64,
    /// Whether somebody runs it: a hint, to pass by without touching what the runner works with.
    busy: AtomicBool,
}

impl ReplayStream {
    pub fn new(reader: LaneReader, shape: RecordShape) -> ReplayStream {
        ReplayStream {
            stream: reader.stream,
            stopped: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            builds_on: AtomicU64::new(0),
            busy: AtomicBool::new(false),
            cursor: Mutex::new(StreamCursor::new(reader, shape)),
        }
    }

    /// How far the lane is, in the order in which the log was written: lanes are run evenly. A hint, Relaxed.
    pub fn come_to(&self) -> (u64, u64) {
        (self.epoch.load(Ordering::Relaxed), self.builds_on.load(Ordering::Relaxed))
    }

    pub fn set_come_to(&self, (epoch, builds_on): (u64, u64)) {
        self.epoch.store(epoch, Ordering::Relaxed);
        self.builds_on.store(builds_on, Ordering::Relaxed);
    }

    /// Whether somebody runs it, as far as is known.
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }

    /// Takes the lane to run it, unless somebody has.
    pub fn try_hold(&self) -> Option<Holder<'_>> {
        if self.is_busy() {
            return None;
        }
        let cursor = self.cursor.try_lock().ok()?;
        self.busy.store(true, Ordering::Relaxed);
        Some(Holder { busy: &self.busy, cursor })
    }
}

/// Who runs a lane.
pub(super) struct Holder<'l> {
    busy: &'l AtomicBool,
    cursor: MutexGuard<'l, StreamCursor>,
}

impl Deref for Holder<'_> {
    type Target = StreamCursor;
    fn deref(&self) -> &StreamCursor {
        &self.cursor
    }
}

impl DerefMut for Holder<'_> {
    fn deref_mut(&mut self) -> &mut StreamCursor {
        &mut self.cursor
    }
}

impl Drop for Holder<'_> {
    fn drop(&mut self) {
        self.busy.store(false, Ordering::Relaxed);
    }
}
