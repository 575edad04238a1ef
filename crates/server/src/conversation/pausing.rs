//! A conversation whose next command waits for the end of CLIENT PAUSE.

use super::{Conversation, Turn};
use crate::commands::table;
use crate::pause::{PauseMode, PausedClient};
use crate::runs::Request;
use std::sync::atomic::Ordering::Relaxed;

impl Conversation {
    /// Whether a request has to wait for the end of a pause. One that is an error does not.
    pub(super) fn is_paused(&mut self, turn: &Turn<'_>, request: &Request) -> bool {
        let mode = turn.shared.pause.running().map(|(mode, _)| mode);
        let waits = mode.is_some_and(|mode| {
            request.has_arity() && (mode == PauseMode::All || self.may_write(request))
        });
        if waits != self.paused.is_some() {
            self.paused = waits.then(|| PausedClient::new(turn.shared));
            self.client.entry.is_blocked.store(waits, Relaxed);
        }
        waits
    }

    /// Whether others would notice that it has run.
    fn may_write(&self, request: &Request) -> bool {
        let Some(place) = request.place() else { return false };
        let command = &table::all()[place];
        let queued = self.client.multi.as_ref().map(|multi| &multi.queued);
        match command.name {
            "publish" | "spublish" => true,
            "exec" => queued.is_some_and(|all| all.iter().any(|of| self.may_write(of))),
            _ => command.flags & table::WRITE != 0,
        }
    }
}
