//! COMMAND INFO: what commands and subcommands take, and what they do.

use super::super::command_keys::has_movable_keys;
use super::super::table::{ADMIN, BLOCKS, Command, DENY_OOM, FAST, READ, Run, WRITE};
use super::find;
use super::key_specs::{self, KeySpec};
use super::pages::{self, DocPage};
use super::syntax::{self, Argument};
use crate::access::catalogue;
use crate::resp::reply::Reply;

/// Commands that Redis runs in no script.
const NOSCRIPT: &str = "auth bgrewriteaof bgsave blmove blpop brpop brpoplpush bzpopmax bzpopmin \
    debug discard exec hello monitor multi psubscribe punsubscribe quit reset role save shutdown \
    ssubscribe subscribe sunsubscribe unsubscribe unwatch wait waitaof watch";

/// The same, of commands with subcommands.
const NOSCRIPT_CONTAINERS: [&str; 5] = ["acl", "client", "config", "function", "latency"];

/// Commands that need no password.
const NO_AUTH: &str = "auth hello quit reset";

/// Commands that Redis runs while a script runs.
const ALLOW_BUSY: &str = "auth discard hello multi quit reset shutdown unwatch watch";

/// Commands that MULTI refuses in Redis.
const NO_MULTI: &str = "save shutdown";

/// Commands that Redis refuses while it loads beside an old state.
const NO_ASYNC_LOADING: &str = "bgrewriteaof bgsave save";

/// What COMMAND INFO tells, but for subcommands.
struct CommandFacts {
    name: &'static str,
    arity: i64,
    flags: Vec<&'static str>,
    /// First key, last key, and step.
    keys: (i32, i32, i32),
    specs: Vec<KeySpec>,
}

const NO_KEYS: (i32, i32, i32) = (0, 0, 0);

/// The flags that there are, in their order.
fn chosen<const N: usize>(flags: [(&'static str, bool); N]) -> Vec<&'static str> {
    flags.into_iter().filter(|(_, is_so)| *is_so).map(|(name, _)| name).collect()
}

/// Whether it is answered while the database is being opened.
fn runs_while_loading(command: &Command) -> bool {
    matches!(command.run, Run::Local(_) | Run::Multi)
}

fn flags(command: &Command) -> Vec<&'static str> {
    let has = |flag: u32| command.flags & flag != 0;
    let is_in = |names: &str| names.split_ascii_whitespace().any(|name| name == command.name);
    let loads = runs_while_loading(command);
    chosen([
        ("write", has(WRITE)),
        ("readonly", has(READ)),
        ("denyoom", has(DENY_OOM)),
        ("admin", has(ADMIN)),
        ("pubsub", command.group == "pubsub"),
        ("noscript", is_in(NOSCRIPT)),
        ("blocking", has(BLOCKS)),
        ("loading", loads),
        ("stale", loads),
        ("skip_slowlog", command.name == "exec"),
        ("asking", command.name == "restore-asking"),
        ("fast", has(FAST)),
        ("no_auth", is_in(NO_AUTH)),
        ("no_async_loading", is_in(NO_ASYNC_LOADING)),
        ("no_multi", is_in(NO_MULTI)),
        ("allow_busy", is_in(ALLOW_BUSY)),
        ("movablekeys", has_movable_keys(command)),
    ])
}

/// Of a subcommand, by its categories.
fn subcommand_flags(command: &Command, page: &DocPage, categories: u32) -> Vec<&'static str> {
    let is_in = |category: &str| {
        catalogue::category(category.as_bytes()).is_some_and(|bit| categories & bit != 0)
    };
    let is_help = page.name.ends_with("|help");
    let loads = runs_while_loading(command);
    chosen([
        ("write", is_in("write")),
        ("readonly", is_in("read")),
        ("admin", is_in("admin")),
        ("pubsub", is_in("pubsub")),
        ("noscript", !is_help && NOSCRIPT_CONTAINERS.contains(&command.name)),
        ("loading", loads),
        ("stale", loads),
    ])
}

fn categories(name: &str) -> u32 {
    catalogue::find(name.as_bytes()).map_or(0, |at| catalogue::all()[at].categories)
}

/// First key, last key, and step. Shard channels count as keys, for clients that choose a server by
/// them.
fn keys(command: &Command) -> (i32, i32, i32) {
    match command.name {
        "spublish" => (1, 1, 1),
        "ssubscribe" | "sunsubscribe" => (1, -1, 1),
        _ => command.keys,
    }
}

impl CommandFacts {
    /// Of a command; `is_container`: it does nothing without a subcommand.
    fn of(command: &Command, is_container: bool) -> CommandFacts {
        CommandFacts {
            name: command.name,
            arity: i64::from(command.arity),
            flags: if is_container { Vec::new() } else { flags(command) },
            keys: if is_container { NO_KEYS } else { keys(command) },
            specs: if is_container { Vec::new() } else { key_specs::of(command) },
        }
    }

    fn of_subcommand(command: &Command, page: &DocPage) -> CommandFacts {
        let categories = categories(page.name);
        let specs = key_specs::of_subcommand(command, categories);
        let least = 2 + syntax::least_words(&page.arguments) as i64;
        CommandFacts {
            name: page.name,
            arity: if page.arguments.iter().all(Argument::is_fixed) { least } else { -least },
            flags: subcommand_flags(command, page, categories),
            keys: if specs.is_empty() { NO_KEYS } else { command.keys },
            specs,
        }
    }

    /// Writes it with the head of the reply, in which the subcommands follow.
    fn write(&self, reply: &mut Reply<'_>) {
        reply.array(10);
        reply.bulk(self.name.as_bytes());
        reply.integer(self.arity);
        reply.set(self.flags.len());
        self.flags.iter().for_each(|flag| reply.simple(flag));
        let (first, last, step) = self.keys;
        [first, last, step].iter().for_each(|n| reply.integer(i64::from(*n)));
        let bits = categories(self.name);
        let names = catalogue::CATEGORIES.iter().enumerate();
        let names: Vec<&str> =
            names.filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, name)| *name).collect();
        reply.set(names.len());
        names.iter().for_each(|name| reply.simple(&format!("@{name}")));
        // There are no tips.
        reply.set(0);
        reply.set(self.specs.len());
        self.specs.iter().for_each(|spec| spec.write(reply));
    }
}

pub fn write_command(command: &Command, reply: &mut Reply<'_>) {
    let subcommands = pages::subcommands(command.name);
    // COMMAND alone is a command as well.
    let is_container = !subcommands.is_empty() && command.name != "command";
    CommandFacts::of(command, is_container).write(reply);
    if subcommands.is_empty() {
        reply.set(0);
        return;
    }
    reply.array(subcommands.len());
    subcommands.iter().for_each(|page| write_subcommand(command, page, reply));
}

fn write_subcommand(command: &Command, page: &DocPage, reply: &mut Reply<'_>) {
    CommandFacts::of_subcommand(command, page).write(reply);
    reply.set(0);
}

/// Of a command, or of a subcommand by its whole name; null if there is none.
pub fn write_named(name: &[u8], reply: &mut Reply<'_>) {
    match (find(name), pages::find(name)) {
        (Some(command), _) => write_command(command, reply),
        (None, Some(page)) => write_subcommand(super::command_of(page), page, reply),
        (None, None) => reply.null_array(),
    }
}

#[cfg(test)]
mod tests;
