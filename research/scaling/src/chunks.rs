//! Replay of row images in any order, by the engine's rule
//! (`crates/hyades/src/recovery/last_writer_wins.rs`).
//!
//! A thread takes the stream with the oldest next chunk among the free streams, reads ahead in the
//! stream while it holds the stream, and leaves with a chunk, of which it decodes and applies all
//! records. Versions of rows decide, so no record waits for another; but rows move between cores,
//! and images pass through memory.

use crate::costs::CACHED_ROWS;
use crate::rules::Logged;
use crate::shared::{Caches, Lock, Time};
use crate::usage::{OWN_WORK, Usage, share};
use crate::wavefront::Timing;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// Bytes of a chunk.
const CHUNK: u64 = 512 << 10;
/// Chunks read ahead of each stream.
const AHEAD: usize = 2;
/// Copies of a record's bytes: into the chunk, and into the rows.
const COPIES: u64 = 2;
/// The chunks of each thread for which the log is repeated, so that its end does not count.
const EACH: usize = 16;
/// Records applied between two events of a thread.
const STRETCH: usize = 16;

/// Chunks of a stream, as ranges of its records; each ends at a position on the device.
#[derive(Default)]
struct Source {
    records: Vec<usize>,
    chunks: Vec<Range<usize>>,
    /// The chunks handed out, over all repetitions of the log.
    next: usize,
    /// The chunks read.
    read: usize,
    lock: Lock,
    free: Time,
}

struct Readers<'l, F> {
    log: &'l [Logged],
    timing: Timing,
    sources: Vec<Source>,
    rows: Caches,
    /// Nanoseconds for each byte through memory.
    memory_ns: f64,
    /// The time when memory has moved what was asked for.
    moved: f64,
    memory_busy: f64,
    rounds: usize,
    read_ns: F,
    spent: [Time; 4],
}

const ACTIVITIES: [&str; 4] =
    ["applying records", "reading and decoding", "rows of other threads", "memory"];

/// Replays the log, repeated so that all threads have work; returns the records per second until
/// the first thread finds none, and where time goes.
pub(crate) fn replay(
    log: &[Logged],
    streams: usize,
    threads: usize,
    timing: Timing,
    (memory_ns, read_ns): (f64, impl Fn(u64) -> f64),
) -> (f64, Usage) {
    let mut sources: Vec<Source> = (0..streams).map(|_| Source::default()).collect();
    for (number, record) in log.iter().enumerate() {
        sources[record.stream].records.push(number);
    }
    sources.iter_mut().for_each(|source| source.cut(log));
    let chunks: usize = sources.iter().map(|source| source.chunks.len()).sum();
    let mut readers = Readers {
        log,
        timing,
        sources,
        rows: Caches::new(CACHED_ROWS, 0.0, timing.row),
        memory_ns,
        moved: 0.0,
        memory_busy: 0.0,
        rounds: (EACH * threads).div_ceil(chunks.max(1)),
        read_ns,
        spent: [0; 4],
    };
    readers.run(threads)
}

impl Source {
    /// Cuts the stream into chunks.
    fn cut(&mut self, log: &[Logged]) {
        let mut first = 0;
        for at in 0..self.records.len() {
            let bytes = log[self.records[at]].end - log[self.records[first]].start;
            if bytes >= CHUNK || at + 1 == self.records.len() {
                self.chunks.push(first..at + 1);
                first = at + 1;
            }
        }
    }

    /// The number of a chunk within the log, and of the repetition.
    fn place(&self, chunk: usize) -> (usize, usize) {
        (chunk % self.chunks.len(), chunk / self.chunks.len())
    }
}

/// A thread's chunk: the stream, and the records left.
type Work = Option<(usize, Range<usize>)>;

impl<F: Fn(u64) -> f64> Readers<'_, F> {
    fn run(&mut self, threads: usize) -> (f64, Usage) {
        let mut events: BinaryHeap<Reverse<(Time, usize)>> =
            (0..threads).map(|thread| Reverse((0, thread))).collect();
        let mut work: Vec<Work> = vec![None; threads];
        let (mut applied, mut last) = (0_u64, 0);
        while let Some(Reverse((now, thread))) = events.pop() {
            last = now;
            let own = work[thread].take().filter(|(_, left)| !left.is_empty());
            let next = match own {
                Some((stream, mut left)) => {
                    let stretch = left.start..left.end.min(left.start + STRETCH);
                    left.start = stretch.end;
                    applied += stretch.len() as u64;
                    work[thread] = Some((stream, left));
                    self.apply(stream, stretch, thread, now)
                }
                None => match self.hand_out(thread, now) {
                    Some((until, chunk)) => {
                        work[thread] = chunk;
                        until
                    }
                    None => break,
                },
            };
            events.push(Reverse((next, thread)));
        }
        let whole = last as f64;
        let all = whole * threads as f64;
        let parts = ACTIVITIES.iter().zip(self.spent).map(|(what, spent)| share(what, spent, all));
        let lock = self.sources.iter().map(|source| source.lock.busy()).max().unwrap_or(0);
        let device = self.sources.iter().map(|source| self.device_ns(source, source.next)).max();
        let resources = vec![
            share(OWN_WORK, self.spent[0] + self.spent[1], all),
            share("the one reader of a stream", lock, whole),
            share("a row that moves between cores", self.rows.busiest(), whole),
            share("memory", self.memory_busy as Time, whole),
            share("a device", device.unwrap_or(0), whole),
        ];
        (applied as f64 / whole.max(1.0) * 1e9, Usage { threads: parts.collect(), resources })
    }

    /// The time when the device has read this number of chunks of a stream.
    fn device_ns(&self, source: &Source, chunks: usize) -> Time {
        let Some(last) = chunks.checked_sub(1).filter(|_| !source.chunks.is_empty()) else {
            return 0;
        };
        let end = |at: usize| self.log[source.records[source.chunks[at].end - 1]].end;
        let (at, round) = source.place(last);
        let whole = end(source.chunks.len() - 1);
        (self.read_ns)(round as u64 * whole + end(at)) as Time
    }

    /// Takes a chunk of the stream furthest behind among the free streams, and reads ahead; or
    /// waits until a stream is free. `None` if no chunk is left.
    fn hand_out(&mut self, thread: usize, now: Time) -> Option<(Time, Work)> {
        let left = |source: &&Source| source.next < source.chunks.len() * self.rounds;
        let free = self.sources.iter().filter(left).map(|source| source.free).min()?;
        if free > now {
            return Some((free + self.timing.wake, None));
        }
        let age = |source: &Source| {
            let (at, round) = source.place(source.next);
            (round, source.records[source.chunks[at].start])
        };
        let is_free = |at: &usize| left(&&self.sources[*at]) && self.sources[*at].free <= now;
        let stream =
            (0..self.sources.len()).filter(is_free).min_by_key(|at| age(&self.sources[*at]))?;
        let source = &self.sources[stream];
        let chunk = source.next;
        let last = source.chunks.len() * self.rounds;
        let ahead = (chunk + 1 + AHEAD).min(last);
        let arrived = self.device_ns(source, ahead);
        let read = (source.read..ahead).map(|chunk| source.chunks[source.place(chunk).0].len());
        let inside = read.sum::<usize>() as Time * self.timing.read;
        let range = source.chunks[source.place(chunk).0].clone();
        let waited = arrived.saturating_sub(now + inside);
        let source = &mut self.sources[stream];
        let (lock, line) = (self.timing.lock, self.timing.line);
        let until = source.lock.hold(thread, (now, now), line, lock + inside + waited);
        (source.next, source.read, source.free) = (chunk + 1, ahead, until);
        self.spent[1] += inside;
        Some((until, Some((stream, range))))
    }

    /// Decodes and applies records of a chunk; returns the end.
    fn apply(&mut self, stream: usize, stretch: Range<usize>, thread: usize, now: Time) -> Time {
        let (mut at, mut bytes) = (now, 0);
        for place in stretch {
            let record = &self.log[self.sources[stream].records[place]];
            bytes += COPIES * (record.end - record.start);
            let hot = record.accesses.iter().flatten().filter(|access| access.row < CACHED_ROWS);
            let before = at;
            for access in hot {
                at = self.rows.reach(access.row, true, thread, (now, at));
            }
            self.spent[2] += at - before;
            self.spent[0] += self.timing.run;
            self.spent[1] += self.timing.decode;
            at += self.timing.run + self.timing.decode;
        }
        let moves = bytes as f64 * self.memory_ns;
        self.memory_busy += moves;
        self.moved = self.moved.max(now as f64) + moves;
        let until = at.max(self.moved as Time);
        self.spent[3] += until - at;
        until
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Access;

    /// Records of a kilobyte in two streams, each with a row of its own.
    fn log() -> Vec<Logged> {
        let record = |at: u64| {
            let start = at / 2 * 1_000;
            let access = Access { row: 2_000 + at as u32, write: true };
            Logged {
                stream: at as usize % 2,
                start,
                end: start + 1_000,
                number: 0,
                vector: Vec::new(),
                accesses: [Some(access), None],
            }
        };
        (0..20_000).map(record).collect()
    }

    const TIMING: Timing = Timing {
        run: 600,
        read: 150,
        decode: 250,
        copy: 0,
        line: 0,
        further: 0,
        lock: 0,
        wake: 0,
        notify: 0,
        polls: 0,
        row: 0.0,
    };

    fn first(threads: usize, memory_ns: f64, read_ns: f64) -> (f64, &'static str) {
        let read = |position: u64| position as f64 * read_ns;
        let (rate, usage) = replay(&log(), 2, threads, TIMING, (memory_ns, read));
        (rate, usage.first().unwrap().resource)
    }

    #[test]
    fn chunks_scale_until_a_stream_cannot_be_read_faster() {
        let (alone, named) = first(1, 0.0, 0.0);
        assert!((alone / 1e6 - 1.0).abs() < 0.05, "{alone}");
        assert_eq!(named, OWN_WORK);
        let (four, _) = first(4, 0.0, 0.0);
        assert!(four > 3.5e6, "{four}");
        // Two streams are read in 150 ns a record each.
        let (many, named) = first(64, 0.0, 0.0);
        assert!(many < 2e9 / 150.0 && many > 1e9 / 150.0, "{many}");
        assert_eq!(named, "the one reader of a stream");
    }

    #[test]
    fn memory_and_devices_bind() {
        // Two kilobytes a record at a nanosecond a byte.
        let (rate, named) = first(16, 1.0, 0.0);
        assert!((rate / 5e5 - 1.0).abs() < 0.1, "{rate}");
        assert_eq!(named, "memory");
        // A kilobyte a record, from two devices, at two nanoseconds a byte.
        let (rate, named) = first(16, 0.0, 2.0);
        assert!(rate < 1.15e6, "{rate}");
        assert!(named == "a device" || named == "the one reader of a stream", "{named}");
    }
}
