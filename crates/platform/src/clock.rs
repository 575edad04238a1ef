//! Time.
//!
//! A thread may live in simulated time: see [`simulate`].

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where [`monotonic_ns`] counts from: the first call in the process.
static START: OnceLock<Instant> = OnceLock::new();

thread_local! {
    /// The nanoseconds that this thread takes for the time, if it is simulated.
    static SIMULATED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// From now on the calling thread's time is so many nanoseconds, since 1970 and since whenever, until
/// this is called again; `None` gives it the machine's clocks back. For simulations that one thread
/// runs, so that they can be repeated.
pub fn simulate(ns: Option<u64>) {
    SIMULATED.set(ns);
}

/// Nanoseconds since some moment in the life of the process; never goes back.
pub fn monotonic_ns() -> u64 {
    if let Some(ns) = SIMULATED.get() {
        return ns;
    }
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Nanoseconds of processor time that the calling thread has had.
pub fn thread_cpu_ns() -> u64 {
    cpu_ns(rustix::time::ClockId::ThreadCPUTime)
}

/// Nanoseconds of processor time that all threads of this process have had.
pub fn process_cpu_ns() -> u64 {
    cpu_ns(rustix::time::ClockId::ProcessCPUTime)
}

fn cpu_ns(clock: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sleeps until [`monotonic_ns`] is at least this. A thread in simulated time is there at once.
pub fn sleep_until(ns: u64) {
    wait_until(ns, |left| std::thread::sleep(Duration::from_nanos(left)));
}

/// As [`sleep_until`], but keeps the processor busy: what a thread does that waits for memory.
pub fn spin_until(ns: u64) {
    wait_until(ns, |_| std::hint::spin_loop());
}

fn wait_until(ns: u64, wait: impl Fn(u64)) {
    if let Some(now) = SIMULATED.get() {
        SIMULATED.set(Some(now.max(ns)));
        return;
    }
    while let Some(left) = ns.checked_sub(monotonic_ns()).filter(|left| *left > 0) {
        wait(left);
    }
}

/// Milliseconds since 1970 by the machine's clock, which may jump; 0 if it stands before 1970.
pub fn wall_ms() -> u64 {
    if let Some(ns) = SIMULATED.get() {
        return ns / 1_000_000;
    }
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// Microseconds since 1970 by the machine's clock, which may jump; 0 if it stands before 1970.
pub fn wall_us() -> u64 {
    if let Some(ns) = SIMULATED.get() {
        return ns / 1000;
    }
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64)
}
