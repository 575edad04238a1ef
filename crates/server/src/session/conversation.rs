//! A client's side of the server, without sockets and threads: bytes in, runs of commands, replies
//! out in their order.
//!
//! Consecutive commands that a client sends at once are a *run*: one transaction. Its replies may
//! leave once the transaction is acknowledged; replies about data on disk alone leave at once.

mod admission;
mod answering;
#[cfg(feature = "replication")]
mod awaiting;
#[cfg(not(feature = "replication"))]
#[path = "conversation/awaiting_off.rs"]
mod awaiting;
mod blocking;
mod durability;
mod input;
mod observing;
mod parting;
mod pausing;
mod publishing;
mod transactions;

use crate::access::Access;
use crate::catalogue::{self, Phase};
use crate::client::{Client, Durability, Multi, RunEnd, Silence};
use crate::clients::ClientEntry;
use crate::commands::{Job, JobReply};
use crate::request::Request;
use crate::resp::reply::Reply;
use crate::resp::request::Parser;
use crate::session::replies::Replies;
use crate::session::runs::{Execution, RunQueue};
use crate::state::Shared;
use crate::state::pause::PausedClient;
use crate::transact::OUTCOME_UNKNOWN;
use blocking::Blocked;
use hyades::{Session, SessionOrder, Snapshot, Ticket};
use hyades_platform::broken;
use observing::Unfinished;
use publishing::Outbox;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// The means of a conversation to run commands.
pub struct Turn<'a> {
    /// The server.
    pub shared: &'a Arc<Shared>,
    /// `None` while the database is being opened.
    pub session: Option<&'a mut Session>,
    /// Gets the tickets of transactions not acknowledged yet, with the mark to pass to
    /// [`Conversation::acknowledged`].
    pub parked: &'a mut Vec<(Ticket, u64)>,
    /// What a standby serves in this turn: all runs of the turn read one state.
    pub snapshot: Option<&'a Snapshot>,
}

/// The next step of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// More input is needed, or the client has to read its replies.
    Wait,
    /// There is more to run: call again after other connections had their turn.
    Again,
    /// The log has no room, a transaction of an executor is in the way, or clients are paused: call
    /// again after a while.
    Pause,
}

/// A conversation.
pub struct Conversation {
    client: Client,
    /// The order of the client's transactions, kept by RESET: a crash leaves a prefix.
    order: SessionOrder,
    input: Vec<u8>,
    /// Bytes of `input` already taken.
    taken: usize,
    parser: Parser,
    /// The parser has found no complete request in the rest of the input.
    is_incomplete: bool,
    /// A parsed request of the next run.
    stash: Option<Request>,
    run: RunQueue,
    /// The commands that EXEC runs once its transaction has committed: see [`Multi::locals`].
    locals: Vec<(usize, Request)>,
    /// The durability that a command of `locals` has chosen for the transaction.
    exec_durability: Option<Durability>,
    /// A command that waits for an element.
    blocked: Option<Blocked>,
    /// Until when a stashed attempt to log in waits, with all requests behind it.
    held: Option<Instant>,
    /// The request set aside waits for the end of CLIENT PAUSE.
    paused: Option<PausedClient>,
    replies: Replies,
    /// Messages that the client publishes.
    outbox: Outbox,
    job: Option<Job>,
    is_waiting_for_job: bool,
    unfinished: Option<Unfinished>,
    /// The fault of the input. Replied behind the replies of the valid input before.
    protocol_error: Option<String>,
}

/// Most parked replies: with more, the client is not read.
const MOST_PARKED: usize = 1_024;
/// Most bytes kept for a client that does not read.
const MOST_UNSENT: usize = 1 << 20;
/// Most commands of a connection in a turn.
const MOST_COMMANDS: usize = 64;
/// Most watched keys of a client: EXEC compares them on an event loop.
const MOST_WATCHED: usize = 1 << 14;
/// Most attempts of WATCH at once if other loops change the rows to be marked.
const MOST_MARKED_AT_ONCE: usize = 16;
/// Most bytes of a run.
const MOST_RUN_BYTES: usize = 64 << 10;
/// Most arguments of a request.
const MOST_ARGUMENTS: usize = 1 << 20;

impl Conversation {
    /// Makes a conversation with a client that has just connected.
    pub fn new(access: &Access, entry: Arc<ClientEntry>) -> Conversation {
        Conversation {
            client: Client::new(access, entry),
            order: SessionOrder::default(),
            input: Vec::new(),
            taken: 0,
            parser: Parser::default(),
            is_incomplete: false,
            stash: None,
            run: RunQueue::default(),
            locals: Vec::new(),
            exec_durability: None,
            blocked: None,
            held: None,
            paused: None,
            replies: Replies::default(),
            outbox: Outbox::default(),
            job: None,
            is_waiting_for_job: false,
            unfinished: None,
            protocol_error: None,
        }
    }

    /// Tells the client why it is not served.
    pub fn refuse(&mut self, error: &str) {
        Reply::new(self.replies.buffer(), false).error(error);
        self.replies.seal_free();
        self.client.is_closing = true;
    }

    /// Whether the client should not be read for now.
    pub fn is_full(&self) -> bool {
        self.is_waiting_for_job
            || self.replies.parked() >= MOST_PARKED
            || self.undelivered() >= MOST_PARKED
            || self.replies.unsent() >= MOST_UNSENT
    }

    /// Whether the connection is to be closed once all replies are sent.
    pub fn is_closing(&self) -> bool {
        self.client.is_closing
    }

    /// Whether there is something to run that needs no more input: a request set aside, the rest of
    /// a run, or input not looked through yet. A loop that stops serving such a conversation has to
    /// list it again: no event will.
    pub fn has_work(&self) -> bool {
        if !self.client.entry.inbox.is_empty() {
            return true;
        }
        if let Some(until) = self.held.or(self.awaited_at()) {
            return until <= Instant::now();
        }
        if self.blocked.is_some() {
            return !self.run.is_empty() || self.is_due();
        }
        let has_input = self.input.len() > self.taken && !self.is_incomplete;
        let is_broken = self.protocol_error.is_some();
        let has_next = self.stash.is_some() || has_input || is_broken;
        !self.run.is_empty() || has_next && !self.client.is_closing
    }

    /// Whether more is to be run than a turn can: the client is not read for now.
    pub fn is_ahead(&self) -> bool {
        (self.has_work() || self.is_blocked() || self.is_held())
            && self.input_bytes() >= MOST_RUN_BYTES
    }

    /// Whether no command is under way, and none is to be run, except a command that waits for the
    /// end of a pause.
    pub fn is_idle(&self) -> bool {
        let only_waits = self.is_set_aside() && self.client.entry.inbox.is_empty();
        (!self.has_work() || only_waits) && self.job.is_none() && !self.is_waiting_for_job
    }

    /// Whether an attempt to log in, or a command for a standby, waits, and will get a reply.
    pub fn is_held(&self) -> bool {
        self.held.is_some() || self.is_awaiting()
    }

    /// Whether another thread makes the next reply.
    pub fn is_waiting_for_job(&self) -> bool {
        self.is_waiting_for_job
    }

    /// Bytes received but not run.
    pub fn input_bytes(&self) -> usize {
        self.input.len() - self.taken
    }

    /// Bytes of replies not sent.
    pub fn output_bytes(&self) -> usize {
        self.replies.unsent()
    }

    /// Bytes of memory of the buffers, and of the commands queued by MULTI.
    pub fn buffer_bytes(&self) -> usize {
        let queued = self.client.multi.as_ref().map_or(0, |multi| multi.bytes);
        self.input.capacity() + self.replies.capacity() + queued
    }

    /// The number of keys that the client watches.
    pub fn watched_keys(&self) -> usize {
        self.client.watched.len()
    }

    /// Notes that a transaction is acknowledged: its replies may leave.
    pub fn acknowledged(&mut self, mark: u64) {
        self.replies.acknowledge(mark);
        self.deliver();
    }

    /// Bytes that may be sent.
    pub fn output(&self) -> &[u8] {
        self.replies.ready()
    }

    /// Notes that `bytes` bytes of [`Conversation::output`] were sent.
    pub fn sent(&mut self, bytes: usize) {
        self.replies.consume(bytes);
    }

    /// Turns replies that wait for an acknowledgement into errors, after a failure of the log.
    /// Commands run from here on are refused.
    pub fn fail(&mut self, shared: &Shared) {
        self.replies.fail(OUTCOME_UNKNOWN);
        self.fail_blocked(shared);
        self.forget_published();
    }

    /// Takes the work for another thread. [`Conversation::job_done`] takes the job's reply.
    pub fn take_job(&mut self) -> Option<Job> {
        let mut job = self.job.take()?;
        self.is_waiting_for_job = true;
        job.is_silent |= self.client.silence != Silence::None;
        Some(job)
    }

    /// Whether the replies of a job are in version 3 of the protocol.
    pub fn is_resp3(&self) -> bool {
        self.client.is_resp3
    }

    /// Takes the reply of a job. If the reply waits for an acknowledgement, returns the ticket with
    /// the mark to pass to [`Conversation::acknowledged`].
    pub fn job_done(&mut self, shared: &Arc<Shared>, reply: JobReply) -> Option<(Ticket, u64)> {
        self.is_waiting_for_job = false;
        self.client.entry.is_over_limit.fetch_or(reply.is_over_limit, Relaxed);
        let replies = usize::from(!reply.bytes.is_empty());
        let from = self.replies.append(reply.bytes);
        let mut end = reply.end;
        // A job with its transactions on disk has no order.
        self.order = end.order.take().unwrap_or_else(|| std::mem::take(&mut self.order));
        let ticket = self.finish(shared, from, end);
        let parked = match ticket {
            Some(ticket) if !ticket.is_acknowledged().unwrap_or(false) => {
                let mark = self.seal_transaction(shared, replies, &ticket);
                Some((ticket, mark))
            }
            // The transaction of a silent client has no reply already.
            Some(_) => {
                self.replies.seal_free();
                None
            }
            None => {
                self.seal_local(from, false);
                None
            }
        };
        self.exec_durability = None;
        self.deliver();
        parked
    }

    /// Runs the client's input, a turn's worth.
    pub fn run(&mut self, turn: &mut Turn<'_>) -> Next {
        self.receive();
        let next = self.run_input(turn);
        self.deliver();
        match next {
            Next::Wait if self.has_deliverable() => Next::Again,
            next => next,
        }
    }

    fn run_input(&mut self, turn: &mut Turn<'_>) -> Next {
        let mut left = MOST_COMMANDS;
        // A waiting command may be the first of a queue: it runs, whatever its client reads.
        let may_run = |conversation: &Self| {
            !conversation.is_full() || conversation.is_blocked() && !conversation.is_waiting_for_job
        };
        while may_run(&*self) && self.job.is_none() {
            if !self.look_at_awaited(turn) {
                return Next::Wait;
            }
            if self.run.is_empty() && self.blocked.is_some() {
                if !self.look_at_blocked(turn) {
                    return Next::Wait;
                }
                continue;
            }
            if self.run.is_empty() {
                if self.client.is_closing || left == 0 {
                    return if self.client.is_closing { Next::Wait } else { Next::Again };
                }
                match self.collect(turn, left) {
                    0 if self.paused.is_some() => return Next::Pause,
                    0 => {
                        self.end_broken(turn.shared);
                        return Next::Wait;
                    }
                    taken => left -= taken.min(left),
                }
                if self.run.is_empty() {
                    continue;
                }
            }
            if self.is_run_paused(turn) {
                return Next::Pause;
            }
            match self.execute(turn) {
                Execution::Done(_) => {}
                // The run may take a while: the loop goes on without it.
                Execution::Patience => {
                    self.job = Some(self.take_run_job());
                }
                // An executor's transaction may take long: until it ends, another attempt would
                // only fail.
                Execution::Conflict if turn.shared.patient.load(Relaxed) > 0 => {
                    return Next::Pause;
                }
                Execution::Conflict | Execution::Marked => return Next::Again,
                Execution::NoRoom => return Next::Pause,
                Execution::Parted => self.part(),
            }
        }
        Next::Wait
    }

    /// Takes the next transaction of the run as a job. Nothing runs before its reply is here, and
    /// with the reply the order.
    fn take_run_job(&mut self) -> Job {
        let long = self.take_long_input();
        let job = self.run.take_job(&self.client, &self.order, &self.input, long);
        self.client.end_caching();
        job
    }

    fn execute(&mut self, turn: &mut Turn<'_>) -> Execution {
        let Some(session) = &mut turn.session else {
            unreachable!("a run is collected only if there is a session")
        };
        let from = self.replies.buffer().len();
        let (wrote, is_exec) = (self.run.writes(), self.run.is_exec());
        let (run, replies, snapshot) = (&mut self.run, &mut self.replies, turn.snapshot);
        let mut session = session.in_order(&mut self.order);
        let mut execute = || {
            run.execute(turn.shared, (&mut session, snapshot), &self.client, &self.input, replies)
        };
        let (mut done, mut tries) = (execute(), 1);
        // Other clients of the loop, which may change marked rows, are served after this client.
        while matches!(done, Execution::Marked) && tries < MOST_MARKED_AT_ONCE {
            (done, tries) = (execute(), tries + 1);
        }
        drop(session);
        if matches!(done, Execution::Parted) {
            self.replies.buffer().truncate(from);
        }
        if let Execution::Done(end) = &mut done {
            let (replies, end) = (end.replies, std::mem::take(end));
            if let Some(ticket) = self.finish(turn.shared, from, end) {
                self.seal_run(turn, (ticket, replies), (wrote, is_exec));
            }
        }
        if matches!(done, Execution::Done(_)) {
            self.client.end_caching();
        }
        self.exec_durability = None;
        if self.run.is_empty() {
            self.compact();
        }
        done
    }

    /// Seals the replies of a run with a ticket.
    fn seal_run(
        &mut self,
        turn: &mut Turn<'_>,
        (ticket, replies): (Ticket, usize),
        (wrote, is_exec): (bool, bool),
    ) {
        let is_told_at_once = broken!(ReadWithoutNeeds) && !wrote;
        // The data read may be on disk already.
        if is_told_at_once || ticket.is_acknowledged().unwrap_or(false) {
            return self.replies.seal_free();
        }
        if is_exec {
            self.replies.hold_free();
        }
        let mark = self.seal_transaction(turn.shared, replies, &ticket);
        turn.parked.push((ticket, mark));
    }

    /// Does the remaining work of a run, or a job. The replies begin at `from`. Returns the ticket.
    fn finish(&mut self, shared: &Arc<Shared>, from: usize, end: RunEnd) -> Option<Ticket> {
        self.tell_monitors(shared, end.lines);
        self.run_locals(shared, from, &end.exec_ends);
        let is_error = self.replies.buffer().get(from) == Some(&b'-');
        self.end_unfinished(shared, end.time, is_error);
        self.settle_waiting(shared, end.wait);
        self.publish_events(shared, end.events);
        self.tell_trackers(shared, end.changed);
        self.tell_reads(shared, &end.read_elsewhere);
        if end.unwatched {
            self.client.watched.clear();
        }
        self.client.watched.extend(end.watched);
        end.ticket.iter().for_each(|ticket| self.client.note_ticket(ticket));
        end.ticket
    }

    /// Takes requests: the next run, or a request outside of transactions, which runs at once.
    /// Returns the number of requests.
    fn collect(&mut self, turn: &mut Turn<'_>, most: usize) -> usize {
        let (mut taken, begin) = (0, self.taken);
        while taken < most && self.taken - begin < MOST_RUN_BYTES {
            let request = match self.stash.take() {
                Some(request) => request,
                None => match self.parse(turn.shared) {
                    Some(request) => request,
                    None => return taken,
                },
            };
            if self.is_paused(turn, &request) {
                self.stash = Some(request);
                return taken;
            }
            let place = request.place();
            let is_data = place.is_some_and(|at| catalogue::all()[at].phase == Phase::Data)
                && request.has_arity()
                && self.client.silence == Silence::None
                && self.client.multi.is_none()
                && !self.client.only_listens()
                && self.client.monitoring.is_none()
                && turn.session.is_some()
                && self.client.watched.len() < MOST_WATCHED
                && self.is_admitted(turn.shared, &request);
            // Reads in front of a run do not wait for the writes behind them.
            let joins = is_data
                && !request.is_alone()
                && place.is_none_or(|at| self.run.takes(&catalogue::all()[at]));
            if joins {
                self.run.push(request);
                taken += 1;
            } else if self.run.is_empty() {
                if self.holds(&turn.shared.access, &request) {
                    self.stash = Some(request);
                    return taken;
                }
                self.run_alone(turn, request, is_data);
                return taken + 1;
            } else {
                self.stash = Some(request);
                return taken;
            }
        }
        taken
    }

    /// Runs a request by itself.
    fn run_alone(&mut self, turn: &mut Turn<'_>, request: Request, is_data: bool) {
        if is_data {
            return self.run.push(request);
        }
        if self.client.silence == Silence::Next {
            self.client.silence = Silence::This;
        }
        let from = self.replies.buffer().len();
        let command = request.place().map(|at| &catalogue::all()[at]);
        let subscribes = command.is_some_and(|command| command.name.ends_with("subscribe"));
        let is_client = command.is_some_and(|command| command.name == "client");
        let is_queued_or_run = self.answer(turn, request);
        if is_queued_or_run && !is_client && self.client.multi.is_none() {
            self.client.end_caching();
        }
        if self.job.is_none() && is_queued_or_run {
            // Subscriptions are confirmed by messages. Errors, and QUEUED, are not messages.
            let first = self.replies.buffer().get(from);
            let is_message = subscribes && matches!(first, Some(b'*' | b'>'));
            self.seal_local(from, is_message);
        }
        if self.run.is_empty() {
            self.compact();
        }
    }
}

#[cfg(test)]
mod tests;
