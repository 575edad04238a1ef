//! Times in the log, for restores to a time of the day.
//!
//! A *time mark* is a frame that states: all transactions acknowledged before a time have
//! timestamps up to a limit. The thread of the proxy writes a mark for the first record after the
//! mark before, at most each 100 ms: the limit is the highest timestamp among the records handed
//! over before that record, and the time is the time of its handing over. So between two marks the
//! database was idle, or 100 ms went by.

use hyades_platform::clock;
use hyades_platform::sync::locked;
use hyades_wal::{FrameKind, Log, Writer, varint};
use std::sync::Mutex;

/// The least time between two marks.
const EVERY_NS: u64 = 100_000_000;

/// A time mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeMark {
    /// The time, in microseconds since 1970, by the machine's clock.
    pub at_us: u64,
    /// No transaction acknowledged before has a higher timestamp.
    pub highest_ts: u64,
}

impl TimeMark {
    /// Appends the mark: the form of a record with parts of which there are none, at no position.
    fn put(self, out: &mut Vec<u8>) {
        let numbers = [0, 0, 0, self.highest_ts, self.at_us];
        numbers.into_iter().for_each(|number| varint::put(out, number));
    }

    /// Reads a mark; None if the payload of a record is none.
    pub(crate) fn read(record: &[u8]) -> Option<TimeMark> {
        let mut rest = record;
        for _ in 0..3 {
            if varint::take(&mut rest)? != 0 {
                return None;
            }
        }
        let (highest_ts, at_us) = (varint::take(&mut rest)?, varint::take(&mut rest)?);
        rest.is_empty().then_some(TimeMark { at_us, highest_ts })
    }
}

/// What the proxy knows for the next mark. The proxy changes it under the lock of the scans.
#[derive(Debug, Default)]
pub(crate) struct DueMark {
    /// The highest timestamp handed over so far.
    highest_ts: u64,
    /// The monotonic time of the last mark; None before the first.
    last_ns: Option<u64>,
    /// A mark to be written: the monotonic time, and the highest timestamp before.
    due: Option<(u64, u64)>,
}

impl DueMark {
    /// For a database whose next transaction gets the timestamp `first_ts`.
    pub fn new(first_ts: u64) -> Self {
        Self { highest_ts: first_ts - 1, ..Self::default() }
    }

    /// Notes records handed over, the first at `since_ns`, and the highest of their timestamps.
    pub fn note(&mut self, since_ns: u64, highest_ts: u64) {
        if self.last_ns.is_none_or(|last| since_ns.saturating_sub(last) >= EVERY_NS) {
            self.last_ns = Some(since_ns);
            self.due = Some((since_ns, self.highest_ts));
        }
        self.highest_ts = self.highest_ts.max(highest_ts);
    }

    /// Takes the mark to be written.
    pub fn take(&mut self) -> Option<(u64, u64)> {
        self.due.take()
    }
}

/// Writes time marks.
#[derive(Debug)]
pub(crate) struct TimeMarks {
    /// None if the log has as many writers as it can have, or is stepped by hand.
    writer: Option<Mutex<Writer>>,
}

impl TimeMarks {
    /// `is_free`: the sessions leave a writer of the log to spare.
    pub fn new(log: &Log, is_stepped: bool, is_free: bool) -> Self {
        // What a test steps by hand depends on no clock.
        let has_clock = !is_stepped || clock::is_simulated();
        let writer = (has_clock && is_free).then(|| log.writer().ok()).flatten();
        Self { writer: writer.map(Mutex::new) }
    }

    /// Writes a mark taken from [`DueMark`], unless the log has no room: the thread of the proxy
    /// waits for no device.
    pub fn write(&self, (since_ns, highest_ts): (u64, u64)) {
        let Some(writer) = &self.writer else { return };
        let mut writer = locked(writer);
        let stream = writer.own_stream();
        if writer.backlog(stream) >= writer.room() {
            return;
        }
        let passed_us = clock::monotonic_ns().saturating_sub(since_ns) / 1000;
        let at_us = clock::wall_us().saturating_sub(passed_us);
        let mut bytes = Vec::new();
        TimeMark { at_us, highest_ts }.put(&mut bytes);
        // A log that has stopped takes no mark.
        let _ = writer.reserve(stream, bytes.len()).fill(FrameKind::Record, &bytes);
    }
}

/// Finds the mark for a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MarkSearch {
    asked_us: Option<u64>,
    found: Option<TimeMark>,
}

impl MarkSearch {
    /// Looks for the first mark at or after a time; for none at all if None.
    pub fn new(asked_us: Option<u64>) -> Self {
        Self { asked_us, found: None }
    }

    /// Takes the payload of a record.
    pub fn note(&mut self, payload: &[u8]) {
        let Some(asked_us) = self.asked_us else { return };
        let Some(mark) = TimeMark::read(payload) else { return };
        let is_better =
            |found: TimeMark| (mark.at_us, mark.highest_ts) < (found.at_us, found.highest_ts);
        if mark.at_us >= asked_us && self.found.is_none_or(is_better) {
            self.found = Some(mark);
        }
    }

    /// The first mark at or after the time.
    pub fn found(&self) -> Option<TimeMark> {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_due_at_the_first_record_and_then_each_100_ms() {
        let mut due = DueMark::new(5);
        due.note(1_000, 7);
        assert_eq!(due.take(), Some((1_000, 4)));
        due.note(EVERY_NS, 9);
        assert_eq!(due.take(), None);
        // Records behind a pause: nothing acknowledged before has a timestamp above 9.
        due.note(5 * EVERY_NS, 8);
        assert_eq!(due.take(), Some((5 * EVERY_NS, 9)));
    }

    #[test]
    fn the_first_mark_at_or_after_a_time_counts() {
        let mark = |at_us, highest_ts| {
            let mut bytes = Vec::new();
            TimeMark { at_us, highest_ts }.put(&mut bytes);
            bytes
        };
        let find = |asked| {
            let mut search = MarkSearch::new(asked);
            for (at_us, ts) in [(30, 3), (10, 1), (20, 2)] {
                search.note(&mark(at_us, ts));
            }
            search.found().map(|found| found.highest_ts)
        };
        assert_eq!([10, 11, 30, 31].map(|at| find(Some(at))), [Some(1), Some(2), Some(3), None]);
        assert_eq!(find(None), None);
    }
}
