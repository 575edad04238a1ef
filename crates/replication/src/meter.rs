//! Counts and times of the requests to a log service, for monitoring.
//!
//! A message of a lane is timed from its first sending until it is known to be stored, also where a
//! look shows it after an answer was lost, or where it was sent again.

use crate::service::{Reply, Request};
use hyades::{Histogram, Metric, MetricValue};
use hyades_platform::clock;
use hyades_platform::latency::{LATENCY_BOUNDS_NS, LatencyHistogram};
use hyades_platform::sync::Unpoisoned;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The last message that was sent to a lane and is not known to be stored.
#[derive(Debug)]
struct Unconfirmed {
    message: Arc<Vec<u8>>,
    sent_ns: u64,
    /// The append was refused, or not answered: the next look tells.
    is_unknown: bool,
}

/// The counts of a lane. Written by whatever thread has an answer, read for monitoring: Relaxed.
#[derive(Debug, Default)]
struct LaneMeter {
    messages: AtomicU64,
    bytes: AtomicU64,
    resends: AtomicU64,
    refusals: AtomicU64,
    silences: AtomicU64,
    read_messages: AtomicU64,
    read_bytes: AtomicU64,
    seconds: LatencyHistogram,
    /// One append is under way in a lane.
    unconfirmed: Mutex<Option<Unconfirmed>>,
}

/// The counts of all requests to a log service.
#[derive(Debug)]
pub struct LogMeter {
    lanes: Vec<LaneMeter>,
    /// By [`clock::boot_ns`], the newest answer about a key, which is the lease most often; 0
    /// before the first.
    answered_ns: AtomicU64,
}

/// A request under way: its service tells the answer.
#[derive(Debug)]
pub struct Measured {
    meter: Arc<LogMeter>,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Append(usize),
    Read(usize),
    Key,
    Other,
}

impl LaneMeter {
    fn sends(&self, message: &Arc<Vec<u8>>) {
        self.messages.fetch_add(1, Relaxed);
        self.bytes.fetch_add(message.len() as u64, Relaxed);
        let mut unconfirmed = self.unconfirmed.lock().unpoisoned();
        match &mut *unconfirmed {
            Some(before) if Arc::ptr_eq(&before.message, message) => {
                before.is_unknown = false;
                self.resends.fetch_add(1, Relaxed);
            }
            _ => {
                let (message, sent_ns) = (message.clone(), clock::monotonic_ns());
                *unconfirmed = Some(Unconfirmed { message, sent_ns, is_unknown: false });
            }
        }
    }

    fn is_stored(&self, unconfirmed: &mut Option<Unconfirmed>) {
        if let Some(Unconfirmed { sent_ns, .. }) = unconfirmed.take() {
            self.seconds.record(clock::monotonic_ns().saturating_sub(sent_ns));
        }
    }

    fn is_answered(&self, reply: &Reply) {
        let mut unconfirmed = self.unconfirmed.lock().unpoisoned();
        let count = match reply {
            Reply::Appended(_) => return self.is_stored(&mut unconfirmed),
            Reply::Refused => &self.refusals,
            _ => &self.silences,
        };
        count.fetch_add(1, Relaxed);
        if let Some(sent) = &mut *unconfirmed {
            sent.is_unknown = true;
        }
    }

    fn is_read(&self, reply: &Reply) {
        let Reply::Messages(messages) = reply else { return };
        let bytes: usize = messages.iter().map(|(_, message)| message.len()).sum();
        self.read_messages.fetch_add(messages.len() as u64, Relaxed);
        self.read_bytes.fetch_add(bytes as u64, Relaxed);
        let mut unconfirmed = self.unconfirmed.lock().unpoisoned();
        let Some(sent) = unconfirmed.as_mut().filter(|sent| sent.is_unknown) else { return };
        // The look of a writer. A member that reads the lane later is no writer any more.
        sent.is_unknown = false;
        if messages.iter().any(|(_, message)| *message == sent.message) {
            self.is_stored(&mut unconfirmed);
        }
    }

    fn histogram(&self) -> Histogram {
        let counts = self.seconds.get();
        let bounds = LATENCY_BOUNDS_NS.iter().map(|&ns| ns as f64 / 1e9).chain([f64::INFINITY]);
        let mut below = 0;
        let buckets = bounds.zip(counts.counts).map(|(bound, count)| {
            below += count;
            (bound, below)
        });
        Histogram::new(buckets.collect(), counts.sum_ns as f64 / 1e9)
    }
}

impl LogMeter {
    /// Counts the requests to a service with this number of lanes.
    pub fn new(lanes: usize) -> LogMeter {
        let lanes = (0..lanes).map(|_| LaneMeter::default()).collect();
        LogMeter { lanes, answered_ns: AtomicU64::new(0) }
    }

    /// A request begins.
    pub fn begin(self: &Arc<Self>, request: &Request) -> Measured {
        let what = match request {
            Request::Append { lane, message, .. } => {
                self.lanes[*lane].sends(message);
                What::Append(*lane)
            }
            Request::Read { lane, .. } => What::Read(*lane),
            Request::Get { .. } | Request::Put { .. } => What::Key,
            Request::Purge { .. } | Request::Ask { .. } => What::Other,
        };
        Measured { meter: self.clone(), what }
    }

    /// The time since the newest answer about a key; `None` before the first.
    pub fn since_answer(&self) -> Option<Duration> {
        let at = self.answered_ns.load(Relaxed);
        (at > 0).then(|| Duration::from_nanos(clock::boot_ns().saturating_sub(at)))
    }

    /// The metrics of all lanes, in the order of their names.
    pub fn metrics(&self) -> Vec<Metric> {
        let mut out = Vec::new();
        let mut each = |name, unit, help, value: &dyn Fn(&LaneMeter) -> MetricValue| {
            for (at, lane) in self.lanes.iter().enumerate() {
                let metric = Metric::new(name, unit, help, value(lane));
                out.push(metric.with_label("lane", at.to_string()));
            }
        };
        each(
            "hyades_lane_seconds",
            "seconds",
            "Time of an append to a lane, from its first sending until it is known to be stored",
            &|lane| MetricValue::Histogram(lane.histogram()),
        );
        let mut count = |name, unit, help, value: fn(&LaneMeter) -> &AtomicU64| {
            each(name, unit, help, &|lane| MetricValue::Counter(value(lane).load(Relaxed) as f64));
        };
        let help = "Messages that were sent to a lane, resends included";
        count("hyades_lane_sent_messages_total", "messages", help, |lane| &lane.messages);
        let help = "Bytes of messages that were sent to a lane, resends included";
        count("hyades_lane_sent_bytes_total", "bytes", help, |lane| &lane.bytes);
        let help = "Messages that were sent to a lane again";
        count("hyades_lane_resends_total", "messages", help, |lane| &lane.resends);
        let help = "Appends that a lane has refused, since it ended elsewhere";
        count("hyades_lane_refusals_total", "messages", help, |lane| &lane.refusals);
        let help = "Appends to a lane that were not answered in time";
        count("hyades_lane_silences_total", "messages", help, |lane| &lane.silences);
        let help = "Messages that were read from a lane";
        count("hyades_lane_read_messages_total", "messages", help, |lane| &lane.read_messages);
        let help = "Bytes of messages that were read from a lane";
        count("hyades_lane_read_bytes_total", "bytes", help, |lane| &lane.read_bytes);
        out
    }
}

impl Measured {
    /// The request has its answer.
    pub fn is_answered(&self, reply: &Reply) {
        let meter = &self.meter;
        match self.what {
            What::Append(lane) => meter.lanes[lane].is_answered(reply),
            What::Read(lane) => meter.lanes[lane].is_read(reply),
            What::Other => {}
            What::Key if matches!(reply, Reply::Silence | Reply::Gone(_)) => {}
            What::Key => meter.answered_ns.store(clock::boot_ns(), Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::{Place, Revision};

    fn append(message: &Arc<Vec<u8>>) -> Request {
        Request::Append { lane: 1, after: Some(Place(1)), message: message.clone() }
    }

    fn value(meter: &LogMeter, name: &str) -> f64 {
        let mut found = meter.metrics().into_iter().filter(|metric| metric.name == name);
        match found.nth(1).unwrap().value {
            MetricValue::Counter(value) | MetricValue::Gauge(value) => value,
            MetricValue::Histogram(histogram) => histogram.count() as f64,
            _ => unreachable!("there is no other kind"),
        }
    }

    #[test]
    fn each_message_is_timed_once_whatever_answers_are_lost() {
        let meter = Arc::new(LogMeter::new(2));
        let [one, two] = [1, 2].map(|byte| Arc::new(vec![byte; 10]));
        let timed = || value(&meter, "hyades_lane_seconds");
        meter.begin(&append(&one)).is_answered(&Reply::Appended(Place(2)));
        assert_eq!(timed(), 1.0);
        // The answer is lost, a look shows nothing, and the resend is refused: a look shows it.
        let look = Request::Read { lane: 1, behind: Place(2) };
        let shown = Reply::Messages(vec![(Place(3), Arc::new((*two).clone()))]);
        meter.begin(&append(&two)).is_answered(&Reply::Silence);
        meter.begin(&look).is_answered(&Reply::Messages(Vec::new()));
        meter.begin(&append(&two)).is_answered(&Reply::Refused);
        assert_eq!(timed(), 1.0);
        meter.begin(&look).is_answered(&shown);
        assert_eq!(timed(), 2.0);
        for (name, expected) in [
            ("sent_messages", 3.0),
            ("sent_bytes", 30.0),
            ("resends", 1.0),
            ("refusals", 1.0),
            ("silences", 1.0),
            ("read_messages", 1.0),
            ("read_bytes", 10.0),
        ] {
            assert_eq!(value(&meter, &format!("hyades_lane_{name}_total")), expected, "{name}");
        }
        // A writer that was fenced reads the lane as a standby later.
        meter.begin(&append(&one)).is_answered(&Reply::Silence);
        meter.begin(&look).is_answered(&Reply::Messages(Vec::new()));
        meter.begin(&look).is_answered(&Reply::Messages(vec![(Place(4), one.clone())]));
        assert_eq!(timed(), 2.0);
    }

    #[test]
    fn silence_is_no_answer() {
        let meter = Arc::new(LogMeter::new(1));
        let look = meter.begin(&Request::Get { key: "lease".into() });
        look.is_answered(&Reply::Silence);
        assert_eq!(meter.since_answer(), None);
        look.is_answered(&Reply::Put(Revision(1)));
        assert!(meter.since_answer().is_some());
    }
}
