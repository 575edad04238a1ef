//! Loads the keys, and drives the workload: workers with many transactions in flight, each counted
//! at its acknowledgement.

use super::counted::{Counted, no_times};
use super::keys::{Drawer, KeyAccesses, fill};
use super::log_bytes;
use super::observed::{self, Observed, Observer, OperationTimes, TimedOperations};
use crate::bench::driver::{DRAIN_EVERY, start_worker};
use crate::bench::measured::{Interval, Measured};
use crate::bench::settings::Settings;
use crate::bench::tally::{Started, Tally};
use hyades_cli::failure::Failure;
use hyades_deuteronomy::{CommitQueue, Database, Error, Session};
use hyades_platform::clock::monotonic_ns;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

/// The bytes of values that a transaction of the load writes, about.
const LOAD_BYTES: u64 = 64 << 10;

/// Reads within the interval.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reads {
    /// Reads of single keys.
    pub keys: u64,
    /// Reads that needed the data component.
    pub fetched: u64,
}

/// Writes all keys once.
///
/// # Errors
/// Those of the database.
pub fn load(
    accesses: &KeyAccesses,
    database: &Database,
    settings: &Settings,
    done: impl Fn(u64) + Sync,
) -> Result<(), Failure> {
    let at_once = (LOAD_BYTES / accesses.value_bytes as u64).clamp(1, 256);
    // Hands out pieces: nothing is ordered by it, hence Relaxed.
    let next = AtomicU64::new(0);
    let work = || -> Result<(), Error> {
        let (mut session, mut value) = (database.session()?, vec![0; accesses.value_bytes]);
        loop {
            let from = next.fetch_add(at_once, Ordering::Relaxed);
            if from >= accesses.rows {
                return Ok(());
            }
            let (_, ticket) = session.submit(|tx| {
                for row in from..(from + at_once).min(accesses.rows) {
                    fill(&mut value, row ^ settings.seed << 40);
                    tx.put(&accesses.key(row), &value)?;
                }
                Ok::<_, Error>(())
            })?;
            drop(ticket);
            done(from);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..settings.workers).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })?;
    Ok(())
}

struct KeyWorker<'o> {
    session: Session,
    drawer: Drawer,
    observer: Option<&'o Observer>,
    times: OperationTimes,
    waiting: CommitQueue<Started>,
    tally: Tally,
    interval: Interval,
    in_flight: usize,
    /// Attempts that were run again, and reads of single keys, from the beginning.
    retries: u64,
    reads: u64,
    /// The same before the measured interval; `None` until it begins.
    before: Option<(u64, u64)>,
}

impl<'o> KeyWorker<'o> {
    fn new(
        (session, waiting): (Session, CommitQueue<Started>),
        drawer: Drawer,
        observer: Option<&'o Observer>,
        interval: Interval,
    ) -> Self {
        Self {
            session,
            drawer,
            observer,
            times: OperationTimes::new(),
            waiting,
            tally: Tally::new(false),
            interval,
            in_flight: 1,
            retries: 0,
            reads: 0,
            before: None,
        }
    }

    fn execute(&mut self) -> Result<(), Error> {
        let at_ns = monotonic_ns();
        self.drawer.draw();
        if let Some(observer) = self.observer {
            observer.touch(self.drawer.drawn());
        }
        let is_timed = self.observer.is_some() && self.times.is_timed();
        let (mut attempts, mut reads) = (0, 0);
        let (_, ticket) = self.session.submit(|tx| {
            attempts += 1;
            reads += match is_timed {
                true => self.drawer.run(&mut TimedOperations { on: tx, times: &mut self.times })?,
                false => self.drawer.run(tx)?,
            };
            Ok::<_, Error>(())
        })?;
        self.retries += attempts - 1;
        self.reads += reads;
        self.waiting.push(ticket, Started { at_ns, rolled_back: false });
        Ok(())
    }

    /// Removes acknowledged transactions, and counts them if `now` is within the interval.
    fn drain(&mut self, now: u64) -> Result<(), Error> {
        let Interval { begin, end, .. } = self.interval;
        let counts = (begin..end).contains(&now);
        if counts && self.before.is_none() {
            self.before = Some((self.retries, self.reads));
            self.times.forget();
        }
        let Self { waiting, tally, observer, .. } = self;
        let observer = *observer;
        waiting.drain(|started| {
            if counts {
                tally.count(started, now, begin);
            }
            observer.into_iter().for_each(Observer::acknowledge);
        })?;
        Ok(())
    }

    /// Starts transactions as fast as acknowledgements arrive, until the end of the interval.
    fn run(&mut self) -> Result<(), Error> {
        loop {
            for _ in 0..DRAIN_EVERY {
                self.execute()?;
                if self.waiting.len() >= self.in_flight {
                    break;
                }
            }
            let mut now = monotonic_ns();
            self.drain(now)?;
            while self.waiting.len() >= self.in_flight && now < self.interval.end {
                self.waiting.wait_for_one()?;
                now = monotonic_ns();
                self.drain(now)?;
            }
            if now >= self.interval.end {
                return Ok(());
            }
        }
    }

    /// Waits for all transactions in flight, without counting them. Returns the reads within the
    /// interval, and how long operations took there.
    fn finish(mut self) -> Result<(Tally, u64, OperationTimes), Error> {
        if self.before.is_none() {
            self.times.forget();
        }
        let (retries, reads) = self.before.unwrap_or((self.retries, self.reads));
        self.tally.conflicts = self.retries - retries;
        let reads = self.reads - reads;
        while !self.waiting.is_empty() {
            self.waiting.wait_for_one()?;
            self.waiting.drain(drop)?;
        }
        Ok((self.tally, reads, self.times))
    }
}

/// Runs the workload and returns when all transactions are acknowledged. Returns as well what was
/// observed, if that is wanted.
///
/// # Errors
/// Those of the database.
pub fn drive(
    accesses: &KeyAccesses,
    database: &Database,
    settings: &Settings,
    data: &Counted,
    observer: Option<&Observer>,
) -> Result<(Measured, Reads, Option<Observed>), Failure> {
    let drive = settings.drive(false);
    let barrier = Barrier::new(drive.workers + 1);
    // Stored once, before the barrier that all threads wait at, hence Relaxed.
    let start = AtomicU64::new(0);
    let next = Arc::new(AtomicU64::new(accesses.rows));
    let work = |number: usize| -> Result<(Tally, u64, OperationTimes), Error> {
        let (session, queue) = (database.session(), database.commit_queue());
        let drawer = Drawer::new(*accesses, drive.worker_seed(number), Arc::clone(&next));
        barrier.wait();
        let interval = Interval::new(start.load(Ordering::Relaxed), &drive);
        let mut worker = KeyWorker::new((session?, queue), drawer, observer, interval);
        worker.in_flight = drive.in_flight;
        worker.run()?;
        worker.finish()
    };
    std::thread::scope(|scope| {
        let work = &work;
        let start_one = |number| start_worker(scope, number, move || work(number));
        let workers: Vec<_> = (0..drive.workers).map(start_one).collect();
        start.store(monotonic_ns(), Ordering::Relaxed);
        barrier.wait();
        let interval = Interval::new(start.load(Ordering::Relaxed), &drive);
        let bar = interval.bar();
        let watching = observer
            .map(|observer| scope.spawn(move || observer.watch(database, interval, drive.workers)));
        interval.sleep_until(&bar, interval.begin);
        let (before, gets) = (log_bytes(database), data.gets());
        let collecting = database.stats().collecting;
        drop(data.take_times());
        interval.sleep_until(&bar, interval.end);
        let (after, fetched) = (log_bytes(database), data.gets() - gets);
        let collecting = (database.stats().collecting - collecting).as_secs_f64();
        let data_times = data.take_times().unwrap_or_else(|| (no_times(), no_times()));
        interval.finish(&bar);
        let (mut all, mut keys, mut times) = (Tally::new(false), 0, OperationTimes::new());
        for worker in workers {
            let joined = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let (tally, reads, own) = joined?;
            all.add(&tally);
            keys += reads;
            times.add(&own);
        }
        let observed = watching.map(|watching| {
            let joined = watching.join();
            let over_time = joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let share = collecting / drive.seconds / drive.workers as f64;
            observed::observed(&times, &data_times, share, over_time)
        });
        let bytes = (after.0 - before.0, after.1 - before.1);
        Ok((all.measured(drive.seconds, bytes), Reads { keys, fetched }, observed))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyades_deuteronomy::{LogOptions, MemoryData, Options};

    #[test]
    fn what_is_timed_in_the_warm_up_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        // Small: tests of this program measure the program's memory.
        let mut log = LogOptions::new(vec![dir.path().to_owned()], 1);
        log.buffer_bytes = 64 << 10;
        let mut options = Options::new(log);
        options.memory_bytes = 256 << 10;
        let database = Database::open(options, Arc::new(MemoryData::new())).unwrap();
        let accesses = KeyAccesses {
            rows: 8,
            theta: 0.0,
            accesses: 1,
            write_share: 1.0,
            scan_length: None,
            standard: None,
            value_bytes: 8,
        };
        let observer = Observer::new(accesses.rows);
        // The warm-up is longer than the test.
        let start = monotonic_ns();
        let begin = start + 3_600_000_000_000;
        let interval = Interval { start, begin, end: begin + 1_000 };
        let both = (database.session().unwrap(), database.commit_queue());
        let drawer = Drawer::new(accesses, 1, Arc::default());
        let mut worker = KeyWorker::new(both, drawer, Some(&observer), interval);
        let is_timed = |worker: &KeyWorker<'_>| {
            let data = (no_times(), no_times());
            observed::observed(&worker.times, &data, 0.0, Vec::new()).writes.is_some()
        };
        // More than enough for one to be timed.
        (0..100).for_each(|_| worker.execute().unwrap());
        worker.drain(begin - 1).unwrap();
        assert!(is_timed(&worker));
        worker.drain(begin).unwrap();
        assert!(!is_timed(&worker));
        (0..100).for_each(|_| worker.execute().unwrap());
        let (_, _, times) = worker.finish().unwrap();
        let data = (no_times(), no_times());
        assert!(observed::observed(&times, &data, 0.0, Vec::new()).writes.is_some());
        database.close().unwrap();
    }
}
