//! INFO memory: the memory of the process, the counted part, and the parts of Redis missing here.

use super::{counter, line};
use crate::state::Shared;
use hyades_platform::resident::{most_resident_bytes, resident_bytes};

/// A number of bytes, and the same number in a form for people.
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

pub(super) fn memory(shared: &Shared, out: &mut String) {
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
    allocator(shared, resident, out);
    counter(out, "lazyfreed_objects", &shared.stats.counters.freed);
    if let Some(opened) = shared.store.opened.get() {
        let tables = opened.database.tables();
        // Collections and strings in blocks and chunks not removed yet.
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
    line(out, "mem_clients_normal", shared.clients.totals().buffers);
    line(out, "mem_aof_buffer", shared.log_buffers());
    line(out, "mem_not_counted_for_evict", shared.removed_memory());
    let (count, bytes) = shared.scripts.count();
    line(out, "number_of_cached_scripts", count);
    line(out, "used_memory_scripts_eval", bytes);
    line(out, "used_memory_scripts", bytes);
    let (libraries, functions) = shared.scripts.count_libraries();
    line(out, "number_of_functions", functions);
    line(out, "number_of_libraries", libraries);
    absent(out);
}

/// The allocator has no numbers of its pages. As in Redis without such numbers, all pages of the
/// process are shown instead.
fn allocator(shared: &Shared, resident: u64, out: &mut String) {
    let allocated = shared.allocated_memory();
    line(out, "allocator_allocated", allocated);
    line(out, "allocator_active", resident);
    line(out, "allocator_resident", resident);
    let ratio = resident as f64 / allocated.max(1) as f64;
    line(out, "allocator_frag_ratio", format!("{ratio:.2}"));
    line(out, "allocator_frag_bytes", resident as i64 - allocated as i64);
    line(out, "allocator_rss_ratio", "1.00");
    line(out, "allocator_rss_bytes", 0);
}

/// Parts without memory of their own, or missing parts: interpreters, replicas, a
/// cluster, defragmentation.
fn absent(out: &mut String) {
    for name in [
        "used_memory_lua",
        "used_memory_vm_eval",
        "used_memory_vm_functions",
        "used_memory_vm_total",
        "used_memory_functions",
        "mem_clients_slaves",
        "mem_cluster_links",
        "mem_replication_backlog",
        "mem_total_replication_buffers",
        "active_defrag_running",
    ] {
        line(out, name, 0);
    }
}
