//! LATENCY. No events are recorded, as in Redis while `latency-monitor-threshold` is 0.

use super::{Done, Local, help, is, unknown_subcommand};
use crate::resp::reply::Reply;

const HELP: &[&str] = &[
    "LATENCY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DOCTOR",
    "    What the server can say of latency.",
    "GRAPH <event>",
    "    An error: no events are recorded.",
    "HISTORY <event>",
    "    Nothing: no events are recorded.",
    "LATEST",
    "    Nothing: no events are recorded.",
    "RESET [<event> ...]",
    "    0: no events are recorded.",
    "HISTOGRAM [COMMAND ...]",
    "    An error: the times of commands are not measured.",
    "HELP",
    "    This help.",
];

const DOCTOR: &str = "Events of latency are not recorded in this version. INFO hyades shows \
                      conflicts and how far the log is behind; redis-cli --latency measures \
                      replies from outside.";

pub fn latency(_: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    match &args[1..] {
        [what] if is(what, "LATEST") => reply.array(0),
        [what, _] if is(what, "HISTORY") => reply.array(0),
        [what, ..] if is(what, "RESET") => reply.integer(0),
        [what] if is(what, "DOCTOR") => reply.verbatim(DOCTOR),
        [what] if is(what, "HELP") => help(reply, HELP),
        [what, event] if is(what, "GRAPH") => {
            let event = String::from_utf8_lossy(&event[..event.len().min(128)]);
            return Err(format!("ERR No samples available for event '{event}'").into());
        }
        [what, ..] if is(what, "HISTOGRAM") => {
            let text = "ERR the times of commands are not measured in this version: \
                        INFO commandstats counts them";
            return Err(text.into());
        }
        _ => return Err(unknown_subcommand("latency", args[1])),
    }
    Ok(())
}
