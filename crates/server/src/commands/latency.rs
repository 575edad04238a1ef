//! LATENCY: events, which are commands at least as long as `latency-monitor-threshold`, and
//! histograms of the times of all commands.

use super::{Done, Local, help, is, latency_text, unknown_subcommand};
use crate::base::clock::wall_us;
use crate::resp::reply::Reply;
use crate::state::command_stats::CommandStats;

const HELP: &[&str] = &[
    "LATENCY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DOCTOR",
    "    What the server can say of latency.",
    "GRAPH <event>",
    "    A picture of the times of an event.",
    "HISTORY <event>",
    "    The times of an event: seconds since 1970, and milliseconds.",
    "LATEST",
    "    Of each event: its name, when it happened last, how long it took, and the longest of all.",
    "RESET [<event> ...]",
    "    Forgets events, all if none is named.",
    "HISTOGRAM [COMMAND ...]",
    "    How many calls of commands took how long, in microseconds.",
    "HELP",
    "    This help.",
];

pub fn latency(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let shared = local.shared;
    match &args[1..] {
        [what] if is(what, "LATEST") => latest(local, reply),
        [what, event] if is(what, "HISTORY") => {
            let samples = shared.stats.latency_events.find(event).unwrap_or_default().samples;
            reply.array(samples.len());
            for sample in samples {
                reply.array(2);
                reply.integer(sample.at_seconds as i64);
                reply.integer(sample.ms as i64);
            }
        }
        [what, events @ ..] if is(what, "RESET") => {
            reply.count(shared.stats.latency_events.forget(events));
        }
        [what] if is(what, "DOCTOR") => {
            let threshold = shared.settings.latency_threshold_ms().unwrap_or(0);
            reply.verbatim(&latency_text::doctor(&shared.stats.latency_events.all(), threshold));
        }
        [what] if is(what, "HELP") => help(reply, HELP),
        [what, event] if is(what, "GRAPH") => {
            let name = String::from_utf8_lossy(&event[..event.len().min(128)]);
            let Some(series) = shared.stats.latency_events.find(event) else {
                return Err(format!("ERR No samples available for event '{name}'").into());
            };
            reply.verbatim(&latency_text::graph(&name, &series, wall_us() / 1_000_000));
        }
        [what, names @ ..] if is(what, "HISTOGRAM") => {
            histograms(&shared.stats.commands, names, reply);
        }
        _ => return Err(unknown_subcommand("latency", args[1])),
    }
    Ok(())
}

fn latest(local: &Local<'_>, reply: &mut Reply<'_>) {
    let events = local.shared.stats.latency_events.all();
    reply.array(events.len());
    for (event, series) in events {
        let last = series.samples.back().expect("an event has a sample");
        reply.array(4);
        reply.bulk(event.as_bytes());
        reply.integer(last.at_seconds as i64);
        reply.integer(last.ms as i64);
        reply.integer(series.longest_ms as i64);
    }
}

/// The histograms of the named commands with all their subcommands, or of all commands.
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
        // Calls may be added meanwhile: the number counts the calls below.
        reply.integer(doublings.last().map_or(0, |(_, count)| *count) as i64);
        reply.bulk(b"histogram_usec");
        reply.map(doublings.len());
        for (micros, count) in doublings {
            reply.integer(micros as i64);
            reply.integer(count as i64);
        }
    }
}
