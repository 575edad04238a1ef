//! The forward run: workers execute, streams flush, transactions are acknowledged.

use crate::costs::{Costs, SchemeCosts};
use crate::machine::{MAX_STREAMS, Machine};
use crate::rules::{Frontier, Need, Protocol, Rows, Vector};
use fastrand::Rng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Nanoseconds of simulated time.
type Time = u64;

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct RunResult {
    /// Transactions acknowledged within the measured time.
    pub acknowledged: u64,
    /// The measured time in seconds.
    pub seconds: f64,
    /// Latencies of these transactions in nanoseconds.
    pub latencies: Vec<u64>,
    /// Bytes written to devices within the measured time.
    pub bytes: f64,
    /// The share of worker time spent waiting for shared cache lines.
    pub line_share: f64,
    /// The log, for replay: records in the order of their creation.
    pub log: Vec<Logged>,
}

/// A record of the log.
#[derive(Clone, Debug)]
pub struct Logged {
    /// Its stream.
    pub stream: usize,
    /// Its end in the stream.
    pub end: u64,
    /// Its LSN vector; `None` unless the protocol has vectors.
    pub vector: Option<Box<Vector>>,
}

/// Maximum number of records that are kept for replay.
const KEPT: usize = 200_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Epoch,
    Flushed(usize),
    Flush(usize),
    Worker(usize),
}

/// A cache line that one core owns at a time.
#[derive(Clone, Copy, Default)]
struct Line {
    free: Time,
    owner: Option<usize>,
}

#[derive(Default)]
struct Stream {
    /// Bytes appended.
    end: f64,
    /// The number of the last append.
    number: u64,
    /// The end of the write in progress, and the watermark that it will confirm.
    in_progress: Option<(f64, u64)>,
    /// A flush is scheduled.
    flush_scheduled: bool,
    /// Workers that wait for buffer space.
    blocked: Vec<usize>,
}

struct Waiting {
    /// The position or number that its stream has to reach first.
    until: u64,
    need: Need,
    started: Time,
    worker: usize,
}

/// Reversed, so that a heap yields the least `until` first.
impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.until, other.started, other.worker).cmp(&(self.until, self.started, self.worker))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}

struct Model<'a> {
    protocol: Protocol,
    costs: SchemeCosts,
    line_ns: f64,
    work_ns: f64,
    machine: &'a Machine,
    rng: Rng,
    events: BinaryHeap<Reverse<(Time, Event)>>,
    rows: Rows,
    lines: Vec<Line>,
    streams: Vec<Stream>,
    /// When each device is free.
    devices: Vec<Time>,
    frontier: Frontier,
    epoch: u64,
    waiting: Vec<BinaryHeap<Waiting>>,
    in_flight: Vec<usize>,
    /// Whether a worker has too many transactions in flight.
    full: Vec<bool>,
    begin: Time,
    line_wait: f64,
    commands: bool,
    ran: RunResult,
}

/// Runs the model; `None` if the costs lack this scheme.
pub fn run(
    costs: &Costs,
    protocol: Protocol,
    words: (&str, &str),
    machine: &Machine,
) -> Option<RunResult> {
    let own = costs.scheme(words.0, words.1)?;
    let streams = match protocol {
        Protocol::None | Protocol::Serial => 1,
        _ => machine.streams.clamp(1, MAX_STREAMS),
    };
    // A single worker has its core to itself; several share memory and caches.
    let slowdown = if machine.workers > 1 { costs.slowdown } else { 1.0 };
    let measured = (machine.seconds * 1e9) as Time;
    let mut model = Model {
        protocol,
        costs: own,
        line_ns: costs.line_ns,
        work_ns: own.worker_ns * slowdown,
        machine,
        rng: Rng::with_seed(machine.seed),
        events: BinaryHeap::new(),
        rows: Rows::new(protocol, machine.rows),
        lines: vec![Line::default(); streams],
        streams: (0..streams).map(|_| Stream::default()).collect(),
        devices: vec![0; machine.devices.max(1)],
        frontier: Frontier { streams, positions: [0; MAX_STREAMS], marks: [0; MAX_STREAMS] },
        epoch: 1,
        waiting: (0..streams).map(|_| BinaryHeap::new()).collect(),
        in_flight: vec![0; machine.workers],
        full: vec![false; machine.workers],
        begin: measured / 2,
        line_wait: 0.0,
        commands: words.1 == "command",
        ran: RunResult { seconds: machine.seconds, ..RunResult::default() },
    };
    model.simulate(measured / 2 + measured);
    let all = machine.workers as f64 * 1.5 * measured as f64;
    model.ran.line_share = model.line_wait / all;
    Some(model.ran)
}

impl Model<'_> {
    fn simulate(&mut self, end: Time) {
        for worker in 0..self.machine.workers {
            // Random starts, so that workers are not in step.
            let at = self.rng.u64(0..=self.work_ns as u64);
            self.events.push(Reverse((at, Event::Worker(worker))));
        }
        if self.protocol == Protocol::SiloR {
            self.events.push(Reverse(((self.machine.epoch * 1e9) as Time, Event::Epoch)));
        }
        while let Some(Reverse((now, event))) = self.events.pop() {
            if now >= end {
                return;
            }
            match event {
                Event::Worker(worker) => self.transaction(worker, now),
                Event::Flush(stream) => self.flush(stream, now),
                Event::Flushed(stream) => self.flushed(stream, now),
                Event::Epoch => {
                    self.epoch += 1;
                    let next = now + (self.machine.epoch * 1e9) as Time;
                    self.events.push(Reverse((next, Event::Epoch)));
                    // Idle streams flush too, to state their watermark.
                    (0..self.streams.len()).for_each(|stream| self.arm(stream, now));
                }
            }
        }
    }

    /// Transfers a cache line to a worker at `now`; returns when the worker goes on.
    fn take(&mut self, line: usize, worker: usize, now: Time) -> Time {
        let line = &mut self.lines[line];
        let own = line.owner == Some(worker);
        let from = if own { now } else { line.free.max(now) };
        let cost = if own { 0.0 } else { self.line_ns };
        let until = from + cost as Time;
        *line = Line { free: until, owner: Some(worker) };
        self.line_wait += (until - now) as f64;
        until
    }

    fn transaction(&mut self, worker: usize, now: Time) {
        if self.in_flight[worker] >= self.machine.in_flight {
            self.full[worker] = true;
            return;
        }
        let streams = self.streams.len();
        let stream = worker % streams;
        if self.streams[stream].end - self.frontier.positions[stream] as f64 >= self.machine.buffer
        {
            self.streams[stream].blocked.push(worker);
            return;
        }
        let rows = [self.rng.u32(0..self.machine.rows), self.rng.u32(0..self.machine.rows)];
        let writes = [self.rng.bool(), self.rng.bool()];
        // Work varies; a fixed length would keep workers in step.
        let work = self.work_ns * (0.5 + self.rng.f64());
        let mut at = now + work as Time;
        let need = if self.protocol == Protocol::None {
            Need::Nothing
        } else {
            at = self.number_lines(stream, rows, writes, worker, at);
            self.log(stream, rows, writes)
        };
        self.in_flight[worker] += 1;
        self.park(Waiting { until: 0, need, started: now, worker }, at);
        self.events.push(Reverse((at, Event::Worker(worker))));
    }

    /// Transfers the shared cache lines of the step that orders the transaction; returns when the
    /// worker goes on.
    fn number_lines(
        &mut self,
        stream: usize,
        rows: [u32; 2],
        writes: [bool; 2],
        worker: usize,
        now: Time,
    ) -> Time {
        if self.protocol == Protocol::Plover {
            // The counters of all touched partitions, in order.
            let mut touched = rows.map(|row| row as usize % self.streams.len());
            touched.sort_unstable();
            let first = self.take(touched[0], worker, now);
            return if touched[1] == touched[0] {
                first
            } else {
                self.take(touched[1], worker, first)
            };
        }
        // A read-only transaction appends nothing.
        if writes == [false; 2] { now } else { self.take(stream, worker, now) }
    }

    /// Bytes logged for a transaction that wrote this many rows: images for each row (one on
    /// average), commands for each transaction that writes (three in four).
    fn record_bytes(&self, written: f64) -> f64 {
        match self.commands {
            true if written > 0.0 => self.costs.bytes / 0.75,
            true => 0.0,
            false => self.costs.bytes * written,
        }
    }

    /// Applies the protocol's stamps and appends the record; returns what the transaction waits
    /// for.
    fn log(&mut self, stream: usize, rows: [u32; 2], writes: [bool; 2]) -> Need {
        let written = writes.iter().filter(|w| **w).count() as f64;
        let bytes = self.record_bytes(written);
        let end = |model: &mut Self, stream: usize, bytes: f64| {
            model.streams[stream].end += bytes;
            model.streams[stream].end.ceil() as u64
        };
        let updates = written > 0.0;
        let need = match self.protocol {
            Protocol::None => Need::Nothing,
            Protocol::Serial => Need::Position(0, end(self, 0, bytes)),
            Protocol::Taurus => {
                let mut vector = [0; MAX_STREAMS];
                rows.iter().for_each(|row| self.rows.fold(*row, &mut vector));
                if updates {
                    vector[stream] = vector[stream].max(end(self, stream, bytes));
                    for (row, write) in rows.iter().zip(writes) {
                        // Only command logging leaves read stamps.
                        if write || self.commands {
                            self.rows.publish(*row, &vector);
                        }
                    }
                }
                Need::Positions(Box::new(vector))
            }
            Protocol::SiloR => {
                end(self, stream, bytes);
                Need::AllMarks(self.epoch)
            }
            Protocol::Plover => {
                let touched = rows.map(|row| row as usize % self.streams.len());
                let number =
                    1 + touched.map(|t| self.streams[t].number).into_iter().max().unwrap_or(0);
                for (partition, write) in touched.into_iter().zip(writes) {
                    self.streams[partition].number = number;
                    if write {
                        end(self, partition, bytes / written);
                    }
                }
                Need::Marks((1 << touched[0]) | (1 << touched[1]), number)
            }
            Protocol::Poplar | Protocol::Gsn => {
                let reads_count = self.protocol == Protocol::Gsn;
                let seen = rows.map(|row| self.rows.number(row)).into_iter().max().unwrap_or(0);
                end(self, stream, bytes);
                let number = if updates { seen.max(self.streams[stream].number) + 1 } else { seen };
                if updates {
                    self.streams[stream].number = number;
                }
                for (row, write) in rows.iter().zip(writes) {
                    if write || reads_count {
                        self.rows.raise(*row, number);
                    }
                }
                if writes == [true; 2] && !reads_count {
                    // A blind write: its own stream is enough.
                    Need::Marks(1 << stream, number)
                } else {
                    Need::AllMarks(number)
                }
            }
        };
        self.keep(stream, updates, &need);
        need
    }

    fn keep(&mut self, stream: usize, updates: bool, need: &Need) {
        if updates && self.ran.log.len() < KEPT {
            let vector = match need {
                Need::Positions(vector) => Some(vector.clone()),
                _ => None,
            };
            let end = self.streams[stream].end.ceil() as u64;
            self.ran.log.push(Logged { stream, end, vector });
        }
    }

    /// Acknowledges the transaction, or queues it at a stream that lacks something and has that
    /// stream flushed.
    fn park(&mut self, mut waiting: Waiting, now: Time) {
        match self.frontier.lacking(&waiting.need) {
            None => self.answer(&waiting, now),
            Some((stream, until)) => {
                waiting.until = until;
                self.waiting[stream].push(waiting);
                self.arm(stream, now);
            }
        }
    }

    fn answer(&mut self, waiting: &Waiting, now: Time) {
        self.in_flight[waiting.worker] -= 1;
        if now >= self.begin {
            self.ran.acknowledged += 1;
            self.ran.latencies.push(now - waiting.started);
        }
        if std::mem::take(&mut self.full[waiting.worker]) {
            self.events.push(Reverse((now, Event::Worker(waiting.worker))));
        }
    }

    /// Whether a flush would advance the frontier.
    fn has_unflushed(&self, stream: usize) -> bool {
        let own = &self.streams[stream];
        let mark = match self.protocol {
            Protocol::SiloR => self.epoch - 1,
            Protocol::Poplar | Protocol::Gsn => self.highest(),
            _ => own.number,
        };
        own.end > self.frontier.positions[stream] as f64 || mark > self.frontier.marks[stream]
    }

    /// The highest number that any stream has assigned.
    fn highest(&self) -> u64 {
        self.streams.iter().map(|stream| stream.number).max().unwrap_or(0)
    }

    /// Schedules a flush of a stream after the flush interval, if there is anything new to flush
    /// and no flush is scheduled or in progress.
    fn arm(&mut self, stream: usize, now: Time) {
        if !self.has_unflushed(stream) {
            return;
        }
        let own = &mut self.streams[stream];
        if own.in_progress.is_none() && !own.flush_scheduled {
            own.flush_scheduled = true;
            let at = now + (self.machine.flush_interval * 1e9) as Time;
            self.events.push(Reverse((at, Event::Flush(stream))));
        }
    }

    fn flush(&mut self, stream: usize, now: Time) {
        let highest = self.highest();
        let durable = self.frontier.positions[stream] as f64;
        let epoch = self.epoch;
        let numbered = matches!(self.protocol, Protocol::Poplar | Protocol::Gsn);
        let own = &mut self.streams[stream];
        own.flush_scheduled = false;
        if numbered {
            // A heartbeat: later records of this stream have numbers above all assigned so far.
            own.number = own.number.max(highest);
        }
        let mark = if self.protocol == Protocol::SiloR { epoch - 1 } else { own.number };
        own.in_progress = Some((own.end, mark));
        let bytes = (own.end - durable).max(0.0);
        let device = stream % self.devices.len();
        let free = &mut self.devices[device];
        // Transfers are sequential; the latency of one write overlaps with other transfers.
        let passed = (*free).max(now) + (bytes / self.machine.bandwidth * 1e9) as Time;
        *free = passed;
        let done = passed + (self.machine.latency * 1e9) as Time;
        self.events.push(Reverse((done.max(now + 1), Event::Flushed(stream))));
        if now >= self.begin {
            self.ran.bytes += bytes;
        }
    }

    fn flushed(&mut self, stream: usize, now: Time) {
        let own = &mut self.streams[stream];
        let Some((end, mark)) = own.in_progress.take() else { return };
        let blocked = std::mem::take(&mut own.blocked);
        self.frontier.positions[stream] = end.ceil() as u64;
        self.frontier.marks[stream] = self.frontier.marks[stream].max(mark);
        for worker in blocked {
            self.events.push(Reverse((now, Event::Worker(worker))));
        }
        // A protocol waits for positions or for numbers, never for both.
        let frontier = &self.frontier;
        let reached = match self.protocol {
            Protocol::Serial | Protocol::Taurus | Protocol::None => frontier.positions[stream],
            _ => frontier.marks[stream],
        };
        while self.waiting[stream].peek().is_some_and(|waiting| waiting.until <= reached) {
            if let Some(waiting) = self.waiting[stream].pop() {
                self.park(waiting, now);
            }
        }
        if !self.waiting[stream].is_empty() {
            self.arm(stream, now);
        }
    }
}
