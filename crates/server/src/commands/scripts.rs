//! EVAL, EVALSHA and SCRIPT. A script is a transaction over the functions of the other commands: on
//! any keys, concurrent with other transactions, again after a conflict, and on disk before its
//! reply.

mod host;

use super::generic::check_flush_mode;
use super::{Caller, Done, NOT_AN_INTEGER, help, unknown_subcommand};
use crate::base::sha1::{Hexadecimal, from_hexadecimal, hexadecimal, sha1};
use crate::data::keyspace::{Keyspace, Stop, TOO_MUCH_FOR_LOOP};
use crate::resp::reply::Reply;
use crate::resp::{is, number};
use crate::script::{self, Call, Flags, Halt, Header, Host, ScriptEnd, ScriptLimits, Sha};
use crate::state::scripts::KnownScript;
use host::CommandHost;
use std::fmt::Display;
use std::sync::Arc;

/// The longest script in bytes.
const LONGEST_SCRIPT: usize = 1 << 20;

const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";

/// Whether the command at a place in the catalogue runs scripts.
pub fn is_script(place: usize) -> bool {
    matches!(super::function(place), super::Function::Script(_))
}

fn parse(sha: Sha, text: &[u8]) -> Result<KnownScript, Stop> {
    if text.len() > LONGEST_SCRIPT {
        let most = LONGEST_SCRIPT >> 20;
        return Err(format!("ERR a script has at most {most} MiB").into());
    }
    Ok(match Header::of_script(text).map_err(Stop::from)? {
        Some(Header { flags, rest, .. }) => KnownScript::new(sha, text, rest.len(), flags),
        None => KnownScript::new(sha, text, text.len(), Flags::default()),
    })
}

/// Some of the arguments of a command.
pub(super) type Words<'a> = &'a [&'a [u8]];

/// KEYS and ARGV behind the number of keys; the text is the error for an invalid number.
pub(super) fn split_arguments<'a>(
    args: &'a [&'a [u8]],
    not_a_number: &'static str,
) -> Result<(Words<'a>, Words<'a>), Stop> {
    let count = number::integer(args[2]).ok_or(not_a_number)?;
    let given = &args[3..];
    let Ok(count) = usize::try_from(count) else {
        return Err("ERR Number of keys can't be negative".into());
    };
    if count > given.len() {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    Ok(given.split_at(count))
}

fn run(
    (space, caller): (&Keyspace<'_>, &Caller<'_>),
    script: &KnownScript,
    args: &[&[u8]],
    is_read_only: bool,
    reply: &mut Reply<'_>,
) -> Done {
    let (keys, arguments) = split_arguments(args, NOT_AN_INTEGER)?;
    let call = Call { sha: &script.sha, body: script.body(), keys, arguments };
    let what = LimitedRun {
        name: &Hexadecimal(&script.sha),
        function: None,
        flags: script.flags,
        is_read_only,
        killed_by: "SCRIPT KILL",
    };
    limited((space, caller), &what, args, reply, |limits, host, reply| {
        script::run(&call, limits, host, reply)
    })
}

/// A script or a function to be run in a bounded time.
pub(super) struct LimitedRun<'a> {
    /// The name in errors.
    pub name: &'a dyn Display,
    /// The name of a function; `None` for a script.
    pub function: Option<&'a [u8]>,
    /// The flags of the script or function.
    pub flags: Flags,
    /// Whether the command forbids writes.
    pub is_read_only: bool,
    /// The command that ends the run.
    pub killed_by: &'a str,
}

/// Runs a script or a function in a bounded time: on an event loop in the time of a slice.
pub(super) fn limited(
    (space, caller): (&Keyspace<'_>, &Caller<'_>),
    what: &LimitedRun<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
    run: impl FnOnce(&ScriptLimits, &dyn Host, &mut Reply<'_>) -> Result<(), ScriptEnd>,
) -> Done {
    // An ended script would only run as long again.
    if let Some(text) = caller.ended.borrow().as_ref() {
        return Err(Stop::Error(text.clone().into()));
    }
    if what.flags.no_cluster && caller.shared.settings.is_cluster() {
        return Err("ERR Can not run script on cluster, 'no-cluster' flag is set.".into());
    }
    let is_patient = space.context().is_patient;
    let running = &caller.shared.scripts.running;
    let running = is_patient.then(|| running.begin(what.function, args));
    let limits = match &running {
        None => {
            let time = caller.shared.scripts.slice();
            ScriptLimits { time, halt: Halt::Slice, running: None }
        }
        Some(guard) => ScriptLimits {
            time: caller.shared.settings.script_time_limit(),
            halt: Halt::TooLong,
            running: Some(guard.running.clone()),
        },
    };
    let host = CommandHost::new(space, caller, what.flags, what.is_read_only);
    let position = reply.position();
    let Err(ended) = run(&limits, &host, reply) else { return Ok(()) };
    reply.truncate(position);
    Err(match ended {
        ScriptEnd::Halted(Halt::Abort(abort)) => Stop::Abort(abort),
        ScriptEnd::Halted(Halt::Slice) => Stop::Abort(TOO_MUCH_FOR_LOOP),
        ScriptEnd::Halted(halt) => {
            let why = match halt {
                Halt::Killed => format!("Script killed by user with {}.", what.killed_by),
                _ => {
                    let most = limits.time.as_millis();
                    format!("Script ran longer than script-time-limit, {most} ms.")
                }
            };
            let text = format!("ERR Error running script: {why} Nothing of it was done.");
            *caller.ended.borrow_mut() = Some(text.clone());
            Stop::Error(text.into())
        }
        ScriptEnd::Error(text, place) => {
            let text = match place {
                Some((source, line)) => {
                    format!("{text} script: {}, on {source}:{line}.", what.name)
                }
                None => text,
            };
            match what.flags.rollback || caller.rolls_back {
                true => Stop::Error(text.into()),
                false => Stop::ErrorKept(text.into()),
            }
        }
    })
}

fn run_body(
    (space, caller): (&Keyspace<'_>, &Caller<'_>),
    args: &[&[u8]],
    is_read_only: bool,
    reply: &mut Reply<'_>,
) -> Done {
    split_arguments(args, NOT_AN_INTEGER)?;
    let scripts = &caller.shared.scripts;
    let script = match scripts.find_text(args[1]) {
        Some(known) => known,
        None => {
            let parsed = Arc::new(parse(sha1(args[1]), args[1])?);
            script::check_syntax(parsed.body())?;
            scripts.add(parsed.clone());
            parsed
        }
    };
    run((space, caller), &script, args, is_read_only, reply)
}

fn run_digest(
    (space, caller): (&Keyspace<'_>, &Caller<'_>),
    args: &[&[u8]],
    is_read_only: bool,
    reply: &mut Reply<'_>,
) -> Done {
    let sha = from_hexadecimal(args[1]).ok_or(NO_SCRIPT)?;
    let script = match caller.shared.scripts.find(&sha) {
        Some(known) => known,
        None => match space.loaded_script(&sha)? {
            Some(text) => Arc::new(parse(sha, &text)?),
            None => return Err(NO_SCRIPT.into()),
        },
    };
    run((space, caller), &script, args, is_read_only, reply)
}

pub fn eval(s: &Keyspace<'_>, caller: &Caller<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    run_body((s, caller), args, false, reply)
}

pub fn eval_ro(
    space: &Keyspace<'_>,
    caller: &Caller<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Done {
    run_body((space, caller), args, true, reply)
}

pub fn evalsha(
    space: &Keyspace<'_>,
    caller: &Caller<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Done {
    run_digest((space, caller), args, false, reply)
}

pub fn evalsha_ro(
    space: &Keyspace<'_>,
    caller: &Caller<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Done {
    run_digest((space, caller), args, true, reply)
}

const HELP: &[&str] = &[
    "SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DEBUG (YES|SYNC|NO)",
    "    There is no debugger: only NO is accepted.",
    "EXISTS <sha1> [<sha1> ...]",
    "    Whether EVALSHA knows these scripts.",
    "FLUSH [ASYNC|SYNC]",
    "    Forgets all scripts.",
    "KILL",
    "    Ends the scripts that run for longer than some milliseconds; they are undone.",
    "LOAD <script>",
    "    Keeps a script for EVALSHA, also when the server is started again.",
    "HELP",
    "    This help.",
];

pub fn script(
    space: &Keyspace<'_>,
    caller: &Caller<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Done {
    let name = args[1].to_ascii_lowercase();
    match (&name[..], &args[2..]) {
        (b"load", [body]) => {
            let sha = sha1(body);
            let parsed = parse(sha, body)?;
            script::check_syntax(parsed.body())?;
            match space.context().only_reads {
                false => space.load_script(&sha, body)?,
                // A standby stores nothing, and keeps the script as it keeps those of EVAL.
                true => caller.shared.scripts.add(Arc::new(parsed)),
            }
            reply.bulk(hexadecimal(&sha).as_bytes());
        }
        (b"exists", digests @ [_, ..]) => {
            reply.array(digests.len());
            for digest in digests {
                let Some(sha) = from_hexadecimal(digest) else {
                    reply.integer(0);
                    continue;
                };
                let is_known = caller.shared.scripts.find(&sha).is_some()
                    || space.loaded_script(&sha)?.is_some();
                reply.integer(i64::from(is_known));
            }
        }
        (b"kill", []) => match caller.shared.scripts.running.kill(false) {
            0 => return Err("NOTBUSY No scripts in execution right now.".into()),
            _ => reply.ok(),
        },
        (b"flush", [] | [_]) => {
            check_flush_mode(&args[2..], "ERR SCRIPT FLUSH only support SYNC|ASYNC option")?;
            space.flush_scripts()?;
            reply.ok();
        }
        (b"debug", [mode]) => match is(mode, "NO") {
            true => reply.ok(),
            false if is(mode, "YES") || is(mode, "SYNC") => {
                return Err("ERR there is no debugger of scripts here".into());
            }
            false => return Err("ERR Use SCRIPT DEBUG YES/SYNC/NO".into()),
        },
        (b"help", []) => help(reply, HELP),
        _ => return Err(unknown_subcommand("script", args[1])),
    }
    Ok(())
}
