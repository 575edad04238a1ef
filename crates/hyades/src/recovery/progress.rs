//! Counters of a recovery, for reports of its progress: by phase, and by log stream.
//!
//! A stream's counters cover all incarnations. The stream's size is known where the manifest states
//! its end; in the newest incarnation the size is bounded by the capacity of the stream's files,
//! until the end is found. So a total may fall, and is exact in the end. The bytes read never
//! exceed the total.

use super::report::{Progress, StreamProgress};
use hyades_platform::clock;
use hyades_platform::sync::Padded;
use hyades_wal::{Lsn, StreamId, StreamReader};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A phase of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Image,
    Log,
    Check,
}

/// The phases by their numbers, in words.
const PHASES: [&str; 3] = ["loading the checkpoint", "replaying the log", "checking the tables"];

/// Counters of one stream. Added to by the reading thread and by the threads that replay the
/// stream's records, after each chunk or batch; read for progress: Relaxed throughout.
#[derive(Debug, Default)]
pub(crate) struct StreamCounters {
    read: AtomicU64,
    total: AtomicU64,
    records: AtomicU64,
    /// Readers of the stream, a reader for each incarnation, that have not reached the end.
    readers: AtomicU64,
}

impl StreamCounters {
    fn phase(&self) -> &'static str {
        match (self.readers.load(Ordering::Relaxed), self.read.load(Ordering::Relaxed)) {
            (0, _) => "read",
            (_, 0) => "waiting",
            _ => "reading",
        }
    }
}

/// Counters of a recovery, see [`StreamCounters`].
#[derive(Debug)]
pub(crate) struct RecoveryProgress {
    phase: AtomicUsize,
    /// The beginning of the phase.
    began_ns: AtomicU64,
    /// Loaded bytes of the checkpoint's files, and all bytes.
    image_read: Padded<AtomicU64>,
    image_total: u64,
    /// Streams of the incarnation being replayed.
    lanes: AtomicUsize,
    /// All streams, by their ids.
    streams: BTreeMap<StreamId, Arc<Padded<StreamCounters>>>,
}

impl RecoveryProgress {
    /// Creates the counters before anything is read.
    pub fn new(readers: &[StreamReader], image_total: u64) -> RecoveryProgress {
        let mut streams = BTreeMap::<StreamId, Arc<Padded<StreamCounters>>>::new();
        for reader in readers {
            let counters = streams.entry(reader.stream).or_default();
            counters.total.fetch_add(reader.bytes_total(), Ordering::Relaxed);
            counters.readers.fetch_add(1, Ordering::Relaxed);
        }
        let first = if image_total == 0 { Phase::Log } else { Phase::Image };
        RecoveryProgress {
            phase: AtomicUsize::new(first as usize),
            began_ns: AtomicU64::new(clock::monotonic_ns()),
            image_read: Padded::default(),
            image_total,
            lanes: AtomicUsize::new(0),
            streams,
        }
    }

    /// Begins a phase. In the phase of the log, `lanes` streams are replayed.
    pub fn enter(&self, phase: Phase, lanes: usize) {
        if self.phase.swap(phase as usize, Ordering::Relaxed) != phase as usize {
            self.began_ns.store(clock::monotonic_ns(), Ordering::Relaxed);
        }
        self.lanes.store(lanes, Ordering::Relaxed);
    }

    /// Counts a loaded block of the checkpoint.
    pub fn image_was_read(&self, bytes: usize) {
        self.image_read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Notes that the whole checkpoint was loaded.
    pub fn image_is_complete(&self) {
        self.image_read.store(self.image_total, Ordering::Relaxed);
    }

    /// Returns the counter for a reader that has read nothing yet.
    pub fn count_reads(&self, reader: &StreamReader) -> ReadCounter {
        let counters = self.streams.get(&reader.stream).cloned().unwrap_or_default();
        let (at, left) = (reader.start(), reader.bytes_total());
        ReadCounter { counters, at, left, has_ended: false }
    }

    /// Counts replayed records of a stream.
    pub fn applied(&self, stream: StreamId, records: u64) {
        if let Some(counters) = self.streams.get(&stream) {
            counters.records.fetch_add(records, Ordering::Relaxed);
        }
    }

    fn by_stream(&self) -> Vec<StreamProgress> {
        let each = self.streams.iter().map(|(stream, counters)| {
            // Loaded before the total: the total may fall, but not below the bytes finally read.
            let bytes_read = counters.read.load(Ordering::Relaxed);
            StreamProgress {
                stream: stream.0,
                phase: counters.phase(),
                bytes_read,
                bytes_total: counters.total.load(Ordering::Relaxed).max(bytes_read),
                records: counters.records.load(Ordering::Relaxed),
            }
        });
        each.collect()
    }

    /// Returns the present progress, with these replayed bytes and records of the log. `speed`:
    /// bytes per second of an earlier replay, if measured.
    pub fn now(
        &self,
        (bytes, records): (u64, u64),
        started_ns: u64,
        speed: Option<u64>,
    ) -> Progress {
        let by_stream = self.by_stream();
        let phase = self.phase.load(Ordering::Relaxed);
        let bytes_total = by_stream.iter().map(|stream| stream.bytes_total).sum();
        let now = clock::monotonic_ns();
        let seconds = |since: u64| now.saturating_sub(since) as f64 / 1e9;
        let mut progress = Progress {
            phase: PHASES[phase],
            bytes_done: bytes.min(bytes_total),
            bytes_total,
            image_bytes_done: self.image_read.load(Ordering::Relaxed).min(self.image_total),
            image_bytes_total: self.image_total,
            records_done: records,
            streams: self.lanes.load(Ordering::Relaxed),
            by_stream,
            seconds: seconds(started_ns),
            estimate_seconds: None,
        };
        let spent = seconds(self.began_ns.load(Ordering::Relaxed));
        progress.estimate_seconds = match phase == Phase::Image as usize {
            true => image_estimate(&progress, spent, speed),
            false => log_estimate(&progress, spent, speed),
        };
        progress
    }
}

/// Returns the time left for `left` bytes if `done` took `spent`; `None` without a rate.
fn time_for(left: u64, done: u64, spent: f64) -> Option<f64> {
    (done > 0).then(|| left as f64 * spent / done as f64)
}

/// While the checkpoint is loaded: the log is as fast as before, or else as fast as the checkpoint.
fn image_estimate(progress: &Progress, spent: f64, speed: Option<u64>) -> Option<f64> {
    let image = time_for(
        progress.image_bytes_total - progress.image_bytes_done,
        progress.image_bytes_done,
        spent,
    )?;
    let log = log_estimate(progress, 0.0, speed);
    log.or_else(|| time_for(progress.bytes_total, progress.image_bytes_done, spent))
        .map(|log| image + log)
}

/// For the log: as fast as so far, or else as before.
fn log_estimate(progress: &Progress, spent: f64, speed: Option<u64>) -> Option<f64> {
    let left = progress.bytes_total - progress.bytes_done;
    let before = || speed.filter(|speed| *speed > 0).map(|speed| left as f64 / speed as f64);
    match left {
        0 => Some(0.0),
        _ => time_for(left, progress.bytes_done, spent).or_else(before),
    }
}

/// Counts the bytes returned by one reader of a stream.
#[derive(Debug)]
pub(crate) struct ReadCounter {
    counters: Arc<Padded<StreamCounters>>,
    /// Everything below was counted.
    at: Lsn,
    /// The unread part of the total.
    left: u64,
    has_ended: bool,
}

impl ReadCounter {
    /// A counter for a part of a stream, of no recovery.
    #[cfg(feature = "replication")]
    pub fn uncounted((at, to): (Lsn, Lsn)) -> ReadCounter {
        ReadCounter { counters: Arc::default(), at, left: to - at, has_ended: false }
    }

    /// Notes that the reader has returned all frames up to `end`.
    pub fn read_to(&mut self, end: Lsn) {
        let bytes = end.saturating_sub(self.at);
        let expected = bytes.min(self.left);
        debug_assert_eq!(expected, bytes, "a stream has no more than its files can hold");
        self.at = end.max(self.at);
        self.left -= expected;
        self.counters.read.fetch_add(expected, Ordering::Relaxed);
    }

    /// Notes that the reader has reached the end of the stream.
    pub fn ended(&mut self) {
        if !std::mem::replace(&mut self.has_ended, true) {
            self.counters.total.fetch_sub(self.left, Ordering::Relaxed);
            self.counters.readers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Records replayed by a thread and not reported yet, by stream.
#[derive(Debug, Default)]
pub(crate) struct AppliedRecords {
    by_stream: Vec<(StreamId, u64)>,
    /// The place of the last record's stream.
    last: usize,
}

impl AppliedRecords {
    #[inline]
    pub fn add(&mut self, stream: StreamId) {
        match self.by_stream.get_mut(self.last) {
            Some((counted, records)) if *counted == stream => *records += 1,
            _ => self.add_of_other(stream),
        }
    }

    #[inline(never)]
    fn add_of_other(&mut self, stream: StreamId) {
        let known = self.by_stream.iter().position(|(counted, _)| *counted == stream);
        self.last = known.unwrap_or_else(|| {
            self.by_stream.push((stream, 0));
            self.by_stream.len() - 1
        });
        self.by_stream[self.last].1 += 1;
    }

    pub fn report(&mut self, to: &RecoveryProgress) {
        for (stream, records) in self.by_stream.iter_mut().filter(|(_, records)| *records > 0) {
            to.applied(*stream, std::mem::take(records));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(image: (u64, u64), log: (u64, u64)) -> Progress {
        let counters = RecoveryProgress {
            phase: AtomicUsize::new(Phase::Log as usize),
            began_ns: AtomicU64::new(clock::monotonic_ns()),
            image_read: Padded(AtomicU64::new(image.0)),
            image_total: image.1,
            lanes: AtomicUsize::new(1),
            streams: BTreeMap::from([(StreamId(0), Arc::default())]),
        };
        counters.streams[&StreamId(0)].total.store(log.1, Ordering::Relaxed);
        counters.now((log.0, 0), clock::monotonic_ns(), None)
    }

    #[test]
    fn an_estimate_follows_the_rates() {
        // A quarter of the image took a second; the log is twice as long.
        let loading = progress((10, 40), (0, 80));
        assert_eq!(image_estimate(&loading, 1.0, None), Some(3.0 + 8.0));
        assert_eq!(image_estimate(&loading, 1.0, Some(40)), Some(3.0 + 2.0));
        assert_eq!(image_estimate(&progress((0, 40), (0, 80)), 1.0, Some(40)), None);
        let replaying = progress((40, 40), (20, 80));
        assert_eq!(log_estimate(&replaying, 1.0, Some(1)), Some(3.0));
        assert_eq!(log_estimate(&progress((40, 40), (0, 80)), 1.0, Some(40)), Some(2.0));
        assert_eq!(log_estimate(&progress((40, 40), (0, 80)), 1.0, None), None);
        assert_eq!(log_estimate(&progress((40, 40), (0, 80)), 1.0, Some(0)), None);
        assert_eq!(log_estimate(&progress((40, 40), (80, 80)), 1.0, None), Some(0.0));
    }

    #[test]
    fn a_share_counts_image_and_log() {
        assert_eq!(progress((0, 0), (0, 0)).share(), 0.0);
        assert_eq!(progress((40, 40), (20, 80)).share(), 0.5);
        assert_eq!(progress((40, 40), (80, 80)).share(), 1.0);
        // Bytes counted twice at a boundary do not raise the share above 1.
        assert_eq!(progress((41, 40), (81, 80)).share(), 1.0);
    }

    #[test]
    fn a_total_is_what_was_read_once_the_end_is_found() {
        let progress = RecoveryProgress {
            streams: BTreeMap::from([(StreamId(3), Arc::<Padded<StreamCounters>>::default())]),
            ..RecoveryProgress::new(&[], 0)
        };
        let counters = progress.streams[&StreamId(3)].clone();
        // Two incarnations, of 100 and at most 1,000 bytes.
        counters.total.store(1_100, Ordering::Relaxed);
        counters.readers.store(2, Ordering::Relaxed);
        let reader = |at, left| {
            let counters = counters.clone();
            ReadCounter { counters, at, left, has_ended: false }
        };
        let mut first = reader(50, 100);
        assert_eq!(progress.by_stream()[0].phase, "waiting");
        first.read_to(120);
        // A chunk that begins below the position already read is counted from the position on.
        first.read_to(120);
        let one = &progress.by_stream()[0];
        assert_eq!((one.stream, one.bytes_read, one.bytes_total), (3, 70, 1_100));
        first.read_to(150);
        first.ended();
        assert_eq!(progress.by_stream()[0].phase, "reading");
        let mut second = reader(150, 1_000);
        second.read_to(151);
        second.ended();
        second.ended();
        let one = &progress.by_stream()[0];
        assert_eq!((one.phase, one.bytes_read, one.bytes_total), ("read", 101, 101));
    }

    #[test]
    fn records_are_reported_by_stream_and_once() {
        let streams = [StreamId(1), StreamId(4)].map(|id| (id, Arc::default()));
        let progress =
            RecoveryProgress { streams: streams.into(), ..RecoveryProgress::new(&[], 0) };
        let mut applied = AppliedRecords::default();
        for stream in [1, 4, 4, 1, 4] {
            applied.add(StreamId(stream));
        }
        applied.report(&progress);
        applied.report(&progress);
        applied.add(StreamId(1));
        applied.report(&progress);
        let records: Vec<_> =
            progress.by_stream().iter().map(|stream| (stream.stream, stream.records)).collect();
        assert_eq!(records, [(1, 3), (4, 3)]);
    }
}
