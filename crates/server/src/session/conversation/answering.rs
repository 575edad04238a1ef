//! Requests outside of the transactions of their neighbours: commands on the connection or the
//! server, and errors.

use super::{Client, Conversation, MOST_WATCHED, Silence, Turn};
use crate::catalogue::{self, Command, Phase, names};
use crate::commands::{
    Function, Local, LocalCommand, function, no_such_subcommand, unsupported_error,
};
use crate::data::keyspace::Stop;
use crate::request::Request;
use crate::resp::reply::{Reply, TOO_LONG_FOR_CLIENT};
use crate::state::Shared;
use crate::state::memory::OUT_OF_MEMORY;
use hyades::Session;
use hyades_platform::sync::Unpoisoned;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

impl Conversation {
    /// Replies to a request outside of a run; false if the request has become a run, whose replies
    /// are written later.
    pub(super) fn answer(&mut self, turn: &mut Turn<'_>, request: Request) -> bool {
        let place = request.place();
        let command = place.map(|at| &catalogue::all()[at]);
        // Errors of the request itself have precedence over missing rights of its user.
        let has_arity = command.is_none() || request.has_arity();
        let refused = command.filter(|_| has_arity).and_then(|command| {
            let unknown = no_such_subcommand(&request.arguments(&self.input));
            unknown.or_else(|| self.refused(turn.shared, &request, Some(command)))
        });
        let error = match command {
            _ if refused.is_some() => refused,
            None => {
                let arguments = request.arguments(&self.input);
                // A browser made to send commands: it would send more commands if it were answered.
                if ["post", "host:"].iter().any(|w| arguments[0].eq_ignore_ascii_case(w.as_bytes()))
                {
                    self.client.is_closing = true;
                    return false;
                }
                let text = unsupported_error(&arguments);
                drop(arguments);
                Some(self.refused(turn.shared, &request, None).unwrap_or(text))
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
            Some(command) => {
                let grows = request.grows(&self.input);
                self.refusal_by_slot(turn.shared, &request, command)
                    .or_else(|| refusal(&self.client, command, grows, turn))
                    .or_else(|| self.refusal_in_import(turn.shared, &request, command))
                    .or_else(|| self.refusal_by_role(turn.shared, &request, command))
            }
        };
        if let Some(text) = error {
            self.reject(turn.shared, &request, text);
            return true;
        }
        let command = command.expect("it has no error");
        let name = turn.shared.stats.commands.name(&request, &self.input);
        self.client.entry.names.lock().unpoisoned().command = name;
        if self.client.multi.is_some() || command.phase == Phase::Multi {
            return self.multi(turn, request, command);
        }
        let run = match function(request.place().expect("it is a command")) {
            Function::Local(run) => run,
            Function::Data(_) | Function::Script(_) | Function::Conversation => {
                // A silent client's command runs like any other, and its reply is dropped.
                self.run.push(request);
                self.take_silence();
                return false;
            }
        };
        self.run_local((turn.shared, turn.session.as_deref_mut()), run, &request, None);
        true
    }

    /// Why a live import refuses a request, also a request that MULTI queues.
    fn refusal_in_import(
        &self,
        shared: &Shared,
        request: &Request,
        command: &Command,
    ) -> Option<String> {
        if !shared.live_import.is_on() || !matches!(command.phase, Phase::Data | Phase::Open) {
            return None;
        }
        let writes = names::writes(request.place()?, &request.arguments(&self.input));
        // A command on no data is not refused while values are loaded.
        let is_on_data = command.phase == Phase::Data || command.has(catalogue::READ);
        shared.live_import.refusal(writes).filter(|_| writes || is_on_data)
    }

    /// Replies an error to a request neither run nor queued: EXEC will run none.
    fn reject(&mut self, shared: &Shared, request: &Request, text: String) {
        let command = request.place().map(|at| &catalogue::all()[at]);
        let is_exec = command.is_some_and(|command| command.name == "exec");
        let text = match text.strip_prefix("ERR ").unwrap_or(&text) {
            // A client of a cluster sends the commands elsewhere, or again.
            cause if is_exec && is_of_cluster(cause) => {
                self.drop_transaction();
                text
            }
            // A server whose log has failed ends.
            cause if is_exec && !cause.starts_with("MISCONF") => {
                self.drop_transaction();
                format!("EXECABORT Transaction discarded because of: {cause}")
            }
            _ => text,
        };
        if let Some(multi) = &mut self.client.multi {
            multi.is_refused = true;
        }
        shared.stats.count_error(&text);
        if command.is_some() {
            shared.stats.commands.reject(request, &self.input);
        }
        Reply::new(self.replies.buffer(), self.client.is_resp3).error(&text);
    }

    /// Appends the reply of a command outside of transactions, perhaps in an EXEC, whose reply
    /// begins at `exec`.
    pub(super) fn run_local(
        &mut self,
        (shared, session): (&Arc<Shared>, Option<&mut Session>),
        run: LocalCommand,
        request: &Request,
        exec: Option<usize>,
    ) {
        // CLIENT LIST shows the buffer as it is while the command runs.
        self.client.entry.sizes.input.store(self.input.len() as u64, Relaxed);
        let args: SmallVec<[&[u8]; 8]> = request.arguments(&self.input);
        let (client, job) = (&mut self.client, &mut self.job);
        let (resp3, now_ms) = (client.is_resp3, shared.clock.now_ms());
        // Dropped replies wait for no client.
        let is_silent = client.silence != Silence::None;
        let most = if is_silent { 0 } else { client.most_output(&shared.settings.output_limits) };
        let started = Instant::now();
        let is_in_exec = exec.is_some();
        let order = &self.order;
        let mut local = Local { client, order, shared, now_ms, job, session, is_in_exec };
        let reply = Reply::limited(self.replies.buffer(), resp3, most);
        let mut reply = match exec {
            Some(begin) => reply.counted_from(begin),
            None => reply,
        };
        let from = reply.position();
        let mut result = run(&mut local, &args, &mut reply);
        if let Some(text) = reply.too_long() {
            local.client.entry.is_over_limit.fetch_or(text == TOO_LONG_FOR_CLIENT, Relaxed);
            result = Err(text.into());
        }
        let time = started.elapsed();
        let is_error = result.is_err();
        if let Err(stop) = result {
            reply.truncate(from);
            let text = match stop {
                Stop::Error(text) | Stop::ErrorKept(text) => text.into_owned(),
                Stop::Abort(abort) => format!("ERR {abort}"),
            };
            shared.stats.count_error(&text);
            reply.error(&text);
        }
        drop(args);
        match self.job {
            Some(_) => self.begin_unfinished(request.clone(), time),
            None => self.note_ran(shared, request, time, is_error),
        }
        self.publish(&shared.wiring.channels);
    }

    /// Makes the run silent if the client wants no reply to its only request.
    pub(super) fn take_silence(&mut self) {
        self.run.is_silent = self.client.silence != Silence::None;
        if self.client.silence == Silence::This {
            self.client.silence = Silence::None;
        }
    }
}

/// Whether an error is one by which a node of a cluster sends its client elsewhere.
fn is_of_cluster(text: &str) -> bool {
    ["MOVED ", "CLUSTERDOWN ", "CROSSSLOT "].iter().any(|code| text.starts_with(code))
}

/// Whether a client with subscriptions may send the command, in version 2 of the protocol.
pub(super) fn may_listen(command: &Command) -> bool {
    matches!(command.name, "ping" | "quit" | "reset")
        || command.group == "pubsub" && command.name.ends_with("subscribe")
}

/// Why a command cannot run now. `grows`: the request may use more memory.
pub(super) fn refusal(
    client: &Client,
    command: &Command,
    grows: bool,
    turn: &Turn<'_>,
) -> Option<String> {
    let needs_database = matches!(command.phase, Phase::Data | Phase::Open);
    if let Some(cause) = turn.shared.store.log_failure() {
        turn.shared.stop_for_log(&cause);
        if !turn.shared.membership.is_on() {
            return Some(format!("MISCONF {cause}"));
        }
        // Not begun, so a client of a member may send it again elsewhere.
        if needs_database {
            return Some(turn.shared.loading());
        }
    }
    if needs_database && client.monitoring.is_some() {
        return Some("ERR a client that monitors has no access to keys: RESET ends that".into());
    }
    if needs_database && turn.session.is_none() {
        return Some(turn.shared.loading());
    }
    if may_use_memory(client, command, grows) && turn.shared.is_out_of_memory() {
        turn.shared.note_out_of_memory();
        return Some(OUT_OF_MEMORY.to_string());
    }
    None
}

/// Whether a command is refused when there is no memory left: the commands queued by MULTI take
/// memory, and EXEC runs them.
fn may_use_memory(client: &Client, command: &Command, grows: bool) -> bool {
    match &client.multi {
        Some(multi) if command.name == "exec" => multi.queued.grows(),
        Some(_) => !matches!(command.name, "discard" | "quit" | "reset"),
        None => grows,
    }
}
