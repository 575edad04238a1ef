//! COMMAND: what clients ask of the table.

use super::table::{self, ADMIN, Command, FAST, READ, Run, WRITE};
use super::{Local, SYNTAX, help, integer, is, lower, unknown_subcommand};
use crate::access::catalogue;
use crate::data::keyspace::Stop;
use crate::glob;
use crate::resp::reply::Reply;

const HELP: &[&str] = &[
    "COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "(no subcommand)",
    "    All commands that are built.",
    "COUNT",
    "    Their number.",
    "DOCS [<name> ...]",
    "    Their groups.",
    "GETKEYS <command line>",
    "    The keys in a command.",
    "INFO [<name> ...]",
    "    Some of them.",
    "LIST [FILTERBY (PATTERN <pattern>|ACLCAT <category>|MODULE <name>)]",
    "    Their names.",
    "HELP",
    "    This help.",
];

/// A command.
pub fn find(name: &[u8]) -> Option<&'static Command> {
    table::find(name).map(|at| &table::all()[at])
}

/// Places of the keys of a command line, those included that the table cannot know.
pub fn key_places(command: &Command, args: &[&[u8]]) -> Vec<usize> {
    let mut keys: Vec<usize> = command.key_places(args.len()).collect();
    if command.name == "sort" {
        keys.extend(sort_store(args));
    }
    // They have a key or a timeout in front of the number of keys.
    const LATER: [&str; 5] = ["blmpop", "bzmpop", "zdiffstore", "zinterstore", "zunionstore"];
    const COUNTED: [&str; 7] =
        ["lmpop", "sintercard", "zdiff", "zinter", "zintercard", "zmpop", "zunion"];
    let is_in = |names: &[&str]| names.contains(&command.name);
    let count_at = if is_in(&LATER) { 2 } else { 1 };
    if is_in(&LATER) || is_in(&COUNTED) {
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

pub fn command(_: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let Some(what) = args.get(1) else {
        reply.array(table::all().len());
        table::all().iter().for_each(|command| write_info(command, reply));
        return Ok(());
    };
    match (lower(what).as_str(), &args[2..]) {
        ("count", []) => reply.count(table::all().len()),
        ("info", []) => {
            reply.array(table::all().len());
            table::all().iter().for_each(|command| write_info(command, reply));
        }
        ("info", names) => {
            reply.array(names.len());
            for name in names {
                match find(name) {
                    Some(command) => write_info(command, reply),
                    None => reply.null_array(),
                }
            }
        }
        ("docs", names) => {
            let wanted: Vec<&Command> = match names {
                [] => table::all().iter().collect(),
                names => names.iter().filter_map(|name| find(name)).collect(),
            };
            reply.map(wanted.len());
            wanted.iter().for_each(|command| write_docs(command, reply));
        }
        ("getkeys", [name, ..]) => {
            let command = find(name).ok_or("ERR Invalid command specified")?;
            if !command.takes(args.len() - 2) {
                return Err("ERR Invalid number of arguments specified for command".into());
            }
            let keys = key_places(command, &args[2..]);
            if keys.is_empty() {
                return Err("ERR The command has no key arguments".into());
            }
            reply.array(keys.len());
            keys.iter().for_each(|at| reply.bulk(args[2 + at]));
        }
        ("list", options) => list(options, reply)?,
        ("help", []) => help(reply, HELP),
        _ => return Err(unknown_subcommand("command", what)),
    }
    Ok(())
}

fn list(options: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let names = table::all().iter().map(|command| command.name);
    let found: Vec<&str> = match options {
        [] => names.collect(),
        [filter, by, value] if is(filter, "FILTERBY") => match lower(by).as_str() {
            "pattern" => names.filter(|n| glob::matches(value, n.as_bytes(), true)).collect(),
            "aclcat" => {
                let category = lower(value);
                let of = |command: &&Command| categories(command).contains(&category.as_str());
                table::all().iter().filter(of).map(|command| command.name).collect()
            }
            "module" => Vec::new(),
            _ => return Err(SYNTAX.into()),
        },
        _ => return Err(SYNTAX.into()),
    };
    reply.array(found.len());
    found.iter().for_each(|name| reply.bulk(name.as_bytes()));
    Ok(())
}

fn categories(command: &Command) -> Vec<&'static str> {
    let Some(at) = catalogue::find(command.name.as_bytes()) else { return Vec::new() };
    let bits = catalogue::all()[at].categories;
    let all = catalogue::CATEGORIES.iter().enumerate();
    all.filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, name)| *name).collect()
}

fn write_info(command: &Command, reply: &mut Reply<'_>) {
    let has = |flag: u32| command.flags & flag != 0;
    let mut flags = Vec::new();
    flags.extend(has(WRITE).then_some("write"));
    flags.extend(has(READ).then_some("readonly"));
    flags.extend(has(ADMIN).then_some("admin"));
    flags.extend(matches!(command.run, Run::Local(_)).then_some("loading"));
    flags.extend(has(FAST).then_some("fast"));
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.integer(i64::from(command.arity));
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.simple(flag));
    let (first, last, step) = command.keys;
    [first, last, step].iter().for_each(|n| reply.integer(i64::from(*n)));
    let categories = categories(command);
    reply.set(categories.len());
    categories.iter().for_each(|category| reply.simple(&format!("@{category}")));
    // Tips, key specifications, subcommands.
    (0..3).for_each(|_| reply.array(0));
}

fn write_docs(command: &Command, reply: &mut Reply<'_>) {
    reply.bulk(command.name.as_bytes());
    reply.map(2);
    for (name, value) in [("summary", command.name), ("group", command.group)] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
}
