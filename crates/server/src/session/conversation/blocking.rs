//! A conversation whose command waits for an element: no later command runs before the reply.

use super::{Conversation, Turn};
use crate::catalogue;
use crate::clients::Unblock;
use crate::data::keyspace::Wait;
use crate::data::waiting::Places;
use crate::request::Request;
use crate::resp::reply::Reply;
use crate::state::Shared;
use crate::state::memory::OUT_OF_MEMORY;
use hyades_platform::broken;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// A waiting command.
pub(super) struct Blocked {
    request: Request,
    places: Places,
    /// The end of the wait.
    deadline: Option<Instant>,
    is_silent: bool,
}

impl Blocked {
    /// Whether the client gets no reply.
    pub fn is_silent(&self) -> bool {
        self.is_silent
    }
}

impl Conversation {
    /// Whether a command waits for an element.
    pub fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// When the wait of the command ends: [`Conversation::run`] has to be called then.
    pub fn deadline(&self) -> Option<Instant> {
        if let Some(at) = self.held.or(self.awaited_at()) {
            return Some(at);
        }
        self.blocked.as_ref()?.deadline
    }

    /// Whether the waiting command, if there is one, has to be looked at.
    pub(super) fn is_due(&self) -> bool {
        self.blocked.as_ref().is_some_and(|blocked| {
            blocked.places.is_called()
                || self.client.entry.unblock.is_set()
                || blocked.deadline.is_some_and(|deadline| deadline <= Instant::now())
        })
    }

    /// Begins the wait of a command, or ends the wait of a command that has replied.
    pub(super) fn settle_waiting(&mut self, shared: &Shared, wait: Option<Wait>) {
        let Some(wait) = wait else { return self.unblock() };
        if self.blocked.is_some() {
            return;
        }
        let entry = self.client.entry.clone();
        entry.unblock.clear();
        entry.is_blocked.store(true, Relaxed);
        entry.has_timeout.store(wait.timeout.is_some(), Relaxed);
        self.blocked = Some(Blocked {
            request: Request::waiting(wait.request),
            places: shared.wiring.waiting.enter(entry, wait.keys, wait.line),
            // A deadline beyond all time is no deadline.
            deadline: wait.timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            is_silent: wait.is_silent,
        });
    }

    /// Ends the command's wait.
    pub(super) fn unblock(&mut self) {
        if self.blocked.take().is_some() {
            self.client.entry.is_blocked.store(false, Relaxed);
            self.client.entry.has_timeout.store(false, Relaxed);
        }
    }

    /// Notes that the client sends nothing more. A waiting command takes no element, and the
    /// commands behind it are not run; earlier replies are sent.
    pub fn hang_up(&mut self) {
        let runs = !self.run.is_empty() || self.job.is_some() || self.is_waiting_for_job;
        if self.blocked.is_some() && !runs {
            self.unblock();
            self.client.is_closing = true;
        }
    }

    /// Ends the wait after a failure of the log: no element will be added. A command called already
    /// runs, here or on another thread, and is refused there.
    pub(super) fn fail_blocked(&mut self, shared: &Shared) {
        let Some(is_silent) = self.blocked.as_ref().map(|blocked| blocked.is_silent) else {
            return;
        };
        if !self.run.is_empty() || self.job.is_some() || self.is_waiting_for_job {
            return;
        }
        if !is_silent {
            let cause = shared.store.log_failure().unwrap_or_else(|| "the log failed".to_string());
            let text = format!("MISCONF {cause}");
            shared.stats.count_error(&text);
            Reply::new(self.replies.buffer(), self.client.is_resp3).error(&text);
            self.replies.seal_free();
        }
        self.unblock();
    }

    /// Ends the wait of a command that its user may not run any more.
    fn ends_refused(&mut self, shared: &Shared) -> bool {
        let Some(Blocked { request, is_silent, .. }) = &self.blocked else { return false };
        let (request, is_silent) = (request.clone(), *is_silent);
        if self.is_allowed(&shared.access, &request) {
            return false;
        }
        let command = request.place().map(|at| &catalogue::all()[at]);
        let Some(text) = self.refused(shared, &request, command) else { return false };
        if !is_silent {
            shared.stats.count_error(&text);
            Reply::new(self.replies.buffer(), self.client.is_resp3).error(&text);
            self.replies.seal_free();
        }
        self.unblock();
        true
    }

    /// Has the waiting command run again, if it was called; replies for it, if its time has ended.
    /// False if it goes on waiting.
    pub(super) fn look_at_blocked(&mut self, turn: &mut Turn<'_>) -> bool {
        if !self.is_due() {
            return false;
        }
        let Some(blocked) = &self.blocked else { return true };
        let unblock = self.client.entry.unblock.take();
        if unblock.is_none() && blocked.places.is_called() && self.ends_refused(turn.shared) {
            return true;
        }
        let Some(blocked) = &self.blocked else { return true };
        let is_called = unblock.is_none() && blocked.places.take_call();
        let is_refused =
            is_called && blocked.request.grows(&self.input) && turn.shared.is_out_of_memory();
        if is_called && !is_refused {
            self.run.is_silent = blocked.is_silent;
            self.run.push(blocked.request.clone());
            if broken!(PopTwice) {
                self.run.push(blocked.request.clone());
            }
            return true;
        }
        let (is_silent, request) = (blocked.is_silent, blocked.request.clone());
        if is_refused {
            turn.shared.note_out_of_memory();
            turn.shared.stats.commands.reject(&request, &[]);
        }
        let is_error = unblock == Some(Unblock::Error);
        let mut reply = Reply::new(self.replies.buffer(), self.client.is_resp3);
        match unblock {
            _ if is_silent => {}
            _ if is_refused => {
                turn.shared.stats.count_error(OUT_OF_MEMORY);
                reply.error(OUT_OF_MEMORY);
            }
            Some(Unblock::Error) => {
                let text = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
                turn.shared.stats.count_error(text);
                reply.error(text);
            }
            // Also for a command with a reply other than an array, as in Redis.
            _ => reply.null_array(),
        }
        if !is_refused {
            // The command has run without an element. The wait counts as no time.
            self.note_ran(turn.shared, &request, Duration::ZERO, is_error);
        }
        if !is_silent {
            self.seal_without_element(turn, is_refused || is_error);
        }
        self.unblock();
        true
    }

    /// Ends the reply of a command that has found no element in time. That nothing came is an
    /// answer, too: while another process may be primary, the element may be there. `is_error`: the
    /// reply tells of no data.
    fn seal_without_element(&mut self, turn: &mut Turn<'_>, is_error: bool) {
        let session = turn.session.as_mut().filter(|_| !is_error);
        match session.map(|session| session.ticket()) {
            Some(ticket) if !ticket.is_acknowledged().unwrap_or(false) => {
                let mark = self.seal_transaction(turn.shared, 1, &ticket);
                turn.parked.push((ticket, mark));
            }
            _ => self.replies.seal_free(),
        }
    }
}
