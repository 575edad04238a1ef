//! Requests that do not run in a transaction with their neighbours: commands on the connection or
//! the server, errors, and MULTI.

use super::{Conversation, MOST_WATCHED, Multi, Silence, Turn};
use crate::commands::table::{self, Command, Run};
use crate::commands::{Local, LocalCommand, TOO_LONG, database, unsupported_error};
use crate::data::keyspace::Stop;
use crate::resp::reply::Reply;
use crate::runs::{Exec, Request};
use crate::shared::Shared;
use hyades::Session;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Most bytes of memory that the commands take which MULTI queues. (Tests do with less.)
const MOST_QUEUED: usize = if cfg!(test) { 1 << 20 } else { 256 << 20 };

impl Conversation {
    /// Replies to a request outside of a run; false if it has become a run, whose replies come
    /// later.
    pub(super) fn answer(&mut self, turn: &mut Turn<'_>, request: Request) -> bool {
        let place = request.place();
        let command = place.map(|at| &table::all()[at]);
        let error = match command {
            None => {
                let arguments = request.arguments(&self.input);
                // A browser that was made to send commands: it sends more of them if it is
                // answered.
                if ["post", "host:"].iter().any(|w| arguments[0].eq_ignore_ascii_case(w.as_bytes()))
                {
                    self.client.is_closing = true;
                    return false;
                }
                Some(unsupported_error(&arguments))
            }
            Some(command) if !request.has_arity() => {
                let name = command.name;
                Some(format!("ERR wrong number of arguments for '{name}' command"))
            }
            Some(command)
                if command.name == "watch" && self.client.watched.len() >= MOST_WATCHED =>
            {
                Some(format!("ERR this client watches {MOST_WATCHED} keys: EXEC or UNWATCH them"))
            }
            Some(command) if self.client.only_listens() && !may_listen(command) => {
                let name = command.name;
                Some(format!(
                    "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / \
                     QUIT / RESET are allowed in this context"
                ))
            }
            Some(command) => refusal(command, turn),
        };
        let resp3 = self.client.is_resp3;
        if let Some(text) = error {
            if let Some(multi) = &mut self.client.multi {
                multi.is_refused = true;
            }
            turn.shared.count_error(&text);
            Reply::new(self.replies.buffer(), resp3).error(&text);
            return true;
        }
        let command = command.expect("it has no error");
        self.client.entry.names.lock().expect("no holder panics").command = command.name;
        if self.client.multi.is_some() || matches!(command.run, Run::Multi) {
            return self.multi(turn, request, command);
        }
        let run = match command.run {
            Run::Local(run) | Run::Open(run) => run,
            Run::Data(_) | Run::Multi => {
                // A silent client's command runs like any other, and its reply is dropped.
                self.run.push(request);
                self.take_silence();
                return false;
            }
        };
        self.run_local(turn.shared, turn.session.as_deref_mut(), run, &request);
        true
    }

    /// Appends the reply of a command that runs outside of transactions.
    fn run_local(
        &mut self,
        shared: &Arc<Shared>,
        session: Option<&mut Session>,
        run: LocalCommand,
        request: &Request,
    ) {
        let args: SmallVec<[&[u8]; 8]> = request.arguments(&self.input);
        let (client, job) = (&mut self.client, &mut self.job);
        let (resp3, now_ms) = (client.is_resp3, shared.clock.now_ms());
        let mut local = Local { client, shared, now_ms, job, session };
        let mut reply = Reply::new(self.replies.buffer(), resp3);
        let from = reply.position();
        let mut result = run(&mut local, &args, &mut reply);
        if reply.is_too_long() {
            result = Err(TOO_LONG.into());
        }
        let calls = &shared.calls[request.place().expect("it is a command")];
        shared.counters.commands.fetch_add(1, Relaxed);
        calls.0.fetch_add(1, Relaxed);
        if let Err(stop) = result {
            reply.truncate(from);
            let text = match stop {
                Stop::Error(text) => text.into_owned(),
                Stop::Abort(abort) => format!("ERR {abort}"),
            };
            shared.count_error(&text);
            calls.1.fetch_add(1, Relaxed);
            reply.error(&text);
        }
        drop(args);
        self.publish(&shared.channels);
    }

    /// Runs the commands of MULTI that are no part of its transaction, which has committed, and
    /// puts their replies between those of the transaction. `from` is where the reply of EXEC
    /// begins, and `ends` are those of its parts: none if the transaction has not run.
    pub(super) fn run_locals(&mut self, shared: &Arc<Shared>, from: usize, ends: &[usize]) {
        let locals = std::mem::take(&mut self.locals);
        let Some((head, mut ends)) = ends.split_first().filter(|_| !locals.is_empty()) else {
            return;
        };
        let buffer = self.replies.buffer();
        // A silent client gets no reply, and nothing is in the buffer.
        let is_silent = buffer.len() == from;
        let written = buffer.split_off(buffer.len().min(from + head));
        let (mut copied, mut at) = (0, 0);
        for (place, request) in locals {
            let before = place - at;
            if let Some(last) = before.checked_sub(1).filter(|_| !is_silent) {
                let end = ends[last] - head;
                self.replies.buffer().extend_from_slice(&written[copied..end]);
                copied = end;
            }
            ends = &ends[before..];
            self.run_in_exec(shared, &request);
            at = place + 1;
        }
        self.replies.buffer().extend_from_slice(&written[copied..]);
        if is_silent {
            self.replies.buffer().truncate(from);
        }
    }

    fn run_in_exec(&mut self, shared: &Arc<Shared>, request: &Request) {
        let command = &table::all()[request.place().expect("it is a command")];
        let Run::Local(run) = command.run else { unreachable!("MULTI has queued no other") };
        let from = self.replies.buffer().len();
        self.run_local(shared, None, run, request);
        // Nothing of the job was done.
        if self.job.take().is_some() {
            let text = format!(
                "ERR {} with these arguments takes a while: send it outside of MULTI",
                command.name.to_uppercase()
            );
            shared.count_error(&text);
            self.replies.buffer().truncate(from);
            Reply::new(self.replies.buffer(), self.client.is_resp3).error(&text);
        }
    }

    /// The run is silent if the client wants no reply to its only request.
    fn take_silence(&mut self) {
        self.run.is_silent = self.client.silence != Silence::None;
        if self.client.silence == Silence::This {
            self.client.silence = Silence::None;
        }
    }

    /// MULTI, and what follows it up to EXEC. False if EXEC has become a run.
    fn multi(&mut self, turn: &mut Turn<'_>, request: Request, command: &Command) -> bool {
        let mut reply = Reply::new(self.replies.buffer(), self.client.is_resp3);
        let mut refuse = |text: &str| {
            turn.shared.count_error(text);
            reply.error(text);
            true
        };
        let Some(multi) = &mut self.client.multi else {
            if command.name != "multi" {
                let name = command.name.to_uppercase();
                return refuse(&format!("ERR {name} without MULTI"));
            }
            self.client.multi = Some(Multi::default());
            self.client.entry.queued.store(0, Relaxed);
            reply.ok();
            return true;
        };
        match (command.name, command.run) {
            ("multi", _) => return refuse("ERR MULTI calls can not be nested"),
            ("watch", _) => return refuse("ERR WATCH inside MULTI is not allowed"),
            ("discard", _) | ("exec", _) | ("reset", _) | ("quit", _) => {}
            (name, _)
                if matches!(command.run, Run::Open(_))
                    || name == "shutdown"
                    || name.ends_with("subscribe") =>
            {
                multi.is_refused = true;
                let name = name.to_uppercase();
                return refuse(&format!("ERR {name} inside MULTI is not allowed"));
            }
            (name, run) => {
                let args: SmallVec<[&[u8]; 8]> = request.arguments(&self.input);
                if name == "client" && args[1].eq_ignore_ascii_case(b"reply") {
                    multi.is_refused = true;
                    return refuse("ERR CLIENT REPLY inside MULTI is not allowed");
                }
                if name == "select" {
                    let number = database(args[1], turn.shared.settings.databases());
                    multi.database = number.ok().or(multi.database);
                }
                drop(args);
                multi.bytes += request.memory(&self.input);
                if multi.bytes > MOST_QUEUED {
                    *multi = Multi { is_refused: true, bytes: multi.bytes, ..Multi::default() };
                    return refuse("ERR MULTI has queued more than 256 MiB");
                }
                let request = request.into_owned(&self.input).in_database(multi.database);
                match run {
                    Run::Data(_) => multi.queued.push(request),
                    _ => multi.locals.push((multi.count(), request)),
                }
                self.client.entry.queued.store(multi.count() as i64, Relaxed);
                reply.simple("QUEUED");
                return true;
            }
        }
        let multi = self.client.multi.take().expect("it was found above");
        self.client.entry.queued.store(-1, Relaxed);
        // Whatever becomes of it, its keys are not watched any more.
        let watched = std::mem::take(&mut self.client.watched);
        match command.name {
            "discard" => reply.ok(),
            "quit" => {
                self.client.is_closing = true;
                reply.ok();
            }
            "reset" => {
                self.client.reset();
                reply.set_version(false);
                reply.simple("RESET");
            }
            _ if multi.is_refused => {
                return refuse("EXECABORT Transaction discarded because of previous errors.");
            }
            _ => {
                let (count, others) = (multi.count(), multi.locals.len());
                self.locals = multi.locals;
                if multi.queued.is_empty() && watched.is_empty() {
                    let from = reply.position();
                    reply.array(count);
                    let head = reply.position() - from;
                    self.run_locals(turn.shared, from, &[head]);
                    return true;
                }
                self.run.set_exec(multi.queued, Exec { watched, others });
                self.take_silence();
                return false;
            }
        }
        true
    }
}

/// Whether a client may send the command that has subscribed, in version 2 of the protocol.
fn may_listen(command: &Command) -> bool {
    matches!(command.name, "ping" | "quit" | "reset")
        || command.group == "pubsub" && command.name.ends_with("subscribe")
}

/// Why a command cannot run now.
fn refusal(command: &Command, turn: &Turn<'_>) -> Option<String> {
    if let Some(cause) = turn.shared.log_failure() {
        turn.shared.stop_for_log(&cause);
        return Some(format!("MISCONF {cause}"));
    }
    let needs_database = matches!(command.run, Run::Data(_) | Run::Open(_));
    if !needs_database || turn.session.is_some() {
        return None;
    }
    let progress = turn.shared.progress.lock().expect("no holder panics").clone();
    let Some(progress) = progress else {
        return Some("LOADING the database is being opened".to_string());
    };
    let percent = 100 * progress.bytes_done / progress.bytes_total.max(1);
    Some(match progress.estimate_seconds {
        Some(left) => format!("LOADING {percent} %, about {left:.0} s left"),
        None => format!("LOADING {percent} %"),
    })
}
