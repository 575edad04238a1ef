//! A conversation whose next command waits for the end of CLIENT PAUSE.

use super::answering::{may_listen, refusal};
use super::{Conversation, Turn};
use crate::base::sha1::from_hexadecimal;
use crate::catalogue;
use crate::data::keyspace::Keyspace;
use crate::request::Request;
use crate::script::{self, Flags};
use crate::state::Shared;
use crate::state::pause::{PauseMode, PausedClient};
use crate::transact;
use hyades::SessionOrder;
use std::sync::atomic::Ordering::Relaxed;

impl Conversation {
    /// Whether a request has to wait for the end of a pause. An invalid request does not.
    pub(super) fn is_paused(&mut self, turn: &Turn<'_>, request: &Request) -> bool {
        let mode = turn.shared.limits.pause.running().map(|(mode, _)| mode);
        let waits = mode.is_some_and(|mode| {
            (mode == PauseMode::All || self.may_write(turn.shared, request))
                && self.is_right(turn, request)
        });
        self.set_aside(turn, waits);
        waits
    }

    /// Whether a run collected before a pause has to wait for the end of the pause.
    pub(super) fn is_run_paused(&mut self, turn: &Turn<'_>) -> bool {
        let mode = turn.shared.limits.pause.running().map(|(mode, _)| mode);
        let waits = mode.is_some_and(|mode| {
            let writes = || {
                let may_write = |request: &_, input: &_| may_write(turn.shared, request, input);
                self.run.has_writes(&self.input, may_write)
            };
            let publishes = || {
                let mut locals = self.locals.iter();
                locals.any(|(_, request)| self.may_write(turn.shared, request))
            };
            // After a failure of the log the run is refused without a wait.
            (mode == PauseMode::All || writes() || publishes())
                && turn.shared.store.log_failure().is_none()
        });
        self.set_aside(turn, waits);
        waits
    }

    /// Whether the client waits for the end of a pause.
    pub fn is_set_aside(&self) -> bool {
        self.paused.is_some()
    }

    fn set_aside(&mut self, turn: &Turn<'_>, waits: bool) {
        if waits != self.paused.is_some() {
            self.paused = waits.then(|| PausedClient::new(&turn.shared.limits.pause));
            self.client.entry.is_paused.store(waits, Relaxed);
        }
    }

    /// Whether there is no objection to a request before its run.
    fn is_right(&mut self, turn: &Turn<'_>, request: &Request) -> bool {
        let Some(command) = request.place().map(|at| &catalogue::all()[at]) else { return false };
        request.has_arity()
            && self.is_allowed(&turn.shared.access, request)
            && (!self.client.only_listens() || may_listen(command))
            && refusal(&self.client, command, request.grows(&self.input), turn).is_none()
    }

    /// Whether other clients would notice the request.
    fn may_write(&self, shared: &Shared, request: &Request) -> bool {
        let is_exec = request.place().is_some_and(|at| catalogue::all()[at].name == "exec");
        match &self.client.multi {
            Some(multi) if is_exec => {
                let mut locals = multi.locals.iter().map(|(_, request)| request);
                multi.queued.writes() || locals.any(|request| self.may_write(shared, request))
            }
            _ => may_write(shared, request, &self.input),
        }
    }
}

/// Whether other clients would notice the request, whose arguments may be in `input`.
fn may_write(shared: &Shared, request: &Request, input: &[u8]) -> bool {
    let Some(place) = request.place() else { return false };
    match catalogue::all()[place].name {
        "publish" | "spublish" => true,
        // The scripts kept for EVALSHA are no data.
        "script" => false,
        "evalsha" | "fcall" => !only_reads(shared, &request.arguments(input)),
        _ => request.may_write(input),
    }
}

/// Whether EVALSHA or FCALL runs what is known to read only.
fn only_reads(shared: &Shared, args: &[&[u8]]) -> bool {
    let (Some(name), Some(_)) = (args.get(1), shared.store.opened.get()) else { return false };
    let mut order = SessionOrder::default();
    let found = transact::patiently(shared, &mut order, |tx, context| {
        let space = Keyspace::open(*tx, context, 0)?;
        if args[0].eq_ignore_ascii_case(b"fcall") {
            let function = space.function(name)?;
            return Ok(function.is_some_and(|it| Flags::of_bits(it.flags).no_writes));
        }
        let Some(sha) = from_hexadecimal(name) else { return Ok(false) };
        if let Some(known) = shared.scripts.find(&sha) {
            return Ok(known.flags.no_writes);
        }
        Ok(space.loaded_script(&sha)?.is_some_and(|text| script::only_reads(&text)))
    });
    found.is_ok_and(|(reads, ..)| reads)
}
