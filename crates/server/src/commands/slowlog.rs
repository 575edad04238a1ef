//! SLOWLOG.

use super::{Done, Local, help, integer, is, unknown_subcommand};
use crate::resp::reply::Reply;

const HELP: &[&str] = &[
    "SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET [<count>]",
    "    The last entries, 10 if nothing else is said, all if it is -1: number, time in seconds,",
    "    microseconds that the command took, the command, address and name of its client.",
    "LEN",
    "    The number of entries.",
    "RESET",
    "    Removes all of them.",
    "HELP",
    "    This help.",
];

/// Number of entries shown by default.
const SHOWN: usize = 10;

pub fn slowlog(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let log = &local.shared.stats.slow_log;
    match &args[1..] {
        [what] if is(what, "GET") => entries(local, SHOWN, reply),
        [what, count] if is(what, "GET") => {
            let count = integer(count).ok().filter(|count| *count >= -1);
            let count = count.ok_or("ERR count should be greater than or equal to -1")?;
            // A count of -1 means all.
            entries(local, usize::try_from(count).unwrap_or(usize::MAX), reply);
        }
        [what] if is(what, "LEN") => reply.count(log.len()),
        [what] if is(what, "RESET") => {
            log.clear();
            reply.ok();
        }
        [what] if is(what, "HELP") => help(reply, HELP),
        _ => return Err(unknown_subcommand("slowlog", args[1])),
    }
    Ok(())
}

fn entries(local: &Local<'_>, most: usize, reply: &mut Reply<'_>) {
    let entries = local.shared.stats.slow_log.last(most);
    reply.array(entries.len());
    for entry in entries {
        reply.array(6);
        for number in [entry.id, entry.at_seconds, entry.micros] {
            reply.integer(number as i64);
        }
        reply.array(entry.args.len());
        entry.args.iter().for_each(|arg| reply.bulk(arg));
        reply.bulk(entry.address.as_bytes());
        reply.bulk(entry.name.as_bytes());
    }
}
