//! LATENCY: histograms of the times of commands. No events are recorded, as in Redis while
//! `latency-monitor-threshold` is 0.

use super::{Done, Local, help, is, unknown_subcommand};
use crate::command_stats::CommandStats;
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
    "    How many calls of commands took how long, in microseconds.",
    "HELP",
    "    This help.",
];

const DOCTOR: &str = "Events of latency are not recorded in this version. LATENCY HISTOGRAM and \
                      SLOWLOG tell how long commands ran; INFO hyades shows conflicts and how \
                      far the log is behind; redis-cli --latency measures replies from outside.";

pub fn latency(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
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
        [what, names @ ..] if is(what, "HISTOGRAM") => {
            histograms(&local.shared.command_stats, names, reply);
        }
        _ => return Err(unknown_subcommand("latency", args[1])),
    }
    Ok(())
}

/// Those of these commands with all of their subcommands, or of all commands.
fn histograms(stats: &CommandStats, names: &[&[u8]], reply: &mut Reply<'_>) {
    let is_meant = |name: &str| match names {
        [] => true,
        names => names.iter().any(|wanted| {
            let rest = name.as_bytes().get(wanted.len()..).filter(|rest| {
                name.as_bytes()[..name.len() - rest.len()].eq_ignore_ascii_case(wanted)
            });
            rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'|')))
        }),
    };
    let found: Vec<_> = stats
        .iter()
        .filter(|(name, _)| is_meant(name))
        .filter_map(|(name, counts)| Some((name, counts.times()?)))
        .collect();
    reply.map(found.len());
    for (name, times) in found {
        let doublings = times.doublings();
        reply.bulk(name.as_bytes());
        reply.map(2);
        reply.bulk(b"calls");
        // Calls may be added meanwhile: these are the ones below.
        reply.integer(doublings.last().map_or(0, |(_, count)| *count) as i64);
        reply.bulk(b"histogram_usec");
        reply.map(doublings.len());
        for (micros, count) in doublings {
            reply.integer(micros as i64);
            reply.integer(count as i64);
        }
    }
}
