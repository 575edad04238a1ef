//! `/`, the status page, and `/status.json`, its data: the numbers of INFO by their names, and
//! further data beyond INFO.

mod json;
#[cfg(feature = "replication")]
mod member;

use super::metrics::class_of;
use crate::commands::info;
use crate::state::{Shared, Stopping};
use hyades::{Metric, MetricValue, Progress};
use hyades_platform::sync::Unpoisoned;
use json::Json;
use std::sync::atomic::Ordering::Relaxed;

/// The page, self-contained.
pub const PAGE: &str = include_str!("status/page.html");

/// The number of shown entries of the slow log.
const MOST_SLOW: usize = 10;

/// Steps of each doubling in the shown times of acknowledgement.
const STEPS: usize = 16;

/// The activity of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// The server opens its database.
    Loading,
    /// The server serves.
    Ready,
    /// The log has failed, or the database cannot be opened.
    Failed,
    /// The server was asked to stop.
    Stopping,
}

impl ServerState {
    /// The present state of a server.
    pub fn of(shared: &Shared) -> ServerState {
        match shared.stopping() {
            Some(Stopping::Failed(_)) => ServerState::Failed,
            _ if shared.membership.stopped().is_some() => ServerState::Failed,
            // The log of a member may stop, and the member joins again.
            _ if !shared.membership.is_on() && shared.store.log_failure().is_some() => {
                ServerState::Failed
            }
            Some(Stopping::Asked) => ServerState::Stopping,
            None if shared.store.opened.get().is_some() => ServerState::Ready,
            None => ServerState::Loading,
        }
    }

    /// As a word.
    pub fn name(self) -> &'static str {
        match self {
            ServerState::Loading => "loading",
            ServerState::Ready => "ready",
            ServerState::Failed => "failed",
            ServerState::Stopping => "stopping",
        }
    }
}

/// Why a server has failed.
fn cause(shared: &Shared) -> Option<String> {
    match shared.stopping() {
        Some(Stopping::Failed(cause)) => Some(cause),
        _ if shared.membership.is_on() => {
            let cause = shared.membership.stopped();
            cause.map(|cause| format!("this member has stopped: {cause}"))
        }
        _ => shared.store.log_failure().map(|cause| format!("the log failed: {cause}")),
    }
}

/// How far recovery has got.
pub fn progress(shared: &Shared) -> Option<Progress> {
    shared.store.progress.lock().unpoisoned().clone()
}

/// The status.
pub fn json(shared: &Shared, live: &[u64]) -> String {
    let mut out = Json::default();
    out.object(|out| {
        let state = ServerState::of(shared);
        out.key("state").text(state.name());
        out.key("cause").optional(cause(shared), Json::text);
        let recovering = progress(shared).filter(|_| shared.store.opened.get().is_none());
        out.key("recovery").optional(recovering.as_ref(), recovery);
        #[cfg(feature = "replication")]
        member::status(out.key("replication"), shared);
        #[cfg(not(feature = "replication"))]
        out.key("replication").digits("null");
        let info = info::text(shared, |name| info::MONITORED.contains(&name), live);
        out.key("info").object(|out| numbers(out, &info));
        out.key("databases").list(info::databases_with_keys(shared, live), |out, database| {
            out.object(|out| {
                out.key("database").number(database.0 as f64);
                out.key("keys").number(database.1 as f64);
                out.key("expiring").number(database.2 as f64);
            });
        });
        out.key("acknowledgement").object(|out| {
            let sum = shared.stats.counters.acknowledged_nanos.load(Relaxed) as f64 / 1e9;
            let steps = shared.stats.acknowledged.steps(STEPS);
            let steps = steps.into_iter().map(|(nanos, count)| (nanos as f64 / 1e9, count));
            histogram(out, sum, &steps.collect::<Vec<_>>());
        });
        let opened = shared.store.opened.get().map(|opened| opened.database.metrics());
        let metrics: Vec<Metric> = opened.into_iter().flatten().collect();
        out.key("sync").object(|out| syncs(out, &metrics));
        out.key("streams").list(streams(&metrics), stream);
        let tables =
            shared.store.opened.get().map(|opened| opened.database.tables()).unwrap_or_default();
        out.key("tables").list(tables, |out, table| {
            out.object(|out| {
                out.key("table").text(&table.name);
                out.key("rows").number(table.rows as f64);
                out.key("bytes").number(table.bytes as f64);
            });
        });
        let ran = shared.stats.commands.iter().filter(|(_, counts)| counts.calls.load(Relaxed) > 0);
        out.key("commands").list(ran, |out, (name, counts)| {
            out.object(|out| {
                out.key("command").text(name);
                out.key("class").text(class_of(name));
                out.key("calls").number(counts.calls.load(Relaxed) as f64);
                out.key("failed").number(counts.failed.load(Relaxed) as f64);
                out.key("seconds").number(counts.nanos.load(Relaxed) as f64 / 1e9);
            });
        });
        slow_log(out.key("slow_log"), shared);
    });
    out.into_text()
}

fn recovery(out: &mut Json, progress: &Progress) {
    out.object(|out| {
        out.key("phase").text(progress.phase);
        out.key("share").number(progress.share());
        let numbers = [
            ("bytes_done", progress.bytes_done),
            ("bytes_total", progress.bytes_total),
            ("image_bytes_done", progress.image_bytes_done),
            ("image_bytes_total", progress.image_bytes_total),
            ("transactions", progress.records_done),
        ];
        numbers.into_iter().for_each(|(name, value)| out.key(name).number(value as f64));
        out.key("seconds").number(progress.seconds);
        out.key("seconds_left").optional(progress.estimate_seconds, |out, left| out.number(left));
        out.key("streams").list(&progress.by_stream, |out, stream| {
            out.object(|out| {
                out.key("stream").text(stream.stream.to_string());
                out.key("phase").text(stream.phase);
                out.key("bytes_read").number(stream.bytes_read as f64);
                out.key("bytes_total").number(stream.bytes_total as f64);
                out.key("records").number(stream.records as f64);
            });
        });
    });
}

/// The lines of INFO. A number in INFO is a number here.
fn numbers(out: &mut Json, info: &str) {
    for (name, value) in info.lines().filter_map(|line| line.split_once(':')) {
        match is_number(value) {
            // As written: no digit is lost.
            true => out.key(name).digits(value),
            false => out.key(name).text(value),
        }
    }
}

/// Whether a text is a number, also in JSON.
pub fn is_number(text: &str) -> bool {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let is_plain = whole == "0" || !whole.starts_with('0');
    text.len() <= 24 && is_digits(whole) && is_digits(fraction) && is_plain
}

/// A histogram in seconds: of each pair, the number of times that took no longer than the first.
fn histogram(out: &mut Json, sum: f64, steps: &[(f64, u64)]) {
    out.key("count").number(steps.last().map_or(0.0, |(_, count)| *count as f64));
    out.key("seconds").number(sum);
    out.key("steps").list(steps, |out, (seconds, count)| {
        out.list([*seconds, *count as f64], |out, number| out.number(number));
    });
}

/// The syncs of all streams together.
fn syncs(out: &mut Json, metrics: &[Metric]) {
    let (mut steps, mut sum) = (Vec::<(f64, u64)>::new(), 0.0);
    for metric in metrics.iter().filter(|metric| metric.name == "hyades_sync_seconds") {
        let MetricValue::Histogram(histogram) = &metric.value else { continue };
        sum += histogram.sum;
        match steps.is_empty() {
            true => steps.clone_from(&histogram.buckets),
            false => steps.iter_mut().zip(&histogram.buckets).for_each(|(all, one)| all.1 += one.1),
        }
    }
    histogram(out, sum, &steps);
}

/// The data of a log stream: its label, and metrics by their names.
type StreamMetrics<'m> = (&'m str, Vec<(&'static str, &'m MetricValue)>);

fn streams(metrics: &[Metric]) -> Vec<StreamMetrics<'_>> {
    let mut streams: Vec<StreamMetrics<'_>> = Vec::new();
    for metric in metrics {
        let [("stream", label)] = &metric.labels[..] else { continue };
        let value = (metric.name, &metric.value);
        match streams.iter_mut().find(|(known, _)| known == label) {
            Some((_, values)) => values.push(value),
            None => streams.push((label, vec![value])),
        }
    }
    streams
}

fn stream(out: &mut Json, (label, metrics): StreamMetrics<'_>) {
    let value = |wanted: &str| {
        let found = metrics.iter().find(|(name, _)| *name == wanted);
        found.map_or(0.0, |(_, value)| match value {
            MetricValue::Counter(value) | MetricValue::Gauge(value) => *value,
            MetricValue::Histogram(histogram) => histogram.count() as f64,
            _ => 0.0,
        })
    };
    out.object(|out| {
        out.key("stream").text(label);
        out.key("durable_bytes").number(value("hyades_log_bytes_total"));
        out.key("device_bytes").number(value("hyades_device_bytes_total"));
        out.key("backlog_bytes").number(value("hyades_log_backlog_bytes"));
        out.key("syncs").number(value("hyades_sync_seconds"));
        let sum = metrics.iter().find_map(|(name, value)| match value {
            MetricValue::Histogram(histogram) if *name == "hyades_sync_seconds" => {
                Some(histogram.sum)
            }
            _ => None,
        });
        out.key("sync_seconds").number(sum.unwrap_or(0.0));
    });
}

/// The newest entries. If some users are restricted, the page must not show data hidden from
/// restricted users: the arguments are then left out.
fn slow_log(out: &mut Json, shared: &Shared) {
    let is_open = !shared.access.is_restricted();
    out.list(shared.stats.slow_log.last(MOST_SLOW), |out, entry| {
        let words = entry.args.iter().map(|arg| String::from_utf8_lossy(arg));
        let shown = words.take(if is_open { usize::MAX } else { 1 });
        out.object(|out| {
            out.key("id").number(entry.id as f64);
            out.key("at_seconds").number(entry.at_seconds as f64);
            out.key("seconds").number(entry.micros as f64 / 1e6);
            out.key("command").text(shown.collect::<Vec<_>>().join(" "));
            out.key("client").text(&entry.address);
        });
    });
}
