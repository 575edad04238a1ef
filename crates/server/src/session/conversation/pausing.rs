//! A conversation whose next command waits for the end of CLIENT PAUSE.

use super::answering::{may_listen, refusal};
use super::{Conversation, Turn};
use crate::catalogue;
use crate::request::Request;
use crate::state::pause::{PauseMode, PausedClient};
use std::sync::atomic::Ordering::Relaxed;

impl Conversation {
    /// Whether a request has to wait for the end of a pause. An invalid request does not.
    pub(super) fn is_paused(&mut self, turn: &Turn<'_>, request: &Request) -> bool {
        let mode = turn.shared.limits.pause.running().map(|(mode, _)| mode);
        let waits = mode.is_some_and(|mode| {
            (mode == PauseMode::All || self.may_write(request)) && self.is_right(turn, request)
        });
        self.set_aside(turn, waits);
        waits
    }

    /// Whether a run collected before a pause has to wait for the end of the pause.
    pub(super) fn is_run_paused(&mut self, turn: &Turn<'_>) -> bool {
        let mode = turn.shared.limits.pause.running().map(|(mode, _)| mode);
        let waits = mode.is_some_and(|mode| {
            let publishes = || self.locals.iter().any(|(_, request)| self.may_write(request));
            // After a failure of the log the run is refused without a wait.
            (mode == PauseMode::All || self.run.has_writes() || publishes())
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
    fn may_write(&self, request: &Request) -> bool {
        let Some(place) = request.place() else { return false };
        let command = &catalogue::all()[place];
        match (command.name, &self.client.multi) {
            ("publish" | "spublish", _) => true,
            ("exec", Some(multi)) => {
                let mut locals = multi.locals.iter().map(|(_, request)| request);
                multi.queued.writes() || locals.any(|request| self.may_write(request))
            }
            _ => command.writes(),
        }
    }
}
