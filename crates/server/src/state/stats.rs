//! Counters and measurements, for INFO and the metrics.

use super::command_stats::CommandStats;
use super::counters::Counters;
use super::handshakes::FailedHandshakes;
use super::latency_events::LatencyEvents;
use super::rates::Rates;
use super::slow_log::SlowLog;
use crate::base::histogram::TimeHistogram;
use hyades_platform::sync::Unpoisoned;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Counters and measurements.
#[derive(Default)]
pub struct Stats {
    /// Counters.
    pub counters: Counters,
    /// Rates of some counters.
    pub rates: Rates,
    /// Calls and times of commands.
    pub commands: CommandStats,
    /// Times from the commit of a transaction to its acknowledgement, if the transaction waited for
    /// the disk.
    pub acknowledged: TimeHistogram,
    /// Slow commands.
    pub slow_log: SlowLog,
    /// Commands that take at least `latency-monitor-threshold`.
    pub latency_events: LatencyEvents,
    /// Clients with failed encryption.
    pub failed_handshakes: FailedHandshakes,
    /// Error replies by their first word.
    pub errors: Mutex<BTreeMap<String, u64>>,
}

impl Stats {
    /// Notes the time of a transaction from its commit to its acknowledgement.
    pub fn note_acknowledged(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.acknowledged.add(nanos);
        self.counters.acknowledged_nanos.fetch_add(nanos, Relaxed);
    }

    /// Counts an error reply by its first word.
    pub fn count_error(&self, text: &str) {
        self.counters.errors.fetch_add(1, Relaxed);
        let code = text.split(' ').next().unwrap_or("").to_string();
        *self.errors.lock().unpoisoned().entry(code).or_default() += 1;
    }
}
