//! SENTINEL, on the port of each member: clients of Sentinel find the primary here. The answers are
//! from what this member knows of the lease, so every member is a Sentinel, and the quorum is the
//! log's.

use super::{Done, Local, help, lower, unknown_subcommand, unsupported_error};
use crate::resp::reply::Reply;
use crate::state::cluster::node_id;
use crate::state::membership::{View, host_and_port};

const HELP: &[&str] = &[
    "SENTINEL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CKQUORUM <master-name>",
    "    Whether the members know a primary.",
    "GET-MASTER-ADDR-BY-NAME <master-name>",
    "    The address of the primary.",
    "MASTER <master-name>",
    "    Tells of the primary.",
    "MASTERS",
    "    Tells of the primary, if one is known.",
    "MYID",
    "    The id of this member.",
    "REPLICAS <master-name>",
    "    Tells of the standbys.",
    "SENTINELS <master-name>",
    "    Tells of the other members.",
    "SLAVES <master-name>",
    "    As REPLICAS.",
    "HELP",
    "    This help.",
];

const NO_SUCH_MASTER: &str = "ERR No such master with that name";

/// How long the primary may be silent, as clients of Sentinel are told, in milliseconds.
const SILENT_MS: u64 = 3_000;

/// Names and values about an instance.
#[derive(Default)]
struct InstanceFields(Vec<(&'static str, String)>);

impl InstanceFields {
    /// The first fields of any instance.
    fn begin(name: String, address: &str, (node, flags): (&str, &str)) -> InstanceFields {
        let (host, port) = host_and_port(address);
        let mut fields = InstanceFields::default();
        fields.add("name", name);
        fields.add("ip", host);
        fields.add("port", port);
        fields.add("runid", node_id(node));
        fields.add("flags", flags);
        for name in ["link-pending-commands", "last-ping-sent"] {
            fields.add(name, 0);
        }
        fields.add("link-refcount", 1);
        fields
    }

    fn add(&mut self, name: &'static str, value: impl ToString) {
        self.0.push((name, value.to_string()));
    }

    /// How long ago the instance was heard of, in milliseconds.
    fn heard(&mut self, ago_ms: u64) {
        self.add("last-ok-ping-reply", ago_ms);
        self.add("last-ping-reply", ago_ms);
        self.add("down-after-milliseconds", SILENT_MS);
    }

    fn write(&self, reply: &mut Reply<'_>) {
        reply.map(self.0.len());
        for (name, value) in &self.0 {
            reply.bulk(name.as_bytes());
            reply.bulk(value.as_bytes());
        }
    }
}

/// What is told of the primary; `None` if none is known.
fn primary(view: &View) -> Option<InstanceFields> {
    let primary = view.primary.as_ref()?;
    let name = view.name.clone();
    let mut fields = InstanceFields::begin(name, &primary.address, (&primary.node, "master"));
    fields.heard(0);
    fields.add("info-refresh", 0);
    fields.add("role-reported", "master");
    fields.add("role-reported-time", 0);
    fields.add("config-epoch", view.incarnation);
    fields.add("num-slaves", view.standbys().len());
    fields.add("num-other-sentinels", others(view).len());
    fields.add("quorum", 1);
    fields.add("failover-timeout", SILENT_MS);
    fields.add("parallel-syncs", 1);
    Some(fields)
}

/// The members but for this one: the node and the address of each.
fn others(view: &View) -> Vec<(String, String)> {
    let primary = view.primary.iter().map(|primary| (&primary.node, &primary.address));
    let members = view.members.iter().map(|member| (&member.node, &member.address));
    let mut all: Vec<(String, String)> = primary
        .chain(members)
        .filter(|(node, _)| **node != view.node)
        .map(|(node, address)| (node.clone(), address.clone()))
        .collect();
    all.sort();
    all.dedup();
    all
}

fn write_standbys(view: &View, reply: &mut Reply<'_>) {
    let all = view.standbys();
    reply.array(all.len());
    for member in all {
        let flags = if member.is_online { "slave" } else { "slave,s_down,disconnected" };
        let about = (&member.node[..], flags);
        let mut fields = InstanceFields::begin(member.address.clone(), &member.address, about);
        fields.heard(if member.is_online { 0 } else { SILENT_MS });
        fields.add("info-refresh", 0);
        fields.add("role-reported", "slave");
        fields.add("role-reported-time", 0);
        let primary = view.primary.clone().unwrap_or_default();
        let (host, port) = host_and_port(&primary.address);
        fields.add("master-link-down-time", 0);
        fields.add("master-link-status", if member.is_online { "ok" } else { "err" });
        fields.add("master-host", host);
        fields.add("master-port", port);
        fields.add("slave-priority", 100);
        fields.add("slave-repl-offset", member.offset());
        fields.add("replica-announced", 1);
        fields.write(reply);
    }
}

fn write_sentinels(view: &View, reply: &mut Reply<'_>) {
    let all = others(view);
    reply.array(all.len());
    for (node, address) in all {
        let mut fields = InstanceFields::begin(node_id(&node), &address, (&node, "sentinel"));
        fields.heard(0);
        fields.add("last-hello-message", 0);
        fields.add("voted-leader", "?");
        fields.add("voted-leader-epoch", 0);
        fields.write(reply);
    }
}

/// SENTINEL.
pub fn sentinel(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let membership = &local.shared.membership;
    if !membership.is_on() {
        return Err(unsupported_error(args).into());
    }
    let view = membership.view();
    let is_named = |name: &[u8]| name == view.name.as_bytes();
    match (lower(args[1]).as_str(), &args[2..]) {
        ("get-master-addr-by-name", [name]) => {
            match view.primary.as_ref().filter(|_| is_named(name)) {
                Some(primary) => {
                    let (host, port) = host_and_port(&primary.address);
                    reply.array(2);
                    reply.bulk(host.as_bytes());
                    reply.bulk(port.to_string().as_bytes());
                }
                None => reply.null_array(),
            }
        }
        ("masters", []) => {
            let primary = primary(&view);
            reply.array(usize::from(primary.is_some()));
            primary.iter().for_each(|fields| fields.write(reply));
        }
        ("myid", []) => reply.bulk(node_id(&view.node).as_bytes()),
        ("help", []) => help(reply, HELP),
        ("master" | "sentinels" | "replicas" | "slaves" | "ckquorum", [name])
            if !is_named(name) =>
        {
            return Err(NO_SUCH_MASTER.into());
        }
        ("master", [_]) => match primary(&view) {
            Some(fields) => fields.write(reply),
            None => return Err(NO_SUCH_MASTER.into()),
        },
        ("sentinels", [_]) => write_sentinels(&view, reply),
        ("replicas" | "slaves", [_]) => write_standbys(&view, reply),
        ("ckquorum", [_]) => match &view.primary {
            Some(_) => reply.simple(&format!(
                "OK {} usable Sentinels. Quorum and failover authorization can be reached",
                others(&view).len() + 1
            )),
            None => {
                return Err("NOQUORUM no primary is known: the log does not answer, or no member \
                            has taken the database over"
                    .into());
            }
        },
        _ => return Err(unknown_subcommand("sentinel", args[1])),
    }
    Ok(())
}
