//! Measures how fast each stream's device is, and chooses the stream in which a record is durable
//! first.
//!
//! Streams are compared by time: how long a record appended now would take to become durable. A
//! slow or stuck device is avoided, however small its backlog. The measurements affect only
//! latency, not correctness, so all loads and stores are Relaxed.

use crate::log::Shared;
use hyades_platform::broken;
use hyades_platform::clock;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The unit of device time in bytes: batches up to this size take about the same time; larger ones
/// count as several units.
const UNIT_BYTES: u64 = 64 << 10;

/// Differences below this are ignored: a busy flusher collects work for as long.
const LEAST_NS: u64 = 500_000;

/// While all streams are busy, an event loop changes its stream only if syncs take longer than
/// this: smaller batches on more streams cost processor time.
const LONG_SYNC_NS: u64 = 1_000_000;

/// A device this many times slower than the fastest is slow.
const SLOW: u64 = 4;

/// The measured time of an idle stream halves in this interval, so that a slow device is tried
/// again. It is tried with a frame that nothing depends on, because written rows pass their
/// dependencies on to all transactions that read or overwrite them.
const HALF_LIFE_NS: u64 = 100_000_000;

/// What a stream's flusher has measured of its device. Written by the flusher for each batch, read
/// by sessions that choose a stream.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When the current batch began, by [`clock::monotonic_ns`]; 0 if there is none.
    began_ns: AtomicU64,
    /// The size of the current (or last) batch in units.
    units: AtomicU64,
    /// When the last batch ended.
    ended_ns: AtomicU64,
    /// The time of one unit, smoothed; 0 before the first batch.
    unit_ns: AtomicU64,
}

impl Pace {
    /// Notes that a batch of this many bytes begins.
    pub(crate) fn begin(&self, now: u64, bytes: u64) {
        debug_assert!(bytes > 0, "an empty batch tells nothing of the device");
        debug_assert_eq!(self.began_ns.load(Relaxed), 0, "a batch begins within another");
        self.units.store(bytes.div_ceil(UNIT_BYTES).max(1), Relaxed);
        self.began_ns.store(now.max(1), Relaxed);
    }

    /// Notes that the batch is durable.
    pub(crate) fn end(&self, now: u64) {
        let began = self.began_ns.load(Relaxed);
        debug_assert!(began > 0, "a batch ends that has not begun");
        let took = now.saturating_sub(began) / self.units.load(Relaxed).max(1);
        let known = self.decayed_unit_ns(began);
        let unit = if known == 0 { took } else { known.midpoint(took) };
        self.unit_ns.store(unit.max(1), Relaxed);
        self.ended_ns.store(now, Relaxed);
        self.began_ns.store(0, Relaxed);
    }

    /// The time of one unit, halved for each [`HALF_LIFE_NS`] since the last batch.
    fn decayed_unit_ns(&self, now: u64) -> u64 {
        let idle = now.saturating_sub(self.ended_ns.load(Relaxed));
        self.unit_ns.load(Relaxed).checked_shr((idle / HALF_LIFE_NS) as u32).unwrap_or(0)
    }

    /// The time that the current batch has taken so far, per unit; 0 if there is none.
    fn elapsed(&self, now: u64) -> u64 {
        match self.began_ns.load(Relaxed) {
            0 => 0,
            began => now.saturating_sub(began) / self.units.load(Relaxed).max(1),
        }
    }

    /// The time until a record appended now becomes durable, behind the batch under way and with a
    /// backlog of this many bytes; `None` before the first batch has ended. A batch that takes
    /// longer than usual is expected to last as long again as it is late.
    fn time_to_durable(&self, now: u64, backlog: u64) -> Option<u64> {
        let unit = Some(self.unit_ns.load(Relaxed)).filter(|&unit| unit > 0)?;
        let left = match self.began_ns.load(Relaxed) {
            // The flusher begins at this moment, mostly without the record.
            0 => unit,
            began => {
                let usual = unit.saturating_mul(self.units.load(Relaxed));
                now.saturating_sub(began).abs_diff(usual)
            }
        };
        let own = unit.saturating_mul(backlog.div_ceil(UNIT_BYTES).max(1));
        Some(left.saturating_add(own))
    }

    /// The time of one unit, at least [`LEAST_NS`].
    fn usual(&self) -> u64 {
        self.unit_ns.load(Relaxed).max(LEAST_NS)
    }
}

/// A stream chosen for the next records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The stream.
    pub stream: usize,
    /// Its device is much slower than the others', which are full or have a long backlog. Choose
    /// again soon.
    pub is_slow: bool,
}

/// The result of the search for a stream.
pub(crate) struct StreamSearch {
    /// None if no stream has room.
    pub(crate) choice: Option<Choice>,
    /// Idle streams whose device is unmeasured, or whose measurement is outdated: write a frame
    /// there that nothing depends on.
    pub(crate) unmeasured: SmallVec<[usize; 4]>,
}

impl Shared {
    /// Half of a stream's buffer: with a backlog of this many bytes a stream is avoided.
    pub(crate) fn room(&self) -> u64 {
        self.options.buffer_bytes as u64 / 2
    }

    /// Whether a stream's device may be slow or stuck. Only then is a comparison worth its time.
    pub(crate) fn may_be_slow(&self, stream: usize) -> bool {
        let pace = &self.streams[stream].pace;
        let is_under_way = || pace.began_ns.load(Relaxed) > 0;
        self.streams.len() > 1
            && (pace.unit_ns.load(Relaxed) > LEAST_NS
                || is_under_way() && pace.elapsed(clock::monotonic_ns()) > LEAST_NS)
    }

    /// The stream in which a record would be durable first, of those that have room. Streams whose
    /// device is unmeasured are the last resort, unless `unknown`. Of streams about equally good,
    /// takes the next in turn from `first` on, so that concurrent sessions choose different ones.
    /// The stream `stays` is left only for one at least twice as good.
    pub(crate) fn find_fastest(
        &self,
        first: usize,
        stays: Option<usize>,
        unknown: bool,
    ) -> StreamSearch {
        let now = clock::monotonic_ns();
        let unknown = unknown || self.options.stepped;
        let pace = |stream: usize| &*self.streams[stream].pace;
        let is_known = |stream: usize| unknown || pace(stream).unit_ns.load(Relaxed) > 0;
        let n = self.streams.len();
        let known = (0..n).filter(|&stream| pace(stream).unit_ns.load(Relaxed) > 0);
        let fastest = known.map(|stream| pace(stream).usual()).min().unwrap_or(LEAST_NS);
        let times: SmallVec<[Option<u64>; 16]> = (0..n).map(|s| self.time(s, now)).collect();
        let best = |known: bool| {
            let streams = (0..n).filter(|&stream| is_known(stream) == known);
            streams.filter_map(|stream| times[stream]).min()
        };
        let (is_known_best, best) = match best(true) {
            Some(best) => (true, Some(best)),
            None => (false, best(false)),
        };
        let choice = best.and_then(|best| {
            let up_to = |stream: usize, limit: u64| {
                let fits = times[stream].is_some_and(|time| time <= limit);
                fits && is_known(stream) == is_known_best
            };
            let stays = stays.filter(|&stream| up_to(stream, best.saturating_mul(2)));
            let mut in_turn = (0..n).map(|at| (first + at) % n);
            let next = || in_turn.find(|&stream| up_to(stream, best.saturating_add(best / 4)));
            let stream = stays.or_else(next)?;
            let time = pace(stream).usual().max(pace(stream).elapsed(now));
            Some(Choice { stream, is_slow: time > SLOW.saturating_mul(fastest) })
        });
        let is_untried = |stream: usize| {
            let pace = pace(stream);
            let is_measured = is_known(stream)
                && (pace.usual() <= fastest || pace.decayed_unit_ns(now) > fastest);
            !is_measured
                && times[stream].is_some()
                && self.streams[stream].backlog(&self.frontier) == 0
        };
        let tries = n > 1 && !self.options.stepped;
        let unmeasured = (0..n).filter(|&stream| tries && is_untried(stream));
        StreamSearch { choice, unmeasured: unmeasured.collect() }
    }

    /// The estimated time until a record in this stream is durable; None if there is no room.
    fn time(&self, stream: usize, now: u64) -> Option<u64> {
        let backlog = self.streams[stream].backlog(&self.frontier);
        if backlog >= self.room() {
            return None;
        }
        if broken!(BacklogInBytes) {
            return Some(backlog + 1);
        }
        let pace = &self.streams[stream].pace;
        if backlog == 0 {
            return Some(pace.usual());
        }
        // Half of the current batch, the backlog behind it, and the record's own batch.
        let unit = pace.usual().max(pace.elapsed(now));
        Some((unit + unit / 2).saturating_add(unit.saturating_mul(backlog) / UNIT_BYTES))
    }

    /// The stream in which a record would become durable first: `own` if idle, else another idle
    /// stream; without an idle stream, the stream whose sync ends first, if syncs are long and the
    /// change gains an eighth of a sync.
    pub(crate) fn find_first_free(&self, own: usize, now: impl FnOnce() -> u64) -> usize {
        let n = self.streams.len();
        let backlog = |stream: usize| self.streams[stream].backlog(&self.frontier);
        if backlog(own) == 0 {
            return own;
        }
        let others = (1..n).map(|step| (own + step) % n);
        if let Some(idle) = others.clone().find(|&other| backlog(other) == 0) {
            return idle;
        }
        let sync = self.streams[own].pace.unit_ns.load(Relaxed);
        if sync < LONG_SYNC_NS {
            return own;
        }
        let now = now();
        let time = |stream: usize| {
            let backlog = Some(backlog(stream)).filter(|&backlog| backlog < self.room());
            let time = backlog.and_then(|b| self.streams[stream].pace.time_to_durable(now, b));
            time.unwrap_or(u64::MAX)
        };
        let Some(best) = others.min_by_key(|&stream| time(stream)) else { return own };
        if time(best).saturating_add(sync / 8) < time(own) { best } else { own }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{FrameKind, IncarnationSettings, Log, LogOptions, open};
    use hyades_platform::device::MemoryDevice;
    use tempfile::TempDir;

    const SYNC_NS: u64 = 1_200_000;
    const NOW: u64 = 1 << 50;

    /// A log whose flushers do not run, with the time of a sync of each stream; 0: unknown.
    fn log(syncs_ns: &[u64]) -> (Log, TempDir) {
        let dir = tempfile::tempdir_in(MemoryDevice::ROOT).unwrap();
        let mut options = LogOptions::new(vec![dir.path().to_owned()], syncs_ns.len());
        options.stepped = true;
        options.device = MemoryDevice::shared();
        let recovering = open(options).unwrap();
        let verdict = recovering.verdict(&[]).unwrap();
        let log = recovering.start(IncarnationSettings::default(), &verdict, 1).unwrap();
        let measured = log.handle.shared.streams.iter().zip(syncs_ns);
        for (stream, sync_ns) in measured.filter(|(_, sync_ns)| **sync_ns > 0) {
            stream.pace.begin(NOW - sync_ns - 1, 1);
            stream.pace.end(NOW - 1);
        }
        (log, dir)
    }

    fn fill(log: &Log, stream: usize) {
        log.writer().unwrap().reserve(stream, 1).fill(FrameKind::Record, &b"r"[..]);
    }

    /// Begins a batch of one record.
    fn begin(log: &Log, stream: usize, at: u64) {
        fill(log, stream);
        log.handle.shared.streams[stream].pace.begin(at, 1);
    }

    #[test]
    fn a_record_goes_to_the_stream_that_is_free_first() {
        let (log, _dir) = log(&[SYNC_NS; 4]);
        let first_free = |own: usize, at: u64| log.handle.shared.find_first_free(own, || at);
        assert_eq!(first_free(2, NOW), 2, "its own is idle");
        for (stream, begun) in [(0, 0), (1, 400_000), (2, 800_000)] {
            begin(&log, stream, NOW + begun);
        }
        let now = NOW + 900_000;
        assert_eq!(first_free(0, now), 3, "one is idle");
        begin(&log, 3, now);
        assert_eq!((first_free(3, now), first_free(0, now)), (0, 0));
        // A late sync may take as long again as it is late.
        let late = NOW + 400_000 + SYNC_NS;
        assert_eq!((first_free(0, late), first_free(3, late)), (1, 1));
        // A flusher that begins now takes no record along.
        log.handle.shared.streams[1].pace.end(late);
        assert_eq!(first_free(1, late), 2);
        // Nothing is gained by the next one, which begins a tenth of a sync earlier.
        for (stream, begun) in [(0, 0), (1, 120_000), (2, 240_000), (3, 360_000)] {
            let pace = &log.handle.shared.streams[stream].pace;
            pace.began_ns.store(0, Relaxed);
            pace.begin(late + begun, 1);
        }
        assert_eq!((first_free(1, late + 400_000), first_free(3, late + 400_000)), (1, 0));
    }

    #[test]
    fn where_syncs_are_short_or_unknown_only_an_idle_stream_is_chosen() {
        for sync_ns in [0, LONG_SYNC_NS / 2] {
            let (log, _dir) = log(&[sync_ns; 2]);
            let first_free = |own: usize| log.handle.shared.find_first_free(own, || NOW + 10);
            fill(&log, 0);
            assert_eq!((first_free(0), first_free(1)), (1, 1));
            fill(&log, 1);
            assert_eq!((first_free(0), first_free(1)), (0, 1));
        }
    }

    /// A device hanging in the first sync attracts no records.
    #[test]
    fn a_busy_stream_without_a_measured_sync_is_not_chosen() {
        let (log, _dir) = log(&[SYNC_NS, 0]);
        begin(&log, 0, NOW);
        begin(&log, 1, NOW);
        assert_eq!(log.handle.shared.find_first_free(0, || NOW + 10), 0);
    }
}
