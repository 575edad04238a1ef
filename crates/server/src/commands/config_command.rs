//! CONFIG.

use super::{Job, Local, help, is, lower, unknown_subcommand, wrong_arity};
use crate::config::{ConfigError, Settings};
use crate::data::keyspace::Stop;
use crate::resp::reply::Reply;
use crate::state::Shared;
use crate::state::open_files;
use hyades_platform::sync::Unpoisoned;
use std::convert::Infallible;
use std::sync::atomic::Ordering::Relaxed;

const HELP: &[&str] = &[
    "CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET <pattern> [<pattern> ...]",
    "    Settings that match, and their values.",
    "SET <name> <value> [<name> <value> ...]",
    "    Changes settings: all of them, or none.",
    "RESETSTAT",
    "    Sets the counters of INFO to 0.",
    "REWRITE",
    "    Writes what was changed into the configuration file.",
    "HELP",
    "    This help.",
];

pub fn config(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let shared = local.shared;
    match (lower(args[1]).as_str(), &args[2..]) {
        ("get", patterns) if !patterns.is_empty() => {
            let found = shared.settings.matching(patterns);
            reply.map(found.len());
            for (name, value) in found {
                reply.bulk(name.as_bytes());
                reply.bulk(value.as_bytes());
            }
        }
        ("get", _) => return Err(wrong_arity("config|get")),
        ("set", pairs) if !pairs.is_empty() && pairs.len().is_multiple_of(2) => {
            set(shared, pairs)?;
            reply.ok();
        }
        ("set", _) => return Err(wrong_arity("config|set")),
        ("resetstat", []) => {
            // The changes since the last save are a state: only a save sets the number back.
            let counters = &shared.stats.counters;
            let all = [
                &counters.connections,
                &counters.rejected,
                &counters.commands,
                &counters.input,
                &counters.output,
                &counters.hits,
                &counters.misses,
                &counters.expired,
                &counters.expired_fields,
                &counters.conflicts,
                &counters.alone,
                &counters.large,
                &counters.freed,
                &counters.reads,
                &counters.writes,
                &counters.errors,
                &counters.over_input,
                &counters.over_output,
                &counters.turns,
                &counters.cycles,
                &counters.acknowledged_nanos,
                &counters.tls_failures,
            ];
            all.iter().for_each(|counter| counter.store(0, Relaxed));
            shared.stats.rates.restart();
            shared.stats.commands.clear();
            shared.stats.acknowledged.clear();
            shared.access.denied.restart_counts();
            shared.stats.errors.lock().unpoisoned().clear();
            reply.ok();
        }
        ("rewrite", []) => {
            *local.job = Some(rewrite(false));
        }
        ("help", []) => help(reply, HELP),
        _ => return Err(unknown_subcommand("config", args[1])),
    }
    Ok(())
}

/// Writes the settings that differ from the file into the file, or all settings. Waits for the
/// disk.
pub fn rewrite(writes_all: bool) -> Job {
    Job::on_disk(move |shared, reply| {
        match shared.settings.rewrite(&shared.access.users(), writes_all) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(&format!("ERR {error}")),
        }
    })
}

/// Changes settings, all or none.
fn set(shared: &Shared, pairs: &[&[u8]]) -> Result<(), Stop> {
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_string);
    let changes = pairs.chunks(2).map(|pair| Ok((text(pair[0])?, text(pair[1])?)));
    let changes: Result<Vec<_>, std::str::Utf8Error> = changes.collect();
    let not_text = |_| Stop::from("ERR CONFIG SET failed (names and values are UTF-8)");
    let changes = changes.map_err(not_text)?;
    if let Some((name, _)) = changes.iter().find(|(name, _)| !Settings::knows(name)) {
        let text = "ERR Unknown option or number of arguments for CONFIG SET";
        return Err(format!("{text} - '{name}'").into());
    }
    for (at, (name, _)) in changes.iter().enumerate() {
        if changes[..at].iter().any(|(earlier, _)| earlier.eq_ignore_ascii_case(name)) {
            let text = "ERR CONFIG SET failed (possibly related to argument";
            return Err(format!("{text} '{name}') - duplicate parameter").into());
        }
    }
    if shared.store.opened.get().is_none()
        && changes.iter().any(|(name, _)| Settings::waits_for_loading(name))
    {
        return Err(shared.loading().into());
    }
    check_clients(&changes)?;
    let set = shared.settings.set_and_apply(&changes, || {
        adjust_oom_score(shared, &changes)?;
        // The last step: no later failure has to undo it.
        listen(shared)
    });
    if set.is_err() {
        // The settings are back to the old values. If the call fails as well, the first error tells
        // why.
        let _ = adjust_oom_score(shared, &changes);
    }
    set.map_err(|error| Stop::from(format!("ERR CONFIG SET failed {error}")))?;
    take_effect(shared, |name| pairs.chunks(2).any(|pair| is(pair[0], name)));
    Ok(())
}

/// Makes room for as many clients as `maxclients` is to allow.
fn check_clients(changes: &[(String, String)]) -> Result<(), Stop> {
    let mut values = changes.iter().filter(|(name, _)| name.eq_ignore_ascii_case("maxclients"));
    // The setting itself refuses a value other than a number.
    let Some(wanted) = values.next_back().and_then(|(_, value)| value.parse::<u64>().ok()) else {
        return Ok(());
    };
    match open_files::raise_for(wanted) {
        allowed if allowed >= wanted => Ok(()),
        allowed => Err(format!(
            "ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating \
             system is not able to handle the specified number of clients, try with {allowed}"
        )
        .into()),
    }
}

/// Has the system use the current `oom-score-adj`, if the setting or its values are among the
/// changes.
fn adjust_oom_score(shared: &Shared, changes: &[(String, String)]) -> Result<(), ConfigError> {
    let is_about = |name: &str| name.to_ascii_lowercase().starts_with("oom-score-adj");
    let Some((name, _)) = changes.iter().find(|(name, _)| is_about(name)) else { return Ok(()) };
    let adjusted = shared.limits.oom_score.apply(&shared.settings);
    adjusted.map_err(|text| ConfigError(text).related_to(&name.to_ascii_lowercase()))
}

/// Listens at the port of the settings, if the port has changed.
fn listen(shared: &Shared) -> Result<(), ConfigError> {
    let port = shared.settings.port();
    let error = match shared.wiring.listening.listen_at(port) {
        Ok(false) => return Ok(()),
        Ok(true) => {
            shared.wiring.port.store(u64::from(port), Relaxed);
            shared.wiring.wake_all();
            shared.wiring.listening.wait_for_change();
            return Ok(());
        }
        Err(error) => error,
    };
    let text = format!("Unable to listen on this port: {error}");
    Err(ConfigError(text).related_to("port"))
}

/// Applies the effects of settings beside their own values, if they were set.
fn take_effect(shared: &Shared, was_set: impl Fn(&str) -> bool) {
    if was_set("timeout") {
        // Loops sleep as long as the old value says.
        shared.wiring.wake_all();
    }
    if was_set("tracking-table-max-keys") {
        shared.wiring.tracking.shrink();
    }
    if was_set("requirepass") || was_set("acl-pubsub-default") {
        let change: Result<_, Infallible> = shared.access.change(|users| {
            users.set_channels_by_default(shared.settings.channels_by_default());
            if was_set("requirepass") {
                users.set_default_password(&shared.settings.required_password());
            }
            Ok(())
        });
        let Ok(_) = change;
    }
}
