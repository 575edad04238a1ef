//! A stream during its replay in order.

use crate::recovery::cursor::StreamCursor;
use crate::recovery::decode::RecordShape;
use crate::recovery::read_ahead::LaneReader;
use hyades_wal::StreamId;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

/// A stream being replayed; its watermark is in [`Watermarks`](super::watermarks::Watermarks).
#[repr(align(128))]
pub(super) struct ReplayStream {
    pub stream: StreamId,
    pub cursor: Mutex<StreamCursor>,
    /// Used only by a mutation: a dead record ended the stream. Accessed by the cursor's holder
    /// only: Relaxed.
    pub stopped: AtomicBool,
    /// The epoch reached by the stream.
    epoch: AtomicU64,
    /// Number of bytes of all streams that the last decoded record follows: a clock shared by all
    /// streams, finer than the epoch.
    prefix_bytes: AtomicU64,
    /// Whether a thread runs the stream: a hint, so other threads do not touch the stream's cache
    /// lines.
    busy: AtomicBool,
}

impl ReplayStream {
    pub fn new(reader: LaneReader, shape: RecordShape) -> ReplayStream {
        ReplayStream {
            stream: reader.stream,
            stopped: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            prefix_bytes: AtomicU64::new(0),
            busy: AtomicBool::new(false),
            cursor: Mutex::new(StreamCursor::new(reader, shape)),
        }
    }

    /// Returns the progress of the stream, in the order in which the log was written, to run
    /// streams evenly. A hint, Relaxed.
    pub fn progress(&self) -> (u64, u64) {
        (self.epoch.load(Ordering::Relaxed), self.prefix_bytes.load(Ordering::Relaxed))
    }

    pub fn set_progress(&self, (epoch, prefix_bytes): (u64, u64)) {
        self.epoch.store(epoch, Ordering::Relaxed);
        self.prefix_bytes.store(prefix_bytes, Ordering::Relaxed);
    }

    /// Whether a thread runs the stream, as far as known.
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }

    /// Takes the stream in order to run it; `None` if taken by another thread.
    pub fn try_hold(&self) -> Option<Holder<'_>> {
        if self.is_busy() {
            return None;
        }
        let cursor = self.cursor.try_lock().ok()?;
        let was_busy = self.busy.swap(true, Ordering::Relaxed);
        debug_assert!(!was_busy, "a stream is run by the thread that holds its cursor");
        Some(Holder { busy: &self.busy, cursor })
    }
}

/// The exclusive right to run a stream.
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
