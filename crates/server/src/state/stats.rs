//! What is counted and measured, for INFO and the metrics.

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

/// What is counted and measured.
#[derive(Default)]
pub struct Stats {
    /// Counters.
    pub counters: Counters,
    /// Rates of some of them.
    pub rates: Rates,
    /// Calls and times of commands.
    pub commands: CommandStats,
    /// Times from the commit of a transaction to its acknowledgement, where it waited for the disk.
    pub acknowledged: TimeHistogram,
    /// Commands that took long.
    pub slow_log: SlowLog,
    /// Commands that took as long as `latency-monitor-threshold` says.
    pub latency_events: LatencyEvents,
    /// Clients whose encryption has failed.
    pub failed_handshakes: FailedHandshakes,
    /// Error replies by their first word.
    pub errors: Mutex<BTreeMap<String, u64>>,
}

impl Stats {
    /// A transaction has been acknowledged so long after its commit.
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
