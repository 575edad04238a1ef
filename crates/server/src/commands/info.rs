//! INFO: Redis's sections and names, and one of our own.

#[cfg(test)]
mod tests;

use super::{Local, lower};
use crate::clock::wall_us;
use crate::data::databases;
use crate::data::keyspace::Stop;
use crate::resp::reply::Reply;
use crate::saves::{SaveKind, SaveStats};
use crate::shared::Shared;
use hyades::{Attempt, MetricValue, Progress, Session, TableStats};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The version of Redis whose commands and replies these are.
pub const REDIS_VERSION: &str = "7.2.0";

/// How often the generations are read, if that meets conflicts.
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

/// The sections whose numbers the pages for monitoring show.
pub const MONITORED: [&str; 8] =
    ["server", "clients", "memory", "persistence", "stats", "cpu", "keyspace", "hyades"];

pub fn info(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let mut wanted: Vec<String> = args[1..].iter().map(|arg| lower(arg)).collect();
    let has = |wanted: &[String], name: &str| wanted.iter().any(|of| of == name);
    let all = has(&wanted, "all") || has(&wanted, "everything");
    if wanted.is_empty() || all || has(&wanted, "default") {
        wanted.extend(DEFAULT.map(str::to_string));
    }
    if all {
        wanted.extend(["commandstats", "latencystats"].map(str::to_string));
    }
    let has = |name: &str| wanted.iter().any(|of| of == name);
    // Read before the sections are written, since it needs the loop's session.
    let live = match has("keyspace") {
        true => live_generations(local.shared, local.session.as_deref_mut()),
        false => Vec::new(),
    };
    reply.verbatim(&text(local.shared, has, &live));
    Ok(())
}

/// The sections that are wanted. Those of the databases need their generations.
pub fn text(shared: &Shared, is_wanted: impl Fn(&str) -> bool, live: &[u64]) -> String {
    let mut out = String::new();
    let sections: [(&str, Section); 14] = [
        ("server", server),
        ("clients", clients),
        ("memory", memory),
        ("persistence", persistence),
        ("stats", stats),
        ("replication", replication),
        ("cpu", cpu),
        ("modules", |_, _| {}),
        ("commandstats", commandstats),
        ("errorstats", errorstats),
        ("latencystats", latencystats),
        ("cluster", |_, out| out.push_str("cluster_enabled:0\r\n")),
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
    // There is no commit of Redis, and this one says which build it is.
    line(out, "redis_git_sha1", "00000000");
    line(out, "redis_git_dirty", 0);
    line(out, "redis_build_id", build_id());
    line(out, "hyades_version", env!("CARGO_PKG_VERSION"));
    line(out, "redis_mode", "standalone");
    line(out, "os", std::env::consts::OS);
    line(out, "arch_bits", usize::BITS);
    line(out, "multiplexing_api", "epoll");
    line(out, "process_id", std::process::id());
    let is_supervised = std::env::var_os("NOTIFY_SOCKET").is_some_and(|name| !name.is_empty());
    line(out, "process_supervised", if is_supervised { "systemd" } else { "no" });
    line(out, "run_id", &shared.run_id);
    counter(out, "tcp_port", &shared.port);
    line(out, "server_time_usec", wall_us());
    line(out, "uptime_in_seconds", uptime);
    line(out, "uptime_in_days", uptime / 86_400);
    line(out, "hz", 10);
    line(out, "configured_hz", shared.settings.hz());
    let program = std::env::current_exe().map(|path| path.display().to_string());
    line(out, "executable", program.unwrap_or_default());
    let file = shared.settings.config_file().map(|file| file.display().to_string());
    line(out, "config_file", file.unwrap_or_default());
}

/// A number of this build: of its version, system and processor.
fn build_id() -> String {
    let of = [env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH];
    let digest = Sha256::digest(of.join(" ").as_bytes());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn clients(shared: &Shared, out: &mut String) {
    line(out, "connected_clients", shared.clients.len());
    line(out, "maxclients", shared.settings.max_clients());
    let (input, output) = shared.clients.largest_buffers();
    line(out, "client_recent_max_input_buffer", input);
    line(out, "client_recent_max_output_buffer", output);
    let blocked = shared.waiting.clients() as u64 + shared.pause.clients();
    line(out, "blocked_clients", blocked);
    line(out, "tracking_clients", 0);
}

/// The most bytes that the process had in memory so far.
pub fn most_resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    number.unwrap_or(0) << 10
}

/// Bytes of the process in memory.
pub fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// A number of bytes, and the same as people read it.
fn size(out: &mut String, name: &str, bytes: u64) {
    const UNITS: [&str; 6] = ["B", "K", "M", "G", "T", "P"];
    line(out, name, bytes);
    let unit = (bytes.max(1).ilog2() / 10) as usize;
    let unit = unit.min(UNITS.len() - 1);
    let shown = match unit {
        0 => format!("{bytes}B"),
        _ => format!("{:.2}{}", bytes as f64 / (1u64 << (10 * unit)) as f64, UNITS[unit]),
    };
    line(out, &format!("{name}_human"), shown);
}

fn memory(shared: &Shared, out: &mut String) {
    let used = shared.used_memory();
    let (resident, most) = (resident_bytes(), most_resident_bytes());
    size(out, "used_memory", used);
    size(out, "used_memory_rss", resident);
    size(out, "used_memory_peak", most);
    let percent = 100.0 * used as f64 / most.max(1) as f64;
    line(out, "used_memory_peak_perc", format!("{percent:.2}%"));
    line(out, "used_memory_startup", shared.memory_at_start());
    let ratio = resident as f64 / used.max(1) as f64;
    line(out, "mem_fragmentation_ratio", format!("{ratio:.2}"));
    line(out, "mem_fragmentation_bytes", resident as i64 - used as i64);
    let system = rustix::system::sysinfo();
    size(out, "total_system_memory", system.totalram * u64::from(system.mem_unit));
    line(out, "number_of_cached_scripts", 0);
    counter(out, "lazyfreed_objects", &shared.counters.freed);
    if let Some(opened) = shared.opened.get() {
        let tables = opened.database.tables();
        // Collections and strings in blocks and chunks that are not removed yet.
        let garbage = tables.iter().find(|table| table.name == "garbage");
        line(out, "lazyfree_pending_objects", garbage.map_or(0, |table| table.rows));
        // Keys and values, without the heads of their records and without indexes.
        let rows: u64 = tables.iter().map(|table| table.bytes).sum();
        line(out, "used_memory_overhead", used.saturating_sub(rows));
        line(out, "used_memory_dataset", rows);
        let percent = 100.0 * rows as f64 / used.max(rows).max(1) as f64;
        line(out, "used_memory_dataset_perc", format!("{percent:.2}%"));
    }
    size(out, "maxmemory", shared.settings.max_memory());
    line(out, "maxmemory_policy", "noeviction");
    line(out, "mem_allocator", "mimalloc");
}

/// How far recovery has got: the lines of Redis, then what they are made of, by log stream too.
fn loading(of: &Progress, out: &mut String) {
    let began = (wall_us() as f64 / 1e6 - of.seconds).max(0.0);
    line(out, "loading_start_time", began as u64);
    line(out, "loading_total_bytes", (of.image_bytes_total + of.bytes_total).max(1));
    line(out, "loading_loaded_bytes", of.image_bytes_done + of.bytes_done);
    line(out, "loading_loaded_perc", format!("{:.2}", 100.0 * of.share()));
    line(out, "loading_eta_seconds", of.estimate_seconds.unwrap_or(1.0).ceil());
    line(out, "loading_phase", of.phase);
    line(out, "loading_image_total_bytes", of.image_bytes_total);
    line(out, "loading_image_loaded_bytes", of.image_bytes_done);
    line(out, "loading_log_total_bytes", of.bytes_total.max(1));
    line(out, "loading_log_loaded_bytes", of.bytes_done);
    line(out, "loading_transactions", of.records_done);
    for stream in &of.by_stream {
        let _ = write!(
            out,
            "loading_stream_{}:phase={},read={},total={},records={}\r\n",
            stream.stream, stream.phase, stream.bytes_read, stream.bytes_total, stream.records
        );
    }
}

fn persistence(shared: &Shared, out: &mut String) {
    let is_loading = shared.opened.get().is_none();
    line(out, "loading", u8::from(is_loading));
    line(out, "async_loading", 0);
    let progress = shared.progress.lock().expect("no holder panics").clone();
    if let Some(progress) = progress.filter(|_| is_loading) {
        loading(&progress, out);
    }
    let failed = shared.log_failure();
    counter(out, "rdb_changes_since_last_save", &shared.counters.changes);
    let [save, rewrite] = [SaveKind::Save, SaveKind::Rewrite].map(|of| shared.saves.stats(of));
    let seconds = |time: Option<Duration>| time.map_or(-1, |time| time.as_secs() as i64);
    let current = |of: SaveStats| seconds(of.since.map(|since| since.elapsed()));
    let status = |of: SaveStats| if of.has_failed { "err" } else { "ok" };
    let is_saving = shared.opened.get().is_some_and(|of| of.database.checkpoints().under_way);
    // One that no command has asked for counts as well, but not BGREWRITEAOF.
    let is_saving = save.since.is_some() || is_saving && rewrite.since.is_none();
    line(out, "rdb_bgsave_in_progress", u8::from(is_saving));
    line(out, "rdb_last_save_time", shared.last_save_seconds());
    line(out, "rdb_last_bgsave_status", status(save));
    line(out, "rdb_last_bgsave_time_sec", seconds(save.last));
    line(out, "rdb_current_bgsave_time_sec", current(save));
    line(out, "rdb_saves", save.taken);
    line(out, "aof_enabled", 1);
    line(out, "aof_rewrite_in_progress", u8::from(rewrite.since.is_some()));
    line(out, "aof_rewrite_scheduled", u8::from(rewrite.is_scheduled));
    line(out, "aof_last_rewrite_time_sec", seconds(rewrite.last));
    line(out, "aof_current_rewrite_time_sec", current(rewrite));
    line(out, "aof_last_bgrewrite_status", status(rewrite));
    line(out, "aof_rewrites", rewrite.taken);
    line(out, "aof_last_write_status", if failed.is_some() { "err" } else { "ok" });
}

fn stats(shared: &Shared, out: &mut String) {
    let of = &shared.counters;
    counter(out, "total_connections_received", &of.connections);
    counter(out, "total_commands_processed", &of.commands);
    let [commands, input, output] = shared.rates.of(of);
    line(out, "instantaneous_ops_per_sec", commands.round());
    line(out, "instantaneous_input_kbps", format!("{:.2}", input / 1_024.0));
    line(out, "instantaneous_output_kbps", format!("{:.2}", output / 1_024.0));
    counter(out, "total_reads_processed", &of.reads);
    counter(out, "total_writes_processed", &of.writes);
    counter(out, "total_net_input_bytes", &of.input);
    counter(out, "total_net_output_bytes", &of.output);
    counter(out, "rejected_connections", &of.rejected);
    for name in ["sync_full", "sync_partial_ok", "sync_partial_err"] {
        line(out, name, 0);
    }
    counter(out, "expired_keys", &of.expired);
    line(out, "evicted_keys", 0);
    counter(out, "keyspace_hits", &of.hits);
    counter(out, "keyspace_misses", &of.misses);
    line(out, "pubsub_channels", shared.channels.count_channels());
    line(out, "pubsub_patterns", shared.channels.count_patterns());
    line(out, "pubsubshard_channels", shared.channels.count_shard_channels());
    counter(out, "total_error_replies", &of.errors);
    // Checkpoints in the background: Redis has a process of its own for each.
    line(out, "total_forks", shared.saves.begun_in_background());
    line(out, "migrate_cached_sockets", shared.targets.count());
}

fn replication(shared: &Shared, out: &mut String) {
    line(out, "role", "master");
    line(out, "connected_slaves", 0);
    line(out, "master_failover_state", "no-failover");
    line(out, "master_replid", &shared.run_id);
    line(out, "master_replid2", "0".repeat(40));
    line(out, "master_repl_offset", 0);
    line(out, "second_repl_offset", -1);
    line(out, "repl_backlog_active", 0);
    line(out, "repl_backlog_size", shared.settings.replication_backlog());
    line(out, "repl_backlog_first_byte_offset", 0);
    line(out, "repl_backlog_histlen", 0);
}

/// Processor time in seconds of a process or thread, by the name of its file `stat`: in the system,
/// in the program, and both of its children that have ended. As exact as a tick of the system.
fn processor_seconds(file: &str) -> [f64; 4] {
    let stat = std::fs::read_to_string(file).unwrap_or_default();
    // The name of the program, which may have blanks, stands in parentheses.
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
    for (name, counts) in shared.command_stats.iter() {
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
    let stats = shared.command_stats.iter();
    for (name, times) in stats.filter_map(|(name, counts)| Some((name, counts.times()?))) {
        let usec = |percent: f64| times.percentile(percent) as f64 / 1_000.0;
        let shown = percentiles.iter().map(|percent| format!("p{percent}={:.3}", usec(*percent)));
        let shown = shown.collect::<Vec<_>>().join(",");
        line(out, &format!("latency_percentiles_usec_{name}"), shown);
    }
}

fn errorstats(shared: &Shared, out: &mut String) {
    for (code, count) in shared.errors.lock().expect("no holder panics").iter() {
        let _ = write!(out, "errorstat_{code}:count={count}\r\n");
    }
}

/// The generations of the databases: none before the database is open, or if they are flushed all
/// the time. The counts beside them are not exact either, so nothing waits for the disk.
pub fn live_generations(shared: &Shared, session: Option<&mut Session>) -> Vec<u64> {
    let databases = shared.settings.databases();
    let (Some(opened), Some(session)) = (shared.opened.get(), session) else { return Vec::new() };
    for _ in 0..ATTEMPTS {
        let live = session.attempt(|tx| databases::live(tx, opened.tables, databases));
        if let Ok(Attempt::Committed((live, _), _)) = live {
            return live;
        }
    }
    Vec::new()
}

/// The databases that have keys: their numbers, their keys, and those of them that expire.
pub fn databases_with_keys(shared: &Shared, live: &[u64]) -> Vec<(usize, i64, i64)> {
    let all = live.iter().enumerate().map(|(number, generation)| {
        let (keys, expiring) = shared.counts.of(*generation);
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
    counter(out, "loop_wakeups", &shared.counters.turns);
    counter(out, "tls_failures", &shared.counters.tls_failures);
    counter(out, "run_conflicts", &shared.counters.conflicts);
    counter(out, "runs_alone", &shared.counters.alone);
    counter(out, "runs_large", &shared.counters.large);
    line(out, "acknowledgements", shared.acknowledged.count());
    for percent in [50.0, 99.0] {
        let micros = shared.acknowledged.percentile(percent) as f64 / 1_000.0;
        line(out, &format!("acknowledgement_usec_p{percent}"), format!("{micros:.3}"));
    }
    let Some(opened) = shared.opened.get() else { return };
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
    line(out, "recovery_seconds", format!("{:.3}", recovery.seconds));
    line(out, "recovery_transactions", recovery.records);
    line(out, "recovery_image_rows", recovery.image_rows);
}
