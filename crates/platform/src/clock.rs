//! Clocks and sleeping. A thread can run in simulated time, see [`simulate`].

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The origin of [`monotonic_ns`]: its first call in the process.
static START: OnceLock<Instant> = OnceLock::new();

thread_local! {
    /// The simulated time of the thread in nanoseconds; `None` for the machine's clocks.
    static SIMULATED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Sets the calling thread's monotonic, boot and wall clock to `ns` nanoseconds; `None` returns to
/// the machine's clocks. Makes single-threaded simulations repeatable.
pub fn simulate(ns: Option<u64>) {
    SIMULATED.set(ns);
}

/// Whether the calling thread's clocks are simulated.
pub fn is_simulated() -> bool {
    SIMULATED.get().is_some()
}

/// Nanoseconds since a fixed moment in the life of the process; never goes back.
pub fn monotonic_ns() -> u64 {
    if let Some(ns) = SIMULATED.get() {
        return ns;
    }
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Nanoseconds since the start of the machine, by a clock that runs on while the machine is
/// suspended; never goes back. For leases: [`monotonic_ns`] stands still in a suspended machine.
/// The values of the two clocks cannot be compared.
pub fn boot_ns() -> u64 {
    if let Some(ns) = SIMULATED.get() {
        return ns;
    }
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::Boottime;
    // Of the other systems' clocks, this one counts suspended time where any clock does.
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Monotonic;
    read_ns(clock)
}

/// Processor time used by the calling thread, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    read_ns(rustix::time::ClockId::ThreadCPUTime)
}

/// Processor time used by all threads of the process, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    read_ns(rustix::time::ClockId::ProcessCPUTime)
}

fn read_ns(clock: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sleeps until [`monotonic_ns`] is at least `ns`. In simulated time, advances the clock instead.
pub fn sleep_until(ns: u64) {
    wait_until(ns, |left| std::thread::sleep(Duration::from_nanos(left)));
}

/// Like [`sleep_until`], but spins: models a thread waiting for memory.
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

/// Milliseconds since 1970 by the wall clock, which may jump; 0 for a clock set before 1970.
pub fn wall_ms() -> u64 {
    if let Some(ns) = SIMULATED.get() {
        return ns / 1_000_000;
    }
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// Microseconds since 1970 by the wall clock, which may jump; 0 for a clock set before 1970.
pub fn wall_us() -> u64 {
    if let Some(ns) = SIMULATED.get() {
        return ns / 1000;
    }
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_runs_and_is_simulated() {
        let before = boot_ns();
        std::thread::sleep(Duration::from_millis(2));
        let passed = boot_ns() - before;
        assert!((2_000_000..60_000_000_000).contains(&passed), "{passed} ns have passed");
        simulate(Some(7));
        sleep_until(9);
        assert_eq!((boot_ns(), monotonic_ns()), (9, 9));
        simulate(None);
        assert!(boot_ns() > before, "it was the clock of this thread alone");
    }
}
