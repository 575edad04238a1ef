//! Watchdog for tests that hang: after minutes it prints the backtrace of each thread and aborts.

use std::backtrace::Backtrace;
use std::io::{Write, stderr};
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Bound for the duration of the watched test, far above the duration of any test.
const PATIENCE: Duration = Duration::from_secs(240);

/// The first watchdog that fires aborts the process.
static ENDING: Mutex<()> = Mutex::new(());

/// The watchdog runs until this value is dropped.
pub struct Watched {
    /// Dropped at the end, which stops the watchdog.
    _over: Sender<()>,
}

/// Starts a watchdog that aborts the process and prints `what` unless dropped within minutes.
pub fn watched(what: &str) -> Watched {
    let (over, seen) = channel();
    let what = what.to_string();
    // Sleeps until the sender is dropped, because some tests count context switches.
    let watch = move || {
        if seen.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            let _one = ENDING.lock();
            // Not by a macro: the test harness would capture the output until the test ends.
            let _ = writeln!(stderr(), "hangs: {what}");
            say_where_threads_stand();
            std::process::abort();
        }
    };
    std::thread::Builder::new().name("watch".into()).spawn(watch).unwrap();
    Watched { _over: over }
}

extern "C" fn say_where_this_thread_stands(_signal: libc::c_int) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("?").to_string();
    let _ = writeln!(stderr(), "== thread {name}\n{}", Backtrace::force_capture());
}

/// Interrupts one thread after the other. The signal handler is not safe at every point of a
/// program, but this process is about to abort.
fn say_where_threads_stand() {
    // SAFETY: the handler has the required signature and exists as long as the program.
    unsafe { libc::signal(libc::SIGUSR1, say_where_this_thread_stands as *const () as usize) };
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let Ok(id) = task.file_name().to_string_lossy().parse::<libc::pid_t>() else { continue };
        // SAFETY: this sends a signal to a thread of this process, or to none if that thread has
        // ended.
        unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), id, libc::SIGUSR1) };
        std::thread::sleep(Duration::from_millis(200));
    }
}
