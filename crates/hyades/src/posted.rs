//! Posted calls: a bounded queue of calls of procedures, and the threads that run them.
//!
//! A call is *open* from its post until its outcome is handed to its [`Reply`]. The builder limits
//! the number of open calls; a call above the limit is refused, and nothing of it is done. Threads
//! are started at the first post, each with its own session. Threads do not wait for durability:
//! the reply holds the ticket of the call, and a waiter for the call waits for the ticket.
//!
//! Where calls are logged before execution, the poster logs the call and lines the call up, with a
//! separate seat, and does not wait for the turn. (Like every session the poster first waits until
//! the log, and the side buffer of a scanning checkpoint, have room: both are emptied by threads
//! that wait for no call.) When its turn has come, as the turns tell, the call joins the runnable
//! calls. So no thread has a call for which the thread waits, and no call is waited for that no
//! thread has. If the turns have stopped, calls that wait for a turn end: whether a call survives
//! is decided when the database is opened again.
//!
//! A database with [sites](sites) has a thread for each site instead. Calls go to the sites of
//! their stated partitions; calls logged first do so once their turn has come.
//!
//! During its close a database takes no more calls, and runs the open calls first.

mod reply;
mod sites;
mod threads;

use hyades_platform::sync::Unpoisoned;
pub use reply::PostedCall;
use reply::{NoOutcome, Outcome, Reply};
use sites::Sites;

use crate::erased::{Answer, AnyEngine, AnySession, Arrived, ArrivedEnd, Verdict};
use crate::error::{Abort, Error};
use crate::logging::Needs;
use crate::logging::record::RecordKind;
use crate::pool::SessionPool;
use crate::retry::check_may_wait;
use crate::ticket::{LogHandles, Ticket, Tickets};
use crate::transaction::access::Transaction;
use crate::transaction::procedure::{ProcedureId, Procedures};
use hyades_platform::active_epochs::EpochSlot;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle, ThreadId};

/// A call on its way to a thread.
struct PostedJob {
    procedure: ProcedureId,
    arguments: Vec<u8>,
    /// The kind of record, if not the kind for all calls of the procedure.
    record: Option<RecordKind>,
    /// The order of the calling session, if the session keeps an order.
    order: Option<Needs>,
    reply: Arc<Reply>,
    /// The call's place in the log, if calls are logged before execution.
    arrived: Option<Box<Arrived>>,
}

/// The seat of a posted call, and its epoch slot.
type PostedSeat = (u32, Arc<EpochSlot>);

#[derive(Default)]
struct PostedState {
    /// Calls that may run, in the order of posting; where calls are logged first, in the order in
    /// which their turns come.
    runnable: VecDeque<PostedJob>,
    /// Logged calls that wait for their turn, by seat.
    waiting: HashMap<u32, PostedJob>,
    /// Seats of ended calls.
    seats: Vec<PostedSeat>,
    /// No call gets its turn any more.
    stopped: bool,
    threads: Vec<JoinHandle<()>>,
    own: Vec<ThreadId>,
}

/// The posted calls of a database, and the threads that run them.
pub(crate) struct PostedCalls {
    engine: Arc<dyn AnyEngine>,
    procedures: Arc<Procedures>,
    references: Option<Arc<LogHandles>>,
    /// The most open calls.
    most: usize,
    /// Calls are logged before execution.
    logs_first: bool,
    /// Threads to start.
    threads: usize,
    /// The sites, if the threads are sites.
    sites: Option<Sites>,
    /// All threads were started. Set under the lock of the state.
    started: AtomicBool,
    /// The number of open calls; and whether no more are taken. SeqCst, both: a counted call sees
    /// the closing, or is waited for.
    open: AtomicUsize,
    closed: AtomicBool,
    /// Sessions that log posted calls before execution.
    posters: SessionPool,
    state: Mutex<PostedState>,
    /// A call may run, or the last call has ended and the database is closed.
    moved: Condvar,
}

/// The state of a thread for running calls.
struct Caller {
    session: Box<dyn AnySession>,
    tickets: Tickets,
    answer: Answer,
}

/// A session lent for logging a call, until dropped.
struct Lent<'c> {
    posters: &'c SessionPool,
    session: Option<Box<dyn AnySession>>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.posters.give_back(self.session.take(), true);
    }
}

/// A call counted as open; a drop before `done` undoes the count.
struct Admitted<'c> {
    calls: &'c PostedCalls,
    is_done: bool,
}

/// Returns the error of a call of a database that was closed.
fn closed() -> Error {
    Error::Misuse("the database was closed".to_string())
}

impl Admitted<'_> {
    fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.calls.ended(None);
        }
    }
}

impl PostedCalls {
    /// `threads`: the number of cores if `None`. `sites`: the numbers of sites and of their
    /// partitions.
    pub fn new(
        (engine, procedures, references): (
            Arc<dyn AnyEngine>,
            Arc<Procedures>,
            Option<Arc<LogHandles>>,
        ),
        most: usize,
        threads: Option<usize>,
        sites: Option<(usize, usize)>,
    ) -> Arc<PostedCalls> {
        let cores = || thread::available_parallelism().map_or(1, |cores| cores.get());
        let logs_first = engine.logs_first();
        let calls = Arc::new(PostedCalls {
            engine,
            procedures,
            references,
            most,
            logs_first,
            threads: sites.map(|(sites, _)| sites).or(threads).unwrap_or_else(cores),
            sites: sites.map(|(sites, partitions)| Sites::new(sites, partitions)),
            started: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            posters: SessionPool::default(),
            state: Mutex::default(),
            moved: Condvar::new(),
        });
        if logs_first {
            // Weak: the engine is referred to by the calls.
            let told = Arc::downgrade(&calls);
            let ready = move |seat| _ = told.upgrade().map(|calls| calls.ready(seat));
            calls.engine.on_ready(Box::new(ready));
        }
        calls
    }

    /// Called when the turn of a call has come; or, with seat 0, when no more turns will come.
    fn ready(&self, seat: u32) {
        let mut state = self.state();
        if seat == 0 {
            state.stopped = true;
            let waiting = std::mem::take(&mut state.waiting);
            drop(state);
            for job in waiting.into_values() {
                self.end(job, Err(NoOutcome::Failed(Error::OutcomeUnknown)));
            }
            return;
        }
        if let Some(job) = state.waiting.remove(&seat) {
            self.push(state, job);
        } else {
            debug_assert!(state.stopped, "a call is here before it may run");
        }
    }

    fn state(&self) -> MutexGuard<'_, PostedState> {
        self.state.lock().unpoisoned()
    }

    fn caller(&self) -> Result<Caller, Error> {
        let session = self.engine.session()?;
        let tickets = Tickets::new(self.references.clone(), false);
        Ok(Caller { session, tickets, answer: Answer::default() })
    }

    /// Returns a session for logging calls.
    fn lend(&self) -> Result<Lent<'_>, Error> {
        let session = self.posters.take(true, || self.engine.session())?;
        Ok(Lent { posters: &self.posters, session: Some(session) })
    }

    /// Hands a call that may run to the threads.
    fn push(&self, mut state: MutexGuard<'_, PostedState>, job: PostedJob) {
        if let (Some(sites), Some(arrived)) = (&self.sites, &job.arrived) {
            let site_set = sites.of_slots(arrived.slots);
            drop(state);
            return sites.push(site_set, job);
        }
        state.runnable.push_back(job);
        drop(state);
        self.moved.notify_one();
    }

    /// Counts a call as open, if taken; no more than `most` calls if limited.
    fn admit(&self, is_limited: bool) -> Result<Admitted<'_>, Error> {
        let open = self.open.fetch_add(1, Ordering::SeqCst);
        let admitted = Admitted { calls: self, is_done: false };
        if self.closed.load(Ordering::SeqCst) {
            return Err(closed());
        }
        if is_limited && open >= self.most {
            return Err(Error::TooManyPosted(self.most));
        }
        Ok(admitted)
    }

    /// Posts a call.
    pub fn post<R>(
        self: &Arc<Self>,
        procedure: ProcedureId,
        arguments: Vec<u8>,
    ) -> Result<PostedCall<R>, Error> {
        Ok(PostedCall::of(self.submit((procedure, None), arguments, None, true)?))
    }

    /// Returns whether sites run the calls of the calling thread, which may wait for the sites.
    pub fn hands_over(&self) -> bool {
        self.sites.is_some() && !threads::is_site()
    }

    /// Has a call run by its sites, and waits for the end: the encoded result, and the ticket. The
    /// call is the next in the order of its session, if the session keeps an order.
    pub fn call_at_sites(
        self: &Arc<Self>,
        called: (ProcedureId, Option<RecordKind>),
        arguments: &[u8],
        order: &mut Option<Needs>,
    ) -> Result<(Result<Vec<u8>, Abort>, Ticket), Error> {
        match self.submit(called, arguments.to_vec(), order.clone(), false)?.outcome() {
            Ok(outcome) => {
                *order = outcome.order;
                Ok((outcome.result, outcome.ticket))
            }
            Err(NoOutcome::Failed(error)) => Err(error),
            Err(NoOutcome::Panicked(panic)) => resume_unwind(panic),
        }
    }

    fn submit(
        self: &Arc<Self>,
        (procedure, record): (ProcedureId, Option<RecordKind>),
        arguments: Vec<u8>,
        order: Option<Needs>,
        is_limited: bool,
    ) -> Result<Arc<Reply>, Error> {
        let (called, ..) = self.procedures.get(procedure)?;
        if self.logs_first || !is_limited {
            check_may_wait("a call was made")?;
        }
        let is_wrong = self.logs_first && !called.understands(&arguments);
        let admitted = self.admit(is_limited)?;
        if !self.started.load(Ordering::Acquire) {
            self.start()?;
        }
        let reply = Arc::new(Reply::new());
        let sites = self.sites.as_ref().filter(|_| !self.logs_first);
        let sites = sites.map(|sites| (sites, sites.of_slots(called.stated_slots(&arguments))));
        let (replies, arrived) = (reply.clone(), None);
        let job = PostedJob { procedure, arguments, record, order, reply: replies, arrived };
        if is_wrong {
            let ticket = Tickets::new(None, true).issue(&mut Answer::default());
            let order = job.order.clone();
            self.end(job, Ok(Outcome { result: Err(Abort::BadArguments), ticket, order }));
        } else if self.logs_first {
            let mut lent = self.lend()?;
            let seat = self.state().seats.pop();
            let seat = seat.map_or_else(|| self.engine.add_seat(), Ok)?;
            let session = lent.session.as_deref_mut().expect("it is given back when it is dropped");
            self.arrive(session, job, seat)?;
        } else if let Some((queues, sites)) = sites {
            queues.push(sites, job);
        } else {
            self.push(self.state(), job);
        }
        admitted.done();
        Ok(reply)
    }

    /// Logs a call, and lines the call up.
    fn arrive(
        &self,
        session: &mut dyn AnySession,
        mut job: PostedJob,
        seat: PostedSeat,
    ) -> Result<(), Error> {
        let (called, log_id, _) = self.procedures.get(job.procedure)?;
        let call = called.call(log_id, &job.arguments, true);
        let call = call.ok_or(Error::Aborted(Abort::BadArguments));
        match call.and_then(|call| session.arrive(call, (seat.0, &seat.1), &mut job.order)) {
            Ok(arrived) => job.arrived = Some(Box::new(arrived)),
            Err(error) => {
                self.state().seats.push(seat);
                return Err(error);
            }
        }
        self.state().waiting.insert(seat.0, job);
        self.engine.let_run(seat.0);
        Ok(())
    }

    /// Returns whether no call is open, and none will come.
    fn is_over(&self) -> bool {
        self.closed.load(Ordering::SeqCst) && self.open.load(Ordering::SeqCst) == 0
    }

    /// Returns the next call that may run. With `waits`, waits for a call, and returns `None` only
    /// once the database is closed and no call is open; else `None` if no call may run now.
    fn next(&self, waits: bool, idle: impl FnOnce()) -> Option<PostedJob> {
        let mut state = self.state();
        if state.runnable.is_empty() && !self.closed.load(Ordering::SeqCst) && waits {
            drop(state);
            idle();
            state = self.state();
        }
        loop {
            if let Some(job) = state.runnable.pop_front() {
                return Some(job);
            }
            if !waits || self.is_over() {
                return None;
            }
            state = self.moved.wait(state).unpoisoned();
        }
    }

    /// Ends a call.
    fn end(&self, job: PostedJob, outcome: Result<Outcome, NoOutcome>) {
        job.reply.end(outcome);
        self.ended(job.arrived.map(|arrived| arrived.posted_seat()));
    }

    /// Makes room for another call; the seat is free, unless turns have stopped: then the seat may
    /// stand in queues.
    fn ended(&self, seat: Option<PostedSeat>) {
        if seat.is_some() {
            let mut state = self.state();
            if !state.stopped {
                state.seats.extend(seat);
            }
        }
        self.open.fetch_sub(1, Ordering::SeqCst);
        if self.is_over() {
            self.let_threads_end();
        }
    }

    fn run(&self, caller: &mut Caller, mut job: PostedJob) {
        let ran = catch_unwind(AssertUnwindSafe(|| self.call(caller, &mut job)));
        let outcome = match ran {
            Ok(Ok(Some(outcome))) => Ok(outcome),
            Ok(Ok(None)) => return self.arrive_again(caller, job),
            Ok(Err(error)) => Err(NoOutcome::Failed(error)),
            Err(panic) => Err(NoOutcome::Panicked(panic)),
        };
        self.end(job, outcome);
    }

    /// Logs a call anew if the record does not state the call's draws. The call has left its
    /// queues.
    fn arrive_again(&self, caller: &mut Caller, mut job: PostedJob) {
        let reply = job.reply.clone();
        let arrived = job.arrived.take().expect("it was logged");
        let seat = arrived.posted_seat();
        // The procedure's statement about its arguments is the program's code, too.
        let arrive = AssertUnwindSafe(|| self.arrive(&mut *caller.session, job, seat));
        let failed = match catch_unwind(arrive) {
            Ok(arrived) => arrived.map_err(NoOutcome::Failed).err(),
            Err(panic) => Some(NoOutcome::Panicked(panic)),
        };
        if let Some(failed) = failed {
            reply.end(Err(failed));
            self.ended(None);
        }
    }

    /// Runs a call. `None` if the call has to be logged anew.
    fn call(&self, caller: &mut Caller, job: &mut PostedJob) -> Result<Option<Outcome>, Error> {
        let Caller { session, tickets, answer } = caller;
        let (called, log_id, kind) = self.procedures.get(job.procedure)?;
        let (mut value, mut outcome) = (Vec::new(), Ok(()));
        let mut body = |tx: &Transaction<'_>| {
            value.clear();
            outcome = called.run(tx, &job.arguments, &mut value);
            if outcome.is_ok() { Verdict::Commit } else { Verdict::Abandon }
        };
        answer.order = job.order.clone();
        if let Some(arrived) = &mut job.arrived {
            if let ArrivedEnd::Lacks(drawn) = session.run_arrived(arrived, &mut body, answer) {
                called.learn(drawn);
                return Ok(None);
            }
            outcome = answer.refused.take().map_or(outcome, Err);
        } else {
            let call = called.call(log_id, &job.arguments, false);
            let call = call.expect("it is not looked at before");
            session.run(Some((call, job.record.unwrap_or(kind))), &mut body, answer)?;
        }
        let order = answer.order.take();
        Ok(Some(Outcome { result: outcome.map(|()| value), ticket: tickets.issue(answer), order }))
    }

    /// Runs a runnable call on the calling thread; false if there is none.
    ///
    /// # Errors
    /// [`Error::Misuse`] inside a transaction of the database, before a call is taken from the
    /// queue: the call could not be run, and is another client's.
    pub fn run_one(&self) -> Result<bool, Error> {
        if self.engine.is_inside() {
            return Err(Error::Misuse(
                "a posted call was to be run inside a transaction of the same database: each would \
                 wait for the other; run it when the transaction has ended"
                    .to_string(),
            ));
        }
        let mut caller = self.caller()?;
        let Some(job) = self.next(false, || ()) else { return Ok(false) };
        self.run(&mut caller, job);
        Ok(true)
    }
}
