//! The commands, by subject.

mod acl;
mod bitfield;
mod bits;
mod blocking;
mod client;
mod client_tracking;
mod cluster;
mod collections;
mod command_docs;
mod command_keys;
mod comparing;
mod config_command;
mod connection;
mod debug;
mod dump;
#[cfg(test)]
mod example;
mod expire;
mod functions;
mod generic;
mod geo;
mod geo_search;
mod hash_times;
mod hashes;
mod hyperloglog;
pub mod info;
pub mod keys;
mod latency;
mod latency_text;
mod lcs;
mod libraries;
mod list_edits;
mod lists;
#[cfg(feature = "replication")]
mod members;
mod migrate;
mod numbers;
mod pubsub;
mod replicaof;
mod saving;
mod scripts;
#[cfg(feature = "replication")]
mod sentinel;
mod server;
mod sets;
mod slowlog;
mod sort;
mod sorted_set_algebra;
mod sorted_set_ranges;
mod sorted_sets;
mod stream_arguments;
mod stream_claims;
mod stream_groups;
mod stream_info;
mod stream_reads;
mod streams;
mod strings;
mod unsupported;
mod watching;

pub use dump::{payload, store_restored};
pub use functions::{Function, function};
pub use scripts::is_script;
pub use unsupported::error as unsupported_error;

use crate::access::{Denied, DeniedIn, Login};
use crate::base::clock::wall_us;
use crate::catalogue::{self, ANY_ARITY, Command, READ, RUNS_SCRIPTS, RequestKeys, names};
use crate::client::{Client, RunEnd};
use crate::clients::ClientEntry;
use crate::clients::monitors::{self, MonitorLine};
use crate::data::keyspace::{Context, Keyspace, Notices, Stop};
use crate::resp::reply::{Reply, TOO_LONG_FOR_CLIENT};
use crate::resp::{is, number};
use crate::state::Shared;
use crate::state::refused::note_in;
use hyades::{Session, SessionOrder};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

/// Runs inside a transaction, perhaps several times: the only effect is on the command's keys.
pub type DataCommand = fn(&Keyspace<'_>, &[&[u8]], &mut Reply<'_>) -> Result<(), Stop>;

/// As `DataCommand`, for commands that run further commands on behalf of their client.
pub type ScriptCommand =
    fn(&Keyspace<'_>, &Caller<'_>, &[&[u8]], &mut Reply<'_>) -> Result<(), Stop>;

/// Runs outside of transactions, once.
pub type LocalCommand = fn(&mut Local<'_>, &[&[u8]], &mut Reply<'_>) -> Result<(), Stop>;

/// Appends the reply of a job.
type JobBody = Box<dyn FnOnce(&Arc<Shared>, &mut Reply<'_>) -> RunEnd + Send>;

/// Where a job runs: jobs wait only for jobs of their own lane.
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
    /// Transactions with scripts.
    Scripts,
}

/// Work that would hold up an event loop. The job appends the reply.
pub struct Job {
    body: JobBody,
    /// The lane that runs the job.
    pub lane: Lane,
    /// Most bytes waiting for the client; 0: any number.
    pub most: u64,
    /// The reply is dropped.
    pub is_silent: bool,
}

/// The results of a job.
#[derive(Default)]
pub struct JobReply {
    /// The reply; empty if the client gets none.
    pub bytes: Vec<u8>,
    /// The results beside the reply.
    pub end: RunEnd,
    /// The reply would have been longer than the bound of the client's output.
    pub is_over_limit: bool,
}

impl Job {
    /// Work of a time bounded by the data.
    pub fn new(body: impl FnOnce(&Arc<Shared>, &mut Reply<'_>) + Send + 'static) -> Job {
        Job::transaction(move |shared, reply| {
            body(shared, reply);
            RunEnd::default()
        })
    }

    /// A transaction, whose reply waits for the acknowledgement. No thread waits meanwhile.
    pub fn transaction(
        body: impl FnOnce(&Arc<Shared>, &mut Reply<'_>) -> RunEnd + Send + 'static,
    ) -> Job {
        Job { body: Box::new(body), lane: Lane::Data, most: 0, is_silent: false }
    }

    /// Work in time proportional to all data: a checkpoint or a copy, which exclude each other.
    pub fn long(body: impl FnOnce(&Arc<Shared>, &mut Reply<'_>) + Send + 'static) -> Job {
        Job { lane: Lane::Long, ..Job::new(body) }
    }

    /// Work that waits for the disk once.
    pub fn on_disk(body: impl FnOnce(&Arc<Shared>, &mut Reply<'_>) + Send + 'static) -> Job {
        Job { lane: Lane::Disk, ..Job::new(body) }
    }

    /// Work that takes as long as a client wants.
    pub fn unbounded(
        body: impl FnOnce(&Arc<Shared>, &mut Reply<'_>) -> RunEnd + Send + 'static,
    ) -> Job {
        Job { lane: Lane::Unbounded, ..Job::transaction(body) }
    }

    /// Work that waits for another server, with the transaction of the reply.
    pub fn on_network(
        body: impl FnOnce(&Arc<Shared>, &mut Reply<'_>) -> RunEnd + Send + 'static,
    ) -> Job {
        Job { lane: Lane::Network, ..Job::transaction(body) }
    }

    /// The same job, with its reply dropped if `is_silent`.
    pub fn silent_if(self, is_silent: bool) -> Job {
        Job { is_silent, ..self }
    }

    /// The same job in another lane.
    pub fn in_lane(self, lane: Lane) -> Job {
        Job { lane, ..self }
    }

    /// Runs the job.
    pub fn run(self, shared: &Arc<Shared>, resp3: bool) -> JobReply {
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

/// The client of the running transaction.
pub struct Caller<'a> {
    /// The server.
    pub shared: &'a Arc<Shared>,
    /// The client.
    pub client: &'a Arc<ClientEntry>,
    /// The client's user.
    pub login: &'a Login,
    /// Whether an error undoes the client's whole transaction.
    pub rolls_back: bool,
    /// Notices of commands run by other commands.
    pub notices: RefCell<Notices>,
    /// The lines about these commands for monitoring clients.
    pub lines: RefCell<Vec<MonitorLine>>,
    /// The keys read by the running command are remembered for its tracking client.
    pub remembers: Cell<bool>,
    /// No event loop runs the command: remembered keys are kept here as well.
    pub read_elsewhere: Option<RefCell<BTreeSet<Vec<u8>>>>,
    /// Why a script of the transaction was ended: the script is not run again.
    pub ended: RefCell<Option<String>>,
}

/// Most commands of a script told to monitoring clients.
const MOST_LINES: usize = 10_000;

/// The longest line of a script's command, in bytes.
const LONGEST_LINE: usize = 4 << 10;

impl<'a> Caller<'a> {
    /// Makes the caller of a client.
    pub fn new(
        shared: &'a Arc<Shared>,
        client: &'a Arc<ClientEntry>,
        login: &'a Login,
        rolls_back: bool,
    ) -> Caller<'a> {
        let (notices, lines, remembers, read_elsewhere, ended) = Default::default();
        Caller {
            shared,
            client,
            login,
            rolls_back,
            notices,
            lines,
            remembers,
            read_elsewhere,
            ended,
        }
    }

    /// Forgets the notices and the lines of a script's commands: the script was taken back, or its
    /// transaction runs again.
    pub fn forget(&self) {
        self.notices.borrow_mut().clear();
        self.lines.borrow_mut().clear();
    }

    /// Keeps for ACL LOG that a script's user may not run a command.
    fn note_denied(&self, login: &Login, args: &[&[u8]], denied: Denied) {
        note_in(self.shared, (login, self.client), args, denied, DeniedIn::Script);
    }

    /// Keeps the line about a script's command for monitoring clients. Beyond [`MOST_LINES`] the
    /// clients are not told.
    #[cold]
    pub fn note_line(&self, database: u32, args: &[&[u8]]) {
        let mut lines = self.lines.borrow_mut();
        let bytes: usize = args.iter().map(|arg| arg.len()).sum();
        if lines.len() < MOST_LINES && bytes <= LONGEST_LINE {
            lines.push(monitors::line(wall_us(), (database, monitors::SCRIPT), args));
        }
    }

    /// Notes the writes of a command run by another command.
    pub fn note_written(&self, context: &Context<'_>, place: usize, args: &[&[u8]]) {
        self.notices.borrow_mut().note(context, &catalogue::all()[place], args);
    }

    /// Remembers the keys of a command about to read them, if the client tracks the command.
    #[inline]
    pub fn remember(&self, place: usize, args: &[&[u8]]) {
        if self.remembers.get() {
            self.remember_keys(&catalogue::all()[place], args);
        }
    }

    #[cold]
    fn remember_keys(&self, command: &Command, args: &[&[u8]]) {
        if !command.has(READ) || command.has(RUNS_SCRIPTS) {
            return;
        }
        for (at, _) in RequestKeys::of(command, args).keys {
            self.shared.wiring.tracking.remember(self.client, args[at]);
            if let Some(read) = &self.read_elsewhere {
                read.borrow_mut().insert(args[at].to_vec());
            }
        }
    }
}

/// The context of a command outside of transactions.
pub struct Local<'a> {
    /// The client.
    pub client: &'a mut Client,
    /// The order of the client's transactions. A job with transactions has a copy, and returns it.
    pub order: &'a SessionOrder,
    /// The server.
    pub shared: &'a Arc<Shared>,
    /// The time in milliseconds since 1970.
    pub now_ms: i64,
    /// Set by a command that leaves its reply to a job.
    pub job: &'a mut Option<Job>,
    /// `None` while the database is being opened, and in EXEC.
    pub session: Option<&'a mut Session>,
    /// The command is part of an EXEC.
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

/// The error of a request of a container command, such as CLIENT, without a subcommand of the given
/// name; `None` otherwise. Redis checks the subcommand before the client's rights.
pub fn no_such_subcommand(args: &[&[u8]]) -> Option<String> {
    let named = &names::all()[names::of_request(args)?];
    let given = args.get(1).filter(|_| named.is_container)?;
    Some(subcommand_error("unknown subcommand", named.name, given))
}

fn subcommand_error(what: &str, command: &str, given: &[u8]) -> String {
    let given = String::from_utf8_lossy(&given[..given.len().min(128)]);
    format!("ERR {what} '{given}'. Try {} HELP.", command.to_uppercase())
}

/// The error of a container command, such as CLIENT, with an unknown subcommand, or with too many
/// or too few arguments.
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
