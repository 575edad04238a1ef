//! COMMAND: what clients ask of the table.

use super::table::{self, ADMIN, BLOCKS, Command, DENY_OOM, FAST, READ, Run, WRITE};
use super::{Local, SYNTAX, command_keys, help, is, lower, unknown_subcommand};
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
    "GETKEYSANDFLAGS <command line>",
    "    The keys in a command, and what it does with each.",
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
        ("getkeys", [_, ..]) => command_keys::getkeys(&args[2..], reply)?,
        ("getkeysandflags", [_, ..]) => command_keys::getkeysandflags(&args[2..], reply)?,
        ("list", options) => list(options, reply)?,
        ("help", []) => help(reply, HELP),
        _ => return Err(unknown_subcommand("command", what)),
    }
    Ok(())
}

fn list(options: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Stop> {
    // With those of subcommands, such as `config|get`.
    let is_built = |name: &&str| find(name.split('|').next().unwrap_or(name).as_bytes()).is_some();
    let named = catalogue::all().iter();
    let names = named.clone().map(|named| named.name).filter(is_built);
    let found: Vec<&str> = match options {
        [] => names.collect(),
        [filter, by, value] if is(filter, "FILTERBY") => match lower(by).as_str() {
            "pattern" => names.filter(|n| glob::matches(value, n.as_bytes(), true)).collect(),
            // Those that rules allow by their category, built or not.
            "aclcat" => {
                let category = catalogue::category(value).unwrap_or(0);
                let of = named.filter(|named| named.categories & category != 0);
                of.map(|named| named.name).collect()
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
    flags.extend(has(DENY_OOM).then_some("denyoom"));
    flags.extend(has(ADMIN).then_some("admin"));
    flags.extend((command.group == "pubsub").then_some("pubsub"));
    flags.extend(has(BLOCKS).then_some("blocking"));
    flags.extend(matches!(command.run, Run::Local(_)).then_some("loading"));
    flags.extend(has(FAST).then_some("fast"));
    flags.extend(command_keys::has_movable_keys(command).then_some("movablekeys"));
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
