//! Watches a process from outside: its memory, and whether its threads go on.

use hyades_platform::resident::resident_bytes_of;
use hyades_platform::sync::locked;
use rustix::process::{Pid, Signal, kill_process};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The time between two looks at the process.
const TICK: Duration = Duration::from_millis(20);

/// Without progress for so long, the stacks of all threads are printed.
const STALLS_AFTER: Duration = Duration::from_secs(5);

/// Without progress for so long, the process hangs.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// The start of a line with the counters of the database, which is no progress.
pub(super) const COUNTERS: &str = "counters";

/// The observations of a process.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Lines printed by the process, each of them progress. Written by its reader, read by the
    /// watch: Relaxed.
    lines: AtomicU64,
    /// Set once the process has printed the state found, at the end of the opening. Relaxed.
    has_opened: AtomicBool,
    /// The most bytes in memory.
    most_memory: AtomicU64,
    /// The longest time without progress, in milliseconds.
    longest_ms: AtomicU64,
    /// The counters printed last by the process.
    counters: Mutex<String>,
    wrong: Mutex<Option<String>>,
}

impl Watch {
    /// Takes note of a line printed by the process.
    pub fn take(&self, line: &str) {
        if line.starts_with(COUNTERS) {
            *locked(&self.counters) = line.to_string();
            return;
        }
        if line.starts_with("found") {
            self.has_opened.store(true, Ordering::Relaxed);
        }
        self.lines.fetch_add(1, Ordering::Relaxed);
    }

    /// The state of the process, and the counters of its database, when the process had too much
    /// memory.
    fn circumstances(&self, pid: Pid, after: Duration) -> String {
        let opened = self.has_opened.load(Ordering::Relaxed);
        let (lines, counters) = (self.lines.load(Ordering::Relaxed), locked(&self.counters));
        let state = if opened { "open" } else { "opening" };
        format!("{state} after {after:?}, {lines} lines printed, {counters}\n{}", stacks(pid))
    }

    /// Watches a process for a time, then kills it.
    pub fn watch(&self, pid: Pid, time: Duration, memory_limit: u64) {
        let began = Instant::now();
        let (mut lines, mut progress, mut printed) = (0, began, false);
        while began.elapsed() < time {
            std::thread::sleep(TICK);
            let Some(bytes) = resident_bytes_of(pid.as_raw_nonzero().get() as u32) else { break };
            self.most_memory.fetch_max(bytes, Ordering::Relaxed);
            if bytes > memory_limit {
                let circumstances = self.circumstances(pid, began.elapsed());
                self.say_wrong(format!(
                    "{bytes} bytes in memory are more than {memory_limit}: {circumstances}"
                ));
                break;
            }
            let now = self.lines.load(Ordering::Relaxed);
            if now != lines || !self.has_opened.load(Ordering::Relaxed) {
                (lines, progress, printed) = (now, Instant::now(), false);
            }
            let idle = progress.elapsed();
            self.longest_ms.fetch_max(idle.as_millis() as u64, Ordering::Relaxed);
            if idle >= STALLS_AFTER && !printed {
                eprintln!("no progress for {} s: {}", idle.as_secs(), stacks(pid));
                printed = true;
            }
            if idle >= HANGS_AFTER {
                self.say_wrong(format!("no progress for {} s", idle.as_secs()));
                break;
            }
        }
        // Fails if the process has ended by itself. The process has then printed the error.
        let _ = kill_process(pid, Signal::KILL);
    }

    fn say_wrong(&self, what: String) {
        locked(&self.wrong).get_or_insert(what);
    }

    /// The most bytes in memory, the longest time without progress, and the error.
    pub fn found(self) -> (u64, Duration, Option<String>) {
        let longest = Duration::from_millis(self.longest_ms.into_inner());
        let wrong = self.wrong.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        (self.most_memory.into_inner(), longest, wrong)
    }
}

/// The stacks of all threads by the debugger, without frames of libraries; or without a debugger,
/// the system's description of the threads.
fn stacks(pid: Pid) -> String {
    let number = pid.as_raw_nonzero().to_string();
    let debugger = Command::new("gdb")
        .args(["-p", &number, "-batch", "-ex", "thread apply all backtrace 40"])
        .output();
    match debugger {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            let is_ours = |line: &&str| line.starts_with("Thread ") || line.contains(" at crates/");
            text.lines().filter(is_ours).map(|line| format!("\n{line}")).collect()
        }
        _ => crate::guard::threads(&number).join(", "),
    }
}
