//! Posted calls: a bounded queue of calls of procedures, and the database's threads that run them.
//!
//! A call is *open* from when it is posted until its outcome is handed to its [`Reply`]. No more
//! are open than the builder allows; one more is refused, and nothing of it is done. Threads are
//! started at the first post, each with a session of its own. They do not wait for durability: the
//! reply holds the ticket of the call, and what waits for the call waits for that.
//!
//! A database that is closed takes no more calls, and runs those that are open first.

use crate::erased::{Answer, AnyEngine, AnySession, Verdict};
use crate::error::{Abort, Error};
use crate::logging::draft::Call;
use crate::ticket::{LogHandles, Ticket, Tickets};
use crate::transaction::access::Transaction;
use crate::transaction::procedure::{ProcedureId, Procedures, decode_result};
use hyades_platform::event;
use serde::de::DeserializeOwned;
use std::any::Any;
use std::collections::VecDeque;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle, ThreadId};

/// How a posted call has ended: it committed, with this encoded result, or aborted, and the ticket
/// tells when that is durable.
type Outcome = (Result<Vec<u8>, Abort>, Ticket);

/// Why a call has no outcome.
enum NoOutcome {
    Failed(Error),
    /// The procedure panicked, and its changes were rolled back.
    Panicked(Box<dyn Any + Send>),
}

enum ReplyState {
    /// The call is open; what is to be woken when it has ended.
    Open(Option<Waker>),
    Ended(Box<Result<Outcome, NoOutcome>>),
    Taken,
}

/// Where the outcome of a posted call goes.
struct Reply {
    state: Mutex<ReplyState>,
    ended: Condvar,
}

impl Reply {
    fn new() -> Reply {
        Reply { state: Mutex::new(ReplyState::Open(None)), ended: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, ReplyState> {
        self.state.lock().expect("no holder panics")
    }

    fn end(&self, outcome: Result<Outcome, NoOutcome>) {
        let before = std::mem::replace(&mut *self.state(), ReplyState::Ended(Box::new(outcome)));
        self.ended.notify_all();
        if let ReplyState::Open(Some(waker)) = before {
            waker.wake();
        }
    }

    /// The outcome, once. `None` while the call is open: then `waker` will be woken.
    fn take(&self, waker: Option<&Waker>) -> Option<Result<Outcome, NoOutcome>> {
        let mut state = self.state();
        if let ReplyState::Open(woken) = &mut *state {
            *woken = waker.cloned().or(woken.take());
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

    fn wait(&self) {
        let state = self.state();
        let is_open = |state: &mut ReplyState| matches!(state, ReplyState::Open(_));
        drop(self.ended.wait_while(state, is_open).expect("no holder panics"));
    }
}

/// A call that was [posted](crate::Database::post), with a result of type `R`.
///
/// Block with [`PostedCall::wait`], await it, or poll [`PostedCall::try_result`]. Dropping it
/// cancels nothing.
#[must_use = "it tells whether the call has committed, and when that is durable"]
pub struct PostedCall<R> {
    reply: Arc<Reply>,
    /// The outcome, until it is durable.
    outcome: Option<Outcome>,
    result: PhantomData<fn() -> R>,
}

impl<R> std::fmt::Debug for PostedCall<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostedCall").field("outcome", &self.outcome).finish_non_exhaustive()
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

    fn result(result: Result<Vec<u8>, Abort>) -> Result<R, Error> {
        decode_result(&result?)
    }

    /// Blocks until the call has ended and its outcome is durable, and returns its result.
    ///
    /// # Errors
    /// [`Error::Aborted`] if the procedure aborted; otherwise as for
    /// [`Database::call`](crate::Database::call).
    ///
    /// # Panics
    /// If the procedure did. Its changes were rolled back.
    pub fn wait(mut self) -> Result<R, Error> {
        if self.outcome.is_none() {
            self.reply.wait();
            self.advance(None)?;
        }
        let (result, ticket) = self.outcome.take().expect("the call has ended");
        ticket.wait()?;
        Self::result(result)
    }

    /// Returns the result if the call has ended and its outcome is durable; `None` if not. Does not
    /// block. Once it has returned a result, that is taken: later calls return an error.
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
        match self.outcome.as_ref()?.1.is_acknowledged() {
            Ok(false) => None,
            Ok(true) => self.outcome.take().map(|(result, _)| Self::result(result)),
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
        let Some((_, ticket)) = &mut self.outcome else { return Poll::Pending };
        match Pin::new(ticket).poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) => {
                let (result, _) = self.outcome.take().expect("it has one");
                Poll::Ready(Self::result(result))
            }
        }
    }
}

/// A call on its way to a thread.
struct PostedJob {
    procedure: ProcedureId,
    arguments: Vec<u8>,
    reply: Arc<Reply>,
}

#[derive(Default)]
struct PostedState {
    /// Calls that may run, in the order in which they were posted.
    runnable: VecDeque<PostedJob>,
    /// Calls that are open.
    open: usize,
    threads: Vec<JoinHandle<()>>,
    own: Vec<ThreadId>,
    closed: bool,
}

/// The posted calls of a database, and the threads that run them.
pub(crate) struct PostedCalls {
    engine: Arc<dyn AnyEngine>,
    procedures: Arc<Procedures>,
    references: Option<Arc<LogHandles>>,
    /// The most calls that may be open.
    most: usize,
    /// Threads to start.
    threads: usize,
    state: Mutex<PostedState>,
    /// A call may run, or the last one has ended and the database is closed.
    moved: Condvar,
}

/// What a thread needs to run calls.
struct Caller {
    session: Box<dyn AnySession>,
    tickets: Tickets,
    answer: Answer,
}

impl PostedCalls {
    /// `threads`: as many as cores if `None`.
    pub fn new(
        (engine, procedures, references): (
            Arc<dyn AnyEngine>,
            Arc<Procedures>,
            Option<Arc<LogHandles>>,
        ),
        most: usize,
        threads: Option<usize>,
    ) -> Arc<PostedCalls> {
        let cores = || thread::available_parallelism().map_or(1, |cores| cores.get());
        Arc::new(PostedCalls {
            engine,
            procedures,
            references,
            most,
            threads: threads.unwrap_or_else(cores),
            state: Mutex::default(),
            moved: Condvar::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, PostedState> {
        self.state.lock().expect("no holder panics")
    }

    fn caller(&self) -> Result<Caller, Error> {
        let session = self.engine.session()?;
        let tickets = Tickets::new(self.references.clone(), false);
        Ok(Caller { session, tickets, answer: Answer::default() })
    }

    /// Starts the threads; at least one, or returns why there is none.
    fn start(self: &Arc<Self>, state: &mut PostedState) -> Result<(), Error> {
        for number in 0..self.threads {
            let caller = match self.caller() {
                Ok(caller) => caller,
                // The program's own sessions occupy the other slots of the log.
                Err(_) if number > 0 => return Ok(()),
                Err(error) => return Err(error),
            };
            let calls = self.clone();
            let started = thread::Builder::new()
                .name(format!("posted calls {number}"))
                .spawn(move || calls.work(caller));
            match started {
                Ok(thread) => {
                    state.own.push(thread.thread().id());
                    state.threads.push(thread);
                }
                Err(_) if number > 0 => return Ok(()),
                Err(error) => {
                    let fault = format!("no thread for posted calls can be started: {error}");
                    return Err(Error::Misuse(fault));
                }
            }
        }
        Ok(())
    }

    /// Posts a call.
    pub fn post<R>(
        self: &Arc<Self>,
        procedure: ProcedureId,
        arguments: Vec<u8>,
    ) -> Result<PostedCall<R>, Error> {
        self.procedures.get(procedure)?;
        let mut state = self.state();
        if state.closed {
            return Err(Error::Misuse("the database was closed".to_string()));
        }
        if state.open >= self.most {
            return Err(Error::TooManyPosted(self.most));
        }
        if state.threads.is_empty() {
            self.start(&mut state)?;
        }
        let reply = Arc::new(Reply::new());
        state.open += 1;
        state.runnable.push_back(PostedJob { procedure, arguments, reply: reply.clone() });
        drop(state);
        self.moved.notify_one();
        Ok(PostedCall { reply, outcome: None, result: PhantomData })
    }

    /// The next call that may run. Waits for one if `waits`; `None` once the database is closed and
    /// none is open.
    fn next(&self, waits: bool, idle: impl FnOnce()) -> Option<PostedJob> {
        let mut state = self.state();
        if state.runnable.is_empty() && !state.closed && waits {
            drop(state);
            idle();
            state = self.state();
        }
        loop {
            if let Some(job) = state.runnable.pop_front() {
                return Some(job);
            }
            if !waits || state.closed && state.open == 0 {
                return None;
            }
            state = self.moved.wait(state).expect("no holder panics");
        }
    }

    /// A call has ended.
    fn end(&self, job: &PostedJob, outcome: Result<Outcome, NoOutcome>) {
        job.reply.end(outcome);
        let mut state = self.state();
        state.open -= 1;
        let is_last = state.closed && state.open == 0;
        drop(state);
        if is_last {
            self.moved.notify_all();
        }
    }

    /// What each thread does.
    fn work(&self, mut caller: Caller) {
        event!(DEBUG, "thread for posted calls started");
        loop {
            let session = &mut caller.session;
            let Some(job) = self.next(true, || session.hand_over_garbage()) else { return };
            self.run(&mut caller, &job);
        }
    }

    fn run(&self, caller: &mut Caller, job: &PostedJob) {
        let ran = catch_unwind(AssertUnwindSafe(|| self.call(caller, job)));
        let outcome = match ran {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(error)) => Err(NoOutcome::Failed(error)),
            Err(panic) => Err(NoOutcome::Panicked(panic)),
        };
        self.end(job, outcome);
    }

    fn call(&self, caller: &mut Caller, job: &PostedJob) -> Result<Outcome, Error> {
        let Caller { session, tickets, answer } = caller;
        let (called, log_id, kind) = self.procedures.get(job.procedure)?;
        let call = Call { log_id, arguments: &job.arguments };
        let (mut value, mut outcome) = (Vec::new(), Ok(()));
        let mut body = |tx: &Transaction<'_>| {
            value.clear();
            outcome = called.run(tx, &job.arguments, &mut value);
            if outcome.is_ok() { Verdict::Commit } else { Verdict::Abandon }
        };
        session.run(Some((call, kind)), &mut body, answer)?;
        Ok((outcome.map(|()| value), tickets.issue(answer)))
    }

    /// Runs one call that may run on the calling thread; false if there is none.
    pub fn run_one(&self) -> Result<bool, Error> {
        let mut caller = self.caller()?;
        let Some(job) = self.next(false, || ()) else { return Ok(false) };
        self.run(&mut caller, &job);
        Ok(true)
    }

    /// Whether the calling thread runs posted calls.
    pub fn is_own_thread(&self) -> bool {
        self.state().own.contains(&thread::current().id())
    }

    /// Takes no more calls, and waits until those that are open have ended. Without threads the
    /// calling one runs them.
    pub fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        self.moved.notify_all();
        if threads.is_empty() {
            self.run_rest();
        }
        for thread in threads {
            // A panic of a procedure is in its reply.
            let _ = thread.join();
        }
    }

    fn run_rest(&self) {
        if self.state().open == 0 {
            return;
        }
        let mut caller = self.caller();
        while let Some(job) = self.next(true, || ()) {
            match &mut caller {
                Ok(caller) => self.run(caller, &job),
                Err(_) => {
                    let fault = "the database was closed before the call was run";
                    let failed = NoOutcome::Failed(Error::Misuse(fault.to_string()));
                    self.end(&job, Err(failed));
                }
            }
        }
    }
}
