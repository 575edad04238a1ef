//! What an attempt to run commands has left beside rows and replies.

use super::Exec;
use crate::catalogue;
use crate::clients::ClientEntry;
use crate::clients::monitors::MonitorLine;
use crate::clients::tracking::Changed;
use crate::commands::Caller;
use crate::data::keyspace::{Context, Effects, Notices};
use crate::request::Request;
use crate::resp::reply::TOO_LONG_FOR_CLIENT;
use crate::session::executed::ExecutedCommand;
use crate::state::Shared;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// What an attempt has left.
#[derive(Default)]
pub struct Wrote {
    /// Commands that have failed, by their places in the attempt, with their errors.
    pub failed: Vec<(usize, String)>,
    /// How long each command took, in nanoseconds, as far as they were run.
    pub times: Vec<u64>,
    /// See [`RunEnd::exec_ends`](crate::client::RunEnd::exec_ends).
    pub ends: Vec<usize>,
    /// What others are told of what was written.
    pub notices: Notices,
    /// The keys that are written are noted.
    pub notes_keys: bool,
    /// What clients that track are told, once it has committed.
    pub changed: Changed,
    /// See [`RunEnd::read_elsewhere`](crate::client::RunEnd::read_elsewhere).
    pub read_elsewhere: Vec<Vec<u8>>,
    /// What clients that monitor are told.
    pub lines: Vec<MonitorLine>,
    /// What they are told of the commands of scripts, by the place of the script in the attempt.
    script_lines: Vec<(usize, MonitorLine)>,
}

/// The sender of the commands of a run, and the input that they may be in.
pub struct Origin<'a> {
    /// The client.
    pub client: &'a ClientEntry,
    /// Its database.
    pub database: u32,
    /// Its input.
    pub input: &'a [u8],
}

impl Wrote {
    /// Forgets all: another attempt begins.
    pub fn clear(&mut self) {
        self.failed.clear();
        self.times.clear();
        self.ends.clear();
        self.notices.clear();
        self.changed = Changed::Nothing;
        self.lines.clear();
        self.script_lines.clear();
    }

    /// Takes what others are told of what a command has written, or has run.
    #[inline]
    pub fn note_written(
        &mut self,
        context: &Context<'_>,
        caller: &Caller<'_>,
        place: usize,
        args: &[&[u8]],
    ) {
        self.notes_keys = context.tracks;
        self.notices.append(&mut caller.notices.borrow_mut());
        let place_in_run = self.times.len() - 1;
        self.script_lines.extend(caller.lines.borrow_mut().drain(..).map(|l| (place_in_run, l)));
        self.notices.note(context, &catalogue::all()[place], args);
    }

    /// A part of the reply ends there, between which and the next one others may have to stand.
    #[inline]
    pub fn end_at(&mut self, exec: Option<&Exec>, position: usize) {
        if exec.is_some_and(|exec| exec.others > 0) {
            self.ends.push(position);
        }
    }

    /// The transaction has ended with an error: the command that ran last has failed.
    pub fn fail(&mut self, text: &str) {
        self.failed.clear();
        self.failed.extend(self.times.len().checked_sub(1).map(|at| (at, text.to_string())));
        self.ends.clear();
        self.notices.clear();
    }

    /// Applies and counts what was committed: the requests that have run.
    pub fn count(
        &mut self,
        shared: &Shared,
        origin: &Origin<'_>,
        requests: &[Request],
        effects: &Effects,
    ) {
        shared.apply(effects);
        let keys = std::mem::take(&mut self.notices.keys);
        self.changed = shared.changed(self.notes_keys, effects, keys);
        shared.stats.counters.commands.fetch_add(requests.len() as u64, Relaxed);
        let mut failed = self.failed.drain(..).peekable();
        let mut script_lines = self.script_lines.drain(..).peekable();
        for (at, (request, nanos)) in requests.iter().zip(&self.times).enumerate() {
            let error = failed.next_if(|(place, _)| *place == at);
            if let Some((_, text)) = &error {
                shared.stats.count_error(text);
                if text == TOO_LONG_FOR_CLIENT {
                    origin.client.is_over_limit.store(true, Relaxed);
                }
            }
            if request.refusal().is_some() {
                shared.stats.commands.reject(request, origin.input);
                continue;
            }
            let ran = ExecutedCommand {
                request,
                input: origin.input,
                client: origin.client,
                database: request.database().unwrap_or(origin.database),
                nanos: *nanos,
                is_error: error.is_some(),
            };
            self.lines.extend(ran.note(shared));
            while let Some((_, line)) = script_lines.next_if(|(place, _)| *place == at) {
                self.lines.push(line);
            }
        }
    }
}

/// Measures commands that run one after the other, with one look at the clock for each.
pub struct Laps(Instant);

impl Laps {
    /// The first one begins.
    pub fn start() -> Laps {
        Laps(Instant::now())
    }

    /// Nanoseconds since the end of the one before.
    pub fn next(&mut self) -> u64 {
        let now = Instant::now();
        let time = now.duration_since(std::mem::replace(&mut self.0, now));
        time.as_nanos() as u64
    }
}
