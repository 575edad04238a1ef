//! The fields of INFO for redis_exporter, which dashboards of Redis read.

use super::*;
use std::sync::atomic::Ordering::Relaxed;

/// The fields that redis_exporter 1.8x reads of a server of Redis: without fields of other servers,
/// of modules and of replicas.
const SHOWN: &str = "\
    uptime_in_seconds process_id io_threads_active connected_clients blocked_clients \
    maxclients tracking_clients clients_in_timeout_table pubsub_clients watching_clients \
    total_watched_keys total_blocking_keys total_blocking_keys_on_nokey \
    client_recent_max_output_buffer client_recent_max_input_buffer allocator_active \
    allocator_allocated allocator_resident allocator_frag_ratio allocator_frag_bytes \
    allocator_rss_ratio allocator_rss_bytes used_memory used_memory_rss used_memory_peak \
    used_memory_lua used_memory_vm_eval used_memory_scripts_eval used_memory_overhead \
    used_memory_startup used_memory_dataset number_of_cached_scripts number_of_functions \
    number_of_libraries used_memory_vm_functions used_memory_scripts used_memory_functions \
    used_memory_vm_total maxmemory mem_fragmentation_ratio mem_fragmentation_bytes \
    mem_clients_slaves mem_clients_normal mem_cluster_links mem_aof_buffer \
    mem_replication_backlog expired_stale_perc mem_not_counted_for_evict \
    mem_total_replication_buffers lazyfree_pending_objects lazyfreed_objects \
    active_defrag_running migrate_cached_sockets active_defrag_hits active_defrag_misses \
    active_defrag_key_hits active_defrag_key_misses loading async_loading \
    rdb_changes_since_last_save rdb_bgsave_in_progress rdb_last_save_time \
    rdb_last_bgsave_status rdb_last_bgsave_time_sec rdb_current_bgsave_time_sec rdb_saves \
    rdb_last_cow_size rdb_last_load_keys_expired rdb_last_load_keys_loaded aof_enabled \
    aof_rewrite_in_progress aof_rewrite_scheduled aof_last_rewrite_time_sec \
    aof_current_rewrite_time_sec aof_last_cow_size aof_current_size aof_base_size \
    aof_pending_rewrite aof_buffer_length aof_rewrite_buffer_length aof_pending_bio_fsync \
    aof_last_bgrewrite_status aof_last_write_status module_fork_in_progress \
    module_fork_last_cow_size pubsub_channels pubsub_patterns pubsubshard_channels \
    latest_fork_usec tracking_total_keys tracking_total_items tracking_total_prefixes \
    instantaneous_eventloop_cycles_per_sec connected_slaves repl_backlog_size \
    repl_backlog_active repl_backlog_first_byte_offset repl_backlog_histlen master_repl_offset \
    second_repl_offset slave_expires_tracked_keys sync_full sync_partial_ok sync_partial_err \
    total_connections_received total_commands_processed rejected_connections \
    total_net_input_bytes total_net_output_bytes total_net_repl_input_bytes \
    total_net_repl_output_bytes expired_subkeys expired_keys expire_cycle_cpu_milliseconds \
    evicted_keys evicted_clients evicted_scripts keyspace_hits keyspace_misses \
    eventloop_cycles used_cpu_sys used_cpu_user used_cpu_sys_children used_cpu_user_children \
    used_cpu_sys_main_thread used_cpu_user_main_thread unexpected_error_replies \
    total_error_replies dump_payload_sanitizations total_reads_processed \
    total_writes_processed io_threaded_reads_processed io_threaded_writes_processed \
    client_query_buffer_limit_disconnections client_output_buffer_limit_disconnections \
    acl_access_denied_auth acl_access_denied_cmd acl_access_denied_key \
    acl_access_denied_channel total_system_memory configured_hz hz role redis_version \
    redis_build_id redis_mode os maxmemory_policy tcp_port run_id master_replid";

/// The fields without a truthful value here. docs/server/README.md has the reason for each.
const LEFT_OUT: &str = "\
    client_longest_output_list client_biggest_input_buf allocator_muzzy \
    mem_overhead_db_hashtable_rehashing aof_delayed_fsync current_eviction_exceeded_time \
    total_eviction_exceeded_time instantaneous_eventloop_duration_usec eventloop_duration_sum \
    eventloop_duration_cmd_sum slave_priority cluster_stats_messages_sent \
    cluster_stats_messages_received expired_time_cap_reached_count reply_buffer_shrinks \
    reply_buffer_expands";

#[test]
fn info_has_what_the_exporter_reads() {
    let mut house = House::new(false);
    let mut client = house.client();
    let info = String::from_utf8(house.replies(&mut client, b"INFO everything\r\n")).unwrap();
    let fields: Vec<&str> = info.lines().filter_map(|line| Some(line.split_once(':')?.0)).collect();
    let count = |name: &str| fields.iter().filter(|field| **field == name).count();
    let missing: Vec<&str> = SHOWN.split(' ').filter(|name| count(name) != 1).collect();
    assert!(missing.is_empty(), "not there once: {missing:?}");
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/server/README.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    for name in LEFT_OUT.split(' ') {
        assert_eq!(count(name), 0, "{name} is there");
        assert!(docs.contains(&format!("`{name}`")), "docs/server/README.md does not name {name}");
    }
}

/// A number of INFO.
fn number(house: &mut House, client: &mut Conversation, name: &str) -> f64 {
    let info = house.say(client, b"INFO everything\r\n");
    let field = info.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix(':'));
    field.unwrap_or_else(|| panic!("there is no {name}")).parse().unwrap()
}

#[test]
fn numbers_of_clients_follow_what_they_do() {
    let mut house = House::new(false);
    let (mut client, mut reader) = (house.client(), house.client());
    house.say(&mut client, b"WATCH a b\r\n");
    client.client.entry.sizes.watched.store(client.watched_keys() as u32, Relaxed);
    assert_eq!(number(&mut house, &mut reader, "watching_clients"), 1.0);
    assert_eq!(number(&mut house, &mut reader, "total_watched_keys"), 2.0);
    house.say(&mut client, b"UNWATCH\r\n");
    assert_eq!(client.watched_keys(), 0);
    let before = client.buffer_bytes();
    house.say(&mut client, format!("MULTI\r\nSET a {}\r\n", "x".repeat(9_000)).as_bytes());
    assert!(client.buffer_bytes() >= before + 9_000);
    house.say(&mut client, b"DISCARD\r\nSUBSCRIBE news\r\n");
    assert_eq!(number(&mut house, &mut reader, "pubsub_clients"), 1.0);
    house.say(&mut client, b"UNSUBSCRIBE\r\nBLPOP one two 100\r\n");
    assert_eq!(number(&mut house, &mut reader, "total_blocking_keys"), 2.0);
    assert_eq!(number(&mut house, &mut reader, "clients_in_timeout_table"), 1.0);
    house.say(&mut reader, b"RPUSH two x\r\n");
    house.say(&mut client, b"BLPOP one 0\r\n");
    assert_eq!(number(&mut house, &mut reader, "total_blocking_keys"), 1.0);
    assert_eq!(number(&mut house, &mut reader, "clients_in_timeout_table"), 0.0);
}

#[test]
fn refusals_and_the_log_are_counted() {
    let mut house = House::new(false);
    let mut client = house.client();
    let rules = "ACL SETUSER few on nopass ~a resetchannels +@all -flushall\r\n";
    house.say(&mut client, rules.as_bytes());
    house.say(&mut client, b"AUTH few x\r\nAUTH none y\r\nFLUSHALL\r\nGET b\r\nGET b\r\n");
    house.say(&mut client, b"PUBLISH news x\r\nAUTH default x\r\n");
    for (kind, count) in [("auth", 1.0), ("cmd", 1.0), ("key", 2.0), ("channel", 1.0)] {
        let name = format!("acl_access_denied_{kind}");
        assert_eq!(number(&mut house, &mut client, &name), count, "{name}");
    }
    assert_eq!(number(&mut house, &mut client, "aof_base_size"), 0.0);
    house.say(&mut client, b"SET a 1\r\n");
    let log = number(&mut house, &mut client, "aof_current_size");
    assert!(log > 0.0);
    house.say(&mut client, b"SAVE\r\n");
    let base = number(&mut house, &mut client, "aof_base_size");
    let size = number(&mut house, &mut client, "aof_current_size");
    assert!(base > 0.0 && size >= base, "{base} {size}");
    house.say(&mut client, b"CONFIG RESETSTAT\r\n");
    assert_eq!(number(&mut house, &mut client, "acl_access_denied_key"), 0.0);
}
