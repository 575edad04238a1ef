//! What all threads of a server share.

use crate::access::Access;
use crate::channels::Channels;
use crate::clients::Clients;
use crate::clock::{Clock, wall_us};
use crate::command_stats::CommandStats;
use crate::config::Settings;
use crate::data::Tables;
use crate::data::counts::KeyCounts;
use crate::data::keyspace::Effects;
use crate::expiry::Timers;
use crate::handshakes::FailedHandshakes;
use crate::histogram::TimeHistogram;
use crate::latency_events::LatencyEvents;
use crate::listener::ListeningPlaces;
use crate::memory::MemoryUse;
use crate::migration::{KeptTargets, Lookups};
use crate::monitors::Monitors;
use crate::oom_score::OomScore;
use crate::opening::Opening;
use crate::pause::Pause;
use crate::rates::Rates;
use crate::saves::Saves;
use crate::slow_log::SlowLog;
use crate::standstill::Standstill;
use crate::waiting::WaitQueues;
use hyades::{Database, Progress};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant, UNIX_EPOCH};

/// How the names of a checkpoint's files begin.
const PART_PREFIX: &[u8] = b"checkpoint-";

/// A database that is open.
pub struct Opened {
    /// The database.
    pub database: Database,
    /// Its tables.
    pub tables: Tables,
}

/// Why a server stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopping {
    /// It was asked to.
    Asked,
    /// Its log failed, or it could not be opened.
    Failed(String),
}

/// Counters, by the names of INFO.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections accepted.
    pub connections: AtomicU64,
    /// Connections refused.
    pub rejected: AtomicU64,
    /// Commands run.
    pub commands: AtomicU64,
    /// Bytes received.
    pub input: AtomicU64,
    /// Bytes sent.
    pub output: AtomicU64,
    /// Reading commands that found their key.
    pub hits: AtomicU64,
    /// Reading commands that did not.
    pub misses: AtomicU64,
    /// Expired keys removed.
    pub expired: AtomicU64,
    /// Values written, changed or removed since the last save.
    pub changes: AtomicU64,
    /// Runs that met a conflict.
    pub conflicts: AtomicU64,
    /// Runs that were run with patience, since they had starved.
    pub alone: AtomicU64,
    /// Transactions that were run on a thread of their own since they read or write much.
    pub large: AtomicU64,
    /// Collections and strings whose blocks or chunks were removed.
    pub freed: AtomicU64,
    /// Calls of the system that have read from clients' sockets.
    pub reads: AtomicU64,
    /// Calls of the system that have written to them.
    pub writes: AtomicU64,
    /// Error replies.
    pub errors: AtomicU64,
    /// Connections closed since their encryption has failed.
    pub tls_failures: AtomicU64,
    /// Clients disconnected for a request that is longer than they may send.
    pub over_input: AtomicU64,
    /// Clients disconnected since they have left too much unread.
    pub over_output: AtomicU64,
    /// Turns of event loops.
    pub cycles: AtomicU64,
    /// Times that an event loop woke up.
    pub turns: AtomicU64,
    /// Nanoseconds that transactions took from their commit to their acknowledgement.
    pub acknowledged_nanos: AtomicU64,
}

/// State of a server.
pub struct Shared {
    /// Settings.
    pub settings: Settings,
    /// Wall clock.
    pub clock: Clock,
    /// Users, and their rules.
    pub access: Access,
    /// Connected clients.
    pub clients: Clients,
    /// Counters.
    pub counters: Counters,
    /// Rates of some of them.
    pub rates: Rates,
    /// Calls and times of commands.
    pub command_stats: CommandStats,
    /// Times from the commit of a transaction to its acknowledgement, of those that waited for the
    /// disk.
    pub acknowledged: TimeHistogram,
    /// Commands that took long.
    pub slow_log: SlowLog,
    /// Commands that took as long as `latency-monitor-threshold` says.
    pub latency_events: LatencyEvents,
    /// Memory of the process.
    pub memory: MemoryUse,
    /// Clients whose encryption has failed.
    pub failed_handshakes: FailedHandshakes,
    /// Error replies by their first word.
    pub errors: Mutex<BTreeMap<String, u64>>,
    /// Numbers of keys.
    pub counts: KeyCounts,
    /// When keys expire.
    pub timers: Timers,
    /// Publish and subscribe.
    pub channels: Arc<Channels>,
    /// CLIENT PAUSE.
    pub pause: Pause,
    /// DEBUG SLEEP.
    pub standstill: Standstill,
    /// How soon the system kills the process when memory runs out.
    pub oom_score: OomScore,
    /// Clients that monitor.
    pub monitors: Arc<Monitors>,
    /// Clients that wait for an element.
    pub waiting: Arc<WaitQueues>,
    /// The database, once it is open.
    pub opened: OnceLock<Opened>,
    /// What opening it took, and found.
    pub opening: OnceLock<Opening>,
    /// How far recovery has got.
    pub progress: Mutex<Option<Progress>>,
    /// Checkpoints that clients ask for.
    pub saves: Saves,
    /// Connections to the targets of MIGRATE.
    pub targets: KeptTargets,
    /// Look-ups of their names.
    pub lookups: Lookups,
    /// When a checkpoint was taken last, in seconds since 1970, and how many had been.
    last_save: Mutex<Option<(u64, i64)>>,
    /// When the server was started.
    pub started: Instant,
    /// The number of this run, 40 hexadecimal digits.
    pub run_id: String,
    /// The port that is listened to.
    pub port: AtomicU64,
    /// Where is listened at.
    pub listening: ListeningPlaces,
    /// Clients that were disconnected at the end of the time of a stop: they had not read their
    /// replies, or had not got them.
    pub cut_off: AtomicU64,
    stopping: Mutex<Option<Stopping>>,
    stopped: Condvar,
    /// Wakers of the event loops and of the listener.
    wakers: Mutex<Vec<Waker>>,
    reap_at: Mutex<ReapTimes>,
    reap: Condvar,
    /// Transactions that have starved and are being run: others may find the gate closed.
    pub patient: AtomicU64,
}

impl Default for ReapTimes {
    fn default() -> ReapTimes {
        ReapTimes { next: i64::MAX, earliest: 0, in_pass: false, garbage: false }
    }
}

/// When the reaper looks for keys of databases that were flushed, in milliseconds since 1970.
struct ReapTimes {
    /// There is something to remove then; 0: now, `i64::MAX`: never.
    next: i64,
    /// It pauses until then, whatever there is to remove.
    earliest: i64,
    /// A pass over the keys is under way: it goes on at `earliest`, and `next` is for the one
    /// that follows.
    in_pass: bool,
    /// There are blocks to remove.
    garbage: bool,
}

/// What the reaper is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaping {
    /// To walk over the keys.
    Keys,
    /// To remove blocks that are garbage.
    Garbage,
}

impl Shared {
    /// The state of a server that starts now.
    pub fn new(settings: Settings) -> Arc<Shared> {
        Arc::new(Shared {
            access: Access::new(settings.users().clone()),
            channels: Channels::new(settings.output_limits.clone()),
            monitors: Monitors::new(settings.output_limits.clone()),
            settings,
            clock: Clock::default(),
            clients: Clients::default(),
            counters: Counters::default(),
            rates: Rates::default(),
            command_stats: CommandStats::default(),
            acknowledged: TimeHistogram::default(),
            slow_log: SlowLog::default(),
            latency_events: LatencyEvents::default(),
            memory: MemoryUse::default(),
            failed_handshakes: FailedHandshakes::default(),
            errors: Mutex::default(),
            counts: KeyCounts::default(),
            timers: Timers::default(),
            pause: Pause::default(),
            standstill: Standstill::default(),
            oom_score: OomScore::default(),
            waiting: Arc::default(),
            opened: OnceLock::new(),
            opening: OnceLock::new(),
            progress: Mutex::default(),
            saves: Saves::default(),
            targets: KeptTargets::default(),
            lookups: Lookups::default(),
            last_save: Mutex::default(),
            started: Instant::now(),
            run_id: (0..5).map(|_| format!("{:08x}", fastrand::u32(..))).collect(),
            port: AtomicU64::new(0),
            listening: ListeningPlaces::default(),
            cut_off: AtomicU64::new(0),
            stopping: Mutex::default(),
            stopped: Condvar::new(),
            wakers: Mutex::default(),
            reap_at: Mutex::default(),
            patient: AtomicU64::new(0),
            reap: Condvar::new(),
        })
    }

    /// Adds a thread that is woken when something changes for all.
    pub fn add_waker(&self, waker: Waker) {
        self.wakers.lock().expect("no holder panics").push(waker);
    }

    /// Wakes all event loops and the listener.
    pub fn wake_all(&self) {
        self.wakers.lock().expect("no holder panics").iter().for_each(Waker::wake_by_ref);
    }

    /// Stops the server; the first cause counts.
    pub fn stop(&self, cause: Stopping) {
        self.stopping.lock().expect("no holder panics").get_or_insert(cause);
        self.stopped.notify_all();
        // The reaper looks for the cause, then waits, under this lock: it does not sleep between.
        drop(self.reap_at.lock().expect("no holder panics"));
        self.reap.notify_all();
        self.timers.wake();
        self.saves.stop();
        self.wake_all();
    }

    /// Stops the server because its log has failed.
    pub fn stop_for_log(&self, cause: &str) {
        self.stop(Stopping::Failed(format!("the log failed: {cause}")));
    }

    /// Why the server stops, if it does.
    pub fn stopping(&self) -> Option<Stopping> {
        self.stopping.lock().expect("no holder panics").clone()
    }

    /// Waits until the server stops.
    pub fn wait_for_stop(&self) -> Stopping {
        let mut stopping = self.stopping.lock().expect("no holder panics");
        loop {
            match &*stopping {
                Some(cause) => return cause.clone(),
                None => stopping = self.stopped.wait(stopping).expect("no holder panics"),
            }
        }
    }

    /// Waits until the server stops, or until this time has passed.
    pub fn wait_for_stop_at_most(&self, time: Duration) {
        let stopping = self.stopping.lock().expect("no holder panics");
        let goes_on = |stopping: &mut Option<Stopping>| stopping.is_none();
        let _ended = self.stopped.wait_timeout_while(stopping, time, goes_on);
    }

    /// A transaction has been acknowledged so long after its commit.
    pub fn note_acknowledged(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.acknowledged.add(nanos);
        self.counters.acknowledged_nanos.fetch_add(nanos, Relaxed);
    }

    /// How far recovery has got, in words.
    pub fn loading(&self) -> String {
        let progress = self.progress.lock().expect("no holder panics").clone();
        let Some(progress) = progress else { return "the database is being opened".to_string() };
        let percent = (100.0 * progress.share()) as u64;
        match progress.estimate_seconds {
            Some(left) => format!("{percent} %, about {left:.0} s left"),
            None => format!("{percent} %"),
        }
    }

    /// Why the log has failed, if it has.
    pub fn log_failure(&self) -> Option<String> {
        let log = self.opened.get()?.database.log()?;
        log.poisoned().map(|poisoned| poisoned.cause.to_string())
    }

    /// When the newest checkpoint was written, in seconds since 1970; before there is one, when the
    /// server was started.
    pub fn last_save_seconds(&self) -> i64 {
        let started = || wall_us() as i64 / 1_000_000 - self.started.elapsed().as_secs() as i64;
        let Some(opened) = self.opened.get() else { return started() };
        let taken = opened.database.checkpoints().taken;
        let mut last = self.last_save.lock().expect("no holder panics");
        match *last {
            Some((known, seconds)) if known == taken => seconds,
            _ => {
                let seconds = newest_checkpoint(&self.settings.dir()).unwrap_or_else(started);
                *last = Some((taken, seconds));
                seconds
            }
        }
    }

    /// Applies what a committed transaction does beside its rows.
    pub fn apply(&self, effects: &Effects) {
        effects.counts.iter().for_each(|change| self.counts.apply(*change));
        let add = |counter: &AtomicU64, n: u64| {
            if n > 0 {
                counter.fetch_add(n, Relaxed);
            }
        };
        add(&self.counters.hits, effects.hits);
        add(&self.counters.misses, effects.misses);
        add(&self.counters.expired, effects.expired);
        // Redis saves at FLUSHALL if it saves at all. Here nothing is left to save.
        let saves = || self.settings.has_times_of_saving();
        let saved = effects.flushed_all_after.filter(|_| saves());
        if saved.is_some() {
            self.counters.changes.store(0, Relaxed);
        }
        add(&self.counters.changes, effects.changes - saved.unwrap_or(0));
        if !effects.fills.is_empty() {
            self.waiting.call(effects.fills.keys.iter());
            if effects.fills.unnamed {
                self.waiting.call_all();
            }
            effects.fills.databases.iter().for_each(|of| self.waiting.call_database(*of));
        }
        if effects.discarded {
            self.reap_garbage();
        }
        if effects.flushed || effects.swapped {
            self.timers.note_generations();
        }
        if effects.flushed {
            self.reap_no_later_than(0);
        }
        if !effects.expiries.is_empty() {
            self.timers.add(&effects.expiries);
        }
    }

    /// Counts an error reply by its first word.
    pub fn count_error(&self, text: &str) {
        self.counters.errors.fetch_add(1, Relaxed);
        let code = text.split(' ').next().unwrap_or("").to_string();
        *self.errors.lock().expect("no holder panics").entry(code).or_default() += 1;
    }

    /// Has the reaper look for keys to remove at this time, or earlier.
    pub fn reap_no_later_than(&self, at_ms: i64) {
        let mut reap_at = self.reap_at.lock().expect("no holder panics");
        if at_ms < reap_at.next {
            reap_at.next = at_ms;
            self.reap.notify_all();
        }
    }

    /// For the reaper: it pauses until then.
    pub fn reap_no_earlier_than(&self, at_ms: i64) {
        self.reap_at.lock().expect("no holder panics").earliest = at_ms;
    }

    /// For the reaper: the pass over the keys has ended that began when it was told to walk.
    pub fn end_reaping_pass(&self) {
        self.reap_at.lock().expect("no holder panics").in_pass = false;
    }

    /// Has the reaper remove blocks that are garbage.
    pub fn reap_garbage(&self) {
        self.reap_at.lock().expect("no holder panics").garbage = true;
        self.reap.notify_all();
    }

    /// For the reaper: waits until there is something to do, and forgets it, but for a pass over
    /// the keys until that [has ended](Shared::end_reaping_pass). `None` if the server stops.
    pub fn wait_to_reap(&self) -> Option<Reaping> {
        let mut reap_at = self.reap_at.lock().expect("no holder panics");
        loop {
            if self.stopping().is_some() {
                return None;
            }
            if std::mem::take(&mut reap_at.garbage) {
                return Some(Reaping::Garbage);
            }
            let now = self.clock.now_ms();
            let next = if reap_at.in_pass { i64::MIN } else { reap_at.next };
            let next = next.max(reap_at.earliest);
            if next <= now {
                if !std::mem::replace(&mut reap_at.in_pass, true) {
                    reap_at.next = i64::MAX;
                }
                return Some(Reaping::Keys);
            }
            reap_at = match next {
                i64::MAX => self.reap.wait(reap_at).expect("no holder panics"),
                at => {
                    let left = Duration::from_millis((at - now).clamp(1, 60_000) as u64);
                    self.reap.wait_timeout(reap_at, left).expect("no holder panics").0
                }
            };
        }
    }
}

/// When the newest checkpoint in a directory was written, by its files.
fn newest_checkpoint(dir: &Path) -> Option<i64> {
    let files = std::fs::read_dir(dir).ok()?.flatten();
    let parts = files.filter(|file| file.file_name().as_encoded_bytes().starts_with(PART_PREFIX));
    let newest = parts.filter_map(|file| file.metadata().ok()?.modified().ok()).max()?;
    Some(newest.duration_since(UNIX_EPOCH).ok()?.as_secs() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::time::SystemTime;

    #[test]
    fn the_last_save_is_when_the_newest_checkpoint_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().display().to_string();
        let mut builder = Database::builder();
        let tables = Tables::declare(&mut builder);
        let database = builder.open(dir.path()).unwrap();
        let opened = || {
            let shared = Shared::new(Settings::from_arguments(&["--dir", &name]).unwrap());
            let database = database.clone();
            assert!(shared.opened.set(Opened { database, tables }).is_ok());
            shared
        };
        let now = || wall_us() as i64 / 1_000_000;
        assert!((now() - opened().last_save_seconds()).abs() < 60);
        database.checkpoint().unwrap();
        let then = SystemTime::now() - Duration::from_secs(1_000);
        let age = || {
            for file in std::fs::read_dir(dir.path()).unwrap().flatten() {
                if file.file_name().as_encoded_bytes().starts_with(PART_PREFIX) {
                    let file = File::options().write(true).open(file.path()).unwrap();
                    file.set_modified(then).unwrap();
                }
            }
        };
        age();
        let shared = opened();
        assert!((now() - 1_000 - shared.last_save_seconds()).abs() < 60);
        // It is read again after the next one, and only then.
        database.checkpoint().unwrap();
        assert!((now() - shared.last_save_seconds()).abs() < 60);
        age();
        assert!((now() - shared.last_save_seconds()).abs() < 60);
    }
}
