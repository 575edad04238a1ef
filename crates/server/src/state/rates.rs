//! Rates of commands, bytes, expired keys and turns of event loops, for INFO. No thread takes
//! samples: a rate is the mean since the sample before, which INFO itself has taken, a second ago
//! or longer. So an idle server sleeps.

use super::counters::Counters;
use hyades_platform::sync::Unpoisoned;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Rates are not taken of a shorter time.
const SHORTEST: Duration = Duration::from_secs(1);

/// Commands, bytes received, bytes sent, keys expired and turns of loops, until a moment.
type Counts = [u64; 5];

/// Counters at a moment.
struct RateSample {
    at: Instant,
    counts: Counts,
    /// What was counted in each second of the time before.
    rates: [f64; 5],
}

impl RateSample {
    fn first() -> RateSample {
        RateSample { at: Instant::now(), counts: [0; 5], rates: [0.0; 5] }
    }
}

/// What is known of the rates.
pub struct Rates(Mutex<RateSample>);

impl Default for Rates {
    fn default() -> Rates {
        Rates(Mutex::new(RateSample::first()))
    }
}

impl Rates {
    /// Commands, bytes received, bytes sent, keys expired and turns of loops in a second.
    pub fn of(&self, counters: &Counters) -> [f64; 5] {
        let counts = [
            &counters.commands,
            &counters.input,
            &counters.output,
            &counters.expired,
            &counters.cycles,
        ];
        self.sample(Instant::now(), counts.map(|counter| counter.load(Relaxed)))
    }

    /// The counters begin at 0 again.
    pub fn restart(&self) {
        *self.0.lock().unpoisoned() = RateSample::first();
    }

    fn sample(&self, now: Instant, counts: Counts) -> [f64; 5] {
        let mut last = self.0.lock().unpoisoned();
        let time = now.saturating_duration_since(last.at);
        if time >= SHORTEST {
            let rate =
                |at: usize| counts[at].saturating_sub(last.counts[at]) as f64 / time.as_secs_f64();
            let rates = [rate(0), rate(1), rate(2), rate(3), rate(4)];
            *last = RateSample { at: now, counts, rates };
        }
        last.rates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_mean_since_the_sample_before() {
        let rates = Rates::default();
        let began = rates.0.lock().unwrap().at;
        let after = |millis: u64| began + Duration::from_millis(millis);
        assert_eq!(rates.sample(after(999), [500, 0, 0, 0, 0]), [0.0; 5], "no time has passed");
        let first = [500.0, 2_048.0, 3.0, 4.0, 5.0];
        assert_eq!(rates.sample(after(2_000), [1_000, 4_096, 6, 8, 10]), first);
        // Soon after it is the same.
        assert_eq!(rates.sample(after(2_999), [9_000, 9_000, 9, 9, 99]), first);
        let second = [0.0, 0.0, 1.0, 2.0, 3.0];
        assert_eq!(rates.sample(after(12_000), [1_000, 4_096, 16, 28, 40]), second);
        rates.restart();
        let began = rates.0.lock().unwrap().at;
        let second = began + Duration::from_secs(1);
        assert_eq!(rates.sample(second, [7, 0, 0, 0, 0]), [7.0, 0.0, 0.0, 0.0, 0.0]);
    }
}
