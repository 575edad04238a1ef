//! FUNCTION and FCALL: libraries of functions, which are rows, and run as scripts do.

use super::generic::check_flush_mode;
use super::scripts::{LimitedRun, limited, split_arguments};
use super::{Caller, Done, help, lower, unknown_subcommand};
use crate::base::glob::matches;
use crate::base::sha1::sha1;
use crate::data::keyspace::{Keyspace, Stop};
use crate::data::scripts::KeptFunction;
use crate::rdb;
use crate::resp::is;
use crate::resp::reply::Reply;
use crate::script::{self, Flags, FunctionCall, Halt, Header};
use std::collections::HashSet;

/// The longest library in bytes.
const LONGEST_LIBRARY: usize = 1 << 20;

/// Most bytes of libraries read by FUNCTION RESTORE.
const MOST_RESTORED: usize = 64 << 20;

fn call(
    (space, caller): (&Keyspace<'_>, &Caller<'_>),
    args: &[&[u8]],
    is_read_only: bool,
    reply: &mut Reply<'_>,
) -> Done {
    let function = space.function(args[1])?.ok_or("ERR Function not found")?;
    let (keys, arguments) = split_arguments(args, "ERR Bad number of keys provided")?;
    let flags = Flags::of_bits(function.flags);
    if is_read_only && !flags.no_writes {
        return Err("ERR Can not execute a script with write flag using *_ro command.".into());
    }
    let name = function.name.to_ascii_lowercase();
    let shown = String::from_utf8_lossy(&function.name).into_owned();
    let code = || match space.library(&function.library) {
        Ok(code) => Ok(code.unwrap_or_default()),
        Err(abort) => Err(Halt::Abort(abort)),
    };
    let call = FunctionCall { sha: &function.sha, name: &name, code: &code, keys, arguments };
    let what = LimitedRun {
        name: &shown,
        function: Some(&function.name),
        flags,
        is_read_only,
        killed_by: "FUNCTION KILL",
    };
    limited((space, caller), &what, args, reply, |limits, host, reply| {
        script::run_function(&call, limits, host, reply)
    })
}

pub fn fcall(s: &Keyspace<'_>, caller: &Caller<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    call((s, caller), args, false, reply)
}

pub fn fcall_ro(
    space: &Keyspace<'_>,
    caller: &Caller<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Done {
    call((space, caller), args, true, reply)
}

/// Keeps a library and its functions. Returns its name.
fn load(
    (space, caller): (&Keyspace<'_>, &Caller<'_>),
    code: &[u8],
    replaces: bool,
    reply: &mut Reply<'_>,
) -> Result<Vec<u8>, Stop> {
    if code.len() > LONGEST_LIBRARY {
        return Err(format!("ERR a library has at most {} MiB", LONGEST_LIBRARY >> 20).into());
    }
    let header = Header::of_library(code)?;
    let name = header.name.expect("libraries have one").to_vec();
    let shown = String::from_utf8_lossy(&name).into_owned();
    if space.library(&name)?.is_some() && !replaces {
        return Err(format!("ERR Library '{shown}' already exists").into());
    }
    let sha = sha1(code);
    let mut registered = Vec::new();
    let what = LimitedRun {
        name: &shown,
        function: Some(&name),
        flags: Flags { rollback: true, ..Flags::default() },
        is_read_only: true,
        killed_by: "FUNCTION KILL",
    };
    limited((space, caller), &what, &[b"FUNCTION", b"LOAD"], reply, |limits, _, _| {
        registered = script::load(&sha, header.rest, limits)?;
        Ok(())
    })?;
    space.remove_library(&name)?;
    for own in registered {
        if space.function(&own.name)?.is_some() {
            let taken = String::from_utf8_lossy(&own.name);
            return Err(format!("ERR Function {taken} already exists").into());
        }
        space.put_function(&KeptFunction {
            sha,
            flags: own.flags.bits(),
            library: name.clone(),
            name: own.name,
            description: own.description,
        })?;
    }
    space.put_library(&name, code)?;
    Ok(name)
}

/// The options of FUNCTION LIST.
#[derive(Default)]
struct ListOptions<'a> {
    pattern: Option<&'a [u8]>,
    has_code: bool,
}

fn list(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (mut options, mut at) = (ListOptions::default(), 0);
    while let Some(&word) = args.get(at) {
        at += 1;
        if is(word, "WITHCODE") && !options.has_code {
            options.has_code = true;
        } else if is(word, "LIBRARYNAME") && options.pattern.is_none() {
            let pattern = args.get(at).ok_or("ERR library name argument was not given")?;
            (options.pattern, at) = (Some(*pattern), at + 1);
        } else {
            let given = String::from_utf8_lossy(word);
            return Err(format!("ERR Unknown argument {given}").into());
        }
    }
    let functions = space.functions()?;
    let mut libraries = space.libraries()?;
    libraries
        .retain(|(name, _)| options.pattern.is_none_or(|pattern| matches(pattern, name, true)));
    reply.array(libraries.len());
    for (name, code) in &libraries {
        reply.map(if options.has_code { 4 } else { 3 });
        reply.bulk(b"library_name");
        reply.bulk(name);
        reply.bulk(b"engine");
        reply.bulk(b"LUA");
        reply.bulk(b"functions");
        let own: Vec<_> = functions.iter().filter(|own| own.library == *name).collect();
        reply.array(own.len());
        for function in own {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(&function.name);
            reply.bulk(b"description");
            reply.bulk_or_null(function.description.as_deref());
            reply.bulk(b"flags");
            let flags: Vec<_> = Flags::of_bits(function.flags).names().collect();
            reply.set(flags.len());
            flags.iter().for_each(|flag| reply.simple(flag));
        }
        if options.has_code {
            reply.bulk(b"library_code");
            reply.bulk(code);
        }
    }
    Ok(())
}

fn stats(space: &Keyspace<'_>, caller: &Caller<'_>, reply: &mut Reply<'_>) -> Done {
    let (libraries, functions) = (space.libraries()?.len(), space.functions()?.len());
    reply.map(2);
    reply.bulk(b"running_script");
    match caller.shared.scripts.running.first_function() {
        None => reply.null(),
        Some(running) => {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(running.function.as_deref().unwrap_or_default());
            reply.bulk(b"command");
            reply.array(running.command.len());
            running.command.iter().for_each(|word| reply.bulk(word));
            reply.bulk(b"duration_ms");
            reply.integer(running.began.elapsed().as_millis() as i64);
        }
    }
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(b"LUA");
    reply.map(2);
    reply.bulk(b"libraries_count");
    reply.count(libraries);
    reply.bulk(b"functions_count");
    reply.count(functions);
    Ok(())
}

/// The treatment of existing libraries by FUNCTION RESTORE.
fn restore(
    (space, caller): (&Keyspace<'_>, &Caller<'_>),
    payload: &[u8],
    policy: Option<&&[u8]>,
    reply: &mut Reply<'_>,
) -> Done {
    const WRONG: &str = "ERR Wrong restore policy given, value should be either FLUSH, APPEND or \
                         REPLACE.";
    let policy = policy.copied().unwrap_or(b"APPEND");
    let (flushes, replaces) = (is(policy, "FLUSH"), is(policy, "REPLACE"));
    if !flushes && !replaces && !is(policy, "APPEND") {
        return Err(WRONG.into());
    }
    let libraries = rdb::restore_libraries(payload, MOST_RESTORED);
    let libraries = libraries.map_err(|error| Stop::from(error.text()))?;
    if flushes {
        space.flush_libraries()?;
    }
    let mut seen = HashSet::new();
    for code in &libraries {
        let name = load((space, caller), code, replaces, reply)?;
        if !seen.insert(name) {
            return Err("ERR the payload has a library twice".into());
        }
    }
    reply.ok();
    Ok(())
}

const HELP: &[&str] = &[
    "FUNCTION <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "LOAD [REPLACE] <FUNCTION CODE>",
    "    Keeps a library, also when the server is started again.",
    "DELETE <LIBRARY NAME>",
    "    Deletes a library and its functions.",
    "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
    "    The libraries, with their functions and their code.",
    "STATS",
    "    The function that has run longest, and the numbers of libraries and functions.",
    "KILL",
    "    Ends the functions that run for longer than some milliseconds; they are undone.",
    "FLUSH [ASYNC|SYNC]",
    "    Deletes all libraries.",
    "DUMP",
    "    All libraries as a payload for RESTORE.",
    "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
    "    Keeps the libraries of a payload.",
    "HELP",
    "    This help.",
];

pub fn function(
    space: &Keyspace<'_>,
    caller: &Caller<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Done {
    match (lower(args[1]).as_str(), &args[2..]) {
        ("load", [option, _, ..]) if !is(option, "REPLACE") => {
            let given = String::from_utf8_lossy(option);
            return Err(format!("ERR Unknown option given: {given}").into());
        }
        ("load", [_, _, option, ..]) => {
            let given = String::from_utf8_lossy(option);
            return Err(format!("ERR Unknown option given: {given}").into());
        }
        ("load", [options @ .., code]) => {
            let name = load((space, caller), code, !options.is_empty(), reply)?;
            reply.bulk(&name);
        }
        ("delete", [name]) => {
            if space.library(name)?.is_none() {
                return Err("ERR Library not found".into());
            }
            space.remove_library(name)?;
            reply.ok();
        }
        ("list", options) => return list(space, options, reply),
        ("stats", []) => return stats(space, caller, reply),
        ("kill", []) => match caller.shared.scripts.running.kill(true) {
            0 => return Err("NOTBUSY No scripts in execution right now.".into()),
            _ => reply.ok(),
        },
        ("flush", [] | [_]) => {
            check_flush_mode(&args[2..], "ERR FUNCTION FLUSH only supports SYNC|ASYNC option")?;
            space.flush_libraries()?;
            reply.ok();
        }
        ("dump", []) => {
            let libraries = space.libraries()?;
            reply.bulk(&rdb::libraries(libraries.iter().map(|(_, code)| &code[..])));
        }
        ("restore", [payload, policy @ ..]) if policy.len() <= 1 => {
            return restore((space, caller), payload, policy.first(), reply);
        }
        ("restore", _) => {
            let what = "unknown subcommand or wrong number of arguments for 'restore'";
            return Err(format!("ERR {what}. Try FUNCTION HELP.").into());
        }
        ("help", []) => help(reply, HELP),
        _ => return Err(unknown_subcommand("function", args[1])),
    }
    Ok(())
}
