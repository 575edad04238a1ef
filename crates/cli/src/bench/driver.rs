//! The driver: workers with many transactions in flight, each counted when it is acknowledged.

use crate::bench::timeline::{self, Look, TICK_NS, Ticks, Timeline};
use crate::progress::Bar;
use crate::units;
use fastrand::Rng;
use hdrhistogram::Histogram;
use hyades::{Abort, CommitQueue, Database, Error, Session, Stats};
use hyades_platform::clock::{monotonic_ns, thread_cpu_ns};
use hyades_workloads::Workload;
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A worker looks for acknowledgements after so many transactions at most.
const DRAIN_EVERY: usize = 16;
/// The longest nap of a worker that waits for its next scheduled start.
const NAP: Duration = Duration::from_micros(50);

/// How to drive.
#[derive(Clone, Debug)]
pub struct Drive {
    /// Worker threads.
    pub workers: usize,
    /// Transactions per worker awaiting acknowledgement.
    pub in_flight: usize,
    /// Offered load per second over all workers; as fast as possible if none.
    pub rate: Option<f64>,
    /// Seconds before the measured interval.
    pub warmup: f64,
    /// The measured interval in seconds.
    pub seconds: f64,
    /// The seed of the inputs.
    pub seed: u64,
    /// Whether the workers' processor time is wanted.
    pub processor_time: bool,
    /// Where to look what is on disk while it runs, if the run is wanted over time.
    pub timeline: Option<Vec<PathBuf>>,
}

/// What came of it.
pub struct Measured {
    /// The measured interval in seconds.
    pub seconds: f64,
    /// Transactions acknowledged within the interval.
    pub acknowledged: u64,
    /// Rollbacks among them.
    pub rollbacks: u64,
    /// Attempts within the interval that met a conflict.
    pub conflicts: u64,
    /// Nanoseconds from the first attempt, or the scheduled start, to the acknowledgement.
    pub latency: Histogram<u64>,
    /// The longest of these.
    pub latency_max_ns: u64,
    /// Bytes of frames made durable within the interval.
    pub log_bytes: u64,
    /// Bytes written to the devices within the interval.
    pub device_bytes: u64,
    /// Nanoseconds of processor time that workers took within the interval, if that was wanted.
    pub worker_cpu_ns: Option<u64>,
    /// The run over time, if that was wanted.
    pub timeline: Option<Timeline>,
}

/// A transaction on its way to its acknowledgement.
#[derive(Clone, Copy)]
struct Started {
    at_ns: u64,
    rolled_back: bool,
}

struct Tally {
    acknowledged: u64,
    rollbacks: u64,
    conflicts: u64,
    latency: Histogram<u64>,
    latency_max_ns: u64,
    cpu_ns: u64,
    ticks: Option<Ticks>,
}

impl Tally {
    fn new(over_time: bool) -> Self {
        let mut latency = Histogram::new(3).expect("three digits are within what it takes");
        latency.auto(true);
        let ticks = over_time.then(Ticks::default);
        Tally {
            acknowledged: 0,
            rollbacks: 0,
            conflicts: 0,
            latency,
            latency_max_ns: 0,
            cpu_ns: 0,
            ticks,
        }
    }

    #[inline]
    fn count(&mut self, started: Started, now: u64, begin: u64) {
        let ns = now.saturating_sub(started.at_ns);
        self.acknowledged += 1;
        self.rollbacks += u64::from(started.rolled_back);
        self.latency_max_ns = self.latency_max_ns.max(ns);
        self.latency.record(ns.max(1)).expect("it grows with what is recorded");
        if let Some(ticks) = &mut self.ticks {
            ticks.count(now - begin, ns);
        }
    }

    fn add(&mut self, other: &Tally) {
        self.acknowledged += other.acknowledged;
        self.rollbacks += other.rollbacks;
        self.conflicts += other.conflicts;
        self.cpu_ns += other.cpu_ns;
        self.latency_max_ns = self.latency_max_ns.max(other.latency_max_ns);
        self.latency.add(&other.latency).expect("both have the same precision and resize");
        if let (Some(ticks), Some(more)) = (&mut self.ticks, &other.ticks) {
            ticks.add(more);
        }
    }
}

/// The measured interval, in nanoseconds of the monotonic clock.
#[derive(Clone, Copy)]
struct Interval {
    start: u64,
    begin: u64,
    end: u64,
}

struct Worker<'a, W: Workload> {
    workload: &'a W,
    session: Session,
    queue: CommitQueue<Started>,
    input: W::Input,
    rng: Rng,
    number: usize,
    tally: Tally,
    interval: Interval,
    in_flight: usize,
    /// Conflicts before the interval began, once it has.
    conflicts_before: Option<u64>,
    /// As `conflicts_before`, the thread's processor time.
    cpu_before_ns: u64,
    processor_time: bool,
}

impl<W: Workload> Worker<'_, W> {
    #[inline]
    fn execute(&mut self, at_ns: u64) -> Result<(), Error> {
        self.workload.draw(&mut self.rng, self.number, &mut self.input);
        let (outcome, ticket) = self.workload.run(&mut self.session, &self.input)?;
        let rolled_back = match outcome {
            Ok(()) => false,
            Err(abort) => self.expected(abort)?,
        };
        self.queue.push(ticket, Started { at_ns, rolled_back });
        Ok(())
    }

    #[cold]
    fn expected(&self, abort: Abort) -> Result<bool, Error> {
        if self.workload.expects(abort) {
            return Ok(true);
        }
        let name = self.workload.name();
        let kind = self.workload.kinds()[self.workload.kind(&self.input)];
        Err(Error::Recovery(format!("a {kind} of {name} ended as none should: {abort}")))
    }

    /// The thread's processor time, if it is wanted.
    fn cpu_ns(&self) -> u64 {
        if self.processor_time { thread_cpu_ns() } else { 0 }
    }

    /// Counts what is acknowledged by `now`, where that is within the interval.
    fn drain(&mut self, now: u64) -> Result<(), Error> {
        let Interval { begin, end, .. } = self.interval;
        let counts = (begin..end).contains(&now);
        if counts && self.conflicts_before.is_none() {
            self.conflicts_before = Some(self.session.conflicts());
            self.cpu_before_ns = self.cpu_ns();
        }
        let tally = &mut self.tally;
        self.queue.drain(|started| {
            if counts {
                tally.count(started, now, begin);
            }
        })?;
        Ok(())
    }

    /// As fast as acknowledgements come.
    fn closed_loop(&mut self) -> Result<(), Error> {
        loop {
            for _ in 0..DRAIN_EVERY {
                self.execute(monotonic_ns())?;
                if self.queue.len() >= self.in_flight {
                    break;
                }
            }
            if !self.make_room()? {
                return Ok(());
            }
        }
    }

    /// Takes in acknowledgements, waiting for one if too many are awaited. False at the end.
    fn make_room(&mut self) -> Result<bool, Error> {
        let mut now = monotonic_ns();
        self.drain(now)?;
        while self.queue.len() >= self.in_flight && now < self.interval.end {
            self.queue.wait_for_one()?;
            now = monotonic_ns();
            self.drain(now)?;
        }
        Ok(now < self.interval.end)
    }

    /// At the times of a schedule, one every `step` nanoseconds. If a start comes late the latency
    /// counts from when it should have been.
    fn open_loop(&mut self, first: f64, step: f64) -> Result<(), Error> {
        let mut scheduled = first;
        let mut since_drain = 0;
        loop {
            let now = monotonic_ns();
            let ahead = scheduled - now as f64;
            if ahead <= 0.0 {
                self.execute(scheduled as u64)?;
                scheduled += step;
                since_drain += 1;
            }
            if ahead > 0.0 || since_drain == DRAIN_EVERY || self.queue.len() >= self.in_flight {
                since_drain = 0;
                if !self.make_room()? {
                    return Ok(());
                }
            }
            if ahead > 0.0 {
                std::thread::sleep(NAP.min(Duration::from_nanos(ahead as u64)));
            }
        }
    }

    /// Waits for everything that is still under way; none of it counts.
    fn finish(&mut self) -> Result<(), Error> {
        let conflicts = self.session.conflicts();
        self.tally.conflicts = conflicts - self.conflicts_before.unwrap_or(conflicts);
        if self.conflicts_before.is_some() {
            self.tally.cpu_ns = self.cpu_ns() - self.cpu_before_ns;
        }
        while !self.queue.is_empty() {
            self.queue.wait_for_one()?;
            self.drain(u64::MAX)?;
        }
        Ok(())
    }
}

/// Runs the workload and returns when everything is acknowledged.
///
/// # Errors
/// The database's; or a transaction ended as none should.
pub fn drive<W: Workload>(
    workload: &W,
    database: &Database,
    drive: &Drive,
) -> Result<Measured, Error> {
    let barrier = Barrier::new(drive.workers + 1);
    // Stored once before the barrier that everyone waits at, hence Relaxed.
    let start = AtomicU64::new(0);
    let interval = || {
        let start = start.load(Ordering::Relaxed);
        let begin = start + (drive.warmup * 1e9) as u64;
        Interval { start, begin, end: begin + (drive.seconds * 1e9) as u64 }
    };
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for number in 0..drive.workers {
            let (barrier, interval) = (&barrier, &interval);
            let named = std::thread::Builder::new().name(format!("worker-{number}"));
            let running = named.spawn_scoped(scope, move || {
                let session = database.session();
                barrier.wait();
                work(workload, database, drive, number, session?, interval())
            });
            threads.push(running.expect("the system has a thread for each worker"));
        }
        start.store(monotonic_ns(), Ordering::Relaxed);
        barrier.wait();
        let mut looks = Vec::new();
        let (before, after) = watch(database, interval(), drive.timeline.as_deref(), &mut looks);
        let mut all = Tally::new(drive.timeline.is_some());
        for thread in threads {
            let tally = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            all.add(&tally);
        }
        Ok(Measured {
            seconds: drive.seconds,
            acknowledged: all.acknowledged,
            rollbacks: all.rollbacks,
            conflicts: all.conflicts,
            latency: all.latency,
            latency_max_ns: all.latency_max_ns,
            log_bytes: after.log_bytes - before.log_bytes,
            device_bytes: after.device_bytes - before.device_bytes,
            worker_cpu_ns: drive.processor_time.then_some(all.cpu_ns),
            timeline: all.ticks.map(|ticks| Timeline::new(ticks, &looks)),
        })
    })
}

fn work<W: Workload>(
    workload: &W,
    database: &Database,
    drive: &Drive,
    number: usize,
    session: Session,
    interval: Interval,
) -> Result<Tally, Error> {
    let mut worker = Worker {
        workload,
        session,
        queue: database.commit_queue(),
        input: W::Input::default(),
        rng: Rng::with_seed(drive.seed.wrapping_mul(0x9E37_79B9).wrapping_add(number as u64)),
        number,
        tally: Tally::new(drive.timeline.is_some()),
        interval,
        in_flight: drive.in_flight,
        conflicts_before: None,
        cpu_before_ns: 0,
        processor_time: drive.processor_time,
    };
    match drive.rate {
        None => worker.closed_loop()?,
        Some(rate) => {
            let step = drive.workers as f64 * 1e9 / rate;
            // Workers start in turn.
            let first = interval.start as f64 + step * number as f64 / drive.workers as f64;
            worker.open_loop(first, step)?;
        }
    }
    worker.finish()?;
    Ok(worker.tally)
}

/// Takes the database's counters at both ends of the interval, and looks at it every tick in between if that is
/// wanted.
fn watch(
    database: &Database,
    interval: Interval,
    over_time: Option<&[PathBuf]>,
    looks: &mut Vec<Look>,
) -> (Stats, Stats) {
    let bar = Bar::new("running", (interval.end - interval.start) / 1_000_000);
    let until = |then: u64| {
        loop {
            let now = monotonic_ns();
            bar.set((now - interval.start) / 1_000_000);
            if now >= then {
                return;
            }
            std::thread::sleep(Duration::from_nanos((then - now).min(100_000_000)));
        }
    };
    until(interval.begin);
    let before = database.stats();
    if let Some(dirs) = over_time {
        let mut tick = interval.begin + TICK_NS;
        while tick <= interval.end {
            until(tick);
            looks.push(timeline::look(database, dirs));
            tick += TICK_NS;
        }
    }
    until(interval.end);
    let after = database.stats();
    bar.finish(&format!("ran for {}", units::time((interval.end - interval.start) as f64 / 1e9)));
    (before, after)
}
