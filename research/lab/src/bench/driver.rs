//! Drives a workload: workers with many transactions in flight, each counted at acknowledgement.

use super::measured::{Drive, Interval, Measured};
use super::posting::PostedInOrder;
use super::tally::{Started, Tally};
use crate::bench::scanners::{self, Scanned};
use crate::bench::timeline::{self, Look, TICK_NS, Timeline};
use fastrand::Rng;
use hyades::{Abort, CommitQueue, Database, Error, Session, Stats};
use hyades_platform::clock::{monotonic_ns, process_cpu_ns, thread_cpu_ns};
use hyades_platform::phase;
use hyades_workloads::Workload;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

/// The most transactions that a worker runs before it checks for acknowledgements.
pub(super) const DRAIN_EVERY: usize = 16;
/// The longest sleep of a worker that waits for its next scheduled start.
const NAP: Duration = Duration::from_micros(50);

/// Starts the thread of a worker.
pub fn start_worker<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    number: usize,
    work: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, T> {
    let named = std::thread::Builder::new().name(format!("worker-{number}"));
    named.spawn_scoped(scope, work).expect("a thread can be started for each worker")
}

struct Worker<'a, W: Workload> {
    workload: &'a W,
    database: &'a Database,
    /// Calls that have not run, if the worker posts calls.
    posted: Option<PostedInOrder>,
    session: Session,
    queue: CommitQueue<Started>,
    input: W::Input,
    rng: Rng,
    number: usize,
    tally: Tally,
    interval: Interval,
    in_flight: usize,
    /// Whether its transactions start on schedule.
    is_open: bool,
    /// Conflicts before the measured interval; `None` until it begins.
    conflicts_before: Option<u64>,
    /// The thread's processor time before the measured interval.
    cpu_before_ns: u64,
}

impl<W: Workload> Worker<'_, W> {
    #[inline]
    fn execute(&mut self, at_ns: u64) -> Result<(), Error> {
        self.workload.draw(&mut self.rng, self.number, &mut self.input);
        if let Some(posted) = &mut self.posted {
            match self.workload.run(&mut self.database, &self.input) {
                Ok(call) => posted.push(call, at_ns),
                Err(Error::TooManyPosted(_)) => return self.was_refused(),
                Err(error) => return Err(error),
            }
            return if posted.is_full() { self.take_outcomes(true) } else { Ok(()) };
        }
        let (outcome, ticket) = self.workload.run(&mut self.session, &self.input)?;
        let rolled_back = match outcome {
            Ok(()) => false,
            Err(abort) => self.expected(abort)?,
        };
        self.queue.push(ticket, Started { at_ns, rolled_back });
        Ok(())
    }

    /// A call was refused: it is not made. A worker without a schedule waits for others to run.
    #[cold]
    fn was_refused(&mut self) -> Result<(), Error> {
        let Interval { begin, end, .. } = self.interval;
        self.tally.refused += u64::from((begin..end).contains(&monotonic_ns()));
        if self.is_open {
            return Ok(());
        }
        let own = self.posted.as_ref().map_or(0, PostedInOrder::len);
        if own == 0 {
            std::thread::sleep(NAP);
        }
        self.take_outcomes(own > 0)
    }

    #[cold]
    fn expected(&self, abort: Abort) -> Result<bool, Error> {
        if self.workload.expects(abort) {
            return Ok(true);
        }
        let name = self.workload.name();
        // Of a posted call the input is another one's by now.
        let kind = match self.posted {
            None => self.workload.kinds()[self.workload.kind(&self.input)],
            Some(_) => "posted",
        };
        Err(Error::Recovery(format!(
            "a {kind} transaction of {name} aborted unexpectedly: {abort}"
        )))
    }

    /// Takes the outcomes of posted calls that have run; waits for some if `waits`.
    fn take_outcomes(&mut self, waits: bool) -> Result<(), Error> {
        let Some(mut posted) = self.posted.take() else { return Ok(()) };
        if waits {
            posted.wait_for_some();
        }
        let mut taken = Ok(());
        while taken.is_ok()
            && let Some((ran, at_ns)) = posted.next_that_ran()
        {
            taken = ran.and_then(|(outcome, ticket)| {
                let rolled_back = outcome.map_or_else(|abort| self.expected(abort), |()| Ok(false));
                self.queue.push(ticket, Started { at_ns, rolled_back: rolled_back? });
                Ok(())
            });
        }
        self.posted = Some(posted);
        taken
    }

    /// Transactions that await their acknowledgement.
    fn under_way(&self) -> usize {
        self.queue.len() + self.posted.as_ref().map_or(0, PostedInOrder::len)
    }

    /// Removes acknowledged transactions from the queue, and counts them if `now` is within the
    /// interval.
    fn drain(&mut self, now: u64) -> Result<(), Error> {
        let Interval { begin, end, .. } = self.interval;
        let counts = (begin..end).contains(&now);
        if counts && self.conflicts_before.is_none() {
            self.conflicts_before = Some(self.session.conflicts());
            self.cpu_before_ns = thread_cpu_ns();
        }
        let tally = &mut self.tally;
        self.queue.drain(|started| {
            tally.transactions += 1;
            if counts {
                tally.count(started, now, begin);
            }
        })?;
        Ok(())
    }

    /// Closed loop: starts transactions as fast as acknowledgements arrive.
    fn closed_loop(&mut self) -> Result<(), Error> {
        loop {
            for _ in 0..DRAIN_EVERY {
                self.execute(monotonic_ns())?;
                if self.under_way() >= self.in_flight {
                    break;
                }
            }
            if !self.make_room()? {
                return Ok(());
            }
        }
    }

    /// Drains acknowledgements, and waits while too many are outstanding. False at the end.
    fn make_room(&mut self) -> Result<bool, Error> {
        self.take_outcomes(false)?;
        let mut now = monotonic_ns();
        self.drain(now)?;
        while self.under_way() >= self.in_flight && now < self.interval.end {
            self.take_outcomes(true)?;
            if !self.queue.is_empty() {
                self.queue.wait_for_one()?;
            }
            now = monotonic_ns();
            self.drain(now)?;
        }
        Ok(now < self.interval.end)
    }

    /// Open loop: starts one transaction every `step` nanoseconds. The latency of a late start
    /// counts from its scheduled time.
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
            if ahead > 0.0 || since_drain == DRAIN_EVERY || self.under_way() >= self.in_flight {
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

    /// Waits for all transactions in flight, without counting them.
    fn finish(&mut self) -> Result<(), Error> {
        let conflicts = self.session.conflicts();
        self.tally.conflicts = conflicts - self.conflicts_before.unwrap_or(conflicts);
        if self.conflicts_before.is_some() {
            self.tally.cpu_ns = thread_cpu_ns() - self.cpu_before_ns;
        }
        while self.under_way() > 0 {
            self.take_outcomes(true)?;
            if !self.queue.is_empty() {
                self.queue.wait_for_one()?;
            }
            self.drain(u64::MAX)?;
        }
        Ok(())
    }
}

/// Runs the workload and returns when all transactions are acknowledged.
///
/// # Errors
/// Those of the database, or an unexpected abort.
pub fn drive<W: Workload>(
    workload: &W,
    database: &Database,
    drive: &Drive,
) -> Result<Measured, Error> {
    let barrier = Barrier::new(drive.workers + drive.scanning.scanners + 1);
    // Stored once, before the barrier that all threads wait at, hence Relaxed.
    let start = AtomicU64::new(0);
    let interval = || Interval::new(start.load(Ordering::Relaxed), drive);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for number in 0..drive.workers {
            let (barrier, interval) = (&barrier, &interval);
            threads.push(start_worker(scope, number, move || {
                let session = database.session();
                barrier.wait();
                work(workload, database, drive, number, session?, interval())
            }));
        }
        let scanners: Vec<_> = (0..drive.scanning.scanners)
            .map(|_| {
                let (barrier, interval) = (&barrier, &interval);
                scope.spawn(move || {
                    barrier.wait();
                    let (table, how) = (workload.largest_table(), drive.scanning.scan_with);
                    scanners::scan(database, table, how, interval())
                })
            })
            .collect();
        start.store(monotonic_ns(), Ordering::Relaxed);
        barrier.wait();
        let mut looks = Vec::new();
        let (before, after, busy_ns) = watch(database, interval(), drive, &mut looks);
        let mut all = Tally::new(drive.timeline.is_some());
        for thread in threads {
            let tally = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            all.add(&tally);
        }
        let mut scanned = (!scanners.is_empty()).then(Scanned::default);
        for thread in scanners {
            let scans = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            scanned.iter_mut().for_each(|all| all.add(&scans));
        }
        let bytes = (after.log_bytes - before.log_bytes, after.device_bytes - before.device_bytes);
        let cpu_ns = all.cpu_ns;
        if drive.posting.posts() {
            // Of the sessions that run the calls.
            all.conflicts = after.conflicts - before.conflicts;
        }
        let ticks = all.ticks.take();
        Ok(Measured {
            worker_cpu_ns: drive.processor_time.then_some(cpu_ns),
            busy_ns: Some((cpu_ns, busy_ns)),
            phases: drive.phases.then(phase::stop),
            timeline: ticks.map(|ticks| Timeline::new(ticks, &looks)),
            scanned,
            ..all.measured(drive.seconds, bytes)
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
        database,
        posted: drive.posting.queue(drive.workers),
        session,
        queue: database.commit_queue(),
        input: W::Input::default(),
        rng: Rng::with_seed(drive.worker_seed(number)),
        number,
        tally: Tally::new(drive.timeline.is_some()),
        interval,
        in_flight: drive.in_flight,
        is_open: drive.rate.is_some(),
        conflicts_before: None,
        cpu_before_ns: 0,
    };
    match drive.rate {
        None => worker.closed_loop()?,
        Some(rate) => {
            let step = drive.workers as f64 * 1e9 / rate;
            // The schedules of the workers are staggered.
            let first = interval.start as f64 + step * number as f64 / drive.workers as f64;
            worker.open_loop(first, step)?;
        }
    }
    worker.finish()?;
    Ok(worker.tally)
}

/// Reads the database's counters at both ends of the interval, samples the database every tick in
/// between if a timeline is wanted, and begins to measure phases if wanted. Also returns the
/// processor time of all threads between them, in nanoseconds.
fn watch(
    database: &Database,
    interval: Interval,
    drive: &Drive,
    looks: &mut Vec<Look>,
) -> (Stats, Stats, u64) {
    let bar = interval.bar();
    let until = |then: u64| interval.sleep_until(&bar, then);
    until(interval.begin);
    if drive.phases {
        phase::start();
    }
    let (before, busy_before) = (database.stats(), process_cpu_ns());
    if let Some(dirs) = drive.timeline.as_deref() {
        let mut tick = interval.begin + TICK_NS;
        while tick <= interval.end {
            until(tick);
            looks.push(timeline::look(database, dirs));
            tick += TICK_NS;
        }
    }
    until(interval.end);
    let (after, busy_after) = (database.stats(), process_cpu_ns());
    interval.finish(&bar);
    (before, after, busy_after - busy_before)
}
