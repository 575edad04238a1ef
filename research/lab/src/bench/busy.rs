//! The processors that a run keeps busy.

use serde::{Deserialize, Serialize};

/// The processor time of threads within the interval, over its length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BusyProcessors {
    /// Of the workers.
    pub workers: f64,
    /// Of all other threads of the process: flushers, sites, scanners, and what the system does for
    /// them.
    pub others: f64,
}

impl BusyProcessors {
    /// From nanoseconds of the workers, and of all threads, in this many seconds.
    pub fn new(workers_ns: u64, all_ns: u64, seconds: f64) -> Self {
        let over = |ns: u64| ns as f64 / 1e9 / seconds;
        BusyProcessors {
            workers: over(workers_ns),
            others: over(all_ns.saturating_sub(workers_ns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_threads_have_what_the_workers_leave() {
        let busy = BusyProcessors::new(1_500_000_000, 2_000_000_000, 1.0);
        assert_eq!(busy, BusyProcessors { workers: 1.5, others: 0.5 });
        // The workers' clocks are read a little later than that of the process.
        assert_eq!(BusyProcessors::new(3, 2, 1e-9), BusyProcessors { workers: 3.0, others: 0.0 });
    }
}
