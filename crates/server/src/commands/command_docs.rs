//! COMMAND: questions of clients about the table.

mod information;
mod key_specs;
mod pages;
mod syntax;

use super::{Local, SYNTAX, command_keys, help, is, lower, unknown_subcommand};
use crate::base::glob;
use crate::catalogue::{self, Command, names};
use crate::data::keyspace::Stop;
use crate::resp::reply::Reply;
use pages::DocPage;
use syntax::{Argument, ArgumentKind};

const HELP: &[&str] = &[
    "COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "(no subcommand)",
    "    All commands that are built.",
    "COUNT",
    "    Their number.",
    "DOCS [<name> ...]",
    "    What they do, and their arguments.",
    "GETKEYS <command line>",
    "    The keys in a command.",
    "GETKEYSANDFLAGS <command line>",
    "    The keys in a command, and what it does with each.",
    "INFO [<name> ...]",
    "    Their number of arguments, their flags, and where their keys are.",
    "LIST [FILTERBY (PATTERN <pattern>|ACLCAT <category>|MODULE <name>)]",
    "    Their names.",
    "HELP",
    "    This help.",
];

pub fn command(_: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let Some(what) = args.get(1) else {
        reply.array(catalogue::all().len());
        catalogue::all().iter().for_each(|command| information::write_command(command, reply));
        return Ok(());
    };
    match (lower(what).as_str(), &args[2..]) {
        ("count", []) => reply.count(catalogue::all().len()),
        ("info", []) => {
            reply.array(catalogue::all().len());
            catalogue::all().iter().for_each(|command| information::write_command(command, reply));
        }
        ("info", names) => {
            reply.array(names.len());
            names.iter().for_each(|name| information::write_named(name, reply));
        }
        ("docs", names) => {
            let is_command = |page: &&DocPage| !page.name.contains('|');
            let wanted: Vec<&DocPage> = match names {
                [] => pages::all().iter().filter(is_command).collect(),
                names => names.iter().filter_map(|name| pages::find(name)).collect(),
            };
            reply.map(wanted.len());
            wanted.iter().for_each(|page| write_docs(page, reply));
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
    // With the names of subcommands, such as `config|get`.
    let built = names::all().iter().filter(|named| named.is_built).map(|named| named.name);
    let found: Vec<&str> = match options {
        [] => built.collect(),
        [filter, by, value] if is(filter, "FILTERBY") => match lower(by).as_str() {
            "pattern" => built.filter(|n| glob::matches(value, n.as_bytes(), true)).collect(),
            // The commands that rules allow by their category, built or not.
            "aclcat" => {
                let category = catalogue::category(value).unwrap_or(0);
                let named = names::all().iter().filter(|named| named.categories & category != 0);
                named.map(|named| named.name).collect()
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

/// The command of a page, or of the page of a subcommand.
fn command_of(name: &str) -> &'static Command {
    let (command, _) = name.split_once('|').unwrap_or((name, ""));
    catalogue::command(command.as_bytes()).expect("pages are those of commands that are built")
}

fn write_docs(page: &DocPage, reply: &mut Reply<'_>) {
    let subcommands = pages::of_subcommands(page.name);
    let texts = [
        ("summary", Some(page.summary)),
        ("since", Some(page.since)),
        ("group", Some(command_of(page.name).group)),
        ("complexity", page.complexity),
    ];
    let texts = texts.into_iter().filter_map(|(name, text)| Some((name, text?)));
    let has_arguments = !page.arguments.is_empty();
    let lists = usize::from(has_arguments) + usize::from(!subcommands.is_empty());
    reply.bulk(page.name.as_bytes());
    reply.map(texts.clone().count() + lists);
    texts.for_each(|(name, text)| write_text(name, text, reply));
    if has_arguments {
        reply.bulk(b"arguments");
        write_arguments(&page.arguments, reply);
    }
    if !subcommands.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(subcommands.len());
        subcommands.iter().for_each(|page| write_docs(page, reply));
    }
}

fn write_text(name: &str, text: &str, reply: &mut Reply<'_>) {
    reply.bulk(name.as_bytes());
    reply.bulk(text.as_bytes());
}

fn write_arguments(arguments: &[Argument], reply: &mut Reply<'_>) {
    reply.array(arguments.len());
    for argument in arguments {
        let flags = [
            ("optional", argument.is_optional),
            ("multiple", argument.is_multiple),
            ("multiple_token", argument.repeats_token),
        ];
        let flags = flags.into_iter().filter(|(_, is_so)| *is_so);
        let is_group = matches!(argument.kind, ArgumentKind::OneOf | ArgumentKind::Block);
        let count = flags.clone().count();
        let more = [argument.key_spec.is_some(), argument.token.is_some(), count > 0, is_group];
        reply.map(2 + more.into_iter().filter(|is_there| *is_there).count());
        write_text("name", &argument.name, reply);
        write_text("type", argument.kind.name(), reply);
        if let Some(place) = argument.key_spec {
            reply.bulk(b"key_spec_index");
            reply.count(place);
        }
        if let Some(token) = argument.token {
            write_text("token", token, reply);
        }
        if count > 0 {
            reply.bulk(b"flags");
            reply.set(count);
            flags.for_each(|(name, _)| reply.simple(name));
        }
        if is_group {
            reply.bulk(b"arguments");
            write_arguments(&argument.parts, reply);
        }
    }
}
