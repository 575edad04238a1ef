//! Requests that do not run in a transaction with their neighbours: commands on the connection or
//! the server, errors, and MULTI.

use super::{Conversation, Multi, Silence, Turn};
use crate::commands::table::{self, Command, Run};
use crate::commands::{Local, TOO_LONG, unsupported_error};
use crate::data::keyspace::Stop;
use crate::resp::reply::Reply;
use crate::runs::Request;
use smallvec::SmallVec;
use std::sync::atomic::Ordering::Relaxed;

/// Most bytes of memory that the commands take which MULTI queues. (Tests do with less.)
const MOST_QUEUED: usize = if cfg!(test) { 1 << 20 } else { 256 << 20 };

impl Conversation {
    /// Replies to a request outside of a run; false if it has become a run, whose replies come
    /// later.
    pub(super) fn answer(&mut self, turn: &mut Turn<'_>, request: Request, from: usize) -> bool {
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
        let (command, place) = (command.expect("it has no error"), place.expect("as well"));
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
        let args: SmallVec<[&[u8]; 8]> = request.arguments(&self.input);
        let (client, job) = (&mut self.client, &mut self.job);
        let now_ms = turn.shared.clock.now_ms();
        let session = turn.session.as_deref_mut();
        let mut local = Local { client, shared: turn.shared, now_ms, job, session };
        let mut reply = Reply::new(self.replies.buffer(), resp3);
        let mut result = run(&mut local, &args, &mut reply);
        if reply.is_too_long() {
            result = Err(TOO_LONG.into());
        }
        turn.shared.counters.commands.fetch_add(1, Relaxed);
        turn.shared.calls[place].0.fetch_add(1, Relaxed);
        if let Err(stop) = result {
            reply.truncate(from);
            let text = match stop {
                Stop::Error(text) => text.into_owned(),
                Stop::Abort(abort) => format!("ERR {abort}"),
            };
            turn.shared.count_error(&text);
            turn.shared.calls[place].1.fetch_add(1, Relaxed);
            reply.error(&text);
        }
        true
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
            (_, Run::Data(_)) => {
                multi.bytes += request.memory(&self.input);
                if multi.bytes > MOST_QUEUED {
                    (multi.is_refused, multi.queued) = (true, Vec::new());
                    return refuse("ERR MULTI has queued more than 256 MiB");
                }
                multi.queued.push(request.into_owned(&self.input));
                self.client.entry.queued.store(multi.queued.len() as i64, Relaxed);
                reply.simple("QUEUED");
                return true;
            }
            (name, _) => {
                multi.is_refused = true;
                let text = format!("ERR {name} inside MULTI is not built yet");
                return refuse(&text);
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
            _ if multi.queued.is_empty() && watched.is_empty() => reply.array(0),
            _ => {
                self.run.set_exec(multi.queued, watched);
                self.take_silence();
                return false;
            }
        }
        true
    }
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
