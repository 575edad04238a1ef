//! The outcome of a posted call, and the waiters for the outcome.

use crate::error::{Abort, Error};
use crate::logging::Needs;
use crate::retry::check_may_wait;
use crate::ticket::Ticket;
use crate::transaction::procedure::decode_result;
use hyades_platform::callback::{self, OnDatabaseThread};
use hyades_platform::sync::Unpoisoned;
use serde::de::DeserializeOwned;
use std::any::Any;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

/// How a posted call has ended.
#[derive(Debug)]
pub(super) struct Outcome {
    /// The encoded result of a commit, or the abort.
    pub result: Result<Vec<u8>, Abort>,
    /// Tells when the outcome is durable.
    pub ticket: Ticket,
    /// The order of the calling session, if the session keeps an order.
    pub order: Option<Needs>,
}

/// The outcome of a call that has run: the result, and the ticket for the durability of the result.
type Ran<R> = Result<(Result<R, Abort>, Ticket), Error>;

/// Why a call has no outcome.
pub(super) enum NoOutcome {
    Failed(Error),
    /// The procedure panicked, and its changes were rolled back.
    Panicked(Box<dyn Any + Send>),
}

enum ReplyState {
    /// The call is open; the waker for the end of the call, and whether a thread waits.
    Open(Option<Waker>, bool),
    Ended(Box<Result<Outcome, NoOutcome>>),
    Taken,
}

/// The place for the outcome of a posted call.
pub(super) struct Reply {
    state: Mutex<ReplyState>,
    ended: Condvar,
}

impl Reply {
    pub fn new() -> Reply {
        Reply { state: Mutex::new(ReplyState::Open(None, false)), ended: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, ReplyState> {
        self.state.lock().unpoisoned()
    }

    pub fn end(&self, outcome: Result<Outcome, NoOutcome>) {
        let before = std::mem::replace(&mut *self.state(), ReplyState::Ended(Box::new(outcome)));
        // Notifying is a system call, waited for or not.
        if let ReplyState::Open(_, true) = before {
            self.ended.notify_all();
        }
        if let ReplyState::Open(Some(waker), _) = before {
            let _mark = OnDatabaseThread::begin();
            callback::wake(waker);
        }
    }

    /// Returns the outcome, once. `None` while the call is open: then `waker` will be woken.
    fn take(&self, waker: Option<&Waker>) -> Option<Result<Outcome, NoOutcome>> {
        // Cloned before the lock is taken, and the former waker dropped after the unlock: both may
        // be the program's code.
        let mut next = waker.cloned();
        let mut state = self.state();
        if let ReplyState::Open(woken, _) = &mut *state {
            if next.is_some() {
                std::mem::swap(woken, &mut next);
            }
            drop(state);
            return None;
        }
        match std::mem::replace(&mut *state, ReplyState::Taken) {
            ReplyState::Ended(outcome) => Some(*outcome),
            _ => {
                let fault = "the outcome of a posted call was taken before";
                Some(Err(NoOutcome::Failed(Error::Misuse(fault.to_string()))))
            }
        }
    }

    /// # Errors
    /// [`Error::Misuse`] in a waker, if the call is open.
    fn wait(&self) -> Result<(), Error> {
        let mut state = self.state();
        while let ReplyState::Open(_, waits) = &mut *state {
            check_may_wait("a posted call was waited for")?;
            *waits = true;
            state = self.ended.wait(state).unpoisoned();
        }
        Ok(())
    }

    /// Blocks until the call has ended, and takes the outcome.
    pub fn outcome(&self) -> Result<Outcome, NoOutcome> {
        self.wait().map_err(NoOutcome::Failed)?;
        self.take(None).expect("the call has ended")
    }
}

/// A call that was [posted](crate::Database::post), with a result of type `R`.
///
/// Block with [`PostedCall::wait`], await the call, or poll [`PostedCall::try_result`]. A drop
/// cancels nothing.
#[must_use = "it tells whether the call has committed, and when that is durable"]
pub struct PostedCall<R> {
    reply: Arc<Reply>,
    /// The outcome, until durable.
    outcome: Option<Outcome>,
    result: PhantomData<fn() -> R>,
}

impl<R> std::fmt::Debug for PostedCall<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostedCall").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}

impl<R> PostedCall<R> {
    pub(super) fn of(reply: Arc<Reply>) -> Self {
        PostedCall { reply, outcome: None, result: PhantomData }
    }
}

impl<R: DeserializeOwned> PostedCall<R> {
    /// Takes the outcome, if the call has ended.
    fn advance(&mut self, waker: Option<&Waker>) -> Result<(), Error> {
        if self.outcome.is_none() {
            match self.reply.take(waker) {
                None => {}
                Some(Ok(outcome)) => self.outcome = Some(outcome),
                Some(Err(NoOutcome::Failed(error))) => return Err(error),
                Some(Err(NoOutcome::Panicked(panic))) => resume_unwind(panic),
            }
        }
        Ok(())
    }

    /// Returns the outcome: the result, and the ticket for the durability of the result.
    fn pre_committed(outcome: Outcome) -> Ran<R> {
        let Outcome { result, ticket, .. } = outcome;
        match result {
            Ok(bytes) => Ok((Ok(decode_result(&bytes)?), ticket)),
            Err(abort) => Ok((Err(abort), ticket)),
        }
    }

    /// Blocks until the call has run: [`PostedCall::outcome`] will not block. In a waker the
    /// function returns at once; [`PostedCall::outcome`] does so there, with an error.
    pub fn wait_until_run(&self) {
        if self.outcome.is_none() {
            let _ = self.reply.wait();
        }
    }

    /// Blocks until the call has run, and returns the result before it is durable: the call is
    /// pre-committed, or has aborted, and the ticket tells when the outcome is acknowledged. Until
    /// then a crash may undo the outcome; see [`Session::submit`](crate::Session::submit) for what
    /// a program may do with the result.
    ///
    /// # Errors
    /// As for [`Session::call`](crate::Session::call).
    ///
    /// # Panics
    /// If the procedure did. Its changes were rolled back.
    pub fn outcome(mut self) -> Ran<R> {
        if self.outcome.is_none() {
            self.reply.wait()?;
            self.advance(None)?;
        }
        Self::pre_committed(self.outcome.take().expect("the call has ended"))
    }

    /// Like [`PostedCall::outcome`], but returns `None` instead of blocking. A returned outcome is
    /// taken: later calls return an error.
    ///
    /// # Errors
    /// As for [`PostedCall::outcome`].
    ///
    /// # Panics
    /// If the procedure did.
    pub fn try_outcome(&mut self) -> Option<Ran<R>> {
        if let Err(error) = self.advance(None) {
            return Some(Err(error));
        }
        self.outcome.take().map(Self::pre_committed)
    }

    fn result(result: Result<Vec<u8>, Abort>) -> Result<R, Error> {
        decode_result(&result?)
    }

    /// Blocks until the call has ended and the outcome is durable, and returns the result.
    ///
    /// # Errors
    /// [`Error::Aborted`] if the procedure aborted; otherwise as for
    /// [`Database::call`](crate::Database::call).
    ///
    /// # Panics
    /// If the procedure did. Its changes were rolled back.
    pub fn wait(mut self) -> Result<R, Error> {
        if self.outcome.is_none() {
            self.reply.wait()?;
            self.advance(None)?;
        }
        let Outcome { result, ticket, .. } = self.outcome.take().expect("the call has ended");
        ticket.wait()?;
        Self::result(result)
    }

    /// Returns the result if the call has ended and the outcome is durable; `None` if not. Does not
    /// block. A returned result is taken: later calls return an error.
    ///
    /// # Errors
    /// As for [`PostedCall::wait`].
    ///
    /// # Panics
    /// If the procedure did.
    pub fn try_result(&mut self) -> Option<Result<R, Error>> {
        if let Err(error) = self.advance(None) {
            return Some(Err(error));
        }
        match self.outcome.as_ref()?.ticket.is_acknowledged() {
            Ok(false) => None,
            Ok(true) => self.outcome.take().map(|outcome| Self::result(outcome.result)),
            Err(error) => {
                self.outcome = None;
                Some(Err(error))
            }
        }
    }
}

impl<R: DeserializeOwned> Future for PostedCall<R> {
    type Output = Result<R, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.advance(Some(context.waker()))?;
        let Some(Outcome { ticket, .. }) = &mut self.outcome else { return Poll::Pending };
        match Pin::new(ticket).poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) => {
                let outcome = self.outcome.take().expect("it has one");
                Poll::Ready(Self::result(outcome.result))
            }
        }
    }
}
