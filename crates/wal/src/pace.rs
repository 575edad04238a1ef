//! How fast each stream gets what it is given to its device, and which stream is the quickest.
//!
//! Streams are compared by time: how long a record would take to become durable that joined them now. A
//! device that is slow, or stands still, is avoided however little waits for it. Nothing here decides
//! whether something is right, only how soon it is there: all loads and stores are Relaxed.

use crate::log::Shared;
use hyades_platform::clock;
use hyades_platform::mutation::{self, Mutation};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a device's time is measured by: batches of up to this many bytes take about the same, those
/// of more are taken for several.
const UNIT_BYTES: u64 = 64 << 10;

/// Differences below this do not count: a busy flusher lets work collect for as long.
const LEAST_NS: u64 = 500_000;

/// A stream that is this many times slower than the fastest is slow.
const SLOW: u64 = 4;

/// What is known of an idle stream loses half of its weight in this time, so that a device that was slow
/// is tried again: by a frame that nothing depends on, since rows that are written spread what they depend on
/// to all who read or overwrite them.
const HALF_LIFE_NS: u64 = 100_000_000;

/// What a stream's flusher has seen of its device. Written by the flusher, a few words for each batch;
/// read by sessions that choose a stream.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When the batch began that is under way, by [`clock::monotonic_ns`]; 0 if none is.
    began_ns: AtomicU64,
    /// How many units it has.
    units: AtomicU64,
    /// When the last one ended.
    ended_ns: AtomicU64,
    /// How long one unit takes, smoothed; 0 before the first batch.
    unit_ns: AtomicU64,
}

impl Pace {
    /// A batch of so many bytes begins.
    pub(crate) fn begin(&self, now: u64, bytes: u64) {
        self.units.store(bytes.div_ceil(UNIT_BYTES).max(1), Relaxed);
        self.began_ns.store(now.max(1), Relaxed);
    }

    /// It is durable.
    pub(crate) fn end(&self, now: u64) {
        let began = self.began_ns.load(Relaxed);
        let took = now.saturating_sub(began) / self.units.load(Relaxed).max(1);
        let known = self.faded(began);
        let unit = if known == 0 { took } else { known.midpoint(took) };
        self.unit_ns.store(unit.max(1), Relaxed);
        self.ended_ns.store(now, Relaxed);
        self.began_ns.store(0, Relaxed);
    }

    /// What is known of an idle stream at this time.
    fn faded(&self, now: u64) -> u64 {
        let idle = now.saturating_sub(self.ended_ns.load(Relaxed));
        self.unit_ns.load(Relaxed).checked_shr((idle / HALF_LIFE_NS) as u32).unwrap_or(0)
    }

    /// How long the batch under way has taken for each of its units; 0 if none is.
    fn elapsed(&self, now: u64) -> u64 {
        match self.began_ns.load(Relaxed) {
            0 => 0,
            began => now.saturating_sub(began) / self.units.load(Relaxed).max(1),
        }
    }

    /// A unit's time, at least what counts.
    fn usual(&self) -> u64 {
        self.unit_ns.load(Relaxed).max(LEAST_NS)
    }
}

/// A stream for the records to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The stream.
    pub stream: usize,
    /// Its device is much slower than others', which have no room or much before them. Choose again soon.
    pub is_slow: bool,
}

/// What a writer finds that looks for a stream.
pub(crate) struct Outlook {
    /// None if no stream has room.
    pub(crate) choice: Option<Choice>,
    /// Idle streams of whose devices too little is known, or nothing any more: a frame that nothing depends on
    /// tells.
    pub(crate) untried: SmallVec<[usize; 4]>,
}

impl Shared {
    /// Half of a stream's buffer: who finds so much waiting there chooses another stream.
    pub(crate) fn room(&self) -> u64 {
        self.options.buffer_bytes as u64 / 2
    }

    /// Whether a stream's device may be slow, or stand still: only then it is worth the time to compare it
    /// with others.
    pub(crate) fn may_be_slow(&self, stream: usize) -> bool {
        let pace = &self.streams[stream].pace;
        let is_under_way = || pace.began_ns.load(Relaxed) > 0;
        self.streams.len() > 1
            && (pace.unit_ns.load(Relaxed) > LEAST_NS
                || is_under_way() && pace.elapsed(clock::monotonic_ns()) > LEAST_NS)
    }

    /// The stream in which a record would be durable first, of those that have room. One whose device is not
    /// known yet comes behind all others, unless `unknown`. Of streams that are about as good, the next in
    /// turn from `first` on, so that sessions which look at the same time go different ways. `stays` is a
    /// stream that is left only for one at least twice as good.
    pub(crate) fn quickest(&self, first: usize, stays: Option<usize>, unknown: bool) -> Outlook {
        let now = clock::monotonic_ns();
        let unknown = unknown || self.options.stepped;
        let pace = |stream: usize| &*self.streams[stream].pace;
        let is_known = |stream: usize| unknown || pace(stream).unit_ns.load(Relaxed) > 0;
        let n = self.streams.len();
        let known = (0..n).filter(|&stream| pace(stream).unit_ns.load(Relaxed) > 0);
        let fastest = known.map(|stream| pace(stream).usual()).min().unwrap_or(LEAST_NS);
        let times: SmallVec<[Option<u64>; 16]> = (0..n).map(|s| self.time(s, now)).collect();
        let best = |known: bool| {
            let of = (0..n).filter(|&stream| is_known(stream) == known);
            of.filter_map(|stream| times[stream]).min()
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
            let is_told =
                is_known(stream) && (pace.usual() <= fastest || pace.faded(now) > fastest);
            !is_told && times[stream].is_some() && self.streams[stream].backlog(&self.frontier) == 0
        };
        let tries = n > 1 && !self.options.stepped;
        let untried = (0..n).filter(|&stream| tries && is_untried(stream));
        Outlook { choice, untried: untried.collect() }
    }

    /// How long a record would take in this stream; None if there is no room.
    fn time(&self, stream: usize, now: u64) -> Option<u64> {
        let backlog = self.streams[stream].backlog(&self.frontier);
        if backlog >= self.room() {
            return None;
        }
        if mutation::is(Mutation::BacklogInBytes) {
            return Some(backlog + 1);
        }
        let pace = &self.streams[stream].pace;
        if backlog == 0 {
            return Some(pace.usual());
        }
        // Half of the batch under way, what waits behind it, and its own.
        let unit = pace.usual().max(pace.elapsed(now));
        Some((unit + unit / 2).saturating_add(unit.saturating_mul(backlog) / UNIT_BYTES))
    }
}
