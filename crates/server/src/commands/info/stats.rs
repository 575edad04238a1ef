//! INFO stats: counters since the start, or since CONFIG RESETSTAT.

use super::{counter, line};
use crate::access::Reason;
use crate::state::Shared;
use std::sync::atomic::Ordering::Relaxed;

pub(super) fn stats(shared: &Shared, out: &mut String) {
    let counters = &shared.stats.counters;
    counter(out, "total_connections_received", &counters.connections);
    counter(out, "total_commands_processed", &counters.commands);
    let [commands, input, output, expired, turns] = shared.stats.rates.of(counters);
    line(out, "instantaneous_ops_per_sec", commands.round());
    line(out, "instantaneous_input_kbps", format!("{:.2}", input / 1_024.0));
    line(out, "instantaneous_output_kbps", format!("{:.2}", output / 1_024.0));
    counter(out, "total_reads_processed", &counters.reads);
    counter(out, "total_writes_processed", &counters.writes);
    counter(out, "total_net_input_bytes", &counters.input);
    counter(out, "total_net_output_bytes", &counters.output);
    counter(out, "rejected_connections", &counters.rejected);
    counter(out, "expired_keys", &counters.expired);
    counter(out, "expired_subkeys", &counters.expired_fields);
    line(out, "instantaneous_expired_per_sec", expired.round());
    let timers = &shared.store.timers.numbers;
    let stale =
        100.0 * timers.due.load(Relaxed) as f64 / shared.store.counts.expiring().max(1) as f64;
    line(out, "expired_stale_perc", format!("{:.2}", stale.min(100.0)));
    counter(out, "expire_cycle_cpu_milliseconds", &timers.cpu_ms);
    counter(out, "keyspace_hits", &counters.hits);
    counter(out, "keyspace_misses", &counters.misses);
    line(out, "pubsub_channels", shared.wiring.channels.count_channels());
    line(out, "pubsub_patterns", shared.wiring.channels.count_patterns());
    line(out, "pubsubshard_channels", shared.wiring.channels.count_shard_channels());
    counter(out, "total_error_replies", &counters.errors);
    // Each call of RESTORE checks its payload.
    let restores = shared.stats.commands.iter().find(|(name, _)| *name == "restore");
    let restores = restores.map_or(0, |(_, counts)| counts.calls.load(Relaxed));
    line(out, "dump_payload_sanitizations", restores);
    counter(out, "client_query_buffer_limit_disconnections", &counters.over_input);
    counter(out, "client_output_buffer_limit_disconnections", &counters.over_output);
    for (name, reason) in [
        ("acl_access_denied_auth", Reason::Login),
        ("acl_access_denied_cmd", Reason::Command),
        ("acl_access_denied_key", Reason::Key),
        ("acl_access_denied_channel", Reason::Channel),
    ] {
        line(out, name, shared.access.denied.count(reason));
    }
    counter(out, "eventloop_cycles", &counters.cycles);
    line(out, "instantaneous_eventloop_cycles_per_sec", turns.round());
    // Checkpoints in the background: Redis has a process of its own for each.
    line(out, "total_forks", shared.store.saves.begun_in_background());
    let [keys, items, prefixes] = shared.wiring.tracking.numbers();
    line(out, "tracking_total_keys", keys);
    line(out, "tracking_total_items", items);
    line(out, "tracking_total_prefixes", prefixes);
    line(out, "migrate_cached_sockets", shared.wiring.targets.count());
    absent(out);
}

/// Events of missing parts: replicas, eviction, a process of its own for checkpoints, threads
/// beside the event loops for reads and writes, defragmentation.
fn absent(out: &mut String) {
    for name in [
        "sync_full",
        "sync_partial_ok",
        "sync_partial_err",
        "total_net_repl_input_bytes",
        "total_net_repl_output_bytes",
        "slave_expires_tracked_keys",
        "unexpected_error_replies",
        "evicted_keys",
        "evicted_clients",
        "evicted_scripts",
        "latest_fork_usec",
        "io_threaded_reads_processed",
        "io_threaded_writes_processed",
        "active_defrag_hits",
        "active_defrag_misses",
        "active_defrag_key_hits",
        "active_defrag_key_misses",
    ] {
        line(out, name, 0);
    }
}
