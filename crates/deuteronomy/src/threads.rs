//! Ends of threads.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Waits for a thread up to `until`; returns whether the thread has ended. A panic of the thread
/// was reported when it happened, and has stopped the log.
pub(crate) fn ends_until(thread: JoinHandle<()>, until: Instant) -> bool {
    // Mostly the thread ends at once. A longer look takes no processor.
    for looks in 0.. {
        if thread.is_finished() {
            let _ = thread.join();
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(Duration::from_micros(50 << i32::min(looks, 6)));
    }
    unreachable!("it looks until then")
}
