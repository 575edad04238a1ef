//! Commands on the connection itself.

use super::{Done, Local, SYNTAX, client, database, integer, is, wrong_arity};
use crate::access::{self, DEFAULT, DeniedEntry, DeniedIn, Reason};
use crate::resp::reply::Reply;
use hyades_platform::sync::Unpoisoned;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

pub fn ping(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    if args.len() <= 2 && local.client.only_listens() {
        // In the form of a message, among messages.
        reply.array(2);
        reply.bulk(b"pong");
        reply.bulk(args.get(1).copied().unwrap_or_default());
        return Ok(());
    }
    match args {
        [_] => reply.simple("PONG"),
        [_, text] => reply.bulk(text),
        _ => return Err(wrong_arity("ping")),
    }
    Ok(())
}

pub fn echo(_: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.bulk(args[1]);
    Ok(())
}

pub fn quit(local: &mut Local<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    local.client.quit();
    reply.ok();
    Ok(())
}

pub fn monitor(local: &mut Local<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (monitors, client) = (&local.shared.wiring.monitors, &mut *local.client);
    if client.monitoring.is_none() {
        client.monitoring = Some(monitors.add(&client.entry));
    }
    reply.ok();
    Ok(())
}

pub fn select(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let number = database(args[1], local.shared.settings.databases())?;
    local.client.database = number;
    local.client.entry.database.store(number, Relaxed);
    reply.ok();
    Ok(())
}

const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the \
                           default user. Are you sure your configuration is correct?";

pub fn auth(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    match *args {
        [_, _] if local.shared.access.users().default_user().needs_no_password() => {
            return Err(NO_PASSWORD.into());
        }
        [command, password] => log_in(local, command, DEFAULT.as_bytes(), password)?,
        [command, name, password] => log_in(local, command, name, password)?,
        _ => return Err(SYNTAX.into()),
    }
    reply.ok();
    Ok(())
}

/// Makes the client another user, if the password is right.
fn log_in(local: &mut Local<'_>, command: &[u8], name: &[u8], password: &[u8]) -> Done {
    let (access, client) = (&local.shared.access, &mut *local.client);
    if let Some(user) = access.users().log_in(name, password) {
        client.log_in(access, user);
        return Ok(());
    }
    if let Some(source) = access::source(&client.entry.address) {
        access.throttle.failed(source, Instant::now());
    }
    let entry = DeniedEntry {
        count: 1,
        reason: Reason::Login,
        place: DeniedIn::multi(local.is_in_exec),
        object: command.to_vec(),
        user: String::from_utf8_lossy(&name[..name.len().min(LONGEST_NAME)]).into_owned(),
        at_ms: local.now_ms,
        client: client.entry.line(local.now_ms),
    };
    access.denied.add(entry, local.shared.settings.denied_log_length());
    Err("WRONGPASS invalid username-password pair or user is disabled.".into())
}

/// Bytes of a user's name shown by ACL LOG.
const LONGEST_NAME: usize = 256;

const LOGIN_FIRST: &str = "NOAUTH HELLO must be called with the client already authenticated, \
                           otherwise the HELLO AUTH <user> <pass> option can be used to \
                           authenticate the client and select the RESP protocol version at the \
                           same time";

pub fn hello(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let mut version = if local.client.is_resp3 { 3 } else { 2 };
    if let Some(given) = args.get(1) {
        let invalid = "ERR Protocol version is not an integer or out of range";
        version = integer(given).map_err(|_| invalid)?;
        if !(2..=3).contains(&version) {
            return Err("NOPROTO unsupported protocol version".into());
        }
    }
    let (mut at, mut name) = (2, None);
    while let Some(option) = args.get(at) {
        if is(option, "AUTH") && at + 2 < args.len() {
            log_in(local, args[0], args[at + 1], args[at + 2])?;
            at += 3;
        } else if is(option, "SETNAME") && at + 1 < args.len() {
            name = Some(client::checked_name(args[at + 1])?);
            at += 2;
        } else {
            let option = String::from_utf8_lossy(option);
            return Err(format!("ERR Syntax error in HELLO option '{option}'").into());
        }
    }
    if local.client.login.is_missing(&local.shared.access) {
        return Err(LOGIN_FIRST.into());
    }
    if let Some(name) = name {
        local.client.entry.names.lock().unpoisoned().name = name;
    }
    local.client.is_resp3 = version == 3;
    local.client.entry.protocol.store(version as u32, Relaxed);
    // The reply is in the new version already.
    reply.set_version(version == 3);
    reply.map(7);
    for (name, value) in [("server", "redis"), ("version", super::info::REDIS_VERSION)] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    for (name, value) in [("proto", version), ("id", local.client.entry.id as i64)] {
        reply.bulk(name.as_bytes());
        reply.integer(value);
    }
    let mode = super::info::redis_mode(local.shared);
    let role = super::info::redis_role(local.shared);
    for (name, value) in [("mode", mode), ("role", role)] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
    Ok(())
}

pub fn reset(local: &mut Local<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    local.client.reset(&local.shared.access);
    reply.set_version(false);
    reply.simple("RESET");
    Ok(())
}
