//! `hyades replication status`: what the log and the members of a replicated database show. Only
//! reads.

use super::{LogServers, find};
use clap::Args;
use hyades_cli::failure::Failure;
use hyades_cli::units::{self, bytes, exact, time};
use hyades_platform::clock;
use hyades_replication::begin::Begin;
use hyades_replication::lease::Lease;
use hyades_replication::nats::{Address, FoundKey, FoundLane};
use hyades_replication::status::DatabaseStatus;
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

/// Options of `hyades replication status`.
#[derive(Args, Clone, Debug)]
pub struct StatusOptions {
    /// Address: nats://HOST:PORT,HOST:PORT,../NAME
    address: Address,
    /// How long to listen to the members
    #[arg(long, value_name = "TIME", default_value = "1.5", value_parser = units::some_seconds)]
    seconds: f64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    servers: LogServers,
}

/// Runs `hyades replication status`. True if the holder of the lease was heard.
///
/// # Errors
/// No server is reached, there is no database of the name, or a key cannot be read.
pub fn status(options: &StatusOptions) -> Result<bool, Failure> {
    let listen = Duration::from_secs_f64(options.seconds);
    let (_, status) = find(&options.address, &options.servers, listen)?;
    let name = &options.address.name;
    match options.json {
        true => println!("{}", as_json(name, &status)),
        false => print!("{}", as_text(name, &status)),
    }
    Ok(status.is_primary_heard())
}

fn age_seconds(at_us: u64) -> f64 {
    clock::wall_us().saturating_sub(at_us) as f64 / 1e6
}

/// The value of a key: JSON as it is, and text otherwise.
fn value(key: &FoundKey) -> Value {
    let text = || Value::from(String::from_utf8_lossy(&key.value));
    serde_json::from_slice(&key.value).unwrap_or_else(|_| text())
}

fn as_json(name: &str, status: &DatabaseStatus) -> Value {
    let positions = status.positions();
    let lease = status.lease.as_ref().map(|lease| {
        json!({
            "incarnation": lease.incarnation, "node": lease.node, "address": lease.address,
            "age_seconds": age_seconds(status.renewed_us), "renewal": lease.renewal,
            "released": lease.released, "successor": lease.successor,
        })
    });
    let primary = status.lease.as_ref().filter(|_| status.holder().is_some()).map(|lease| {
        json!({
            "node": lease.node, "address": lease.address, "role": "primary",
            "incarnation": lease.incarnation, "heard": status.is_primary_heard(),
            "lag_seconds": 0.0, "lag_bytes": 0, "positions": positions,
        })
    });
    let standbys = status.standbys.iter().map(|report| {
        json!({
            "node": report.node, "address": report.address, "role": "standby",
            "incarnation": report.incarnation, "heard": true,
            "lag_seconds": report.lag_us.map(|lag| lag as f64 / 1e6),
            "lag_bytes": status.behind(report), "positions": report.synced,
        })
    });
    let lane = |(at, lane): (usize, &FoundLane)| {
        json!({
            "lane": at, "stream": lane.stream, "position": positions.get(at), "first": lane.first,
            "last": lane.last, "messages": lane.messages, "bytes": lane.bytes,
            "leader": lane.leader, "behind": lane.behind, "replicas": lane.replicas,
        })
    };
    let begin = |begin: &Begin| {
        let starts = begin.incarnation.dims.iter().map(|dim| dim.start);
        json!({
            "incarnation": begin.incarnation.number, "node": begin.node,
            "starts": starts.collect::<Vec<_>>(), "protocol": begin.incarnation.protocol,
            "needs_base": begin.needs_base,
        })
    };
    let key = |(name, key): (&String, &FoundKey)| {
        let age = age_seconds(key.stored_us);
        json!({ "key": name, "revision": key.revision, "age_seconds": age, "value": value(key) })
    };
    json!({
        "name": name,
        "database": status.lease.as_ref().map(|lease| &lease.database),
        "lease": lease,
        "members": primary.into_iter().chain(standbys).collect::<Vec<_>>(),
        "lanes": status.lanes.iter().enumerate().map(lane).collect::<Vec<_>>(),
        "begins": status.begins.iter().map(begin).collect::<Vec<_>>(),
        "needs": status.holds.iter().flat_map(|holds| &holds.members).map(|(node, needs)| {
            json!({ "node": node, "behind": needs.behind, "joins": !needs.has_place() })
        }).collect::<Vec<_>>(),
        "keys": status.others.iter().map(key).collect::<Vec<_>>(),
    })
}

/// A line of a table, without blanks at its end.
fn line(out: &mut String, cells: &[(usize, String)]) {
    let mut text = String::from("  ");
    for (width, cell) in cells {
        let _ = write!(text, "{cell:<width$}  ");
    }
    let _ = writeln!(out, "{}", text.trim_end());
}

fn as_text(name: &str, status: &DatabaseStatus) -> String {
    let mut out = String::new();
    match &status.lease {
        None => _ = writeln!(out, "{name}: no process has drawn an incarnation"),
        Some(lease) => {
            _ = writeln!(out, "{name}, database {}\n\n{}", lease.database, held(lease, status))
        }
    }
    members(&mut out, status);
    let _ = writeln!(out, "\nlanes");
    let head = ["lane", "first", "last", "bytes", "position", "leader", "replicas"];
    let widths = [5, 9, 9, 10, 16, 16, 0];
    let row = |cells: [String; 7]| widths.into_iter().zip(cells).collect::<Vec<_>>();
    line(&mut out, &row(head.map(str::to_owned)));
    let positions = status.positions();
    for (at, lane) in status.lanes.iter().enumerate() {
        let replicas = match &lane.behind[..] {
            [] => lane.replicas.to_string(),
            behind => format!("{}, not in step: {}", lane.replicas, behind.join(", ")),
        };
        let cells = [
            at.to_string(),
            lane.first.to_string(),
            lane.last.to_string(),
            bytes(lane.bytes as f64),
            positions.get(at).map_or_else(String::new, |at| exact(*at)),
            lane.leader.clone().unwrap_or_else(|| "none".to_owned()),
            replicas,
        ];
        line(&mut out, &row(cells));
    }
    needs(&mut out, status);
    if !status.begins.is_empty() {
        let _ = writeln!(out, "\nincarnations");
    }
    for begin in &status.begins {
        let starts: Vec<_> = begin.incarnation.dims.iter().map(|dim| exact(dim.start)).collect();
        let number = begin.incarnation.number;
        let base = if begin.needs_base { ", needs a base" } else { "" };
        let _ = writeln!(out, "  {number} by {} from {}{base}", begin.node, starts.join(" "));
    }
    if !status.others.is_empty() {
        let _ = writeln!(out, "\nkeys");
    }
    for (name, key) in &status.others {
        let age = time(age_seconds(key.stored_us));
        let _ = writeln!(out, "  {name}, set {age} ago: {}", value(key));
    }
    out
}

/// What members need of the lanes: a member that is gone keeps them from being purged.
fn needs(out: &mut String, status: &DatabaseStatus) {
    let Some(holds) = &status.holds else { return };
    let list = |places: &[u64]| places.iter().map(|at| exact(*at)).collect::<Vec<_>>().join(" ");
    let _ = writeln!(out, "\nlanes are kept behind these messages");
    for (node, needs) in &holds.members {
        let joins = if needs.has_place() { "" } else { ", while it joins" };
        let _ = writeln!(out, "  {node:<12}  {}{joins}", list(&needs.behind));
    }
}

/// The lease in a sentence.
fn held(lease: &Lease, status: &DatabaseStatus) -> String {
    let (age, number) = (time(age_seconds(status.renewed_us)), lease.incarnation);
    let address = if lease.address.is_empty() { "no address" } else { &lease.address };
    match (lease.released, &lease.successor) {
        (true, Some(node)) => {
            format!("lease      incarnation {number} was given to {node} {age} ago")
        }
        (true, None) => format!("lease      incarnation {number} was given away {age} ago"),
        (false, _) => {
            let heard = if status.is_primary_heard() { "" } else { "; its holder was not heard" };
            let holder = &lease.node;
            format!("lease      {holder} at {address}, incarnation {number}, set {age} ago{heard}")
        }
    }
}

fn members(out: &mut String, status: &DatabaseStatus) {
    let _ = writeln!(out, "\nmembers");
    let row =
        |cells: [String; 6]| [12, 22, 9, 11, 11, 0].into_iter().zip(cells).collect::<Vec<_>>();
    let head = ["node", "address", "role", "lag", "behind", "positions"];
    line(out, &row(head.map(str::to_owned)));
    let list =
        |positions: &[u64]| positions.iter().map(|at| exact(*at)).collect::<Vec<_>>().join(" ");
    if let Some(lease) = status.lease.as_ref().filter(|lease| !lease.released) {
        let [node, address] = [&lease.node, &lease.address].map(String::clone);
        let at = list(&status.positions());
        line(out, &row([node, address, "primary".into(), String::new(), String::new(), at]));
    }
    for report in &status.standbys {
        let lag = report.lag_us.map_or("unknown".into(), |lag| time(lag as f64 / 1e6));
        let behind = bytes(status.behind(report) as f64);
        let [node, address] = [&report.node, &report.address].map(String::clone);
        line(out, &row([node, address, "standby".into(), lag, behind, list(&report.synced)]));
    }
}
