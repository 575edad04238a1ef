//! One round: run, kill, recover on one thread and on all, check.

use super::check::Found;
use super::journal::{self, Entry};
use super::work::Size;
use super::{Medium, RoundSettings};
use hdrhistogram::Histogram;
use hyades_cli::children::{self, Ending};
use hyades_cli::failure::Failure;
use hyades_cli::place::Place;
use hyades_cli::progress::Bar;
use hyades_cli::units;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdout};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Parameters of a round.
pub struct Plan {
    /// The storage of the log.
    pub medium: Medium,
    /// Log streams.
    pub streams: usize,
    /// The seed of inputs and of torn sectors.
    pub seed: u64,
    /// The size of the database.
    pub size: Size,
    /// Seconds from the child's first acknowledgement to its kill.
    pub kill_after: f64,
}

/// The result of a round.
pub struct Round {
    /// Transactions acknowledged to this process.
    pub acknowledged: u64,
    /// Seconds from the first acknowledgement to the last.
    pub seconds: f64,
    /// Latencies in microseconds.
    pub latency: Histogram<u64>,
    /// Log streams.
    pub streams: usize,
    /// Recovery on one thread.
    pub alone: Found,
    /// Recovery on all threads, and the checks after it.
    pub together: Found,
}

impl Round {
    /// Whether all checks hold.
    pub fn holds(&self) -> bool {
        self.acknowledged > 0
            && self.alone.refused.is_none()
            && self.together.refused.is_none()
            && self.states_agree()
            && self.together.missing == 0
            && self.together.violations == 0
    }

    /// Whether recovery on one thread and on all lead to the same state.
    pub fn states_agree(&self) -> bool {
        self.alone.digest == self.together.digest
    }
}

/// Runs a round.
///
/// # Errors
/// A process could not be started, or exited by itself; or a file could not be written.
pub fn run(plan: &Plan) -> Result<Round, Failure> {
    let place = Place::temporary(&std::env::temp_dir())?;
    let dir = &place.dirs[0];
    let mut settings = RoundSettings {
        dir: dir.clone(),
        medium: plan.medium,
        streams: plan.streams,
        seed: plan.seed,
        size: plan.size,
        recovery_threads: 0,
        journal: dir.with_file_name("journal"),
    };
    let heard = run_and_kill(plan, &settings)?;
    // Recovery changes the log, so each recovery gets its own copy of the files after the crash.
    let copy = dir.with_file_name("copy");
    copy_files(dir, &copy).map_err(Failure::doing("cannot copy the log"))?;
    settings.dir = copy.clone();
    settings.recovery_threads = 1;
    let alone: Found = children::run("demo-recover", &settings, Ending::Good)?;
    std::fs::remove_dir_all(&copy).map_err(Failure::doing("cannot remove the copy"))?;
    settings.dir = dir.clone();
    settings.recovery_threads = 0;
    let together: Found = children::run("demo-check", &settings, Ending::Good)?;
    Ok(Round {
        acknowledged: heard.entries,
        seconds: heard.seconds,
        latency: heard.latency,
        streams: plan.streams,
        alone,
        together,
    })
}

/// The acknowledgements received through the pipe.
struct Heard {
    entries: u64,
    seconds: f64,
    latency: Histogram<u64>,
}

fn run_and_kill(plan: &Plan, settings: &RoundSettings) -> Result<Heard, Failure> {
    let file =
        File::create(&settings.journal).map_err(Failure::doing("cannot create the journal"))?;
    let mut child = children::spawn("demo-child", settings)?;
    let pipe = child.stdout.take().expect("standard output is piped");
    // Counted by the listener, read here for progress only, hence Relaxed.
    let entries = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let listener = scope.spawn(|| listen(pipe, file, &entries));
        let killed = wait_and_kill(plan, &mut child, &entries);
        // Also after an error, end the child, and with it the pipe.
        let _ = child.kill();
        let _ = child.wait();
        let heard = listener.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        killed?;
        heard.map_err(Failure::doing("cannot write the journal"))
    })
}

/// Writes entries to the journal as they arrive.
fn listen(pipe: ChildStdout, file: File, entries: &AtomicU64) -> io::Result<Heard> {
    let mut journal = BufWriter::new(file);
    let mut latency = Histogram::new(3).expect("three significant digits are supported");
    latency.auto(true);
    let (mut first, mut last) = (None, Instant::now());
    let mut failure = None;
    journal::read_all(pipe, |entry: Entry| {
        let count = entries.fetch_add(1, Ordering::Relaxed);
        // Read the clock for some entries only.
        if count.is_multiple_of(64) {
            last = Instant::now();
            first.get_or_insert(last);
        }
        latency.record(u64::from(entry.latency_us).max(1)).expect("the histogram resizes itself");
        if let Err(error) = journal.write_all(&entry.encode()) {
            failure.get_or_insert(error);
        }
    })?;
    journal.flush()?;
    let seconds = first.map_or(0.0, |first| (last - first).as_secs_f64());
    match failure {
        Some(error) => Err(error),
        None => Ok(Heard { entries: entries.load(Ordering::Relaxed), seconds, latency }),
    }
}

fn wait_and_kill(plan: &Plan, child: &mut Child, entries: &AtomicU64) -> Result<(), Failure> {
    let bar = Bar::new("running", (plan.kill_after * 1000.0) as u64);
    let mut began = None;
    loop {
        if let Some(status) = child.try_wait().map_err(Failure::doing("cannot wait"))? {
            return Err(Failure::Failed(format!("the child exited by itself, with {status}")));
        }
        let count = entries.load(Ordering::Relaxed);
        if count > 0 {
            let elapsed = began.get_or_insert_with(Instant::now).elapsed().as_secs_f64();
            bar.set((elapsed * 1000.0) as u64);
            bar.say(format!("{} transactions acknowledged", units::exact(count)));
            let left = plan.kill_after - elapsed;
            if left <= 0.0 {
                break;
            }
            std::thread::sleep(Duration::from_secs_f64(left.min(0.1)));
        } else {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    child.kill().map_err(Failure::doing("cannot kill the child"))?;
    let status = child.wait().map_err(Failure::doing("cannot wait for the child"))?;
    let count = units::exact(entries.load(Ordering::Relaxed));
    bar.finish(&format!(
        "killed after {}: {count} transactions were acknowledged, with those that only read",
        units::time(plan.kill_after)
    ));
    match status.signal() {
        Some(_) => Ok(()),
        None => Err(Failure::Failed(format!("the child exited by itself, with {status}"))),
    }
}

fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_files(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
