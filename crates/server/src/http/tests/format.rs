//! The text for Prometheus, read by the rules of its format, and compared with INFO.

use super::*;
use crate::http::metrics::{NUMBERS, NumberKind};
use crate::http::status::is_number;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Numbers of INFO without a separate metric, with the reason.
const ELSEWHERE: &[(&str, &str)] = &[
    ("acknowledgement_usec_p50", "hyades_acknowledgement_seconds"),
    ("acknowledgement_usec_p99", "hyades_acknowledgement_seconds"),
    ("acknowledgements", "hyades_acknowledgement_seconds"),
    ("active_defrag_hits", "constant"),
    ("active_defrag_key_hits", "constant"),
    ("active_defrag_key_misses", "constant"),
    ("active_defrag_misses", "constant"),
    ("active_defrag_running", "constant"),
    ("allocator_active", "hyades_resident_bytes"),
    ("allocator_allocated", "a sum"),
    ("allocator_frag_bytes", "a difference"),
    ("allocator_frag_ratio", "a quotient"),
    ("allocator_resident", "hyades_resident_bytes"),
    ("allocator_rss_bytes", "constant"),
    ("allocator_rss_ratio", "constant"),
    ("aof_base_size", "the newest checkpoint"),
    ("aof_buffer_length", "hyades_log_backlog_bytes"),
    ("aof_current_size", "a sum"),
    ("aof_enabled", "constant"),
    ("aof_last_cow_size", "constant"),
    ("aof_pending_bio_fsync", "hyades_log_backlog_bytes"),
    ("aof_pending_rewrite", "hyades_checkpoint_under_way"),
    ("aof_rewrite_buffer_length", "constant"),
    ("aof_rewrite_in_progress", "hyades_checkpoint_under_way"),
    ("aof_rewrite_scheduled", "hyades_checkpoint_under_way"),
    ("aof_rewrites", "hyades_checkpoints_total"),
    ("arch_bits", "constant"),
    ("async_loading", "constant"),
    ("client_recent_max_input_buffer", "the largest of all now"),
    ("client_recent_max_output_buffer", "the largest of all now"),
    ("clients_in_timeout_table", "of the clients that wait"),
    ("configured_hz", "constant"),
    ("conflicts", "hyades_aborts_total"),
    ("dump_payload_sanitizations", "hyades_commands_total"),
    ("evicted_clients", "constant"),
    ("evicted_keys", "constant"),
    ("evicted_scripts", "constant"),
    ("expire_cycle_cpu_milliseconds", "of the processor's time"),
    ("expired_stale_perc", "a quotient"),
    ("hz", "constant"),
    ("instantaneous_eventloop_cycles_per_sec", "a rate of a counter"),
    ("instantaneous_expired_per_sec", "a rate of a counter"),
    ("instantaneous_input_kbps", "a rate of a counter"),
    ("instantaneous_ops_per_sec", "a rate of a counter"),
    ("instantaneous_output_kbps", "a rate of a counter"),
    ("io_threaded_reads_processed", "constant"),
    ("io_threaded_writes_processed", "constant"),
    ("io_threads_active", "constant"),
    ("latest_fork_usec", "constant"),
    ("lazyfree_pending_objects", "hyades_table_rows"),
    ("loading_loaded_bytes", "a sum"),
    ("loading_loaded_perc", "a quotient"),
    ("loading_start_time", "the time of the start"),
    ("loading_total_bytes", "a sum"),
    ("log_backlog_bytes_0", "hyades_log_backlog_bytes"),
    ("log_backlog_bytes_1", "hyades_log_backlog_bytes"),
    ("log_bytes", "hyades_log_bytes_total"),
    ("log_device_bytes", "hyades_device_bytes_total"),
    ("log_syncs", "hyades_sync_seconds"),
    ("mem_aof_buffer", "constant"),
    ("mem_clients_slaves", "constant"),
    ("mem_cluster_links", "constant"),
    ("mem_fragmentation_bytes", "a difference"),
    ("mem_fragmentation_ratio", "a quotient"),
    ("mem_not_counted_for_evict", "hyades_removed_bytes"),
    ("mem_replication_backlog", "constant"),
    ("mem_total_replication_buffers", "constant"),
    ("module_fork_in_progress", "constant"),
    ("module_fork_last_cow_size", "constant"),
    ("number_of_cached_scripts", "hyades_table_rows"),
    ("number_of_functions", "hyades_table_rows"),
    ("number_of_libraries", "hyades_table_rows"),
    ("process_id", "a name"),
    ("pubsub_clients", "of the connected clients"),
    ("rdb_bgsave_in_progress", "hyades_checkpoint_under_way"),
    ("rdb_last_cow_size", "constant"),
    ("rdb_last_load_keys_expired", "the keys at the start"),
    ("rdb_last_load_keys_loaded", "the keys at the start"),
    ("rdb_saves", "hyades_checkpoints_total"),
    ("recovery_seconds", "hyades_recovery_seconds"),
    ("recovery_transactions", "hyades_recovered_transactions"),
    ("redis_git_dirty", "constant"),
    ("redis_git_sha1", "constant"),
    ("repl_backlog_active", "constant"),
    ("repl_backlog_first_byte_offset", "constant"),
    ("repl_backlog_histlen", "constant"),
    ("repl_backlog_size", "constant"),
    ("server_time_usec", "the time of the answer"),
    ("slave_expires_tracked_keys", "constant"),
    ("sync_full", "constant"),
    ("sync_partial_err", "constant"),
    ("sync_partial_ok", "constant"),
    ("tcp_port", "a name"),
    ("total_blocking_keys", "of the clients that wait"),
    ("total_blocking_keys_on_nokey", "constant"),
    ("total_net_repl_input_bytes", "constant"),
    ("total_net_repl_output_bytes", "constant"),
    ("total_system_memory", "of the machine"),
    ("total_watched_keys", "of the clients that watch"),
    ("transactions", "hyades_commits_total"),
    ("unexpected_error_replies", "constant"),
    ("uptime_in_days", "a quotient"),
    ("used_cpu_sys_children", "constant"),
    ("used_cpu_sys_main_thread", "hyades_cpu_system_seconds_total"),
    ("used_cpu_user_children", "constant"),
    ("used_cpu_user_main_thread", "hyades_cpu_user_seconds_total"),
    ("used_memory_dataset", "hyades_table_bytes"),
    ("used_memory_functions", "constant"),
    ("used_memory_lua", "constant"),
    ("used_memory_overhead", "a difference"),
    ("used_memory_scripts", "constant"),
    ("used_memory_scripts_eval", "constant"),
    ("used_memory_startup", "constant"),
    ("used_memory_vm_eval", "constant"),
    ("used_memory_vm_functions", "constant"),
    ("used_memory_vm_total", "constant"),
    ("watching_clients", "of the connected clients"),
];

/// A sample: its name, its labels, its value.
type Sample = (String, BTreeMap<String, String>, f64);

fn is_name(name: &str, colons: bool) -> bool {
    let is_right = |c: char| c.is_ascii_alphanumeric() || c == '_' || colons && c == ':';
    !name.is_empty()
        && name.chars().all(is_right)
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// A sample as a line: `name{label="value",..} number`, and no time.
fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).expect("a name ends");
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name, true), "{line:?}");
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"").expect("a label has a value");
            assert!(is_name(label, false), "{line:?}");
            let (mut value, mut chars) = (String::new(), after.char_indices());
            let end = loop {
                match chars.next().expect("a value ends") {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match chars.next().expect("an escape is whole").1 {
                        'n' => '\n',
                        same @ ('"' | '\\') => same,
                        other => panic!("{line:?}: \\{other}"),
                    }),
                    (_, c) => value.push(c),
                }
            };
            assert!(labels.insert(label.to_string(), value).is_none(), "{line:?}");
            rest = &after[end + 1..];
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').expect("a space stands in front of the value");
    assert!(!value.contains(' '), "{line:?}");
    (name.to_string(), labels, value.parse().expect("the value is a number"))
}

/// Checks the kind in a name: names of counters end in `_total`, and no other names do.
fn check_head(name: &str, kind: &str) {
    assert!(name.starts_with("hyades_") && is_name(name, false), "{name}");
    assert!(matches!(kind, "counter" | "gauge" | "histogram"), "{name}: {kind}");
    assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
    for word in name.split('_') {
        let is_none = ["milli", "micro", "usec"].iter().any(|unit| word.contains(unit))
            || ["ms", "us", "ns", "kb", "percent"].contains(&word);
        assert!(!is_none, "{name} is not in a base unit");
    }
}

/// The samples of a text, each checked, by the name of their metric.
pub fn parsed(text: &str) -> HashMap<String, (String, Vec<Sample>)> {
    let mut metrics: HashMap<String, (String, Vec<Sample>)> = HashMap::new();
    let (mut current, mut helped) = (String::new(), String::new());
    let mut series = HashSet::new();
    assert!(text.ends_with('\n'), "the last line ends");
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').expect("a help has a text");
            assert!(!text.is_empty() && !metrics.contains_key(name), "{line:?}");
            helped = name.to_string();
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a type has a kind");
            check_head(name, kind);
            assert_eq!(helped, name, "each type stands behind its help");
            let is_new = metrics.insert(name.to_string(), (kind.to_string(), Vec::new()));
            assert!(is_new.is_none(), "{name} comes twice");
            current = name.to_string();
        } else {
            let sample = sample(line);
            assert!(series.insert((sample.0.clone(), sample.1.clone())), "{line:?} comes twice");
            let (kind, samples) = metrics.get_mut(&current).expect("a sample has a type");
            let suffix = sample.0.strip_prefix(&current[..]).expect("samples stand together");
            let is_right = match &kind[..] {
                "histogram" => matches!(suffix, "_bucket" | "_sum" | "_count"),
                _ => suffix.is_empty() && !sample.1.contains_key("le"),
            };
            assert!(is_right, "{line:?}");
            assert!(kind == "gauge" || sample.2 >= 0.0, "{line:?}");
            samples.push(sample);
        }
    }
    metrics
}

/// Checks that the buckets of each set of labels ascend to infinity, which is the count.
fn check_histogram(name: &str, samples: &[Sample]) {
    let mut sets: BTreeMap<_, Vec<(&str, &Sample)>> = BTreeMap::new();
    for sample in samples {
        let mut labels = sample.1.clone();
        labels.remove("le");
        sets.entry(labels).or_default().push((&sample.0[name.len()..], sample));
    }
    for set in sets.values() {
        let series = |suffix| {
            set.iter().filter(move |(ending, _)| *ending == suffix).map(|(_, sample)| sample)
        };
        let number = |bound: &String| match &bound[..] {
            "+Inf" => f64::INFINITY,
            finite => finite.parse().expect("a bound is a number"),
        };
        let buckets: Vec<(f64, f64)> =
            series("_bucket").map(|(_, labels, value)| (number(&labels["le"]), *value)).collect();
        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{name}: {buckets:?}");
        let last = *buckets.last().expect("there are buckets");
        let counts: Vec<f64> = series("_count").map(|(_, _, value)| *value).collect();
        assert_eq!((last.0, counts), (f64::INFINITY, vec![last.1]), "{name}");
        assert_eq!(series("_sum").count(), 1, "{name}");
    }
}

fn work(pages: &Pages) {
    for nanos in [0, 10_000, 10_200, 900_000, 3_000_000_000, u64::MAX >> 8] {
        pages.shared.stats.note_acknowledged(Duration::from_nanos(nanos));
    }
    for code in ["ERR no", "WRONG\\TYPE\" x"] {
        pages.shared.stats.count_error(code);
    }
    let Some(opened) = pages.shared.store.opened.get() else { return };
    let row = [0u64.into(), b"a"[..].into(), 0u64.into(), b"1"[..].into()];
    opened.database.transact(|tx| Ok(tx.overwrite(opened.tables.keys, &row)?)).unwrap();
    let change = crate::data::counts::CountChange { generation: 0, keys: 3, expiring: 2 };
    pages.shared.store.counts.apply(change);
    for (_, counts) in pages.shared.stats.commands.iter().step_by(7) {
        counts.calls.store(5, std::sync::atomic::Ordering::Relaxed);
    }
}

#[test]
fn the_text_follows_the_rules_while_loading_and_after() {
    let pages = Pages::new(&[]);
    work(&pages);
    let loading = parsed(&pages.body("/metrics"));
    assert_eq!(loading["hyades_loading"].1[0].2, 1.0);
    pages.open();
    work(&pages);
    let metrics = parsed(&pages.body("/metrics"));
    for (name, (kind, samples)) in loading.iter().chain(&metrics) {
        assert!(!samples.is_empty(), "{name}");
        if kind == "histogram" {
            check_histogram(name, samples);
        }
    }
    let value = |name: &str, label: (&str, &str)| {
        let samples = &metrics[name].1;
        samples.iter().find(|sample| sample.1[label.0] == label.1).expect(name).2
    };
    assert_eq!(value("hyades_database_keys", ("database", "0")), 3.0);
    assert_eq!(value("hyades_database_expiring_keys", ("database", "0")), 2.0);
    assert_eq!(value("hyades_errors_total", ("code", "WRONG\\TYPE\"")), 2.0);
    assert!(value("hyades_commands_total", ("class", "string")) >= 5.0);
    assert_eq!(value("hyades_table_rows", ("table", "keys")), 1.0);
    assert_eq!(value("hyades_table_rows", ("table", "blocks")), 0.0);
    let streams = &metrics["hyades_log_backlog_bytes"].1;
    assert_eq!(streams.len(), 2);
    let buckets = &metrics["hyades_acknowledgement_seconds"].1;
    let below = |bound: &str| {
        let is_it = |sample: &&Sample| sample.1.get("le").is_some_and(|le| le == bound);
        buckets.iter().find(is_it).unwrap().2
    };
    let found = ["0.00001", "0.00002", "0.001", "5", "50", "+Inf"].map(below);
    assert_eq!(found, [4.0, 6.0, 8.0, 10.0, 10.0, 12.0]);
}

/// SAVE resets the changes: a rate would be wrong.
#[test]
fn changes_since_a_save_are_no_counter() {
    let pages = Pages::new(&[]);
    pages.open();
    pages.shared.stats.counters.changes.store(7, std::sync::atomic::Ordering::Relaxed);
    let metrics = parsed(&pages.body("/metrics"));
    let (kind, samples) = &metrics["hyades_changes_since_save"];
    assert_eq!((&kind[..], samples[0].2), ("gauge", 7.0));
}

/// Each number in INFO is a metric too.
#[test]
fn each_number_of_info_has_its_metric() {
    let pages = Pages::new(&[]);
    let loading = info::text(&pages.shared, |_| true, &[]);
    pages.open();
    work(&pages);
    let info = info::text(&pages.shared, |name| info::MONITORED.contains(&name), &[0]);
    let text = pages.body("/metrics");
    let metrics = parsed(&text);
    let lines: Vec<_> = info.lines().filter_map(|line| line.split_once(':')).collect();
    let numbers = lines.iter().filter(|(_, value)| is_number(value));
    for (name, value) in numbers {
        let elsewhere = ELSEWHERE.iter().find(|(field, _)| field == name);
        let Some((_, kind, metric, ..)) = NUMBERS.iter().find(|(field, ..)| field == name) else {
            let (_, place) = elsewhere.unwrap_or_else(|| panic!("{name} has no metric"));
            assert!(!place.starts_with("hyades_") || metrics.contains_key(*place), "{name}");
            continue;
        };
        assert!(elsewhere.is_none(), "{name} is on both lists");
        let (found, samples) = &metrics[*metric];
        assert_eq!(found == "counter", *kind == NumberKind::Counter, "{name}");
        let moves =
            ["uptime", "used_", "rdb_last_save"].iter().any(|prefix| name.starts_with(prefix));
        assert!(moves || samples[0].2 == value.parse::<f64>().unwrap(), "{name}: {value}");
    }
    let bytes = metrics["hyades_table_bytes"].1.iter().map(|sample| sample.2).sum::<f64>();
    assert!(bytes > 0.0 && info.contains(&format!("used_memory_dataset:{bytes}\r\n")), "{info}");
    assert!(info.contains("\r\ntable_keys:rows=1,bytes="), "{info}");
    assert!(info.contains("\r\nlog_stream_1:syncs="), "{info}");
    let shown = &pages.status()["tables"][1];
    assert_eq!((&shown["table"], &shown["rows"]), (&"keys".into(), &1.into()), "{shown}");
    // A name missing in INFO is a mistake.
    let has = |name: &str| {
        let begins = |line: &&str| line.split(':').next() == Some(name);
        info.lines().chain(loading.lines()).any(|line| begins(&line))
            || name.starts_with("loading_")
    };
    for name in NUMBERS.iter().map(|entry| entry.0).chain(ELSEWHERE.iter().map(|entry| entry.0)) {
        assert!(has(name), "{name}");
    }
}
