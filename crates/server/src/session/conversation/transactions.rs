//! MULTI, EXEC and DISCARD.

use super::{Conversation, Durability, Multi, Turn};
use crate::catalogue::{self, Command, Phase};
use crate::client::QueuedCommands;
use crate::clients::tracking::TrackingState;
use crate::commands::{Function, database, function};
use crate::request::Request;
use crate::resp::is;
use crate::resp::reply::Reply;
use crate::session::refusing::refuse_queued;
use crate::session::runs::{Exec, ExecCommands};
use crate::state::Shared;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Most bytes of memory of the commands queued by MULTI. (Tests do with less.)
const MOST_QUEUED: usize = if cfg!(test) { 1 << 20 } else { 256 << 20 };

/// Whether a command with this number of arguments may log in.
pub(super) fn tries_to_log_in(name: &str, arguments: usize) -> bool {
    name == "auth" || name == "hello" && arguments > 2
}

/// Whether a command begins work that takes a while, and replies before the work is done.
fn is_begun_at_once(name: &str) -> bool {
    matches!(name, "bgrewriteaof" | "bgsave")
}

impl Conversation {
    /// Runs MULTI, and the commands behind it up to EXEC. False if EXEC has become a run.
    pub(super) fn multi(
        &mut self,
        turn: &mut Turn<'_>,
        request: Request,
        command: &Command,
    ) -> bool {
        let started = Instant::now();
        let ends = ["multi", "watch", "discard", "exec", "reset", "quit"].contains(&command.name);
        let noted = (self.client.multi.is_none() || ends).then(|| request.clone());
        let mut reply = Reply::new(self.replies.buffer(), self.client.is_resp3);
        let result = match (command.name, &self.client.multi) {
            ("multi", None) => {
                self.client.multi = Some(Multi::default());
                self.client.entry.sizes.queued.store(0, Relaxed);
                reply.ok();
                Ok(true)
            }
            (name, None) => Err(format!("ERR {} without MULTI", name.to_uppercase()).into()),
            ("multi", _) => Err("ERR MULTI calls can not be nested".into()),
            ("watch", _) => Err("ERR WATCH inside MULTI is not allowed".into()),
            ("discard" | "exec" | "reset" | "quit", _) => self.end_multi(turn, command.name),
            _ => self.queue(turn, request, command),
        };
        match noted {
            Some(request) if result == Ok(false) => {
                self.begin_unfinished(request, started.elapsed());
            }
            Some(request) => {
                self.note_ran(turn.shared, &request, started.elapsed(), result.is_err());
            }
            None => {}
        }
        result.unwrap_or_else(|text: Cow<'static, str>| {
            turn.shared.stats.count_error(&text);
            Reply::new(self.replies.buffer(), self.client.is_resp3).error(&text);
            true
        })
    }

    /// Queues a command behind MULTI. If the command is not allowed there, EXEC runs none.
    fn queue(
        &mut self,
        turn: &Turn<'_>,
        request: Request,
        command: &Command,
    ) -> Result<bool, Cow<'static, str>> {
        let multi = self.client.multi.as_mut().expect("it was found");
        let name = command.name;
        let args: SmallVec<[&[u8]; 8]> = request.arguments(&self.input);
        let silences = name == "client" && args[1].eq_ignore_ascii_case(b"reply");
        let logs_in = tries_to_log_in(name, args.len());
        let is_out_of_place = command.phase == Phase::Open && !is_begun_at_once(name)
            || name == "shutdown"
            || name == "monitor"
            // EXEC has not run yet.
            || matches!(name, "hyades.last" | "hyades.rollback")
            || name.ends_with("subscribe")
            // Each attempt has to wait by itself, if at all; EXEC waits for one.
            || logs_in && multi.logs_in
            || silences;
        if is_out_of_place {
            multi.is_refused = true;
            let name = if silences { "CLIENT REPLY".into() } else { name.to_uppercase() };
            let text = "ERR Command not allowed inside a transaction";
            return Err(format!("{text}: send {name} outside of MULTI").into());
        }
        multi.logs_in |= logs_in;
        if name == "select" {
            let number = database(args[1], turn.shared.settings.databases());
            multi.database = number.ok().or(multi.database);
        }
        if turn.shared.settings.is_cluster() {
            multi.slots = multi.slots.and(catalogue::slots_of(command, &args));
        }
        drop(args);
        multi.bytes += request.memory(&self.input);
        if multi.bytes > MOST_QUEUED {
            *multi = Multi { is_refused: true, bytes: multi.bytes, ..Multi::default() };
            return Err("ERR MULTI has queued more than 256 MiB".into());
        }
        let request = request.in_database(multi.database);
        match command.phase {
            Phase::Data => multi.queued.push(request, &self.input),
            _ => multi.locals.push((multi.count(), request.into_owned(&self.input))),
        }
        self.client.entry.sizes.queued.store(multi.count() as i64, Relaxed);
        Reply::new(self.replies.buffer(), self.client.is_resp3).simple("QUEUED");
        Ok(true)
    }

    /// Drops the commands queued by MULTI, and the keys watched by WATCH.
    pub(super) fn drop_transaction(&mut self) {
        self.client.multi = None;
        self.client.entry.sizes.queued.store(-1, Relaxed);
        self.client.watched.clear();
    }

    /// Ends the state that MULTI has begun.
    fn end_multi(&mut self, turn: &Turn<'_>, name: &str) -> Result<bool, Cow<'static, str>> {
        let multi = self.client.multi.take().expect("it was found");
        self.client.entry.sizes.queued.store(-1, Relaxed);
        // Whatever the outcome of the command, the keys are not watched any more.
        let watched = std::mem::take(&mut self.client.watched);
        let mut reply = Reply::new(self.replies.buffer(), self.client.is_resp3);
        match name {
            "discard" => reply.ok(),
            "quit" => {
                self.client.quit();
                reply.ok();
            }
            "reset" => {
                self.client.reset(&turn.shared.access);
                reply.set_version(false);
                reply.simple("RESET");
            }
            _ if multi.is_refused => {
                return Err("EXECABORT Transaction discarded because of previous errors.".into());
            }
            _ => {
                let (count, others) = (multi.count(), multi.locals.len());
                let Multi { queued, locals, .. } = multi;
                let runs = !queued.is_empty() || !watched.is_empty();
                let commands = self.admit_queued(turn.shared, queued);
                self.locals = locals;
                let (login, entry) = (&mut self.client.login, &self.client.entry);
                let all = self.locals.iter_mut().map(|(_, request)| request);
                refuse_queued(turn.shared, login, entry, all, b"");
                // CLIENT CACHING stands in front of commands, and is about all of them.
                let names_all = |request: &Request| {
                    let args = request.arguments(b"");
                    is(args[0], "CLIENT") && args.get(1).is_some_and(|word| is(word, "CACHING"))
                };
                if self.client.entry.tracking.has(TrackingState::OPTIN)
                    && self.locals.iter().any(|(_, request)| names_all(request))
                    && let Some(tracks) = &mut self.client.tracks
                {
                    tracks.is_named = true;
                }
                if runs {
                    let rolls_back = self.client.rolls_back;
                    self.run.set_exec(commands, Exec { watched, others, rolls_back });
                    self.take_silence();
                    return Ok(false);
                }
                let mut reply = Reply::new(self.replies.buffer(), self.client.is_resp3);
                let from = reply.position();
                reply.array(count);
                let head = reply.position() - from;
                self.run_locals(turn.shared, from, &[head]);
                self.exec_durability = None;
            }
        }
        Ok(true)
    }

    /// Returns the commands of the transaction; a command that the client may not run any more is
    /// refused. Many commands are checked where they are run.
    fn admit_queued(&mut self, shared: &Shared, queued: QueuedCommands) -> ExecCommands {
        if queued.is_long() {
            return ExecCommands::Many(queued);
        }
        let (mut few, input) = queued.into_one();
        let (login, entry) = (&mut self.client.login, &self.client.entry);
        refuse_queued(shared, login, entry, few.iter_mut(), &input);
        ExecCommands::Few(few, input)
    }

    /// Runs the commands of MULTI outside of its committed transaction, and puts their replies
    /// between the replies of the transaction. `from` is the begin of EXEC's reply, and `ends` are
    /// the ends of its parts: none if the transaction has not run.
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
            self.run_in_exec(shared, from, &request);
            at = place + 1;
        }
        self.replies.buffer().extend_from_slice(&written[copied..]);
        if is_silent {
            self.replies.buffer().truncate(from);
        }
    }

    fn run_in_exec(&mut self, shared: &Arc<Shared>, begin: usize, request: &Request) {
        let place = request.place().expect("it is a command");
        let name = catalogue::all()[place].name;
        let Function::Local(run) = function(place) else {
            unreachable!("the transaction runs all others");
        };
        let from = self.replies.buffer().len();
        if let Some(text) = request.refusal() {
            shared.stats.count_error(text);
            shared.stats.commands.reject(request, &[]);
            return Reply::new(self.replies.buffer(), self.client.is_resp3).error(text);
        }
        // HYADES.DURABILITY is about this EXEC, and nothing waits within the EXEC.
        let own = self.client.durability;
        self.client.durability = self.exec_durability.unwrap_or(own);
        // The unfinished EXEC itself.
        let exec = self.unfinished.take();
        self.run_local((shared, None), run, request, Some(begin));
        let of_exec = std::mem::replace(&mut self.client.durability, own);
        self.exec_durability = Some(of_exec);
        self.client.waits_for_disk = false;
        // Writes told early, or to be told early, need not be on disk.
        let is_early =
            [own, of_exec].iter().any(|durability| *durability != Durability::Acknowledged);
        if name == "waitaof" && is_early && self.replies.buffer()[from] == b'*' {
            self.replies.buffer().truncate(from);
            let mut reply = Reply::new(self.replies.buffer(), self.client.is_resp3);
            reply.array(2);
            reply.integer(0);
            reply.integer(0);
        }
        // Nothing of the job was done.
        if self.job.take().is_some() {
            self.unfinished = None;
            shared.stats.commands.reject(request, &[]);
            let text = format!(
                "ERR {} with these arguments takes a while: send it outside of MULTI",
                name.to_uppercase()
            );
            shared.stats.count_error(&text);
            self.replies.buffer().truncate(from);
            Reply::new(self.replies.buffer(), self.client.is_resp3).error(&text);
        }
        self.unfinished = exec;
    }
}
