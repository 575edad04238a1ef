//! COMMAND INFO: the arguments and effects of commands and subcommands.

use super::key_specs;
use super::pages::{self, DocPage};
use super::syntax::{self, Argument};
use crate::catalogue::{
    self, ADMIN, ALLOW_BUSY, ASKING, BLOCKS, CATEGORIES, Command, DENY_OOM, FAST, KeySpec,
    NO_ASYNC_LOADING, NO_AUTH, NO_MULTI, NOSCRIPT, PUBSUB, READ, RUNS_SCRIPTS, SKIP_SLOWLOG,
    Subcommand, WRITE,
};
use crate::resp::reply::Reply;

/// The facts in COMMAND INFO, without subcommands.
struct CommandFacts {
    name: &'static str,
    arity: i64,
    flags: Vec<&'static str>,
    /// First key, last key, and step.
    keys: (i32, i32, i32),
    categories: u32,
    specs: Vec<KeySpec>,
}

const NO_KEYS: (i32, i32, i32) = (0, 0, 0);

/// The names of flags, in the order of COMMAND INFO.
fn flags(flags: u32, loads: bool, has_movable_keys: bool) -> Vec<&'static str> {
    let names = [
        ("write", flags & WRITE != 0),
        ("readonly", flags & READ != 0),
        ("denyoom", flags & DENY_OOM != 0),
        ("admin", flags & ADMIN != 0),
        ("pubsub", flags & PUBSUB != 0),
        ("noscript", flags & NOSCRIPT != 0),
        ("blocking", flags & BLOCKS != 0),
        ("loading", loads),
        ("stale", loads || flags & RUNS_SCRIPTS != 0),
        ("skip_monitor", flags & RUNS_SCRIPTS != 0),
        ("skip_slowlog", flags & SKIP_SLOWLOG != 0),
        ("asking", flags & ASKING != 0),
        ("fast", flags & FAST != 0),
        ("no_auth", flags & NO_AUTH != 0),
        ("no_async_loading", flags & NO_ASYNC_LOADING != 0),
        ("no_multi", flags & NO_MULTI != 0),
        ("allow_busy", flags & ALLOW_BUSY != 0),
        ("no_mandatory_keys", flags & RUNS_SCRIPTS != 0),
        ("movablekeys", has_movable_keys),
    ];
    names.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect()
}

impl CommandFacts {
    /// Returns the facts of a command; a container command does nothing without a subcommand.
    fn of(command: &Command) -> CommandFacts {
        let facts = CommandFacts {
            name: command.name,
            arity: i64::from(command.arity),
            flags: Vec::new(),
            keys: NO_KEYS,
            categories: command.categories(),
            specs: Vec::new(),
        };
        if command.is_container {
            return facts;
        }
        let loads = command.runs_while_loading();
        CommandFacts {
            flags: flags(command.flags, loads, command.has_movable_keys()),
            keys: command.shown_range(),
            specs: command.shown_keys().copied().collect(),
            ..facts
        }
    }

    fn of_subcommand(subcommand: &Subcommand, page: &DocPage) -> CommandFacts {
        let command = super::command_of(subcommand.command());
        let specs = key_specs::of_subcommand(subcommand);
        let least = 2 + syntax::least_words(&page.arguments) as i64;
        CommandFacts {
            name: subcommand.name,
            arity: if page.arguments.iter().all(Argument::is_fixed) { least } else { -least },
            flags: flags(subcommand.flags, command.runs_while_loading(), false),
            keys: if specs.is_empty() { NO_KEYS } else { command.shown_range() },
            categories: subcommand.categories(),
            specs,
        }
    }

    /// Writes the facts with the head of the reply; the subcommands follow.
    fn write(&self, reply: &mut Reply<'_>) {
        reply.array(10);
        reply.bulk(self.name.as_bytes());
        reply.integer(self.arity);
        reply.set(self.flags.len());
        self.flags.iter().for_each(|flag| reply.simple(flag));
        let (first, last, step) = self.keys;
        [first, last, step].iter().for_each(|n| reply.integer(i64::from(*n)));
        let names = CATEGORIES.iter().enumerate();
        let names: Vec<&str> = names
            .filter(|(bit, _)| self.categories >> bit & 1 == 1)
            .map(|(_, name)| *name)
            .collect();
        reply.set(names.len());
        names.iter().for_each(|name| reply.simple(&format!("@{name}")));
        // There are no tips.
        reply.set(0);
        reply.set(self.specs.len());
        self.specs.iter().for_each(|spec| key_specs::write(spec, reply));
    }
}

pub fn write_command(command: &Command, reply: &mut Reply<'_>) {
    let subcommands = catalogue::subcommands_of(command.name);
    CommandFacts::of(command).write(reply);
    if subcommands.is_empty() {
        reply.set(0);
        return;
    }
    reply.array(subcommands.len());
    subcommands.iter().for_each(|subcommand| write_subcommand(subcommand, reply));
}

fn write_subcommand(subcommand: &Subcommand, reply: &mut Reply<'_>) {
    let page = pages::find(subcommand.name.as_bytes()).expect("each subcommand has a page");
    CommandFacts::of_subcommand(subcommand, page).write(reply);
    reply.set(0);
}

/// Writes a command, or a subcommand by its whole name; null if there is none.
pub fn write_named(name: &[u8], reply: &mut Reply<'_>) {
    match (catalogue::command(name), catalogue::subcommand(name)) {
        (Some(command), _) => write_command(command, reply),
        (None, Some(subcommand)) => write_subcommand(subcommand, reply),
        (None, None) => reply.null_array(),
    }
}

#[cfg(test)]
mod tests;
