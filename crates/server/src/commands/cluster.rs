//! CLUSTER, READONLY, READWRITE and ASKING: what clients of a cluster ask, as Redis 7.2 answers.
//! The nodes are in [`crate::state::cluster`].

use super::{Done, Local, Stop, help, integer, keys, lower, unknown_subcommand};
use crate::base::hash_slot::{SLOTS, slot_of};
use crate::resp::reply::Reply;
use crate::state::Shared;
use crate::state::cluster::{ClusterNode, Topology};
use std::fmt::Write;

const HELP: &[&str] = &[
    "CLUSTER <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "COUNTKEYSINSLOT <slot>",
    "    The number of keys of a slot, found by a walk over all keys.",
    "GETKEYSINSLOT <slot> <count>",
    "    Keys of a slot, found by a walk over all keys.",
    "INFO",
    "    The state of the cluster.",
    "KEYSLOT <key>",
    "    The slot of a key.",
    "LINKS",
    "    Nothing: there is no bus between nodes.",
    "MYID",
    "    The id of this node.",
    "NODES",
    "    The nodes, a line for each:",
    "    <id> <ip:port@0> <flags> <primary> <pings> <pongs> <epoch> <link> <slots>",
    "REPLICAS <node-id>",
    "    The standbys of the primary.",
    "SHARDS",
    "    The shard: its slots and its nodes.",
    "SLAVES <node-id>",
    "    As REPLICAS.",
    "SLOTS",
    "    Where the slots are.",
    "HELP",
    "    This help.",
];

const DISABLED: &str = "ERR This instance has cluster support disabled";

fn check_enabled(shared: &Shared) -> Done {
    match shared.settings.is_cluster() {
        true => Ok(()),
        false => Err(DISABLED.into()),
    }
}

/// READONLY: the client reads what a standby has.
pub fn readonly(local: &mut Local<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    check_enabled(local.shared)?;
    local.client.reads_standbys = true;
    reply.ok();
    Ok(())
}

/// READWRITE.
pub fn readwrite(local: &mut Local<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    check_enabled(local.shared)?;
    local.client.reads_standbys = false;
    reply.ok();
    Ok(())
}

/// ASKING: no slot is being moved, so nothing depends on it.
pub fn asking(local: &mut Local<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    check_enabled(local.shared)?;
    reply.ok();
    Ok(())
}

/// CLUSTER.
pub fn cluster(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let shared = local.shared;
    check_enabled(shared)?;
    match (lower(args[1]).as_str(), &args[2..]) {
        ("countkeysinslot", [slot]) => {
            let slot = slot_number(integer(slot)?).ok_or("ERR Invalid slot")?;
            *local.job = Some(keys::count_in_slot(slot));
        }
        ("getkeysinslot", [slot, most]) => {
            let (slot, most) = (slot_number(integer(slot)?), usize::try_from(integer(most)?));
            let (Some(slot), Ok(most)) = (slot, most) else {
                return Err("ERR Invalid slot or number of keys".into());
            };
            *local.job = Some(keys::in_slot(slot, most));
        }
        ("help", []) => help(reply, HELP),
        ("info", []) => reply.verbatim(&info(shared)),
        ("keyslot", [key]) => reply.integer(i64::from(slot_of(key))),
        ("links", []) => reply.array(0),
        ("myid", []) => reply.bulk(shared.topology().own().id.as_bytes()),
        ("nodes", []) => {
            let topology = shared.topology();
            let lines = topology.nodes.iter().map(|node| format!("{}\n", line(&topology, node)));
            reply.verbatim(&lines.collect::<String>());
        }
        ("replicas" | "slaves", [id]) => replicas(&shared.topology(), id, reply)?,
        ("shards", []) => shards(shared, &shared.topology(), reply),
        ("slots", []) => slots(&shared.topology(), reply),
        _ => return Err(unknown_subcommand("cluster", args[1])),
    }
    Ok(())
}

fn slot_number(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|slot| *slot < SLOTS)
}

/// The primary has all slots.
fn info(shared: &Shared) -> String {
    let topology = shared.topology();
    let (served, state) = if shared.serves_slots() { (SLOTS, "ok") } else { (0, "fail") };
    let mut out = format!("cluster_state:{state}\r\n");
    for (name, value) in [
        ("cluster_slots_assigned", usize::from(SLOTS)),
        ("cluster_slots_ok", usize::from(served)),
        ("cluster_slots_pfail", 0),
        ("cluster_slots_fail", usize::from(SLOTS - served)),
        ("cluster_known_nodes", topology.nodes.len()),
        ("cluster_size", 1),
        ("cluster_current_epoch", topology.epoch as usize),
        ("cluster_my_epoch", topology.epoch as usize),
        ("cluster_stats_messages_sent", 0),
        ("cluster_stats_messages_received", 0),
        ("total_cluster_links_buffer_limit_exceeded", 0),
    ] {
        let _ = write!(out, "{name}:{value}\r\n");
    }
    out
}

/// A node as a line of CLUSTER NODES. There is no bus, so its port is 0.
fn line(topology: &Topology, node: &ClusterNode) -> String {
    let ClusterNode { id, host, port, is_own, is_primary, is_online, .. } = node;
    let own = if *is_own { "myself," } else { "" };
    let role = if *is_primary { "master" } else { "slave" };
    let (fails, link) = if *is_online { ("", "connected") } else { (",fail", "disconnected") };
    let primary = topology.primary().filter(|_| !is_primary).map_or("-", |primary| &primary.id);
    let slots = if *is_primary { format!(" 0-{}", SLOTS - 1) } else { String::new() };
    let epoch = topology.epoch;
    format!("{id} {host}:{port}@0 {own}{role}{fails} {primary} 0 0 {epoch} {link}{slots}")
}

fn replicas(topology: &Topology, id: &[u8], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let named = topology.nodes.iter().find(|node| node.id.as_bytes() == id);
    let Some(named) = named else {
        let id = String::from_utf8_lossy(&id[..id.len().min(128)]);
        return Err(format!("ERR Unknown node {id}").into());
    };
    if !named.is_primary {
        return Err("ERR The specified node is not a master".into());
    }
    let standbys: Vec<&ClusterNode> =
        topology.nodes.iter().filter(|node| !node.is_primary).collect();
    reply.array(standbys.len());
    standbys.iter().for_each(|node| reply.bulk(line(topology, node).as_bytes()));
    Ok(())
}

/// One range: all slots, at the primary, and the standbys that can be read.
fn slots(topology: &Topology, reply: &mut Reply<'_>) {
    let Some(primary) = topology.primary() else { return reply.array(0) };
    let standbys = topology.nodes.iter().filter(|node| !node.is_primary && node.is_online);
    let nodes: Vec<&ClusterNode> = std::iter::once(primary).chain(standbys).collect();
    reply.array(1);
    reply.array(2 + nodes.len());
    reply.integer(0);
    reply.integer(i64::from(SLOTS) - 1);
    for node in nodes {
        reply.array(4);
        reply.bulk(node.host.as_bytes());
        reply.integer(i64::from(node.port));
        reply.bulk(node.id.as_bytes());
        reply.map(0);
    }
}

fn shards(shared: &Shared, topology: &Topology, reply: &mut Reply<'_>) {
    reply.array(1);
    reply.map(2);
    reply.bulk(b"slots");
    match topology.primary() {
        Some(_) => {
            reply.array(2);
            reply.integer(0);
            reply.integer(i64::from(SLOTS) - 1);
        }
        None => reply.array(0),
    }
    reply.bulk(b"nodes");
    reply.array(topology.nodes.len());
    for node in &topology.nodes {
        let is_loading = node.is_own && shared.store.opened.get().is_none();
        let health = match (node.is_online, is_loading) {
            (false, _) => "fail",
            (true, true) => "loading",
            (true, false) => "online",
        };
        reply.map(7);
        let role = if node.is_primary { "master" } else { "replica" };
        let offset = i64::try_from(node.offset).unwrap_or(i64::MAX);
        reply.bulk(b"id");
        reply.bulk(node.id.as_bytes());
        reply.bulk(b"port");
        reply.integer(i64::from(node.port));
        for (name, value) in [("ip", &node.host[..]), ("endpoint", &node.host), ("role", role)] {
            reply.bulk(name.as_bytes());
            reply.bulk(value.as_bytes());
        }
        reply.bulk(b"replication-offset");
        reply.integer(offset);
        reply.bulk(b"health");
        reply.bulk(health.as_bytes());
    }
}
