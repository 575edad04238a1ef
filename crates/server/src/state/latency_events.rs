//! Commands that take at least `latency-monitor-threshold`, for LATENCY.

use hyades_platform::sync::Unpoisoned;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

/// Seconds kept of an event: the last seconds with the event.
pub const MOST_SAMPLES: usize = 160;

/// The longest time of an event in a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencySample {
    /// The second, since 1970.
    pub at_seconds: u64,
    /// The time of the event, in milliseconds.
    pub ms: u64,
}

/// The kept data of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencySeries {
    /// The samples, the newest last; [`MOST_SAMPLES`] at most, and one at least.
    pub samples: VecDeque<LatencySample>,
    /// The longest time of all, in milliseconds, including samples no longer kept.
    pub longest_ms: u64,
}

/// The past events, by name.
#[derive(Default)]
pub struct LatencyEvents(Mutex<BTreeMap<&'static str, LatencySeries>>);

impl LatencyEvents {
    /// Adds an event.
    pub fn add(&self, event: &'static str, sample: LatencySample) {
        let mut events = self.0.lock().unpoisoned();
        let series = events.entry(event).or_default();
        series.longest_ms = series.longest_ms.max(sample.ms);
        match series.samples.back_mut() {
            Some(last) if last.at_seconds == sample.at_seconds => {
                last.ms = last.ms.max(sample.ms);
            }
            _ => {
                if series.samples.len() == MOST_SAMPLES {
                    series.samples.pop_front();
                }
                series.samples.push_back(sample);
            }
        }
        debug_assert!((1..=MOST_SAMPLES).contains(&series.samples.len()));
    }

    /// The kept data of an event, if any.
    pub fn find(&self, event: &[u8]) -> Option<LatencySeries> {
        let events = self.0.lock().unpoisoned();
        events.get(std::str::from_utf8(event).ok()?).cloned()
    }

    /// All past events, by name.
    pub fn all(&self) -> Vec<(&'static str, LatencySeries)> {
        let events = self.0.lock().unpoisoned();
        events.iter().map(|(event, series)| (*event, series.clone())).collect()
    }

    /// Removes the named events, or all events without names. Returns the number of removed events.
    pub fn forget(&self, names: &[&[u8]]) -> usize {
        let mut events = self.0.lock().unpoisoned();
        let before = events.len();
        match names {
            [] => events.clear(),
            names => events.retain(|event, _| !names.contains(&event.as_bytes())),
        }
        before - events.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_of_each_second_is_kept_of_the_last_ones() {
        let events = LatencyEvents::default();
        let add = |at_seconds, ms| events.add("command", LatencySample { at_seconds, ms });
        add(7, 900);
        for at in 0..MOST_SAMPLES as u64 {
            add(10 + at, 5);
            add(10 + at, 7);
            add(10 + at, 6);
        }
        let series = events.find(b"command").unwrap();
        assert_eq!((series.samples.len(), series.longest_ms), (MOST_SAMPLES, 900));
        assert_eq!(series.samples[0], LatencySample { at_seconds: 10, ms: 7 });
        assert_eq!(events.find(b"Command"), None);
        assert_eq!(events.forget(&[b"none"]), 0);
        assert_eq!(events.forget(&[b"none", b"command"]), 1);
        add(1, 1);
        events.add("fast-command", LatencySample { at_seconds: 1, ms: 2 });
        assert_eq!(events.all().len(), 2);
        assert_eq!((events.forget(&[]), events.all().len()), (2, 0));
    }
}
