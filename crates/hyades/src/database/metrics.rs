//! The metrics of a database, from its counters.

use super::{Database, Stats};
use crate::checkpoint::keeper::CheckpointStats;
use crate::metrics::MetricValue::{Counter, Gauge};
use crate::metrics::{Description, Histogram, MetricValue, Metrics};
use crate::storage::usage::TableStats;
use hyades_platform::latency::LatencyCounts;
use hyades_wal::Log;

impl Database {
    /// Returns all metrics: transactions and the causes of their ends, bytes and syncs by stream,
    /// latencies, checkpoints, memory. Reading the metrics does not stop transactions.
    /// docs/operations.md names the metrics to watch.
    ///
    /// The time from commit to acknowledgement is measured in [`Database::transact`],
    /// [`Database::call`] and their variants, not for the tickets of a [`Session`](crate::Session).
    ///
    /// ```
    /// use hyades::{Database, MetricValue};
    /// # let dir = tempfile::tempdir()?;
    /// let db = Database::builder().open(dir.path())?;
    /// for metric in &db.metrics() {
    ///     if let MetricValue::Gauge(value) = metric.value {
    ///         println!("{} {:?} {value} {}", metric.name, metric.labels, metric.unit);
    ///     }
    /// }
    /// // Or what an endpoint for Prometheus answers:
    /// let text = db.metrics().to_prometheus();
    /// # assert!(text.len() > 1000);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn metrics(&self) -> Metrics {
        let mut out = Metrics::default();
        transactions(&mut out, &self.stats(), self.shared.acknowledged.get());
        if let Some(log) = &self.shared.log {
            streams(&mut out, log);
        }
        let durations = self.shared.keeper.as_ref().map(|keeper| keeper.durations());
        checkpoints(&mut out, &self.checkpoints(), durations.unwrap_or_default());
        tables(&mut out, &self.tables());
        self.memory(&mut out);
        let report = self.recovery();
        let description =
            describe("hyades_recovery_seconds", "seconds", "Duration of opening the database");
        out.add(description, vec![], Gauge(report.seconds));
        let help = "Transactions that opening the database replayed";
        let description = describe("hyades_recovered_transactions", "transactions", help);
        out.add(description, vec![], Gauge(report.records as f64));
        out
    }

    fn memory(&self, out: &mut Metrics) {
        let stats = self.stats();
        let hot = self.shared.engine.hot_rows();
        let held = self.shared.engine.cut().held();
        let buffers =
            self.shared.log.as_ref().map_or(0, |log| log.streams() * log.buffer_bytes()) as u64;
        let help = "Deleted rows and stale index entries that are still in memory";
        gauge(out, "hyades_garbage_items", "items", help, stats.garbage);
        let help = "Removed rows that are not freed yet, since transactions may be reading them";
        gauge(out, "hyades_removed_bytes", "bytes", help, stats.removed_bytes);
        let help = "Age of the oldest transaction that keeps removed rows, since it was first seen";
        let description = describe("hyades_oldest_pin_seconds", "seconds", help);
        out.add(description, vec![], Gauge(stats.oldest_pin.as_secs_f64()));
        let help = "Snapshots that are open";
        gauge(out, "hyades_snapshots", "snapshots", help, stats.snapshots);
        let help = "Older versions of rows in memory, which snapshots and transactions need";
        gauge(out, "hyades_old_versions", "versions", help, stats.old_versions);
        let help = "Memory of older versions of rows";
        gauge(out, "hyades_snapshot_bytes", "bytes", help, stats.snapshot_bytes);
        let help = "Memory of the sums over rows";
        gauge(out, "hyades_sum_index_bytes", "bytes", help, stats.sum_index_bytes);
        let help = "Most recently used rows that had a logging vector of their own at once";
        gauge(out, "hyades_hot_rows", "rows", help, hot.slots);
        let help = "Memory of the logging vectors of recently used rows";
        gauge(out, "hyades_hot_rows_bytes", "bytes", help, hot.bytes);
        let help = "Memory of the buffers of all log streams";
        gauge(out, "hyades_log_buffer_bytes", "bytes", help, buffers);
        let help = "Overwritten rows that a checkpoint under way still has to write";
        gauge(out, "hyades_checkpoint_buffer_bytes", "bytes", help, held);
    }
}

fn describe(name: &'static str, unit: &'static str, help: &'static str) -> Description {
    Description { name, unit, help }
}

fn gauge(
    out: &mut Metrics,
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    value: u64,
) {
    out.add(describe(name, unit, help), vec![], Gauge(value as f64));
}

fn counter(
    out: &mut Metrics,
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    value: u64,
) {
    out.add(describe(name, unit, help), vec![], Counter(value as f64));
}

fn seconds(counts: LatencyCounts) -> MetricValue {
    MetricValue::Histogram(Histogram::of_seconds(counts))
}

fn transactions(out: &mut Metrics, stats: &Stats, acknowledged: LatencyCounts) {
    let Stats { attempts, commits, conflicts, failures, panics, starved, .. } = *stats;
    let help = "Attempts at transactions: commits and aborts";
    counter(out, "hyades_attempts_total", "attempts", help, attempts);
    let help = "Committed transactions, those that only read included";
    counter(out, "hyades_commits_total", "transactions", help, commits);
    let help =
        "Attempts that did not commit, by cause: a conflict, an error or a panic of the body";
    let description = describe("hyades_aborts_total", "attempts", help);
    for (cause, count) in [("conflict", conflicts), ("error", failures), ("panic", panics)] {
        out.add(description, vec![("cause", cause.to_string())], Counter(count as f64));
    }
    let help = "Attempts that repeated one that met a conflict";
    counter(out, "hyades_retries_total", "attempts", help, conflicts.saturating_sub(starved));
    let help = "Transactions that ended because all their attempts met conflicts";
    counter(out, "hyades_starved_total", "transactions", help, starved);
    let help = "Snapshots and transactions that were ended, for their memory or age";
    counter(out, "hyades_snapshots_ended_total", "snapshots", help, stats.snapshots_ended);
    let help = "Time from commit to acknowledgement, of transact and call";
    let description = describe("hyades_acknowledgement_seconds", "seconds", help);
    out.add(description, vec![], seconds(acknowledged));
}

fn streams(out: &mut Metrics, log: &Log) {
    let mut each = |name, unit, help, value: &dyn Fn(usize) -> MetricValue| {
        for stream in 0..log.streams() {
            let id = log.stream_id(stream).0.to_string();
            out.add(describe(name, unit, help), vec![("stream", id)], value(stream));
        }
    };
    let help = "Log made durable, without padding";
    each("hyades_log_bytes_total", "bytes", help, &|s| Counter(log.stats(s).frame_bytes as f64));
    let help = "Bytes written to the log's devices";
    each("hyades_device_bytes_total", "bytes", help, &|s| {
        Counter(log.stats(s).device_bytes as f64)
    });
    let help = "Time spent in writing and syncing the log";
    each("hyades_device_seconds_total", "seconds", help, &|s| {
        Counter(log.stats(s).device_ns as f64 / 1e9)
    });
    let help = "Duration of each sync of the log";
    each("hyades_sync_seconds", "seconds", help, &|s| seconds(log.sync_latency(s)));
    let help = "Log that is not yet durable";
    each("hyades_log_backlog_bytes", "bytes", help, &|s| Gauge(log.backlog(s) as f64));
    let (parked, panicked) = log.frontier().wakers();
    let help = "Wakers of tasks that wait for the log";
    gauge(out, "hyades_parked_wakers", "wakers", help, parked as u64);
    let help = "Wakers that have panicked on a thread of the log";
    counter(out, "hyades_waker_panics_total", "wakers", help, panicked);
    let help = "1 if the log has stopped: the database takes no more work";
    gauge(out, "hyades_log_stopped", "", help, log.poisoned().is_some().into());
}

fn tables(out: &mut Metrics, tables: &[TableStats]) {
    let mut each = |name, unit, help, value: fn(&TableStats) -> u64| {
        for table in tables {
            let labels = vec![("table", table.name.clone())];
            out.add(describe(name, unit, help), labels, Gauge(value(table) as f64));
        }
    };
    each("hyades_table_rows", "rows", "Rows of a table", |table| table.rows);
    let help = "Bytes of the keys and columns of a table's rows, without indexes";
    each("hyades_table_bytes", "bytes", help, |table| table.bytes);
}

fn checkpoints(out: &mut Metrics, stats: &CheckpointStats, durations: LatencyCounts) {
    counter(out, "hyades_checkpoints_total", "checkpoints", "Checkpoints taken", stats.taken);
    let help = "Checkpoints that failed";
    counter(out, "hyades_checkpoint_failures_total", "checkpoints", help, stats.failed);
    let help = "1 while a checkpoint is being taken";
    gauge(out, "hyades_checkpoint_under_way", "", help, stats.under_way.into());
    let help = "Duration of each checkpoint";
    let description = describe("hyades_checkpoint_seconds", "seconds", help);
    out.add(description, vec![], seconds(durations));
    if let Some(last) = &stats.last {
        let help = "Rows of the newest checkpoint";
        gauge(out, "hyades_checkpoint_rows", "rows", help, last.rows);
        let help = "Size of the newest checkpoint";
        gauge(out, "hyades_checkpoint_bytes", "bytes", help, last.bytes);
    }
    let help = "Estimated time to replay the log that no checkpoint covers";
    let description = describe("hyades_replay_seconds", "seconds", help);
    out.add(description, vec![], Gauge(stats.replay_seconds));
}
