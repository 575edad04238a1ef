//! Notes of commands outside of runs; runs note their own commands.

use super::Conversation;
use crate::request::Request;
use crate::session::executed::ExecutedCommand;
use crate::state::Shared;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A command that another thread replies to, or an EXEC during its transaction.
pub(super) struct Unfinished {
    request: Request,
    /// The time of the run so far.
    time: Duration,
}

impl Conversation {
    /// All replies not sent.
    #[cfg(feature = "torture")]
    pub fn written(&self) -> Vec<u8> {
        self.replies.written()
    }

    /// Notes the continuation of a command elsewhere.
    pub(super) fn begin_unfinished(&mut self, request: Request, time: Duration) {
        let request = request.into_owned(&self.input);
        self.unfinished = Some(Unfinished { request, time });
    }

    /// Notes the end of the command, after `time` elsewhere.
    pub(super) fn end_unfinished(&mut self, shared: &Shared, time: Duration, is_error: bool) {
        if let Some(Unfinished { request, time: before }) = self.unfinished.take() {
            self.note_ran(shared, &request, before + time, is_error);
        }
    }

    /// Notes a command outside of transactions.
    pub(super) fn note_ran(
        &mut self,
        shared: &Shared,
        request: &Request,
        time: Duration,
        is_error: bool,
    ) {
        shared.stats.counters.commands.fetch_add(1, Relaxed);
        let ran = ExecutedCommand {
            request,
            input: &self.input,
            client: &self.client.entry,
            database: self.client.database,
            nanos: time.as_nanos() as u64,
            is_error,
        };
        let line = ran.note(shared);
        self.tell_monitors(shared, line.into_iter().collect());
    }
}
