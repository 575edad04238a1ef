//! A stream's flusher: flushes are timed by the engine's rule (`crates/wal/src/flusher.rs`).

use crate::shared::Time;
use std::collections::VecDeque;

/// The most bytes of a batch.
pub(crate) const MAX_BATCH: u64 = 2 << 20;
/// The backlog that ends a flush interval early.
const FILL: u64 = 1 << 20;
/// The least time between the beginnings of a busy flusher's batches without a waiting thread.
const SPACING: Time = 500_000;
/// The least time after a batch of at least [`SUBSTANTIAL`] bytes.
const LOADED_SPACING: Time = 2_000_000;
const SUBSTANTIAL: u64 = 1 << 10;
/// The unit of writing; no block is written twice.
const BLOCK: u64 = 4096;
const BATCH_HEADER: u64 = 40;

/// The state of a stream's flusher.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// The end of the write in progress.
    pub in_progress: Option<u64>,
    /// The time of the next flush.
    pub due: Option<Time>,
    /// Whether a thread waits for the stream.
    pub hurried: bool,
    /// Heartbeats that are not durable: (end, watermark).
    pub heartbeats: VecDeque<(u64, u64)>,
    /// The last watermark with a heartbeat.
    pub stated: u64,
    /// Workers that wait for room.
    pub blocked: Vec<usize>,
    /// The beginning of the last batch.
    began: Option<Time>,
    /// The spacing of the batch in progress.
    spacing: Time,
    /// A busy flusher without a waiting thread rests until then.
    rests_until: Time,
    /// The time when the last batch was durable.
    ended: Option<Time>,
}

impl Stream {
    /// The time when a flush of this backlog begins. `room` is half of the buffer.
    pub(crate) fn flushes_at(&self, now: Time, backlog: u64, room: u64, interval: Time) -> Time {
        let rests_until = match interval {
            0 if self.hurried || backlog >= room => 0,
            0 => self.rests_until,
            _ if backlog >= room.min(FILL) => 0,
            _ => self.ended.map_or(0, |ended| ended + interval),
        };
        now.max(rests_until)
    }

    /// A batch begins; returns the bytes that the device writes.
    pub(crate) fn begin(&mut self, now: Time, bytes: u64) -> u64 {
        let (spacing, recent) = match bytes < SUBSTANTIAL {
            true => (SPACING, 4 * SPACING),
            false => (LOADED_SPACING, 2 * LOADED_SPACING),
        };
        let busy = self.began.is_some_and(|began| now - began < recent);
        self.spacing = if busy && bytes < MAX_BATCH { spacing } else { 0 };
        (self.began, self.due, self.hurried) = (Some(now), None, false);
        (bytes + BATCH_HEADER).next_multiple_of(BLOCK)
    }

    /// The batch is durable; returns the batch's end, and its watermark, if any.
    pub(crate) fn end(&mut self, now: Time) -> Option<(u64, Option<u64>)> {
        let to = self.in_progress.take()?;
        self.ended = Some(now);
        self.rests_until = self.began.unwrap_or(0) + self.spacing;
        let mut mark = None;
        while self.heartbeats.front().is_some_and(|(end, _)| *end <= to) {
            mark = self.heartbeats.pop_front().map(|(_, mark)| mark);
        }
        Some((to, mark))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch of `bytes` from `at` that takes a microsecond.
    fn batch(stream: &mut Stream, at: Time, bytes: u64) {
        stream.begin(at, bytes);
        stream.in_progress = Some(0);
        stream.end(at + 1_000);
    }

    #[test]
    fn a_busy_flusher_for_which_no_thread_waits_collects_work() {
        let mut stream = Stream::default();
        let at = |stream: &Stream, now| stream.flushes_at(now, 5_000, 1 << 22, 0);
        assert_eq!(at(&stream, 7), 7);
        batch(&mut stream, 7, 5_000);
        // The stream was idle before.
        assert_eq!(at(&stream, 2_000), 2_000);
        batch(&mut stream, 2_000, 5_000);
        assert_eq!(at(&stream, 4_000), 2_000 + LOADED_SPACING);
        assert_eq!(stream.flushes_at(4_000, 1 << 22, 1 << 22, 0), 4_000);
        stream.hurried = true;
        assert_eq!(at(&stream, 4_000), 4_000);
        batch(&mut stream, 10_000, SUBSTANTIAL - 1);
        assert_eq!(at(&stream, 12_000), 10_000 + SPACING);
    }

    #[test]
    fn an_interval_ends_early_only_when_the_buffer_fills() {
        let mut stream = Stream::default();
        batch(&mut stream, 0, 100);
        stream.hurried = true;
        assert_eq!(stream.flushes_at(5_000, 100, 1 << 22, 5_000_000), 5_001_000);
        assert_eq!(stream.flushes_at(5_000, FILL, 1 << 22, 5_000_000), 5_000);
    }

    #[test]
    fn batches_are_whole_blocks() {
        let bytes = |bytes| Stream::default().begin(0, bytes);
        assert_eq!([bytes(1), bytes(BLOCK - BATCH_HEADER)], [BLOCK, BLOCK]);
        assert_eq!(bytes(BLOCK - BATCH_HEADER + 1), 2 * BLOCK);
    }
}
