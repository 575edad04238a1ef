//! Open transactions: begun and ended by calls, with anything in between.
#![allow(unsafe_code)]

use super::ending::Ending;
use super::{EngineSession, removed};
use crate::concurrency::Commits;
use crate::erased::{Answer, AnyOpenTransaction, Verdict};
use crate::error::{Abort, Error};
use crate::logging::LoggingProtocol;
use crate::logging::record::RecordKind;
use crate::retry::OnThisThread;
use crate::transaction::access::Access;
use crate::transaction::running::Running;
use hyades_platform::reclaim::Guard;
use std::ptr::NonNull;
use std::sync::Arc;

/// A transaction between its beginning and its end. Not `Send`: the thread is pinned.
struct Open<'s, C: Commits<P>, P: LoggingProtocol> {
    /// `None` once the transaction has ended. Borrows `guard`.
    running: Option<Running<'s, C, P>>,
    ending: Ending<'s, C, P>,
    /// Dropped after `running`.
    guard: Option<PlacedGuard>,
    _here: Option<OnThisThread>,
}

/// A guard that stays at one place in memory until the drop.
struct PlacedGuard(NonNull<Guard>);

impl PlacedGuard {
    fn new(guard: Guard) -> Self {
        PlacedGuard(NonNull::from(Box::leak(Box::new(guard))))
    }

    /// # Safety
    /// The reference is not used after the drop.
    unsafe fn get<'g>(&self) -> &'g Guard {
        // SAFETY: the guard is at its place until the drop, and is never borrowed mutably.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for PlacedGuard {
    fn drop(&mut self) {
        // SAFETY: the pointer is of a box that `new` has leaked, freed here alone.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl<C: Commits<P>, P: LoggingProtocol> EngineSession<C, P> {
    /// Begins an open transaction.
    ///
    /// # Errors
    /// [`Abort::Conflict`] if the transaction cannot have its turn.
    pub(super) fn open(&mut self) -> Result<Box<dyn AnyOpenTransaction + '_>, Error> {
        let database = Arc::as_ptr(&self.shared).addr();
        let here = (!self.shared.nests).then(|| OnThisThread::begin(database)).transpose()?;
        self.may_wait = here.as_ref().is_none_or(|here| !here.is_nested);
        self.shared.gate.pass();
        if self.may_wait && self.shared.removed.is_full() {
            self.shared.removed.wait()?;
        }
        self.prepare()?;
        self.tally.attempt();
        if !self.shared.control.await_turns(&self.own, self.may_wait) {
            return Err(self.conflict());
        }
        self.was_open = true;
        let guard = PlacedGuard::new(removed::pin::<P>());
        // SAFETY: `Open` drops the running transaction, which has this reference, before the guard:
        // in `end`, and by the order of its fields.
        let pinned = unsafe { guard.get() };
        let (running, ending) = self.start(pinned, RecordKind::Data);
        Ok(Box::new(Open { running: Some(running), ending, guard: Some(guard), _here: here }))
    }

    /// Counts a conflict. The next transaction of the session may be another one.
    fn conflict(&self) -> Error {
        self.tally.conflict();
        self.shared.control.forget_attempts(&self.own);
        Error::Aborted(Abort::Conflict)
    }

    /// Does after an open transaction what follows the attempts of other transactions.
    #[cold]
    pub(super) fn clear_open(&mut self) {
        self.was_open = false;
        self.arena.reset();
        self.housekeep();
        if !self.garbage.is_empty() {
            self.sweep();
        }
    }
}

impl<C: Commits<P>, P: LoggingProtocol> Open<'_, C, P> {
    fn end(&mut self, verdict: Verdict, answer: &mut Answer) -> Result<(), Abort> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        answer.position = None;
        let none = (None, RecordKind::Data);
        let result = self.ending.end(running.state(), verdict, none, true, answer);
        drop(running);
        self.guard = None;
        if let (Some(writer), Some((_, stream, end))) = (&self.ending.writer, answer.position) {
            // If writers do that.
            writer.flush(stream, end);
        }
        match result {
            Err(Abort::Conflict) => self.ending.tally.conflict(),
            Err(_) => self.ending.tally.failure(),
            Ok(()) => {}
        }
        result
    }
}

impl<C: Commits<P>, P: LoggingProtocol> AnyOpenTransaction for Open<'_, C, P> {
    fn access(&self) -> &dyn Access {
        self.running.as_ref().expect("the transaction has not ended")
    }

    fn end(mut self: Box<Self>, verdict: Verdict, answer: &mut Answer) -> Result<(), Abort> {
        Open::end(&mut self, verdict, answer)
    }
}

impl<C: Commits<P>, P: LoggingProtocol> Drop for Open<'_, C, P> {
    /// Rolls back a transaction that was not ended.
    fn drop(&mut self) {
        // No caller learns what the transaction has read: the outcome does not matter.
        let _ = self.end(Verdict::Abandon, &mut Answer::default());
    }
}
