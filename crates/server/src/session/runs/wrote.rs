//! The results of an attempt to run commands beside rows and replies.

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

/// The results of an attempt.
#[derive(Default)]
pub struct Wrote {
    /// Commands that have failed, by their places in the attempt, with their errors.
    pub failed: Vec<(usize, String)>,
    /// How long each run command took, in nanoseconds.
    pub times: Vec<u64>,
    /// See [`RunEnd::exec_ends`](crate::client::RunEnd::exec_ends).
    pub ends: Vec<usize>,
    /// The messages about the writes for other clients.
    pub notices: Notices,
    /// The written keys are noted.
    pub notes_keys: bool,
    /// The writes for clients that track, once the transaction has committed.
    pub changed: Changed,
    /// See [`RunEnd::read_elsewhere`](crate::client::RunEnd::read_elsewhere).
    pub read_elsewhere: Vec<Vec<u8>>,
    /// The lines for clients that monitor.
    pub lines: Vec<MonitorLine>,
    /// Lines about the commands of scripts, by the place of the script in the attempt.
    script_lines: Vec<(usize, MonitorLine)>,
}

/// The sender of the commands of a run, and the input, which may hold them.
pub struct Origin<'a> {
    /// The client.
    pub client: &'a ClientEntry,
    /// The client's database.
    pub database: u32,
    /// The client's input.
    pub input: &'a [u8],
}

impl Wrote {
    /// Forgets all results: another attempt begins.
    pub fn clear(&mut self) {
        self.failed.clear();
        self.times.clear();
        self.ends.clear();
        self.notices.clear();
        self.changed = Changed::Nothing;
        self.lines.clear();
        self.script_lines.clear();
    }

    /// Takes the messages about a command after its run.
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
        let mut lines = caller.lines.borrow_mut();
        if !lines.is_empty() {
            self.script_lines.extend(lines.drain(..).map(|line| (place_in_run, line)));
        }
        drop(lines);
        self.notices.note(context, &catalogue::all()[place], args);
    }

    /// Notes the end of a part of the reply; other replies may have to be inserted before the next
    /// part.
    #[inline]
    pub fn end_at(&mut self, exec: Option<&Exec>, position: usize) {
        if exec.is_some_and(|exec| exec.others > 0) {
            self.ends.push(position);
        }
    }

    /// Notes the end of the transaction with an error: the last command to run has failed.
    pub fn fail(&mut self, text: &str) {
        self.failed.clear();
        self.failed.extend(self.times.len().checked_sub(1).map(|at| (at, text.to_string())));
        self.ends.clear();
        self.notices.clear();
    }

    /// Applies and counts the committed requests.
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

/// Measures commands run one after the other, with one look at the clock for each.
pub struct Laps(Instant);

impl Laps {
    /// Begins the first lap.
    pub fn start() -> Laps {
        Laps(Instant::now())
    }

    /// Nanoseconds since the end of the previous lap.
    pub fn next(&mut self) -> u64 {
        let now = Instant::now();
        let time = now.duration_since(std::mem::replace(&mut self.0, now));
        time.as_nanos() as u64
    }
}
