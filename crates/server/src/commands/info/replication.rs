//! INFO replication and ROLE: the role of this server, and how far a live import is.

use super::{counter, line};
use crate::resp::reply::Reply;
use crate::state::Shared;
use crate::state::live_import::{ImportNotes, ImportNumbers, LinkState};
use std::sync::atomic::Ordering::Relaxed;

/// The role for HELLO: a server that imports is its own primary in the end.
pub fn redis_role(shared: &Shared) -> &'static str {
    if shared.membership.only_reads() { "replica" } else { "master" }
}

pub(super) fn replication(shared: &Shared, out: &mut String) {
    #[cfg(feature = "replication")]
    if shared.membership.is_on() {
        return super::members::replication(shared, out);
    }
    let import = &shared.live_import;
    line(out, "role", if import.is_on() { "slave" } else { "master" });
    if import.is_on() {
        primary(shared, out);
    }
    let notes = import.notes().clone();
    let follows = import.is_on() && !notes.id.is_empty();
    let offset = if import.is_on() { import.numbers.durable.load(Relaxed) } else { 0 };
    line(out, "connected_slaves", 0);
    line(out, "master_failover_state", "no-failover");
    line(out, "master_replid", if follows { &notes.id } else { &shared.run_id });
    line(out, "master_replid2", "0".repeat(40));
    line(out, "master_repl_offset", offset);
    line(out, "second_repl_offset", -1);
    line(out, "repl_backlog_active", 0);
    line(out, "repl_backlog_size", shared.settings.replication_backlog());
    line(out, "repl_backlog_first_byte_offset", 0);
    line(out, "repl_backlog_histlen", 0);
    if let Some(error) = &notes.error {
        line(out, "import_last_error", error.replace(['\r', '\n'], " "));
    }
    for (number, text) in notes.left_out.iter().enumerate() {
        line(out, &format!("import_left_out_{number}"), text.replace(['\r', '\n'], " "));
    }
}

/// The numbers of a live import, for INFO hyades.
pub(super) fn numbers(shared: &Shared, out: &mut String) {
    let (import, numbers) = (&shared.live_import, &shared.live_import.numbers);
    let link = import.notes().link;
    line(out, "import_is_on", u8::from(import.is_on()));
    line(out, "import_is_connected", u8::from(link == LinkState::Connected));
    counter(out, "import_read_offset", &numbers.read);
    counter(out, "import_durable_offset", &numbers.durable);
    counter(out, "import_full_syncs", &numbers.full_syncs);
    counter(out, "import_partial_syncs", &numbers.partial_syncs);
    counter(out, "import_commands", &numbers.commands);
    counter(out, "import_left_out", &numbers.left_out);
}

/// The address of the primary, and the progress of the import.
fn primary(shared: &Shared, out: &mut String) {
    let (import, notes) = (&shared.live_import, shared.live_import.notes().clone());
    let ImportNotes { link, down_since, .. } = notes;
    let ImportNumbers { read, durable, sync_total, sync_read, last_io_ms, .. } = &import.numbers;
    let address = import.primary().unwrap_or_default();
    let io = match last_io_ms.load(Relaxed) {
        0 => -1,
        at => (shared.clock.now_ms() - at).max(0) / 1_000,
    };
    let is_syncing = link == LinkState::Sync;
    line(out, "master_host", &address.host);
    line(out, "master_port", address.port);
    line(out, "master_link_status", if link == LinkState::Connected { "up" } else { "down" });
    line(out, "master_last_io_seconds_ago", if link == LinkState::Connected { io } else { -1 });
    line(out, "master_sync_in_progress", u8::from(is_syncing));
    counter(out, "slave_read_repl_offset", read);
    counter(out, "slave_repl_offset", durable);
    if is_syncing {
        let (total, done) = (sync_total.load(Relaxed), sync_read.load(Relaxed));
        let share = 100.0 * done as f64 / total.max(1) as f64;
        line(out, "master_sync_total_bytes", total);
        line(out, "master_sync_read_bytes", done);
        line(out, "master_sync_left_bytes", total.saturating_sub(done));
        line(out, "master_sync_perc", format!("{:.2}", if total > 0 { share } else { 0.0 }));
        line(out, "master_sync_last_io_seconds_ago", io);
    }
    if let Some(since) = down_since {
        line(out, "master_link_down_since_seconds", since.elapsed().as_secs());
    }
    line(out, "slave_priority", 100);
    line(out, "slave_read_only", 1);
    line(out, "replica_announced", 1);
}

/// The reply of ROLE.
pub fn role(shared: &Shared, reply: &mut Reply<'_>) {
    #[cfg(feature = "replication")]
    if shared.membership.is_on() {
        return super::members::role(shared, reply);
    }
    let import = &shared.live_import;
    if !import.is_on() {
        reply.array(3);
        reply.bulk(b"master");
        reply.integer(0);
        reply.array(0);
        return;
    }
    let address = import.primary().unwrap_or_default();
    reply.array(5);
    reply.bulk(b"slave");
    reply.bulk(address.host.as_bytes());
    reply.integer(i64::from(address.port));
    reply.bulk(import.notes().link.name().as_bytes());
    reply.integer(import.numbers.durable.load(Relaxed) as i64);
}
