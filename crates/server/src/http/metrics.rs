//! `/metrics`: the numbers of INFO, those of commands, and those of the database, in the text
//! format of Prometheus.

use super::status::progress;
use crate::catalogue::{self, names};
use crate::commands::info;
use crate::state::Shared;
use hyades::{Histogram, Metric, MetricValue, Metrics, Progress, StreamProgress};
use hyades_platform::sync::Unpoisoned;
use std::sync::atomic::Ordering::Relaxed;

/// Whether a number only rises.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum NumberKind {
    Counter,
    Gauge,
}

use NumberKind::{Counter, Gauge};

/// Numbers of INFO: their names there, then kind, name, unit and meaning of the metric.
pub const NUMBERS: &[(&str, NumberKind, &str, &str, &str)] = &[
    ("uptime_in_seconds", Gauge, "hyades_uptime_seconds", "seconds", "Time since the start"),
    ("loading", Gauge, "hyades_loading", "", "1 while the database is being opened"),
    (
        "loading_log_total_bytes",
        Gauge,
        "hyades_recovery_log_bytes",
        "bytes",
        "Log to replay; of a stream whose end is not known yet, as much as its files can hold",
    ),
    (
        "loading_log_loaded_bytes",
        Gauge,
        "hyades_recovery_read_bytes",
        "bytes",
        "Log that opening the database has replayed so far",
    ),
    (
        "loading_image_total_bytes",
        Gauge,
        "hyades_recovery_image_bytes",
        "bytes",
        "Checkpoint to load",
    ),
    (
        "loading_image_loaded_bytes",
        Gauge,
        "hyades_recovery_image_read_bytes",
        "bytes",
        "Checkpoint that opening the database has loaded so far",
    ),
    (
        "loading_transactions",
        Gauge,
        "hyades_recovered_transactions",
        "transactions",
        "Transactions that opening the database replayed",
    ),
    (
        "loading_eta_seconds",
        Gauge,
        "hyades_recovery_left_seconds",
        "seconds",
        "Estimated time until the database is open",
    ),
    (
        "opening_seconds",
        Gauge,
        "hyades_opening_seconds",
        "seconds",
        "Time that opening the database took, until clients were served",
    ),
    ("connected_clients", Gauge, "hyades_clients", "clients", "Connected clients"),
    ("maxclients", Gauge, "hyades_clients_limit", "clients", "Most clients that may connect"),
    (
        "blocked_clients",
        Gauge,
        "hyades_blocked_clients",
        "clients",
        "Clients that wait for an element",
    ),
    (
        "total_connections_received",
        Counter,
        "hyades_connections_total",
        "connections",
        "Connections accepted",
    ),
    (
        "rejected_connections",
        Counter,
        "hyades_rejected_connections_total",
        "connections",
        "Connections refused",
    ),
    (
        "total_commands_processed",
        Counter,
        "hyades_processed_commands_total",
        "commands",
        "Commands run",
    ),
    (
        "total_error_replies",
        Counter,
        "hyades_error_replies_total",
        "replies",
        "Replies that were errors",
    ),
    (
        "client_query_buffer_limit_disconnections",
        Counter,
        "hyades_query_limit_disconnections_total",
        "clients",
        "Clients disconnected for a request that is too long",
    ),
    (
        "client_output_buffer_limit_disconnections",
        Counter,
        "hyades_output_limit_disconnections_total",
        "clients",
        "Clients disconnected for what they have left unread",
    ),
    (
        "acl_access_denied_auth",
        Counter,
        "hyades_denied_logins_total",
        "requests",
        "Wrong passwords",
    ),
    (
        "acl_access_denied_cmd",
        Counter,
        "hyades_denied_commands_total",
        "requests",
        "Commands refused by rules",
    ),
    (
        "acl_access_denied_key",
        Counter,
        "hyades_denied_keys_total",
        "requests",
        "Keys refused by rules",
    ),
    (
        "acl_access_denied_channel",
        Counter,
        "hyades_denied_channels_total",
        "requests",
        "Channels refused by rules",
    ),
    (
        "mem_clients_normal",
        Gauge,
        "hyades_client_buffer_bytes",
        "bytes",
        "Memory of the buffers of clients",
    ),
    ("eventloop_cycles", Counter, "hyades_loop_turns_total", "turns", "Turns of event loops"),
    ("total_net_input_bytes", Counter, "hyades_input_bytes_total", "bytes", "Bytes from clients"),
    ("total_net_output_bytes", Counter, "hyades_output_bytes_total", "bytes", "Bytes to clients"),
    (
        "keyspace_hits",
        Counter,
        "hyades_keyspace_hits_total",
        "commands",
        "Reading commands that found their key",
    ),
    (
        "keyspace_misses",
        Counter,
        "hyades_keyspace_misses_total",
        "commands",
        "Reading commands that did not find their key",
    ),
    ("expired_keys", Counter, "hyades_expired_keys_total", "keys", "Expired keys removed"),
    ("expiry_timers", Gauge, "hyades_expiry_timers", "timers", "Timers of keys that expire"),
    ("expiry_timer_bytes", Gauge, "hyades_expiry_timer_bytes", "bytes", "Memory of these timers"),
    (
        "expiry_due",
        Gauge,
        "hyades_expiry_due",
        "timers",
        "Timers that are due, and whose keys are not removed yet",
    ),
    (
        "expiry_late_seconds",
        Gauge,
        "hyades_expiry_late_seconds",
        "seconds",
        "Time since the first of them was due",
    ),
    (
        "expiry_sweeps",
        Counter,
        "hyades_expiry_sweeps_total",
        "sweeps",
        "Passes over all timers, to remove those of keys that were deleted",
    ),
    (
        "tls_failures",
        Counter,
        "hyades_tls_failures_total",
        "connections",
        "Connections closed since their encryption has failed",
    ),
    (
        "rdb_changes_since_last_save",
        Gauge,
        "hyades_changes_since_save",
        "values",
        "Values written, changed or removed since the last SAVE, BGSAVE or BGREWRITEAOF",
    ),
    (
        "rdb_last_save_time",
        Gauge,
        "hyades_last_checkpoint_timestamp_seconds",
        "seconds",
        "When the newest checkpoint was written; before the first, when the server started",
    ),
    (
        "total_forks",
        Counter,
        "hyades_background_checkpoints_total",
        "checkpoints",
        "Checkpoints begun by BGSAVE and BGREWRITEAOF",
    ),
    (
        "migrate_cached_sockets",
        Gauge,
        "hyades_migrate_connections",
        "connections",
        "Connections to targets of MIGRATE that are kept",
    ),
    (
        "total_reads_processed",
        Counter,
        "hyades_socket_reads_total",
        "reads",
        "Reads of clients' connections",
    ),
    (
        "total_writes_processed",
        Counter,
        "hyades_socket_writes_total",
        "writes",
        "Writes to clients' connections",
    ),
    (
        "lazyfreed_objects",
        Counter,
        "hyades_lazily_freed_keys_total",
        "keys",
        "Keys whose values a thread has removed",
    ),
    (
        "pubsubshard_channels",
        Gauge,
        "hyades_pubsub_shard_channels",
        "channels",
        "Shard channels with a subscriber",
    ),
    ("pubsub_channels", Gauge, "hyades_pubsub_channels", "channels", "Channels with a subscriber"),
    ("pubsub_patterns", Gauge, "hyades_pubsub_patterns", "patterns", "Patterns with a subscriber"),
    ("used_memory", Gauge, "hyades_allocated_bytes", "bytes", "Memory that counts for maxmemory"),
    (
        "maxmemory",
        Gauge,
        "hyades_memory_limit_bytes",
        "bytes",
        "Memory above which commands are refused that may use more; 0: there is no limit",
    ),
    ("used_memory_rss", Gauge, "hyades_resident_bytes", "bytes", "Memory of the process"),
    (
        "used_memory_peak",
        Gauge,
        "hyades_resident_peak_bytes",
        "bytes",
        "Most memory that the process had so far",
    ),
    ("used_cpu_total", Counter, "hyades_cpu_seconds_total", "seconds", "Processor time"),
    (
        "used_cpu_user",
        Counter,
        "hyades_cpu_user_seconds_total",
        "seconds",
        "Processor time in the program",
    ),
    (
        "used_cpu_sys",
        Counter,
        "hyades_cpu_system_seconds_total",
        "seconds",
        "Processor time in the system",
    ),
    (
        "loop_wakeups",
        Counter,
        "hyades_loop_wakeups_total",
        "wakeups",
        "Times that an event loop has slept and woken up",
    ),
    (
        "run_conflicts",
        Counter,
        "hyades_run_conflicts_total",
        "runs",
        "Runs of commands that met a conflict",
    ),
    (
        "runs_alone",
        Counter,
        "hyades_runs_alone_total",
        "runs",
        "Runs of commands that starved and were run with patience",
    ),
    (
        "runs_large",
        Counter,
        "hyades_runs_large_total",
        "runs",
        "Runs of commands that read or write much",
    ),
    ("log_streams", Gauge, "hyades_log_streams", "streams", "Log streams"),
    (
        "recovery_image_rows",
        Gauge,
        "hyades_recovered_image_rows",
        "rows",
        "Rows of a checkpoint that opening the database loaded",
    ),
];

/// The upper bounds of the buckets of acknowledgement, in nanoseconds: as those of syncs.
const BOUNDS_NS: [u64; 21] = bounds();

const fn bounds() -> [u64; 21] {
    let mut bounds = [0; 21];
    let (mut at, mut decade) = (0, 10_000);
    while at < bounds.len() {
        bounds[at] = decade * [1, 2, 5][at % 3];
        if at % 3 == 2 {
            decade *= 10;
        }
        at += 1;
    }
    bounds
}

/// The database's own measures calls that this server does not make.
const ACKNOWLEDGEMENT: &str = "hyades_acknowledgement_seconds";

/// All of them as text.
pub fn text(shared: &Shared, live: &[u64]) -> String {
    let text = info::text(shared, |name| info::MONITORED.contains(&name), live);
    let mut metrics: Metrics = numbers(&text).collect();
    let version = Metric::new(
        "hyades_build_info",
        "",
        "1, with the versions of this server and of the Redis whose commands it has",
        MetricValue::Gauge(1.0),
    );
    let version = version.with_label("version", env!("CARGO_PKG_VERSION"));
    metrics.extend([version.with_label("redis_version", info::REDIS_VERSION)]);
    metrics.extend(acknowledgement(shared));
    databases(&mut metrics, shared, live);
    commands(&mut metrics, shared);
    errors(&mut metrics, shared);
    match shared.store.opened.get() {
        Some(opened) => {
            let from_database = opened.database.metrics().into_iter();
            metrics.extend(from_database.filter(|metric| metric.name != ACKNOWLEDGEMENT));
        }
        None => progress(shared).iter().for_each(|progress| recovery(&mut metrics, progress)),
    }
    metrics.to_prometheus()
}

/// Those of INFO.
fn numbers(info: &str) -> impl Iterator<Item = Metric> {
    NUMBERS.iter().filter_map(|&(field, kind, name, unit, help)| {
        let mut lines = info.lines().filter_map(|line| line.split_once(':'));
        let value = lines.find(|(name, _)| *name == field)?.1.parse().ok()?;
        let value = match kind {
            Counter => MetricValue::Counter(value),
            Gauge => MetricValue::Gauge(value),
        };
        Some(Metric::new(name, unit, help, value))
    })
}

/// Those of a recovery by log stream.
fn recovery(metrics: &mut Metrics, progress: &Progress) {
    let mut each = |name, unit, help, value: fn(&StreamProgress) -> u64| {
        metrics.extend(progress.by_stream.iter().map(|stream| {
            let value = MetricValue::Gauge(value(stream) as f64);
            Metric::new(name, unit, help, value).with_label("stream", stream.stream.to_string())
        }));
    };
    let help = "Log of a stream to read; while its end is not known, as much as its files can hold";
    each("hyades_recovery_stream_bytes", "bytes", help, |stream| stream.bytes_total);
    let help = "Log of a stream that opening the database has read so far";
    each("hyades_recovery_stream_read_bytes", "bytes", help, |stream| stream.bytes_read);
    let help = "Records of a stream that opening the database has replayed so far";
    each("hyades_recovery_stream_records", "records", help, |stream| stream.records);
}

fn acknowledgement(shared: &Shared) -> Option<Metric> {
    let sum = shared.stats.counters.acknowledged_nanos.load(Relaxed) as f64 / 1e9;
    let (counts, all) = shared.stats.acknowledged.at_most(&BOUNDS_NS);
    let buckets = BOUNDS_NS.iter().zip(counts).map(|(bound, count)| (*bound as f64 / 1e9, count));
    let buckets = buckets.chain([(f64::INFINITY, all)]).collect();
    let help = "Time from the commit of a run of commands until all that it depends on is on disk";
    let value = MetricValue::Histogram(Histogram::new(buckets, sum));
    Some(Metric::new(ACKNOWLEDGEMENT, "seconds", help, value))
}

fn databases(metrics: &mut Metrics, shared: &Shared, live: &[u64]) {
    let found = info::databases_with_keys(shared, live);
    let mut each = |name, help, value: fn(&(usize, i64, i64)) -> i64| {
        metrics.extend(found.iter().map(|database| {
            let value = MetricValue::Gauge(value(database) as f64);
            Metric::new(name, "keys", help, value).with_label("database", database.0.to_string())
        }));
    };
    let help = "Keys of a database; without one it is not listed";
    each("hyades_database_keys", help, |database| database.1);
    each("hyades_database_expiring_keys", "Keys of a database that expire", |database| database.2);
}

/// The class of a command: what it is about.
pub fn class_of(name: &str) -> &'static str {
    let own = name.split('|').next().unwrap_or(name);
    catalogue::command(own.as_bytes()).map_or("other", |command| command.group)
}

fn commands(metrics: &mut Metrics, shared: &Shared) {
    let all: Vec<_> = shared.stats.commands.iter().collect();
    let mut each = |name, unit, help, value: &dyn Fn(usize) -> f64| {
        for (at, (command, counts)) in all.iter().enumerate() {
            if counts.calls.load(Relaxed) + counts.rejected.load(Relaxed) > 0 {
                let metric = Metric::new(name, unit, help, MetricValue::Counter(value(at)));
                let metric = metric.with_label("class", class_of(command));
                metrics.extend([metric.with_label("command", *command)]);
            }
        }
    };
    let help = "Calls that have run, by command and class";
    each("hyades_commands_total", "commands", help, &|at| all[at].1.calls.load(Relaxed) as f64);
    let help = "Time that commands ran, without waiting for the disk";
    each("hyades_command_seconds_total", "seconds", help, &|at| {
        all[at].1.nanos.load(Relaxed) as f64 / 1e9
    });
    let help = "Calls that have run and failed";
    each("hyades_command_failures_total", "commands", help, &|at| {
        all[at].1.failed.load(Relaxed) as f64
    });
    let help = "Calls that were refused before they could run";
    each("hyades_command_rejections_total", "commands", help, &|at| {
        all[at].1.rejected.load(Relaxed) as f64
    });
    debug_assert!(all.iter().all(|(name, _)| names::find(name.as_bytes()).is_some()));
}

fn errors(metrics: &mut Metrics, shared: &Shared) {
    let errors = shared.stats.errors.lock().unpoisoned().clone();
    metrics.extend(errors.into_iter().map(|(code, count)| {
        let help = "Replies that were errors, by their first word";
        let value = MetricValue::Counter(count as f64);
        Metric::new("hyades_errors_total", "replies", help, value).with_label("code", code)
    }));
}
