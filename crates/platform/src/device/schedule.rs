//! Computes the time of a request's completion on a device of a given speed: the arithmetic of a
//! throttled device, without a clock and without waiting, for exact tests.

/// How fast a device is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttle {
    /// Bytes per second, of reads and writes together; `None` is unlimited.
    pub bytes_per_s: Option<f64>,
    /// Nanoseconds from the last byte of a request to its completion. Reads continuing at the end
    /// of the last read have no latency, as if read ahead.
    pub latency_ns: u64,
    /// Requests served at a time, at least 1: latencies overlap, transfers do not.
    pub depth: usize,
}

impl Default for Throttle {
    fn default() -> Self {
        Throttle { bytes_per_s: None, latency_ns: 0, depth: 1 }
    }
}

/// Upper bound of the compensated idle time, in nanoseconds. Threads wake late, and a real device
/// would not have been idle meanwhile.
const CREDIT_NS: u64 = 2_000_000;

/// The requests accepted so far. Times are nanoseconds of a single clock.
#[derive(Debug)]
pub(super) struct Schedule {
    ns_per_byte: f64,
    latency_ns: u64,
    /// When the last request in each slot completes; there are `depth` slots.
    slots: Vec<u64>,
    /// When the last requested byte has been transferred.
    bytes_done: u64,
}

impl Schedule {
    pub fn new(throttle: Throttle) -> Self {
        Schedule {
            ns_per_byte: throttle.bytes_per_s.map_or(0.0, |rate| 1e9 / rate.max(1.0)),
            latency_ns: throttle.latency_ns,
            slots: vec![0; throttle.depth.max(1)],
            bytes_done: 0,
        }
    }

    /// Schedules a request with arrival time `arrival`, called at time `now`; `positioned` if the
    /// request has the latency. Returns the completion time. Requests are served in the order of
    /// the calls.
    pub fn admit(&mut self, arrival: u64, now: u64, bytes: u64, positioned: bool) -> u64 {
        let slot = self.slots.iter_mut().min().expect("there is at least one");
        let begin = arrival.max(*slot).max(now.saturating_sub(CREDIT_NS));
        let transfer = (bytes as f64 * self.ns_per_byte).round() as u64;
        self.bytes_done = self.bytes_done.max(begin) + transfer;
        *slot = self.bytes_done + if positioned { self.latency_ns } else { 0 };
        *slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// 8 MB/s is 125 ns per byte.
    fn eight_mb(latency_ns: u64, depth: usize) -> Schedule {
        Schedule::new(Throttle { bytes_per_s: Some(8e6), latency_ns, depth })
    }

    #[test]
    fn bytes_take_their_time_whoever_sends_them() {
        let mut schedule = eight_mb(0, 1);
        let begin = 1_000 * MS;
        let mut done = begin;
        for stream in 0..80 {
            // All arrived at the beginning.
            done = schedule.admit(begin, begin, 100_000 + stream, false);
        }
        let bytes: u64 = (0..80).map(|stream| 100_000 + stream).sum();
        assert_eq!(done - begin, bytes * 125);
    }

    #[test]
    fn latencies_overlap_as_far_as_the_queue_is_deep() {
        let last_of_eight = |depth| {
            let mut schedule = eight_mb(MS, depth);
            (0..8).map(|_| schedule.admit(5 * MS, 5 * MS, 800, true)).max().unwrap() - 5 * MS
        };
        // 800 bytes are 100 us.
        assert_eq!(last_of_eight(1), 8 * (MS + MS / 10));
        assert_eq!(last_of_eight(2), 4 * (MS + MS / 10) + MS / 10);
        assert_eq!(last_of_eight(8), MS + 8 * (MS / 10));
    }

    #[test]
    fn an_idle_device_saves_nothing_up() {
        let mut schedule = eight_mb(0, 1);
        schedule.admit(0, 0, 8_000, false);
        let now = 10_000 * MS;
        assert_eq!(schedule.admit(now, now, 8_000, false), now + MS);
        assert_eq!(schedule.admit(now, now, 8_000, false), now + 2 * MS);
    }

    #[test]
    fn waking_late_costs_the_device_nothing_and_a_pause_gains_it_nothing() {
        let mut schedule = eight_mb(0, 1);
        let first = schedule.admit(10 * MS, 10 * MS, 8_000, false);
        // The thread woke 60 us late and sent the next request at once.
        let second = schedule.admit(first, first + 60_000, 8_000, false);
        assert_eq!(second, first + MS);
        // The thread was stopped for a second.
        let late = second + 1_000 * MS;
        assert_eq!(schedule.admit(second, late, 8_000, false), late - CREDIT_NS + MS);
    }

    #[test]
    fn no_limit_is_none() {
        let mut schedule = Schedule::new(Throttle::default());
        assert_eq!(schedule.admit(7, 7, u64::MAX / 4, true), 7);
    }
}
