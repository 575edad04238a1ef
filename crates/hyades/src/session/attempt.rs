//! Transactions of a thread that must not wait, such as the thread of an event loop.

use super::EngineSession;
use crate::concurrency::Commits;
use crate::erased::{Answer, AttemptEnd, Verdict};
use crate::error::Error;
use crate::logging::LoggingProtocol;
use crate::retry::OnThisThread;
use crate::transaction::access::Transaction;
use std::sync::Arc;

impl<C: Commits<P>, P: LoggingProtocol> EngineSession<C, P> {
    /// Returns whether the preparation of a transaction would not wait. Another session may take
    /// the room first: then the preparation waits until a stream has written something.
    fn has_room(&self) -> bool {
        let (Some(log), Some(writer)) = (&self.log, &self.writer) else { return true };
        let has_room = |stream: usize| writer.backlog(stream) < writer.room();
        let streams = 0..log.streams();
        let log_has_room = match P::PARTITIONED {
            true => streams.into_iter().all(has_room),
            false if self.shared.keeps_streams => has_room(self.stream),
            false => has_room(self.stream) || streams.into_iter().any(has_room),
        };
        // A failed log makes the attempt fail, which does not wait either.
        log_has_room && self.shared.engine.cut.has_room() || log.poisoned().is_some()
    }

    /// Runs an attempt, unless the attempt would have to wait first.
    pub(super) fn try_without_waiting(
        &mut self,
        body: &mut dyn FnMut(&Transaction<'_>) -> Verdict,
        answer: &mut Answer,
    ) -> Result<AttemptEnd, Error> {
        let database = Arc::as_ptr(&self.shared).addr();
        let _here = (!self.shared.nests).then(|| OnThisThread::begin(database)).transpose()?;
        if self.shared.gate.is_closed() {
            return Ok(AttemptEnd::Conflict);
        }
        if !self.has_room() {
            return Ok(AttemptEnd::NoRoom);
        }
        self.may_wait = false;
        Ok(match self.try_once(None, body, answer)? {
            Ok(()) => AttemptEnd::Done,
            Err(_) => {
                self.tally.conflict();
                // The next attempt may be of another transaction.
                self.shared.control.forget_attempts(&self.own);
                AttemptEnd::Conflict
            }
        })
    }
}
