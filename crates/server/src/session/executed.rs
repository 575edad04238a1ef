//! Counters and messages for each executed command.

use crate::base::clock::wall_us;
use crate::catalogue::{self, ADMIN, FAST, SKIP_SLOWLOG, names};
use crate::clients::ClientEntry;
use crate::clients::monitors::{self, MonitorLine};
use crate::config::redaction;
use crate::request::Request;
use crate::state::Shared;
use crate::state::latency_events::LatencySample;
use crate::state::slow_log::{self, SlowEntry};
use hyades_platform::sync::Unpoisoned;

/// An executed command.
pub struct ExecutedCommand<'a> {
    /// The request.
    pub request: &'a Request,
    /// The input, which may hold the command's arguments.
    pub input: &'a [u8],
    /// The client.
    pub client: &'a ClientEntry,
    /// The client's database.
    pub database: u32,
    /// The time of the run.
    pub nanos: u64,
    /// The reply is an error.
    pub is_error: bool,
}

impl ExecutedCommand<'_> {
    /// Counts the command. Returns the line for monitoring clients.
    #[must_use]
    pub fn note(&self, shared: &Shared) -> Option<MonitorLine> {
        let stats = &shared.stats.commands;
        let at = match stats.place(self.request, self.input) {
            Ok(at) => at,
            // As for an unknown command.
            Err(_) => {
                stats.reject(self.request, self.input);
                return None;
            }
        };
        stats.note(at, self.nanos, self.is_error, shared.settings.tracks_latency());
        let micros = self.nanos / 1_000;
        let flags = names::all()[at].flags;
        // The commands of an EXEC are noted instead of the EXEC.
        let is_slow = shared.settings.slower_than().is_some_and(|least| micros >= least);
        if is_slow && flags & SKIP_SLOWLOG == 0 {
            self.note_slow(shared, micros);
        }
        if shared.settings.latency_threshold_ms().is_some_and(|least| micros / 1_000 >= least) {
            self.note_latency(shared, micros / 1_000);
        }
        // Monitoring clients are not told of commands for operators.
        let is_told = flags & ADMIN == 0;
        (is_told && shared.wiring.monitors.is_on()).then(|| self.line())
    }

    #[cold]
    fn line(&self) -> MonitorLine {
        let args = self.request.arguments(self.input);
        monitors::line(wall_us(), (self.database, &self.client.address), &args)
    }

    #[cold]
    fn note_latency(&self, shared: &Shared, ms: u64) {
        let command = &catalogue::all()[self.request.place().expect("it is a command")];
        let event = if command.has(FAST) { "fast-command" } else { "command" };
        let sample = LatencySample { at_seconds: wall_us() / 1_000_000, ms };
        shared.stats.latency_events.add(event, sample);
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
            name: self.client.names.lock().unpoisoned().name.clone(),
        };
        shared.stats.slow_log.add(entry, shared.settings.slow_log_length());
    }
}
