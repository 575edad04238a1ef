//! Soak test: a process works on real files, is killed and restarted, for a given time. Each run
//! draws settings, data, devices, the behaviour of clients, and the work beside the clients. Each
//! restart compares the whole state with the acknowledged transactions. The process is watched from
//! outside: its resident memory has a bound that follows from the live data, and its threads have
//! to go on.

mod child;
mod data;
mod life;
mod removals;
mod watch;

pub use child::run_child;
pub use data::SoakData;
pub use life::SoakLife;

use rustix::process::{Pid, Signal};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use watch::Watch;

/// The first argument of the killed process. The directory and the life follow.
pub const CHILD: &str = "--child";

/// The knowledge of the parent about a database.
#[derive(Debug, Default)]
struct Known {
    /// For each worker, the last acknowledged transaction.
    acknowledged: BTreeMap<u64, u64>,
    answers: u64,
    most_memory: u64,
    longest_stall: Duration,
}

impl Known {
    /// Processes a line of the child's output. Returns the error if the line shows an error.
    fn take(&mut self, line: &str) -> Option<String> {
        let (kind, rest) = line.split_once(' ')?;
        match kind {
            "wrong" => return Some(rest.to_string()),
            "found" => {
                let counts: Vec<u64> = serde_json::from_str(rest).ok()?;
                let lost = |(worker, at_least): (&u64, &u64)| {
                    let there = counts.get(*worker as usize).copied().unwrap_or(0);
                    (there < *at_least).then(|| {
                        format!("worker {worker}: {at_least} were acknowledged, {there} are there")
                    })
                };
                return self.acknowledged.iter().find_map(lost);
            }
            "ack" => {
                let (worker, n) = rest.split_once(' ')?;
                let last = self.acknowledged.entry(worker.parse().ok()?).or_default();
                *last = n.parse::<u64>().ok()?.max(*last);
                self.answers += 1;
            }
            _ => {}
        }
        None
    }

    /// Starts a process and kills it after `time`.
    fn live(&mut self, dir: &Path, life: &SoakLife, time: Duration) -> Result<(), String> {
        let failed = |error: &dyn Error| format!("no process: {error}");
        let plan = serde_json::to_string(life).map_err(|error| failed(&error))?;
        let program = std::env::current_exe().map_err(|error| failed(&error))?;
        let mut child = Command::new(program)
            .args([CHILD, &dir.to_string_lossy(), &plan])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed(&error))?;
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let (pid, watch) = (Pid::from_child(&child), Watch::default());
        let mut wrong = None;
        std::thread::scope(|scope| {
            scope.spawn(|| watch.watch(pid, time, life.memory_limit()));
            for line in lines.map_while(Result::ok) {
                watch.take(&line);
                let found = self.take(&line);
                wrong = wrong.take().or(found);
            }
        });
        let (memory, stall, seen) = watch.found();
        self.most_memory = self.most_memory.max(memory);
        self.longest_stall = self.longest_stall.max(stall);
        let status = child.wait().map_err(|error| failed(&error))?;
        let ended = (status.signal() != Some(Signal::KILL.as_raw()))
            .then(|| format!("the process was not killed, it ended: {status}"));
        match wrong.or(seen).or(ended) {
            None => Ok(()),
            Some(wrong) => Err(format!("{wrong}\n{life:?}\n{self:?}, kept in {}", dir.display())),
        }
    }
}

/// Runs database after database in directories below `below`, until the time is over. Prints the
/// progress on standard output.
///
/// # Errors
/// The error, with the life of the error and the directory of the kept database.
pub fn soak(seconds: f64, seed: u64, below: &Path) -> Result<(), String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let began = Instant::now();
    let (mut databases, mut kills) = (0, 0);
    let (mut answers, mut most_memory, mut longest) = (0, 0, Duration::ZERO);
    println!("soak with seed {seed}");
    while began.elapsed().as_secs_f64() < seconds {
        let dir = below.join(format!("hyades-soak-{}-{databases}", std::process::id()));
        let (data, mut known) = (SoakData::random(&mut rng), Known::default());
        let striped = rng.u32(0..6) == 0;
        for _ in 0..rng.u32(2..8) {
            let longest = [300, 1500, 1500, 8000, 20_000][rng.usize(0..5)];
            let time = Duration::from_millis(rng.u64(20..longest));
            known.live(&dir, &SoakLife::random(&mut rng, data, striped), time)?;
            kills += 1;
        }
        // One more run checks the state left by the last kill.
        let last = SoakLife::random(&mut rng, data, striped);
        known.live(&dir, &last, Duration::from_secs(4))?;
        for dir in [dir.clone(), life::other_stripes(&dir)] {
            // Best effort: the directory is no longer needed.
            let _ = std::fs::remove_dir_all(&dir);
        }
        databases += 1;
        answers += known.answers;
        most_memory = most_memory.max(known.most_memory);
        longest = longest.max(known.longest_stall);
        println!(
            "{:.0} s: {databases} databases, {kills} kills, {answers} answers, at most {} MB in \
             memory, {:.1} s without progress, nothing wrong",
            began.elapsed().as_secs_f64(),
            most_memory / 1_000_000,
            longest.as_secs_f64()
        );
    }
    Ok(())
}
