//! The fields that dashboards plot.

use super::*;
use crate::config::Settings;

#[test]
fn what_dashboards_plot_is_there_once() {
    let shared = Shared::new(Settings::default());
    let all = text(&shared, |_| true, &[]);
    let value = |wanted: &str| {
        let lines = all.lines().filter_map(|line| line.split_once(':'));
        let found: Vec<&str> =
            lines.filter(|(name, _)| *name == wanted).map(|(_, value)| value).collect();
        assert_eq!(found.len(), 1, "{wanted}");
        found[0].to_string()
    };
    let number = |name: &str| value(name).parse::<f64>().unwrap();
    for zero in [
        "instantaneous_ops_per_sec",
        "instantaneous_input_kbps",
        "instantaneous_output_kbps",
        "client_recent_max_input_buffer",
        "client_recent_max_output_buffer",
        "lazyfreed_objects",
        "number_of_cached_scripts",
        "pubsubshard_channels",
        "repl_backlog_active",
        "repl_backlog_histlen",
        "sync_full",
        "sync_partial_err",
        "sync_partial_ok",
        "total_reads_processed",
        "total_writes_processed",
    ] {
        assert_eq!(number(zero), 0.0, "{zero}");
    }
    let of_memory = number("used_memory_rss") / number("used_memory");
    assert!((number("mem_fragmentation_ratio") - of_memory).abs() < 0.01);
    let more = number("used_memory_rss") - number("used_memory");
    assert_eq!(number("mem_fragmentation_bytes"), more);
    assert!(number("total_system_memory") > number("used_memory_rss"));
    assert_eq!((number("second_repl_offset"), number("configured_hz")), (-1.0, 10.0));
    assert_eq!((value("master_replid2").len(), value("redis_build_id").len()), (40, 16));
    assert!(std::path::Path::new(&value("executable")).is_absolute());
    assert!(all.contains("# CPU\r\n") && all.contains("# Server\r\n"));
}
