//! The forward run: workers execute, streams flush, transactions are acknowledged.

use crate::costs::{ACCESSES, Costs, SchemeCosts};
use crate::device::Device;
use crate::machine::Machine;
use crate::order::Order;
use crate::rules::{Access, Committing, Logged, Protocol, Rules};
use crate::shared::{Caches, Lines, Time};
use crate::streams::{MAX_BATCH, Stream};
use crate::usage::{OWN_WORK, Usage, share};
use crate::waiting::{Queue, Waiting};
use fastrand::Rng;
use hyades_wal::{Lane, Needs, first_unmet};
use hyades_workloads::zipf::Zipf;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct RunResult {
    /// Transactions acknowledged within the measured time.
    pub acknowledged: u64,
    /// Transactions that ran again after a conflict, within the measured time.
    pub conflicts: u64,
    /// The measured time in seconds.
    pub seconds: f64,
    /// Latencies of the acknowledged transactions in nanoseconds.
    pub latencies: Vec<u64>,
    /// Bytes written to devices within the measured time.
    pub bytes: f64,
    /// Where the time of the whole run goes, warm-up included.
    pub usage: Usage,
    /// The log, for replay: records in the order of their creation.
    pub log: Vec<Logged>,
}

/// Maximum number of records kept for replay.
const KEPT: usize = 100_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Epoch,
    Flushed(usize),
    Flush(usize),
    Commit(usize),
    Worker(usize),
}

#[derive(Clone, Copy, Debug)]
struct Worker {
    in_flight: usize,
    /// Whether the worker has too many transactions in flight.
    full: bool,
    /// The running transaction, if there is one.
    running: Option<[Access; ACCESSES]>,
    /// The times of the transaction's first and last begin.
    started: Time,
    began: Time,
    /// Since when the worker waits for room in a buffer.
    blocked: Option<Time>,
}

struct Model<'a> {
    protocol: Protocol,
    costs: SchemeCosts,
    work_ns: f64,
    commands: bool,
    machine: &'a Machine,
    rng: Rng,
    zipf: Zipf,
    events: BinaryHeap<Reverse<(Time, Event)>>,
    rules: Rules,
    order: Order,
    caches: Caches,
    /// The lines of the counters that order transactions.
    lines: Lines,
    /// The lines of log buffers between two records, by stream.
    buffers: Lines,
    /// The time of all workers for their transactions alone, and blocked by full buffers.
    worked: Time,
    blocked: Time,
    workers: Vec<Worker>,
    streams: Vec<Stream>,
    devices: Vec<Device>,
    /// The slots of the engine's frontier: positions, watermarks, the common watermark.
    frontier: Vec<u64>,
    /// The highest number that a transaction waits for.
    wanted: u64,
    waiting: Vec<Queue>,
    needs: Needs,
    met: Vec<Waiting>,
    begin: Time,
    records: Vec<Logged>,
    ran: RunResult,
}

/// Runs the model.
///
/// # Errors
/// The machine cannot be simulated, or the costs lack this scheme.
pub fn run(
    costs: &Costs,
    protocol: Protocol,
    words: (&str, &str),
    machine: &Machine,
) -> Result<RunResult, String> {
    machine.check()?;
    let own = costs.scheme(words.0, words.1).ok_or_else(|| {
        format!(
            "the calibration has no costs for {} {}: the build that made it does not have them",
            words.0, words.1
        )
    })?;
    let streams = match protocol {
        Protocol::None | Protocol::Serial => 1,
        _ => machine.streams,
    };
    let commands = words.1 == "command";
    let measured = (machine.seconds * 1e9) as Time;
    let slots = Lane::count(streams);
    let idle =
        Worker { in_flight: 0, full: false, running: None, started: 0, began: 0, blocked: None };
    let device = Device::new(machine.bandwidth, machine.latency, machine.depth);
    let mut model = Model {
        protocol,
        costs: own,
        work_ns: costs.cached_ns(&own) * costs.slowed(&own, machine.workers),
        commands,
        machine,
        rng: Rng::with_seed(machine.seed),
        zipf: Zipf::new(machine.rows.into(), machine.theta),
        events: BinaryHeap::new(),
        rules: Rules::new(protocol, streams, machine.rows, commands, machine.blind_writes),
        order: Order::new(streams, machine.anchor_interval),
        caches: Caches::new(machine.rows, costs.miss_ns, costs.row_ns),
        lines: Lines::new(streams, costs.line_ns),
        buffers: Lines::new(streams, costs.line_ns),
        worked: 0,
        blocked: 0,
        workers: vec![idle; machine.workers],
        streams: (0..streams).map(|_| Stream::default()).collect(),
        devices: vec![device; machine.devices],
        frontier: vec![0; slots],
        wanted: 0,
        waiting: (0..slots).map(|_| Queue::default()).collect(),
        needs: Needs::default(),
        met: Vec::new(),
        begin: measured / 2,
        records: Vec::new(),
        ran: RunResult { seconds: machine.seconds, ..RunResult::default() },
    };
    model.simulate(measured / 2 + measured);
    model.ran.usage = model.usage(1.5 * measured as f64);
    Ok(model.ran)
}

/// Bytes of a record: images for each row (one for each transaction on average), a command whatever
/// it writes (three transactions in four do).
fn image_bytes(rows: usize, unit: f64) -> u64 {
    (rows as f64 * unit).round() as u64
}

fn command_bytes(_: usize, unit: f64) -> u64 {
    (unit / 0.75).round() as u64
}

impl Model<'_> {
    fn usage(&self, whole: f64) -> Usage {
        let all = self.workers.len() as f64 * whole;
        let threads = vec![
            share("transactions", self.worked, all),
            share("counters of streams", self.lines.waited, all),
            share("lines of buffers", self.buffers.waited, all),
            share("rows of other workers", self.caches.waited, all),
            share("full buffers", self.blocked, all),
        ];
        let device = self.devices.iter().map(Device::busy).max().unwrap_or(0);
        let resources = vec![
            share(OWN_WORK, self.worked, all),
            share("the counter of a stream", self.lines.busiest(), whole),
            share("a line of a buffer", self.buffers.busiest(), whole),
            share("a row that moves between cores", self.caches.busiest(), whole),
            share("a device", device, whole),
        ];
        Usage { threads, resources }
    }

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
                Event::Worker(worker) => self.begin(worker, now),
                Event::Commit(worker) => self.commit(worker, now),
                Event::Flush(stream) if self.streams[stream].due == Some(now) => {
                    self.flush(stream, now);
                }
                // The flush was moved.
                Event::Flush(_) => {}
                Event::Flushed(stream) => self.flushed(stream, now),
                Event::Epoch => {
                    self.rules.epoch += 1;
                    let next = now + (self.machine.epoch * 1e9) as Time;
                    self.events.push(Reverse((next, Event::Epoch)));
                    // Idle streams flush too, to state their watermark.
                    (0..self.streams.len()).for_each(|stream| self.arm(stream, now));
                }
            }
        }
    }

    /// The accesses of a new transaction, to different rows.
    fn draw(&mut self) -> [Access; ACCESSES] {
        let access = |rng: &mut Rng| {
            let row = self.zipf.draw(rng) as u32;
            Access { row, write: rng.bool() }
        };
        let first = access(&mut self.rng);
        loop {
            let second = access(&mut self.rng);
            if second.row != first.row {
                return [first, second];
            }
        }
    }

    /// The bytes of a stream that are not durable.
    fn backlog(&self, stream: usize) -> u64 {
        self.order.end(stream) - self.frontier[stream]
    }

    /// The first stream without room that the transaction would write to.
    fn full_stream(&self, worker: usize, accesses: &[Access]) -> Option<usize> {
        if self.protocol == Protocol::None {
            return None;
        }
        let is_full = |stream: &usize| self.backlog(*stream) >= self.machine.buffer / 2;
        let mut written = accesses.iter().filter(|access| access.write);
        match self.protocol {
            Protocol::Plover => written.map(|a| self.rules.partition(a.row)).find(is_full),
            _ => written.next().map(|_| worker % self.streams.len()).filter(is_full),
        }
    }

    /// A worker begins a transaction, or waits.
    fn begin(&mut self, worker: usize, now: Time) {
        if self.workers[worker].in_flight >= self.machine.in_flight {
            self.workers[worker].full = true;
            (0..self.streams.len()).for_each(|stream| self.hurry(stream, now));
            return;
        }
        let accesses = match self.workers[worker].running {
            Some(accesses) => accesses,
            None => {
                self.workers[worker].started = now;
                self.draw()
            }
        };
        self.workers[worker].running = Some(accesses);
        if let Some(stream) = self.full_stream(worker, &accesses) {
            self.streams[stream].blocked.push(worker);
            self.workers[worker].blocked = Some(now);
            self.hurry(stream, now);
            return;
        }
        self.workers[worker].began = now;
        let mut at = now;
        for access in accesses.iter().filter(|access| !access.write) {
            at = self.caches.reach(access.row, false, worker, (now, at));
        }
        // Work varies; a fixed length would keep workers in step.
        let work = self.work_ns * (0.5 + self.rng.f64());
        self.worked += work as Time;
        self.events.push(Reverse((at + work as Time, Event::Commit(worker))));
    }

    /// The transaction validates its reads, is logged and installed, and waits.
    fn commit(&mut self, worker: usize, now: Time) {
        let Worker { running: Some(accesses), started, began, .. } = self.workers[worker] else {
            return;
        };
        let stream = worker % self.streams.len();
        let writes = accesses.iter().any(|access| access.write);
        let mut read = accesses.iter().filter(|access| !access.write);
        let bytes = if self.commands { command_bytes } else { image_bytes };
        let unit = self.costs.bytes;
        if read.any(|access| self.caches.changed_since(access.row, began)) {
            if writes && self.rules.reserves_first() {
                self.order.reserve(stream, bytes(1, unit));
            }
            self.ran.conflicts += u64::from(now >= self.begin);
            self.events.push(Reverse((now, Event::Worker(worker))));
            return;
        }
        let mut at = self.reserve_lines(stream, &accesses, worker, now);
        for access in accesses.iter().filter(|access| access.write) {
            at = self.caches.reach(access.row, true, worker, (now, at));
        }
        for access in accesses.iter().filter(|access| access.write) {
            self.caches.write(access.row, at);
        }
        let txn = Committing { accesses: &accesses, stream, bytes, unit };
        let room = KEPT.saturating_sub(self.ran.log.len());
        self.rules.keeps_vectors = room > 0;
        let mut records = std::mem::take(&mut self.records);
        self.rules.commit(&txn, &mut self.order, &mut self.needs, &mut records);
        for record in &records {
            // The record begins in the line in which the record before ends.
            at = self.buffers.take(record.stream, worker, (now, at));
        }
        records.iter().for_each(|record| self.arm(record.stream, at));
        self.ran.log.extend(records.drain(..).take(room));
        self.records = records;
        let own = &mut self.workers[worker];
        (own.in_flight, own.running) = (own.in_flight + 1, None);
        self.park_new((started, worker), at);
        self.events.push(Reverse((at, Event::Worker(worker))));
    }

    /// Moves the cache lines of the step that orders the transaction; returns when the worker goes
    /// on. Under Plover the lines are the counters of all partitions touched, in order.
    fn reserve_lines(
        &mut self,
        stream: usize,
        accesses: &[Access],
        worker: usize,
        now: Time,
    ) -> Time {
        // A read-only transaction reserves nothing.
        if self.protocol == Protocol::None || !accesses.iter().any(|access| access.write) {
            return now;
        }
        if self.protocol != Protocol::Plover {
            return self.lines.take(stream, worker, (now, now));
        }
        let touched = self.rules.touched(accesses);
        let members = (0..self.streams.len()).filter(|stream| touched & 1 << stream != 0);
        members.fold(now, |at, stream| self.lines.take(stream, worker, (now, at)))
    }

    /// Acknowledges a committed transaction, or parks it.
    fn park_new(&mut self, (started, worker): (Time, usize), now: Time) {
        let mut needs = std::mem::take(&mut self.needs);
        let is_one = needs.iter().nth(1).is_none();
        if is_one {
            match needs.pop() {
                None => self.answer(started, worker, now),
                Some(need) => self.park(need, None, (started, worker), now),
            }
        } else {
            let all: Box<[(Lane, u64)]> = needs.iter().collect();
            while needs.pop().is_some() {}
            self.park_all(all, (started, worker), now);
        }
        self.needs = needs;
    }

    fn park_all(&mut self, all: Box<[(Lane, u64)]>, transaction: (Time, usize), now: Time) {
        let frontier = |lane: Lane| self.frontier[lane.index()];
        match first_unmet(frontier, all.iter().copied()) {
            None => self.answer(transaction.0, transaction.1, now),
            Some(need) => self.park(need, Some(all), transaction, now),
        }
    }

    /// Acknowledges the transaction, or parks it at a slot of the frontier with an unmet need.
    fn park(
        &mut self,
        need: (Lane, u64),
        needs: Option<Box<[(Lane, u64)]>>,
        (started, worker): (Time, usize),
        now: Time,
    ) {
        let frontier = |lane: Lane| self.frontier[lane.index()];
        let Some((lane, until)) = first_unmet(frontier, [need]) else {
            return self.answer(started, worker, now);
        };
        self.waiting[lane.index()].push(Waiting { until, needs, started, worker });
        let streams = self.streams.len();
        if lane == Lane::common(streams) && until > self.wanted {
            self.wanted = until;
            (0..streams).for_each(|stream| self.arm(stream, now));
        }
    }

    fn answer(&mut self, started: Time, worker: usize, now: Time) {
        self.workers[worker].in_flight -= 1;
        if now >= self.begin {
            self.ran.acknowledged += 1;
            self.ran.latencies.push(now - started);
        }
        if std::mem::take(&mut self.workers[worker].full) {
            self.events.push(Reverse((now, Event::Worker(worker))));
        }
    }

    /// A thread waits for the stream: the stream is flushed as soon as its device is free.
    fn hurry(&mut self, stream: usize, now: Time) {
        self.streams[stream].hurried = true;
        self.arm(stream, now);
    }

    /// Whether a flush would raise the frontier.
    fn has_unflushed(&self, stream: usize) -> bool {
        let stated = self.streams[stream].stated;
        let can_state = match self.protocol {
            Protocol::SiloR => self.rules.epoch - 1 > stated,
            _ => self.protocol.has_marks(),
        };
        self.backlog(stream) > 0 || (can_state && self.wanted > stated)
    }

    /// Schedules a flush of a stream, if there is anything to flush and no flush is in progress.
    fn arm(&mut self, stream: usize, now: Time) {
        if self.streams[stream].in_progress.is_some() || !self.has_unflushed(stream) {
            return;
        }
        let interval = (self.machine.flush_interval * 1e9) as Time;
        let (backlog, room) = (self.backlog(stream), self.machine.buffer / 2);
        let own = &mut self.streams[stream];
        let at = own.flushes_at(now, backlog, room, interval);
        if own.due.is_none_or(|due| at < due) {
            own.due = Some(at);
            self.events.push(Reverse((at, Event::Flush(stream))));
        }
    }

    fn flush(&mut self, stream: usize, now: Time) {
        let own = &mut self.streams[stream];
        // Along with other work, or because a transaction waits for the watermark.
        if self.protocol.has_marks() {
            let mark = self.rules.mark(stream, self.wanted);
            if mark > own.stated {
                own.heartbeats.push_back((self.order.heartbeat(stream), mark));
                own.stated = mark;
            }
        }
        let backlog = self.order.end(stream) - self.frontier[stream];
        let bytes = backlog.min(MAX_BATCH);
        own.in_progress = Some(self.frontier[stream] + bytes);
        let written = own.begin(now, bytes);
        let device = stream % self.devices.len();
        let done = self.devices[device].admit(now, written);
        self.events.push(Reverse((done.max(now + 1), Event::Flushed(stream))));
        if now >= self.begin {
            self.ran.bytes += written as f64;
        }
    }

    fn flushed(&mut self, stream: usize, now: Time) {
        let Some((to, mark)) = self.streams[stream].end(now) else { return };
        let streams = self.streams.len();
        self.frontier[stream] = to;
        self.order.housekeep(&self.frontier[..streams]);
        for worker in std::mem::take(&mut self.streams[stream].blocked) {
            let since = self.workers[worker].blocked.take().unwrap_or(now);
            self.blocked += now - since;
            self.events.push(Reverse((now, Event::Worker(worker))));
        }
        self.wake(Lane::position(stream), now);
        if let Some(mark) = mark {
            self.frontier[Lane::mark(stream, streams).index()] = mark;
            let marks = &self.frontier[streams..2 * streams];
            let common = marks.iter().copied().min().unwrap_or(0);
            self.frontier[Lane::common(streams).index()] = common;
            self.wake(Lane::common(streams), now);
        }
        self.arm(stream, now);
    }

    /// Transactions with a met need in a slot go on: they are acknowledged, or wait for more.
    fn wake(&mut self, lane: Lane, now: Time) {
        let mut met = std::mem::take(&mut self.met);
        self.waiting[lane.index()].take_up_to(self.frontier[lane.index()], &mut met);
        for Waiting { needs, started, worker, .. } in met.drain(..) {
            match needs {
                None => self.answer(started, worker, now),
                Some(needs) => self.park_all(needs, (started, worker), now),
            }
        }
        self.met = met;
    }
}
