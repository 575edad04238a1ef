//! Runs: consecutive commands of a client as one transaction.

mod commands;
#[cfg(feature = "replication")]
mod counting;
mod patient;
mod wrote;

use crate::catalogue::{self, Command};
use crate::client::Client;
use crate::client::{QueuedCommands, RunEnd};
use crate::commands::{Caller, Job, Lane};
use crate::data::keyspace::{self, Context, Effects, WatchedKey};
use crate::request::Request;
use crate::resp::reply::Reply;
use crate::session::replies::Replies;
use crate::state::Shared;
use crate::transact::{abort_text, context, failure};
use commands::{Commands, run_all};
use hyades::{Abort, Attempt, Error, Session, SessionOrder, Snapshot, Ticket, Transaction};
use hyades_platform::sync::Unpoisoned;
use patient::PatientRun;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use wrote::{Origin, Wrote};

/// The commands of EXEC.
pub enum ExecCommands {
    /// Commands that a loop may run, with their arguments.
    Few(Vec<Request>, Vec<u8>),
    /// Too many commands for a loop.
    Many(QueuedCommands),
}

/// The parts of an EXEC beside the commands of its transaction.
pub struct Exec {
    /// The watched keys, compared before the commands run.
    pub watched: Vec<WatchedKey>,
    /// The replies in EXEC's array from outside of the transaction.
    pub others: usize,
    /// An error of a command undoes the whole EXEC.
    pub rolls_back: bool,
}

/// How an execution has ended.
// `Done` is the largest variant and the common one: a box would allocate for each run.
#[allow(clippy::large_enum_variant)]
pub enum Execution {
    /// The run, or a part of it, has replies.
    Done(RunEnd),
    /// The run met a conflict: try again.
    Conflict,
    /// The run has starved, or is too much for a loop: [`RunQueue::take_job`].
    Patience,
    /// The log has no room.
    NoRoom,
    /// WATCH has marked its rows: try again at once, to see the marks.
    Marked,
    /// The log has stopped, and with the log the role of this member: the outcome is not known
    /// here, and the connection is closed.
    Parted,
}

/// After this many conflicts a run is taken apart: each command is a transaction of its own.
const CONFLICTS_TOGETHER: u32 = 4;

/// After this many conflicts the run is run with patience, if need be while no other transaction
/// runs.
const CONFLICTS: u32 = 8;

/// A run with more written bytes may have to wait for room in the log, and is run with patience
/// too.
const MOST_WRITTEN: usize = 512 << 10;

/// A run ends where its replies reach this many bytes: the client reads them before the rest is
/// run.
const MOST_REPLIED: usize = 1 << 20;

/// The run of a conversation, while it is collected and until it is executed.
#[derive(Default)]
pub struct RunQueue {
    requests: Vec<Request>,
    /// Requests before this place have been executed.
    first: usize,
    conflicts: u32,
    /// The replies are dropped.
    pub is_silent: bool,
    /// The run is the commands of MULTI, with an array of replies.
    exec: Option<Exec>,
    /// The arguments of EXEC's commands.
    exec_input: Vec<u8>,
    /// The commands of EXEC, if they are too many for a loop.
    long: Option<QueuedCommands>,
    writes: bool,
    effects: RefCell<Effects>,
    wrote: Wrote,
}

impl RunQueue {
    /// Whether there is nothing to execute.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.exec.is_none()
    }

    /// Whether a command may join: writes do not join reads.
    pub fn takes(&self, command: &Command) -> bool {
        self.requests.is_empty() || self.writes || !command.writes()
    }

    /// Whether a command of the run may write.
    pub fn writes(&self) -> bool {
        self.writes || self.exec.is_some()
    }

    /// Whether a command of the run may write, by its request and the bytes of the arguments.
    /// `input` has the arguments of requests outside of EXEC.
    pub fn has_writes(&self, input: &[u8], may_write: impl Fn(&Request, &[u8]) -> bool) -> bool {
        let input = if self.exec.is_some() { &self.exec_input } else { input };
        let long = self.long.as_ref().is_some_and(QueuedCommands::writes);
        long || self.requests.iter().any(|request| may_write(request, input))
    }

    /// Adds a request.
    pub fn push(&mut self, request: Request) {
        self.writes |= request.place().is_some_and(|at| catalogue::all()[at].writes());
        self.requests.push(request);
    }

    /// Makes the run the commands of MULTI, to be run if no watched key has changed.
    pub fn set_exec(&mut self, queued: ExecCommands, exec: Exec) {
        self.exec = Some(exec);
        match queued {
            ExecCommands::Few(requests, input) => {
                (self.requests, self.exec_input) = (requests, input);
            }
            ExecCommands::Many(queued) => self.long = Some(queued),
        }
    }

    /// Whether the run is an EXEC.
    pub fn is_exec(&self) -> bool {
        self.exec.is_some()
    }

    /// Whether one request is left, not an EXEC.
    pub fn is_one_request(&self) -> bool {
        self.exec.is_none() && self.first + 1 == self.requests.len()
    }

    /// The commands of the next transaction: all remaining commands, or one command of a run taken
    /// apart.
    fn part(&self) -> std::ops::Range<usize> {
        let is_apart = self.conflicts >= CONFLICTS_TOGETHER && self.exec.is_none();
        self.first..if is_apart { self.first + 1 } else { self.requests.len() }
    }

    /// Takes the job that [`Execution::Patience`] asks for: the commands of EXEC, or the next
    /// command. The commands behind the job are run once the job has replied. `long` is the input
    /// if the job may own the input: if there is [one request](RunQueue::is_one_request).
    pub fn take_job(
        &mut self,
        client: &Client,
        order: &SessionOrder,
        input: &[u8],
        long: Option<Vec<u8>>,
    ) -> Job {
        let is_exec = self.exec.is_some();
        let part = self.first..if is_exec { self.requests.len() } else { self.first + 1 };
        let mut taken = std::mem::take(&mut self.requests);
        let (mut own, mut rest) = (Vec::new(), Vec::new());
        if is_exec {
            own = std::mem::take(&mut taken);
        }
        let exec_input = std::mem::take(&mut self.exec_input);
        for (at, request) in taken.into_iter().enumerate() {
            match at {
                at if part.contains(&at) && long.is_some() => own.push(request),
                at if part.contains(&at) => own.push(request.into_owned(input)),
                at if at >= part.end => rest.push(request),
                _ => {}
            }
        }
        let is_silent = self.is_silent;
        let long_exec = self.long.take().map(|queued| (queued, client.login.clone()));
        let run = PatientRun {
            requests: own,
            input: long.unwrap_or(exec_input),
            long_exec,
            exec: self.exec.take(),
            is_silent,
            has_starved: self.conflicts >= CONFLICTS,
            client: client.entry.clone(),
            order: order.clone(),
            database: client.database,
            login: client.login.clone(),
            rolls_back: client.rolls_back,
            remembered: client.remembered(is_exec),
        };
        let has_script = run.has_script();
        (self.requests, self.first) = (rest, 0);
        self.finish(0);
        let job = Job::transaction(move |shared, reply| run.run(shared, reply));
        let job = job.silent_if(is_silent);
        if has_script { job.in_lane(Lane::Scripts) } else { job }
    }

    /// Takes the results of the execution, with its ticket, and the number of dependent replies.
    fn end(&mut self, ticket: Option<Ticket>, replies: usize) -> RunEnd {
        let effects = self.effects.get_mut();
        RunEnd {
            ticket,
            replies,
            exec_ends: std::mem::take(&mut self.wrote.ends),
            wait: effects.wait.take(),
            events: std::mem::take(&mut self.wrote.notices.events),
            changed: std::mem::take(&mut self.wrote.changed),
            read_elsewhere: Vec::new(),
            lines: std::mem::take(&mut self.wrote.lines),
            order: None,
            is_certain: false,
            unwatched: std::mem::take(&mut effects.unwatched),
            watched: std::mem::take(&mut effects.watched),
            time: Duration::from_nanos(self.wrote.times.iter().sum()),
        }
    }

    fn finish(&mut self, executed: usize) {
        self.first += executed;
        self.conflicts = 0;
        if self.first >= self.requests.len() {
            self.requests.clear();
            (self.exec_input, self.long) = (Vec::new(), None);
            (self.first, self.writes) = (0, false);
            (self.exec, self.is_silent) = (None, false);
        }
    }

    /// Tries to execute the run, or its next command; as of the snapshot, if there is one.
    pub fn execute(
        &mut self,
        shared: &Arc<Shared>,
        (session, snapshot): (&mut Session, Option<&Snapshot>),
        client: &Client,
        input: &[u8],
        replies: &mut Replies,
    ) -> Execution {
        if self.conflicts >= CONFLICTS || self.long.is_some() {
            return Execution::Patience;
        }
        let (from, part) = (replies.buffer().len(), self.part());
        let requests = &self.requests[part.clone()];
        let (exec, is_patient) = (self.exec.as_ref(), self.is_alone());
        let own = if exec.is_some() { &self.exec_input[..] } else { input };
        let wrote = RefCell::new(&mut self.wrote);
        let context = Context { is_patient, ..context(shared, &self.effects) };
        let most = client.most_output(&shared.settings.output_limits) * u64::from(!self.is_silent);
        let out = RefCell::new(replies.buffer());
        let caller = Caller::new(shared, &client.entry, &client.login, client.rolls_back);
        let remembered = client.remembered(exec.is_some());
        let body = |tx: &Transaction<'_>| {
            let mut out = out.borrow_mut();
            out.truncate(from);
            context.effects.borrow_mut().clear();
            let mut reply = Reply::limited(&mut out, client.is_resp3, most).on_loop();
            let mut wrote = wrote.borrow_mut();
            wrote.clear();
            let (database, caller) = (client.database, &caller);
            let commands = Commands { database, requests, input: own, exec, caller, remembered };
            run_all(tx, context, &commands, &mut reply, *wrote)
        };
        let (done, ticket) = match attempt(session, snapshot, body) {
            Ok(Attempt::Committed(done, ticket)) => (done, ticket),
            Ok(Attempt::Abandoned(Ended::TooMuch, _)) => {
                replies.buffer().truncate(from);
                return Execution::Patience;
            }
            Ok(Attempt::Conflict) => {
                replies.buffer().truncate(from);
                self.note_conflict(shared);
                return Execution::Conflict;
            }
            Ok(Attempt::NoRoom) => return Execution::NoRoom,
            Ok(Attempt::Abandoned(ended, ticket)) => {
                self.refuse(replies, from, part.len(), client, &ended.text());
                (part.len(), ticket)
            }
            Err(error) if shared.parts_for(&error) => return Execution::Parted,
            Err(error) => {
                self.refuse(replies, from, part.len(), client, &failure(shared, error));
                replies.seal_free();
                self.finish(part.len());
                return Execution::Done(self.end(None, 0));
            }
        };
        if std::mem::take(&mut self.effects.get_mut().marked) {
            // The next attempt depends on the marks: its ticket waits for the marks' ticket.
            replies.buffer().truncate(from);
            self.effects.get_mut().clear();
            return Execution::Marked;
        }
        if self.is_silent {
            replies.buffer().truncate(from);
        }
        let replies = self.settle(shared, (client, input), part.start..part.start + done);
        // No command is left of an EXEC that was not to run.
        self.finish(if self.exec.is_some() { part.len() } else { done });
        Execution::Done(self.end(Some(ticket), replies))
    }

    fn note_conflict(&mut self, shared: &Shared) {
        // While another transaction runs alone, the conflict is with that transaction, and no
        // rival.
        if shared.patient.load(Relaxed) == 0 && !self.is_alone() {
            self.conflicts += 1;
        }
        shared.stats.counters.conflicts.fetch_add(1, Relaxed);
    }

    /// Counts the committed commands. Returns the number of dependent replies.
    fn settle(
        &mut self,
        shared: &Shared,
        (client, input): (&Client, &[u8]),
        part: std::ops::Range<usize>,
    ) -> usize {
        let count = match &mut self.effects.get_mut().wait {
            Some(wait) => {
                wait.is_silent = self.is_silent;
                self.name_last(client, part);
                shared.apply(&self.effects.borrow());
                return 0;
            }
            None if self.exec.is_some() => 1,
            None => part.len(),
        };
        let requests = &self.requests[part.clone()];
        let input = if self.exec.is_some() { &self.exec_input[..] } else { input };
        let origin = Origin { client: &client.entry, database: client.database, input };
        self.wrote.count(shared, &origin, requests, &self.effects.borrow());
        self.name_last(client, part);
        if self.is_silent { 0 } else { count }
    }

    /// Tells CLIENT LIST the last command of a part.
    fn name_last(&self, client: &Client, part: std::ops::Range<usize>) {
        if let Some(last) = self.requests[part].last().and_then(Request::place) {
            let mut names = client.entry.names.lock().unpoisoned();
            names.command = catalogue::all()[last].name;
        }
    }

    /// WATCH and UNWATCH touch a few heads, and are not handed on: the keys they saw stay here.
    fn is_alone(&self) -> bool {
        self.exec.is_none() && self.requests.first().is_some_and(Request::stays_on_loop)
    }

    /// Replies an error to each request, unless replies are dropped.
    fn refuse(
        &mut self,
        replies: &mut Replies,
        from: usize,
        count: usize,
        client: &Client,
        text: &str,
    ) {
        replies.buffer().truncate(from);
        let mut reply = Reply::new(replies.buffer(), client.is_resp3);
        let count = match self.exec.is_some() {
            _ if self.is_silent => 0,
            true => 1,
            false => count,
        };
        (0..count).for_each(|_| reply.error(text));
        self.effects.get_mut().clear();
        self.wrote.fail(text);
    }
}

/// Runs a body once, as of what a standby serves in a turn, if there is such a snapshot.
fn attempt(
    session: &mut Session,
    snapshot: Option<&Snapshot>,
    body: impl FnMut(&Transaction<'_>) -> Result<usize, Ended>,
) -> Result<Attempt<usize, Ended>, Error> {
    let Some(snapshot) = snapshot else { return session.attempt(body) };
    match session.read(snapshot, body) {
        Ok((Ok(done), ticket)) => Ok(Attempt::Committed(done, ticket)),
        Ok((Err(ended), ticket)) => Ok(Attempt::Abandoned(ended, ticket)),
        // Its versions took too much memory: the next turn has another snapshot.
        Err(Error::Aborted(Abort::SnapshotEnded)) => Ok(Attempt::Conflict),
        Err(error) => Err(error),
    }
}

/// Why the body of a run ends without its replies.
enum Ended {
    Abort(Abort),
    /// The run reads or writes more than a loop should wait for.
    TooMuch,
    /// A command of EXEC had an error, and its client wants all or nothing.
    RolledBack {
        /// The place of the command in the table.
        place: usize,
        /// The command's number in the transaction, from 1 on.
        number: usize,
        /// The command's error.
        text: String,
    },
}

impl Ended {
    /// The text for the client.
    fn text(&self) -> String {
        match self {
            Ended::Abort(abort) => abort_text(*abort),
            Ended::RolledBack { place, number, text } => {
                let name = catalogue::all()[*place].name.to_uppercase();
                format!("EXECABORT nothing was done, since {name}, number {number}, failed: {text}")
            }
            Ended::TooMuch => unreachable!("no loop waits for a patient run"),
        }
    }
}

impl From<Abort> for Ended {
    fn from(abort: Abort) -> Ended {
        match abort {
            keyspace::TOO_MUCH_FOR_LOOP => Ended::TooMuch,
            abort => Ended::Abort(abort),
        }
    }
}
