//! The commands, by subject.

mod acl;
mod bitfield;
mod bits;
mod blocking;
mod client;
mod collections;
mod command_docs;
mod command_keys;
mod config_command;
mod connection;
mod debug;
mod dump;
#[cfg(test)]
mod example;
mod expire;
mod functions;
mod generic;
mod hashes;
pub mod info;
mod keys;
mod latency;
mod latency_text;
mod lcs;
mod list_edits;
mod lists;
mod migrate;
mod numbers;
mod pubsub;
mod saving;
mod server;
mod sets;
mod slowlog;
mod sort;
mod sorted_set_algebra;
mod sorted_set_ranges;
mod sorted_sets;
mod strings;
mod unsupported;
mod watching;

pub use functions::{Function, function};
pub use unsupported::error as unsupported_error;

use crate::catalogue::{ANY_ARITY, names};
use crate::client::{Client, RunEnd};
use crate::data::keyspace::{Keyspace, Stop};
use crate::resp::reply::{Reply, TOO_LONG_FOR_CLIENT};
use crate::resp::{is, number};
use crate::state::Shared;
use hyades::{Session, SessionOrder};
use std::sync::Arc;
use std::time::Instant;

/// Runs inside a transaction, perhaps several times: it has no effect but on its keys.
pub type DataCommand = fn(&Keyspace<'_>, &[&[u8]], &mut Reply<'_>) -> Result<(), Stop>;

/// Runs outside of transactions, once.
pub type LocalCommand = fn(&mut Local<'_>, &[&[u8]], &mut Reply<'_>) -> Result<(), Stop>;

/// Appends the reply of a job.
type JobBody = Box<dyn FnOnce(&Shared, &mut Reply<'_>) -> RunEnd + Send>;

/// Where a job runs: jobs wait for others of their lane alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// [`Job::new`] and [`Job::transaction`].
    Data,
    /// [`Job::on_disk`].
    Disk,
    /// [`Job::long`].
    Long,
    /// [`Job::unbounded`].
    Unbounded,
    /// [`Job::on_network`].
    Network,
}

/// Work that would hold up an event loop. It appends the reply.
pub struct Job {
    body: JobBody,
    /// The thread that runs it.
    pub lane: Lane,
    /// Most bytes that may wait for its client; 0: any number.
    pub most: u64,
    /// Its reply is dropped.
    pub is_silent: bool,
}

/// What a job has replied.
#[derive(Default)]
pub struct JobReply {
    /// The reply; empty if the client gets none.
    pub bytes: Vec<u8>,
    /// What else there is.
    pub end: RunEnd,
    /// The reply would have been longer than what may wait for the client.
    pub is_over_limit: bool,
}

impl Job {
    /// Work of a time that the data bounds.
    pub fn new(body: impl FnOnce(&Shared, &mut Reply<'_>) + Send + 'static) -> Job {
        Job::transaction(move |shared, reply| {
            body(shared, reply);
            RunEnd::default()
        })
    }

    /// A transaction, whose reply waits until it is acknowledged. No thread waits meanwhile.
    pub fn transaction(
        body: impl FnOnce(&Shared, &mut Reply<'_>) -> RunEnd + Send + 'static,
    ) -> Job {
        Job { body: Box::new(body), lane: Lane::Data, most: 0, is_silent: false }
    }

    /// Work that takes as long as all data is: a checkpoint or a copy, which exclude each other.
    pub fn long(body: impl FnOnce(&Shared, &mut Reply<'_>) + Send + 'static) -> Job {
        Job { lane: Lane::Long, ..Job::new(body) }
    }

    /// Work that waits for the disk once.
    pub fn on_disk(body: impl FnOnce(&Shared, &mut Reply<'_>) + Send + 'static) -> Job {
        Job { lane: Lane::Disk, ..Job::new(body) }
    }

    /// Work that takes as long as a client wants.
    pub fn unbounded(body: impl FnOnce(&Shared, &mut Reply<'_>) -> RunEnd + Send + 'static) -> Job {
        Job { lane: Lane::Unbounded, ..Job::transaction(body) }
    }

    /// Work that waits for another server, with the transaction that its reply tells of.
    pub fn on_network(
        body: impl FnOnce(&Shared, &mut Reply<'_>) -> RunEnd + Send + 'static,
    ) -> Job {
        Job { lane: Lane::Network, ..Job::transaction(body) }
    }

    /// The same, whose reply may be dropped.
    pub fn silent_if(self, is_silent: bool) -> Job {
        Job { is_silent, ..self }
    }

    /// Runs it.
    pub fn run(self, shared: &Shared, resp3: bool) -> JobReply {
        let mut bytes = Vec::new();
        let mut reply = Reply::limited(&mut bytes, resp3, self.most);
        let started = Instant::now();
        let mut end = (self.body)(shared, &mut reply);
        end.time = started.elapsed();
        let too_long = reply.too_long();
        if let Some(text) = too_long {
            reply.truncate(0);
            reply.error(text);
            end.exec_ends.clear();
        }
        let is_over_limit = too_long == Some(TOO_LONG_FOR_CLIENT);
        JobReply { bytes, end, is_over_limit }
    }
}

/// What a command outside of transactions works on.
pub struct Local<'a> {
    /// Its client.
    pub client: &'a mut Client,
    /// The order of its client's transactions. A job that runs some has a copy, and returns it.
    pub order: &'a SessionOrder,
    /// The server.
    pub shared: &'a Arc<Shared>,
    /// The time in milliseconds since 1970.
    pub now_ms: i64,
    /// Set by a command whose reply a job appends.
    pub job: &'a mut Option<Job>,
    /// `None` while the database is being opened, and in EXEC.
    pub session: Option<&'a mut Session>,
    /// It is one of the commands of EXEC.
    pub is_in_exec: bool,
}

/// The end of a command, without its reply if it has failed.
type Done = Result<(), Stop>;

const SYNTAX: &str = "ERR syntax error";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

fn integer(text: &[u8]) -> Result<i64, Stop> {
    number::integer(text).ok_or_else(|| NOT_AN_INTEGER.into())
}

fn lower(text: &[u8]) -> String {
    String::from_utf8_lossy(text).to_ascii_lowercase()
}

/// The number of a database.
pub fn database(text: &[u8], databases: u32) -> Result<u32, Stop> {
    match u32::try_from(integer(text)?) {
        Ok(number) if number < databases => Ok(number),
        _ => Err("ERR DB index is out of range".into()),
    }
}

/// The error of a command with a wrong number of arguments.
fn wrong_arity(name: &str) -> Stop {
    format!("ERR wrong number of arguments for '{name}' command").into()
}

/// The error of a request of a container command, such as CLIENT, that has no subcommand of this
/// name; `None` of all others. Redis replies it before it looks at what the client may run.
pub fn no_such_subcommand(args: &[&[u8]]) -> Option<String> {
    let named = &names::all()[names::of_request(args)?];
    let given = args.get(1).filter(|_| named.is_container)?;
    Some(subcommand_error("unknown subcommand", named.name, given))
}

fn subcommand_error(what: &str, command: &str, given: &[u8]) -> String {
    let given = String::from_utf8_lossy(&given[..given.len().min(128)]);
    format!("ERR {what} '{given}'. Try {} HELP.", command.to_uppercase())
}

/// The error of a container command, such as CLIENT, with a subcommand that is unknown, or whose
/// arguments are too many or too few.
fn unknown_subcommand(command: &str, given: &[u8]) -> Stop {
    let name = format!("{command}|{}", lower(given));
    let known = names::find(name.as_bytes()).map(|at| &names::all()[at]);
    if known.is_some_and(|named| named.flags & ANY_ARITY == 0) {
        return wrong_arity(&name);
    }
    let is_known = known.is_some();
    let what = match is_known {
        true => "unknown subcommand or wrong number of arguments for",
        false => "unknown subcommand",
    };
    subcommand_error(what, command, given).into()
}

/// Replies the lines of HELP.
fn help(reply: &mut Reply<'_>, lines: &[&str]) {
    reply.array(lines.len());
    lines.iter().for_each(|line| reply.simple(line));
}
