//! Replay of commands in the order of their vectors, by the engine's rule
//! (`crates/hyades/src/recovery/wavefront.rs`).
//!
//! A thread takes a stream (`lane` in the engine) and runs the stream's records in order. A record
//! whose vector is above a stream's watermark in any component, including its own stream's, is
//! parked in its stream's window; so are a few records behind it, and, while threads have no work,
//! some runnable records. Any thread runs parked records that lack nothing. A watermark never
//! passes an unresolved record.

use crate::rules::Logged;
use crate::shared::Time;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Records that a thread runs in a stream before looking at the remaining streams.
const QUANTUM: usize = 64;
/// A stream is read no further while this many of its records wait.
const LOOKAHEAD: usize = 8;
/// A runnable record is parked for idle threads only if fewer than this many records wait.
const OFFERED: usize = LOOKAHEAD / 2;
/// The places of a window, in which parked records stay until all records before them were run.
const WINDOW: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Parked {
    Waits,
    Taken,
    Done,
}

#[derive(Default)]
struct ReplayStream {
    /// The stream's records, by their number in the log.
    records: Vec<usize>,
    /// The first record not yet reached by the stream's runner.
    next: usize,
    /// The parked records, from the first unresolved record to the last before `next`.
    window: VecDeque<(usize, Parked)>,
    /// The number of waiting records in the window.
    waiting: usize,
    is_held: bool,
    /// The stream's progress, in bytes of all streams; as of when its last runner left.
    progress: u64,
}

/// The work of a thread.
#[derive(Clone, Copy, Default)]
struct Thread {
    /// The stream that the thread runs, and the remaining number of records.
    holds: Option<(usize, usize)>,
    /// The record that the thread runs: the stream, and whether the record is the stream's next or
    /// from the window.
    runs: Option<(usize, Place)>,
    /// The thread's next event; all other events are obsolete.
    next: Time,
    /// The time when the first record found unread will have been read.
    read_at: Option<Time>,
    /// Whether the thread has found no work, and has not run a stream since.
    is_idle: bool,
    sleeps: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    InTurn,
    Window(usize),
}

struct Front<'l, F> {
    log: &'l [Logged],
    lanes: Vec<ReplayStream>,
    threads: Vec<Thread>,
    lookahead: usize,
    /// The time when the bytes up to a position have been read.
    read_ns: F,
    events: BinaryHeap<Reverse<(Time, usize)>>,
    resolved: usize,
}

/// Replays the log; returns the time in nanoseconds.
pub fn replay(
    log: &[Logged],
    streams: usize,
    threads: usize,
    each: f64,
    read_ns: impl Fn(u64) -> f64,
) -> f64 {
    let mut lanes: Vec<ReplayStream> = (0..streams).map(|_| ReplayStream::default()).collect();
    for (number, record) in log.iter().enumerate() {
        lanes[record.stream].records.push(number);
    }
    let mut front = Front {
        log,
        lanes,
        threads: vec![Thread::default(); threads],
        lookahead: if threads == 1 { 0 } else { LOOKAHEAD },
        read_ns,
        events: (0..threads).map(|thread| Reverse((0, thread))).collect(),
        resolved: 0,
    };
    let mut last = 0;
    while let Some(Reverse((now, thread))) = front.events.pop() {
        if front.threads[thread].next != now {
            continue;
        }
        front.threads[thread].sleeps = false;
        front.threads[thread].read_at = None;
        if let Some((lane, place)) = front.threads[thread].runs.take() {
            front.finish(lane, place);
            last = now;
            front.wake_one(now);
        }
        if front.step(thread, now) {
            front.schedule(thread, now + (each as Time).max(1));
            // There may be more work.
            front.wake_one(now);
        } else {
            front.threads[thread].sleeps = true;
            if let Some(read) = front.threads[thread].read_at {
                front.schedule(thread, read);
            }
        }
    }
    assert_eq!(front.resolved, log.len(), "every record can run once those before it have");
    last as f64
}

impl<F: Fn(u64) -> f64> Front<'_, F> {
    /// The position below which everything in the stream is resolved.
    fn watermark(&self, lane: usize) -> u64 {
        let stream = &self.lanes[lane];
        match stream.window.front() {
            Some((first, _)) => self.log[*first].start,
            // The bytes between two records are no record.
            None => stream.records.get(stream.next).map_or(u64::MAX, |next| self.log[*next].start),
        }
    }

    /// Whether the watermarks cover a record's vector.
    fn may_run(&self, record: usize) -> bool {
        let mut lanes = self.log[record].vector.iter().enumerate();
        lanes.all(|(lane, lsn)| *lsn == 0 || *lsn <= self.watermark(lane))
    }

    fn finish(&mut self, lane: usize, place: Place) {
        let stream = &mut self.lanes[lane];
        match place {
            Place::InTurn => stream.next += 1,
            Place::Window(record) => {
                if let Some(parked) = stream.window.iter_mut().find(|(parked, _)| *parked == record)
                {
                    parked.1 = Parked::Done;
                }
                while stream.window.front().is_some_and(|(_, state)| *state == Parked::Done) {
                    stream.window.pop_front();
                }
            }
        }
        self.resolved += 1;
    }

    /// Wakes a thread that found no work. A thread that finds work then wakes the next thread.
    fn wake_one(&mut self, now: Time) {
        if let Some(thread) = self.threads.iter().position(|thread| thread.sleeps) {
            self.threads[thread].sleeps = false;
            self.schedule(thread, now);
        }
    }

    fn schedule(&mut self, thread: usize, at: Time) {
        self.threads[thread].next = at;
        self.events.push(Reverse((at, thread)));
    }

    /// Finds a record for a thread; false if there is none.
    fn step(&mut self, thread: usize, now: Time) -> bool {
        loop {
            if let Some((lane, left)) = self.threads[thread].holds {
                if left > 0 && self.advance(lane, thread, now) {
                    return true;
                }
                self.release(lane, thread);
            }
            // Streams run by another thread come last: such streams may have parked records.
            let first = thread % self.lanes.len();
            let in_turn = (0..self.lanes.len()).map(|at| (first + at) % self.lanes.len());
            let has_work = |lane: &usize| {
                let stream = &self.lanes[*lane];
                stream.waiting > 0 || stream.next < stream.records.len()
            };
            let mut order: Vec<usize> = in_turn.filter(has_work).collect();
            order.sort_by_key(|lane| (self.lanes[*lane].is_held, self.lanes[*lane].progress));
            let mut parked_some = false;
            for lane in order {
                if self.take(lane, thread) {
                    return true;
                }
                if !self.lanes[lane].is_held {
                    self.lanes[lane].is_held = true;
                    self.threads[thread].holds = Some((lane, QUANTUM));
                    let next = self.lanes[lane].next;
                    if self.advance(lane, thread, now) {
                        return true;
                    }
                    self.release(lane, thread);
                    parked_some |= self.lanes[lane].next > next;
                }
            }
            if !parked_some {
                self.threads[thread].is_idle = true;
                return false;
            }
        }
    }

    fn release(&mut self, lane: usize, thread: usize) {
        // The thread has found work, if it has advanced at all.
        if self.threads[thread].holds.take().is_some_and(|(_, left)| left < QUANTUM) {
            self.threads[thread].is_idle = false;
        }
        let stream = &mut self.lanes[lane];
        stream.is_held = false;
        if let Some(last) = stream.next.checked_sub(1) {
            stream.progress = self.log[stream.records[last]].vector.iter().sum();
        }
    }

    /// Goes on in a stream until there is a record to run; false if the stream cannot continue.
    fn advance(&mut self, lane: usize, thread: usize, now: Time) -> bool {
        while let Some((_, left @ 1..)) = self.threads[thread].holds {
            if self.lookahead > 0 {
                if self.lanes[lane].waiting > self.lookahead / 2 && self.take_any(lane, thread) {
                    return true;
                }
                if self.lanes[lane].waiting >= self.lookahead {
                    return false;
                }
            }
            let stream = &self.lanes[lane];
            let Some(&record) = stream.records.get(stream.next) else { return false };
            let read = (self.read_ns)(self.log[record].end) as Time;
            if read > now {
                let first = &mut self.threads[thread].read_at;
                *first = Some(first.map_or(read, |first| first.min(read)));
                return false;
            }
            let idle = self.threads.iter().any(|thread| thread.is_idle);
            let offers = self.lookahead > 0 && idle;
            let is_offered = offers && stream.waiting < OFFERED && stream.window.len() < WINDOW;
            let in_turn = !is_offered && (stream.waiting == 0 || offers);
            if in_turn && self.may_run(record) {
                // The record needs no place in the window, even if the window is full.
                self.threads[thread].runs = Some((lane, Place::InTurn));
                self.threads[thread].holds = Some((lane, left - 1));
                return true;
            }
            if self.lookahead == 0 || stream.window.len() >= WINDOW {
                return false;
            }
            let stream = &mut self.lanes[lane];
            stream.window.push_back((record, Parked::Waits));
            (stream.next, stream.waiting) = (stream.next + 1, stream.waiting + 1);
            self.threads[thread].holds = Some((lane, left - 1));
            self.wake_one(now);
        }
        false
    }

    /// Takes a parked record of this stream, or else of another stream.
    fn take_any(&mut self, lane: usize, thread: usize) -> bool {
        let others = (0..self.lanes.len()).filter(|other| *other != lane);
        std::iter::once(lane).chain(others).any(|lane| self.take(lane, thread))
    }

    /// Takes the first parked record of a stream that lacks nothing.
    fn take(&mut self, lane: usize, thread: usize) -> bool {
        if self.lanes[lane].waiting == 0 {
            return false;
        }
        let waits = |(_, state): &&(usize, Parked)| *state == Parked::Waits;
        let parked = self.lanes[lane].window.iter().filter(waits).map(|(record, _)| *record);
        let Some(record) = parked.into_iter().find(|record| self.may_run(*record)) else {
            return false;
        };
        let stream = &mut self.lanes[lane];
        if let Some(parked) = stream.window.iter_mut().find(|(parked, _)| *parked == record) {
            parked.1 = Parked::Taken;
        }
        stream.waiting -= 1;
        self.threads[thread].runs = Some((lane, Place::Window(record)));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of 10 bytes, with the vector to follow.
    fn record(stream: usize, number: u64, vector: [u64; 2]) -> Logged {
        let start = 10 * number;
        Logged { stream, start, end: start + 10, number: 0, vector: vector.into() }
    }

    fn time(log: &[Logged], threads: usize) -> f64 {
        replay(log, 2, threads, 100.0, |_| 0.0)
    }

    #[test]
    fn independent_records_run_in_parallel_and_chains_do_not() {
        let free: Vec<Logged> = (0..64).map(|at| record(at % 2, at as u64 / 2, [0, 0])).collect();
        assert_eq!([time(&free, 1), time(&free, 2)], [6_400.0, 3_200.0]);
        // Each record follows the previous record, which is in the other stream.
        let chain: Vec<Logged> = (0..64)
            .map(|at| {
                let (own, other) = (at as u64 / 2 * 10, (at as u64).div_ceil(2) * 10);
                record(at % 2, at as u64 / 2, if at % 2 == 0 { [own, other] } else { [other, own] })
            })
            .collect();
        assert_eq!([time(&chain, 1), time(&chain, 4)], [6_400.0, 6_400.0]);
    }

    #[test]
    fn a_record_follows_what_its_vector_names_in_its_own_stream() {
        let own = |follows: bool| -> Vec<Logged> {
            (0..64).map(|at| record(0, at, [if follows { 10 * at } else { 0 }, 0])).collect()
        };
        // Idle threads get some of the stream's records.
        assert!(time(&own(false), 4) < 3_300.0, "{}", time(&own(false), 4));
        assert_eq!(time(&own(true), 4), 6_400.0);
    }

    /// The first records of stream 0 follow all of stream 1, a chain; the rest are free.
    fn blocked(records: u64) -> f64 {
        let mut log: Vec<Logged> = (0..records).map(|at| record(0, at, [0, 2_000])).collect();
        log.extend((records..200).map(|at| record(0, at, [0, 0])));
        log.extend((0..200).map(|at| record(1, at, [0, 10 * at])));
        time(&log, 2)
    }

    #[test]
    fn a_stream_is_read_no_further_while_eight_of_its_records_wait() {
        // One thread runs the records behind the seven while the second thread runs the chain.
        assert!(blocked(7) < 21_500.0, "{}", blocked(7));
        assert!(blocked(8) > 29_000.0, "{}", blocked(8));
    }

    #[test]
    fn what_is_not_read_cannot_run() {
        let log: Vec<Logged> = (0..10).map(|at| record(0, at, [0, 0])).collect();
        let slow = replay(&log, 2, 2, 1.0, |position| position as f64 * 50.0);
        assert_eq!(slow, 100.0 * 50.0 + 1.0);
    }
}
