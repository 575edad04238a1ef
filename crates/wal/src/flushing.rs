//! Flushing without a permanent flusher: writers flushing their own records, and writers completing
//! the collection of a flush interval.

use crate::Lsn;
use crate::flusher::{Flusher, StopOnPanic};
use crate::log::Shared;
use crate::stream::Stream;
use hyades_platform::callback::OnDatabaseThread;
use hyades_platform::sync::{self, locked};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Where writers flush: the time for which requests to a stream wait for the stream's own writers;
/// the writers flush, and state the stream's mark, with each record.
const ASSIST_PAUSE: Duration = Duration::from_micros(100);

impl Shared {
    /// Makes a stream durable up to `lsn`, where writers flush; false if a frame before `lsn` is
    /// not filled yet. Then the stream's thread goes on.
    pub(crate) fn flush_as_writer(&self, lane: usize, lsn: Lsn) -> bool {
        while self.frontier.durable(lane) < lsn {
            if !self.step(lane) {
                self.streams[lane].wake.notify();
                return self.frontier.durable(lane) >= lsn;
            }
        }
        true
    }

    /// The thread of a stream flushed by its writers: states awaited marks, and flushes awaited
    /// frames not flushed by a writer.
    pub(crate) fn assist_writers(&self, lane: usize) {
        let _mark = OnDatabaseThread::begin();
        let _guard = StopOnPanic(self);
        let stream = &self.streams[lane];
        let is_idle = || stream.order.log_lsn() == self.frontier.durable(lane);
        let mut busy_rounds = 0u32;
        while self.frontier.poisoned().is_none() {
            if self.step(lane) {
                busy_rounds = 0;
            } else if !is_idle() {
                // A writer fills its frame, or flushes.
                busy_rounds = busy_rounds.saturating_add(1);
                match busy_rounds {
                    0..20 => sync::yield_now(),
                    20..60 => std::thread::sleep(Duration::from_micros(50)),
                    _ => std::thread::sleep(Duration::from_millis(1)),
                }
            } else {
                busy_rounds = 0;
                self.sleep_while_idle(lane, is_idle);
                std::thread::sleep(ASSIST_PAUSE);
            }
        }
        // The flusher and the shared state hold each other: dropping the flusher breaks the cycle.
        drop(locked(&self.stepped[lane]).take());
    }

    /// Sleeps until the thread of a stream may have something to do.
    fn sleep_while_idle(&self, lane: usize, is_idle: impl Fn() -> bool) {
        let stream = &self.streams[lane];
        // Announce, then check: a requesting thread uses the opposite order.
        let listener = stream.wake.listen();
        let wanted = locked(&self.stepped[lane]).as_ref().map(Flusher::wanted);
        let Some((asked, retry)) = wanted else { return };
        if is_idle()
            && stream.wanted_mark.load(Ordering::SeqCst) == asked.0
            && self.urgent.load(Ordering::SeqCst) == asked.1
            && self.frontier.poisoned().is_none()
        {
            listener.wait(retry);
        }
    }

    /// The backlog in bytes that ends a flush interval.
    pub(crate) fn fill_bytes(&self) -> u64 {
        let half = self.options.buffer_bytes as u64 / 2;
        half.min(self.options.flush_fill_bytes as u64)
    }

    /// Where a flush interval collects frames: called for a filled frame; wakes the flusher if the
    /// frame completes the collection.
    #[cold]
    pub(crate) fn collect(&self, stream: &Stream, start: Lsn, end: Lsn) {
        let most = self.options.flush_fill_frames;
        let is_last = most.is_some_and(|most| stream.group.add(most));
        let full_at = self.frontier.durable(stream.lane) + self.fill_bytes();
        if is_last || (start < full_at && full_at <= end) {
            self.frontier.wake_early(stream.lane);
        }
    }
}
