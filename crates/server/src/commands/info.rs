//! INFO: Redis's sections and names, and a section of our own.

#[cfg(feature = "replication")]
mod members;
mod memory;
mod persistence;
mod replication;
mod stats;
#[cfg(test)]
mod tests;

pub use replication::{redis_role, role};

use super::{Local, lower};
use crate::base::clock::wall_us;
use crate::data::databases;
use crate::data::keyspace::Stop;
use crate::resp::reply::Reply;
use crate::state::Shared;
use hyades::{Attempt, MetricValue, Session, TableStats};
use hyades_platform::sync::Unpoisoned;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The version of Redis with the same commands and replies.
pub const REDIS_VERSION: &str = "7.2.0";

/// Attempts to read the generations, in case of conflicts.
const ATTEMPTS: u32 = 8;

const DEFAULT: [&str; 12] = [
    "server",
    "clients",
    "memory",
    "persistence",
    "stats",
    "replication",
    "cpu",
    "modules",
    "errorstats",
    "cluster",
    "keyspace",
    "hyades",
];

/// The sections with the numbers on the pages for monitoring.
pub const MONITORED: [&str; 8] =
    ["server", "clients", "memory", "persistence", "stats", "cpu", "keyspace", "hyades"];

pub fn info(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let mut wanted: Vec<String> = args[1..].iter().map(|arg| lower(arg)).collect();
    let has = |wanted: &[String], name: &str| wanted.iter().any(|section| section == name);
    let all = has(&wanted, "all") || has(&wanted, "everything");
    if wanted.is_empty() || all || has(&wanted, "default") {
        wanted.extend(DEFAULT.map(str::to_string));
    }
    if all {
        wanted.extend(["commandstats", "latencystats"].map(str::to_string));
    }
    let has = |name: &str| wanted.iter().any(|section| section == name);
    // Read before the sections are written, since the read needs the loop's session.
    let live = match has("keyspace") {
        true => live_generations(local.shared, local.session.as_deref_mut()),
        false => Vec::new(),
    };
    reply.verbatim(&text(local.shared, has, &live));
    Ok(())
}

/// The wanted sections. The sections of the databases need their generations.
pub fn text(shared: &Shared, is_wanted: impl Fn(&str) -> bool, live: &[u64]) -> String {
    let mut out = String::new();
    let sections: [(&str, Section); 14] = [
        ("server", server),
        ("clients", clients),
        ("memory", memory::memory),
        ("persistence", persistence::persistence),
        ("stats", stats::stats),
        ("replication", replication::replication),
        ("cpu", cpu),
        ("modules", |_, _| {}),
        ("commandstats", commandstats),
        ("errorstats", errorstats),
        ("latencystats", latencystats),
        ("cluster", |shared, out| {
            line(out, "cluster_enabled", u8::from(shared.settings.is_cluster()))
        }),
        ("keyspace", |_, _| {}),
        ("hyades", hyades),
    ];
    for (name, write) in sections.iter().filter(|(name, _)| is_wanted(name)) {
        if !out.is_empty() {
            out.push_str("\r\n");
        }
        let (first, rest) = match *name {
            "cpu" => ("cpu", ""),
            name => name.split_at(1),
        };
        let _ = write!(out, "# {}{rest}\r\n", first.to_uppercase());
        write(shared, &mut out);
        if *name == "keyspace" {
            keyspace(shared, &mut out, live);
        }
    }
    out
}

/// Appends the lines of a section.
type Section = fn(&Shared, &mut String);

fn line(out: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = write!(out, "{name}:{value}\r\n");
}

fn counter(out: &mut String, name: &str, value: &AtomicU64) {
    line(out, name, value.load(Relaxed));
}

fn server(shared: &Shared, out: &mut String) {
    let uptime = shared.started.elapsed().as_secs();
    line(out, "redis_version", REDIS_VERSION);
    // There is no commit of Redis; the build id names the build.
    line(out, "redis_git_sha1", "00000000");
    line(out, "redis_git_dirty", 0);
    line(out, "redis_build_id", build_id());
    line(out, "hyades_version", env!("CARGO_PKG_VERSION"));
    line(out, "redis_mode", redis_mode(shared));
    line(out, "os", std::env::consts::OS);
    line(out, "arch_bits", usize::BITS);
    line(out, "multiplexing_api", "epoll");
    line(out, "process_id", std::process::id());
    let is_supervised = std::env::var_os("NOTIFY_SOCKET").is_some_and(|name| !name.is_empty());
    line(out, "process_supervised", if is_supervised { "systemd" } else { "no" });
    line(out, "run_id", &shared.run_id);
    counter(out, "tcp_port", &shared.wiring.port);
    line(out, "server_time_usec", wall_us());
    line(out, "uptime_in_seconds", uptime);
    line(out, "uptime_in_days", uptime / 86_400);
    line(out, "hz", 10);
    line(out, "configured_hz", shared.settings.hz());
    let program = std::env::current_exe().map(|path| path.display().to_string());
    line(out, "executable", program.unwrap_or_default());
    let file = shared.settings.config_file().map(|file| file.display().to_string());
    line(out, "config_file", file.unwrap_or_default());
    // Event loops read, run and write: no thread does a part of another thread's work.
    line(out, "io_threads_active", 0);
}

/// The mode, as INFO and HELLO name it.
pub fn redis_mode(shared: &Shared) -> &'static str {
    if shared.settings.is_cluster() { "cluster" } else { "standalone" }
}

/// A number of the build: of its version, system and processor.
fn build_id() -> String {
    let parts = [env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH];
    let digest = Sha256::digest(parts.join(" ").as_bytes());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn clients(shared: &Shared, out: &mut String) {
    line(out, "connected_clients", shared.clients.len());
    line(out, "maxclients", shared.settings.max_clients());
    let all = shared.clients.totals();
    line(out, "client_recent_max_input_buffer", all.largest_input);
    line(out, "client_recent_max_output_buffer", all.largest_output);
    let blocked = shared.wiring.waiting.clients() as u64 + shared.limits.pause.clients();
    line(out, "blocked_clients", blocked);
    line(out, "clients_in_timeout_table", all.with_timeout);
    line(out, "pubsub_clients", all.listening);
    line(out, "watching_clients", all.watching);
    line(out, "total_watched_keys", all.watched_keys);
    line(out, "total_blocking_keys", shared.wiring.waiting.keys());
    line(out, "total_blocking_keys_on_nokey", 0);
    line(out, "tracking_clients", shared.wiring.tracking.clients());
}

/// Processor time in seconds of a process or thread, by the name of its file `stat`: in the system,
/// in the program, and both times of its ended children. As exact as a tick of the system.
fn processor_seconds(file: &str) -> [f64; 4] {
    let stat = std::fs::read_to_string(file).unwrap_or_default();
    // The name of the program, perhaps with blanks, stands in parentheses.
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11);
    let per_second = rustix::param::clock_ticks_per_second().max(1) as f64;
    let mut next = || {
        let ticks = fields.next().and_then(|field| field.parse::<u64>().ok());
        ticks.unwrap_or(0) as f64 / per_second
    };
    let (user, system, children_user, children_system) = (next(), next(), next(), next());
    [system, user, children_system, children_user]
}

fn cpu(_: &Shared, out: &mut String) {
    let [system, user, children_system, children_user] = processor_seconds("/proc/self/stat");
    let main = format!("/proc/self/task/{}/stat", std::process::id());
    let [main_system, main_user, ..] = processor_seconds(&main);
    for (name, seconds) in [
        ("used_cpu_sys", system),
        ("used_cpu_user", user),
        ("used_cpu_sys_children", children_system),
        ("used_cpu_user_children", children_user),
        ("used_cpu_sys_main_thread", main_system),
        ("used_cpu_user_main_thread", main_user),
    ] {
        line(out, name, format!("{seconds:.6}"));
    }
}

fn commandstats(shared: &Shared, out: &mut String) {
    for (name, counts) in shared.stats.commands.iter() {
        let all = [&counts.calls, &counts.failed, &counts.rejected, &counts.nanos];
        let [calls, failed, rejected, nanos] = all.map(|counter| counter.load(Relaxed));
        if calls + rejected > 0 {
            let usec = nanos as f64 / 1_000.0;
            let _ = write!(
                out,
                "cmdstat_{name}:calls={calls},usec={},usec_per_call={:.2},\
                 rejected_calls={rejected},failed_calls={failed}\r\n",
                nanos / 1_000,
                usec / calls.max(1) as f64,
            );
        }
    }
}

fn latencystats(shared: &Shared, out: &mut String) {
    let percentiles = shared.settings.latency_percentiles();
    let stats = shared.stats.commands.iter();
    for (name, times) in stats.filter_map(|(name, counts)| Some((name, counts.times()?))) {
        let usec = |percent: f64| times.percentile(percent) as f64 / 1_000.0;
        let shown = percentiles.iter().map(|percent| format!("p{percent}={:.3}", usec(*percent)));
        let shown = shown.collect::<Vec<_>>().join(",");
        line(out, &format!("latency_percentiles_usec_{name}"), shown);
    }
}

fn errorstats(shared: &Shared, out: &mut String) {
    for (code, count) in shared.stats.errors.lock().unpoisoned().iter() {
        let _ = write!(out, "errorstat_{code}:count={count}\r\n");
    }
}

/// The generations of the databases: none before the database is open, or if databases are flushed
/// all the time. The counts beside them are not exact either, so nothing waits for the disk.
pub fn live_generations(shared: &Shared, session: Option<&mut Session>) -> Vec<u64> {
    let databases = shared.settings.databases();
    let (Some(opened), Some(session)) = (shared.store.opened.get(), session) else {
        return Vec::new();
    };
    for _ in 0..ATTEMPTS {
        let live = session.attempt(|tx| databases::live(tx, opened.tables, databases));
        if let Ok(Attempt::Committed((live, _), _)) = live {
            return live;
        }
    }
    Vec::new()
}

/// The databases with keys: number, keys, and keys with an expiry of each.
pub fn databases_with_keys(shared: &Shared, live: &[u64]) -> Vec<(usize, i64, i64)> {
    let all = live.iter().enumerate().map(|(number, generation)| {
        let (keys, expiring) = shared.store.counts.of(*generation);
        (number, keys, expiring)
    });
    all.filter(|(_, keys, _)| *keys > 0).collect()
}

fn keyspace(shared: &Shared, out: &mut String, live: &[u64]) {
    for (number, keys, expiring) in databases_with_keys(shared, live) {
        let _ = write!(out, "db{number}:keys={keys},expires={expiring},avg_ttl=0\r\n");
    }
}

fn hyades(shared: &Shared, out: &mut String) {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    line(out, "used_cpu_total", format!("{}.{:06}", used.tv_sec, used.tv_nsec / 1_000));
    counter(out, "loop_wakeups", &shared.stats.counters.turns);
    counter(out, "tls_failures", &shared.stats.counters.tls_failures);
    counter(out, "run_conflicts", &shared.stats.counters.conflicts);
    counter(out, "runs_alone", &shared.stats.counters.alone);
    counter(out, "runs_large", &shared.stats.counters.large);
    let timers = &shared.store.timers.numbers;
    counter(out, "expiry_timers", &timers.timers);
    counter(out, "expiry_timer_bytes", &timers.bytes);
    counter(out, "expiry_due", &timers.due);
    let late = timers.late_ms.load(Relaxed) as f64 / 1_000.0;
    line(out, "expiry_late_seconds", format!("{late:.3}"));
    counter(out, "expiry_sweeps", &timers.sweeps);
    replication::numbers(shared, out);
    line(out, "acknowledgements", shared.stats.acknowledged.count());
    for percent in [50.0, 99.0] {
        let micros = shared.stats.acknowledged.percentile(percent) as f64 / 1_000.0;
        line(out, &format!("acknowledgement_usec_p{percent}"), format!("{micros:.3}"));
    }
    let Some(opened) = shared.store.opened.get() else { return };
    let stats = opened.database.stats();
    line(out, "log_streams", opened.database.streams());
    line(out, "log_bytes", stats.log_bytes);
    line(out, "log_device_bytes", stats.device_bytes);
    line(out, "log_syncs", stats.syncs);
    line(out, "transactions", stats.commits);
    line(out, "conflicts", stats.conflicts);
    if let Some(log) = opened.database.log() {
        for stream in 0..log.streams() {
            line(out, &format!("log_backlog_bytes_{stream}"), log.backlog(stream));
        }
    }
    for metric in &opened.database.metrics() {
        let MetricValue::Histogram(syncs) = &metric.value else { continue };
        let ("hyades_sync_seconds", [(_, stream)]) = (metric.name, &metric.labels[..]) else {
            continue;
        };
        let [p50, p99] = [0.5, 0.99].map(|share| syncs.quantile(share).unwrap_or(0.0) * 1e6);
        let (count, mean) = (syncs.count(), 1e6 * syncs.sum / syncs.count().max(1) as f64);
        let _ = write!(
            out,
            "log_stream_{stream}:syncs={count},sync_usec={mean:.1},sync_usec_p50={p50:.0},\
             sync_usec_p99={p99:.0}\r\n"
        );
    }
    for table in opened.database.tables() {
        let TableStats { name, rows, bytes, .. } = table;
        let _ = write!(out, "table_{name}:rows={rows},bytes={bytes}\r\n");
    }
    let recovery = opened.database.recovery();
    let opening = shared.store.opening().unwrap_or_default();
    line(out, "opening_seconds", format!("{:.3}", opening.time.as_secs_f64()));
    line(out, "recovery_seconds", format!("{:.3}", recovery.seconds));
    line(out, "recovery_transactions", recovery.records);
    line(out, "recovery_image_rows", recovery.image_rows);
}
