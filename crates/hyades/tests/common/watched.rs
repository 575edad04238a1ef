//! A test that hangs tells nothing: after minutes it says where each thread stands, and ends.

use std::backtrace::Backtrace;
use std::io::{Write, stderr};
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// The longest that what is watched may take: far longer than anything here does.
const PATIENCE: Duration = Duration::from_secs(240);

/// Whoever is first ends the process.
static ENDING: Mutex<()> = Mutex::new(());

/// While it is there, somebody watches whether the test gets on.
pub struct Watched {
    /// Dropped when it is over.
    _over: Sender<()>,
}

/// Ends the process, and says what did not get on, if that takes minutes.
pub fn watched(what: &str) -> Watched {
    let (over, seen) = channel();
    let what = what.to_string();
    // Asleep until the sender is dropped: there are tests that count who is awake.
    let watch = move || {
        if seen.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            let _one = ENDING.lock();
            // Not by a macro: what a test prints is shown when it has ended.
            let _ = writeln!(stderr(), "does not get on: {what}");
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

/// Interrupts one thread after the other. What the handler does is not safe at every point of a
/// program; this one is about to be ended.
fn say_where_threads_stand() {
    // SAFETY: the handler has the signature that is asked for, and lives as long as the program.
    unsafe { libc::signal(libc::SIGUSR1, say_where_this_thread_stands as *const () as usize) };
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let Ok(id) = task.file_name().to_string_lossy().parse::<libc::pid_t>() else { continue };
        // SAFETY: sends a signal to a thread of this process, or to none if it has ended.
        unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), id, libc::SIGUSR1) };
        std::thread::sleep(Duration::from_millis(200));
    }
}
