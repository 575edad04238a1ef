//! Calls and times of commands, and what is told of each that has run.

use crate::catalogue;
use crate::catalogue::names;
use crate::clients::ClientEntry;
use crate::clock::wall_us;
use crate::histogram::TimeHistogram;
use crate::latency_events::LatencySample;
use crate::monitors::{self, MonitorLine};
use crate::redaction;
use crate::runs::Request;
use crate::shared::Shared;
use crate::slow_log::{self, SlowEntry};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What is counted of a command.
#[derive(Default)]
pub struct CommandCounts {
    /// Calls that have run.
    pub calls: AtomicU64,
    /// Those of them that have failed.
    pub failed: AtomicU64,
    /// Calls that were refused before they could run.
    pub rejected: AtomicU64,
    /// Time of all that have run.
    pub nanos: AtomicU64,
    /// Made by the first call.
    times: OnceLock<TimeHistogram>,
}

impl CommandCounts {
    /// How long its calls took, if there was one.
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

/// What is counted of all commands, subcommands by themselves.
pub struct CommandStats {
    /// By place in the catalogue.
    counts: Vec<CommandCounts>,
    /// Places in the catalogue, by those in the table.
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
    /// All of them, with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &CommandCounts)> {
        names::all().iter().map(|named| named.name).zip(&self.counts)
    }

    /// Sets all to 0.
    pub fn clear(&self) {
        self.counts.iter().for_each(CommandCounts::clear);
    }

    /// The place of what a request runs in the catalogue. An error, with the place of its command,
    /// if it has no such subcommand.
    fn place(&self, request: &Request, input: &[u8]) -> Result<usize, usize> {
        let own = self.places[request.place().expect("it is a command")];
        if !names::all()[own].is_container || request.len() < 2 {
            return Ok(own);
        }
        match names::of_request(&request.arguments(input)[..2]) {
            Some(at) if at != own => Ok(at),
            _ => Err(own),
        }
    }

    /// The name of what a request runs, such as `client|list`.
    pub fn name(&self, request: &Request, input: &[u8]) -> &'static str {
        let (Ok(at) | Err(at)) = self.place(request, input);
        names::all()[at].name
    }

    /// Counts a request that was refused before it could run.
    pub fn reject(&self, request: &Request, input: &[u8]) {
        let (Ok(at) | Err(at)) = self.place(request, input);
        self.counts[at].rejected.fetch_add(1, Relaxed);
    }
}

/// A command that has run.
pub struct Ran<'a> {
    /// The request.
    pub request: &'a Request,
    /// The input that its arguments may be in.
    pub input: &'a [u8],
    /// The client.
    pub client: &'a ClientEntry,
    /// Its database.
    pub database: u32,
    /// How long it ran.
    pub nanos: u64,
    /// Its reply is an error.
    pub is_error: bool,
}

impl Ran<'_> {
    /// Counts it. Returns what the clients that monitor are told of it.
    #[must_use]
    pub fn note(&self, shared: &Shared) -> Option<MonitorLine> {
        let stats = &shared.command_stats;
        let at = match stats.place(self.request, self.input) {
            Ok(at) => at,
            // As for a command that there is not.
            Err(_) => {
                stats.reject(self.request, self.input);
                return None;
            }
        };
        let counts = &stats.counts[at];
        counts.calls.fetch_add(1, Relaxed);
        counts.nanos.fetch_add(self.nanos, Relaxed);
        if self.is_error {
            counts.failed.fetch_add(1, Relaxed);
        }
        if shared.settings.tracks_latency() {
            counts.times.get_or_init(TimeHistogram::default).add(self.nanos);
        }
        let micros = self.nanos / 1_000;
        // The commands of EXEC stand for it.
        let is_slow = shared.settings.slower_than().is_some_and(|least| micros >= least);
        if is_slow && names::all()[at].name != "exec" {
            self.note_slow(shared, micros);
        }
        if shared.settings.latency_threshold_ms().is_some_and(|least| micros / 1_000 >= least) {
            self.note_latency(shared, micros / 1_000);
        }
        (shared.monitors.is_on() && is_told(names::all()[at].name)).then(|| self.line())
    }

    #[cold]
    fn line(&self) -> MonitorLine {
        let args = self.request.arguments(self.input);
        let shown = (0..args.len()).map(|at| redaction::shown(&args, at));
        monitors::line(wall_us(), (self.database, &self.client.address), shown)
    }

    #[cold]
    fn note_latency(&self, shared: &Shared, ms: u64) {
        let command = &catalogue::all()[self.request.place().expect("it is a command")];
        let event = if command.flags & catalogue::FAST != 0 { "fast-command" } else { "command" };
        let sample = LatencySample { at_seconds: wall_us() / 1_000_000, ms };
        shared.latency_events.add(event, sample);
    }

    #[cold]
    fn note_slow(&self, shared: &Shared, micros: u64) {
        let args = self.request.arguments(self.input);
        let entry = SlowEntry {
            id: 0,
            at_seconds: wall_us() / 1_000_000,
            micros,
            args: slow_log::kept(&args, |at| redaction::shown(&args, at)),
            address: self.client.address.clone(),
            name: self.client.names.lock().expect("no holder panics").name.clone(),
        };
        shared.slow_log.add(entry, shared.settings.slow_log_length());
    }
}

/// Whether clients that monitor are told of a command: not of those for administrators.
fn is_told(name: &str) -> bool {
    // In the category by their subjects alone.
    const HARMLESS: [&str; 2] = ["lastsave", "role"];
    let admin = catalogue::category(b"admin").expect("it is one");
    let at = names::find(name.as_bytes()).expect("it is in the catalogue");
    names::all()[at].categories & admin == 0 || HARMLESS.contains(&name)
}
