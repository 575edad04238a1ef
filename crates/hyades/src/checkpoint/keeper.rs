//! Decides the times of checkpoints: on demand, at an interval, or often enough to bound replay
//! time.

use super::{CheckpointReport, CheckpointSettings};
use crate::engine::cut::Cut;
use crate::error::Error;
use hyades_platform::callback::OnDatabaseThread;
use hyades_platform::latency::{LatencyCounts, LatencyHistogram};
use hyades_platform::sync::Unpoisoned;
use hyades_platform::{clock, event, span};
use hyades_wal::{Checkpoint, Dimension, Incarnation, Log, Lsn, Manifest};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// Lower bound of the assumed replay speed until measured, in bytes per second: a cautious guess.
pub(crate) const UNMEASURED_BYTES_PER_S: u64 = 32 << 20;

/// Fraction of the permitted replay time used as the target of checkpoints.
const MARGIN: f64 = 0.8;

/// Interval at which a busy database is checked.
const TICK: Duration = Duration::from_millis(20);

/// Minimum time span over which the speed of logging is measured.
const SPAN: Duration = Duration::from_millis(200);

/// Minimum delay before the next attempt after a failed checkpoint.
pub(crate) const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// Openings of a log since its last checkpoint, each an incarnation in its manifest, at which the
/// next opening takes a checkpoint before returning. The manifest is read and written at each
/// opening, and each incarnation is replayed separately: a service that fails repeatedly soon after
/// its start would start more slowly each time.
const MOST_INCARNATIONS: usize = 64;

/// Checkpoint statistics since the database was opened.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CheckpointStats {
    /// Checkpoints taken.
    pub taken: u64,
    /// Whether a checkpoint is being taken now.
    pub under_way: bool,
    /// Checkpoints that failed; the database goes on without them.
    pub failed: u64,
    /// The cause of the last failure.
    pub last_failure: Option<String>,
    /// The newest checkpoint.
    pub last: Option<CheckpointReport>,
    /// Assumed replay speed, in bytes of log per second: as measured by the last replay. Without a
    /// replay, the estimate is the speed at which this run would write log with all processors for
    /// itself.
    pub replay_bytes_per_s: u64,
    /// Bytes of log to replay if the database failed now.
    pub replay_bytes: u64,
    /// The time of replaying the log if the database failed now, in seconds, at the assumed speed.
    /// Until a speed is known, a cautious guess.
    pub replay_seconds: f64,
    /// The longest estimated replay time so far; 0 until a speed is known.
    pub longest_replay_seconds: f64,
    /// The reason why [`CheckpointSettings::max_recovery`] was exceeded, if exceeded. Not set
    /// before a replay speed is known.
    pub bound_missed: Option<String>,
}

/// An engine, as used by checkpoints, independent of its concurrency control and logging protocol.
pub(crate) trait Checkpointed: Send + Sync {
    fn cut(&self) -> &Cut;
    /// Writes a checkpoint; see [`super::write()`].
    fn checkpoint(
        &self,
        log: &Log,
        settings: &CheckpointSettings,
        stop: &AtomicBool,
    ) -> Result<(Checkpoint, CheckpointReport), Error>;
}

/// Takes checkpoints of one database; see the module.
pub(crate) struct Keeper {
    engine: Arc<dyn Checkpointed>,
    log: Log,
    settings: CheckpointSettings,
    /// Whether replay speed was measured, at the opening of the database or earlier.
    measured: bool,
    /// Whether replay speed was measured, or estimated since. Until then the speed is a guess
    /// without consequences for the bound. Written by the thread, read by `stats`: Relaxed.
    is_speed_known: AtomicBool,
    /// Set once, at the close of the database (Release); read by all methods and the thread
    /// (Acquire).
    stop: AtomicBool,
    /// Held during a checkpoint.
    state: Mutex<KeeperState>,
    stats: Mutex<CheckpointStats>,
    durations: LatencyHistogram,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Recent growth of the log in bytes per second. Written by the thread, read by `stats`:
    /// Relaxed.
    growth: AtomicU64,
}

#[derive(Default)]
struct KeeperState {
    /// Set after a failed write of the manifest: the valid checkpoint is unknown.
    broken: Option<String>,
}

/// The observations of the thread in its last round.
#[derive(Debug)]
pub(crate) struct KeeperRound {
    last_bytes: u64,
    /// The size of the log at the last measurement of the growth, and the time of the measurement.
    measured: (u64, u64),
    /// Recent growth of the log, in bytes per second.
    growth: f64,
    began_ns: u64,
    /// The time of the last observation.
    now_ns: u64,
    paced: Paced,
}

impl KeeperRound {
    /// Creates the first round. `bytes`: the log found by the opening.
    pub fn new(bytes: u64, now: u64) -> KeeperRound {
        let paced = Paced::default();
        let (measured, began_ns, now_ns) = ((bytes, now), now, now);
        KeeperRound { last_bytes: bytes, measured, growth: 0.0, began_ns, now_ns, paced }
    }

    /// Observes the log. Returns by how many bytes the log has grown.
    pub fn observe(&mut self, bytes: u64, now: u64) -> u64 {
        self.now_ns = now;
        self.measure_growth(bytes, now);
        bytes.saturating_sub(std::mem::replace(&mut self.last_bytes, bytes))
    }

    /// The time since the last checkpoint began, or since the first round.
    fn since(&self) -> Duration {
        Duration::from_nanos(self.now_ns.saturating_sub(self.began_ns))
    }

    /// Notes that a checkpoint begins.
    pub fn begin(&mut self, now: u64) {
        self.began_ns = now;
    }

    /// Whether a checkpoint is due. `is_near`: whether a checkpoint has to begin now to keep replay
    /// time below a bound, given the growth of the log in bytes per second.
    pub fn is_due(
        &self,
        settings: &CheckpointSettings,
        is_near: impl FnOnce(Duration, f64) -> bool,
    ) -> bool {
        settings.interval.is_some_and(|interval| self.since() >= interval)
            || settings.max_recovery.is_some_and(|bound| is_near(bound, self.growth))
    }

    /// Measures the growth of the log, over no less than a tick: the speed of writes within
    /// microseconds is not the speed of the log.
    fn measure_growth(&mut self, bytes: u64, now: u64) {
        let (last_bytes, last_ns) = self.measured;
        let seconds = (now - last_ns) as f64 / 1e9;
        if seconds >= TICK.as_secs_f64() {
            let speed = bytes.saturating_sub(last_bytes) as f64 / seconds;
            self.growth += (speed - self.growth) * 0.3;
            self.measured = (bytes, now);
        }
    }
}

/// Counters of the run at the last measurement of its speed.
#[derive(Clone, Copy, Debug, Default)]
struct Paced {
    at_ns: u64,
    /// Bytes of log.
    written: u64,
    /// Processor time of the process.
    cpu_ns: u64,
}

impl Keeper {
    pub fn new(
        engine: Arc<dyn Checkpointed>,
        log: Log,
        settings: CheckpointSettings,
    ) -> Arc<Keeper> {
        let measured = log.manifest().replay_bytes_per_s;
        let replay_bytes_per_s = measured.unwrap_or(UNMEASURED_BYTES_PER_S).max(1);
        let keeper = Arc::new(Keeper {
            engine,
            log,
            settings,
            measured: measured.is_some(),
            is_speed_known: AtomicBool::new(measured.is_some()),
            stop: AtomicBool::new(false),
            state: Mutex::default(),
            durations: LatencyHistogram::default(),
            stats: Mutex::new(CheckpointStats { replay_bytes_per_s, ..CheckpointStats::default() }),
            thread: Mutex::default(),
            growth: AtomicU64::new(0),
        });
        if keeper.settings.interval.is_some() || keeper.settings.max_recovery.is_some() {
            let reference = Arc::downgrade(&keeper);
            let thread = std::thread::Builder::new().name("checkpoints".into());
            // Without the thread, checkpoints are taken on demand only; `stats` reports the
            // failure.
            match thread.spawn(move || run(&reference)) {
                Ok(thread) => *keeper.thread.lock().unpoisoned() = Some(thread),
                Err(error) => keeper.note_failure(&format!("its thread cannot start ({error})")),
            }
        }
        keeper
    }

    /// Takes a checkpoint now.
    pub fn take(&self) -> Result<CheckpointReport, Error> {
        // A transaction run by a subscriber to the checkpoint's events might wait for the
        // checkpoint.
        let _mark = OnDatabaseThread::begin();
        let _span = span!(INFO, "checkpoint");
        let mut state = self.state.lock().unpoisoned();
        if let Some(why) = &state.broken {
            let why =
                format!("no checkpoint can be taken any more ({why}): open the database again");
            return Err(Error::Misuse(why));
        }
        if let Some(poisoned) = self.log.poisoned() {
            return Err(poisoned.into());
        }
        let result = self.write().and_then(|(checkpoint, mut report)| {
            report.truncated_bytes =
                self.log.adopt(checkpoint).inspect_err(|error| match error {
                    hyades_wal::Error::NotReplaced { .. } | hyades_wal::Error::NotArchived(_) => {
                        self.remove_parts()
                    }
                    error => {
                        let why = format!("the last checkpoint may not be valid: {error}");
                        state.broken = Some(why);
                    }
                })?;
            Ok(report)
        });
        match &result {
            Ok(report) => {
                self.durations.record((report.seconds * 1e9) as u64);
                event!(
                    INFO,
                    "checkpoint taken",
                    number = report.number,
                    rows = report.rows,
                    bytes = report.bytes,
                    seconds = report.seconds,
                    truncated_bytes = report.truncated_bytes,
                );
                let mut stats = self.stats.lock().unpoisoned();
                stats.taken += 1;
                stats.last = Some(report.clone());
            }
            Err(error) => self.note_failure(&error.to_string()),
        }
        result
    }

    /// Takes a checkpoint at the opening of the database, if the log has had too many openings
    /// since the last checkpoint. If the checkpoint fails the database opens all the same, and
    /// `stats` reports the failure.
    pub fn bound_incarnations(&self) {
        if self.log.manifest().incarnations.len() >= MOST_INCARNATIONS {
            let _ = self.take();
        }
    }

    /// Removes the files of a checkpoint not named by any manifest. Remaining files are written
    /// anew by the next checkpoint, which has the same number.
    fn remove_parts(&self) {
        let (_, parts) = self.log.next_checkpoint(self.settings.files_per_dir);
        for (_, path) in parts {
            let _ = self.log.device().remove(&path);
        }
    }

    /// Returns the durations of all checkpoints.
    pub fn durations(&self) -> LatencyCounts {
        self.durations.get()
    }

    /// Writes a checkpoint. A panic counts as a failure: the manifest does not name the partial
    /// files, and the next checkpoint starts afresh. The only state that outlives the call is the
    /// cut, and every end of the call ends the cut.
    fn write(&self) -> Result<(Checkpoint, CheckpointReport), Error> {
        let write = || self.engine.checkpoint(&self.log, &self.settings, &self.stop);
        catch_unwind(AssertUnwindSafe(write)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            let text = text.unwrap_or_else(|| "without a message".to_string());
            Err(Error::CheckpointPanicked(text))
        })
    }

    fn note_failure(&self, why: &str) {
        event!(WARN, "checkpoint failed", cause = why);
        let mut stats = self.stats.lock().unpoisoned();
        stats.failed += 1;
        stats.last_failure = Some(why.to_string());
    }

    /// Returns the bytes of log not covered by the newest checkpoint.
    fn uncovered(&self) -> u64 {
        uncovered(&self.log.manifest(), |lane| self.log.next_lsn(lane))
    }

    pub fn stats(&self) -> CheckpointStats {
        let bytes = self.uncovered();
        if let Some(bound) = self.settings.max_recovery {
            self.is_near(bound, bytes, self.growth.load(Ordering::Relaxed) as f64);
        }
        let mut stats = self.stats.lock().unpoisoned().clone();
        stats.under_way = self.state.try_lock().is_err();
        stats.replay_bytes = bytes;
        stats.replay_seconds = bytes as f64 / stats.replay_bytes_per_s as f64;
        if self.is_speed_known.load(Ordering::Relaxed) {
            stats.longest_replay_seconds = stats.longest_replay_seconds.max(stats.replay_seconds);
        }
        stats
    }

    /// Stops the thread. After the return, no checkpoint is taken and no manifest is written.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.engine.cut().wake();
        let thread = self.thread.lock().unpoisoned().take();
        if let Some(thread) = thread.filter(|t| t.thread().id() != std::thread::current().id()) {
            // A panicked thread has ended, and nothing more is needed.
            let _ = thread.join();
        }
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        state.broken.get_or_insert_with(|| "it is closed".to_string());
    }

    /// Estimates replay speed until measured. Replay does no more work per byte of log than the
    /// run, so the estimate assumes at most the same processor time per byte, on all processors.
    fn learn_speed(&self, round: &mut KeeperRound, now: u64) {
        if self.measured || now < round.paced.at_ns + SPAN.as_nanos() as u64 {
            return;
        }
        let written = (0..self.log.streams()).map(|stream| self.log.next_lsn(stream)).sum();
        let paced = Paced { at_ns: now, written, cpu_ns: clock::process_cpu_ns() };
        let before = std::mem::replace(&mut round.paced, paced);
        if before.at_ns > 0 && written > before.written {
            let cpu_s = (paced.cpu_ns - before.cpu_ns).max(1) as f64 / 1e9;
            let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
            let speed = (written - before.written) as f64 / cpu_s * processors as f64;
            let mut stats = self.stats.lock().unpoisoned();
            stats.replay_bytes_per_s = stats.replay_bytes_per_s.max(speed as u64);
            self.is_speed_known.store(true, Ordering::Relaxed);
        }
    }

    /// One round: takes a checkpoint if due. Returns the time to sleep; `None` means until the next
    /// commit.
    fn run_round(&self, round: &mut KeeperRound) -> Option<Duration> {
        let (bytes, now) = (self.uncovered(), clock::monotonic_ns());
        let grown = round.observe(bytes, now);
        self.growth.store(round.growth as u64, Ordering::Relaxed);
        self.learn_speed(round, now);
        if bytes == 0 {
            return None;
        }
        let is_near = |bound, growth| self.is_near(bound, bytes, growth);
        if round.is_due(&self.settings, is_near) {
            round.begin(now);
            let result = self.take();
            round.last_bytes = self.uncovered();
            round.measured = (round.last_bytes, clock::monotonic_ns());
            return Some(if result.is_ok() { Duration::from_millis(1) } else { AFTER_FAILURE });
        }
        match self.settings.interval {
            _ if grown > 0 => Some(TICK),
            // No log was written: only the interval can make a checkpoint due.
            Some(interval) => Some(interval.saturating_sub(round.since()).max(TICK)),
            None => None,
        }
    }

    /// Whether a checkpoint has to start now to keep replay time below `bound`; updates the
    /// statistics.
    fn is_near(&self, bound: Duration, bytes: u64, growth: f64) -> bool {
        let mut stats = self.stats.lock().unpoisoned();
        let speed = stats.replay_bytes_per_s as f64;
        debug_assert!(speed > 0.0, "replay makes progress");
        let seconds = bytes as f64 / speed;
        let takes = stats.last.as_ref().map_or(0.0, |last| last.seconds);
        let is_speed_known = self.is_speed_known.load(Ordering::Relaxed);
        if is_speed_known {
            stats.longest_replay_seconds = stats.longest_replay_seconds.max(seconds);
        }
        if seconds > bound.as_secs_f64() && is_speed_known {
            stats.bound_missed = Some(format!(
                "replay would take {seconds:.1} s and not {:.1} s: the log grows by {:.1} MB/s, is \
                 replayed at {:.1} MB/s, and a checkpoint takes {takes:.1} s at a share of {:.0} %",
                bound.as_secs_f64(),
                growth / 1e6,
                speed / 1e6,
                self.settings.share * 100.0
            ));
        }
        must_begin(bound, (bytes, growth), takes, speed)
    }
}

/// Whether a checkpoint has to begin now to keep replay time below `bound`: `bytes` are to be
/// replayed at `speed`, the log grows by `growth` bytes per second; a checkpoint takes `takes`
/// seconds.
pub(crate) fn must_begin(
    bound: Duration,
    (bytes, growth): (u64, f64),
    takes: f64,
    speed: f64,
) -> bool {
    // The log keeps growing during the checkpoint.
    (bytes as f64 + growth * takes) / speed >= bound.as_secs_f64() * MARGIN
}

/// Returns the bytes of log not covered by the newest checkpoint. `next`: where each stream of the
/// newest incarnation goes on.
pub(crate) fn uncovered(manifest: &Manifest, next: impl Fn(usize) -> Lsn) -> u64 {
    let newest = manifest.newest().map(|newest| newest.number);
    let uncovered_bytes = |i: &Incarnation| -> u64 {
        let end = |(lane, dim): (usize, &Dimension)| match Some(i.number) == newest {
            true => next(lane),
            false => dim.end.unwrap_or(dim.start),
        };
        let bytes = |(lane, dim): (usize, &Dimension)| {
            let from = manifest.covered(i.number, dim.stream).unwrap_or(0).max(dim.start);
            end((lane, dim)).saturating_sub(from)
        };
        i.dims.iter().enumerate().map(bytes).sum()
    };
    manifest.incarnations.iter().map(uncovered_bytes).sum()
}

/// The thread's loop. The loop holds only a weak reference, and so does not keep the database
/// alive.
fn run(reference: &Weak<Keeper>) {
    let mut last_round = None;
    loop {
        let Some(keeper) = reference.upgrade() else { return };
        let begin = || KeeperRound::new(keeper.uncovered(), clock::monotonic_ns());
        let mut round = last_round.take().unwrap_or_else(begin);
        if keeper.stop.load(Ordering::Acquire) || keeper.log.poisoned().is_some() {
            return;
        }
        let sleep = keeper.run_round(&mut round);
        let known = round.last_bytes;
        last_round = Some(round);
        keeper.engine.cut().sleep(sleep, || {
            let stop = keeper.stop.load(Ordering::Acquire);
            stop || (sleep.is_none() && keeper.uncovered() != known)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_growth_of_the_log_is_that_of_a_tick_and_more() {
        // A log of 5 MB found by the opening, and the first round a few microseconds later.
        let mut round = KeeperRound::new(5_000_000, 1_000);
        round.measure_growth(5_000_000, 4_000);
        assert_eq!(round.growth, 0.0);
        // A burst right behind a checkpoint.
        round.measure_growth(6_000_000, 5_000);
        assert_eq!(round.growth, 0.0);
        for tick in 1..=100 {
            round.measure_growth(5_000_000 + tick * 2_000_000, 1_000 + tick * 20_000_000);
        }
        assert!((99e6..=100e6).contains(&round.growth), "{}", round.growth);
    }
}
