//! INFO persistence: the progress of recovery, checkpoints under the names of Redis's snapshots and
//! rewrites, and the log under the names of Redis's append-only file.

use super::{counter, line};
use crate::base::clock::wall_us;
use crate::state::Shared;
use crate::state::saves::{SaveKind, SaveStats};
use hyades::Progress;
use hyades_platform::sync::Unpoisoned;
use std::fmt::Write;
use std::time::Duration;

/// The progress of recovery: the lines of Redis, then their parts, by log stream too.
fn loading(progress: &Progress, out: &mut String) {
    let began = (wall_us() as f64 / 1e6 - progress.seconds).max(0.0);
    line(out, "loading_start_time", began as u64);
    line(out, "loading_total_bytes", (progress.image_bytes_total + progress.bytes_total).max(1));
    line(out, "loading_loaded_bytes", progress.image_bytes_done + progress.bytes_done);
    line(out, "loading_loaded_perc", format!("{:.2}", 100.0 * progress.share()));
    line(out, "loading_eta_seconds", progress.estimate_seconds.unwrap_or(1.0).ceil());
    line(out, "loading_phase", progress.phase);
    line(out, "loading_image_total_bytes", progress.image_bytes_total);
    line(out, "loading_image_loaded_bytes", progress.image_bytes_done);
    line(out, "loading_log_total_bytes", progress.bytes_total.max(1));
    line(out, "loading_log_loaded_bytes", progress.bytes_done);
    line(out, "loading_transactions", progress.records_done);
    for stream in &progress.by_stream {
        let _ = write!(
            out,
            "loading_stream_{}:phase={},read={},total={},records={}\r\n",
            stream.stream, stream.phase, stream.bytes_read, stream.bytes_total, stream.records
        );
    }
}

pub(super) fn persistence(shared: &Shared, out: &mut String) {
    let is_loading = shared.store.opened.get().is_none();
    line(out, "loading", u8::from(is_loading || shared.live_import.is_loading()));
    line(out, "async_loading", 0);
    let progress = shared.store.progress.lock().unpoisoned().clone();
    if let Some(progress) = progress.filter(|_| is_loading) {
        loading(&progress, out);
    }
    let failed = shared.store.log_failure();
    counter(out, "rdb_changes_since_last_save", &shared.stats.counters.changes);
    let [save, rewrite] =
        [SaveKind::Save, SaveKind::Rewrite].map(|kind| shared.store.saves.stats(kind));
    let seconds = |time: Option<Duration>| time.map_or(-1, |time| time.as_secs() as i64);
    let current = |stats: SaveStats| seconds(stats.since.map(|since| since.elapsed()));
    let status = |stats: SaveStats| if stats.has_failed { "err" } else { "ok" };
    let is_saving =
        shared.store.opened.get().is_some_and(|opened| opened.database.checkpoints().under_way);
    // A checkpoint without a command counts as well, but not BGREWRITEAOF.
    let is_saving = save.since.is_some() || is_saving && rewrite.since.is_none();
    line(out, "rdb_bgsave_in_progress", u8::from(is_saving));
    line(out, "rdb_last_save_time", shared.last_save_seconds());
    line(out, "rdb_last_bgsave_status", status(save));
    line(out, "rdb_last_bgsave_time_sec", seconds(save.last));
    line(out, "rdb_current_bgsave_time_sec", current(save));
    line(out, "rdb_saves", save.taken);
    let opening = shared.store.opening().unwrap_or_default();
    line(out, "rdb_last_load_keys_loaded", opening.keys);
    line(out, "rdb_last_load_keys_expired", opening.expired);
    line(out, "aof_enabled", 1);
    line(out, "aof_rewrite_in_progress", u8::from(rewrite.since.is_some()));
    for name in ["aof_rewrite_scheduled", "aof_pending_rewrite"] {
        line(out, name, u8::from(rewrite.is_scheduled));
    }
    line(out, "aof_last_rewrite_time_sec", seconds(rewrite.last));
    line(out, "aof_current_rewrite_time_sec", current(rewrite));
    line(out, "aof_last_bgrewrite_status", status(rewrite));
    line(out, "aof_rewrites", rewrite.taken);
    line(out, "aof_last_write_status", if failed.is_some() { "err" } else { "ok" });
    log(shared, out);
    // No process writes a checkpoint, and none collects writes meanwhile.
    for name in [
        "rdb_last_cow_size",
        "aof_last_cow_size",
        "aof_rewrite_buffer_length",
        "module_fork_in_progress",
        "module_fork_last_cow_size",
    ] {
        line(out, name, 0);
    }
}

/// The newest checkpoint and the log behind it, as Redis counts the parts of its append-only file:
/// the data read at the next start.
fn log(shared: &Shared, out: &mut String) {
    let Some(opened) = shared.store.opened.get() else {
        for name in ["aof_current_size", "aof_base_size", "aof_buffer_length"] {
            line(out, name, 0);
        }
        return line(out, "aof_pending_bio_fsync", 0);
    };
    let checkpoints = opened.database.checkpoints();
    let found = || shared.store.progress.lock().unpoisoned().as_ref().map(image_bytes);
    let base = checkpoints.last.map(|report| report.bytes).or_else(found).unwrap_or(0);
    line(out, "aof_current_size", base + checkpoints.replay_bytes);
    line(out, "aof_base_size", base);
    let log = opened.database.log();
    let backlogs = log.map(|log| (0..log.streams()).map(|stream| log.backlog(stream)));
    let backlogs: Vec<u64> = backlogs.into_iter().flatten().collect();
    line(out, "aof_buffer_length", backlogs.iter().sum::<u64>());
    // A stream with bytes that are not durable has a sync to come.
    line(out, "aof_pending_bio_fsync", backlogs.iter().filter(|bytes| **bytes > 0).count());
}

/// Bytes of the checkpoint found by the opening.
fn image_bytes(progress: &Progress) -> u64 {
    progress.image_bytes_total
}
