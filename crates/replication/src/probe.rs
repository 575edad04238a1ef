//! Raw appends to lanes of a log service, one message at a time in each lane: the bound of what a
//! replicated log can do on the service.

use crate::service::{LogService, Place, Reply, Request};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The load of a probe.
#[derive(Clone, Copy, Debug)]
pub struct ProbeSettings {
    /// Lanes, each with a thread.
    pub lanes: usize,
    /// Bytes of a message.
    pub message_bytes: usize,
    /// How long messages are appended.
    pub time: Duration,
}

/// What a probe has measured.
#[derive(Clone, Debug, Default)]
pub struct ProbeReport {
    /// Seconds from the first append to the last answer.
    pub seconds: f64,
    /// The times from append to answer, ascending.
    pub times: Vec<Duration>,
    /// Appends that were refused, or not answered in time.
    pub failed: u64,
}

impl ProbeReport {
    /// The time that this share of the messages do not exceed. Zero without messages.
    pub fn quantile(&self, share: f64) -> Duration {
        let last = self.times.len().saturating_sub(1) as f64;
        self.times.get((last * share) as usize).copied().unwrap_or_default()
    }

    /// Messages per second.
    pub fn rate(&self) -> f64 {
        self.times.len() as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }
}

/// Appends messages to the lanes for a time. The first message of a lane is appended without a
/// condition, and each later one behind the one before.
pub fn probe(service: &dyn LogService, settings: ProbeSettings) -> ProbeReport {
    let began = Instant::now();
    let mut report = ProbeReport::default();
    std::thread::scope(|scope| {
        let lane = |lane| scope.spawn(move || fill_lane(service, lane, settings));
        let threads: Vec<_> = (0..settings.lanes).map(lane).collect();
        for thread in threads {
            let (times, failed) = thread.join().expect("a thread of the probe does not panic");
            report.times.extend(times);
            report.failed += failed;
        }
    });
    report.seconds = began.elapsed().as_secs_f64();
    report.times.sort_unstable();
    report
}

fn fill_lane(
    service: &dyn LogService,
    lane: usize,
    settings: ProbeSettings,
) -> (Vec<Duration>, u64) {
    let (mut times, mut failed, mut after) = (Vec::new(), 0, None::<Place>);
    let message = Arc::new(vec![0x5a; settings.message_bytes]);
    let began = Instant::now();
    while began.elapsed() < settings.time {
        let sent = Instant::now();
        let request = service.begin(Request::Append { lane, after, message: message.clone() });
        match service.answer(request, true) {
            Some(Reply::Appended(place)) => {
                times.push(sent.elapsed());
                after = Some(place);
            }
            _ => (failed, after) = (failed + 1, None),
        }
    }
    (times, failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::{Faults, SimulatedLog};

    #[test]
    fn a_probe_counts_what_is_stored() {
        let faults = Faults { lost_replies: 0.1, ..Faults::default() };
        let service = SimulatedLog::new(3, 1, faults);
        let time = Duration::from_millis(30);
        let report = probe(&service, ProbeSettings { lanes: 3, message_bytes: 100, time });
        let stored: usize = (0..3).map(|lane| service.lane(lane).len()).sum();
        assert_eq!(report.times.len() as u64 + report.failed, stored as u64);
        assert!(report.quantile(0.5) <= report.quantile(0.99) && report.rate() > 0.0);
        assert_eq!(ProbeReport::default().quantile(0.5), Duration::ZERO);
    }
}
