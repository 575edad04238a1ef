//! Calls and times of commands.

use crate::base::histogram::TimeHistogram;
use crate::catalogue::{self, names};
use crate::request::Request;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of a command.
#[derive(Default)]
pub struct CommandCounts {
    /// Calls that have run.
    pub calls: AtomicU64,
    /// Failed calls.
    pub failed: AtomicU64,
    /// Calls refused before they could run.
    pub rejected: AtomicU64,
    /// Total time of the calls that have run.
    pub nanos: AtomicU64,
    /// Made by the first call.
    times: OnceLock<TimeHistogram>,
}

impl CommandCounts {
    /// The times of the command's calls, if any.
    pub fn times(&self) -> Option<&TimeHistogram> {
        self.times.get().filter(|times| times.count() > 0)
    }

    fn clear(&self) {
        let all = [&self.calls, &self.failed, &self.rejected, &self.nanos];
        all.iter().for_each(|counter| counter.store(0, Relaxed));
        if let Some(times) = self.times.get() {
            times.clear();
        }
    }
}

/// Counters of all commands, with separate counters for subcommands.
pub struct CommandStats {
    /// By place in the catalogue.
    counts: Vec<CommandCounts>,
    /// Places in the catalogue, by places in the table.
    places: Vec<usize>,
}

impl Default for CommandStats {
    fn default() -> Self {
        let place = |name: &str| names::find(name.as_bytes()).expect("each one is in it");
        CommandStats {
            counts: names::all().iter().map(|_| CommandCounts::default()).collect(),
            places: catalogue::all().iter().map(|command| place(command.name)).collect(),
        }
    }
}

impl CommandStats {
    /// The counters of all commands, with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &CommandCounts)> {
        names::all().iter().map(|named| named.name).zip(&self.counts)
    }

    /// Sets all to 0.
    pub fn clear(&self) {
        self.counts.iter().for_each(CommandCounts::clear);
    }

    /// The place of the command or subcommand of a request in the catalogue. An error, with the
    /// place of the command, if the command has no such subcommand.
    pub fn place(&self, request: &Request, input: &[u8]) -> Result<usize, usize> {
        let own = self.places[request.place().expect("it is a command")];
        if !names::all()[own].is_container || request.len() < 2 {
            return Ok(own);
        }
        match names::of_request(&request.arguments(input)[..2]) {
            Some(at) if at != own => Ok(at),
            _ => Err(own),
        }
    }

    /// The place of the command or subcommand that arguments name, for the command at a place in
    /// the table: the place of the command itself if there is no such subcommand.
    pub fn place_of(&self, command: usize, args: &[&[u8]]) -> usize {
        let own = self.places[command];
        match args.get(1).filter(|_| names::all()[own].is_container) {
            Some(word) => names::subcommand(own, word).unwrap_or(own),
            None => own,
        }
    }

    /// The name of the command or subcommand of a request, for example `client|list`.
    pub fn name(&self, request: &Request, input: &[u8]) -> &'static str {
        let (Ok(at) | Err(at)) = self.place(request, input);
        names::all()[at].name
    }

    /// Counts a request that was refused before it could run.
    pub fn reject(&self, request: &Request, input: &[u8]) {
        let (Ok(at) | Err(at)) = self.place(request, input);
        self.counts[at].rejected.fetch_add(1, Relaxed);
    }

    /// Counts a command that has run, by its place among the names.
    pub fn note(&self, at: usize, nanos: u64, is_error: bool, keeps_times: bool) {
        let counts = &self.counts[at];
        counts.calls.fetch_add(1, Relaxed);
        counts.nanos.fetch_add(nanos, Relaxed);
        if is_error {
            counts.failed.fetch_add(1, Relaxed);
        }
        if keeps_times {
            counts.times.get_or_init(TimeHistogram::default).add(nanos);
        }
    }
}
