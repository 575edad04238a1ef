//! Runs: consecutive commands of a client as one transaction.

mod patient;

use crate::commands::table::{self, Command, Run};
use crate::commands::{Job, TOO_LONG};
use crate::conversation::Client;
use crate::data::keyspace::{self, Context, Effects, Keyspace, Stop, WatchedKey};
use crate::replies::Replies;
use crate::resp::reply::Reply;
use crate::resp::request::Arguments;
use crate::shared::Shared;
use hyades::{Abort, Attempt, Error, Session, Ticket, Transaction};
use patient::PatientRun;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Where the arguments of a request are.
enum Source {
    /// In the input of the conversation.
    Ranges(SmallVec<[(usize, usize); 4]>),
    /// By themselves.
    Owned(Vec<Vec<u8>>),
}

/// What a request takes beside its arguments, in bytes.
const REQUEST_BYTES: usize = 128;

/// What an argument takes beside its bytes.
const ARGUMENT_BYTES: usize = 32;

/// A request that waits to be run.
pub struct Request {
    source: Source,
    /// The place of its command in the table.
    place: Option<usize>,
}

impl Request {
    /// A request that begins at `begin` in the input.
    pub fn new(arguments: Arguments<'_>, begin: usize) -> Request {
        let place = table::find(arguments.get(0));
        let source = match arguments.ranges() {
            Some(ranges) => {
                Source::Ranges(ranges.map(|(from, to)| (begin + from, begin + to)).collect())
            }
            None => Source::Owned(arguments.iter().map(<[u8]>::to_vec).collect()),
        };
        Request { source, place }
    }

    /// The place of its command in the table.
    pub fn place(&self) -> Option<usize> {
        self.place
    }

    fn len(&self) -> usize {
        match &self.source {
            Source::Ranges(ranges) => ranges.len(),
            Source::Owned(owned) => owned.len(),
        }
    }

    /// Whether its command takes as many arguments.
    pub fn has_arity(&self) -> bool {
        self.place.is_some_and(|at| table::all()[at].takes(self.len()))
    }

    /// Its arguments, the name of the command first.
    pub fn arguments<'a>(&'a self, input: &'a [u8]) -> SmallVec<[&'a [u8]; 8]> {
        match &self.source {
            Source::Ranges(ranges) => ranges.iter().map(|(from, to)| &input[*from..*to]).collect(),
            Source::Owned(owned) => owned.iter().map(Vec::as_slice).collect(),
        }
    }

    /// Bytes of memory that it takes by itself, about.
    pub fn memory(&self, input: &[u8]) -> usize {
        let argument = |argument: &&[u8]| argument.len() + ARGUMENT_BYTES;
        REQUEST_BYTES + self.arguments(input).iter().map(argument).sum::<usize>()
    }

    /// The same without the input.
    pub fn into_owned(self, input: &[u8]) -> Request {
        let owned = self.arguments(input).iter().map(|arg| arg.to_vec()).collect();
        Request { source: Source::Owned(owned), place: self.place }
    }
}

/// How an execution has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    /// The run, or a part of it, has replies.
    Done,
    /// It met a conflict: try again.
    Conflict,
    /// It has starved, or is too much for a loop: [`RunQueue::take_job`].
    Patience,
    /// The log has no room.
    NoRoom,
}

/// After this many conflicts a run is taken apart: its commands are transactions of their own.
const CONFLICTS_TOGETHER: u32 = 4;

/// After this many it is run with patience, if need be while no other transaction runs.
const CONFLICTS: u32 = 8;

/// What writes more bytes may have to wait for room in the log, and is run with patience as well.
const MOST_WRITTEN: usize = 512 << 10;

/// A run whose replies reach this many bytes ends there: the client reads them before the rest is
/// run.
const MOST_REPLIED: usize = 1 << 20;

/// The run of a conversation, while it is collected and until it is executed.
#[derive(Default)]
pub struct RunQueue {
    requests: Vec<Request>,
    /// Those before it have been executed.
    first: usize,
    conflicts: u32,
    /// The replies are dropped.
    pub is_silent: bool,
    /// It is the commands of MULTI, whose replies are an array.
    is_exec: bool,
    /// EXEC compares them.
    watched: Vec<WatchedKey>,
    writes: bool,
    effects: RefCell<Effects>,
    ticket: Option<(Ticket, usize)>,
    /// Commands that have failed in the attempt, with their errors.
    failed: Vec<(usize, String)>,
}

impl RunQueue {
    /// Whether there is nothing to execute.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && !self.is_exec
    }

    /// Whether a command may join: writes do not join reads.
    pub fn takes(&self, command: &Command) -> bool {
        self.requests.is_empty() || self.writes || !command.writes()
    }

    /// Adds a request.
    pub fn push(&mut self, request: Request) {
        self.writes |= request.place.is_some_and(|at| table::all()[at].writes());
        self.requests.push(request);
    }

    /// The run is the commands of MULTI, if what was watched has not changed.
    pub fn set_exec(&mut self, requests: Vec<Request>, watched: Vec<WatchedKey>) {
        self.requests = requests;
        self.watched = watched;
        self.is_exec = true;
    }

    /// The commands of the next transaction: all that are left, or one of a run that was taken
    /// apart.
    fn part(&self) -> std::ops::Range<usize> {
        let is_apart = self.conflicts >= CONFLICTS_TOGETHER && !self.is_exec;
        self.first..if is_apart { self.first + 1 } else { self.requests.len() }
    }

    /// What [`Execution::Patience`] asks for: the commands of EXEC as a job, or the next command.
    /// The commands behind it are run once it has its reply.
    pub fn take_job(&mut self, client: &Client, input: &[u8]) -> Job {
        let part = self.first..if self.is_exec { self.requests.len() } else { self.first + 1 };
        let taken = std::mem::take(&mut self.requests);
        let (mut own, mut rest) = (Vec::with_capacity(part.len()), Vec::new());
        for (at, request) in taken.into_iter().enumerate() {
            match at {
                at if part.contains(&at) => own.push(request.into_owned(input)),
                at if at >= part.end => rest.push(request),
                _ => {}
            }
        }
        let run = PatientRun {
            requests: own,
            is_exec: self.is_exec,
            watched: std::mem::take(&mut self.watched),
            is_silent: self.is_silent,
            has_starved: self.conflicts >= CONFLICTS,
            database: client.database,
        };
        (self.requests, self.first) = (rest, 0);
        self.finish(0);
        Job::transaction(move |shared, reply| run.run(shared, reply))
    }

    /// Whether what was executed has ended watching, and what it has begun to watch.
    pub fn take_watched(&mut self) -> (bool, Vec<WatchedKey>) {
        let effects = self.effects.get_mut();
        (std::mem::take(&mut effects.unwatched), std::mem::take(&mut effects.watched))
    }

    /// The ticket of what was executed, and how many replies depend on it.
    pub fn take_ticket(&mut self) -> Option<(Ticket, usize)> {
        self.ticket.take()
    }

    fn finish(&mut self, executed: usize) {
        self.first += executed;
        self.conflicts = 0;
        if self.first >= self.requests.len() {
            self.requests.clear();
            self.watched.clear();
            (self.first, self.writes) = (0, false);
            (self.is_exec, self.is_silent) = (false, false);
        }
    }

    /// Tries to execute the run, or its next command.
    pub fn execute(
        &mut self,
        shared: &Arc<Shared>,
        session: &mut Session,
        client: &Client,
        input: &[u8],
        replies: &mut Replies,
    ) -> Execution {
        if self.conflicts >= CONFLICTS {
            return Execution::Patience;
        }
        let from = replies.buffer().len();
        let part = self.part();
        let requests = &self.requests[part.clone()];
        let (is_exec, failed) = (self.is_exec, RefCell::new(&mut self.failed));
        let context = context(shared, &self.effects);
        let out = RefCell::new(replies.buffer());
        let outcome = session.attempt(|tx: &Transaction<'_>| {
            let mut out = out.borrow_mut();
            out.truncate(from);
            context.effects.borrow_mut().clear();
            let mut reply = Reply::new(&mut out, client.is_resp3);
            let mut failed = failed.borrow_mut();
            failed.clear();
            let (database, watched) = (client.database, &self.watched[..]);
            let commands = Commands { database, requests, input, is_exec, watched };
            run_all(tx, context, &commands, &mut reply, *failed)
        });
        let (done, ticket) = match outcome {
            Ok(Attempt::Committed(done, ticket)) => (done, ticket),
            Ok(Attempt::Abandoned(Ended::TooMuch, _)) => {
                replies.buffer().truncate(from);
                return Execution::Patience;
            }
            Ok(Attempt::Conflict) => {
                replies.buffer().truncate(from);
                // While another one runs alone, that one is met, and no rival.
                if shared.patient.load(Relaxed) == 0 && !self.is_watch() {
                    self.conflicts += 1;
                }
                shared.counters.conflicts.fetch_add(1, Relaxed);
                return Execution::Conflict;
            }
            Ok(Attempt::NoRoom) => return Execution::NoRoom,
            Ok(Attempt::Abandoned(ended, ticket)) => {
                self.refuse(replies, from, part.len(), client, &ended.text());
                (part.len(), ticket)
            }
            Err(error) => {
                self.refuse(replies, from, part.len(), client, &failure(shared, error));
                if self.is_silent {
                    replies.buffer().truncate(from);
                }
                replies.seal_free();
                self.finish(part.len());
                return Execution::Done;
            }
        };
        let (all, part) = (part.len(), part.start..part.start + done);
        self.committed(shared, client, part.clone());
        if self.is_silent {
            replies.buffer().truncate(from);
        }
        let count = if is_exec { 1 } else { done };
        self.ticket = Some((ticket, if self.is_silent { 0 } else { count }));
        self.finish(if is_exec { all } else { done });
        Execution::Done
    }

    /// WATCH reads a few heads, and is not handed on: what it has seen stays here.
    fn is_watch(&self) -> bool {
        let name = |request: &Request| request.place.map(|at| table::all()[at].name);
        !self.is_exec && self.requests.first().and_then(name) == Some("watch")
    }

    /// Replies an error to each request.
    fn refuse(
        &self,
        replies: &mut Replies,
        from: usize,
        count: usize,
        client: &Client,
        text: &str,
    ) {
        replies.buffer().truncate(from);
        let mut reply = Reply::new(replies.buffer(), client.is_resp3);
        let count = if self.is_exec { 1 } else { count };
        (0..count).for_each(|_| reply.error(text));
        self.effects.borrow_mut().clear();
    }

    /// Counts what was committed.
    fn committed(&mut self, shared: &Shared, client: &Client, part: std::ops::Range<usize>) {
        let requests = &self.requests[part];
        count(shared, requests, &self.effects.borrow(), &mut self.failed);
        if let Some(last) = requests.last().and_then(Request::place) {
            let mut names = client.entry.names.lock().expect("no holder panics");
            names.command = table::all()[last].name;
        }
    }
}

/// Applies and counts what was committed.
fn count(
    shared: &Shared,
    requests: &[Request],
    effects: &Effects,
    failed: &mut Vec<(usize, String)>,
) {
    shared.apply(effects);
    shared.counters.commands.fetch_add(requests.len() as u64, Relaxed);
    for place in requests.iter().filter_map(Request::place) {
        shared.calls[place].0.fetch_add(1, Relaxed);
    }
    for (place, error) in failed.drain(..) {
        shared.calls[place].1.fetch_add(1, Relaxed);
        shared.count_error(&error);
    }
}

/// Why the body of a run ends without its replies.
enum Ended {
    Abort(Abort),
    /// It reads or writes more than a loop should wait for.
    TooMuch,
}

impl Ended {
    /// What the client is told.
    fn text(&self) -> String {
        match self {
            Ended::Abort(keyspace::TOO_MUCH) => {
                let most = keyspace::MOST_COPIED >> 20;
                format!("ERR the transaction reads and writes more than {most} MiB")
            }
            Ended::Abort(abort) => format!("ERR {abort}"),
            Ended::TooMuch => unreachable!("no loop waits for a patient run"),
        }
    }
}

impl From<Abort> for Ended {
    fn from(abort: Abort) -> Ended {
        Ended::Abort(abort)
    }
}

/// What is replied for a transaction whose record may be on disk or not.
pub const OUTCOME_UNKNOWN: &str = "OUTCOMEUNKNOWN the log failed before this was durable: after \
                                   the restart it is there whole or not at all";

/// What a transaction of commands is given now.
fn context<'t>(shared: &'t Shared, effects: &'t RefCell<Effects>) -> Context<'t> {
    let opened = shared.opened.get().expect("there is a session");
    Context {
        tables: opened.tables,
        now_ms: shared.clock.now_ms(),
        databases: shared.settings.databases(),
        longest: shared.settings.longest_argument(),
        counts: &shared.counts,
        effects,
        is_exec: false,
        is_patient: false,
    }
}

/// What is replied if the engine fails.
fn failure(shared: &Shared, error: Error) -> String {
    match error {
        Error::Poisoned(cause) => {
            let cause = shared.log_failure().unwrap_or(cause);
            shared.stop_for_log(&cause);
            format!("MISCONF {cause}")
        }
        other => format!("ERR {other}"),
    }
}

/// The commands of a transaction.
struct Commands<'a> {
    database: u32,
    requests: &'a [Request],
    input: &'a [u8],
    is_exec: bool,
    watched: &'a [WatchedKey],
}

/// Runs requests one after the other, and returns how many. Requests that do not belong together
/// end where there is no room for replies, or where the loop would be held up; if that is at the
/// first one, or if they belong together, they are [`Ended::TooMuch`]. An error takes back its own
/// command alone.
fn run_all(
    tx: &Transaction<'_>,
    context: Context<'_>,
    commands: &Commands<'_>,
    reply: &mut Reply<'_>,
    failed: &mut Vec<(usize, String)>,
) -> Result<usize, Ended> {
    let Commands { database, requests, input, is_exec, watched } = *commands;
    let space = Keyspace::open(*tx, Context { is_exec, ..context }, database)?;
    let begin = reply.position();
    for watched in watched {
        if !space.is_as_watched(watched)? {
            // That another was first is a reply as well: it waits for what was read.
            reply.null_array();
            return Ok(0);
        }
    }
    if is_exec {
        reply.array(requests.len());
    }
    prefetch(&space, requests, input);
    let effects = context.effects;
    for (done, request) in requests.iter().enumerate() {
        let may_end = done > 0 && !is_exec;
        if may_end && reply.position() - begin > MOST_REPLIED {
            return Ok(done);
        }
        let place = request.place.expect("it is a command");
        let Run::Data(run) = table::all()[place].run else { continue };
        let args = request.arguments(input);
        let (position, savepoint) = (reply.position(), tx.savepoint());
        let before = effects.borrow().clone();
        let result = run(&space, &args, reply);
        let is_large = effects.borrow().written > MOST_WRITTEN && !context.is_patient;
        let (text, goes_on) = match result {
            Ok(()) if is_large => (String::new(), false),
            Err(Stop::Abort(keyspace::TOO_MUCH_FOR_LOOP)) => (String::new(), false),
            Ok(()) if reply.is_too_long() => (TOO_LONG.to_string(), true),
            Ok(()) => continue,
            Err(Stop::Abort(abort @ (Abort::Conflict | keyspace::TOO_MUCH))) => {
                return Err(abort.into());
            }
            Err(Stop::Abort(abort)) => (format!("ERR {abort}"), true),
            Err(Stop::Error(text)) => (text.into_owned(), true),
        };
        tx.rollback_to(savepoint)?;
        // What it has copied is kept until the transaction ends.
        let copied = effects.borrow().copied;
        *effects.borrow_mut() = Effects { copied, ..before };
        reply.truncate(position);
        match goes_on {
            true => {
                reply.error(&text);
                failed.push((place, text));
            }
            false if may_end => return Ok(done),
            false => return Err(Ended::TooMuch),
        }
    }
    Ok(requests.len())
}

/// Announces the first key of each request.
fn prefetch(space: &Keyspace<'_>, requests: &[Request], input: &[u8]) {
    if requests.len() < 2 {
        return;
    }
    for request in requests {
        let command = &table::all()[request.place.expect("it is a command")];
        if let Some(at) = command.key_places(request.len()).next() {
            space.prefetch(request.arguments(input)[at]);
        }
    }
}
