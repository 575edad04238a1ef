//! `/metrics`: the numbers of INFO, of commands, and of the database, in the text format of
//! Prometheus.

#[cfg(feature = "replication")]
mod member;
mod numbers;

pub use numbers::NUMBERS;
#[cfg(test)]
pub use numbers::NumberKind;

use super::status::progress;
use crate::catalogue::{self, names};
use crate::commands::info;
use crate::state::Shared;
use hyades::{Histogram, Metric, MetricValue, Metrics, Progress, StreamProgress};
use hyades_platform::sync::Unpoisoned;
use numbers::NumberKind::{Counter, Gauge};
use std::sync::atomic::Ordering::Relaxed;

/// The upper bounds of the buckets of acknowledgement, in nanoseconds: equal to the bounds of
/// syncs.
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

/// The database's own metric of this name measures calls unused by this server.
const ACKNOWLEDGEMENT: &str = "hyades_acknowledgement_seconds";

/// All metrics as text.
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
    #[cfg(feature = "replication")]
    member::add(&mut metrics, shared);
    match shared.store.opened.get() {
        Some(opened) => {
            let from_database = opened.database.metrics().into_iter();
            metrics.extend(from_database.filter(|metric| metric.name != ACKNOWLEDGEMENT));
        }
        None => progress(shared).iter().for_each(|progress| recovery(&mut metrics, progress)),
    }
    metrics.to_prometheus()
}

/// The metrics of INFO.
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

/// The metrics of a recovery by log stream.
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

/// The class of a command: its subject.
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
