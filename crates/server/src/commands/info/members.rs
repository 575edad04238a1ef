//! INFO replication and ROLE of a member of a replicated database, as Redis prints them.

use super::line;
use crate::resp::reply::Reply;
use crate::state::Shared;
use crate::state::membership::{MemberView, Role, View, host_and_port};
use std::fmt::Write;

/// The id of the history of an incarnation: the uuid of the database, and the number.
fn history(view: &View, incarnation: u32) -> String {
    let mut id: String = view.database.iter().map(|byte| format!("{byte:02x}")).collect();
    let _ = write!(id, "{incarnation:08x}");
    id
}

/// The state of the connection to the primary, as ROLE names it.
fn link(role: Role, view: &View) -> &'static str {
    match role {
        Role::Standby if view.primary.is_some() => "connected",
        Role::Standby | Role::Joining if view.primary.is_some() => "sync",
        _ => "connect",
    }
}

pub(super) fn replication(shared: &Shared, out: &mut String) {
    let (role, view) = (shared.membership.role(), shared.membership.view());
    let is_primary = role.writes();
    line(out, "role", if is_primary { "master" } else { "slave" });
    if !is_primary {
        primary(role, &view, out);
    }
    let standbys: &[MemberView] = if is_primary { &view.members } else { &[] };
    line(out, "connected_slaves", standbys.iter().filter(|standby| standby.is_online).count());
    for (number, standby) in standbys.iter().enumerate() {
        let (host, port) = host_and_port(&standby.address);
        let (offset, lag) = (standby.offset(), standby.lag_ms.unwrap_or(0) / 1_000);
        let is_fed = standby.is_online && standby.lag_ms.is_some();
        let state = if is_fed { "online" } else { "wait_bgsave" };
        let _ = write!(
            out,
            "slave{number}:ip={host},port={port},state={state},offset={offset},lag={lag}\r\n"
        );
    }
    let failover = if role == Role::HandingOver { "waiting-for-sync" } else { "no-failover" };
    line(out, "master_failover_state", failover);
    line(out, "master_replid", history(&view, view.incarnation));
    let before = view.incarnation.checked_sub(1).filter(|before| *before > 0);
    let before = before.map_or("0".repeat(40), |before| history(&view, before));
    line(out, "master_replid2", before);
    line(out, "master_repl_offset", view.offset());
    line(out, "second_repl_offset", -1);
    line(out, "repl_backlog_active", 0);
    line(out, "repl_backlog_size", shared.settings.replication_backlog());
    line(out, "repl_backlog_first_byte_offset", 0);
    line(out, "repl_backlog_histlen", 0);
    line(out, "member_role", role.name());
    line(out, "member_node", &view.node);
    line(out, "member_incarnation", view.incarnation);
    line(out, "member_lag_ms", view.lag.as_millis());
    line(out, "member_suspended", u8::from(view.suspended));
    if let Some(why) = shared.membership.stopped().or(shared.membership.waits_for()) {
        line(out, "member_waits_for", why.replace(['\r', '\n'], " "));
    }
    if let Some(why) = &*shared.membership.refused() {
        line(out, "member_last_handover_error", why.replace(['\r', '\n'], " "));
    }
}

/// The lines of a replica about its primary.
fn primary(role: Role, view: &View, out: &mut String) {
    let address = view.primary.as_ref().map_or("", |primary| &primary.address);
    let (host, port) = host_and_port(address);
    let is_up = link(role, view) == "connected";
    line(out, "master_host", host);
    line(out, "master_port", port);
    line(out, "master_link_status", if is_up { "up" } else { "down" });
    let ago = if is_up { view.lag.as_secs() as i64 } else { -1 };
    line(out, "master_last_io_seconds_ago", ago);
    line(out, "master_sync_in_progress", u8::from(link(role, view) == "sync"));
    line(out, "slave_read_repl_offset", view.offset());
    line(out, "slave_repl_offset", view.offset());
    if !is_up {
        line(out, "master_link_down_since_seconds", view.lag.as_secs());
    }
    line(out, "slave_priority", 100);
    line(out, "slave_read_only", 1);
    line(out, "replica_announced", 1);
}

/// The reply of ROLE.
pub(super) fn role(shared: &Shared, reply: &mut Reply<'_>) {
    let (role, view) = (shared.membership.role(), shared.membership.view());
    if role.writes() {
        let standbys: Vec<_> = view.members.iter().filter(|standby| standby.is_online).collect();
        reply.array(3);
        reply.bulk(b"master");
        reply.integer(view.offset() as i64);
        reply.array(standbys.len());
        for standby in standbys {
            let (host, port) = host_and_port(&standby.address);
            reply.array(3);
            reply.bulk(host.as_bytes());
            reply.bulk(port.to_string().as_bytes());
            reply.bulk(standby.offset().to_string().as_bytes());
        }
        return;
    }
    let address = view.primary.as_ref().map_or("", |primary| &primary.address);
    let (host, port) = host_and_port(address);
    reply.array(5);
    reply.bulk(b"slave");
    reply.bulk(host.as_bytes());
    reply.integer(i64::from(port));
    reply.bulk(link(role, &view).as_bytes());
    reply.integer(view.offset() as i64);
}
