//! What is told of the commands that have run, beside those of runs, which tell it themselves.

use super::Conversation;
use crate::request::Request;
use crate::session::executed::ExecutedCommand;
use crate::state::Shared;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A command whose reply another thread makes, or EXEC, whose transaction runs.
pub(super) struct Unfinished {
    request: Request,
    /// How long it ran before.
    time: Duration,
}

impl Conversation {
    /// All replies that were not sent.
    #[cfg(feature = "torture")]
    pub fn written(&self) -> Vec<u8> {
        self.replies.written()
    }

    /// The command goes on elsewhere.
    pub(super) fn begin_unfinished(&mut self, request: Request, time: Duration) {
        let request = request.into_owned(&self.input);
        self.unfinished = Some(Unfinished { request, time });
    }

    /// What went on elsewhere has ended, after this time there.
    pub(super) fn end_unfinished(&mut self, shared: &Shared, time: Duration, is_error: bool) {
        if let Some(Unfinished { request, time: before }) = self.unfinished.take() {
            self.note_ran(shared, &request, before + time, is_error);
        }
    }

    /// A command has run outside of transactions.
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
