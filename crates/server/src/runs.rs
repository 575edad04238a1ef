//! Runs: consecutive commands of a client as one transaction.

use crate::commands::table::{self, Command, Run};
use crate::conversation::Client;
use crate::data::keyspace::{Context, Effects, Keyspace, Stop};
use crate::replies::Replies;
use crate::resp::reply::Reply;
use crate::resp::request::Arguments;
use crate::shared::Shared;
use hyades::{Abort, Attempt, Error, Session, Ticket, Transaction};
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
    /// The log has no room.
    NoRoom,
}

/// After this many conflicts a run is taken apart: its commands are transactions of their own.
const CONFLICTS_TOGETHER: u32 = 4;

/// After this many it is run with patience, if need be while no other transaction runs.
const CONFLICTS: u32 = 8;

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
    writes: bool,
    effects: RefCell<Effects>,
    ticket: Option<(Ticket, usize)>,
    /// Commands that have failed in the attempt, with their errors.
    failed: Vec<(usize, String)>,
}

impl RunQueue {
    /// Whether there is nothing to execute.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
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

    /// The run is the commands of MULTI.
    pub fn set_exec(&mut self, requests: Vec<Request>) {
        self.requests = requests;
        self.is_exec = true;
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
        let from = replies.buffer().len();
        let is_apart = self.conflicts >= CONFLICTS_TOGETHER && !self.is_exec;
        let last = if is_apart { self.first + 1 } else { self.requests.len() };
        let part = self.first..last;
        let requests = &self.requests[part.clone()];
        let (is_exec, failed) = (self.is_exec, RefCell::new(&mut self.failed));
        let context = context(shared, &self.effects);
        let out = RefCell::new(replies.buffer());
        let body = |tx: &Transaction<'_>| {
            let mut out = out.borrow_mut();
            out.truncate(from);
            context.effects.borrow_mut().clear();
            let mut reply = Reply::new(&mut out, client.is_resp3);
            if is_exec {
                reply.array(requests.len());
            }
            let mut failed = failed.borrow_mut();
            failed.clear();
            run_all(tx, context, (client.database, requests, input), &mut reply, *failed)
        };
        let outcome = match self.conflicts >= CONFLICTS {
            false => session.attempt(body),
            true => {
                shared.counters.alone.fetch_add(1, Relaxed);
                session.try_submit(body).map(|(result, ticket)| match result {
                    Ok(()) => Attempt::Committed((), ticket),
                    Err(abort) => Attempt::Abandoned(abort, ticket),
                })
            }
        };
        let count = if is_exec { 1 } else { part.len() };
        let ticket = match outcome {
            Ok(Attempt::Committed((), ticket)) => ticket,
            Ok(Attempt::Conflict) => {
                replies.buffer().truncate(from);
                self.conflicts += 1;
                shared.counters.conflicts.fetch_add(1, Relaxed);
                return Execution::Conflict;
            }
            Ok(Attempt::NoRoom) => return Execution::NoRoom,
            Ok(Attempt::Abandoned(abort, ticket)) => {
                self.refuse(replies, from, count, client, &format!("ERR {abort}"));
                ticket
            }
            Err(error) => {
                self.refuse(replies, from, count, client, &failure(shared, error));
                replies.seal_free();
                self.finish(part.len());
                return Execution::Done;
            }
        };
        self.committed(shared, client, part.clone());
        if self.is_silent {
            replies.buffer().truncate(from);
        }
        self.ticket = Some((ticket, if self.is_silent { 0 } else { count }));
        self.finish(part.len());
        Execution::Done
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
        (0..count).for_each(|_| reply.error(text));
        self.effects.borrow_mut().clear();
    }

    /// Counts what was committed.
    fn committed(&mut self, shared: &Shared, client: &Client, part: std::ops::Range<usize>) {
        shared.apply(&self.effects.borrow());
        let requests = &self.requests[part];
        shared.counters.commands.fetch_add(requests.len() as u64, Relaxed);
        for place in requests.iter().filter_map(Request::place) {
            shared.calls[place].0.fetch_add(1, Relaxed);
        }
        for (place, error) in self.failed.drain(..) {
            shared.calls[place].1.fetch_add(1, Relaxed);
            shared.count_error(&error);
        }
        if let Some(last) = requests.last().and_then(Request::place) {
            let mut names = client.entry.names.lock().expect("no holder panics");
            names.command = table::all()[last].name;
        }
    }
}

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

/// Runs requests one after the other. An error takes back its own command alone.
fn run_all(
    tx: &Transaction<'_>,
    context: Context<'_>,
    (database, requests, input): (u32, &[Request], &[u8]),
    reply: &mut Reply<'_>,
    failed: &mut Vec<(usize, String)>,
) -> Result<(), Abort> {
    let space = Keyspace::open(*tx, context, database)?;
    if requests.len() > 1 {
        for request in requests {
            let command = &table::all()[request.place.expect("it is a command")];
            if let Some(at) = command.key_places(request.len()).next() {
                space.prefetch(request.arguments(input)[at]);
            }
        }
    }
    for request in requests {
        let place = request.place.expect("it is a command");
        let Run::Data(run) = table::all()[place].run else { continue };
        let args = request.arguments(input);
        let (position, savepoint) = (reply.position(), tx.savepoint());
        let effects = context.effects.borrow().clone();
        let text = match run(&space, &args, reply) {
            Ok(()) => continue,
            Err(Stop::Abort(Abort::Conflict)) => return Err(Abort::Conflict),
            Err(Stop::Abort(abort)) => format!("ERR {abort}"),
            Err(Stop::Error(text)) => text.into_owned(),
        };
        tx.rollback_to(savepoint)?;
        *context.effects.borrow_mut() = effects;
        reply.truncate(position);
        reply.error(&text);
        failed.push((place, text));
    }
    Ok(())
}
