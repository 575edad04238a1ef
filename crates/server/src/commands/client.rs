//! CLIENT.

use super::client_tracking;
use super::{Done, Local, SYNTAX, help, integer, is, lower, unknown_subcommand};
use crate::client::Silence;
use crate::clients::{ClientEntry, Unblock};
use crate::data::keyspace::Stop;
use crate::resp::reply::Reply;
use crate::state::pause::PauseMode;
use hyades_platform::sync::Unpoisoned;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const HELP: &[&str] = &[
    "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CACHING (YES|NO)",
    "    Whether keys of the next command are remembered, with OPTIN or OPTOUT.",
    "GETNAME",
    "    The name of this connection.",
    "GETREDIR",
    "    The connection that is told of written keys in the place of this one.",
    "ID",
    "    The number of this connection.",
    "INFO",
    "    This connection's line of CLIENT LIST.",
    "KILL <ip:port> | <option> <value> [<option> <value> [...]]",
    "    Closes connections: ADDR, LADDR, ID, TYPE, USER, MAXAGE, SKIPME.",
    "LIST [TYPE (NORMAL|MASTER|REPLICA|PUBSUB)] [ID <id> [<id> ...]]",
    "    A line for each connection.",
    "NO-EVICT (ON|OFF)",
    "    Accepted: connections are not evicted.",
    "NO-TOUCH (ON|OFF)",
    "    Accepted: reads write nothing down.",
    "REPLY (ON|OFF|SKIP)",
    "    Whether this connection gets replies.",
    "SETINFO (LIB-NAME|LIB-VER) <value>",
    "    What this connection says of its library.",
    "SETNAME <name>",
    "    Names this connection.",
    "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]] [OPTIN] [OPTOUT] [NOLOOP]",
    "    Whether this connection is told of keys that it has read when they are written.",
    "TRACKINGINFO",
    "    How it is told.",
    "UNBLOCK <id> [TIMEOUT|ERROR]",
    "    Ends the waiting of another connection's command.",
    "HELP",
    "    This help.",
];

fn unblock(local: &Local<'_>, id: &[u8], how: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let how = match how {
        [] => Unblock::Timeout,
        [word] if is(word, "TIMEOUT") => Unblock::Timeout,
        [word] if is(word, "ERROR") => Unblock::Error,
        [_] => {
            let text = "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR";
            return Err(text.into());
        }
        _ => return Err(SYNTAX.into()),
    };
    let entry = u64::try_from(integer(id)?).ok().and_then(|id| local.shared.clients.find(id));
    let blocked = entry.filter(|entry| entry.is_blocked.load(Relaxed));
    if let Some(entry) = &blocked {
        entry.unblock.set(how);
        entry.call();
    }
    reply.integer(blocked.is_some().into());
    Ok(())
}

/// Checks a name, which may not break the lines of CLIENT LIST.
pub fn checked_name(name: &[u8]) -> Result<String, Stop> {
    match name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        true => Ok(String::from_utf8_lossy(name).into_owned()),
        false => {
            let text = "ERR Client names cannot contain spaces, newlines or special characters.";
            Err(text.into())
        }
    }
}

pub fn client(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let what = lower(args[1]);
    let entry = local.client.entry.clone();
    match (what.as_str(), &args[2..]) {
        ("id", []) => reply.integer(entry.id as i64),
        ("getname", []) => {
            let name = entry.names.lock().unpoisoned().name.clone();
            reply.bulk_or_null(Some(name.as_bytes()).filter(|name| !name.is_empty()));
        }
        ("setname", [name]) => {
            entry.names.lock().unpoisoned().name = checked_name(name)?;
            reply.ok();
        }
        ("setinfo", [field, value]) => set_info(&entry, field, value, reply)?,
        ("info", []) => reply.verbatim(&format!("{}\n", entry.line(local.now_ms))),
        ("list", options) => list(local, options, reply)?,
        ("kill", options) if !options.is_empty() => kill(local, options, reply)?,
        ("reply", [how]) => silence(local, how, reply)?,
        ("no-evict" | "no-touch", [how]) if is(how, "ON") || is(how, "OFF") => {
            let flag = if what == "no-evict" { &entry.is_kept } else { &entry.touches_nothing };
            flag.store(is(how, "ON"), Relaxed);
            reply.ok();
        }
        ("no-evict" | "no-touch", [_]) => return Err(SYNTAX.into()),
        ("getredir", []) => reply.integer(entry.tracking.redirect()),
        ("unblock", [id, how @ ..]) => unblock(local, id, how, reply)?,
        ("unpause", []) => {
            local.shared.limits.pause.end();
            local.shared.wiring.wake_all();
            reply.ok();
        }
        ("pause", [time]) => pause(local, time, PauseMode::All, reply)?,
        ("pause", [time, mode]) if is(mode, "ALL") => pause(local, time, PauseMode::All, reply)?,
        ("pause", [time, mode]) if is(mode, "WRITE") => {
            pause(local, time, PauseMode::Write, reply)?;
        }
        ("pause", [_, _]) => return Err("ERR CLIENT PAUSE mode must be WRITE or ALL".into()),
        ("tracking", options @ [_, ..]) => client_tracking::tracking(local, options, reply)?,
        ("caching", [word]) => client_tracking::caching(local, word, reply)?,
        ("trackinginfo", []) => client_tracking::tracking_info(local, reply),
        ("help", []) => help(reply, HELP),
        _ => return Err(unknown_subcommand("client", args[1])),
    }
    Ok(())
}

fn pause(local: &Local<'_>, time: &[u8], mode: PauseMode, reply: &mut Reply<'_>) -> Done {
    let wrong = |_| Stop::from("ERR timeout is not an integer or out of range");
    let time = integer(time).map_err(wrong)?;
    let time = u64::try_from(time).map_err(|_| Stop::from("ERR timeout is negative"))?;
    if time > i64::MAX as u64 - local.now_ms.max(0) as u64 {
        return Err("ERR timeout is out of range".into());
    }
    local.shared.limits.pause.begin(mode, Duration::from_millis(time));
    reply.ok();
    Ok(())
}

fn set_info(entry: &ClientEntry, field: &[u8], value: &[u8], reply: &mut Reply<'_>) -> Done {
    let mut names = entry.names.lock().unpoisoned();
    let (place, shown) = match lower(field).as_str() {
        "lib-name" => (&mut names.library, "lib-name"),
        "lib-ver" => (&mut names.version, "lib-ver"),
        _ => {
            let field = String::from_utf8_lossy(field);
            return Err(format!("ERR Unrecognized option '{field}'").into());
        }
    };
    let wrong = format!("ERR {shown} cannot contain spaces, newlines or special characters.");
    *place = checked_name(value).map_err(|_| Stop::from(wrong))?;
    reply.ok();
    Ok(())
}

fn list(local: &Local<'_>, options: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let mut clients = local.shared.clients.list();
    match options {
        [] => {}
        [option, kind] if is(option, "TYPE") => clients.retain(of_type(kind)?),
        [option, ids @ ..] if is(option, "ID") && !ids.is_empty() => {
            let invalid = |_| Stop::from("ERR Invalid client ID");
            let ids = ids.iter().map(|id| integer(id).map_err(invalid));
            let ids = ids.collect::<Result<HashSet<_>, _>>()?;
            clients.retain(|client| ids.contains(&(client.id as i64)));
        }
        _ => return Err(SYNTAX.into()),
    }
    let lines = clients.iter().map(|client| client.line(local.now_ms) + "\n");
    reply.verbatim(&lines.collect::<String>());
    Ok(())
}

/// Whether a client is meant.
type Choice<'a> = Box<dyn Fn(&Arc<ClientEntry>) -> bool + 'a>;

/// The clients of a type.
fn of_type(kind: &[u8]) -> Result<Choice<'static>, Stop> {
    match lower(kind).as_str() {
        "normal" => Ok(Box::new(|client| !client.listens())),
        "pubsub" => Ok(Box::new(|client| client.listens())),
        "master" | "replica" | "slave" => Ok(Box::new(|_| false)),
        other => Err(format!("ERR Unknown client type '{other}'").into()),
    }
}

const MAXAGE: &str = "ERR maxage is not an integer or out of range";
const MAXAGE_NOT_POSITIVE: &str = "ERR maxage should be greater than 0";

fn kill(local: &mut Local<'_>, options: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let own = local.client.entry.id;
    let mut clients = local.shared.clients.list();
    if let [address] = options {
        clients.retain(|client| client.address.as_bytes() == *address);
        if clients.is_empty() {
            return Err("ERR No such client".into());
        }
        kill_all(local, &clients);
        reply.ok();
        return Ok(());
    }
    let mut skips_own = true;
    // The last value of each option counts.
    let mut choices: HashMap<String, Choice<'_>> = HashMap::new();
    for option in options.chunks(2) {
        let &[option, value] = option else { return Err(SYNTAX.into()) };
        let option = lower(option);
        let matches: Choice<'_> = match option.as_str() {
            "id" => {
                let id = integer(value).ok().filter(|id| *id > 0);
                let id = id.ok_or("ERR client-id should be greater than 0")? as u64;
                Box::new(move |client| client.id == id)
            }
            "addr" => Box::new(move |client| client.address.as_bytes() == value),
            "laddr" => Box::new(move |client| client.local_address.as_bytes() == value),
            "type" => of_type(value)?,
            "user" => {
                let users = local.shared.access.users();
                let user = std::str::from_utf8(value).ok().and_then(|name| users.find(name));
                let Some(name) = user.map(|user| user.name.clone()) else {
                    let name = String::from_utf8_lossy(value);
                    return Err(format!("ERR No such user '{name}'").into());
                };
                Box::new(move |client| client.names.lock().unpoisoned().user == *name)
            }
            "maxage" => {
                let age = integer(value).map_err(|_| MAXAGE)?;
                let age_ms = Some(age).filter(|age| *age > 0).ok_or(MAXAGE_NOT_POSITIVE)?;
                let latest = local.now_ms.saturating_sub(age_ms.saturating_mul(1_000));
                Box::new(move |client| client.since_ms <= latest)
            }
            "skipme" if is(value, "YES") || is(value, "NO") => {
                skips_own = is(value, "YES");
                continue;
            }
            _ => return Err(SYNTAX.into()),
        };
        choices.insert(option, matches);
    }
    clients.retain(|client| choices.values().all(|fits| fits(client)));
    clients.retain(|client| !(skips_own && client.id == own));
    kill_all(local, &clients);
    reply.count(clients.len());
    Ok(())
}

/// The client's own connection is closed behind its reply.
pub fn kill_all(local: &mut Local<'_>, clients: &[Arc<ClientEntry>]) {
    for client in clients {
        match client.id == local.client.entry.id {
            true => local.client.is_closing = true,
            false => client.kill(),
        }
    }
}

fn silence(local: &mut Local<'_>, how: &[u8], reply: &mut Reply<'_>) -> Done {
    local.client.silence = match lower(how).as_str() {
        "on" => {
            reply.ok();
            Silence::None
        }
        "off" => Silence::All,
        // CLIENT REPLY SKIP has no reply, and the next command has none either.
        "skip" => Silence::Next,
        _ => return Err(SYNTAX.into()),
    };
    Ok(())
}
