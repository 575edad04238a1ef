//! A stream during replay, and the lines that its threads share.

use super::state::{Activity, CURSOR_LINES, Front, HEAD_LINES, Lane, QUANTUM};
use crate::shared::Time;

impl<F: Fn(u64) -> f64> Front<'_, F> {
    /// The position of a stream's runner: everything before was run or parked.
    pub(super) fn position(&self, lane: usize) -> u64 {
        let stream = &self.lanes[lane];
        // The bytes between two records are no record.
        stream.records.get(stream.next).map_or(u64::MAX, |next| self.log[*next].start)
    }

    /// The position below which everything in the stream is resolved.
    fn unresolved(&self, lane: usize) -> u64 {
        let first = self.lanes[lane].window.front();
        first.map_or_else(|| self.position(lane), |parked| self.log[parked.record].start)
    }

    /// Whether the watermarks seen by a thread cover a record's vector, once the thread has looked
    /// at what it lacks. `runs`: the stream that the thread runs, with a known position. A record
    /// that waits registers the first missing position.
    pub(super) fn may_run(
        &mut self,
        thread: usize,
        record: usize,
        runs: Option<usize>,
        now: Time,
    ) -> (Time, bool) {
        let mut at = now;
        for (lane, lsn) in self.log[record].vector.iter().enumerate() {
            if *lsn <= self.threads[thread].seen[lane] {
                continue;
            }
            if runs == Some(lane) && self.lanes[lane].window.is_empty() {
                self.threads[thread].seen[lane] = self.position(lane);
            } else {
                let mark = &mut self.lanes[lane].mark;
                let until = mark.reach(false, thread, (self.event, at), self.timing.line);
                at = self.spend(thread, Activity::Line, at, until);
                self.threads[thread].seen[lane] = self.lanes[lane].resolved;
            }
            if *lsn <= self.threads[thread].seen[lane] {
                continue;
            }
            let wanted = &mut self.lanes[lane].wanted;
            if runs.is_none() && *wanted > *lsn {
                *wanted = *lsn;
                at = self.write_mark(lane, thread, at);
            }
            return (at, false);
        }
        (at, true)
    }

    /// Writes the line of a watermark, which is then served to the threads that poll.
    fn write_mark(&mut self, lane: usize, thread: usize, now: Time) -> Time {
        let line = self.timing.line;
        let polling = self.polling(now);
        let mark = &mut self.lanes[lane].mark;
        let until = mark.reach(true, thread, (self.event, now), line);
        mark.serve(&polling, self.event, line);
        self.spend(thread, Activity::Line, now, until)
    }

    /// Writes the line of a watermark, and that of the window's places.
    pub(super) fn write_lines(&mut self, lane: usize, thread: usize, now: Time) -> Time {
        let at = self.write_mark(lane, thread, now);
        let now = (self.event, at);
        let until = self.lanes[lane].places.reach(true, thread, now, self.timing.line);
        self.spend(thread, Activity::Window, at, until)
    }

    /// Publishes the resolved position of a stream, and notifies threads if one waits for it.
    pub(super) fn publish(&mut self, lane: usize, thread: usize, now: Time) -> Time {
        let at = self.write_mark(lane, thread, now);
        let to = self.unresolved(lane);
        let stream = &mut self.lanes[lane];
        (stream.resolved, stream.unpublished) = (stream.resolved.max(to), 0);
        if stream.wanted <= to {
            stream.wanted = u64::MAX;
            return self.notify(thread, at);
        }
        at
    }

    /// The time to move a parked record's content to another core.
    pub(super) fn content_ns(&self, record: usize) -> Time {
        let vectors = 2 * self.lanes.len() / 8;
        let bytes = self.log[record].end - self.log[record].start;
        let lines = HEAD_LINES + vectors + bytes.div_ceil(64) as usize;
        self.timing.line + self.timing.further * (lines as Time - 1)
    }

    /// A thread takes a stream.
    pub(super) fn hold(&mut self, lane: usize, thread: usize, now: Time) -> Time {
        // The decoder has three vectors of eight components a line.
        let lines = CURSOR_LINES + 3 * self.lanes.len() / 8;
        let Lane { holder, last_holder, .. } = &mut self.lanes[lane];
        let until = match last_holder.replace(thread).is_none_or(|last| last == thread) {
            true => now + self.timing.lock,
            false => {
                let further = self.timing.further * (lines as Time - 1);
                now + self.timing.lock + self.timing.line + further
            }
        };
        *holder = Some(thread);
        self.threads[thread].holds = Some((lane, QUANTUM));
        self.spend(thread, Activity::Cursor, now, until)
    }

    /// A thread leaves a stream.
    pub(super) fn release(&mut self, lane: usize, thread: usize, now: Time) -> Time {
        let at = match self.lanes[lane].unpublished {
            0 => now,
            _ => self.publish(lane, thread, now),
        };
        // The thread has found work, if it has advanced at all.
        if self.threads[thread].holds.take().is_some_and(|(_, left)| left < QUANTUM) {
            self.threads[thread].is_idle = false;
        }
        let stream = &mut self.lanes[lane];
        stream.holder = None;
        if let Some(last) = stream.next.checked_sub(1) {
            stream.progress = self.log[stream.records[last]].vector.iter().sum();
        }
        at
    }
}
