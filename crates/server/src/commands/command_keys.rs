//! The keys in a command line, and what is done with them: COMMAND GETKEYS and GETKEYSANDFLAGS.

use super::command_docs::find;
use super::table::Command;
use super::{integer, is};
use crate::access::{Need, Needs};
use crate::data::keyspace::Stop;
use crate::resp::reply::Reply;

/// Commands with a number of keys in front of them. The first ones have a key or a timeout in front
/// of that.
const LATER: [&str; 5] = ["blmpop", "bzmpop", "zdiffstore", "zinterstore", "zunionstore"];
const COUNTED: [&str; 7] =
    ["lmpop", "sintercard", "zdiff", "zinter", "zintercard", "zmpop", "zunion"];

/// Whether the table cannot know all keys of a command, or patterns among its arguments stand for
/// keys: Redis's flag `movablekeys`.
pub fn has_movable_keys(command: &Command) -> bool {
    count_place(command).is_some() || matches!(command.name, "migrate" | "sort" | "sort_ro")
}

/// Where a command has the number of its keys, if they follow one.
pub fn count_place(command: &Command) -> Option<usize> {
    match command.name {
        name if LATER.contains(&name) => Some(2),
        name if COUNTED.contains(&name) => Some(1),
        _ => None,
    }
}

/// Places of the keys of a command line, those included that the table cannot know.
pub fn key_places(command: &Command, args: &[&[u8]]) -> Vec<usize> {
    if command.name == "migrate" {
        return migrate_keys(args);
    }
    let mut keys: Vec<usize> = command.key_places(args.len()).collect();
    if command.name == "sort" {
        keys.extend(sort_store(args));
    }
    if let Some(count_at) = count_place(command) {
        let count = integer(args[count_at]).ok().and_then(|count| usize::try_from(count).ok());
        let end = count_at.saturating_add(count.unwrap_or(0)).min(args.len() - 1);
        keys.extend(count_at + 1..=end);
    }
    keys
}

/// Where the key is under which SORT stores: the last one, if it is told several times. Values of
/// options are no options.
fn sort_store(args: &[&[u8]]) -> Option<usize> {
    let (mut at, mut stores) = (2, None);
    while at < args.len() {
        let is_option = |name: &[u8]| args[at].eq_ignore_ascii_case(name);
        at += match () {
            () if is_option(b"LIMIT") => 3,
            () if is_option(b"BY") || is_option(b"GET") => 2,
            () if is_option(b"STORE") && at + 1 < args.len() => {
                stores = Some(at + 1);
                2
            }
            () => 1,
        };
    }
    stores
}

/// The key of MIGRATE, or those behind KEYS if that is empty. Passwords are no options.
fn migrate_keys(args: &[&[u8]]) -> Vec<usize> {
    let mut at = if args[3].is_empty() { 6 } else { args.len() };
    while at < args.len() {
        at += match () {
            () if is(args[at], "KEYS") => return (at + 1..args.len()).collect(),
            () if is(args[at], "AUTH") => 2,
            () if is(args[at], "AUTH2") => 3,
            () => 1,
        };
    }
    vec![3]
}

/// Scripts are not built, and say all the same where their keys are: behind their number.
const SCRIPTS: [&str; 6] = ["eval", "eval_ro", "evalsha", "evalsha_ro", "fcall", "fcall_ro"];

const INVALID_NUMBER: &str = "ERR Invalid number of arguments specified for command";
const INVALID: &str = "ERR Invalid arguments specified for command";
const NO_KEYS: &str = "ERR The command has no key arguments";

/// Which flags Redis shows of a key.
pub type KeyFlags = &'static [&'static str];

/// The keys of a script.
fn script_keys(name: &str, args: &[&[u8]]) -> Result<Vec<(usize, KeyFlags)>, Stop> {
    let count = *args.get(2).ok_or(INVALID_NUMBER)?;
    let count = integer(count).ok().and_then(|count| usize::try_from(count).ok());
    let count = count.filter(|count| *count <= args.len() - 3).ok_or(INVALID)?;
    let flags: KeyFlags = match name.ends_with("_ro") {
        true => &["RO", "access"],
        false => &["RW", "access", "update"],
    };
    Ok((3..3 + count).map(|at| (at, flags)).collect())
}

/// The keys of a command line: their places, and their flags.
fn keys(args: &[&[u8]]) -> Result<Vec<(usize, KeyFlags)>, Stop> {
    let script = SCRIPTS.into_iter().find(|name| args[0].eq_ignore_ascii_case(name.as_bytes()));
    if let Some(name) = script {
        // Those that have no keys are as good as others.
        return script_keys(name, args);
    }
    let Some(command) = find(args[0]) else {
        let needs = Needs::of_unbuilt(args).ok_or("ERR Invalid command specified")?;
        let keys = needs.keys.into_iter().map(|(at, need)| (at, flags_of_unbuilt(need)));
        let keys: Vec<_> = keys.collect();
        return if keys.is_empty() { Err(INVALID_NUMBER.into()) } else { Ok(keys) };
    };
    if !command.takes(args.len()) {
        return Err(INVALID_NUMBER.into());
    }
    let keys = flagged_keys(command, args);
    match keys.is_empty() {
        true => Err(NO_KEYS.into()),
        false => Ok(keys),
    }
}

/// The keys of a command line whose command takes its number of arguments.
pub fn flagged_keys(command: &Command, args: &[&[u8]]) -> Vec<(usize, KeyFlags)> {
    let keys = Needs::of(command, args).keys.into_iter().enumerate();
    keys.map(|(nth, (at, need))| (at, flags(command.name, nth, need))).collect()
}

/// The flags of a key of a command that is not built: those that its rights need.
fn flags_of_unbuilt(need: Need) -> KeyFlags {
    match need {
        Need::Any => &["RO"],
        Need::Read => &["RO", "access"],
        Need::Write => &["RW", "update"],
        Need::Both => &["RW", "access", "update"],
    }
}

/// The flags of a key: whether its value is read (`RO`), written whatever it was (`OW`), changed
/// (`RW`) or removed unseen (`RM`), and what becomes of its content.
fn flags(name: &str, nth: usize, need: Need) -> KeyFlags {
    let is_moved_from = nth == 0;
    match (need, name) {
        (Need::Any, _) => &["RO"],
        (Need::Read, _) => &["RO", "access"],
        (
            Need::Both,
            "blmpop" | "blpop" | "brpop" | "bzmpop" | "bzpopmax" | "bzpopmin" | "getdel" | "lmpop"
            | "lpop" | "migrate" | "rpop" | "spop" | "zmpop" | "zpopmax" | "zpopmin",
        ) => &["RW", "access", "delete"],
        (
            Need::Both,
            "blmove" | "brpoplpush" | "lmove" | "rename" | "renamenx" | "rpoplpush" | "smove",
        ) if is_moved_from => &["RW", "access", "delete"],
        (Need::Both, _) => &["RW", "access", "update"],
        (Need::Write, "del" | "unlink") => &["RM", "delete"],
        (
            Need::Write,
            "hdel" | "lrem" | "ltrim" | "srem" | "zrem" | "zremrangebylex" | "zremrangebyrank"
            | "zremrangebyscore",
        ) => &["RW", "delete"],
        (
            Need::Write,
            "append" | "blmove" | "brpoplpush" | "hsetnx" | "linsert" | "lmove" | "lpush"
            | "lpushx" | "rpoplpush" | "rpush" | "rpushx" | "sadd" | "smove",
        ) => &["RW", "insert"],
        (Need::Write, "msetnx" | "renamenx" | "setnx") => &["OW", "insert"],
        (
            Need::Write,
            "expire" | "expireat" | "hmset" | "hset" | "lset" | "persist" | "pexpire" | "pexpireat"
            | "setrange" | "sinterstore" | "zadd",
        ) => &["RW", "update"],
        (Need::Write, _) => &["OW", "update"],
    }
}

pub fn getkeys(args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let keys = keys(args)?;
    reply.array(keys.len());
    keys.iter().for_each(|(at, _)| reply.bulk(args[*at]));
    Ok(())
}

pub fn getkeysandflags(args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let keys = keys(args)?;
    reply.array(keys.len());
    for (at, flags) in keys {
        reply.array(2);
        reply.bulk(args[at]);
        reply.set(flags.len());
        flags.iter().for_each(|flag| reply.simple(flag));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::table;

    fn told(line: &str) -> String {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        match keys(&args) {
            Ok(keys) => {
                let name = |at: usize| String::from_utf8_lossy(args[at]).into_owned();
                let told = keys.iter().map(|(at, flags)| name(*at) + ":" + &flags.join("+"));
                told.collect::<Vec<_>>().join(" ")
            }
            Err(Stop::Error(text)) => text.into_owned(),
            Err(Stop::Abort(abort)) => abort.to_string(),
        }
    }

    #[test]
    fn keys_and_flags_are_those_of_redis() {
        for (line, expected) in [
            ("GET a", "a:RO+access"),
            ("STRLEN a", "a:RO"),
            ("SET a b", "a:OW+update"),
            ("SET a b GET", "a:RW+access+update"),
            ("SETNX a b", "a:OW+insert"),
            ("APPEND a b", "a:RW+insert"),
            ("INCR a", "a:RW+access+update"),
            ("GETDEL a", "a:RW+access+delete"),
            ("DEL a b", "a:RM+delete b:RM+delete"),
            ("LMOVE a b left left", "a:RW+access+delete b:RW+insert"),
            ("MOVE a 1", "a:RW+access+update"),
            ("RENAME a b", "a:RW+access+delete b:OW+update"),
            ("RENAMENX a b", "a:RW+access+delete b:OW+insert"),
            ("COPY a b", "a:RO+access b:OW+update"),
            ("HSET a b c", "a:RW+update"),
            ("SDIFFSTORE a b", "a:OW+update b:RO+access"),
            ("SINTERSTORE a b", "a:RW+update b:RO+access"),
            ("SREM a b", "a:RW+delete"),
            ("BLPOP a b 0", "a:RW+access+delete b:RW+access+delete"),
            ("ZUNIONSTORE a 2 b c", "a:OW+update b:RO+access c:RO+access"),
            ("SORT a ALPHA STORE b", "a:RO+access b:OW+update"),
            ("EVAL text 2 a b c", "a:RW+access+update b:RW+access+update"),
            ("FCALL_RO text 1 a", "a:RO+access"),
            ("EVAL text 0 a", ""),
            ("XGROUP CREATE a g $", "a:RW+update"),
            ("XREAD STREAMS a b 0 0", "a:RO+access b:RO+access"),
            ("XLEN a", "a:RO"),
            ("MIGRATE h 1 a 0 1 COPY", "a:RW+access+delete"),
            ("MIGRATE h 1  0 1 KEYS a b", "a:RW+access+delete b:RW+access+delete"),
            ("MIGRATE h 1 a 0", INVALID_NUMBER),
            ("XADD", INVALID_NUMBER),
            ("CLUSTER INFO", "ERR Invalid command specified"),
            ("EVAL text 1", INVALID),
            ("EVAL text -1", INVALID),
            ("EVAL text", INVALID_NUMBER),
            ("EVALSHA text 1 a", "a:RW+access+update"),
            ("PING", NO_KEYS),
            ("GET", INVALID_NUMBER),
            ("NONE a", "ERR Invalid command specified"),
        ] {
            assert_eq!(told(line), expected, "{line}");
        }
    }

    /// Whatever the table says of a command: what writes is not shown as reading alone.
    #[test]
    fn the_flags_of_writing_commands_begin_so() {
        for command in table::all().iter().filter(|command| command.keys.0 == 1) {
            let args: Vec<&[u8]> = std::iter::once(command.name.as_bytes())
                .chain(std::iter::repeat_n(&b"1"[..], command.arity.unsigned_abs() as usize))
                .collect();
            let args = &args[..command.arity.unsigned_abs() as usize];
            let (_, need) = Needs::of(command, args).keys[0];
            let first = flags(command.name, 0, need)[0];
            let reads = matches!(command.name, "bitfield" | "copy" | "sort" | "watch");
            assert_eq!(first == "RO", reads || !command.writes(), "{}", command.name);
        }
    }
}
